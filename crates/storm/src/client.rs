//! A client of a storm: does its operations, tells the oracles of each, and judges what it sees.

use crate::drains::assert_awake;
use crate::marks;
use crate::mutant::{Mislaid, Mutant};
use crate::scene::Stack;
use crate::script::{Bent, Script, Step};
use crate::seen::{Seen, seen};
use crate::writes::{Kind, any_mode};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_crashcheck::write_cache::Act;
use tidegate_disk_cache::{Conflicts, Mode};
use tidegate_media::{BlockDevice, Durability, Error, Lba, LbaRange, Misuse, Result};
use tidegate_sim::{Content, Oracle, Region, Rng, mix};
use tidegate_virtual_cores::{begin, note, stop, unpark};

/// Requests answered with an error, of all clients, after which a life is over.
const REFUSALS_MAX: u32 = 12;

/// One of those who use the device.
pub(crate) struct Client {
    pub(crate) stack: Stack,
    pub(crate) seen: Arc<Mutex<Seen>>,
    pub(crate) script: Arc<Script>,
    pub(crate) number: u32,
    pub(crate) blocks: u64,
    pub(crate) block_bytes: usize,
    pub(crate) drains: u32,
    /// The volume's memory, which knows whether it lost a store.
    pub(crate) region: Arc<Region>,
    /// What becomes of transactions that conflict.
    pub(crate) conflicts: Conflicts,
}

/// An operation, and on how many blocks where that is not in it.
#[derive(Clone, Copy, Debug)]
struct Request {
    deed: Deed,
    blocks: u64,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// What every device can do.
    Act(Act),
    /// A transaction that this number chooses.
    Transaction(u64),
    /// A change of the cache's mode.
    Mode(Mode),
}

impl Request {
    /// Any of them; of 32, so many are `transactions`, and one changes the mode if there are some.
    fn any(rng: &mut Rng, blocks: u64, transactions: u64) -> Request {
        if transactions > 0 {
            let deed = match rng.below(32) {
                nth if nth < transactions => Some(Deed::Transaction(rng.next_u64())),
                nth if nth == transactions => Some(Deed::Mode(any_mode(rng))),
                _ => None,
            };
            if let Some(deed) = deed {
                return Request { deed, blocks: 0 };
            }
        }
        let act = Act::any(rng, blocks);
        let most = match act {
            Act::Write(lba, _) | Act::Read(lba) | Act::Discard(lba) => blocks - lba,
            _ => 1,
        };
        Request { deed: Deed::Act(act), blocks: if rng.one_in(4) { 1 + rng.below(most) } else { 1 } }
    }

    /// Whether it may not be answered well once the device has refused a flush.
    fn is_refused_for_good(self, stack: &Stack) -> bool {
        match self.deed {
            // They may go past the cache: they are judged by its mode.
            Deed::Act(Act::Write(..) | Act::Zero(..)) => stack.disk_cache.is_none(),
            Deed::Act(Act::Flush) => true,
            _ => false,
        }
    }

    /// Whether it is to be durable when it ends.
    fn is_forced(self) -> bool {
        matches!(self.deed, Deed::Act(Act::Write(_, Durability::Fua) | Act::Zero(_, Durability::Fua)))
    }

    /// Whether it writes, if it goes well.
    fn writes(self) -> bool {
        matches!(self.deed, Deed::Act(Act::Write(..) | Act::Zero(..)))
    }

    /// Whether it may not be answered well once the memory below has lost a store.
    fn tells_of_a_loss(self, stack: &Stack) -> bool {
        let is_cached = stack.cache.is_some();
        let Deed::Act(act) = self.deed else { return false };
        match act {
            // The same.
            Act::Write(..) | Act::Zero(..) if stack.disk_cache.is_some() => false,
            Act::Write(_, durability) => !is_cached || durability == Durability::Fua,
            Act::Zero(..) | Act::Flush => true,
            _ => false,
        }
    }
}

