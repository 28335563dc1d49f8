//! A file that a program has open, with the lease that it has of it or may have.

mod joining;
mod length;
mod reading;

use crate::backoff::{Backoff, VainBackoff, WRITES_PER_SYNC};
use crate::grant::grant_of;
use crate::os::{LeaseRequest, Os};
use crate::read_cache::{Owner, PAGE_BYTES, ReadCache};
pub use reading::ReadAids;
use reading::ReadsWorth;
use tidegate_file_cache::{LeasedFile, Others, Wrote};
use tidegate_file_wire::{Answer, Claim, JOINS, READ_BYTES_MAX, Read, SOON, VERSION};
use tidegate_layout::file_cache::{Class, LEASE_CLASS, LeaseGrant, LeasePlan};
use tidegate_media::ExchangeWords;

/// A lease that was written so often was worth its room.
const WRITES_WORTH_ROOM: u32 = 64;
/// So many rooms in a row that were not worth it are left for another one at once.
const ROOMS_LEFT_MAX: u32 = 8;
/// Of so many writes by a lease, one says its program context.
const CONTEXT_EVERY: u32 = 64;
/// So often a lease is extended for one write: each time it gets twice as much.
const EXTENSIONS_MAX: u32 = 4;
/// A log with more elements is one that several processes are to have, and has so many blocks.
const ALONE_ELEMENTS_MAX: u32 = 2044;
const COMMON_BLOCKS_MAX: u32 = 1022;
/// After so many questions in vain, a share is asked for more seldom, and where blocks lie.
const VAIN_JOINS: u32 = 8;
const VAIN_LOCATES: u32 = 1;
/// Between two questions for a lease that is there in a moment, so many rounds of a wait go by.
const SOON_ROUNDS: usize = 20;
/// So often the service is asked how a write in doubt has ended.
const PROBES_MAX: u32 = 4;

/// Where bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTarget {
    /// At this offset.
    At(u64),
    /// At the end of the file, wherever that is (`O_APPEND`).
    End,
}

/// What a write lasts until when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until the power fails, or a sync makes it last.
    PowerLoss,
    /// For ever (`O_DSYNC`).
    Erased,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempted {
    /// It was done; for a write, the offset behind its bytes, for a read, how many bytes there are.
    Done(u64),
    /// A write was done, and is not durable yet: a sync of the descriptor makes it so.
    Unsynced(u64),
    /// Nothing was done: the descriptor does it.
    ByDescriptor,
    /// Nobody knows whether it was done: the medium has failed (`EIO`).
    Failed,
}

/// A file that a program has open for writing.
pub struct DirectFile<O: Os> {
    os: O,
    pool_bytes: u64,
    backoff: Backoff,
    joins: VainBackoff,
    lease: Option<Leased<O::Memory>>,
    /// Rooms that were left for another one, in a row, and were not worth it.
    rooms_left: u32,
    never: bool,
    /// Reads that took no request, and were not told of yet.
    kept_reads: u64,
}

/// A lease that this process has.
struct Leased<M> {
    number: u64,
    file: LeasedFile<M>,
    /// Longest write that its log takes, in bytes.
    write_bytes_max: u64,
    writes: u32,
    syncs: u32,
    reads_worth: ReadsWorth,
    /// When to ask where pages lie in the pool.
    locates: VainBackoff,
    /// Requests for reading.
    requests: u64,
    /// Where pages of it are kept, and by which owner, if any are.
    pages: Option<(Owner, ReadCache<'static>)>,
}

/// Who ends a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndedBy {
    /// The program itself, or this library for its sake.
    Program,
    /// Others, by a request; or it was no use.
    Others,
}

impl<O: Os> DirectFile<O> {
    /// A file that nothing is known of, in a pool of `pool_bytes`.
    pub fn new(os: O, pool_bytes: u64) -> DirectFile<O> {
        DirectFile {
            os,
            pool_bytes,
            backoff: Backoff::default(),
            joins: VainBackoff::new(VAIN_JOINS),
            lease: None,
            rooms_left: 0,
            never: false,
            kept_reads: 0,
        }
    }

