//! Users of a stack that each do one thing after the other: random reads and writes as fio does
//! them, and TPC-C's transactions.

use super::disks::Spent;
use super::orders::{Ends, PAGES, Pages, WAREHOUSES};
use super::testbed::{Kind, Setup, Testbed};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_baselines::classic::{Done, FILE_BLOCKS, Stack, TOGETHER};
use tidegate_measure::subject::Block;
use tidegate_sim::Rng;
use tidegate_virtual_cores::now_ns;

/// What users ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What it is.
    pub work: Work,
    /// Users at once.
    pub users: u32,
    /// Requests or transactions before time is told, then before those that are measured, and
    /// those: of all users. Of the first ones of TPC-C half are at all warehouses, and half at
    /// those of the users.
    pub filling: u32,
    /// See `filling`.
    pub warm: u32,
    /// See `filling`.
    pub measured: u32,
}

/// What one user does at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A random read or write of a file; this many among ten are writes. What all users write is
    /// committed when there is enough of it.
    Random(u64),
    /// A transaction of TPC-C, committed by itself.
    Orders,
}

/// What was asked took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    /// Virtual nanoseconds.
    pub ns: u64,
    /// Writes, or transactions.
    pub count: u64,
    /// What the stack did meanwhile.
    pub(super) done: Done,
    /// The work of the disk meanwhile.
    pub(super) spent: Spent,
}

impl Taken {
    /// How many in a second.
    pub fn per_second(&self) -> f64 {
        self.count as f64 * 1e9 / self.ns as f64
    }
}

/// Pages that the store of TPC-C keeps in DRAM: 1 GiB, 16 times smaller.
const BUFFERED: usize = 16_384;

/// What users share. All run on one thread of the system and none holds its lock over a point, so
/// none waits for it.
#[derive(Default)]
struct Shared {
    together: Vec<u64>,
    ends: Ends,
    buffer: Buffer,
    asked: u32,
    begun: Option<(u64, Done, Spent)>,
    taken: Taken,
}

/// Pages in DRAM, the one used longest ago goes first.
#[derive(Default)]
struct Buffer {
    uses: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    now: u64,
}

impl Buffer {
    /// Uses `page`; whether it was there.
    fn used(&mut self, page: u64) -> bool {
        self.now += 1;
        let before = self.uses.insert(page, self.now);
        self.order.insert(self.now, page);
        match before {
            Some(before) => drop(self.order.remove(&before)),
            None if self.uses.len() > BUFFERED => {
                let (_, oldest) = self.order.pop_first().expect("it holds more than one");
                self.uses.remove(&oldest);
            }
            None => {}
        }
        before.is_some()
    }
}

/// Puts what is `asked` on `kind`.
pub fn run(kind: Kind, setup: &Setup, asked: Asked) -> anyhow::Result<Taken> {
    let testbed = Testbed::of(kind, setup)?;
    let shared = Arc::new(Mutex::new(Shared::default()));
    let mut first = User::before_all(asked.work, shared.clone());
    match asked.work {
        Work::Random(_) => testbed.warm(asked.filling, |stack| first.act(stack, Measured::NotYet))?,
        Work::Orders => {
            testbed.warm(asked.filling / 2, |stack| first.act(stack, Measured::NotYet))?;
            let mut users: Vec<User> = (0..asked.users).map(|user| User::earlier(user, &shared)).collect();
            for nth in 0..(asked.filling / 2) as usize {
                // The disk keeps up, so that what is read finds room.
                testbed.settle()?;
                let user = nth % users.len();
                users[user].act(&*testbed.stack, Measured::NotYet)?;
            }
            testbed.settle()?;
        }
    }
    let (of_users, disk) = (shared.clone(), testbed.disk.clone());
    testbed.run(asked.users, move |user, stack| {
        let spent = || disk.spent();
        User::new(user, asked.work, of_users.clone()).go_on(stack, &spent, asked);
    })?;
    let taken = locked(&shared).taken;
    Ok(taken)
}

fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether what a user does is counted. It follows from how many were asked for before: on virtual
/// cores, others may do a lot while the one who notes the time is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measured {
    NotYet,
    Now,
}

/// One user.
struct User {
    work: Work,
    /// The warehouse of its terminal; None: another one for each transaction.
    home: Option<u64>,
    random: Rng,
    block: Block,
    shared: Arc<Mutex<Shared>>,
}

impl User {
    fn new(number: u32, work: Work, shared: Arc<Mutex<Shared>>) -> User {
        let mut random = Rng::new(u64::from(number) + 7);
        let home = (work == Work::Orders).then(|| random.below(WAREHOUSES));
        User { work, home, random, block: Block::filled(3), shared }
    }

    /// One at its warehouse, minutes before time is told.
    fn earlier(number: u32, shared: &Arc<Mutex<Shared>>) -> User {
        let other = Rng::new(u64::from(number) << 32);
        User { random: other, ..User::new(number, Work::Orders, shared.clone()) }
    }

    /// Whoever was there before the users, at every warehouse.
    fn before_all(work: Work, shared: Arc<Mutex<Shared>>) -> User {
        User { home: None, ..User::new(u32::MAX, work, shared) }
    }

    fn go_on(mut self, stack: &dyn Stack, spent: &dyn Fn() -> Spent, asked: Asked) {
        loop {
            let mut all = locked(&self.shared);
            all.asked += 1;
            let nth = all.asked;
            drop(all);
            if nth == asked.warm + 1 {
                let begun = (now_ns(), stack.done(), spent());
                locked(&self.shared).begun = Some(begun);
            }
            if nth > asked.warm + asked.measured {
                let (now, done, spent) = (now_ns(), stack.done(), spent());
                let mut all = locked(&self.shared);
                // The others' last ones are under way.
                if let Some((begin_ns, before, spent_before)) = all.begun.take() {
                    let count = all.taken.count;
                    all.taken = Taken { ns: now - begin_ns, count, done: done - before, spent: spent - spent_before };
                }
                return;
            }
            let measured = if nth > asked.warm { Measured::Now } else { Measured::NotYet };
            self.act(stack, measured).expect("the disk works");
        }
    }

    fn act(&mut self, stack: &dyn Stack, measured: Measured) -> anyhow::Result<()> {
        match self.work {
            Work::Random(writes) => self.random(stack, writes, measured),
            Work::Orders => self.order(stack, measured),
        }
    }

    fn random(&mut self, stack: &dyn Stack, writes: u64, measured: Measured) -> anyhow::Result<()> {
        let lba = self.random.below(FILE_BLOCKS);
        if self.random.below(10) >= writes {
            return stack.read(lba, &mut self.block);
        }
        let mut all = locked(&self.shared);
        all.taken.count += u64::from(measured == Measured::Now);
        if !all.together.contains(&lba) {
            all.together.push(lba);
        }
        let together = if all.together.len() == TOGETHER { std::mem::take(&mut all.together) } else { Vec::new() };
        drop(all);
        if together.is_empty() { Ok(()) } else { stack.commit(&together, &self.block) }
    }

    fn order(&mut self, stack: &dyn Stack, measured: Measured) -> anyhow::Result<()> {
        let mut all = locked(&self.shared);
        all.taken.count += u64::from(measured == Measured::Now);
        let home = self.home.unwrap_or_else(|| self.random.below(WAREHOUSES));
        let pages = Pages::next(home, &mut self.random, &mut all.ends);
        let missing: Vec<u64> = pages.read.into_iter().filter(|page| !all.buffer.used(*page)).collect();
        drop(all);
        debug_assert!(missing.iter().all(|page| *page < PAGES));
        missing.into_iter().try_for_each(|page| stack.read(page, &mut self.block))?;
        if pages.written.is_empty() { Ok(()) } else { stack.commit(&pages.written, &self.block) }
    }
}
