//! A transit cache over a small volume, both on simulated memory: stopped at any access, by a power
//! cut or by a kill, and judged.
//!
//! The power cut takes the cache's slots; what was flushed must be there. The kill leaves slots and
//! volume as they were visible; everything acknowledged must be there once the slots are completed,
//! also if completing is killed and begun again.

use crate::btt::SmallVolume;
use crate::cuts::Observed;
use crate::script::block_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_btt::{Btt, OpenOptions};
use tidegate_media::{BlockDevice, Durability, Lba, LbaRange, Region as Medium};
use tidegate_sim::{Content, Cut, Image, Oracle, Promise, Region, Rng};
use tidegate_write_cache::{Options, WriteCache, bytes_for, complete};

const VOLUME: [u8; 16] = [9; 16];

/// A region that tells a watch of each access.
type Watched = Observed<Box<dyn Fn(&Region) + Send + Sync>>;

/// Two regions, what their blocks may show, and the one instant at which all of it is recorded.
struct Watch {
    slots: Arc<Region>,
    volume: Arc<Region>,
    at_access: u64,
    accesses: AtomicU64,
    seen: Mutex<Seen>,
}

/// What the threads of a stack may see and have seen.
struct Seen {
    /// What may be there after a power cut.
    power: Oracle,
    /// What may be there after a kill, and what reads may show.
    kill: Oracle,
    stop: Option<Stop>,
}

/// Everything at one instant.
pub struct Stop {
    slots: Cut,
    volume: Cut,
    power: Oracle,
    kill: Oracle,
}

impl Watch {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no holder panics")
    }

    fn pass(&self) {
        if self.accesses.fetch_add(1, Ordering::Relaxed) == self.at_access {
            self.record();
        }
    }

    fn record(&self) {
        let mut seen = self.seen();
        let (power, kill) = (seen.power.after_cut(), seen.kill.after_cut());
        seen.stop = Some(Stop { slots: self.slots.cut(), volume: self.volume.cut(), power, kill });
    }
}

/// `region`, each access to which `watch` passes.
fn watched(region: Arc<Region>, watch: &Arc<Watch>) -> Watched {
    let watch = watch.clone();
    Observed::new(region, Box::new(move |_| watch.pass()))
}

/// A mistake made on purpose, to see that a campaign notices it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mistake {
    /// None.
    #[default]
    None,
    /// A flush is answered and not made.
    FlushMissing,
    /// A write with forced unit access goes through the cache.
    ForcedWriteCached,
    /// Slots are given up before their block is in the device: the next process does not see them.
    SlotsForgotten,
}

/// A cache over a volume, in use.
pub struct Stack {
    watch: Arc<Watch>,
    mistake: Mistake,
    /// The device as users have it.
    pub cache: WriteCache<Watched>,
    shape: SmallVolume,
}

/// What a thread does in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Writes a block.
    Write(u64, Durability),
    /// Reads a block and judges it.
    Read(u64),
    /// Flushes.
    Flush,
    /// Evicts up to so many blocks.
    Drain(u32),
    /// Makes so many blocks from a first one read as zeroes.
    Zero(LbaRange, Durability),
    /// Gives a block up.
    Discard(u64),
    /// Allows so many slots; with none, writes go past the cache.
    Limit(u32),
}

impl Act {
    /// Any of them, on `blocks` blocks.
    pub fn any(rng: &mut Rng, blocks: u64) -> Act {
        let lba = rng.below(blocks);
        let durability = if rng.one_in(3) { Durability::Fua } else { Durability::Volatile };
        match rng.below(16) {
            0..7 => Act::Write(lba, Durability::Volatile),
            7 => Act::Write(lba, Durability::Fua),
            8..10 => Act::Read(lba),
            10 => Act::Flush,
            11..13 => Act::Drain(1 + u32::try_from(rng.below(3)).expect("small")),
            13 => Act::Zero(LbaRange { first: Lba(lba), blocks: 1 + rng.below(blocks - lba) }, durability),
            14 => Act::Discard(lba),
            _ => Act::Limit(u32::try_from(rng.below(4)).expect("small")),
        }
    }
}

