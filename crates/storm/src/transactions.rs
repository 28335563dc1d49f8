//! Transactions of a storm's clients on a disk cache, and its modes changed under them.
//!
//! What is asked of a transaction: it reads its own writes; nothing of it is seen before it is
//! committed, nor ever if it is aborted or refused; after any end all of it is there or nothing. If
//! conflicts are refused: one that went well lost nothing to a write that came in between, and one
//! that was refused met such a write.

use crate::client::Client;
use crate::marks;
use crate::scene::Tier;
use crate::seen::Seen;
use crate::staged::Staged;
use crate::writes::{Kind, Modes, Written};
use std::collections::BTreeMap;
use tidegate_disk_cache::{Conflicts, Mode, Transaction, TransactionError};
use tidegate_media::{Durability, Error, Lba, LbaRange, Misuse, Result};
use tidegate_sim::{Content, Pending, Region, Rng};

/// Writes in a transaction at most, some of them to one block.
const STEPS_MAX: u64 = 8;

/// The memory of a storm's disk cache.
type Memory = Staged<Region>;

/// A mode that was in force at some time, and the changes until then.
#[derive(Clone, Copy)]
pub(crate) struct InForce(Option<Mode>, Modes);

impl Seen {
    /// Writes to `lbas` begin: their number.
    pub(crate) fn writes_began(&mut self, by: u32, lbas: impl Iterator<Item = Lba>, kind: Kind) -> usize {
        let (began, ended) = (self.tick(), u64::MAX);
        let (lbas, contents, together) = (lbas.collect(), Vec::new(), kind == Kind::AsOne);
        self.written.push(Written { by, lbas, contents, kind, began, ended, together, through: false });
        self.written.len() - 1
    }

    /// The last writes of client `by`, if they began after `from`, have gone well in a mode that
    /// brings them to the disk at once.
    fn went_through(&mut self, by: u32, from: u64) {
        let last = self.written.iter_mut().rev().find(|written| written.by == by);
        last.into_iter().filter(|written| written.began > from).for_each(|written| written.through = true);
    }

    /// Writes number `written` have this content too.
    pub(crate) fn writes_content(&mut self, written: usize, content: Content) {
        self.written[written].contents.push(content);
    }

    /// Writes number `written` are acknowledged.
    pub(crate) fn writes_ended(&mut self, written: usize) {
        self.written[written].ended = self.tick();
    }

    /// The next instant.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A rare path was taken.
    pub(crate) fn reach(&mut self, mark: marks::Mark) {
        *self.reached.entry(mark).or_default() += 1;
    }

    /// Blocks of writes that have not been acknowledged and may have gone past the cache.
    pub(crate) fn under_way_past(&self) -> Vec<Lba> {
        let unfinished = |written: &&Written| written.ended == u64::MAX && written.kind == Kind::InPieces;
        let any = if self.modes.went_past { &self.written[..] } else { &[] };
        any.iter().filter(unfinished).flat_map(|written| written.lbas.iter().copied()).collect()
    }

    /// A life begins in `mode`.
    pub(crate) fn begins_in(&mut self, mode: Mode, in_order: bool) {
        self.written.clear();
        self.whole.clear();
        let modes = Modes { in_order, ..Modes::default() };
        self.modes = Modes { went_past: modes.writes_past(mode), ..modes };
    }

    /// Whether other writes than number `own` to `lba` were under way at some time after `from`.
    fn was_written(&self, own: usize, lba: Lba, from: u64) -> bool {
        let mut others = self.written.iter().enumerate().filter(|(number, _)| *number != own);
        others.any(|(_, other)| other.lbas.contains(&lba) && other.ended > from)
    }

    /// Whether other writes than number `own` to `lba` began after `from` and ended before those
    /// did.
    fn was_overwritten(&self, own: usize, lba: Lba, from: u64) -> bool {
        let until = self.written[own].began;
        self.written.iter().any(|other| other.lbas.contains(&lba) && other.began > from && other.ended < until)
    }

    /// Whether other writes than number `own` to `lba` ended before those began, and began when
    /// what a read had `shown` was in place: it was replaced after the read, then.
    fn was_replaced(&self, own: usize, lba: Lba, shown: Content) -> bool {
        let until = self.written[own].began;
        // What nobody wrote in this life was there before. Zeroes may be anybody's.
        let placed = match self.written.iter().find(|writes| writes.contents.contains(&shown)) {
            Some(writes) => writes.ended,
            None if self.tags.contains_key(&shown) => 0,
            None => return false,
        };
        let replaces = |other: &&Written| other.began > placed && other.ended < until && !other.contents.is_empty();
        self.written.iter().filter(replaces).any(|other| other.lbas.contains(&lba))
    }
}

/// A transaction as its client knows it.
struct Own {
    /// Just before it began, and just after.
    before: u64,
    began: u64,
    writes: BTreeMap<Lba, Content>,
    /// Blocks read.
    reads: BTreeMap<Lba, FirstRead>,
}

