//! The answers, one function for each operation.

use crate::groups::Groups;
use crate::tree::{NAME_BYTES_MAX, Node, Tree};
use rustix::io::Errno;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidegate_fuse::{
    Attempt, Attributes, Directory, DirectoryEntry, Entry, Handle, Header, NodeId, OpenFlags, Operation, Reply,
    Request, SetAttributes, Statistics, Write,
};
use tidegate_mount_transport::Answers;

/// How long the kernel may rely on names and attributes: nobody else changes them.
const VALID: Duration = Duration::from_secs(3600);
/// `S_IFREG`.
const REGULAR: u32 = 0o100_000;
/// `S_IFDIR`.
const DIRECTORY: u32 = 0o040_000;
/// `SEEK_HOLE`.
const SEEK_HOLE: u32 = 4;
/// `O_TRUNC`.
const TRUNCATE: u32 = 0o1000;

/// Files and directories in memory.
#[derive(Debug)]
pub struct Files {
    tree: Mutex<Tree>,
    groups: Mutex<Groups>,
}

impl Files {
    /// Returns an empty file system in this process.
    pub fn in_memory() -> Files {
        let (uid, gid) = owner();
        Files { tree: Mutex::new(Tree::in_memory(uid, gid)), groups: Mutex::default() }
    }

    /// Returns the file system in a folder, where it survives the process. It is empty at first.
    pub fn kept_in(folder: &Path) -> std::io::Result<Files> {
        let (uid, gid) = owner();
        Ok(Files { tree: Mutex::new(Tree::kept_in(folder, uid, gid)?), groups: Mutex::default() })
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, tree: &mut Tree, node: NodeId, write: &Write<'_>) -> Result<Reply<'static>, Errno> {
        let taken = self.groups().taken(write)?;
        tree.node_mut(node)?.contents.write(write.offset, taken)?;
        Ok(Reply::written(u32::try_from(taken.len()).map_err(|_| Errno::INVAL)?))
    }
}

fn owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

impl Answers for Files {
    fn answer<'b>(&self, request: &Request<'_>, attempt: Attempt, buffer: &'b mut [u8]) -> Reply<'b> {
        let mut tree = self.tree();
        let node = request.header.node;
        let answered = match request.operation {
            Operation::Forget { .. } => {
                tree.forget(node);
                return Reply::none();
            }
            Operation::BatchForget(forgets) => {
                forgets.for_each(|(node, _)| tree.forget(node));
                return Reply::none();
            }
            Operation::Interrupt { .. } => return Reply::none(),
            Operation::Ioctl(ref ioctl) => self.groups().control(ioctl, buffer),
            Operation::Write(ref write) => self.write(&mut tree, node, write),
            ref operation => match attempt {
                Attempt::InDoubt { witness } if is_done(&tree, node, operation, witness) => {
                    repeat(&tree, node, operation)
                }
                _ => carry_out(&mut tree, &request.header, operation, buffer),
            },
        };
        answered.unwrap_or_else(|errno| Reply::error(errno.raw_os_error()))
    }

    fn witness(&self, request: &Request<'_>) -> u64 {
        name_of(&request.operation).map_or(0, |name| number(&self.tree(), request.header.node, name))
    }

    fn begin_fresh(&self) {}

    fn answered(&self) {}
}

/// The name that an operation is about.
fn name_of<'a>(operation: &Operation<'a>) -> Option<&'a [u8]> {
    match *operation {
        Operation::MkNod { name, .. }
        | Operation::MkDir { name, .. }
        | Operation::Create { name, .. }
        | Operation::Unlink { name }
        | Operation::RmDir { name }
        | Operation::Rename { name, .. } => Some(name.to_bytes()),
        _ => None,
    }
}

/// The number of the node that has a name; 0: none.
fn number(tree: &Tree, parent: NodeId, name: &[u8]) -> u64 {
    tree.find(parent, name).map_or(0, |node| node.0)
}

