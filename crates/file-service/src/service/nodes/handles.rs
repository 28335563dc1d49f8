//! Open files by the numbers that the kernel gives back with each request.
//!
//! Each number is recorded in a log before the kernel hears of it, with the node it stands for and
//! the request that opened it. The next server opens these nodes again. If it gets that request
//! again, the kernel never heard of the number, which is closed then.

use crate::service::nodes::open_files::{Access, OpenFile};
use crate::service::nodes::records::{RecordReader, RecordWriter};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, Result};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use tidegate_fuse::{Handle, NodeId, Unique};
use tidegate_mount_transport::MemoryLog;

/// What a number was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    pub(crate) node: NodeId,
    pub(crate) access: Access,
    /// The request that opened it.
    pub(crate) request: Unique,
}

/// The numbers in use.
#[derive(Default)]
pub(crate) struct Handles(RwLock<HandleTable>);

#[derive(Default)]
struct HandleTable {
    opened: HashMap<Handle, Arc<OpenFile>>,
    openings: BTreeMap<u64, Opening>,
    /// Those with a group of writes that is not committed.
    groups: BTreeSet<u64>,
    /// Those of which the kernel keeps no pages.
    direct: BTreeSet<u64>,
    /// Where appends were put that the kernel had placed elsewhere, by their requests.
    placed: BTreeMap<u64, u64>,
    last: u64,
    /// Where the next server finds the openings.
    log: Option<MemoryLog>,
}

impl Handles {
    /// The numbers that an earlier server left in the memory of a log, and what they stand for.
    /// Nothing is open yet: see [`Handles::reopened`].
    pub(crate) fn replay(memory: OwnedFd) -> io::Result<(Handles, Vec<(Handle, Opening)>)> {
        let mut table = HandleTable::default();
        let log = MemoryLog::open(memory, |record| {
            table.replay(record).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
        })?;
        table.log = Some(log);
        table.take_snapshot();
        let openings = table.openings.iter().map(|(handle, opening)| (Handle(*handle), *opening)).collect();
        Ok((Handles(RwLock::new(table)), openings))
    }

    /// Gives a number to a file.
    pub(crate) fn add(&self, file: Arc<OpenFile>, opening: Opening) -> Handle {
        self.table().add(file, opening)
    }

    /// Gives a number of an earlier server its file again.
    pub(crate) fn reopened(&self, handle: Handle, file: Arc<OpenFile>) {
        self.table().opened.insert(handle, file);
    }

    /// The number that a request was given, which the kernel sends again.
    pub(crate) fn of_request(&self, request: Unique) -> Option<Handle> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut openings = table.openings.iter();
        openings.find(|(_, opening)| opening.request == request.first_sent()).map(|(handle, _)| Handle(*handle))
    }

    /// The open file with this number.
    pub(crate) fn file(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let file = table.opened.get(&handle).cloned().ok_or(Errno::BADF)?;
        file.lease.begin_request();
        Ok(file)
    }

    /// The open file with this number, if it is open for writing.
    pub(crate) fn file_to_write(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        self.lent_file(handle).inspect(|file| file.lease.begin_request())
    }

    /// The open file with this number, if it is open for writing, for a request of whoever has its
    /// lease, or wants it.
    pub(crate) fn lent_file(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let opening = table.openings.get(&handle.0).ok_or(Errno::BADF)?;
        match table.opened.get(&handle) {
            Some(file) if opening.access == Access::Write => Ok(Arc::clone(file)),
            _ => Err(Errno::BADF),
        }
    }

    /// Notes that the kernel keeps no pages of a number's file for it.
    pub(crate) fn note_direct(&self, handle: Handle) {
        self.table().direct.insert(handle.0);
    }

    /// Whether the kernel keeps no pages for a number. One of an earlier server is not known.
    pub(crate) fn is_direct(&self, handle: Handle) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).direct.contains(&handle.0)
    }

    /// Whether a file has other numbers than this one for which the kernel keeps pages.
    pub(crate) fn has_others(&self, file: &Arc<OpenFile>, but: Handle) -> bool {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let keeps = |handle: &Handle| *handle != but && !table.direct.contains(&handle.0);
        table.opened.iter().any(|(handle, opened)| keeps(handle) && Arc::ptr_eq(opened, file))
    }

    /// Notes that a number has a group of writes.
    pub(crate) fn begin_group(&self, handle: Handle) {
        let mut table = self.table();
        if table.groups.insert(handle.0) {
            table.record(&record_about(GROUP_BEGUN, handle));
        }
    }

    /// Notes that a number has no group of writes.
    pub(crate) fn end_group(&self, handle: Handle) {
        let mut table = self.table();
        if table.groups.remove(&handle.0) {
            table.record(&record_about(GROUP_ENDED, handle));
        }
    }

    /// Whether a number has a group of writes, which may be an earlier server's.
    pub(crate) fn has_group(&self, handle: Handle) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).groups.contains(&handle.0)
    }

    /// Notes, before it is written, where an append is put.
    pub(crate) fn note_placed(&self, request: Unique, at: u64) {
        let mut table = self.table();
        let request = request.first_sent().0;
        while table.placed.len() >= PLACED_MAX {
            table.placed.pop_first();
        }
        table.placed.insert(request, at);
        table.record(&placed_record(request, at));
    }

    /// Where an append was put by an earlier server, which may have written it.
    pub(crate) fn placed(&self, request: Unique) -> Option<u64> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.placed.get(&request.first_sent().0).copied()
    }

    /// Takes a number out of use; the file that it stood for.
    pub(crate) fn remove(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.table().remove(handle)
    }

    fn table(&self) -> RwLockWriteGuard<'_, HandleTable> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HandleTable {
    fn add(&mut self, file: Arc<OpenFile>, opening: Opening) -> Handle {
        self.last += 1;
        self.record(&opened_record(self.last, &opening));
        self.openings.insert(self.last, opening);
        self.opened.insert(Handle(self.last), file);
        Handle(self.last)
    }

    fn remove(&mut self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.groups.remove(&handle.0);
        self.direct.remove(&handle.0);
        if self.openings.remove(&handle.0).is_some() {
            self.record(&record_about(CLOSED, handle));
        }
        self.opened.remove(&handle)
    }

    fn record(&mut self, record: &[u8]) {
        if self.log.as_ref().is_some_and(MemoryLog::is_long) {
            self.take_snapshot();
        }
        if let Some(log) = &mut self.log {
            log.append(record);
        }
    }

    fn take_snapshot(&mut self) {
        let Some(log) = &mut self.log else { return };
        let openings = self.openings.iter().map(|(handle, opening)| opened_record(*handle, opening));
        let groups = self.groups.iter().map(|handle| record_about(GROUP_BEGUN, Handle(*handle)));
        let last = std::iter::once(record_about(CLOSED, Handle(self.last)));
        // The last number counts as used also if it is closed.
        let last = last.filter(|_| !self.openings.contains_key(&self.last));
        let placed = self.placed.iter().map(|(request, at)| placed_record(*request, *at));
        log.replace(openings.chain(groups).chain(placed).chain(last).map(Cow::Owned));
    }

    /// None: this is no record.
    fn replay(&mut self, record: &[u8]) -> Option<()> {
        let mut record = RecordReader(record);
        let (tag, handle) = (record.tag()?, record.word()?);
        if tag == PLACED {
            self.placed.insert(handle, record.word()?);
            return Some(());
        }
        self.last = self.last.max(handle);
        let access = match tag {
            CLOSED => {
                self.openings.remove(&handle);
                self.groups.remove(&handle);
                return Some(());
            }
            GROUP_BEGUN => {
                self.groups.insert(handle);
                return Some(());
            }
            GROUP_ENDED => {
                self.groups.remove(&handle);
                return Some(());
            }
            OPENED_TO_READ => Access::Read,
            OPENED_TO_WRITE => Access::Write,
            _ => return None,
        };
        let opening = Opening { access, node: record.node()?, request: Unique(record.word()?) };
        self.openings.insert(handle, opening);
        Some(())
    }
}

