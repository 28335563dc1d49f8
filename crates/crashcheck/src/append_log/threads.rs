//! Threads on one log: two append and sync, one of them more bytes than wait in DRAM. A third one
//! takes the steps of the background, and at some access the power fails. Every record whose sync
//! was answered before is there, each thread's in their order, and no record in part.

use super::model::{CHUNK_BYTES, WINDOW};
use super::mutants::{LogBug, Mistaken};
use crate::checker::Failure;
use crate::cuts::Observed;
use crate::disk_cache::{JointCut, WatchedDisk, Watcher};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidegate_append_log::{AppendLog, LogError, Making, OnDamage, create};
use tidegate_media::sync::{AtomicU64, Mutex, Ordering, set_thread_token};
use tidegate_sim::{Image, InterceptedMemory, Reduction, Region, Rng, on_core};

#[cfg(shuttle)]
use shuttle::thread;
#[cfg(not(shuttle))]
use std::thread;

/// Records of each writer.
const RECORDS: u64 = 6;

/// Bytes in a record of each writer: chunks do not hold whole ones.
const RECORD_BYTES: [usize; 2] = [120, 600];

/// The machine, and where its power fails.
struct Scene {
    machine: Arc<Watcher>,
    /// Accesses of the memory so far.
    accesses: AtomicU64,
    cut_at: u64,
    /// How many records of each writer were answered, and what the cut found.
    answered: Mutex<[u64; 2]>,
    cut: Mutex<Option<(JointCut, [u64; 2])>>,
}

impl Scene {
    /// The power fails before access `cut_at`; the threads go on without noticing.
    fn access(&self) {
        // Relaxed: each access has a number, whichever.
        if self.accesses.fetch_add(1, Ordering::Relaxed) == self.cut_at {
            let answered = *self.answered.lock();
            *self.cut.lock() = Some((self.machine.cut(), answered));
        }
    }
}

/// A record of writer 1 or 2, which begins with that number.
fn record(writer: u8, number: u64) -> Vec<u8> {
    let mut record = vec![writer; RECORD_BYTES[usize::from(writer) - 1]];
    record[8..16].copy_from_slice(&number.to_le_bytes());
    record
}

type Announced = Observed<Box<dyn Fn(&Region) + Send + Sync>>;
type Log = AppendLog<InterceptedMemory<Announced, Mistaken>>;

/// Appends and syncs a writer's records.
fn write(scene: &Scene, log: &Log, writer: u8) -> Result<(), Failure> {
    set_thread_token(u32::from(writer));
    for number in 0..RECORDS {
        let record = record(writer, number);
        loop {
            match log.append(&record) {
                Ok(_) => break,
                Err(LogError::Full { .. }) => drop(log.write_back_step().map_err(Failure::new)?),
                Err(error) => return Err(Failure::new(error)),
            }
        }
        log.sync().map_err(Failure::new)?;
        scene.answered.lock()[usize::from(writer) - 1] = number + 1;
    }
    Ok(())
}

/// Takes steps of the background in an order that `seed` gives.
fn take_steps(log: &Log, seed: u64) -> Result<(), Failure> {
    set_thread_token(3);
    let mut random = Rng::new(seed);
    for _ in 0..10 {
        let taken = if random.one_in(2) { log.prepare_step().map(drop) } else { log.write_back_step().map(drop) };
        taken.map_err(Failure::new)?;
    }
    Ok(())
}

/// Runs the threads once, with a power cut before an access that `seed` chooses, on a log with a
/// mistake if there is to be one.
pub fn judge_log_threads(seed: u64, bug: Option<LogBug>) -> Result<(), Failure> {
    let region = Region::new(WINDOW.end);
    let machine = Watcher::new(region, &Image::zeroed(16 * CHUNK_BYTES as u64));
    let making = Making { chunk_bytes: CHUNK_BYTES as u64, uuid: [3; 16], below: [0; 32] };
    create(&*machine.region, &*machine.disk, &making).map_err(Failure::new)?;
    let (accesses, cut_at) = (AtomicU64::new(0), Rng::new(seed).below(500));
    let (answered, cut) = (Mutex::new([0; 2]), Mutex::new(None));
    let scene = Arc::new(Scene { machine: Arc::clone(&machine), accesses, cut_at, answered, cut });
    let watching = Arc::clone(&scene);
    let before: Box<dyn Fn(&Region) + Send + Sync> = Box::new(move |_| watching.access());
    let memory = Arc::new(Observed::new(Arc::clone(&machine.region), before));
    let memory = InterceptedMemory { memory, by: Mistaken::new(bug, Arc::new(AtomicBool::new(true))) };
    let below = Arc::new(WatchedDisk(Arc::clone(&machine)));
    let log = Arc::new(AppendLog::open(memory, below, OnDamage::Refuse).map_err(Failure::new)?);
    let writers = [1, 2].map(|writer| {
        let (scene, log) = (Arc::clone(&scene), Arc::clone(&log));
        thread::spawn(move || write(&scene, &log, writer))
    });
    let steps = {
        let log = Arc::clone(&log);
        thread::spawn(move || take_steps(&log, seed))
    };
    for thread in writers.into_iter().chain([steps]) {
        thread.join().map_err(|_| Failure::new("a thread panicked"))??;
    }
    judge_records(&log, [RECORDS; 2]).map_err(|failure| failure.within("the running log"))?;
    drop(log);
    let cut = scene.cut.lock().take();
    let (cut, answered) = cut.unwrap_or_else(|| (machine.cut(), [RECORDS; 2]));
    judge(&cut, answered).map_err(|failure| failure.within(format_args!("a cut before access {cut_at}")))
}

/// Opens what the cut may leave.
fn judge(cut: &JointCut, answered: [u64; 2]) -> Result<(), Failure> {
    let reduction = Reduction { images_max: 64, samples: 16, ..Reduction::of([WINDOW]) };
    let disks = cut.disk_images();
    for image in cut.region.images(&reduction) {
        for disk in disks.first().into_iter().chain(disks.last()) {
            let machine = Watcher::new(Region::from_image(image.clone()), disk);
            let below = Arc::new(WatchedDisk(Arc::clone(&machine)));
            let log = on_core(0, || AppendLog::open(machine.memory(), below, OnDamage::Refuse));
            judge_records(&log.map_err(Failure::new)?, answered)?;
        }
    }
    Ok(())
}

/// Whether the log has whole records, of each writer the first ones and at least those answered.
fn judge_records<R: tidegate_media::Region>(log: &AppendLog<R>, answered: [u64; 2]) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    log.replay(0, &mut |_, part| bytes.extend_from_slice(part)).map_err(Failure::new)?;
    let mut rest = &bytes[..];
    let mut found = [0; 2];
    while let Some(writer @ 1..=2) = rest.first().copied() {
        let next = &mut found[usize::from(writer) - 1];
        let Some(behind) = rest.strip_prefix(&record(writer, *next)[..]) else { break };
        *next += 1;
        rest = behind;
    }
    let is_enough = found.iter().zip(answered).all(|(found, answered)| *found >= answered);
    match rest.is_empty() && is_enough {
        true => Ok(()),
        false => Err(Failure::new(format_args!("{found:?} records and {} bytes, {answered:?} answered", rest.len()))),
    }
}
