//! A small file service over a machine: operations below and their records, contents through the
//! cache, and recovery.

use crate::checker::Failure;
use crate::file_cache::FileModel;
use crate::namespace::machine::{Machine, SimBelow, SimSource, Watched, backing};
use crate::namespace::model::NamesModel;
use crate::namespace::mutants::NamesBug;
use crate::namespace::script::NameStep;
use crate::namespace::tree::{DEVICE, DIRECTORY, REGULAR};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_file_cache::{
    BackingFile, FileIdentity, FilePool, MadeFile, NamespaceLog, Outcome, Persistence, PoolFile, ReplayedBelow, Synced,
};
use tidegate_layout::file_cache::{LostName, NameChange, NodeAttributes, NodeIdentity};

const OWNER: u32 = 1000;

/// A process that serves the directory, and the model beside it.
pub(crate) struct Service {
    pub(crate) machine: Arc<Machine>,
    pool: FilePool<Watched>,
    log: Arc<NamespaceLog<Arc<Watched>>>,
    /// Files that this process made.
    made: BTreeMap<FileIdentity, Arc<dyn BackingFile>>,
    pub(crate) model: NamesModel,
    /// What the next write writes.
    byte: u8,
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

impl Service {
    /// Serves a directory of a machine that is recovered.
    pub(crate) fn start(machine: &Arc<Machine>, pool: FilePool<Watched>) -> Result<Service, Failure> {
        let source = Arc::new(SimSource(machine.clone()));
        let log = NamespaceLog::open(machine.memory(), source).map_err(Failure::new)?;
        let mut model = NamesModel { states: Vec::new(), committed: 0, files: BTreeMap::new() };
        machine.tree(|tree| model.follow(tree.names()));
        let (machine, made) = (machine.clone(), BTreeMap::new());
        Ok(Service { machine, pool, log: Arc::new(log), made, model, byte: 0 })
    }

    /// Does one step. True if no promise of wholeness holds while it is done.
    pub(crate) fn step(&mut self, step: NameStep) -> Result<bool, Failure> {
        match step {
            NameStep::Create(path) => self.make(path, REGULAR | 0o644)?,
            NameStep::MakeDirectory(path) => self.make(path, DIRECTORY | 0o755)?,
            NameStep::Write(path, len) => self.write(path, len)?,
            NameStep::Truncate(path, size) => self.truncate(path, size)?,
            NameStep::Sync(path) => self.sync(path)?,
            NameStep::SyncDirectory => self.commit()?,
            NameStep::WriteBack => drop(self.pool.write_back_step(0, u64::MAX).map_err(Failure::new)?),
            NameStep::SyncSource => self.sync_source()?,
            NameStep::Reopen => {
                self.reopen()?;
                return Ok(true);
            }
            step => self.change(step)?,
        }
        Ok(false)
    }

    fn make(&mut self, path: &str, mode: u32) -> Result<(), Failure> {
        let machine = self.machine.clone();
        let path = path.as_bytes();
        let mut writing = self.log.begin().map_err(Failure::new)?;
        machine.instant();
        if machine.tree(|tree| tree.make(path, mode)).is_err() {
            return Ok(());
        }
        let node = machine.tree(|tree| tree.look_up(path)).expect("it was just made").node;
        let change = NameChange::Made { path, node, mode, owner: OWNER, group: 0, special: 0, target: b"" };
        self.model.follow(&machine.tree(|tree| tree.names().clone()));
        // The owner is an operation of its own: a cut may come between.
        machine.instant();
        machine.tree(|tree| tree.change(&change)).expect("it was just made");
        self.model.follow(&machine.tree(|tree| tree.names().clone()));
        writing.record(&change).map_err(Failure::new)?;
        if mode & REGULAR == REGULAR {
            let below = backing(&machine, identity_of(node));
            self.made.insert(identity_of(node), Arc::new(MadeFile::new(below, self.log.clone())));
        }
        Ok(())
    }

    /// An operation on names that are there.
    fn change(&mut self, step: NameStep) -> Result<(), Failure> {
        let machine = self.machine.clone();
        let value = match step {
            NameStep::SetXattr(_, bytes) => vec![b'x'; bytes],
            _ => Vec::new(),
        };
        let mut writing = self.log.begin().map_err(Failure::new)?;
        let Some((change, lost)) = machine.tree(|tree| change_of(step, &value, |path| tree.lost(path))) else {
            return Ok(());
        };
        machine.instant();
        if machine.tree(|tree| tree.change(&change)).is_err() {
            return Ok(());
        }
        self.model.follow(&machine.tree(|tree| tree.names().clone()));
        writing.record(&change).map_err(Failure::new)?;
        drop(writing);
        match lost.filter(|lost| lost.last) {
            Some(lost) => self.give_up(identity_of(lost.node)),
            None => Ok(()),
        }
    }

    /// A file without a name is nobody's: its contents are given up, after the loss of its name is
    /// committed.
    fn give_up(&mut self, identity: FileIdentity) -> Result<(), Failure> {
        self.made.remove(&identity);
        let known = self.pool.files().into_iter().find(|(_, known)| *known == identity);
        let Some((file, _)) = known else { return Ok(()) };
        if !self.machine.has(NamesBug::DiscardBeforeCommit) {
            self.commit()?;
        }
        self.pool.discard(file).map_err(Failure::new)
    }