impl Client {
    pub(crate) fn work(mut self) {
        while let Some(step) = self.next_step() {
            // Each from a number of its own: one may be left out, and the others stay what they
            // are.
            let number = u64::from(step.client) << 32 | u64::from(step.number);
            let mut rng = Rng::new(mix(self.script.seed ^ mix(number)));
            let transactions = match (&self.stack.disk_cache, self.script.bent()) {
                (None, _) => 0,
                (Some(_), Bent::Transactions) => 28,
                (Some(_), _) => 8,
            };
            let request = Request::any(&mut rng, self.blocks, transactions);
            let refused = request.is_refused_for_good(&self.stack) && self.seen().refused;
            let lost = request.tells_of_a_loss(&self.stack) && self.region.has_lost();
            begin();
            self.seen().begins();
            let answer = self.answer(request);
            self.seen().acting.0 -= 1;
            self.stack.disk_cache.iter().for_each(|cache| assert_awake(&self.seen, || cache.dirty_lbas().len()));
            match answer {
                Err(Error::Misuse(Misuse::ReadOnly)) if self.stack.disk_cache.is_some() => {}
                Ok(()) if refused => panic!("{request:?} went well after the device had refused a flush"),
                Ok(()) if lost => panic!("{request:?} went well after the memory had lost a store"),
                Ok(()) => self.seen().acts += 1,
                Err(error) => {
                    self.judge(request, &error);
                    let mut seen = self.seen();
                    seen.losses_told += u64::from(refused || lost);
                    seen.refusals += 1;
                    let enough = seen.refusals >= REFUSALS_MAX;
                    drop(seen);
                    if enough {
                        return stop();
                    }
                }
            }
        }
        self.seen().busy -= 1;
        if self.drains > 0 {
            let first = self.script.clients as usize;
            (first..first + self.drains as usize).for_each(unpark);
        }
    }

    /// An error must have a reason, and be of a kind that fits.
    fn judge(&self, request: Request, error: &Error) {
        let mut seen = self.seen();
        assert!(seen.faulted, "{request:?} was refused without a reason: {error}");
        assert!(
            matches!(error, Error::Media(_) | Error::Sealed(_)),
            "{request:?} met a fault, and the error is {error}"
        );
        let drained = matches!(request.deed, Deed::Act(Act::Drain(_))) && self.stack.cache.is_some();
        let ends_by_a_flush = self.stack.cache.is_some() && self.stack.below.geometry().volatile_cache;
        let unforced = request.is_forced() && ends_by_a_flush && matches!(error, Error::Sealed(_));
        seen.refused |= drained || unforced || request.deed == Deed::Act(Act::Flush);
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        seen(&self.seen)
    }

    fn next_step(&mut self) -> Option<Step> {
        let mut seen = self.seen();
        match &mut seen.until_rest {
            Some(0) => return None,
            left => left.iter_mut().for_each(|left| *left -= 1),
        }
        self.script.next_step(self.number, &mut seen.done[self.number as usize])
    }

    fn device(&self) -> &dyn BlockDevice {
        self.stack.device()
    }

    /// Does it, and judges it by the cache's mode if there is one.
    fn answer(&self, request: Request) -> Result<()> {
        let act = |act| self.act(act, request.blocks);
        let (cache, deed) = match (&self.stack.disk_cache, request.deed) {
            (Some(cache), deed) => (cache, deed),
            (None, Deed::Act(deed)) => return act(deed),
            (None, deed) => panic!("{deed:?} without a disk cache"),
        };
        let (then, lost, from) = (self.in_force(cache), self.region.has_lost(), self.seen().clock);
        let answer = match deed {
            Deed::Act(deed) => act(deed),
            Deed::Transaction(seed) => self.transact(cache, seed),
            Deed::Mode(mode) => {
                self.set_mode(cache, mode);
                return Ok(());
            }
        };
        self.judge_mode(cache, then, request.writes(), lost, &answer);
        if answer.is_ok() {
            self.note_through(cache, then, from);
        }
        answer
    }

    fn act(&self, act: Act, blocks: u64) -> Result<()> {
        match act {
            Act::Write(lba, durability) => self.write(LbaRange { first: Lba(lba), blocks }, durability),
            Act::Zero(range, durability) => {
                let pending = self.both(|oracle| oracle.write_zeroes_began(range, durability));
                let number = self.seen().writes_began(self.number, range.iter(), Kind::InPieces);
                self.device().write_zeroes(range, durability)?;
                self.acknowledged(pending);
                self.seen().writes_ended(number);
                Ok(())
            }
            Act::Discard(lba) => {
                let range = LbaRange { first: Lba(lba), blocks };
                let pending = self.both(|oracle| oracle.discard_began(range));
                self.device().discard(range)?;
                self.acknowledged(pending);
                Ok(())
            }
            Act::Read(lba) => self.read(LbaRange { first: Lba(lba), blocks }),
            Act::Flush => self.flush(),
            Act::Drain(budget) => match &self.stack.cache {
                Some(cache) => cache.drain_step(budget, &mut 0, &mut vec![0; self.block_bytes]).map(drop),
                None if self.stack.disk_cache.is_some() => self.destage(budget),
                None => self.read(LbaRange { first: Lba(u64::from(budget) % self.blocks), blocks: 1 }),
            },
            Act::Limit(slots) => {
                self.stack.cache.iter().for_each(|cache| cache.limit_slots(slots));
                Ok(())
            }
        }
    }