/// The first read of a block in a transaction.
#[derive(Clone, Copy)]
struct FirstRead {
    /// When it ended.
    at: u64,
    /// What it showed, unless that was the transaction's own.
    shown: Option<Content>,
}

impl Client {
    /// A transaction that `seed` chooses: writes and reads, and then it is committed, as a rule.
    pub(super) fn transact(&self, cache: &Tier, seed: u64) -> Result<()> {
        let mut rng = Rng::new(seed);
        let before = self.seen().tick();
        let mut transaction = cache.begin();
        let began = self.seen().tick();
        let mut own = Own { before, began, writes: BTreeMap::new(), reads: BTreeMap::new() };
        for _ in 0..1 + rng.below(STEPS_MAX) {
            let lba = Lba(rng.below(self.blocks));
            if rng.one_in(3) {
                let range = LbaRange { first: lba, blocks: 1 + rng.below((self.blocks - lba.0).min(3)) };
                let contents = self.read_by(range, &own.writes, |out| transaction.read(lba, out))?;
                let at = self.seen().tick();
                for (lba, content) in range.iter().zip(contents) {
                    let shown = (!own.writes.contains_key(&lba)).then_some(content);
                    own.reads.entry(lba).or_insert(FirstRead { at, shown });
                }
            } else {
                self.add(cache, &mut transaction, &mut own, lba)?;
            }
        }
        if rng.one_in(6) {
            transaction.abort();
            self.seen().reach(marks::ABORTED);
            return Ok(());
        }
        self.commit(cache, transaction, &own)
    }

    fn add(&self, cache: &Tier, transaction: &mut Transaction<'_, Memory>, own: &mut Own, lba: Lba) -> Result<()> {
        let (content, block) = self.seen().fresh_block(self.block_bytes);
        match transaction.write(lba, &block) {
            Ok(()) => drop(own.writes.insert(lba, content)),
            Err(TransactionError::TooLarge { blocks, max }) => {
                let more = own.writes.len() as u64 + 1;
                assert!(blocks == more && blocks > u64::from(max) && max == cache.transaction_blocks_max());
                self.seen().reach(marks::TOO_LARGE);
            }
            Err(TransactionError::Device(error)) => return Err(error),
            Err(error) => panic!("a write is added to a transaction: {error}"),
        }
        Ok(())
    }

    fn commit(&self, cache: &Tier, transaction: Transaction<'_, Memory>, own: &Own) -> Result<()> {
        let refuses = self.conflicts == Conflicts::Refuse;
        let (in_force, lost) = (self.in_force(cache), self.region.has_lost());
        let (number, pending) = self.seen().commits(self.number, &own.writes);
        let first = own.writes.first_key_value().map(|(_, content)| *content);
        let ended = |seen: &mut Seen| seen.transactions.retain(|blocks| Some(blocks[0].1) != first);
        match transaction.commit() {
            Ok(()) => {
                assert!(!lost || own.writes.is_empty(), "committed to a memory that had lost a store");
                pending.into_iter().for_each(|pending| self.acknowledged(pending));
                let mut seen = self.seen();
                own.writes.iter().for_each(|(lba, content)| seen.history.wrote(*lba, *content));
                ended(&mut seen);
                let touched = own.reads.iter().map(|(lba, read)| (lba, read.at));
                let mut touched = touched.chain(own.writes.keys().map(|lba| (lba, own.began)));
                let lost = touched.find(|(lba, at)| refuses && seen.was_overwritten(number, **lba, *at));
                assert!(lost.is_none(), "a transaction was committed over a write that came in between: {lost:?}");
                let mut shown = own.reads.iter().filter_map(|(lba, read)| Some((lba, read.shown?)));
                let old = shown.find(|(lba, shown)| refuses && seen.was_replaced(number, **lba, *shown));
                assert!(
                    old.is_none(),
                    "a transaction was committed, and what it had read was replaced before: {old:?}"
                );
                seen.writes_ended(number);
                if own.writes.len() > 1 {
                    seen.reach(marks::COMMITTED);
                }
                Ok(())
            }
            Err(TransactionError::Conflict { lba }) => {
                let mut seen = self.seen();
                assert!(refuses && (own.writes.contains_key(&lba) || own.reads.contains_key(&lba)), "{lba} conflicts");
                assert!(seen.was_written(number, lba, own.before), "{lba} conflicts, and nobody else wrote it");
                seen.withdraw(number, pending);
                ended(&mut seen);
                seen.reach(marks::CONFLICT);
                Ok(())
            }
            Err(TransactionError::Device(error)) => {
                let kept = self.kept(cache, in_force);
                let refused = matches!(error, Error::Misuse(_))
                    || (matches!(kept, Some(Mode::WriteBack | Mode::WriteOnly)) && !matches!(error, Error::Sealed(_)));
                if refused {
                    let mut seen = self.seen();
                    seen.withdraw(number, pending);
                    ended(&mut seen);
                }
                Err(error)
            }
            Err(error) => panic!("a transaction is committed: {error}"),
        }
    }

