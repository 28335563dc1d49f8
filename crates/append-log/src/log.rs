//! The log at work: appending, and what makes appended bytes durable.

use crate::error::{Damage, LogError};
use crate::window::Window;
use std::sync::Arc;
use tidegate_layout::append_log::{ChunkSum, LogFacts, LogHead, LogPlan};
use tidegate_media::sync::{Mutex, MutexGuard};
use tidegate_media::{BlockDevice, Region, Sealed};

/// Bytes that wait in DRAM for a sync at most; no more than a chunk has, if that is less.
const STAGED_BYTES_MAX: u64 = 64 << 10;

/// A log that bytes are appended to; see the crate.
///
/// Serves many threads: each call takes a lock, and the steps keep it only while they touch the
/// window.
pub struct AppendLog<R: Region> {
    pub(crate) region: R,
    pub(crate) below: Arc<dyn BlockDevice>,
    pub(crate) plan: LogPlan,
    pub(crate) state: Mutex<State>,
    /// Held by the step or the drop under way.
    pub(crate) stepping: Mutex<()>,
}

/// Where the log is.
///
/// 1. `begin` ≤ `durable` ≤ `streamed` ≤ `appended` ≤ `prepared` chunks.
/// 2. `staged` holds the bytes from `streamed` to `appended`.
/// 3. `full` has the words of the chunks that bytes from `durable` to `streamed` filled, and `sum`
///    is that of the chunk in which `streamed` lies.
/// 4. Chunks below `below` are durable below or were dropped, and chunks from `below` on lie in the
///    window: `prepared` ≤ `below` + slots.
pub(crate) struct State {
    pub(crate) facts: LogFacts,
    pub(crate) durable: u64,
    pub(crate) streamed: u64,
    pub(crate) appended: u64,
    pub(crate) staged: Vec<u8>,
    pub(crate) sum: ChunkSum,
    pub(crate) full: Vec<(u64, u64)>,
    pub(crate) prepared: u64,
    pub(crate) below: u64,
    /// Chunks below this number are read from below, whatever the window has of them.
    pub(crate) read_below: u64,
    /// Why no chunk could be moved below last, unless one was since.
    pub(crate) stuck: Option<LogError>,
    /// The fence that failed. Nothing is stored since then.
    pub(crate) sealed: Option<Sealed>,
    pub(crate) damage: Vec<Damage>,
}

impl State {
    /// Refuses changes to a log that has lost a store, or is damaged.
    pub(crate) fn may_change(&self) -> Result<(), LogError> {
        match (self.sealed, self.damage.first()) {
            (Some(sealed), _) => Err(sealed.into()),
            (None, Some(damage)) => Err(LogError::Damaged(damage.clone())),
            (None, None) => Ok(()),
        }
    }

    /// Keeps the answer of a fence.
    pub(crate) fn kept(&mut self, fenced: Result<(), Sealed>) -> Result<(), Sealed> {
        fenced.inspect_err(|sealed| self.sealed = Some(*sealed))
    }

    #[cfg(debug_assertions)]
    fn assert_invariants(&self, plan: &LogPlan) {
        let places = [self.facts.begin, self.durable, self.streamed, self.appended, self.prepared * plan.chunk_bytes];
        assert!(places.is_sorted(), "invariant 1: {places:?}");
        assert!(self.streamed + self.staged.len() as u64 == self.appended, "invariant 2");
        assert!(self.sum.number() == plan.chunk_of(self.streamed), "invariant 3");
        assert!(self.prepared <= self.below + u64::from(plan.chunks), "invariant 4");
    }
}

impl<R: Region> AppendLog<R> {
    pub(crate) fn new(region: R, below: Arc<dyn BlockDevice>, facts: LogFacts, window: Window) -> AppendLog<R> {
        let state = State {
            facts,
            durable: window.end,
            streamed: window.end,
            appended: window.end,
            staged: Vec::new(),
            sum: window.sum,
            full: Vec::new(),
            prepared: window.prepared,
            below: window.below,
            read_below: window.below,
            stuck: None,
            sealed: None,
            damage: window.damage,
        };
        AppendLog { region, below, plan: facts.plan, state: Mutex::new(state), stepping: Mutex::default() }
    }

    /// What the log is.
    pub fn facts(&self) -> LogFacts {
        self.state.lock().facts
    }

    /// Where the log begins: what lies before was dropped.
    pub fn begin(&self) -> u64 {
        self.state.lock().facts.begin
    }

