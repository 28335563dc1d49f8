//! A scene: a volume on simulated memory, its lives one after another, and who uses it.

use crate::power_cuts::block_of;
use crate::storm::marks::{self, Marks};
use crate::storm::sabotage::{Mislaid, Sabotage};
use crate::storm::script::{Failure, Script, Setting, Tally, Verdict, digest, text_of};
use crate::storm::staged::{End, Stage, Staged};
use crate::transit::Act;
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_btt::Btt;
use tidegate_media::{BlockDevice, Durability, Lba, LbaRange, Region as Medium};
use tidegate_sim::{Content, History, Oracle, Promise, Region, Rng, SharedMemory, mix};
use tidegate_virtual_cores::{Ended, How, Machine, Order, Plan, Trace, park, stop, unpark};
use tidegate_write_cache::{Doorbell, WriteCache};

/// Whose blocks the slots hold.
pub(crate) const VOLUME: [u8; 16] = [9; 16];

/// A volume under its name in a scene.
pub(crate) type Table = Btt<Staged<dyn Medium>>;
/// A cache before it.
pub(crate) type Cache = WriteCache<Staged<SharedMemory>>;

/// A stack in use.
#[derive(Clone)]
pub(crate) struct Stack {
    pub(crate) table: Arc<Table>,
    pub(crate) cache: Option<Arc<Cache>>,
}

/// What happens from life to life.
pub(crate) struct Scene {
    pub(crate) script: Script,
    pub(crate) setting: Setting,
    /// Chooses ends and interleavings.
    pub(crate) rng: Rng,
    pub(crate) stage: Arc<Stage>,
    pub(crate) region: Arc<Region>,
    /// The slots of the present life, or those that the last one left.
    pub(crate) slots: Option<Arc<SharedMemory>>,
    pub(crate) seen: Arc<Mutex<Seen>>,
    /// Whether the last life was ended by a power cut.
    pub(crate) was_cut: bool,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    pub(crate) marks: Marks,
    lives: u64,
}

/// What clients do, and may see.
pub(crate) struct Seen {
    /// What may be there after a power cut.
    pub(crate) power: Oracle,
    /// What may be there after a kill, and what reads may show.
    pub(crate) kill: Oracle,
    /// What this life's operations saw.
    pub(crate) history: History,
    /// Operations each client has still to do.
    left: Vec<u32>,
    acts: u64,
    tags: u64,
    /// Clients that are not through.
    busy: u32,
    sealed: bool,
}

impl Scene {
    pub(crate) fn new(script: Script) -> Scene {
        let mut rng = Rng::new(mix(script.seed));
        let setting = Setting::any(&mut rng, VOLUME);
        let shape = &setting.shape;
        let promise = if setting.cache.is_some() { Promise::OnFlush } else { Promise::OnCompletion };
        let oracle = |promise| Oracle::zeroed(shape.sectors(), shape.block_bytes, promise);
        let seen = Seen {
            power: oracle(promise),
            kill: oracle(Promise::OnCompletion).with_concurrent_reads(),
            history: History::new((0..shape.sectors()).map(|_| None)),
            left: vec![script.acts; script.clients as usize],
            acts: 0,
            tags: 0,
            busy: 0,
            sealed: false,
        };
        Scene {
            script,
            rng: Rng::new(mix(script.seed) ^ mix(script.schedule.wrapping_add(0x5c4e))),
            stage: Arc::new(Stage::new(script.sabotage)),
            region: Arc::new(Region::with_line_order(shape.formatted(), setting.order)),
            slots: None,
            seen: Arc::new(Mutex::new(seen)),
            was_cut: true,
            trace: Trace::default(),
            tally: Tally { scripts: 1, ..Tally::default() },
            marks: Marks::default(),
            lives: 0,
            setting,
        }
    }

