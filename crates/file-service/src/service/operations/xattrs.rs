//! Extended attributes: those of the file below, except for SOURCE's mark of its pool and the
//! witness of the log of names.

use crate::pool::name_log::Subject;
use crate::service::FileService;
use crate::source::names::WITNESS;
use crate::source::{by_descriptor, mark};
use rustix::fs::{XattrFlags, getxattr, getxattr_query, listxattr, listxattr_query, removexattr, setxattr};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use tidegate_fuse::{NodeId, Reply, SetXattr};
use tidegate_layout::file_cache::NameChange;

impl FileService {
    pub(crate) fn get_xattr<'b>(&self, node: NodeId, name: &CStr, len: u32, buffer: &'b mut [u8]) -> Result<Reply<'b>> {
        if is_mark(node, name.to_bytes()) {
            return Err(Errno::NODATA);
        }
        let located = self.locate(node)?.0;
        let path = by_descriptor(&located);
        match room(len, buffer) {
            None => Ok(Reply::value_bytes(bytes(getxattr_query(path, name)?)?)),
            Some(room) => {
                let read = getxattr(path, name, &mut *room)?;
                Ok(Reply::data(&room[..read]))
            }
        }
    }

    pub(crate) fn list_xattrs<'b>(&self, node: NodeId, len: u32, buffer: &'b mut [u8]) -> Result<Reply<'b>> {
        let located = self.locate(node)?.0;
        let path = by_descriptor(&located);
        let mut names = vec![0; listxattr_query(&path)?];
        let read = listxattr(&path, &mut names)?;
        let names = shown(node, &names[..read]);
        match room(len, buffer) {
            None => Ok(Reply::value_bytes(bytes(names.len())?)),
            Some(room) => {
                let room = room.get_mut(..names.len()).ok_or(Errno::RANGE)?;
                room.copy_from_slice(&names);
                Ok(Reply::data(room))
            }
        }
    }

    pub(crate) fn set_xattr<'b>(&self, node: NodeId, set: &SetXattr<'_>) -> Result<Reply<'b>> {
        if is_mark(node, set.name.to_bytes()) {
            return Err(Errno::PERM);
        }
        let flags = XattrFlags::from_bits(set.flags).ok_or(Errno::INVAL)?;
        let (located, about) = self.locate(node)?;
        let mut naming = self.names.begin()?;
        setxattr(by_descriptor(&located), set.name, set.value, flags)?;
        if let Some(Subject { path, node }) = self.subject(node, &about) {
            naming.record(&NameChange::XattrSet { path: &path, node, name: set.name.to_bytes(), value: set.value })?;
        }
        let identity = self.inodes().identity(node).ok_or(Errno::STALE)?;
        self.open_files.get(identity).inspect(|file| file.suspect_privileges());
        Ok(Reply::empty())
    }

    pub(crate) fn remove_xattr<'b>(&self, node: NodeId, name: &CStr) -> Result<Reply<'b>> {
        if is_mark(node, name.to_bytes()) {
            return Err(Errno::NODATA);
        }
        let (located, about) = self.locate(node)?;
        let mut naming = self.names.begin()?;
        removexattr(by_descriptor(&located), name)?;
        if let Some(Subject { path, node }) = self.subject(node, &about) {
            naming.record(&NameChange::XattrRemoved { path: &path, node, name: name.to_bytes() })?;
        }
        Ok(Reply::empty())
    }
}

/// Whether this attribute is SOURCE's mark, or its witness.
fn is_mark(node: NodeId, name: &[u8]) -> bool {
    node == NodeId::ROOT && [mark::NAME, WITNESS].iter().any(|own| name == own.to_bytes())
}

/// The names that programs see, of a list in which each name ends with a zero.
fn shown(node: NodeId, names: &[u8]) -> Vec<u8> {
    let each = names.split_inclusive(|byte| *byte == 0);
    each.filter(|name| !is_mark(node, name.strip_suffix(b"\0").unwrap_or(name))).flatten().copied().collect()
}

/// Where a value goes; None: only its length is asked for.
fn room(len: u32, buffer: &mut [u8]) -> Option<&mut [u8]> {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(buffer.len());
    (len > 0).then(|| &mut buffer[..len])
}

fn bytes(len: usize) -> Result<u32> {
    u32::try_from(len).map_err(|_| Errno::RANGE)
}