    /// Where the bytes end that survive a power loss.
    pub fn durable_to(&self) -> u64 {
        self.state.lock().durable
    }

    /// Where the appended bytes end.
    pub fn appended_to(&self) -> u64 {
        self.state.lock().appended
    }

    /// Bytes in a chunk.
    pub fn chunk_bytes(&self) -> u64 {
        self.plan.chunk_bytes
    }

    /// Bytes of the window: no append may have more.
    pub fn window_bytes(&self) -> u64 {
        u64::from(self.plan.chunks) * self.plan.chunk_bytes
    }

    /// Appends `bytes`, all of them or none; says where they end. They are durable after a
    /// [`AppendLog::sync`].
    ///
    /// # Errors
    /// [`LogError::Full`] if steps have to be taken first, or what keeps those from going on.
    /// Nothing was appended then.
    pub fn append(&self, bytes: &[u8]) -> Result<u64, LogError> {
        let mut state = self.state.lock();
        state.may_change()?;
        let len = bytes.len() as u64;
        if len > self.window_bytes() {
            return Err(LogError::TooLong { len, window: self.window_bytes() });
        }
        while state.appended + len > state.prepared * self.plan.chunk_bytes {
            self.prepare(&mut state)?;
        }
        if (state.staged.len() + bytes.len()) as u64 > self.plan.chunk_bytes.min(STAGED_BYTES_MAX) {
            self.stream_staged(&mut state);
            self.stream(&mut state, bytes);
            // Another thread's fence would not cover them.
            let fenced = self.region.fence();
            state.kept(fenced)?;
        } else {
            state.staged.extend_from_slice(bytes);
        }
        state.appended += len;
        #[cfg(debug_assertions)]
        state.assert_invariants(&self.plan);
        Ok(state.appended)
    }

    /// Makes durable what was appended before; says where it ends. Two fences, and another one if
    /// the new bytes reach into a further chunk; none if everything is durable.
    ///
    /// # Errors
    /// After an error nobody knows whether the new bytes are durable, and the log takes no more:
    /// open it anew.
    pub fn sync(&self) -> Result<u64, LogError> {
        let mut state = self.state.lock();
        state.may_change()?;
        if state.durable == state.appended {
            return Ok(state.durable);
        }
        self.stream_staged(&mut state);
        let fenced = self.commit(&mut state);
        state.kept(fenced)?;
        state.durable = state.appended;
        #[cfg(debug_assertions)]
        state.assert_invariants(&self.plan);
        Ok(state.durable)
    }

    /// Has all bytes count that were streamed, by a store of the word of the chunk in which the
    /// durable ones end.
    fn commit(&self, state: &mut MutexGuard<'_, State>) -> Result<(), Sealed> {
        let mut words = std::mem::take(&mut state.full);
        let last = state.sum.committed();
        words.extend((last.len > 0).then(|| (state.sum.number(), last.word())));
        self.region.fence()?;
        let Some((first, later)) = words.split_first() else { return Ok(()) };
        if !later.is_empty() {
            later.iter().for_each(|word| self.store_committed(*word));
            self.region.fence()?;
        }
        self.store_committed(*first);
        self.region.fence()
    }

    fn store_committed(&self, (number, word): (u64, u64)) {
        let at = self.plan.head_at(number) + LogHead::COMMITTED_AT;
        self.region.store_u64(at, word);
        self.region.flush(at, 8);
    }

    fn stream_staged(&self, state: &mut MutexGuard<'_, State>) {
        let staged = std::mem::take(&mut state.staged);
        self.stream(state, &staged);
        // It is used again.
        state.staged = staged;
        state.staged.clear();
    }

    /// Streams `bytes` behind what was streamed before.
    fn stream(&self, state: &mut MutexGuard<'_, State>, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let until_next = self.plan.chunk_bytes - state.streamed % self.plan.chunk_bytes;
            let (part, others) = rest.split_at(usize::try_from(until_next).map_or(rest.len(), |n| n.min(rest.len())));
            self.region.stream(self.plan.byte_at(state.streamed), part);
            state.sum.add(part);
            state.streamed += part.len() as u64;
            let committed = state.sum.committed();
            if u64::from(committed.len) == self.plan.chunk_bytes {
                let number = state.sum.number();
                state.full.push((number, committed.word()));
                state.sum = ChunkSum::new(number + 1);
            }
            rest = others;
        }
    }
}