    /// What it asks the system by.
    pub fn os(&mut self) -> &mut O {
        &mut self.os
    }

    /// Whether there is a lease, as far as this process knows.
    pub fn is_leased(&self) -> bool {
        self.lease.is_some()
    }

    /// Writes bytes, all of them or none. `message` is room for some of them.
    pub fn write(&mut self, place: WriteTarget, data: &[u8], until: Until, message: &mut Read) -> Attempted {
        if data.is_empty() {
            return Attempted::ByDescriptor;
        }
        let at = if let WriteTarget::At(at) = place { at } else { 0 };
        if self.lease.is_none() && !self.join(at, data.len()) {
            match until {
                Until::Erased => self.backoff.saw_sync(),
                Until::PowerLoss => self.backoff.saw_write(),
            }
        }
        if data.len() as u64 > self.write_bytes_max() {
            self.leave();
            return Attempted::ByDescriptor;
        }
        if self.lease.is_none() && !self.claim_if_due(at, data.len()) {
            return Attempted::ByDescriptor;
        }
        match self.write_leased(place, data, message) {
            Attempted::Done(end) if until == Until::Erased && !self.sync_leased() => Attempted::Unsynced(end),
            outcome => outcome,
        }
    }

    /// Makes durable all that was written to the file before.
    pub fn sync(&mut self) -> Attempted {
        let is_revoked = |leased: &Leased<O::Memory>| leased.file.is_revoked().unwrap_or(true);
        if self.lease.as_ref().is_some_and(is_revoked) {
            self.end(EndedBy::Others);
        }
        // A lease had all of the file durable when it was granted.
        if self.lease.is_none() && !self.join(0, 0) {
            self.backoff.saw_sync();
            return Attempted::ByDescriptor;
        }
        if self.sync_leased() { Attempted::Done(0) } else { Attempted::ByDescriptor }
    }

    /// Ends the lease by the program's own wish, if there is one, and has the service take over
    /// what was written.
    pub fn leave(&mut self) {
        self.end(EndedBy::Program);
    }

    /// Longest write by the lease, or by one that there may be, in bytes.
    fn write_bytes_max(&self) -> u64 {
        let longest = || write_bytes_max(LeasePlan::of(0, Class::ALL[3]).elements);
        self.lease.as_ref().map_or_else(longest, |leased| leased.write_bytes_max)
    }

    /// Claims the file for a write, if that is due.
    fn claim_if_due(&mut self, at: u64, len: usize) -> bool {
        !self.never && self.backoff.is_due() && self.claim(at, len)
    }

    /// Claims the file for a write.
    fn claim(&mut self, at: u64, len: usize) -> bool {
        match self.ask_for_lease(at, len, 0) {
            Answer::Granted => return true,
            Answer::Later => self.backoff.was_refused(),
            Answer::Never => self.never = true,
        }
        false
    }

    /// Has the lease have room there, or another one. Without one, who writes by it says so.
    fn find_room(&mut self, at: u64, len: usize) {
        if self.widen(at, len) {
            return;
        }
        let was_worth_it = self.lease.as_ref().is_some_and(|leased| leased.writes >= WRITES_WORTH_ROOM);
        self.rooms_left = if was_worth_it { 0 } else { self.rooms_left + 1 };
        self.leave();
        self.claim(at, len);
    }

    /// Asks for more room for the lease. False: it has none there.
    fn widen(&mut self, at: u64, len: usize) -> bool {
        let Some(leased) = &mut self.lease else { return false };
        let (lease, len) = (leased.number.into(), (len as u64).into());
        let mut claim =
            Claim { version: VERSION.into(), at: at.into(), len, lease, how: JOINS.into(), ..Claim::default() };
        let granted = self.os.claim(&mut claim).then(|| grant_of(&claim, self.pool_bytes)).flatten();
        let wider = granted.filter(|grant| grant.lease == leased.number);
        wider.map(|grant| leased.file.widen(grant.room)).is_some()
    }

