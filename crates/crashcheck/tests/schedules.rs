//! Threads on one small volume under every kind of schedule, with the power cut at a random access
//! to the medium.
//!
//! Compiled with `--cfg shuttle` only: its scheduler stands in for locks and atomics, and each
//! access to the simulated region is a place where threads may change. Two threads share a lane, so
//! lanes move between threads; two share each block, so that reads meet writes and freed blocks are
//! written again while they are read. No read may be torn or older than one before it, and whatever
//! a cut leaves is judged by Linux's recovery and ours.
//!
//! `TIDEGATE_SCHEDULES` gives the number of schedules of each kind. A failure prints its schedule,
//! for `shuttle::replay`.
#![cfg(shuttle)]

use std::sync::{Arc, Mutex, OnceLock};
use tidegate_btt::{Btt, OpenOptions, Repair, check};
use tidegate_crashcheck::btt::{LinuxArena, Order, SmallVolume};
use tidegate_crashcheck::cuts::Observed;
use tidegate_crashcheck::script::block_of;
use tidegate_media::sync::set_thread_token;
use tidegate_media::{BlockDevice, Durability, Lba, LbaRange};
use tidegate_sim::{Content, Cut, Image, Oracle, Promise, Region, Rng};

const THREADS: u32 = 3;
const STEPS: u64 = 3;

/// What a cut leaves, and what its blocks may then show.
type Cuts = Arc<Mutex<Vec<(Cut, Oracle)>>>;

/// A region that loses power once: what it holds at that access is kept for later, and the threads
/// go on.
type CutOnce = Observed<Box<dyn Fn(&Region) + Send + Sync>>;

/// `region`, which keeps in `cuts` what a power cut at `at_access` leaves. Nothing between the two
/// snapshots lets another thread run, nor anything else while a lock of the system's is held.
fn cut_once(region: Arc<Region>, oracle: Arc<Mutex<Oracle>>, cuts: Cuts, at_access: u64) -> CutOnce {
    let before = move |region: &Region| {
        let due = region.accesses() >= at_access;
        let mut cuts = cuts.lock().expect("one thread runs at a time");
        if due && cuts.is_empty() {
            let oracle = oracle.lock().expect("one thread runs at a time").after_cut();
            cuts.push((region.cut(), oracle));
        }
    };
    Observed::new(region, Box::new(before))
}

/// A volume, threads that use it, and what they may see.
struct Scene {
    volume: SmallVolume,
    device: Btt<CutOnce>,
    oracle: Arc<Mutex<Oracle>>,
}

impl Scene {
    fn oracle<T>(&self, ask: impl FnOnce(&mut Oracle) -> T) -> T {
        ask(&mut self.oracle.lock().expect("one thread runs at a time"))
    }

    /// A few operations on two sectors.
    fn use_it(&self, thread: u32, mut rng: Rng) {
        for step in 0..STEPS {
            let lba = Lba(rng.below(2));
            let range = LbaRange { first: lba, blocks: 1 };
            match rng.below(8) {
                0 => {
                    let pending = self.oracle(|oracle| oracle.write_zeroes_began(range, Durability::Volatile));
                    self.device.write_zeroes(range, Durability::Volatile).expect("the region is sound");
                    self.oracle(|oracle| oracle.acknowledged(pending));
                }
                1 => {
                    let pending = self.oracle(|oracle| oracle.discard_began(range));
                    self.device.discard(range).expect("the region is sound");
                    self.oracle(|oracle| oracle.acknowledged(pending));
                }
                2..=4 => self.read(lba),
                _ => self.write(lba, u64::from(thread) * STEPS + step + 1),
            }
        }
    }

    fn write(&self, lba: Lba, tag: u64) {
        let bytes = block_of(tag, self.volume.block_bytes);
        let pending = self.oracle(|oracle| oracle.write_began(lba, Content::of(&bytes), Durability::Volatile));
        self.device.write(lba, &bytes, Durability::Volatile).expect("the region is sound");
        self.oracle(|oracle| oracle.acknowledged(pending));
    }