    /// Changes the cache's mode while others use it.
    pub(super) fn set_mode(&self, cache: &Tier, mode: Mode) {
        {
            let mut seen = self.seen();
            seen.modes.begun += 1;
            if seen.modes.writes_past(mode) {
                seen.modes.went_past = true;
                // Writes under way may be cut in pieces; transactions are not.
                let Seen { transactions, whole, .. } = &mut *seen;
                transactions.retain(|blocks| whole.contains(&blocks[0].1));
            }
        }
        cache.set_mode(mode);
        let mut seen = self.seen();
        seen.modes.ended += 1;
        seen.reach(marks::of_mode(mode));
    }

    /// What this client wrote since `from` has gone well. If the mode was one from `then` on and
    /// brings it to the disk at once, it is there, in order.
    pub(super) fn note_through(&self, cache: &Tier, then: InForce, from: u64) {
        let through = [Mode::WriteThrough, Mode::WriteAround, Mode::PassThrough];
        if then.1.in_order && self.kept(cache, then).is_some_and(|mode| through.contains(&mode)) {
            self.seen().went_through(self.number, from);
        }
    }

    /// The cache's mode, if nobody is changing it.
    pub(super) fn in_force(&self, cache: &Tier) -> InForce {
        let before = self.seen().modes;
        let mode = cache.mode();
        let modes = self.seen().modes;
        let quiet = before == modes && modes.begun == modes.ended;
        InForce(quiet.then_some(mode), modes)
    }

    /// The mode that was in force from `then` until now, if it was one.
    pub(super) fn kept(&self, cache: &Tier, then: InForce) -> Option<Mode> {
        let now = self.in_force(cache);
        then.0.filter(|_| now.0.is_some() && now.1 == then.1)
    }

    /// A mode that refuses writes does so, and no other; what is written to memory that has `lost`
    /// a store is refused.
    pub(super) fn judge_mode(&self, cache: &Tier, then: InForce, writes: bool, lost: bool, answer: &Result<()>) {
        let Some(mode) = self.kept(cache, then) else { return };
        match answer {
            Ok(()) => {
                let writes_past = then.1.writes_past(mode);
                assert!(mode != Mode::ReadOnly || !writes, "a write went well in a cache that is read only");
                assert!(writes_past || !writes || !lost, "a write went well after the memory had lost a store");
            }
            Err(Error::Misuse(Misuse::ReadOnly)) => {
                assert_eq!(mode, Mode::ReadOnly, "writes are refused");
                self.seen().reach(marks::READ_ONLY);
            }
            Err(_) => {}
        }
    }
}

impl InForce {
    /// Whether writes of several blocks that begin now are put in place as one, while `modes` stay
    /// what they are.
    pub(super) fn keeps_together(&self, modes: Modes) -> bool {
        self.0.is_some_and(|mode| !modes.writes_past(mode)) && self.1 == modes
    }
}

impl Seen {
    /// A transaction of `writes` is committed: its number, and what the oracles want to know of its
    /// end.
    fn commits(&mut self, by: u32, writes: &BTreeMap<Lba, Content>) -> (usize, Vec<[Pending; 2]>) {
        let number = self.writes_began(by, writes.keys().copied(), Kind::AsOne);
        self.goes_together(number, writes.iter().map(|(lba, content)| (*lba, *content)).collect());
        if let Some((_, first)) = writes.first_key_value() {
            self.whole.insert(*first);
        }
        let began = self.history.begin();
        let begins = |(lba, content): (&Lba, &Content)| {
            self.history.writes(&began, *lba, *content);
            self.writes_content(number, *content);
            self.contents_of(*lba).push(*content);
            let Seen { power, kill, .. } = &mut *self;
            [power, kill].map(|oracle| oracle.write_began(*lba, *content, Durability::Fua))
        };
        (number, writes.iter().map(begins).collect())
    }

    /// Writes number `number` of `blocks` will be in place together, or not at all.
    pub(super) fn goes_together(&mut self, number: usize, blocks: Vec<(Lba, Content)>) {
        self.written[number].together = true;
        if blocks.len() < 2 {
            return;
        }
        let before = blocks.iter().map(|(lba, _)| (*lba, self.kill.acknowledged_of(*lba))).collect();
        self.before_transactions.insert(blocks[0].1, before);
        self.transactions.push(blocks);
    }

    /// Nothing of writes number `number` is in place.
    fn withdraw(&mut self, number: usize, pending: Vec<[Pending; 2]>) {
        self.written[number].lbas.clear();
        let Seen { power, kill, .. } = self;
        for [of_power, of_kill] in pending {
            power.withdraw(of_power);
            kill.withdraw(of_kill);
        }
    }
}
