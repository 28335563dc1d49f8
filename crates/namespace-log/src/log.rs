//! The log while the service is at work.

use crate::error::NamespaceError;
use crate::source::{NamespaceSource, Witness};
use std::sync::Arc;
use tidegate_file_cache::identify;
use tidegate_layout::file_cache::{LOG_LINE_BYTES, LogRecord, NameChange};
use tidegate_media::Region;
use tidegate_media::sync::{Mutex, MutexGuard};
use tidegate_wal::NameRing;

/// A place in the log: everything recorded before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// What the log has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceCounters {
    /// Operations recorded.
    pub recorded: u64,
    /// Commits that had something to make durable.
    pub commits: u64,
    /// Syncs of SOURCE that an operation or a commit waited for.
    pub syncs_below: u64,
}

/// The namespace log of a pool.
pub struct NamespaceLog<R> {
    ring: NameRing<R>,
    pool: [u8; 16],
    source: Arc<dyn NamespaceSource>,
    /// Held from before an operation is done below until its witness is stored. Taken first.
    order: Mutex<()>,
    cursors: Mutex<Cursors>,
}

struct Cursors {
    head: u64,
    tail: u64,
    /// The head that is durable.
    committed: u64,
    /// Behind the last operation whose witness is stored.
    witnessed: u64,
    /// Whether SOURCE may have operations without a record, from a process that was killed. None is
    /// recorded before SOURCE was synced.
    unsettled: bool,
    /// Why nothing is recorded any more.
    failed: Option<NamespaceError>,
    counters: NamespaceCounters,
}

/// The right to do one operation after the other below and to record them.
pub struct NamesWriting<'a, R> {
    log: &'a NamespaceLog<R>,
    _order: MutexGuard<'a, ()>,
}

impl<R: Region> NamespaceLog<R> {
    /// Opens the log of the pool on `region`, which has nothing to repeat, and [settles] it.
    ///
    /// [settles]: NamespaceLog::settle
    pub fn open(region: R, source: Arc<dyn NamespaceSource>) -> Result<NamespaceLog<R>, NamespaceError> {
        let log = NamespaceLog::resume(region, source)?;
        if log.fill().0 > 0 {
            return Err(NamespaceError::NotRecovered);
        }
        log.settle().map(|()| log)
    }

    /// Opens the log of the pool on `region` as a process left it that was killed. SOURCE has each
    /// of its operations, if not durably: its file system was mounted ever since. Changes nothing
    /// in SOURCE.
    pub fn resume(region: R, source: Arc<dyn NamespaceSource>) -> Result<NamespaceLog<R>, NamespaceError> {
        let pool = identify(&region)?;
        let ring = NameRing::new(region, pool.plan.namespace().ok_or(NamespaceError::NoLog)?);
        let (head, tail) = ring.settled_cursors()?;
        let counters = NamespaceCounters::default();
        let cursors = Cursors { head, tail, committed: head, witnessed: tail, unsettled: true, failed: None, counters };
        Ok(NamespaceLog { ring, pool: pool.uuid, source, order: Mutex::new(()), cursors: Mutex::new(cursors) })
    }

    /// From now on SOURCE is the directory that the pool belongs to, durably. All that was done in
    /// it before is durable too: an earlier service may have been killed between an operation and
    /// its record. Does nothing if that was done before.
    ///
    /// # Errors
    /// SOURCE refused. The log keeps what it has, and this may be tried again.
    pub fn settle(&self) -> Result<(), NamespaceError> {
        if !self.is_unsettled() {
            return Ok(());
        }
        let _order = self.order.lock();
        self.settle_in_order()
    }

    /// Settles the log for the thread that has the lock of operations.
    fn settle_in_order(&self) -> Result<(), NamespaceError> {
        let head = {
            let cursors = self.cursors.lock();
            cursors.check()?;
            if !cursors.unsettled {
                return Ok(());
            }
            cursors.head
        };
        let witness = Witness { pool: self.pool, place: head };
        if self.source.witness()? != Some(witness) {
            self.source.set_witness(&witness)?;
        }
        self.source.sync()?;
        let mut cursors = self.cursors.lock();
        self.retire(&mut cursors, head)?;
        (cursors.witnessed, cursors.unsettled) = (head, false);
        Ok(())
    }

    /// Whether SOURCE has not been synced yet since the log was resumed.
    pub fn is_unsettled(&self) -> bool {
        self.cursors.lock().unsettled
    }