    fn read(&self, lba: Lba) {
        let mut bytes = vec![0; self.volume.block_bytes];
        let start = self.oracle(|oracle| oracle.read_began());
        self.device.read(lba, &mut bytes).expect("the region is sound");
        let ended = self.oracle(|oracle| oracle.read_ended(start, lba, Content::of(&bytes)));
        ended.unwrap_or_else(|wrong| panic!("torn or stale: {wrong}"));
    }
}

/// Formats once; every schedule starts from a copy.
fn formatted(volume: &SmallVolume) -> Image {
    let image = Arc::new(OnceLock::new());
    let (into, volume) = (image.clone(), volume.clone());
    shuttle::check_random(move || drop(into.set(volume.formatted())), 1);
    image.get().cloned().expect("one schedule ran")
}

/// One schedule: three threads, one cut.
fn scene(volume: &SmallVolume, start: &Image) {
    use shuttle::rand::Rng as _;
    let mut rng = Rng::new(shuttle::rand::thread_rng().r#gen());
    let blocks = volume.sectors();
    let oracle = Oracle::zeroed(blocks, volume.block_bytes, Promise::OnCompletion).with_concurrent_reads();
    let oracle = Arc::new(Mutex::new(oracle));
    let cuts: Cuts = Arc::default();
    let region = Arc::new(Region::from_image(start.clone()));
    let at_access = rng.below(120);
    let cut_once = cut_once(region.clone(), oracle.clone(), cuts.clone(), at_access);
    let device = Btt::open(cut_once, &volume.options()).expect("it was formatted");
    let scene = Arc::new(Scene { volume: volume.clone(), device, oracle });
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (scene, seed) = (scene.clone(), rng.next_u64());
            // Threads 0 and 2 share lane 0.
            let token = if thread == 2 { scene.volume.geometry.nfree } else { thread };
            shuttle::thread::spawn(move || {
                set_thread_token(token);
                scene.use_it(thread, Rng::new(seed));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread panicked"));
    let last = (region.cut(), scene.oracle(|oracle| oracle.after_cut()));
    let mut cuts = std::mem::take(&mut *cuts.lock().expect("every thread ended"));
    cuts.push(last);
    for (cut, oracle) in &cuts {
        judge(volume, &cut.sample(&mut rng), oracle);
    }
}

fn judge(volume: &SmallVolume, image: &Image, oracle: &Oracle) {
    let order = Order::Shuffled(image.hash());
    let linux = LinuxArena::attach(image, 0, &volume.geometry, order).expect("Linux attaches it");
    linux.owners().expect("each block has one owner");
    let device = Btt::open(Arc::new(Region::from_image(image.clone())), &OpenOptions::default()).expect("it opens");
    let report = check(device.region(), Repair::No).expect("a volume");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let mut bytes = vec![0; volume.block_bytes];
    for lba in 0..volume.geometry.external_nlba {
        device.read(Lba(u64::from(lba)), &mut bytes).expect("the region is sound");
        let content = Content::of(&bytes);
        assert!(oracle.allows(Lba(u64::from(lba)), content), "sector {lba} shows what no write left there");
        assert_eq!(linux.content(lba, volume.block_bytes), Ok(content), "sector {lba} on Linux and here");
    }
}

fn schedules() -> usize {
    std::env::var("TIDEGATE_SCHEDULES").map_or(5_000, |count| count.parse().expect("a number of schedules"))
}

fn volumes() -> [SmallVolume; 4] {
    let levelled = SmallVolume::four_free().levelled();
    [SmallVolume::two_free(), SmallVolume::four_free(), SmallVolume::whole_pages(), levelled]
}

#[test]
fn random_schedules() {
    for volume in volumes() {
        let start = formatted(&volume);
        shuttle::check_random(move || scene(&volume, &start), schedules());
    }
}

#[test]
fn schedules_of_few_preemptions() {
    for volume in volumes() {
        let start = formatted(&volume);
        shuttle::check_pct(move || scene(&volume, &start), schedules(), 3);
    }
}
