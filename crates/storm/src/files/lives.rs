//! The lives of a storm with files: recovery, clients and threads in the background until power or
//! process end, and the verdict on what is found.

use crate::files::below::{FilesBelow, Found, backing};
use crate::files::client::{FilesClient, read_all, works_in_background};
use crate::files::seen::{Opened, Seen, seen};
use crate::files::states::{FileStates, Shown, Wholeness};
use crate::marks::{self, Marks};
use crate::scene::{self, OPENER};
use crate::script::{Failure, Script, Tally, Verdict, digest};
use crate::staged::{End, Stage, Staged};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_crashcheck::file_cache::SimFile;
use tidegate_file_cache::{FilePool, Outcome, PoolSpec, check, dram_bytes, format};
use tidegate_media::LineOrder;
use tidegate_media::sync::set_thread_token;
use tidegate_sim::{Content, Image, Region, Rng, SharedMemory, mix};
use tidegate_virtual_cores::{Machine, Trace};

/// Recoveries in a row that may be cut short.
const DEPTH_MAX: usize = 3;

/// Accesses and fences after which a recovery may be cut short.
const RECOVERY_ACCESSES: u64 = 80;
const RECOVERY_FENCES: u64 = 8;

/// Files of a scene at most.
const FILES_MAX: u32 = 4;

/// The files' first contents.
const OLD: [u8; 70] = [0xee; 70];

const CHUNK_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;

/// What a seed has chosen.
struct PoolSetting {
    files: usize,
    lanes: u32,
    dram_blocks: u64,
    order: LineOrder,
    wholeness: Wholeness,
}

/// Files on a pool, from life to life.
pub(crate) struct FileScene {
    script: Arc<Script>,
    setting: PoolSetting,
    rng: Rng,
    stage: Arc<Stage>,
    region: Arc<Region>,
    below: Arc<FilesBelow>,
    dram: Vec<Arc<SharedMemory>>,
    seen: Arc<Mutex<Seen>>,
    /// Whether the power has failed since the files were last judged.
    was_cut: bool,
    trace: Trace,
    tally: Tally,
    marks: Marks,
}

type Pool = Opened<Staged<Region>>;

impl FileScene {
    pub(crate) fn new(script: Script) -> FileScene {
        let mut rng = Rng::new(mix(script.seed ^ 0xf17e));
        let files = (script.clients * 3 / 4).clamp(1, FILES_MAX);
        let wholeness = if rng.one_in(2) { Wholeness::NotPromised } else { Wholeness::Promised };
        let lanes = 1 + u32::from(rng.one_in(3));
        let setting = PoolSetting {
            files: files as usize,
            lanes,
            // Where DRAM runs full in the middle of a write, a part of that becomes durable alone.
            dram_blocks: if wholeness == Wholeness::Promised { 128 } else { 4 << rng.below(4) },
            order: if rng.one_in(2) { LineOrder::Prefix } else { LineOrder::Any },
            wholeness,
        };
        let is_tight = wholeness == Wholeness::NotPromised && !rng.one_in(4);
        // A commit takes half of the ring at most: with room for all, none goes below.
        let ring_slots = if wholeness == Wholeness::Promised { 64 } else { 8 << rng.below(2) };
        let image = formatted(lanes, if is_tight { 2 } else { 32 }, files, ring_slots);
        let olds = (0..files).map(|file| if file == 0 { OLD.to_vec() } else { Vec::new() });
        let stage = Arc::new(Stage::new(script.mutant));
        // Seeds that once found something, and those with digests, have storms without.
        let has_plenty = [3, 5].contains(&(script.seed % 7));
        let below = FilesBelow::new(olds.clone().map(|old| SimFile::new(&old)).collect(), &stage, has_plenty);
        let seen = Seen {
            states: olds.map(|old| FileStates::new(old, wholeness)).collect(),
            done: vec![0; script.clients as usize],
            busy: 0,
            acts: 0,
        };
        let mut scene = FileScene {
            rng: Rng::new(mix(script.seed) ^ mix(script.schedule.wrapping_add(0x5c4e))),
            region: Arc::new(Region::with_line_order(image, setting.order)),
            below: Arc::new(below),
            dram: Vec::new(),
            seen: Arc::new(Mutex::new(seen)),
            was_cut: true,
            trace: Trace::default(),
            tally: Tally { scripts: 1, ..Tally::default() },
            marks: Marks::default(),
            setting,
            stage,
            script: Arc::new(script),
        };
        scene.dram = scene.fresh_dram();
        scene
    }

