//! The files of protocols, on a served directory: each step as the requests that the kernel makes
//! of it, and what the service does in the background.

use crate::applications::found::{Found, FoundFile};
use crate::applications::step::{Step, Turn};
use crate::checker::Failure;
use crate::namespace::{DIRECTORY, Machine, REGULAR, Served, Watched, identity_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidegate_file_cache::{Fallocate, FileIdentity, FileLength, FilePool, Persistence, PoolFile};
use tidegate_layout::file_cache::{LostName, NameChange, NodeAttributes};
use tidegate_sim::Rng;

/// What the kernel writes of a mapping at least.
const PAGE_BYTES: u64 = 4096;
/// How long what no program syncs stays in DRAM alone: longer than an act takes.
const DIRTY_AGE: u64 = 24;
const STATE: &[u8] = b"user.state";
/// More bytes than any file of a protocol has.
const FILE_BYTES_MAX: usize = 1 << 16;

/// A served directory with the folder of a protocol.
pub(crate) struct Files {
    served: Served,
    folder: &'static str,
    /// Files without a name, by their process.
    unnamed: BTreeMap<u64, FileIdentity>,
    /// Files that lost their last name, and are not given up yet.
    gone: Vec<FileIdentity>,
    /// The time, which the pool dates writes by.
    now: u64,
}

impl Files {
    /// Serves the directory of a machine that is recovered.
    pub(crate) fn start(
        machine: &Arc<Machine>,
        pool: FilePool<Watched>,
        folder: &'static str,
    ) -> Result<Files, Failure> {
        let served = Served::start(machine, pool)?;
        Ok(Files { served, folder, unnamed: BTreeMap::new(), gone: Vec::new(), now: 1 })
    }

    /// Takes this directory to another folder.
    pub(crate) fn in_folder(self, folder: &'static str) -> Files {
        Files { folder, ..self }
    }

    /// Everything in the directory.
    pub(crate) fn found(&self) -> Result<Found, Failure> {
        found(&self.served.machine, &self.served.pool)
    }

    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.served.machine
    }

    /// Does a step of an act.
    pub(crate) fn step(&mut self, turn: Turn, step: Step) -> Result<(), Failure> {
        match step {
            Step::Write(path, place, _)
            | Step::WriteThrough(path, place, _)
            | Step::MapAndSync(path, place, _)
            | Step::Truncate(path, place)
            | Step::Punch(path, place, _)
            | Step::Zero(path, place, _) => {
                let path = self.path(turn, path);
                place.offset(turn.act).map_or(Ok(()), |at| self.change_contents(turn, step, (&path, at)))
            }
            Step::WriteUnnamed(_) | Step::SyncUnnamed | Step::NameUnnamed(_) => self.unnamed(turn, step),
            Step::Every(_, steps) => steps.iter().try_for_each(|step| self.step(turn, *step)),
            step => self.open_or_sync(turn, step),
        }
    }

    /// A change of contents at an offset.
    fn change_contents(&mut self, turn: Turn, step: Step, (path, at): (&[u8], u64)) -> Result<(), Failure> {
        match step {
            Step::Write(_, _, bytes) => self.write(path, at, &turn.bytes(bytes), Persistence::Asynchronous),
            Step::WriteThrough(_, _, bytes) => self.write(path, at, &turn.bytes(bytes), Persistence::Synchronous),
            Step::MapAndSync(_, _, bytes) => self.map_and_sync(path, at, &turn.bytes(bytes)),
            Step::Punch(_, _, len) => self.allocate(path, (at, len), Fallocate::Punch, FileLength::Keep),
            Step::Zero(_, _, len) => self.allocate(path, (at, len), Fallocate::Zero, FileLength::Extend),
            _ => self.with(path, |files, file| files.served.pool.truncate(file, at).map_err(Failure::new)),
        }
    }

    fn open_or_sync(&mut self, turn: Turn, step: Step) -> Result<(), Failure> {
        let at = |path: &str| self.path(turn, path);
        match step {
            Step::Create(path) => self.create(&at(path)).map(drop),
            Step::Empty(path) => self.empty(&at(path)),
            Step::MakeDirectory(path) => self.served.make(&at(path), DIRECTORY | 0o755, |_| ()).map(drop),
            Step::Append(path, bytes) => self.append(&at(path), &turn.bytes(bytes)),
            Step::WriteSlots(path, slots, bytes) => {
                self.write(&at(path), 0, &turn.slots(slots, bytes), Persistence::Asynchronous)
            }
            Step::Copy(from, to) => self.copy(&at(from), &at(to)),
            Step::Restore(from, to, bytes) => self.restore((&at(from), &at(to)), bytes),
            Step::Reserve(path, len) => self.allocate(&at(path), (0, len), Fallocate::Reserve, FileLength::Extend),
            Step::Sync(path) => self.sync(&at(path)),
            Step::SyncDirectory(path) if self.served.is_directory(&at(path)) => self.served.commit(),
            Step::SyncDirectory(_) => Ok(()),
            names => self.change(turn, names),
        }
    }

    fn path(&self, turn: Turn, path: &str) -> Vec<u8> {
        let path = turn.path(path);
        if path.is_empty() { self.folder.into() } else { format!("{}/{path}", self.folder).into_bytes() }
    }

    /// What the service does behind its programs' backs.
    pub(crate) fn background(&mut self, rng: &mut Rng) -> Result<(), Failure> {
        self.now += 1;
        self.served.pool.tick(self.now);
        // What is given up too early shows only before the next commit.
        if !self.gone.is_empty() && rng.one_in(2) {
            return self.give_up_gone();
        }
        match rng.below(8) {
            0 => self.served.commit(),
            1 => self.served.sync_source(),
            2 => self.give_up_gone(),
            3 => self.served.let_go(),
            4 => self
                .served
                .pool
                .write_dirty_step(0, u64::MAX, self.now.saturating_sub(DIRTY_AGE))
                .map(drop)
                .map_err(Failure::new),
            5 => self.served.pool.write_back_step(0, 1 + rng.below(4096)).map(drop).map_err(Failure::new),
            _ => self.served.pool.write_back_step(0, u64::MAX).map(drop).map_err(Failure::new),
        }
    }

    /// Everything is below, durably.
    pub(crate) fn settle(&mut self) -> Result<(), Failure> {
        self.give_up_gone()?;
        for (file, _) in self.served.pool.files() {
            self.served.pool.drain(file).map_err(Failure::new)?;
        }
        self.served.let_go()?;
        self.served.sync_source()
    }

    fn give_up_gone(&mut self) -> Result<(), Failure> {
        let gone = std::mem::take(&mut self.gone);
        gone.into_iter().try_for_each(|identity| self.served.give_up(identity))
    }

    fn create(&mut self, path: &[u8]) -> Result<bool, Failure> {
        self.served.make(path, REGULAR | 0o644, |_| ())
    }

    fn empty(&mut self, path: &[u8]) -> Result<(), Failure> {
        if self.create(path)? {
            return Ok(());
        }
        self.with(path, |files, file| files.served.pool.truncate(file, 0).map_err(Failure::new))
    }

    /// Opens a file, acts on it, and closes it. Nothing is done if it is not there.
    fn with(
        &mut self,
        path: &[u8],
        act: impl FnOnce(&mut Files, PoolFile) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self.served.file_at(path) {
            Some(identity) => self.with_file(identity, path, act),
            None => Ok(()),
        }
    }

    fn with_file(
        &mut self,
        identity: FileIdentity,
        path: &[u8],
        act: impl FnOnce(&mut Files, PoolFile) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let file = self.served.open(identity, path)?;
        act(self, file)?;
        self.served.pool.close(file).map_err(Failure::new)
    }

    fn write(&mut self, path: &[u8], at: u64, data: &[u8], persistence: Persistence) -> Result<(), Failure> {
        self.with(path, |files, file| {
            if persistence == Persistence::Synchronous {
                files.served.commit()?;
            }
            files.served.pool.write(file, at, data, persistence).map_err(Failure::new)
        })
    }

    fn append(&mut self, path: &[u8], data: &[u8]) -> Result<(), Failure> {
        self.with(path, |files, file| {
            files.served.pool.append(file, data, Persistence::Asynchronous).map(drop).map_err(Failure::new)
        })
    }

    /// The kernel writes whole pages of the mapping, up to the file's end.
    fn map_and_sync(&mut self, path: &[u8], at: u64, data: &[u8]) -> Result<(), Failure> {
        self.with(path, |files, file| {
            let len = files.served.pool.size(file).map_err(Failure::new)?;
            let (first, end) = (at - at % PAGE_BYTES, (at + data.len() as u64).next_multiple_of(PAGE_BYTES).min(len));
            let mut pages = vec![0; usize::try_from(end.saturating_sub(first)).expect("few bytes")];
            files.served.pool.read(file, first, &mut pages).map_err(Failure::new)?;
            let within = usize::try_from(at - first).expect("less than a page");
            pages[within..within + data.len()].copy_from_slice(data);
            files.served.pool.write(file, first, &pages, Persistence::Asynchronous).map_err(Failure::new)?;
            files.served.sync(file).map(drop)
        })
    }

    fn read(&self, identity: FileIdentity, path: &[u8]) -> Result<Vec<u8>, Failure> {
        let file = self.served.open(identity, path)?;
        let mut bytes = vec![0; FILE_BYTES_MAX];
        let len = self.served.pool.read(file, 0, &mut bytes).map_err(Failure::new)?;
        bytes.truncate(len);
        self.served.pool.close(file).map_err(Failure::new)?;
        Ok(bytes)
    }

    fn copy(&mut self, from: &[u8], to: &[u8]) -> Result<(), Failure> {
        let Some(identity) = self.served.file_at(from) else { return Ok(()) };
        let bytes = self.read(identity, from)?;
        self.create(to)?;
        self.with(to, |files, file| files.served.pool.truncate(file, 0).map_err(Failure::new))?;
        self.write(to, 0, &bytes, Persistence::Asynchronous)
    }

    fn restore(&mut self, (from, to): (&[u8], &[u8]), bytes: u64) -> Result<(), Failure> {
        let Some(identity) = self.served.file_at(from) else { return Ok(()) };
        let saved = self.read(identity, from)?;
        if saved.len() as u64 != bytes || Turn::of_bytes(&saved).is_none() {
            return Ok(());
        }
        self.write(to, 0, &saved, Persistence::Asynchronous)?;
        self.sync(to)
    }

    fn allocate(
        &mut self,
        path: &[u8],
        (at, len): (u64, u64),
        how: Fallocate,
        length: FileLength,
    ) -> Result<(), Failure> {
        self.with(path, |files, file| files.served.pool.fallocate(file, at, len, how, length).map_err(Failure::new))
    }

    fn sync(&mut self, path: &[u8]) -> Result<(), Failure> {
        self.with(path, |files, file| files.served.sync(file).map(drop))
    }

    fn unnamed(&mut self, turn: Turn, step: Step) -> Result<(), Failure> {
        let unnamed = self.unnamed.get(&turn.process).copied();
        match (step, unnamed) {
            (Step::WriteUnnamed(bytes), _) => {
                let unnamed = self.served.make_unnamed();
                self.unnamed.insert(turn.process, unnamed);
                let data = turn.bytes(bytes);
                self.with_file(unnamed, b"", |files, file| {
                    files.served.pool.write(file, 0, &data, Persistence::Asynchronous).map_err(Failure::new)
                })
            }
            (Step::SyncUnnamed, Some(unnamed)) => {
                self.with_file(unnamed, b"", |files, file| files.served.sync(file).map(drop))
            }
            (Step::NameUnnamed(path), Some(unnamed)) => {
                self.unnamed.remove(&turn.process);
                let path = self.path(turn, path);
                if !self.served.name_unnamed(unnamed, &path)? {
                    self.gone.push(unnamed);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// An operation on names that are there.
    fn change(&mut self, turn: Turn, step: Step) -> Result<(), Failure> {
        let (path, to) = match step {
            Step::Rename(path, to) | Step::Exchange(path, to) | Step::Link(path, to) => (path, to),
            Step::Remove(path) | Step::SetXattr(path) | Step::SetMode(path) => (path, ""),
            _ => return Ok(()),
        };
        let [path, to] = [path, to].map(|path| self.path(turn, path));
        if let Step::Rename(..) = step {
            self.sync_replacement(&path, &to)?;
        }
        let value = turn.bytes(8);
        let lost = self.served.change(|lost| change_of(step, turn, (&path, &to), &value, lost), |_| ())?;
        self.gone.extend(lost);
        Ok(())
    }

    /// A file that is about to take the place of another one is synced if the pool has it.
    fn sync_replacement(&mut self, path: &[u8], to: &[u8]) -> Result<(), Failure> {
        let Some(identity) = self.served.file_at(path).filter(|_| self.served.file_at(to).is_some()) else {
            return Ok(());
        };
        if self.served.pool.files().iter().any(|(_, known)| *known == identity) {
            self.with_file(identity, path, |files, file| files.served.sync(file).map(drop))?;
        }
        Ok(())
    }
}

/// Everything in the directory of a machine that is recovered, as programs see it.
pub(crate) fn found(machine: &Arc<Machine>, pool: &FilePool<Watched>) -> Result<Found, Failure> {
    let mut found = BTreeMap::new();
    for path in machine.tree(|tree| tree.names().paths().into_keys().collect::<BTreeSet<_>>()) {
        let (mode, node, state, links) = machine.tree(|tree| {
            let there = tree.look_up(&path).expect("the name is there");
            let node = &tree.names().nodes[&there.node.inode];
            (there.mode, there.node, node.xattrs.get(STATE).cloned(), tree.names().links(there.node.inode))
        });
        let mut file = FoundFile { bytes: Vec::new(), mode: mode & 0o7777, state, links };
        if mode & REGULAR == REGULAR {
            let opened =
                pool.open_file(&crate::namespace::backing(machine, identity_of(node)), &path).map_err(Failure::new)?;
            file.bytes = vec![0; FILE_BYTES_MAX];
            let len = pool.read(opened, 0, &mut file.bytes).map_err(Failure::new)?;
            file.bytes.truncate(len);
            pool.close(opened).map_err(Failure::new)?;
        }
        found.insert(String::from_utf8_lossy(&path).into_owned(), file);
    }
    Ok(Found(found))
}

/// The operation of a step, with the inode that loses a name by it; `None` if a name is missing.
fn change_of<'a>(
    step: Step,
    turn: Turn,
    (path, to): (&'a [u8], &'a [u8]),
    value: &'a [u8],
    lost: &dyn Fn(&[u8]) -> Option<LostName>,
) -> Option<(NameChange<'a>, Option<LostName>)> {
    let there = lost(path)?;
    let node = there.node;
    Some(match step {
        Step::Remove(_) => (NameChange::Removed { path, lost: there }, Some(there)),
        Step::Link(..) => (NameChange::Linked { path, to, node }, None),
        Step::Rename(..) => {
            let replaced = lost(to);
            if replaced.is_some_and(|lost| lost.node == node) {
                return None;
            }
            (NameChange::Renamed { path, to, node, replaced }, replaced)
        }
        Step::Exchange(..) => (NameChange::Exchanged { path, to, node, other: lost(to)?.node }, None),
        Step::SetXattr(_) => (NameChange::XattrSet { path, node, name: STATE, value }, None),
        Step::SetMode(_) => {
            let attributes = NodeAttributes { mode: Some(REGULAR | turn.mode()), ..NodeAttributes::default() };
            (NameChange::AttributesSet { path, node, attributes }, None)
        }
        _ => return None,
    })
}
