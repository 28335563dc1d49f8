//! Extended attributes: those of the file below, except for SOURCE's mark of its pool and the
//! witness of the log of names.

use crate::service::operations::attributes::CAPABILITIES;
use crate::service::{FileService, SET_GROUP_ID};
use rustix::fs::{XattrFlags, getxattr, getxattr_query, listxattr, listxattr_query, removexattr, setxattr};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use tidegate_fuse::{NodeId, Reply, SetXattr};
use tidegate_layout::file_cache::NameChange;
use tidegate_source_files::name_log::Subject;
use tidegate_source_files::names::WITNESS;
use tidegate_source_files::{about, acls, by_descriptor, mark};

impl FileService {
    pub(crate) fn get_xattr<'b>(&self, node: NodeId, name: &CStr, len: u32, buffer: &'b mut [u8]) -> Result<Reply<'b>> {
        if is_mark(node, name.to_bytes()) {
            return Err(Errno::NODATA);
        }
        // The kernel asks before it writes to a file.
        if name == CAPABILITIES && self.has_no_capabilities(node) {
            return Err(Errno::NODATA);
        }
        self.found_xattr(node, name, room(len, buffer)).map_err(|errno| match errno {
            // The kernel asks for ACLs wherever it checks permissions.
            Errno::OPNOTSUPP if acls::is_acl(name) => Errno::NODATA,
            errno => errno,
        })
    }

    fn found_xattr<'b>(&self, node: NodeId, name: &CStr, room: Option<&'b mut [u8]>) -> Result<Reply<'b>> {
        let located = self.locate(node)?.0;
        let path = by_descriptor(&located);
        match room {
            None => Ok(Reply::value_bytes(getxattr_query(path, name)?)),
            Some(room) => {
                let read = getxattr(path, name, &mut *room)?;
                if node == NodeId::ROOT && name == acls::ACCESS {
                    acls::set_mode(&mut room[..read], self.hidden.mode())?;
                }
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
            None => Ok(Reply::value_bytes(names.len())),
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
        if node == NodeId::ROOT && set.name == acls::ACCESS {
            return self.set_root_acl(set);
        }
        let changed = self.change_xattr(node, set);
        let identity = self.inodes().identity(node).ok_or(Errno::STALE)?;
        self.open_files.get(identity).inspect(|file| file.privileges.suspect());
        changed?;
        if set.kill_set_group_id {
            self.clear_set_group_id(node)?;
        }
        Ok(Reply::empty())
    }

    fn change_xattr(&self, node: NodeId, set: &SetXattr<'_>) -> Result<()> {
        let flags = XattrFlags::from_bits(set.flags).ok_or(Errno::INVAL)?;
        let (located, about) = self.locate(node)?;
        let mut naming = self.names.begin()?;
        setxattr(by_descriptor(&located), set.name, set.value, flags)?;
        if let Some(Subject { path, node }) = self.subject(node, &about) {
            naming.record(&NameChange::XattrSet { path: &path, node, name: set.name.to_bytes(), value: set.value })?;
        }
        self.end_lease_of(&about)?;
        self.default_acl_changed(node, set.name);
        Ok(())
    }

    /// Sets the ACL of the mount's root. SOURCE itself stays out of sight: the permissions in the
    /// ACL are shown, and those below stay as they are.
    fn set_root_acl<'b>(&self, set: &SetXattr<'_>) -> Result<Reply<'b>> {
        let mode = acls::mode(set.value)?;
        let kept = if set.kill_set_group_id { 0o5000 } else { 0o7000 };
        let shown = self.hidden.mode() & kept | mode;
        self.hidden.set_mode(shown, &self.source).map_err(|_| Errno::IO)?;
        let mut below = set.value.to_vec();
        acls::set_mode(&mut below, u32::from(about(self.source.root())?.stx_mode))?;
        self.change_xattr(NodeId::ROOT, &SetXattr { value: &below, ..*set })?;
        Ok(Reply::empty())
    }

    /// The kernel says where whoever changes an ACL may not keep this.
    fn clear_set_group_id(&self, node: NodeId) -> Result<()> {
        let (located, about) = self.locate(node)?;
        match u32::from(about.stx_mode) & 0o7777 {
            mode if mode & SET_GROUP_ID != 0 => self.set_mode(node, (&located, &about), mode & !SET_GROUP_ID),
            _ => Ok(()),
        }
    }

    fn default_acl_changed(&self, node: NodeId, name: &CStr) {
        if name == acls::DEFAULT {
            self.folders.let_go(node);
        }
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
        self.end_lease_of(&about)?;
        self.default_acl_changed(node, name);
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
