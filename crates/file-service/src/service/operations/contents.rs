//! Operations on the contents of files.

use crate::service::nodes::handles::Opening;
use crate::service::nodes::open_files::leases::StalePages;
use crate::service::nodes::open_files::placement::Requested;
use crate::service::nodes::open_files::{Access, Caching, OpenFile, Privileged};
use crate::service::nodes::open_files::{FileEnd, WriteAt};
use crate::service::{FileService, Privileges, SET_GROUP_ID, SET_USER_ID};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, OFlags, Statx};
use rustix::io::{Errno, Result};
use std::sync::Arc;
use tidegate_file_cache::{Fallocate, FileLength, Persistence, Sought};
use tidegate_fuse::{CopyFileRange, Handle, Header, NodeId, OpenFlags, Reply, Unique, Write};
use tidegate_policy::placement::IoKind;
use tidegate_source_files::backing::OpenedFile;
use tidegate_source_files::nameless::KeptFile;
use tidegate_source_files::{Route, open_as_allowed};

/// Bytes of the kernel's smallest pages.
const PAGE_BYTES: u64 = 4096;

/// The kernel's numbers for `SEEK_DATA` and `SEEK_HOLE`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

impl FileService {
    pub(crate) fn open<'b>(&self, header: &Header, flags: u32, privileges: Privileges) -> Result<Reply<'b>> {
        let ((handle, flags), stale) = self.open_handle((header.node, header.unique), flags, privileges)?;
        Ok(Reply::opened(handle, flags).with_stale_attributes(stale))
    }

    /// Opens a node as `flags` say. Pages that the kernel has stay: every change passes it. Returns
    /// too whose attributes it has to ask for again.
    pub(crate) fn open_handle(
        &self,
        (node, request): (NodeId, Unique),
        flags: u32,
        privileges: Privileges,
    ) -> Result<((Handle, OpenFlags), Option<NodeId>)> {
        let flags = OFlags::from_bits_retain(flags);
        let access = access_of(flags);
        let file = self.open_node(node, access)?;
        let mut stale = None;
        if flags.contains(OFlags::TRUNC) {
            if let Err(errno) = self.truncate(&file, 0) {
                self.open_files.close(file);
                return Err(errno);
            }
            stale = self.take_privileges(&file, privileges);
        }
        self.keep_open(node, &file);
        // As with leases of the kernel's: such an open does not wait.
        if !flags.contains(OFlags::NONBLOCK) {
            self.open_files.recall(&file);
        }
        let opening = Opening { node, access, request };
        Ok((self.add_handle(file, opening), stale))
    }

    /// Opens a node's file that was just made and recorded, and that `made` is open for.
    pub(crate) fn open_made(
        &self,
        (node, request): (NodeId, Unique),
        (made, about): (OwnedFd, &Statx),
    ) -> Result<(Handle, OpenFlags)> {
        let made = OpenedFile::known(&self.source, made, about);
        let is_privileged = u32::from(about.stx_mode) & (SET_USER_ID | SET_GROUP_ID) != 0;
        let privileged = if is_privileged { Privileged::Maybe } else { Privileged::No };
        let file = self.open_files.open_made((&self.hint_route(node), made), privileged)?;
        self.keep_open(node, &file);
        let opening = Opening { node, access: Access::Write, request };
        Ok((self.handles.add(file, opening), OpenFlags::KEEP_CACHE))
    }

    /// Gives a number to a file, and says how the kernel is to use it: of a file with direct
    /// mappings it keeps no pages, and maps none of them shared.
    fn add_handle(&self, file: Arc<OpenFile>, opening: Opening) -> (Handle, OpenFlags) {
        let handle = self.handles.add(Arc::clone(&file), opening);
        if !file.lease.is_direct() {
            return (handle, OpenFlags::KEEP_CACHE);
        }
        self.handles.note_direct(handle);
        (handle, OpenFlags::DIRECT_IO)
    }

    /// Opens the regular file of a node below, for writing if asked, and otherwise if possible.
    pub(crate) fn open_node(&self, node: NodeId, access: Access) -> Result<Arc<OpenFile>> {
        let identity = self.inodes().identity(node).ok_or(Errno::STALE)?;
        let hint = self.hint_route(node);
        self.open_files.open((identity, &hint), access, || {
            let open = |flags| {
                let (opened, about) = self.found(node, |route: &Route| self.source.open_at(route, flags))?;
                Ok(OpenedFile::known(&self.source, opened, &about))
            };
            match access {
                Access::Read => open_as_allowed(open),
                Access::Write => Ok((open(OFlags::RDWR)?, true)),
                Access::WriteAgain => Ok((OpenedFile::opened_for_writing(open)?, true)),
            }
        })
    }

    /// Has the descriptor of an open file survive this server: the next one may not open it.
    pub(crate) fn keep_opened(&self, file: &OpenFile) {
        if file.is_kept() {
            return;
        }
        let copy = file.with_backing(|backing| rustix::io::fcntl_dupfd_cloexec(backing.descriptor(), 0));
        if let Ok(descriptor) = copy {
            file.keep(Arc::new(KeptFile::surviving(descriptor, &self.survival.store)));
        }
    }