impl Stack {
    /// A cache as `options` has it over the formatted volume `start`; everything is recorded at
    /// access number `at_access` of both regions.
    pub fn new(
        shape: &SmallVolume,
        start: &Image,
        options: &dyn Fn(Options) -> Options,
        slots: u32,
        at_access: u64,
    ) -> Stack {
        let block_size = u32::try_from(shape.block_bytes).expect("a small block");
        let volume = Arc::new(Region::from_image(start.clone()));
        let memory = Arc::new(Region::new(bytes_for(slots, block_size)));
        let oracle = |promise| Oracle::zeroed(shape.sectors(), shape.block_bytes, promise).with_concurrent_reads();
        let seen = Seen { power: oracle(Promise::OnFlush), kill: oracle(Promise::OnCompletion), stop: None };
        let watch = Arc::new(Watch {
            slots: memory.clone(),
            volume: volume.clone(),
            at_access,
            accesses: AtomicU64::new(0),
            seen: Mutex::new(seen),
        });
        let device = Btt::open(watched(volume, &watch), &OpenOptions::default());
        let device = Arc::new(device.expect("a fresh volume opens"));
        let options = options(Options::new(VOLUME, slots));
        let cache = WriteCache::create(watched(memory, &watch), device, options).expect("the memory is large enough");
        Stack { watch, mistake: Mistake::None, cache, shape: shape.clone() }
    }

    /// This stack with a mistake in it.
    pub fn with(mut self, mistake: Mistake) -> Stack {
        self.mistake = mistake;
        self
    }

    /// Accesses to both regions so far.
    pub fn accesses(&self) -> u64 {
        self.watch.accesses.load(Ordering::Relaxed)
    }

    /// Does `act`, telling the oracles; `tag` makes what it writes unlike everything else.
    pub fn act(&self, act: Act, tag: u64) {
        let bytes = self.shape.block_bytes;
        match act {
            Act::Write(lba, durability) => {
                let block = block_of(tag, bytes);
                let content = Content::of(&block);
                let pending = self.both(|oracle| oracle.write_began(Lba(lba), content, durability));
                let asked = if self.mistake == Mistake::ForcedWriteCached { Durability::Volatile } else { durability };
                self.cache.write(Lba(lba), &block, asked).expect("the memory is sound");
                self.acknowledged(pending);
            }
            Act::Zero(range, durability) => {
                let pending = self.both(|oracle| oracle.write_zeroes_began(range, durability));
                self.cache.write_zeroes(range, durability).expect("the memory is sound");
                self.acknowledged(pending);
            }
            Act::Discard(lba) => {
                let range = LbaRange { first: Lba(lba), blocks: 1 };
                let pending = self.both(|oracle| oracle.discard_began(range));
                self.cache.discard(range).expect("the memory is sound");
                self.acknowledged(pending);
            }
            Act::Read(lba) => {
                let start = self.watch.seen().kill.read_began();
                let mut block = vec![0; bytes];
                self.cache.read(Lba(lba), &mut block).expect("the memory is sound");
                let judged = self.watch.seen().kill.read_ended(start, Lba(lba), Content::of(&block));
                judged.unwrap_or_else(|wrong| panic!("torn or stale: {wrong}"));
            }
            Act::Flush => {
                let start = self.both(Oracle::flush_began);
                if self.mistake != Mistake::FlushMissing {
                    self.cache.flush().expect("the memory is sound");
                }
                let mut seen = self.watch.seen();
                let Seen { power, kill, .. } = &mut *seen;
                power.flush_acknowledged(start[0]);
                kill.flush_acknowledged(start[1]);
            }
            Act::Drain(budget) => {
                let scratch = &mut vec![0; bytes];
                self.cache.drain_step(budget, &mut 0, scratch).map(drop).expect("the memory is sound");
            }
            Act::Limit(0) => self.cache.turn_away(),
            Act::Limit(slots) => {
                self.cache.take_in();
                self.cache.limit_slots(slots);
            }
        }
    }

