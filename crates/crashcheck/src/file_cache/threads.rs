//! Threads on one pool. Each file has one thread that writes it, so every read of that thread has
//! one right answer, and one more thread writes back, drains, and cuts the power once.

use crate::checker::Failure;
use crate::file_cache::checker::{compare, contents, recover_on};
use crate::file_cache::machine::{FILES, JointCut, Machine, SimFile, SmallPool, Watched, backing};
use crate::file_cache::model::{Allowed, FileModel};
use std::collections::BTreeSet;
use std::sync::Arc;
use tidegate_file_cache::{Fallocate, FileLength, FilePool, Persistence, PoolFile, ProgramAccess, Synced};
use tidegate_media::sync::{Mutex, set_thread_token};
use tidegate_policy::placement::{IoKind, NamedPlacement};
use tidegate_sim::{Region, Rng};

#[cfg(shuttle)]
use shuttle::thread;
#[cfg(not(shuttle))]
use std::thread;

/// Operations of each thread.
const ACTS: u64 = 6;

/// What a cut may leave of a file now.
struct Expected {
    may: BTreeSet<Vec<u8>>,
    /// Every state that the file has had.
    history: BTreeSet<Vec<u8>>,
    /// Whether it was brought below, or has holes, which is not atomic.
    drained: bool,
    /// What the cut may have left, once it was made.
    cut: Option<Allowed>,
}

impl Expected {
    fn allowed(&self) -> Allowed {
        let contents = if self.drained { &self.history } else { &self.may };
        Allowed::of(contents.iter().cloned(), self.drained)
    }

    /// The act that ended now went below for want of room; the cut fell into it if it was made
    /// `meanwhile`.
    fn went_below(&mut self, meanwhile: bool) {
        self.drained = true;
        if meanwhile {
            self.cut = Some(self.allowed());
        }
    }
}

/// The thread that writes a file.
struct Owner {
    pool: Arc<FilePool<Watched>>,
    file: PoolFile,
    model: FileModel,
    expected: Arc<Mutex<Expected>>,
    rng: Rng,
    byte: u8,
    /// Whether it makes holes too.
    punches: bool,
}

impl Owner {
    fn run(mut self) -> Result<(), Failure> {
        (0..ACTS).try_for_each(|_| self.act())
    }

    fn act(&mut self) -> Result<(), Failure> {
        let mut after = self.model.clone();
        let (at, len) = (self.rng.below(400), 1 + self.rng.index(300));
        self.byte += 1;
        let data = vec![self.byte; len];
        let (pool, file) = (self.pool.clone(), self.file);
        let kinds = if self.punches { 6 } else { 5 };
        let act: Box<dyn FnOnce() -> Result<bool, tidegate_file_cache::FileError>> = match self.rng.below(kinds) {
            0 => {
                after.write(at, &data);
                Box::new(move || pool.write(file, at, &data, Persistence::Asynchronous).map(|()| true))
            }
            1 => {
                after.write_sync(at, &data);
                Box::new(move || pool.write(file, at, &data, Persistence::Synchronous).map(|()| true))
            }
            2 => {
                after.write(after.now.len() as u64, &data);
                Box::new(move || pool.append(file, &data, Persistence::Asynchronous).map(|_| true))
            }
            3 => {
                after.truncate(at);
                Box::new(move || pool.truncate(file, at).map(|()| true))
            }
            4 => {
                after.sync();
                Box::new(move || Ok(pool.sync(file)? == Synced::Atomically))
            }
            _ => {
                self.expected.lock().drained = true;
                after.zero(at, len as u64, false);
                Box::new(move || {
                    pool.fallocate(file, at, len as u64, Fallocate::Punch, FileLength::Keep).map(|()| true)
                })
            }
        };
        self.expect(after.may.iter().chain(&self.model.may).cloned().collect(), &after);
        let cut_before = self.expected.lock().cut.is_some();
        let below = self.pool.counters().below;
        let atomic = act().map_err(Failure::new)?;
        if self.pool.counters().below != below {
            let mut expected = self.expected.lock();
            let meanwhile = !cut_before && expected.cut.is_some();
            expected.went_below(meanwhile);
        }
        after.known &= atomic && !self.expected.lock().drained;
        self.model = after;
        self.expect(self.model.may.clone(), &self.model.clone());
        let read = contents(&self.pool, self.file)?;
        if read == self.model.now { Ok(()) } else { Err(Failure::new("a thread does not read what it wrote")) }
    }

