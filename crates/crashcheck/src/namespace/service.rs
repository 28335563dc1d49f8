//! A file service, and the dull model beside it.

use crate::checker::Failure;
use crate::file_cache::FileModel;
use crate::namespace::machine::{Machine, Watched};
use crate::namespace::model::NamesModel;
use crate::namespace::script::NameStep;
use crate::namespace::served::{Served, recover};
use crate::namespace::tree::{DIRECTORY, REGULAR};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_file_cache::{FileIdentity, FilePool, Persistence, PoolFile, Synced};
use tidegate_layout::file_cache::{LostName, NameChange, NodeAttributes};

/// A process that serves the directory, and the model beside it.
pub(crate) struct Service {
    served: Served,
    pub(crate) model: NamesModel,
    /// What the next write writes.
    byte: u8,
}

impl Service {
    /// Serves a directory of a machine that is recovered.
    pub(crate) fn start(machine: &Arc<Machine>, pool: FilePool<Watched>) -> Result<Service, Failure> {
        let served = Served::start(machine, pool)?;
        let mut model = NamesModel { states: Vec::new(), committed: 0, files: BTreeMap::new() };
        machine.tree(|tree| model.follow(tree.names()));
        Ok(Service { served, model, byte: 0 })
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
            NameStep::WriteBack => drop(self.served.pool.write_back_step(0, u64::MAX).map_err(Failure::new)?),
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
        self.served.make(path.as_bytes(), mode, |names| self.model.follow(names)).map(drop)
    }

    /// An operation on names that are there.
    fn change(&mut self, step: NameStep) -> Result<(), Failure> {
        let value = match step {
            NameStep::SetXattr(_, bytes) => vec![b'x'; bytes],
            _ => Vec::new(),
        };
        let lost = self.served.change(|lost| change_of(step, &value, lost), |names| self.model.follow(names))?;
        if let Some(identity) = lost
            && self.served.pool.files().iter().any(|(_, known)| *known == identity)
        {
            self.served.give_up(identity)?;
            self.model.commit();
        }
        Ok(())
    }

    fn write(&mut self, path: &str, len: usize) -> Result<(), Failure> {
        self.byte += 1;
        let data = vec![self.byte; len];
        let Some((identity, file)) = self.open(path)? else { return Ok(()) };
        self.served.pool.write(file, 0, &data, Persistence::Asynchronous).map_err(Failure::new)?;
        self.file_model(identity).write(0, &data);
        self.served.pool.close(file).map_err(Failure::new)
    }

    fn truncate(&mut self, path: &str, size: u64) -> Result<(), Failure> {
        let Some((identity, file)) = self.open(path)? else { return Ok(()) };
        self.served.pool.truncate(file, size).map_err(Failure::new)?;
        self.file_model(identity).truncate(size);
        self.served.pool.close(file).map_err(Failure::new)
    }

    fn sync(&mut self, path: &str) -> Result<(), Failure> {
        let Some((identity, file)) = self.open(path)? else { return Ok(()) };
        let synced = self.served.sync(file)?;
        self.model.commit();
        let model = self.file_model(identity);
        model.sync();
        model.known &= synced == Synced::Atomically;
        self.served.pool.close(file).map_err(Failure::new)
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.served.commit()?;
        self.model.commit();
        Ok(())
    }

    fn sync_source(&mut self) -> Result<(), Failure> {
        self.served.sync_source()?;
        self.model.commit();
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), Failure> {
        let machine = self.served.machine.clone();
        self.served = Served::start(&machine, recover(&machine)?)?;
        self.model.commit();
        Ok(())
    }

    fn open(&self, path: &str) -> Result<Option<(FileIdentity, PoolFile)>, Failure> {
        let Some(identity) = self.served.file_at(path.as_bytes()) else { return Ok(None) };
        Ok(Some((identity, self.served.open(identity, path.as_bytes())?)))
    }

    fn file_model(&mut self, identity: FileIdentity) -> &mut FileModel {
        self.model.files.get_mut(&identity.generation).expect("the model follows every creation")
    }
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