/// Whether an operation was carried out: its name has another node than before.
fn is_done(tree: &Tree, parent: NodeId, operation: &Operation<'_>, witness: u64) -> bool {
    name_of(operation).is_some_and(|name| number(tree, parent, name) != witness)
}

/// The reply to an operation that was carried out.
fn repeat<'b>(tree: &Tree, parent: NodeId, operation: &Operation<'_>) -> Result<Reply<'b>, Errno> {
    let entry = || entry_of(tree, tree.find(parent, name_of(operation).unwrap_or_default()).ok_or(Errno::NOENT)?);
    Ok(match operation {
        Operation::MkNod { .. } | Operation::MkDir { .. } => Reply::entry(&entry()?),
        Operation::Create { .. } => created(&entry()?),
        _ => Reply::empty(),
    })
}

fn carry_out<'b>(
    tree: &mut Tree,
    header: &Header,
    operation: &Operation<'_>,
    buffer: &'b mut [u8],
) -> Result<Reply<'b>, Errno> {
    let node = header.node;
    match *operation {
        Operation::Lookup { name } => match tree.find(node, name.to_bytes()) {
            Some(found) => Ok(Reply::entry(&entry_of(tree, found)?)),
            None => Ok(Reply::no_entry(VALID)),
        },
        Operation::GetAttr { .. } => Ok(Reply::attributes(&attributes_of(tree, node)?, VALID)),
        Operation::SetAttr(ref set) => set_attributes(tree, node, set),
        Operation::MkNod { name, mode, umask, .. } if mode & DIRECTORY == 0 => {
            make(tree, header, name.to_bytes(), mode & !umask).map(|entry| Reply::entry(&entry))
        }
        Operation::MkDir { name, mode, umask } => {
            make(tree, header, name.to_bytes(), DIRECTORY | (mode & !umask)).map(|entry| Reply::entry(&entry))
        }
        Operation::Create { name, mode, umask, .. } => {
            make(tree, header, name.to_bytes(), REGULAR | (mode & !umask)).map(|entry| created(&entry))
        }
        Operation::Unlink { name } | Operation::RmDir { name } => {
            remove(tree, node, name.to_bytes())?;
            Ok(Reply::empty())
        }
        Operation::Rename { name, new_parent, new_name, flags: 0 } => {
            rename(tree, (node, name.to_bytes()), (new_parent, new_name.to_bytes()))
        }
        Operation::Rename { .. } => Err(Errno::INVAL),
        Operation::Open { flags, .. } => {
            if flags & TRUNCATE != 0 {
                tree.node_mut(node)?.contents.set_len(0)?;
            }
            Ok(Reply::opened(Handle(node.0), OpenFlags::KEEP_CACHE))
        }
        // What the service is asked for again and again, the kernel asks for here as well.
        Operation::GetXattr { .. } => Err(Errno::NODATA),
        Operation::ListXattr { len: 0 } => Ok(Reply::value_bytes(0)),
        Operation::ListXattr { .. } => Ok(Reply::empty()),
        Operation::LSeek { offset, whence, .. } => seek(tree, node, offset, whence),
        Operation::Read { offset, len, .. } => {
            let room = usize::try_from(len).map_or(buffer.len(), |len| len.min(buffer.len()));
            let read = tree.node(node)?.contents.read(offset, &mut buffer[..room])?;
            Ok(Reply::data(&buffer[..read]))
        }
        Operation::ReadDir { offset, len, lookup, .. } => list(tree, node, offset, Directory::new(buffer, len), lookup),
        Operation::StatFs => Ok(Reply::statistics(&statistics())),
        Operation::Release { .. }
        | Operation::FSync { .. }
        | Operation::FSyncDir { .. }
        | Operation::SyncFs
        | Operation::Destroy => Ok(Reply::empty()),
        _ => Err(Errno::NOSYS),
    }
}

/// A file is data up to its end.
fn seek<'b>(tree: &Tree, node: NodeId, offset: u64, whence: u32) -> Result<Reply<'b>, Errno> {
    let len = tree.node(node)?.contents.len()?;
    let at = if whence == SEEK_HOLE { len } else { offset };
    if offset < len { Ok(Reply::offset(at)) } else { Err(Errno::NXIO) }
}