    pub(crate) fn verdict(mut self, failure: Option<Failure>) -> Verdict {
        let acts = self.seen().acts;
        self.tally.acts = acts;
        self.stage.visits().into_iter().for_each(|(site, times)| self.marks.visit(site, times));
        Verdict { hash: self.trace.digest(), tally: self.tally, marks: self.marks, failure }
    }

    /// All lives, and a recovery after the last.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        loop {
            let pool = self.recover()?;
            if self.seen().done.iter().all(|done| *done == self.script.acts) {
                return Ok(());
            }
            self.live(pool)?;
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        seen(&self.seen)
    }

    fn fresh_dram(&self) -> Vec<Arc<SharedMemory>> {
        let bytes = dram_bytes(&*self.region, u64::from(self.setting.lanes) * self.setting.dram_blocks * BLOCK_BYTES);
        let bytes = bytes.expect("the pool was laid out");
        (0..self.setting.lanes).map(|_| Arc::new(SharedMemory::new(bytes))).collect()
    }

    /// Clients and threads in the background use the files until a random access, or until the
    /// clients are through.
    fn live(&mut self, pool: Pool) -> Result<(), String> {
        let all = u64::from(self.script.acts) * u64::from(self.script.clients);
        let machine = self.crew(&pool, all);
        let end = match self.rng.below(6) {
            0 => End::BeforeAccess(1 + self.rng.below(8 * all)),
            1..4 => End::BeforeFence(1 + self.rng.below(all)),
            // In the first few operations, when much of what recovery did is still all there is.
            4 => End::BeforeAccess(1 + self.rng.below(200)),
            _ => End::BeforeFence(1 + self.rng.below(12)),
        };
        self.stage.end(end);
        let ended = machine.run();
        self.stage.end(End::None);
        let was_stopped = scene::take_over(ended, &mut self.tally, &mut self.trace, &mut self.marks)?;
        if !was_stopped {
            self.judge_rest(&pool)?;
        }
        drop(pool);
        let cut = self.rng.below(5) < 3;
        *(if cut { &mut self.tally.cuts } else { &mut self.tally.kills }) += 1;
        self.end(cut);
        Ok(())
    }

    /// A machine with every client, and the threads in the background.
    fn crew(&mut self, pool: &Pool, all: u64) -> Machine {
        let Script { clients, drains, .. } = *self.script;
        let mut machine = scene::machine_of(&self.script, &mut self.rng, clients + drains, 20 * all);
        self.seen().busy = clients;
        for number in 0..clients {
            let (opened, below) = (pool.clone(), self.below.clone());
            let (seen, script) = (self.seen.clone(), self.script.clone());
            let client = FilesClient { opened, below, seen, script, number };
            machine.spawn(number, move || client.work());
        }
        for number in 0..drains {
            let (opened, seen, wholeness) = (pool.clone(), self.seen.clone(), self.setting.wholeness);
            let rng = Rng::new(self.rng.next_u64());
            machine.spawn(clients + number, move || {
                works_in_background(&opened, &seen, wholeness, rng)
                    .unwrap_or_else(|error| panic!("in the background: {error}"));
            });
        }
        machine
    }

    /// Nobody is at work: every file reads as it has to.
    fn judge_rest(&mut self, pool: &Pool) -> Result<(), String> {
        let asked = pool.clone();
        let (below, found) = scene::alone(self.script.seed, move || (asked.pool.counters().below, contents(&asked)))?;
        if below > 0 && self.setting.wholeness == Wholeness::Promised {
            return Err(format!("{below} syncs went below, although the pool has room"));
        }
        let seen = self.seen();
        let is_right = |(states, found): (&FileStates, &Vec<u8>)| states.now() == found;
        if seen.states.iter().zip(&found?).all(is_right) {
            Ok(())
        } else {
            Err("files at rest read otherwise".to_owned())
        }
    }

    /// The power fails, or the process is killed.
    fn end(&mut self, cut: bool) {
        let pending = self.region.cut();
        if cut {
            if self.rng.one_in(2) {
                // The memory goes on in another machine.
                self.setting.order = if self.rng.one_in(2) { LineOrder::Prefix } else { LineOrder::Any };
            }
            let image = pending.sample(&mut self.rng);
            let files = self.below.sample(&mut self.rng);
            digest(&mut self.trace, [1, image.hash()]);
            self.region = Arc::new(Region::with_line_order(image, self.setting.order));
            self.below = Arc::new(self.below.with(files));
            self.dram = self.fresh_dram();
        } else {
            digest(&mut self.trace, [2, pending.most().hash()]);
            self.region = Arc::new(Region::after_kill(&pending));
            self.below = Arc::new(self.below.with(self.below.left()));
            self.dram = self.dram.iter().map(|dram| Arc::new(SharedMemory::of(dram.left()))).collect();
        }
        self.was_cut |= cut;
    }

    /// Recovers, with ends in the recovery as they come, and judges what is there.
    fn recover(&mut self) -> Result<Pool, String> {
        let mut depth = 0;
        loop {
            self.judge_format("before recovery")?;
            let end = match self.rng.below(4) {
                0 if depth < DEPTH_MAX => End::BeforeAccess(1 + self.rng.below(RECOVERY_ACCESSES)),
                1 if depth < DEPTH_MAX => End::BeforeFence(1 + self.rng.below(RECOVERY_FENCES)),
                _ => End::None,
            };
            if let Some(pool) = self.attempt(end)? {
                self.judge(&pool)?;
                self.judge_format("after recovery")?;
                return Ok(pool);
            }
            self.marks.reach(marks::CUT_IN_RECOVERY[depth]);
            let cut = self.rng.below(4) < 3;
            *(if cut { &mut self.tally.cuts_in_recovery } else { &mut self.tally.kills_in_recovery }) += 1;
            self.end(cut);
            depth += 1;
        }
    }

    /// Opens the pool and finds its files, on a machine of its own. None: it was ended.
    fn attempt(&mut self, end: End) -> Result<Option<Pool>, String> {
        let opening = Opening {
            region: Arc::new(Staged::new(self.region.clone(), &self.stage, 1)),
            dram: (2..)
                .zip(&self.dram)
                .map(|(number, dram)| Staged::new(dram.clone(), &self.stage, number))
                .map(Arc::new)
                .collect(),
            below: self.below.clone(),
            files: self.setting.files,
        };
        let done = Arc::new(Mutex::new(None));
        let into = done.clone();
        let mut machine = scene::machine_of(&self.script, &mut self.rng, 1, 100);
        machine.spawn(0, move || {
            // No client's fence is to stand in for one of the recovery.
            set_thread_token(OPENER);
            *into.lock().expect("nobody else has it") = Some(opening.open());
        });
        self.stage.end(end);
        let ended = machine.run();
        self.stage.end(End::None);
        let was_stopped = scene::take_over(ended, &mut self.tally, &mut self.trace, &mut self.marks)?;
        let opened = done.lock().expect("nobody else has it").take();
        match opened {
            Some(opened) if !was_stopped => opened.map(Some),
            _ => Ok(None),
        }
    }

    /// Every file shows what it may. Sometimes all is brought below, and is there then.
    fn judge(&mut self, pool: &Pool) -> Result<(), String> {
        let asked = pool.clone();
        let found = scene::alone(self.script.seed, move || contents(&asked))??;
        digest(&mut self.trace, found.iter().map(|bytes| Content::of(bytes).0));
        let (was_cut, wholeness) = (std::mem::take(&mut self.was_cut), self.setting.wholeness);
        {
            let mut seen = self.seen();
            for ((number, states), found) in (0..).zip(&mut seen.states).zip(&found) {
                let judged = if was_cut { states.judge_cut(found) } else { states.judge_kill(found) };
                judged.map_err(|wrong| format!("file {number}: {wrong}"))?;
                *states =
                    if was_cut { FileStates::new(found.clone(), wholeness) } else { states.after_kill(found.clone()) };
            }
        }
        if self.rng.one_in(4) { self.judge_drained(pool, &found) } else { Ok(()) }
    }

    fn judge_drained(&mut self, pool: &Pool, found: &[Vec<u8>]) -> Result<(), String> {
        let asked = pool.clone();
        let drained = scene::alone(self.script.seed, move || {
            asked
                .files
                .iter()
                .try_for_each(|file| asked.pool.drain(*file))
                .map_err(|error| format!("draining: {error}"))
        })?;
        drained?;
        for (number, found) in found.iter().enumerate() {
            let below = self.below.contents(number);
            if below != *found {
                return Err(format!("file {number} reads as {}, and was drained as {}", Shown(found), Shown(&below)));
            }
        }
        let wholeness = self.setting.wholeness;
        self.seen().states.iter_mut().for_each(|states| *states = FileStates::new(states.now().to_vec(), wholeness));
        Ok(())
    }

    fn judge_format(&self, when: &str) -> Result<(), String> {
        let report = check(&self.region).map_err(|error| format!("checking {when}: {error}"))?;
        report.findings.first().map_or(Ok(()), |finding| Err(format!("{when}: {finding}")))
    }
}