    /// Begins an operation: called before it is done below, and kept until its record is made.
    /// After a failure no operation may be done any more. Settles the log if that was not done.
    pub fn begin(&self) -> Result<NamesWriting<'_, R>, NamespaceError> {
        let order = self.order.lock();
        self.settle_in_order()?;
        Ok(NamesWriting { log: self, _order: order })
    }

    /// Makes every operation durable that was recorded before: one fence, or none.
    pub fn commit(&self) -> Result<(), NamespaceError> {
        let mut cursors = self.cursors.lock();
        cursors.check()?;
        if cursors.committed == cursors.head {
            return Ok(());
        }
        cursors.counters.commits += 1;
        self.settle_head(&mut cursors)
    }

    /// The place up to which a sync of SOURCE that begins now makes operations durable.
    pub fn mark(&self) -> Mark {
        Mark(self.cursors.lock().witnessed)
    }

    /// A sync of SOURCE that began after `mark` was taken has succeeded: the log gives up the
    /// records before it.
    pub fn durable_below(&self, mark: Mark) -> Result<(), NamespaceError> {
        let mut cursors = self.cursors.lock();
        cursors.check()?;
        self.retire(&mut cursors, mark.0)
    }

    /// Bytes of records that SOURCE may lack, and the bytes at which an operation waits for a sync
    /// of SOURCE.
    pub fn fill(&self) -> (u64, u64) {
        let cursors = self.cursors.lock();
        ((cursors.head - cursors.tail) * LOG_LINE_BYTES, self.ring.lines() / 2 * LOG_LINE_BYTES)
    }

    /// What was done since the log was opened.
    pub fn counters(&self) -> NamespaceCounters {
        self.cursors.lock().counters
    }

    /// Makes the head durable that was stored.
    fn settle_head(&self, cursors: &mut Cursors) -> Result<(), NamespaceError> {
        self.ring.flush_cursors();
        self.ring.fence().map_err(|sealed| cursors.fail(sealed.into()))?;
        cursors.committed = cursors.head;
        Ok(())
    }

    /// Moves the tail, durably. The head is durable before: one cursor may arrive without the
    /// other.
    fn retire(&self, cursors: &mut Cursors, tail: u64) -> Result<(), NamespaceError> {
        if tail <= cursors.tail {
            return Ok(());
        }
        self.settle_head(cursors)?;
        self.ring.store_tail(tail);
        self.ring.fence().map_err(|sealed| cursors.fail(sealed.into()))?;
        cursors.tail = tail;
        Ok(())
    }

    /// Makes everything durable that was done below, and gives up all records. Nobody does an
    /// operation meanwhile.
    fn sync_below(&self) -> Result<(), NamespaceError> {
        let synced = self.source.sync();
        let mut cursors = self.cursors.lock();
        cursors.counters.syncs_below += 1;
        synced.map_err(|refused| cursors.fail(refused.into()))?;
        let head = cursors.head;
        self.retire(&mut cursors, head)
    }

    /// Whether a record of so many lines fits behind the head. Half of the ring stays free for what
    /// recovery appends.
    fn has_room(&self, lines: u64) -> bool {
        let cursors = self.cursors.lock();
        cursors.head - cursors.tail + lines <= self.ring.lines() / 2
    }

    /// Steps 2 and 3 of an operation. Returns the new head.
    fn append(&self, record: &[u8]) -> Result<u64, NamespaceError> {
        let mut cursors = self.cursors.lock();
        self.ring.stream(cursors.head, record);
        self.ring.fence().map_err(|sealed| cursors.fail(sealed.into()))?;
        cursors.head += record.len() as u64 / LOG_LINE_BYTES;
        self.ring.store_head(cursors.head);
        cursors.counters.recorded += 1;
        Ok(cursors.head)
    }
}

impl<R: Region> NamesWriting<'_, R> {
    /// Records an operation that was just done below. Durable with the next
    /// [`NamespaceLog::commit`].
    ///
    /// # Errors
    /// The operation is done and may be lost. Every later operation and commit fails too.
    pub fn record(&mut self, change: &NameChange<'_>) -> Result<Mark, NamespaceError> {
        let log = self.log;
        let head = log.cursors.lock().head;
        let Some(record) = LogRecord::Change(*change).bytes(head) else {
            // No record takes it. SOURCE has it durably, and nothing is left to be repeated.
            log.sync_below()?;
            return Ok(Mark(head));
        };
        if !log.has_room(record.len() as u64 / LOG_LINE_BYTES) {
            log.sync_below()?;
        }
        let place = log.append(&record)?;
        let witnessed = log.source.set_witness(&Witness { pool: log.pool, place });
        let mut cursors = log.cursors.lock();
        witnessed.map_err(|refused| cursors.fail(refused.into()))?;
        cursors.witnessed = place;
        Ok(Mark(place))
    }

    /// Does without a record of an operation that was just done below: waits until SOURCE has it
    /// durably.
    ///
    /// # Errors
    /// As those of [`NamesWriting::record`].
    pub fn without_record(&mut self) -> Result<(), NamespaceError> {
        self.log.sync_below()
    }
}

impl Cursors {
    fn check(&self) -> Result<(), NamespaceError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// The first failure stays.
    fn fail(&mut self, error: NamespaceError) -> NamespaceError {
        self.failed.get_or_insert(error).clone()
    }
}