const CLOSED: u8 = 0;
const OPENED_TO_READ: u8 = 1;
const OPENED_TO_WRITE: u8 = 2;
const GROUP_BEGUN: u8 = 3;
const GROUP_ENDED: u8 = 4;
const PLACED: u8 = 5;

/// Most appends whose places are known: more than there are requests under way at a time. Requests
/// are numbered as they are sent, so the first is the oldest.
const PLACED_MAX: usize = 256;

fn opened_record(handle: u64, opening: &Opening) -> Vec<u8> {
    let tag = match opening.access {
        Access::Read => OPENED_TO_READ,
        Access::Write | Access::WriteAgain => OPENED_TO_WRITE,
    };
    let mut record = RecordWriter::default();
    record.tag(tag).word(handle).word(opening.node.0).word(opening.request.first_sent().0);
    record.0
}

fn placed_record(request: u64, at: u64) -> Vec<u8> {
    let mut record = RecordWriter::default();
    record.tag(PLACED).word(request).word(at);
    record.0
}

fn record_about(tag: u8, handle: Handle) -> Vec<u8> {
    let mut record = RecordWriter::default();
    record.tag(tag).word(handle.0);
    record.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_source_files::SourceDirectory;

    fn replayed(memory: &OwnedFd) -> (Handles, Vec<(Handle, Opening)>) {
        Handles::replay(memory.try_clone().expect("a second descriptor")).expect("a log")
    }

    #[test]
    fn the_next_server_knows_what_is_open_and_uses_no_number_twice() {
        let memory = MemoryLog::memory("test").expect("memory");
        let (handles, left) = replayed(&memory);
        assert_eq!(left, []);
        let opening = |node| Opening { node: NodeId(node), access: Access::Read, request: Unique(node * 2) };
        let folder = tempfile::tempdir().expect("a folder");
        let source = SourceDirectory::open(folder.path()).expect("a directory");
        let file = || OpenFile::of_test(&source, tempfile::tempfile_in(folder.path()).expect("a file"));
        let numbers: Vec<_> = (1..4).map(|node| handles.add(file(), opening(node))).collect();
        handles.remove(numbers[2]);
        let (handles, left) = replayed(&memory);
        assert_eq!(left, [(numbers[0], opening(1)), (numbers[1], opening(2))]);
        assert_eq!(handles.of_request(Unique(1 << 63 | 4)), Some(numbers[1]));
        assert!(handles.file(numbers[0]).is_err(), "it has to be opened again");
        handles.reopened(numbers[0], file());
        assert!(handles.file(numbers[0]).is_ok());
        handles.remove(numbers[1]);
        let (handles, left) = replayed(&memory);
        assert_eq!(left, [(numbers[0], opening(1))]);
        assert_eq!(handles.add(file(), opening(9)), Handle(4));
    }
}
