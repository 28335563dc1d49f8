//! The machine's file service: operations below and their records, contents through the cache, and
//! recovery. Every operation is in the order of the real service.

use crate::checker::Failure;
use crate::namespace::machine::{Machine, SimBelow, SimSource, Watched, backing};
use crate::namespace::mutants::NamesBug;
use crate::namespace::tree::{DEVICE, DIRECTORY, Names, REGULAR};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_file_cache::{BackingFile, FileIdentity, FilePool, Outcome, PoolFile, Synced};
use tidegate_layout::file_cache::{LostName, NameChange, NodeIdentity};
use tidegate_namespace_log::{MadeFile, NamespaceLog, NamespaceSource, ReplayedBelow};

const OWNER: u32 = 1000;

/// A process that serves the directory.
pub(crate) struct Served {
    pub(crate) machine: Arc<Machine>,
    pub(crate) pool: FilePool<Watched>,
    log: Arc<NamespaceLog<Arc<Watched>>>,
    /// Files that this process made.
    made: BTreeMap<FileIdentity, Arc<dyn BackingFile>>,
}

/// Recovers names and contents. Returns the pool, whose files are attached.
pub(crate) fn recover(machine: &Arc<Machine>) -> Result<FilePool<Watched>, Failure> {
    let source = SimSource(machine.clone());
    let names = NamespaceLog::replay(machine.memory(), &source).map_err(Failure::new)?;
    if let Some(conflict) = names.conflicts.first() {
        let path = String::from_utf8_lossy(&conflict.path);
        return Err(Failure::new(format_args!("{path} could not be replayed: {}", conflict.why)));
    }
    let pool = machine.open().map_err(Failure::new)?;
    let below = SimBelow(machine.clone());
    for recovered in pool.recover(&ReplayedBelow::new(&names, &below)).map_err(Failure::new)? {
        let there = machine.tree(|tree| tree.has(recovered.identity));
        if there && !matches!(recovered.outcome, Outcome::Attached) {
            return Err(Failure::new(format_args!("{recovered:?} is not where it was")));
        }
    }
    names.finish(&source).map_err(Failure::new)?;
    Ok(pool)
}

/// The next process takes over what one left that was killed. Names are as they are; the log may
/// keep its operations until it is settled. Returns the pool, whose files are attached, and the
/// log.
pub(crate) fn take_over(machine: &Arc<Machine>) -> Result<(FilePool<Watched>, NamespaceLog<Arc<Watched>>), Failure> {
    let source = SimSource(machine.clone());
    let names = NamespaceLog::follow(machine.memory(), &source).map_err(Failure::new)?;
    let pool = machine.open().map_err(Failure::new)?;
    let below = SimBelow(machine.clone());
    for recovered in pool.recover(&ReplayedBelow::new(&names, &below)).map_err(Failure::new)? {
        let there = machine.tree(|tree| tree.has(recovered.identity));
        if there && !matches!(recovered.outcome, Outcome::Attached | Outcome::Discarded(_)) {
            return Err(Failure::new(format_args!("{recovered:?} is not where it was")));
        }
    }
    let log = NamespaceLog::resume(machine.memory(), Arc::new(source)).map_err(Failure::new)?;
    Ok((pool, log))
}

/// The identity of an inode of a machine.
pub(crate) fn identity_of(node: NodeIdentity) -> FileIdentity {
    FileIdentity { device: DEVICE, inode: node.inode, generation: node.generation }
}

impl Served {
    /// Serves a directory of a machine that is recovered.
    pub(crate) fn start(machine: &Arc<Machine>, pool: FilePool<Watched>) -> Result<Served, Failure> {
        let source = Arc::new(SimSource(machine.clone()));
        let log = NamespaceLog::open(machine.memory(), source).map_err(Failure::new)?;
        Ok(Served { machine: machine.clone(), pool, log: Arc::new(log), made: BTreeMap::new() })
    }

    /// Makes a file or directory. `followed` hears the names after each operation below. False: the
    /// file system refuses.
    pub(crate) fn make(&mut self, path: &[u8], mode: u32, mut followed: impl FnMut(&Names)) -> Result<bool, Failure> {
        let machine = self.machine.clone();
        let mut writing = self.log.begin().map_err(Failure::new)?;
        machine.instant();
        if machine.tree(|tree| tree.make(path, mode)).is_err() {
            return Ok(false);
        }
        let node = machine.tree(|tree| tree.look_up(path)).expect("it was just made").node;
        let change = NameChange::Made { path, node, mode, owner: OWNER, group: 0, special: 0, target: b"" };
        machine.tree(|tree| followed(tree.names()));
        // The owner is an operation of its own: a cut may come between.
        machine.instant();
        machine.tree(|tree| tree.change(&change)).expect("it was just made");
        machine.tree(|tree| followed(tree.names()));
        writing.record(&change).map_err(Failure::new)?;
        if mode & REGULAR == REGULAR {
            let below = backing(&machine, identity_of(node));
            self.made.insert(identity_of(node), Arc::new(MadeFile::new(below, self.log.clone())));
        }
        Ok(true)
    }