/// What the next process does before it takes requests.
struct Opening {
    region: Arc<Staged<Region>>,
    dram: Vec<Arc<Staged<SharedMemory>>>,
    below: Arc<FilesBelow>,
    files: usize,
}

impl Opening {
    fn open(self) -> Result<Pool, String> {
        let dram = |lane: u32| -> Result<Arc<dyn tidegate_media::Region>, _> { Ok(self.dram[lane as usize].clone()) };
        let pool = FilePool::open(&self.region, dram).map_err(|error| format!("opening: {error}"))?;
        let recovered = pool.recover(&Found(self.below.clone())).map_err(|error| format!("recovering: {error}"))?;
        if let Some(lost) = recovered.iter().find(|file| file.outcome != Outcome::Attached) {
            return Err(format!("recovering: {lost:?}"));
        }
        let open = |number| pool.open_file(&backing(&self.below, number), b"a path");
        let files = (0..self.files).map(open).collect::<Result<_, _>>();
        Ok(Opened { files: files.map_err(|error| format!("opening a file: {error}"))?, pool: Arc::new(pool) })
    }
}

/// All files, as programs read them.
fn contents(opened: &Pool) -> Result<Vec<Vec<u8>>, String> {
    let all = opened.files.iter().map(|file| read_all(&opened.pool, *file));
    all.collect::<Result<_, _>>().map_err(|error| format!("reading: {error}"))
}

/// A pool that holds nothing.
fn formatted(lanes: u32, chunks: u64, files: u32, ring_slots: u32) -> Image {
    let bytes = CHUNK_BYTES + u64::from(lanes) * chunks * (CHUNK_BYTES + 16 * 32 + BLOCK_BYTES);
    let region = Region::new(bytes);
    let spec = PoolSpec { uuid: [7; 16], lanes, files, ring_slots, bytes_per_entry: 1 << 16, namespace_lines: 0 };
    format(&region, &spec).expect("the region takes a pool");
    region.cut().least().clone()
}
