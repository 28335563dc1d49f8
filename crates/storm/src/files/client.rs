//! Who uses the files of a storm: owners, other clients, and threads in the background.

use crate::files::below::FilesBelow;
use crate::files::seen::{Opened, Seen, seen};
use crate::files::states::{Change, Wholeness};
use crate::script::{Script, Step};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_file_cache::{Fallocate, FileError, FileLength, FilePool, Persistence, PoolFile, ProgramAccess};
use tidegate_media::Region as Medium;
use tidegate_media::sync::yield_now;
use tidegate_policy::placement::{IoKind, NamedPlacement};
use tidegate_sim::{Rng, mix};
use tidegate_virtual_cores::begin;

/// Where writes begin, at most, and how long they are: most are short.
const PLACES: u64 = 6000;
const SHORT: usize = 600;
const LONG: usize = 5000;

/// A client of a storm with files. The first ones own a file each.
pub(crate) struct FilesClient<R> {
    pub(crate) opened: Opened<R>,
    pub(crate) below: Arc<FilesBelow>,
    pub(crate) seen: Arc<Mutex<Seen>>,
    pub(crate) script: Arc<Script>,
    pub(crate) number: u32,
}

impl<R: Medium> FilesClient<R> {
    pub(crate) fn work(self) {
        while let Some(step) = self.next_step() {
            let number = u64::from(step.client) << 32 | u64::from(step.number);
            let mut rng = Rng::new(mix(self.script.seed ^ mix(number)));
            begin();
            let own = (self.number as usize) < self.opened.files.len();
            let did = if own { self.changes(step, &mut rng) } else { self.visits(&mut rng) };
            did.unwrap_or_else(|error| panic!("operation {} of client {}: {error}", step.number, step.client));
            self.seen().acts += 1;
        }
        self.seen().busy -= 1;
    }

    /// An operation of an owner.
    fn changes(&self, step: Step, rng: &mut Rng) -> Result<(), FileError> {
        let file = self.number as usize;
        let pool = &self.opened.pool;
        let id = self.opened.files[file];
        let at = rng.below(PLACES);
        let data = vec![u8::try_from(step.number % 255 + 1).expect("a byte"); any_length(rng)];
        match rng.below(14) {
            0..5 => {
                self.change(Change::Write(at, data.clone()), || pool.write(id, at, &data, Persistence::Asynchronous))
            }
            5 | 6 => {
                self.append(file, &data)?;
                // A short one, synced by itself, lengthens the file's last block.
                if rng.one_in(2) { self.sync(file) } else { Ok(()) }
            }
            7 => self
                .change(Change::WriteSynced(at, data.clone()), || pool.write(id, at, &data, Persistence::Synchronous)),
            8 => self.change(Change::Truncate(at), || pool.truncate(id, at)),
            9 if rng.one_in(3) => {
                let len = data.len() as u64;
                self.change(Change::Zeroes(at..at + len), || {
                    pool.fallocate(id, at, len, Fallocate::Punch, FileLength::Keep)
                })
            }
            9..13 => self.sync(file),
            _ => {
                let read = read_all(pool, id)?;
                let seen = self.seen();
                assert!(read == seen.states[file].now(), "the owner of file {file} reads something else than it wrote");
                Ok(())
            }
        }
    }

    fn append(&self, file: usize, data: &[u8]) -> Result<(), FileError> {
        let Opened { pool, files } = &self.opened;
        let end = self.seen().states[file].now().len() as u64;
        self.change(Change::Write(end, data.to_vec()), || {
            let at = pool.append(files[file], data, Persistence::Asynchronous)?;
            assert_eq!(at, end, "appended to file {file}");
            Ok(())
        })
    }

    /// An operation on a file of somebody else.
    fn visits(&self, rng: &mut Rng) -> Result<(), FileError> {
        let file = rng.index(self.opened.files.len());
        if rng.one_in(2) {
            return self.sync(file);
        }
        let began = self.seen().states[file].read_begins();
        let read = read_all(&self.opened.pool, self.opened.files[file])?;
        assert!(self.seen().states[file].explains(began, &read), "a client reads bytes that file {file} never had");
        Ok(())
    }

    fn change(&self, change: Change, act: impl FnOnce() -> Result<(), FileError>) -> Result<(), FileError> {
        let file = self.number as usize;
        let time = {
            let mut seen = self.seen();
            seen.states[file].begin(change);
            seen.acts + 1
        };
        self.below.note(file, time);
        act()?;
        self.seen().states[file].end();
        Ok(())
    }

    fn sync(&self, file: usize) -> Result<(), FileError> {
        let began = self.seen().states[file].sync_begins();
        let synced = self.opened.pool.sync(self.opened.files[file])?;
        self.seen().states[file].sync_ended(began, synced);
        Ok(())
    }

    fn next_step(&self) -> Option<Step> {
        self.script.next_step(self.number, &mut self.seen().done[self.number as usize])
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        seen(&self.seen)
    }
}

fn any_length(rng: &mut Rng) -> usize {
    1 + match rng.below(8) {
        0 => rng.index(LONG),
        1..4 => rng.index(SHORT / 10),
        _ => rng.index(SHORT),
    }
}

/// All of a file, in one read.
pub(crate) fn read_all<R: Medium>(pool: &FilePool<R>, file: PoolFile) -> Result<Vec<u8>, FileError> {
    let room = usize::try_from(PLACES).expect("small") + LONG * 400;
    let size = usize::try_from(pool.size(file)?).expect("files are small").min(room);
    let mut out = vec![0xcc; size + LONG];
    let bytes = pool.read(file, 0, &mut out)?;
    out.truncate(bytes);
    Ok(out)
}

/// Tells the placement of what programs may have done, and does what it wants.
fn place<R: Medium>(pool: &FilePool<R>, file: PoolFile, rng: &mut Rng) -> Result<(), FileError> {
    if rng.one_in(4) {
        pool.place_by(NamedPlacement::ALL[rng.index(NamedPlacement::ALL.len())]);
    }
    let kind = [IoKind::Read, IoKind::Write, IoKind::SyncWrite][rng.index(3)];
    let access = ProgramAccess { at: rng.below(PLACES), bytes: rng.below(PLACES), kind, context: 1 + rng.below(2) };
    for wanted in pool.accessed(file, &access)?.unwrap_or_default() {
        pool.admit(file, wanted)?;
    }
    pool.placement_step().map(drop)
}

/// Does what threads in the background do, until the clients are through.
pub(crate) fn works_in_background<R: Medium>(
    opened: &Opened<R>,
    shared: &Mutex<Seen>,
    wholeness: Wholeness,
    mut rng: Rng,
) -> Result<(), FileError> {
    let pool = &opened.pool;
    while seen(shared).busy > 0 {
        begin();
        let (lane, file) = (rng.index(pool.lanes()), rng.index(opened.files.len()));
        match rng.below(12) {
            0..6 => drop(pool.write_back_step(lane, 1 + rng.below(3000))?),
            6 | 7 => drop(pool.write_dirty_step(lane, u64::MAX, u64::MAX)?),
            8 => drop(pool.admit(opened.files[file], rng.below(PLACES)..PLACES)?),
            9 => pool.tick(rng.below(100)),
            10 if wholeness == Wholeness::NotPromised => pool.drain(opened.files[file])?,
            11 => place(pool, opened.files[file], &mut rng)?,
            _ => {}
        }
        yield_now();
    }
    Ok(())
}