    /// Does an operation on names that are there: `change_of` says which, if they are, with the
    /// inode that loses a name. `followed` hears the names after it. Returns the file that lost its
    /// last name.
    pub(crate) fn change<'c>(
        &self,
        change_of: impl FnOnce(&dyn Fn(&[u8]) -> Option<LostName>) -> Option<(NameChange<'c>, Option<LostName>)>,
        followed: impl FnOnce(&Names),
    ) -> Result<Option<FileIdentity>, Failure> {
        let machine = &self.machine;
        let mut writing = self.log.begin().map_err(Failure::new)?;
        let Some((change, lost)) = change_of(&|path| machine.tree(|tree| tree.lost(path))) else {
            return Ok(None);
        };
        machine.instant();
        if machine.tree(|tree| tree.change(&change)).is_err() {
            return Ok(None);
        }
        machine.tree(|tree| followed(tree.names()));
        writing.record(&change).map_err(Failure::new)?;
        Ok(lost.filter(|lost| lost.last).map(|lost| identity_of(lost.node)))
    }

    /// Makes a file without a name.
    pub(crate) fn make_unnamed(&self) -> FileIdentity {
        self.machine.instant();
        identity_of(self.machine.tree(|tree| tree.make_unnamed(REGULAR | 0o644)))
    }

    /// Gives a file that never had a name its first one. No record could say which file that is, so
    /// SOURCE is synced.
    pub(crate) fn name_unnamed(&self, unnamed: FileIdentity, path: &[u8]) -> Result<bool, Failure> {
        let mut writing = self.log.begin().map_err(Failure::new)?;
        self.machine.instant();
        if self.machine.tree(|tree| tree.name(unnamed, path)).is_err() {
            return Ok(false);
        }
        writing.without_record().map_err(Failure::new)?;
        Ok(true)
    }

    /// A file without a name is nobody's: its contents are given up, after the loss of its name is
    /// committed.
    pub(crate) fn give_up(&mut self, identity: FileIdentity) -> Result<(), Failure> {
        self.made.remove(&identity);
        let known = self.pool.files().into_iter().find(|(_, known)| *known == identity);
        let Some((file, _)) = known else { return Ok(()) };
        if !self.machine.has(NamesBug::DiscardBeforeCommit) {
            self.commit()?;
        }
        self.pool.discard(file).map_err(Failure::new)
    }

    /// Syncs a file and all operations before.
    pub(crate) fn sync(&self, file: PoolFile) -> Result<Synced, Failure> {
        self.commit()?;
        self.pool.sync(file).map_err(Failure::new)
    }

    /// Makes every operation on names durable that was done before.
    pub(crate) fn commit(&self) -> Result<(), Failure> {
        if self.machine.has(NamesBug::CommitMissing) {
            return Ok(());
        }
        self.log.commit().map_err(Failure::new)
    }

    /// Makes SOURCE durable, so that the log gives up its records.
    pub(crate) fn sync_source(&self) -> Result<(), Failure> {
        let mark = self.log.mark();
        SimSource(self.machine.clone()).sync().map_err(Failure::new)?;
        self.log.durable_below(mark).map_err(Failure::new)
    }

    /// Lets go of files of which the pool has nothing that they lack.
    pub(crate) fn let_go(&self) -> Result<(), Failure> {
        self.pool
            .files()
            .into_iter()
            .try_for_each(|(file, _)| self.pool.close_if_done(file, || Ok(())).map(drop).map_err(Failure::new))
    }

    /// The regular file at a path.
    pub(crate) fn file_at(&self, path: &[u8]) -> Option<FileIdentity> {
        let found = self.machine.tree(|tree| tree.look_up(path));
        found.filter(|found| found.mode & REGULAR == REGULAR).map(|found| identity_of(found.node))
    }

    /// Whether there is a directory at a path.
    pub(crate) fn is_directory(&self, path: &[u8]) -> bool {
        self.machine.tree(|tree| tree.look_up(path)).is_some_and(|found| found.mode & DIRECTORY == DIRECTORY)
    }

    /// Opens a file in the pool.
    pub(crate) fn open(&self, identity: FileIdentity, hint: &[u8]) -> Result<PoolFile, Failure> {
        let below = self.made.get(&identity).cloned().unwrap_or_else(|| backing(&self.machine, identity));
        self.pool.open_file(&below, hint).map_err(Failure::new)
    }
}
