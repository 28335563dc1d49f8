//! The thread of an append-only log: it makes chunks ready ahead of the log's end, and moves full
//! chunks below. Whoever appends waits for it only while the window has no room.
//!
//! If what lies below refuses, the thread tries again after a while, and at once when a writer
//! waits. A writer is told of the refusal after one more try: nothing is lost, and it may append
//! again later.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tidegate_append_log::{AppendLog, LogError, Prepared, WrittenBack};
use tidegate_media::Region;

/// The pause before steps that were refused are tried again.
const RETRY: Duration = Duration::from_millis(500);

/// A log whose background work is done by a thread of its own until this is dropped.
pub struct LogThread<R: Region + 'static> {
    log: Arc<AppendLog<R>>,
    signals: Arc<Signals>,
    /// The chunk in which the log's durable bytes ended when a sync last rang. Relaxed: a bell that
    /// rings twice does no harm, and the thread looks itself what there is to do.
    rung_at: AtomicU64,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Signals {
    ending: AtomicBool,
    rounds: Mutex<Rounds>,
    ended: Condvar,
}

/// A round takes all steps that there are.
#[derive(Default)]
struct Rounds {
    done: u64,
    /// The round whose end somebody waits for.
    wanted: u64,
    over: bool,
}

/// What is left after a round.
enum Left {
    Nothing,
    Refused,
}

impl Signals {
    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells whoever waits that no round follows, however the thread ends.
struct Over(Arc<Signals>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.rounds().over = true;
        self.0.ended.notify_all();
    }
}

impl<R: Region + 'static> LogThread<R> {
    /// Starts the thread.
    pub fn start(log: AppendLog<R>) -> io::Result<LogThread<R>> {
        let (log, signals) = (Arc::new(log), Arc::<Signals>::default());
        let (its_log, its) = (Arc::downgrade(&log), Arc::clone(&signals));
        let work = move || work(&its_log, &Over(its));
        let thread = thread::Builder::new().name("append-log".to_owned()).stack_size(256 << 10).spawn(work)?;
        Ok(LogThread { log, signals, rung_at: AtomicU64::new(0), thread: Some(thread) })
    }

    /// The log itself.
    pub fn log(&self) -> &AppendLog<R> {
        &self.log
    }

    /// Appends `bytes`, and waits for room if there is none; says where they end. More bytes than a
    /// chunk has are appended in parts, and while the window has no room, parts are synced: after a
    /// power loss some of those may be there without the rest.
    ///
    /// # Errors
    /// What keeps the log from going on. Parts before that stay appended.
    pub fn append(&self, bytes: &[u8]) -> Result<u64, LogError> {
        let chunk_bytes = self.log.chunk_bytes();
        let mut end = self.log.appended_to();
        for part in bytes.chunks(usize::try_from(chunk_bytes).unwrap_or(usize::MAX)) {
            end = self.append_part(part)?;
            if end / chunk_bytes != (end - part.len() as u64) / chunk_bytes {
                self.ring();
            }
        }
        Ok(end)
    }

    fn append_part(&self, part: &[u8]) -> Result<u64, LogError> {
        let mut was_stuck = false;
        loop {
            match self.log.append(part) {
                Err(LogError::Below(_) | LogError::Damaged(_)) if !was_stuck => was_stuck = true,
                Err(LogError::Full { .. }) => drop(self.log.sync()?),
                answer => return answer,
            }
            if !self.wait_for_round() {
                return self.log.append(part);
            }
        }
    }

    /// Makes durable what was appended before; says where it ends.
    ///
    /// # Errors
    /// Those of [`AppendLog::sync`].
    pub fn sync(&self) -> Result<u64, LogError> {
        let durable = self.log.sync()?;
        let chunk = durable / self.log.chunk_bytes();
        if self.rung_at.swap(chunk, Ordering::Relaxed) != chunk {
            self.ring();
        }
        Ok(durable)
    }

    fn ring(&self) {
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }

    /// Waits for a round that begins after this call; whether there was one.
    fn wait_for_round(&self) -> bool {
        let mut rounds = self.signals.rounds();
        // One may be under way, and past what this is about.
        let wanted = rounds.done + 2;
        rounds.wanted = rounds.wanted.max(wanted);
        self.ring();
        while rounds.done < wanted && !rounds.over {
            rounds = self.signals.ended.wait(rounds).unwrap_or_else(PoisonError::into_inner);
        }
        rounds.done >= wanted
    }

    /// Gives the log up in a process that has no part in it: the copy that a forked child has. The
    /// thread is the parent's.
    pub fn abandon(mut self) {
        std::mem::forget(self.thread.take());
    }
}

impl<R: Region + 'static> Drop for LogThread<R> {
    fn drop(&mut self) {
        self.signals.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A thread that panicked said so; what is durable stays in the window.
            let _ = thread.join();
        }
    }
}

/// The thread's work, until the end. Between rounds it has no part in the log.
fn work<R: Region>(log: &Weak<AppendLog<R>>, over: &Over) {
    let signals = &over.0;
    while !signals.ending.load(Ordering::Acquire) {
        let Some(log) = log.upgrade() else { return };
        let left = round(&log, signals);
        drop(log);
        let is_wanted = {
            let mut rounds = signals.rounds();
            rounds.done += 1;
            signals.ended.notify_all();
            rounds.wanted > rounds.done
        };
        // Whoever rings leaves a token, so a bell before this line is not lost.
        match left {
            _ if is_wanted || signals.ending.load(Ordering::Acquire) => {}
            Left::Nothing => thread::park(),
            Left::Refused => thread::park_timeout(RETRY),
        }
    }
}

/// Takes all steps that there are: chunks that are full first, as they keep slots from being used
/// again.
fn round<R: Region>(log: &AppendLog<R>, signals: &Signals) -> Left {
    while !signals.ending.load(Ordering::Acquire) {
        let written = log.write_back_step();
        // While what lies below refuses chunks, slots that are free may still be made ready.
        let prepared = log.prepare_step();
        match (written, prepared) {
            (Ok(WrittenBack::Nothing), Ok(Prepared::Nothing)) => return Left::Nothing,
            (Err(_), _) | (_, Err(_)) => return Left::Refused,
            _ => {}
        }
        // A writer that waits for room goes on with the first chunk of it.
        let mut rounds = signals.rounds();
        if rounds.wanted > rounds.done {
            rounds.done += 1;
            signals.ended.notify_all();
        }
    }
    Left::Nothing
}