    /// All lives, and a recovery after the last.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        loop {
            let stack = self.recover()?;
            if self.seen().left.iter().all(|left| *left == 0) {
                return Ok(());
            }
            self.live(stack)?;
        }
    }

    pub(crate) fn verdict(mut self, failure: Option<Failure>) -> Verdict {
        let acts = self.seen().acts;
        self.tally.acts = acts;
        self.stage.visits().into_iter().for_each(|(site, times)| self.marks.visit(site, times));
        Verdict { hash: self.trace.digest(), tally: self.tally, marks: self.marks, failure }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        seen(&self.seen)
    }

    /// A machine for the present life or recovery.
    pub(crate) fn machine(&mut self, threads: u32, points: u64) -> Machine {
        let order = Order::any(&mut self.rng, points);
        Machine::new(Plan { points_max: 5_000_000, ..Plan::new(self.rng.next_u64(), threads, order) })
    }

    /// Takes a machine's account over. Ok if nothing is wrong with how it ended: whether it was stopped.
    pub(crate) fn ran(&mut self, ended: Ended) -> Result<bool, String> {
        self.tally.points += ended.points;
        self.tally.switches += ended.switches;
        digest(&mut self.trace, [ended.hash]);
        ended.waits.iter().for_each(|wait| self.marks.wait(wait));
        match ended.how {
            How::Finished => Ok(false),
            How::Stopped => Ok(true),
            How::Deadlock(threads) => Err(format!("threads {threads:?} wait for ever")),
            How::TooLong => {
                let busiest = ended.waits.iter().max_by_key(|wait| wait.times);
                Err(format!("no end in sight; most often waited at {busiest:?}"))
            }
            How::Panicked(thread, panic) => Err(format!("thread {thread}: {}", text_of(&*panic))),
        }
    }

    /// Clients and drains use the stack until a random access, or until the clients are through; then power or process end.
    fn live(&mut self, stack: Stack) -> Result<(), String> {
        self.lives += 1;
        let Script { clients, drains, acts, .. } = self.script;
        let drains = if stack.cache.is_some() { drains } else { 0 };
        let mut machine = self.machine(clients + drains, 20 * u64::from(acts) * u64::from(clients) / 4);
        self.seen().busy = clients;
        for client in 0..clients {
            let rng = Rng::new(mix(self.script.seed ^ mix(self.lives << 8 | u64::from(client))));
            let (stack, seen) = (stack.clone(), self.seen.clone());
            let (shape, sabotage) = (self.setting.shape.clone(), self.script.sabotage);
            let client = Client { stack, seen, rng, number: client, shape, drains, sabotage };
            machine.spawn(client.number, move || client.work());
        }
        for drain in 0..drains {
            let (stack, seen, bytes) = (stack.clone(), self.seen.clone(), self.setting.shape.block_bytes);
            machine.spawn(clients + drain, move || drains_cache(&stack, &seen, bytes));
        }
        if let Some(cache) = &stack.cache {
            cache.set_doorbell(Box::new(Bell { first: clients, drains }));
        }
        let fault = self.slots.as_ref().filter(|_| self.rng.one_in(16));
        if let Some(slots) = fault {
            slots.lose_stores_from(self.rng.below(4 * u64::from(acts) + 1));
        }
        // A life takes some ten accesses for each operation, a fourth of them fences.
        let all = u64::from(acts) * u64::from(clients);
        let end = match self.rng.below(6) {
            0 => End::BeforeAccess(1 + self.rng.below(4 * all)),
            1..4 => End::BeforeFence(1 + self.rng.below(all)),
            // In the first few operations, when much of what recovery did is still all there is.
            4 => End::BeforeAccess(1 + self.rng.below(60)),
            _ => End::BeforeFence(1 + self.rng.below(12)),
        };
        self.stage.end(end);
        let ran = self.ran_in(machine);
        self.stage.end(End::None);
        if let (Some(cache), Ok(_)) = (&stack.cache, &ran) {
            self.marks.count(&cache.counters());
        }
        drop(stack);
        ran?;
        self.seen().history.judge().map_err(|wrong| wrong.to_string())?;
        let sealed = std::mem::take(&mut self.seen().sealed);
        if sealed {
            self.marks.reach(marks::SLOTS_SEALED);
        }
        // Slots that lost a store are worth nothing to another process.
        if sealed || fault_planned(&self.slots) || self.rng.below(5) < 3 {
            self.tally.cuts += 1;
            self.power_fails();
        } else {
            self.tally.kills += 1;
            self.is_killed();
        }
        Ok(())
    }

    fn ran_in(&mut self, machine: Machine) -> Result<bool, String> {
        let ended = machine.run();
        self.ran(ended)
    }
}

fn fault_planned(slots: &Option<Arc<SharedMemory>>) -> bool {
    slots.as_ref().is_some_and(|slots| slots.may_lose_stores())
}