    /// Opens a node that this server may not open, or whose name is gone without a record of it,
    /// by the descriptor that an earlier one had survive.
    pub(crate) fn open_survived(&self, node: NodeId, access: Access) -> Option<Arc<OpenFile>> {
        let identity = self.inodes().identity(node)?;
        let kept = self.survival.spare(identity)?;
        let opened = || {
            let (opened, can_write) = kept.opened()?;
            Ok((OpenedFile::new(&self.source, opened)?, can_write))
        };
        let file = self.open_files.open((identity, &self.hint_route(node)), access, opened).ok()?;
        file.keep(Arc::clone(&kept));
        Some(file)
    }

    pub(crate) fn release<'b>(&self, handle: Handle) -> Result<Reply<'b>> {
        self.close_handle(handle);
        Ok(Reply::empty())
    }

    /// Takes a number out of use, and closes its file.
    pub(crate) fn close_handle(&self, handle: Handle) {
        self.end_leases_of(handle);
        if let Some(file) = self.handles.remove(handle) {
            file.groups.abort(handle);
            self.open_files.close(file);
        }
    }

    pub(crate) fn read<'b>(
        &self,
        header: &Header,
        handle: Handle,
        (at, len, flags): (u64, u32, u32),
        buffer: &'b mut [u8],
    ) -> Result<Reply<'b>> {
        let file = self.handles.file(handle)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(buffer.len());
        file.groups.read(at, len);
        let by = Requested::by(header, caching_of(flags));
        let read = self.open_files.read(&file, at, &mut buffer[..len], by)?;
        self.leave_pages(&file, (header.node, handle), (at, read as u64));
        Ok(Reply::data(&buffer[..read]))
    }

    /// Has the kernel drop its pages of bytes that were just read or written, if the file is mapped
    /// and the handle was opened before: what programs store to their pages is to be seen.
    fn leave_pages(&self, file: &OpenFile, (node, handle): (NodeId, Handle), (at, bytes): (u64, u64)) {
        if file.lease.is_direct() && !self.handles.is_direct(handle) {
            let end = at.saturating_add(bytes).next_multiple_of(PAGE_BYTES);
            self.open_files.leases.note_stale(StalePages(node, at / PAGE_BYTES * PAGE_BYTES..end));
        }
    }

    pub(crate) fn write<'b>(&self, header: &Header, write: &Write<'_>) -> Result<Reply<'b>> {
        let file = self.handles.file(write.handle)?;
        if write.from_page_cache {
            file.lease.note_mapped();
        }
        let stale = self.take_privileges(&file, Privileges::asked(write.kill_privileges));
        let written = self.write_contents(header, &file, write).inspect_err(|_| {
            if stale.is_some() {
                // The kernel hears of it with the next write.
                file.privileges.suspect();
            }
        })?;
        self.leave_pages(&file, (header.node, write.handle), (write.offset, written as u64));
        Ok(Reply::written(u32::try_from(written).unwrap_or(u32::MAX)).with_stale_attributes(stale))
    }

    /// Writes to a group, to the file below or to the cache; how many bytes.
    fn write_contents(&self, header: &Header, file: &OpenFile, write: &Write<'_>) -> Result<usize> {
        if let Some(taken) = file.groups.write(write) {
            return taken;
        }
        // O_SYNC is O_DSYNC and one bit more.
        let is_synchronous = OFlags::from_bits_retain(write.flags).intersects(OFlags::DSYNC);
        let persistence = if is_synchronous { Persistence::Synchronous } else { Persistence::Asynchronous };
        let at_end = |end| self.note_append(header, write, end);
        let place = self.place_of(header, write).unwrap_or(WriteAt::End(&at_end));
        match (caching_of(write.flags), persistence) {
            (Caching::Direct, Persistence::Asynchronous) => self.open_files.write_direct(file, place, write.data)?,
            _ => {
                // Nobody knows whose the kernel's pages are.
                if !write.from_page_cache {
                    self.open_files.make_room(file, header.pid, write.data.len());
                }
                self.open_files.write(file, place, write.data, persistence)?;
            }
        }
        let kind = if is_synchronous { IoKind::SyncWrite } else { IoKind::Write };
        let by = Requested::by(header, caching_of(write.flags));
        self.open_files.note_written(file, (write.offset, write.data.len()), kind, by);
        Ok(write.data.len())
    }

    /// Where a write goes; `None`: at the end of the file.
    fn place_of(&self, header: &Header, write: &Write<'_>) -> Option<WriteAt<'static>> {
        if write.from_page_cache || !OFlags::from_bits_retain(write.flags).contains(OFlags::APPEND) {
            return Some(WriteAt::At(write.offset));
        }
        if !header.unique.is_resent() {
            return None;
        }
        // An earlier server may have written it.
        let placed = self.handles.placed(header.unique).unwrap_or(write.offset);
        self.drop_misplaced(header.node, write, placed);
        Some(WriteAt::At(placed))
    }

    /// Notes that an append goes to the file's end, of which the kernel may not know if programs
    /// write the file without asking.
    fn note_append(&self, header: &Header, write: &Write<'_>, end: FileEnd) {
        if end.at != write.offset {
            self.handles.note_placed(header.unique, end.at);
            // A page that it had not, and that the write does not fill, it does not keep.
            let first = write.offset.next_multiple_of(PAGE_BYTES);
            if end.had_pages || write.offset + write.data.len() as u64 >= first + PAGE_BYTES {
                self.drop_misplaced(header.node, write, end.at);
            }
        }
    }

    /// The kernel has the bytes of an append where it placed them, and is to drop them.
    fn drop_misplaced(&self, node: NodeId, write: &Write<'_>, placed: u64) {
        if placed != write.offset {
            let len = write.data.len() as u64;
            self.open_files.leases.note_stale(StalePages(node, write.offset..write.offset + len));
        }
    }

    /// Copies as much as fits into the buffer: programs ask again for the rest.
    pub(crate) fn copy<'b>(&self, header: &Header, copy: &CopyFileRange, buffer: &'b mut [u8]) -> Result<Reply<'b>> {
        let (from, to) = (self.handles.file(copy.handle)?, self.handles.file(copy.to_handle)?);
        let len = usize::try_from(copy.len).unwrap_or(usize::MAX).min(buffer.len());
        from.groups.read(copy.offset, len);
        to.groups.change();
        let by = Requested::by(header, Caching::Usual);
        let read = self.open_files.read(&from, copy.offset, &mut buffer[..len], by)?;
        self.take_privileges(&to, Privileges::Keep);
        self.open_files.make_room(&to, header.pid, read);
        self.open_files.write(&to, copy.to_offset, &buffer[..read], Persistence::Asynchronous)?;
        Ok(Reply::written(u32::try_from(read).unwrap_or(u32::MAX)))
    }

    pub(crate) fn sync<'b>(&self, handle: Handle) -> Result<Reply<'b>> {
        self.open_files.sync(&*self.handles.file(handle)?)?;
        Ok(Reply::empty())
    }

    /// Makes everything durable: contents in the pool, and below what left it without a sync.
    pub(crate) fn sync_all<'b>(&self) -> Result<Reply<'b>> {
        for file in self.open_files.all() {
            self.open_files.sync(&file)?;
        }
        self.sync_source()?;
        Ok(Reply::empty())
    }

    /// Makes SOURCE durable: see [`OpenFiles::sync_source`].
    ///
    /// [`OpenFiles::sync_source`]: crate::service::nodes::open_files::OpenFiles::sync_source
    pub(crate) fn sync_source(&self) -> Result<()> {
        self.open_files.sync_source(|identity| self.hidden.note_gone(identity))
    }

    /// Allocates, punches or zeroes a range.
    pub(crate) fn allocate<'b>(&self, handle: Handle, at: u64, len: u64, mode: u32) -> Result<Reply<'b>> {
        let file = self.handles.file(handle)?;
        let mode = FallocateFlags::from_bits_retain(mode);
        let (how, length) = room_asked(mode).ok_or(Errno::OPNOTSUPP)?;
        if how != Fallocate::Reserve {
            self.take_privileges(&file, Privileges::Keep);
        }
        file.groups.change();
        self.open_files.touch(&file)?;
        self.open_files.fallocate(&file, at, len, how, length)?;
        Ok(Reply::empty())
    }

    /// Finds data or a hole.
    pub(crate) fn seek<'b>(&self, handle: Handle, offset: u64, whence: u32) -> Result<Reply<'b>> {
        let file = self.handles.file(handle)?;
        let sought = match whence {
            SEEK_DATA => Sought::Data,
            SEEK_HOLE => Sought::Hole,
            _ => return Err(Errno::INVAL),
        };
        Ok(Reply::offset(self.open_files.seek(&file, offset, sought)?.ok_or(Errno::NXIO)?))
    }
}

/// What `fallocate` does in a mode; `None`: the service has no such operation.
fn room_asked(mode: FallocateFlags) -> Option<(Fallocate, FileLength)> {
    let keeps = mode.contains(FallocateFlags::KEEP_SIZE);
    let length = if keeps { FileLength::Keep } else { FileLength::Extend };
    let rest = mode.difference(FallocateFlags::KEEP_SIZE);
    if rest.is_empty() {
        Some((Fallocate::Reserve, length))
    } else if rest == FallocateFlags::ZERO_RANGE {
        Some((Fallocate::Zero, length))
    } else {
        (rest == FallocateFlags::PUNCH_HOLE && keeps).then_some((Fallocate::Punch, length))
    }
}

fn caching_of(flags: u32) -> Caching {
    if OFlags::from_bits_retain(flags).contains(OFlags::DIRECT) { Caching::Direct } else { Caching::Usual }
}

fn access_of(flags: OFlags) -> Access {
    if flags.intersection(OFlags::RWMODE).is_empty() { Access::Read } else { Access::Write }
}