    fn both<T>(&self, mut tell: impl FnMut(&mut Oracle) -> T) -> [T; 2] {
        let mut seen = self.watch.seen();
        let Seen { power, kill, .. } = &mut *seen;
        [tell(power), tell(kill)]
    }

    fn acknowledged(&self, pending: [tidegate_sim::Pending; 2]) {
        let [first, second] = pending;
        let mut seen = self.watch.seen();
        seen.power.acknowledged(first);
        seen.kill.acknowledged(second);
    }

    /// What was recorded, or everything as it is now.
    pub fn stop(self) -> Stop {
        if self.watch.seen().stop.is_none() {
            self.watch.record();
        }
        let stop = self.watch.seen().stop.take().expect("it was recorded");
        match self.mistake {
            Mistake::SlotsForgotten => Stop { slots: Region::new(self.watch.slots.len()).cut(), ..stop },
            _ => stop,
        }
    }
}

impl Stop {
    /// Judges what a power cut and what a kill leave at that instant.
    pub fn judge(&self, shape: &SmallVolume, rng: &mut Rng) -> Result<(), String> {
        for image in [self.volume.least().clone(), self.volume.most(), self.volume.sample(rng)] {
            judge(&Region::from_image(image), shape, &self.power)
                .map_err(|wrong| format!("after a power cut: {wrong}"))?;
        }
        let (slots, volume) = (Region::after_kill(&self.slots), Arc::new(Region::after_kill(&self.volume)));
        let volume = killed_while_completing(&slots, volume, rng);
        let device = open(volume.clone());
        complete(&slots, VOLUME, &device).map_err(|error| format!("completing: {error}"))?;
        drop(device);
        judge(&Region::from_image(volume.visible()), shape, &self.kill)
            .map_err(|wrong| format!("after a kill: {wrong}"))?;
        judge(&Region::from_image(volume.cut().sample(rng)), shape, &self.kill)
            .map_err(|wrong| format!("after a kill, completion, and a power cut: {wrong}"))
    }
}

/// Lets another process complete the slots and be killed at some access of the volume.
fn killed_while_completing(slots: &Region, volume: Arc<Region>, rng: &mut Rng) -> Arc<Region> {
    let nothing = Oracle::zeroed(1, 1, Promise::OnFlush);
    let seen = Seen { power: nothing.clone(), kill: nothing, stop: None };
    let watch = Arc::new(Watch {
        slots: Arc::new(Region::new(64)),
        volume: volume.clone(),
        at_access: rng.below(60),
        accesses: AtomicU64::new(0),
        seen: Mutex::new(seen),
    });
    let device = Btt::open(watched(volume.clone(), &watch), &OpenOptions::default());
    complete(slots, VOLUME, &device.expect("a volume of a killed process opens")).expect("it can be completed");
    let stop = watch.seen().stop.take();
    match stop {
        Some(stop) => Arc::new(Region::after_kill(&stop.volume)),
        None => volume,
    }
}

fn open(region: Arc<Region>) -> Btt<Arc<Region>> {
    Btt::open(region, &OpenOptions::default()).expect("what a cut or a kill leaves opens")
}

fn judge(region: &Region, shape: &SmallVolume, oracle: &Oracle) -> Result<(), String> {
    let device = open(Arc::new(Region::from_image(region.visible())));
    let mut block = vec![0; shape.block_bytes];
    for lba in 0..shape.sectors() {
        device.read(Lba(lba), &mut block).expect("the memory is sound");
        let content = Content::of(&block);
        if !oracle.allows(Lba(lba), content) {
            return Err(format!("block {lba} shows {content:x?}, and may show {:x?}", oracle.allowed(Lba(lba))));
        }
    }
    Ok(())
}