pub(crate) fn seen(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // A client that found something wrong has panicked; what was seen until then still counts.
    seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Wakes every thread that drains.
struct Bell {
    first: u32,
    drains: u32,
}

impl Doorbell for Bell {
    fn ring(&self) {
        (self.first..self.first + self.drains).for_each(|thread| unpark(thread as usize));
    }
}

/// Drains until the clients are through and nothing is left.
fn drains_cache(stack: &Stack, seen_by: &Mutex<Seen>, block_bytes: usize) {
    let cache = stack.cache.as_ref().expect("drains are for caches");
    let (mut cursor, mut scratch) = (0, vec![0; block_bytes]);
    loop {
        let Ok(progress) = cache.drain_step(2, &mut cursor, &mut scratch) else { return };
        if progress.evicted > 0 {
            continue;
        }
        if progress.more {
            tidegate_media::sync::yield_now();
        } else if seen(seen_by).busy == 0 {
            return;
        } else if cache.may_sleep() {
            park();
        }
    }
}

/// One of those who use the device.
struct Client {
    stack: Stack,
    seen: Arc<Mutex<Seen>>,
    rng: Rng,
    number: u32,
    shape: crate::power_cuts::SmallVolume,
    drains: u32,
    sabotage: Sabotage,
}

impl Client {
    fn work(mut self) {
        while self.takes_one() {
            let act = Act::any(&mut self.rng, self.shape.sectors());
            if self.act(act).is_err() {
                self.seen().sealed = true;
                return stop();
            }
            self.seen().acts += 1;
        }
        self.seen().busy -= 1;
        if self.drains > 0 {
            let first = self.seen().left.len();
            (first..first + self.drains as usize).for_each(unpark);
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        seen(&self.seen)
    }

    fn takes_one(&self) -> bool {
        let mut seen = self.seen();
        let left = &mut seen.left[self.number as usize];
        let some = *left > 0;
        *left = left.saturating_sub(1);
        some
    }

    fn device(&self) -> &dyn BlockDevice {
        match &self.stack.cache {
            Some(cache) => &**cache,
            None => &*self.stack.table,
        }
    }

    fn act(&self, act: Act) -> tidegate_media::Result<()> {
        match act {
            Act::Write(lba, durability) => self.write(Lba(lba), durability),
            Act::Zero(range, durability) => {
                let pending = self.both(|oracle| oracle.write_zeroes_began(range, durability));
                self.device().write_zeroes(range, durability)?;
                self.acknowledged(pending);
                Ok(())
            }
            Act::Discard(lba) => {
                let range = LbaRange { first: Lba(lba), blocks: 1 };
                let pending = self.both(|oracle| oracle.discard_began(range));
                self.device().discard(range)?;
                self.acknowledged(pending);
                Ok(())
            }
            Act::Read(lba) => self.read(Lba(lba)),
            Act::Flush => self.flush(),
            Act::Drain(budget) => match &self.stack.cache {
                Some(cache) => cache.drain_step(budget, &mut 0, &mut vec![0; self.shape.block_bytes]).map(drop),
                None => self.read(Lba(u64::from(budget) % self.shape.sectors())),
            },
            Act::Limit(slots) => {
                self.stack.cache.iter().for_each(|cache| cache.limit_slots(slots));
                Ok(())
            }
        }
    }

    fn write(&self, lba: Lba, durability: Durability) -> tidegate_media::Result<()> {
        let tag = {
            let mut seen = self.seen();
            seen.tags += 1;
            seen.tags
        };
        let block = block_of(tag, self.shape.block_bytes);
        let content = Content::of(&block);
        let pending = self.both(|oracle| oracle.write_began(lba, content, durability));
        {
            let history = &mut self.seen().history;
            let began = history.begin();
            history.writes(&began, lba, content);
        }
        let forced = self.sabotage != Sabotage::Mislaid(Mislaid::Force);
        self.device().write(lba, &block, if forced { durability } else { Durability::Volatile })?;
        self.acknowledged(pending);
        self.seen().history.wrote(lba, content);
        Ok(())
    }

    fn read(&self, lba: Lba) -> tidegate_media::Result<()> {
        let (start, began) = {
            let mut seen = self.seen();
            (seen.kill.read_began(), seen.history.begin())
        };
        let mut block = vec![0; self.shape.block_bytes];
        self.device().read(lba, &mut block)?;
        let content = Content::of(&block);
        tidegate_virtual_cores::note(content.0);
        let mut seen = self.seen();
        seen.history.read(began, lba, content);
        let judged = seen.kill.read_ended(start, lba, content);
        judged.unwrap_or_else(|wrong| panic!("a read is torn or stale: {wrong}"));
        Ok(())
    }

    fn flush(&self) -> tidegate_media::Result<()> {
        let [power, kill] = self.both(Oracle::flush_began);
        if self.sabotage != Sabotage::Mislaid(Mislaid::Flushes) {
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

    fn acknowledged(&self, [power, kill]: [tidegate_sim::Pending; 2]) {
        let mut seen = self.seen();
        seen.power.acknowledged(power);
        seen.kill.acknowledged(kill);
    }
}