    fn destage(&self, budget: u32) -> Result<()> {
        let progress = self.stack.disk_cache.as_ref().expect("the caller has seen it").destage_step(budget);
        let failed = progress.flush_failed.into_iter().chain(progress.failed.into_iter().map(|(_, error)| error));
        failed.into_iter().next().map_or(Ok(()), Err)
    }

    fn write(&self, range: LbaRange, durability: Durability) -> Result<()> {
        let mut data = Vec::new();
        let mut written = Vec::new();
        let in_force = self.stack.disk_cache.as_ref().map(|cache| self.in_force(cache));
        let together = range.blocks <= u64::from(self.device().geometry().atomic_blocks);
        let number = {
            let mut seen = self.seen();
            let number = seen.writes_began(self.number, range.iter(), Kind::InPieces);
            let began = seen.history.begin();
            for lba in range.iter() {
                let (content, block) = seen.fresh_block(self.block_bytes);
                seen.history.writes(&began, lba, content);
                seen.writes_content(number, content);
                let Seen { power, kill, .. } = &mut *seen;
                let pending = [power, kill].map(|oracle| oracle.write_began(lba, content, durability));
                seen.contents_of(lba).push(content);
                written.push((lba, content, pending));
                data.extend(block);
            }
            if together && in_force.is_some_and(|in_force| in_force.keeps_together(seen.modes)) {
                seen.goes_together(number, written.iter().map(|(lba, content, _)| (*lba, *content)).collect());
            }
            number
        };
        let forced = self.script.mutant != Mutant::Mislaid(Mislaid::Force);
        if self.script.mutant == Mutant::Mislaid(Mislaid::Together) {
            let size = self.block_bytes;
            let mut blocks = range.iter().zip(data.chunks_exact(size));
            blocks.try_for_each(|(lba, block)| self.device().write(lba, block, durability))?;
        } else {
            self.device().write(range.first, &data, if forced { durability } else { Durability::Volatile })?;
        }
        let first = written[0].1;
        for (lba, content, pending) in written {
            self.acknowledged(pending);
            self.seen().history.wrote(lba, content);
        }
        let mut seen = self.seen();
        seen.writes_ended(number);
        seen.transactions.retain(|blocks| blocks[0].1 != first);
        Ok(())
    }

    fn read(&self, range: LbaRange) -> Result<()> {
        self.read_by(range, &BTreeMap::new(), |out| self.device().read(range.first, out)).map(drop)
    }

    /// What the blocks hold that `read` reads. Those of the caller's `own` content are not judged
    /// by others' writes.
    pub(super) fn read_by(
        &self,
        range: LbaRange,
        own: &BTreeMap<Lba, Content>,
        read: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Vec<Content>> {
        let began: Vec<_> = {
            let mut seen = self.seen();
            range.iter().map(|lba| (lba, seen.kill.read_began(), seen.history.begin())).collect()
        };
        let mut blocks = vec![0; self.block_bytes * began.len()];
        read(&mut blocks)?;
        let contents: Vec<Content> = blocks.chunks_exact(self.block_bytes).map(Content::of).collect();
        for ((lba, start, began), content) in began.into_iter().zip(contents.iter().copied()) {
            note(content.0);
            let mut seen = self.seen();
            if let Some(own) = own.get(&lba) {
                assert_eq!(*own, content, "a transaction reads of {lba} what it did not write");
                seen.kill.read_abandoned(start);
                seen.reach(marks::OWN_READ);
                continue;
            }
            seen.history.read(began, lba, content);
            let judged = seen.kill.read_ended(start, lba, content);
            judged.unwrap_or_else(|wrong| panic!("a read is torn or stale: {wrong}"));
        }
        Ok(contents)
    }

    fn flush(&self) -> Result<()> {
        let [power, kill] = self.both(Oracle::flush_began);
        if self.script.mutant != Mutant::Mislaid(Mislaid::Flushes) {
            self.device().flush()?;
        }
        let mut seen = self.seen();
        seen.power.flush_acknowledged(power);
        seen.kill.flush_acknowledged(kill);
        Ok(())
    }

    fn both<T>(&self, mut tell: impl FnMut(&mut Oracle) -> T) -> [T; 2] {
        let mut seen = self.seen();
        let Seen { power, kill, .. } = &mut *seen;
        [tell(power), tell(kill)]
    }

    pub(super) fn acknowledged(&self, [power, kill]: [tidegate_sim::Pending; 2]) {
        let mut seen = self.seen();
        seen.power.acknowledged(power);
        seen.kill.acknowledged(kill);
    }
}