    /// Asks for a lease, and takes one that is granted.
    fn ask_for_lease(&mut self, at: u64, len: usize, how: u64) -> Answer {
        let (at, len, how) = (at.into(), (len as u64).into(), how.into());
        for round in (0..).step_by(SOON_ROUNDS) {
            let mut claim = Claim { version: VERSION.into(), at, len, how, ..Claim::default() };
            let answer = if self.os.claim(&mut claim) { Answer::of(claim.answer.get()) } else { Answer::Never };
            match answer {
                Answer::Granted => return self.take(&claim),
                Answer::Later if claim.how.get() == SOON && self.os.pause(round) => {}
                Answer::Later | Answer::Never => return answer,
            }
        }
        Answer::Later
    }

    /// Takes the lease that was granted. What became of it.
    fn take(&mut self, claim: &Claim) -> Answer {
        let number = claim.lease.get();
        let granted = grant_of(claim, self.pool_bytes);
        let Some((grant, memory)) = granted.and_then(|grant| Some((grant, self.os.map(&grant)?))) else {
            self.os.ask(LeaseRequest::Leave, number);
            return Answer::Never;
        };
        let LeaseGrant { log, .. } = grant;
        let file = LeasedFile::new(memory, grant);
        // Before anything is stored there: until it was mapped, the service may have ended the
        // lease, and have used its log for other things.
        if file.is_revoked().unwrap_or(true) {
            drop(file);
            self.os.ask(LeaseRequest::Leave, number);
            return Answer::Later;
        }
        self.lease = Some(Leased {
            number,
            file,
            write_bytes_max: write_bytes_max(log.elements),
            writes: 0,
            syncs: 0,
            reads_worth: ReadsWorth::default(),
            locates: VainBackoff::new(VAIN_LOCATES),
            requests: 0,
            pages: None,
        });
        Answer::Granted
    }

    /// Writes by the lease, with more blocks or another lease if that helps.
    fn write_leased(&mut self, place: WriteTarget, data: &[u8], message: &mut Read) -> Attempted {
        let (mut extensions, mut may_claim, mut may_join) = (EXTENSIONS_MAX, true, true);
        loop {
            let now = self.os.now();
            let Some(Leased { number, file, writes, reads_worth, pages, .. }) = &mut self.lease else {
                return Attempted::ByDescriptor;
            };
            let (os, mut forget) = (&mut self.os, |others| forget_kept(pages, others));
            let Some(mut turn) = file.turn(&mut forget, &mut |round| os.pause(round)).ok().flatten() else {
                self.end(EndedBy::Others);
                return Attempted::ByDescriptor;
            };
            let at = if let WriteTarget::At(at) = place { at } else { turn.size() };
            let end = at.saturating_add(data.len() as u64);
            // A kept page gets the very bytes that the file does: the program's may change
            // meanwhile.
            let (kept, len) = (pages.filter(|(owner, cache)| cache.has_any(*owner, at, data.len())), data.len());
            let data = match message.data.get_mut(..len) {
                Some(own) if kept.is_some() => {
                    own.copy_from_slice(data);
                    &*own
                }
                _ => data,
            };
            let wrote = turn.write(at, data, now);
            drop(turn);
            match wrote {
                Ok(Wrote::Done) => {
                    if writes.is_multiple_of(CONTEXT_EVERY) {
                        file.say_context(self.os.context());
                    }
                    *writes = writes.saturating_add(1);
                    reads_worth.was_useful();
                    match kept {
                        Some((owner, cache)) if len <= READ_BYTES_MAX => cache.update(owner, at, data),
                        Some(kept) => reads_worth.has_lost(refreshed(file, kept, at, len, message)),
                        None => {}
                    }
                    return Attempted::Done(end);
                }
                Ok(Wrote::InDoubt) => return self.resolve(end),
                Ok(Wrote::OutOfBlocks) if extensions > 0 && self.os.ask(LeaseRequest::Extend, *number) => {
                    extensions -= 1;
                }
                // The room is around the write that a lease is claimed for, and is reserved below.
                Ok(Wrote::OutOfRoom) if may_claim && self.rooms_left < ROOMS_LEFT_MAX => {
                    self.find_room(at, len);
                    may_claim = false;
                }
                Ok(Wrote::Revoked) if may_join => {
                    may_join = false;
                    self.end(EndedBy::Others);
                    // Others may have a new lease already.
                    self.join(at, len);
                }
                Ok(Wrote::OutOfBlocks | Wrote::OutOfRoom | Wrote::Revoked) | Err(_) => {
                    self.end(EndedBy::Others);
                    return Attempted::ByDescriptor;
                }
            }
        }
    }