    fn expect(&self, may: BTreeSet<Vec<u8>>, after: &FileModel) {
        let mut expected = self.expected.lock();
        expected.may = may;
        expected.history.extend([after.now.clone(), after.base.clone()]);
    }
}

/// The thread in the background.
fn background(
    machine: &Machine,
    pool: &FilePool<Watched>,
    files: &[PoolFile],
    expected: &[Arc<Mutex<Expected>>],
    mut rng: Rng,
) -> Result<JointCut, Failure> {
    let (cut_at, drains) = (rng.below(ACTS), rng.one_in(2));
    let mut cut = None;
    for act in 0..ACTS {
        if act == cut_at {
            let mut expected: Vec<_> = expected.iter().map(|expected| expected.lock()).collect();
            cut = Some(machine.cut());
            expected.iter_mut().for_each(|expected| expected.cut = Some(expected.allowed()));
        }
        let file = rng.index(FILES);
        if drains && rng.one_in(3) {
            expected[file].lock().drained = true;
            pool.drain(files[file]).map_err(Failure::new)?;
        } else if rng.one_in(3) {
            pool.place_by(NamedPlacement::ALL[rng.index(NamedPlacement::ALL.len())]);
            let access = ProgramAccess { at: rng.below(300), bytes: 100, kind: IoKind::Read, context: rng.below(2) };
            let wanted = pool.accessed(files[file], &access).map_err(Failure::new)?;
            for range in std::iter::once(rng.below(300)..400).chain(wanted.unwrap_or_default()) {
                pool.admit(files[file], range).map_err(Failure::new)?;
            }
        } else {
            pool.write_back_step(rng.index(pool.lanes()), 1 + rng.below(600)).map_err(Failure::new)?;
        }
    }
    cut.ok_or_else(|| Failure::new("no cut was made"))
}

/// Runs threads on a pool, the scheduler and `seed` choosing, and judges what a cut leaves.
pub fn judge_threads(small: &SmallPool, seed: u64) -> Result<(), Failure> {
    let mut rng = Rng::new(seed);
    let region = Region::with_line_order(small.image.clone(), small.order);
    let olds: [&[u8]; FILES] = [&[0xee; 70], &[]];
    let machine = Machine::new(small, region, olds.map(SimFile::new).to_vec(), None, None);
    let pool = Arc::new(machine.open().map_err(Failure::new)?);
    let open = |number| pool.open_file(&backing(&machine, number), b"a path").map_err(Failure::new);
    let files: Vec<PoolFile> = (0..FILES).map(open).collect::<Result<_, _>>()?;
    let expected = olds.map(|old| {
        let now = BTreeSet::from([old.to_vec()]);
        Arc::new(Mutex::new(Expected { may: now.clone(), history: now, drained: false, cut: None }))
    });
    let mut threads = Vec::new();
    for number in 0..FILES {
        let owner = Owner {
            pool: pool.clone(),
            file: files[number],
            model: FileModel::new(olds[number]),
            expected: expected[number].clone(),
            rng: Rng::new(rng.next_u64()),
            byte: u8::try_from(number * 100).expect("few files"),
            punches: rng.one_in(4),
        };
        let token = u32::try_from(number).expect("few files");
        threads.push(thread::spawn(move || {
            set_thread_token(token);
            owner.run()
        }));
    }
    let shared = (machine.clone(), pool.clone(), expected.clone(), Rng::new(rng.next_u64()));
    let last = thread::spawn(move || {
        set_thread_token(u32::try_from(FILES).expect("few files"));
        background(&shared.0, &shared.1, &files, &shared.2, shared.3)
    });
    for thread in threads {
        thread.join().expect("no thread panics")?;
    }
    let cut = last.join().expect("no thread panics")?;
    let allowed = expected.iter().map(|expected| expected.lock().cut.take());
    let allowed: Vec<_> = allowed.collect::<Option<_>>().ok_or_else(|| Failure::new("no cut was made"))?;
    let images = cut.files_images();
    let files = images[rng.index(images.len())].clone();
    let region = Region::with_line_order(cut.region.sample(&mut rng), small.order);
    let restarted = Machine::new(small, region, files, None, None);
    recover_on(&restarted)?;
    compare(&restarted, &allowed).map(drop)
}