fn make(tree: &mut Tree, header: &Header, name: &[u8], mode: u32) -> Result<Entry, Errno> {
    if tree.find(header.node, name).is_some() {
        return Err(Errno::EXIST);
    }
    let made = tree.make(header.node, name, (mode, header.uid, header.gid))?;
    entry_of(tree, made)
}

fn remove(tree: &mut Tree, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
    let node = tree.find(parent, name).ok_or(Errno::NOENT)?;
    if tree.node(node)?.is_directory() && !tree.is_empty(node) {
        return Err(Errno::NOTEMPTY);
    }
    tree.remove_name(node)
}

fn rename<'b>(tree: &mut Tree, from: (NodeId, &[u8]), to: (NodeId, &[u8])) -> Result<Reply<'b>, Errno> {
    let node = tree.find(from.0, from.1).ok_or(Errno::NOENT)?;
    if to.1.len() > NAME_BYTES_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    match tree.find(to.0, to.1) {
        Some(replaced) if replaced == node => return Ok(Reply::empty()),
        Some(_) => remove(tree, to.0, to.1)?,
        None => {}
    }
    tree.rename(node, to.0, to.1)?;
    Ok(Reply::empty())
}

fn set_attributes<'b>(tree: &mut Tree, number: NodeId, set: &SetAttributes) -> Result<Reply<'b>, Errno> {
    let node = tree.node_mut(number)?;
    if let Some(size) = set.size {
        node.contents.set_len(size)?;
    }
    node.mode = set.mode.unwrap_or(node.mode);
    node.uid = set.uid.unwrap_or(node.uid);
    node.gid = set.gid.unwrap_or(node.gid);
    if number != NodeId::ROOT {
        tree.store(number)?;
    }
    Ok(Reply::attributes(&attributes_of(tree, number)?, VALID))
}

fn list<'b>(
    tree: &Tree,
    node: NodeId,
    offset: u64,
    mut listing: Directory<'b>,
    lookup: bool,
) -> Result<Reply<'b>, Errno> {
    for (number, entry, name) in tree.entries_after(node, offset) {
        let kind = if entry.is_directory() { 4 } else { 8 };
        let listed = DirectoryEntry { inode: number.0, next_offset: number.0, kind, name };
        let had_room = match lookup {
            true => listing.push_looked_up(&listed, Some(&entry_of(tree, number)?)),
            false => listing.push(&listed),
        };
        if !had_room {
            break;
        }
    }
    Ok(listing.reply())
}

fn created<'b>(entry: &Entry) -> Reply<'b> {
    Reply::created(entry, Handle(entry.node.0), OpenFlags::KEEP_CACHE)
}

fn entry_of(tree: &Tree, node: NodeId) -> Result<Entry, Errno> {
    let attributes = attributes_of(tree, node)?;
    Ok(Entry { node, generation: 0, attributes, name_valid: VALID, attributes_valid: VALID })
}

fn attributes_of(tree: &Tree, number: NodeId) -> Result<Attributes, Errno> {
    let node = tree.node(number)?;
    let Node { mode, uid, gid, place, contents } = node;
    let size = if node.is_directory() { 0 } else { contents.len()? };
    let links = u32::from(place.is_some()) + u32::from(node.is_directory());
    Ok(Attributes {
        inode: number.0,
        size,
        blocks: size.div_ceil(512),
        mode: *mode,
        links,
        uid: *uid,
        gid: *gid,
        block_bytes: 4096,
        ..Attributes::default()
    })
}

fn statistics() -> Statistics {
    let blocks = 1 << 30;
    Statistics {
        blocks,
        blocks_free: blocks,
        blocks_available: blocks,
        files: blocks,
        files_free: blocks,
        block_bytes: 4096,
        fragment_bytes: 4096,
        name_bytes_max: 255,
    }
}