    /// Waits for the end of the lease, and tells how the write has ended that goes to `end`.
    fn resolve(&mut self, end: u64) -> Attempted {
        for _ in 0..PROBES_MAX {
            self.os.ask(LeaseRequest::Probe, 0);
            match self.lease.as_mut().map(|leased| leased.file.resolve()) {
                // What was written is to be synced yet, perhaps.
                Some(Ok(Wrote::Done)) => return Attempted::Done(end),
                Some(Ok(Wrote::InDoubt)) => {}
                Some(Ok(_)) => {
                    self.end(EndedBy::Others);
                    return Attempted::ByDescriptor;
                }
                Some(Err(_)) | None => break,
            }
        }
        self.end(EndedBy::Others);
        Attempted::Failed
    }

    /// Makes durable what was written by the lease. Otherwise there is no lease any more.
    fn sync_leased(&mut self) -> bool {
        let Some(leased) = &mut self.lease else { return false };
        leased.syncs = leased.syncs.saturating_add(1);
        leased.reads_worth.was_useful();
        let is_durable = leased.file.sync().is_ok();
        if !is_durable {
            self.end(EndedBy::Others);
        }
        is_durable
    }

    fn end(&mut self, by: EndedBy) {
        let Some(Leased { number, file, writes, syncs, pages, .. }) = self.lease.take() else { return };
        // Rule 3.
        drop(file);
        self.os.ask(LeaseRequest::Leave, number);
        if let Some((owner, cache)) = pages {
            cache.drop_all(owner);
        }
        if by == EndedBy::Others {
            self.rooms_left = 0;
            self.backoff.was_disturbed(syncs.saturating_add(writes / WRITES_PER_SYNC));
        }
    }
}

/// Has kept pages follow a write that was just done, too long to be copied first. How many pages
/// are not kept any more: those that are not one block of the write.
fn refreshed<M: ExchangeWords>(
    file: &LeasedFile<M>,
    (owner, cache): (Owner, ReadCache<'static>),
    at: u64,
    len: usize,
    message: &mut Read,
) -> u32 {
    let (page, _) = message.data.split_first_chunk_mut().expect("a message has room for a page");
    let (page_bytes, len_bytes) = (PAGE_BYTES as u64, len as u64);
    let is_block = |from: u64| from.is_multiple_of(page_bytes) && from + page_bytes <= len_bytes;
    let fill = |page_at: u64, page: &mut [u8; PAGE_BYTES]| {
        page_at.checked_sub(at).is_some_and(is_block) && file.read_written(page_at, page) == Ok(true)
    };
    cache.refresh(owner, at, len, fill, page)
}

/// Pages that others wrote to are not kept any more.
fn forget_kept(pages: &mut Option<(Owner, ReadCache<'static>)>, others: Others) {
    let Some((owner, cache)) = *pages else { return };
    match others {
        Others::Wrote { at, len } => cache.forget(owner, at, usize::try_from(len).unwrap_or(usize::MAX)),
        Others::WroteMuch => {
            cache.drop_all(owner);
            *pages = None;
        }
    }
}

/// Longest write that a log with places for so many elements takes, in bytes. In one that several
/// processes are to have, a part of the places is for what was written.
fn write_bytes_max(elements: u32) -> u64 {
    let blocks = if elements > ALONE_ELEMENTS_MAX { COMMON_BLOCKS_MAX } else { elements };
    u64::from(blocks) * LEASE_CLASS.bytes()
}