    fn write(&mut self, path: &str, len: usize) -> Result<(), Failure> {
        self.byte += 1;
        let data = vec![self.byte; len];
        let Some((identity, file)) = self.open(path)? else { return Ok(()) };
        self.pool.write(file, 0, &data, Persistence::Asynchronous).map_err(Failure::new)?;
        self.file_model(identity).write(0, &data);
        self.pool.close(file).map_err(Failure::new)
    }

    fn truncate(&mut self, path: &str, size: u64) -> Result<(), Failure> {
        let Some((identity, file)) = self.open(path)? else { return Ok(()) };
        self.pool.truncate(file, size).map_err(Failure::new)?;
        self.file_model(identity).truncate(size);
        self.pool.close(file).map_err(Failure::new)
    }

    fn sync(&mut self, path: &str) -> Result<(), Failure> {
        let Some((identity, file)) = self.open(path)? else { return Ok(()) };
        self.commit()?;
        let synced = self.pool.sync(file).map_err(Failure::new)?;
        let model = self.file_model(identity);
        model.sync();
        model.known &= synced == Synced::Atomically;
        self.pool.close(file).map_err(Failure::new)
    }

    fn commit(&mut self) -> Result<(), Failure> {
        if !self.machine.has(NamesBug::CommitMissing) {
            self.log.commit().map_err(Failure::new)?;
        }
        self.model.commit();
        Ok(())
    }

    fn sync_source(&mut self) -> Result<(), Failure> {
        let mark = self.log.mark();
        tidegate_file_cache::NamespaceSource::sync(&SimSource(self.machine.clone())).map_err(Failure::new)?;
        self.log.durable_below(mark).map_err(Failure::new)?;
        self.model.commit();
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), Failure> {
        let pool = recover(&self.machine)?;
        let (model, byte) = (self.model.clone(), self.byte);
        let started = Service::start(&self.machine, pool)?;
        *self = Service { model, byte, ..started };
        self.model.commit();
        Ok(())
    }

    fn open(&self, path: &str) -> Result<Option<(FileIdentity, PoolFile)>, Failure> {
        let found = self.machine.tree(|tree| tree.look_up(path.as_bytes()));
        let Some(found) = found.filter(|found| found.mode & REGULAR == REGULAR) else { return Ok(None) };
        let identity = identity_of(found.node);
        let below = self.made.get(&identity).cloned().unwrap_or_else(|| backing(&self.machine, identity));
        let file = self.pool.open_file(&below, path.as_bytes()).map_err(Failure::new)?;
        Ok(Some((identity, file)))
    }

    fn file_model(&mut self, identity: FileIdentity) -> &mut FileModel {
        self.model.files.get_mut(&identity.generation).expect("the model follows every creation")
    }
}

pub(crate) fn identity_of(node: NodeIdentity) -> FileIdentity {
    FileIdentity { device: DEVICE, inode: node.inode, generation: node.generation }
}

/// The operation of a step, with the inode that loses a name by it; `None` if a name is missing.
fn change_of<'a>(
    step: NameStep,
    value: &'a [u8],
    lost: impl Fn(&[u8]) -> Option<LostName>,
) -> Option<(NameChange<'a>, Option<LostName>)> {
    let node = |path: &str| lost(path.as_bytes()).map(|lost| lost.node);
    let name: &[u8] = b"user.x";
    Some(match step {
        NameStep::Link(path, to) => {
            (NameChange::Linked { path: path.as_bytes(), to: to.as_bytes(), node: node(path)? }, None)
        }
        NameStep::Remove(path) => {
            let lost = lost(path.as_bytes())?;
            (NameChange::Removed { path: path.as_bytes(), lost }, Some(lost))
        }
        NameStep::Rename(path, to) => {
            let (node, replaced) = (node(path)?, lost(to.as_bytes()));
            if replaced.is_some_and(|lost| lost.node == node) {
                return None;
            }
            (NameChange::Renamed { path: path.as_bytes(), to: to.as_bytes(), node, replaced }, replaced)
        }
        NameStep::Exchange(path, to) => {
            let (node, other) = (node(path)?, node(to)?);
            (NameChange::Exchanged { path: path.as_bytes(), to: to.as_bytes(), node, other }, None)
        }
        NameStep::SetMode(path, mode) => {
            let attributes = NodeAttributes { mode: Some(REGULAR | mode), ..NodeAttributes::default() };
            (NameChange::AttributesSet { path: path.as_bytes(), node: node(path)?, attributes }, None)
        }
        NameStep::SetXattr(path, _) => {
            (NameChange::XattrSet { path: path.as_bytes(), node: node(path)?, name, value }, None)
        }
        NameStep::RemoveXattr(path) => {
            (NameChange::XattrRemoved { path: path.as_bytes(), node: node(path)?, name }, None)
        }
        _ => return None,
    })
}
