//! Requests that an earlier server began, and may have carried out, before it died.
//!
//! The kernel holds the lock of the directory until a request is answered. So no other request
//! changed the name since, and what the name has now tells whether the request was done:
//!
//! | request | it was done if its name |
//! | --- | --- |
//! | makes a name | has something: the kernel asks for a name that has nothing |
//! | takes a name away | no longer has the inode that it had before |
//! | links a name to a file | has this file |
//! | sets or removes an attribute | it is carried out again, and may find that it is done |
//!
//! If it was done, what is left of it is done now: owner, mode, nodes. All of that may be done
//! twice. Making a file without a name is carried out again.

use crate::service::FileService;
use crate::service::nodes::dentry::Dentry;
use crate::service::operations::names::keep_mode;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, RenameFlags, Statx, openat};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use tidegate_fuse::{Header, NodeId, Operation, Reply};
use tidegate_source_files::{about, about_at};

/// A name in a directory's node.
type Name<'n> = (NodeId, &'n CStr);

impl FileService {
    /// The answer to a request that was done already; None: it was not.
    pub(crate) fn answer_of_done<'b>(
        &self,
        header: &Header,
        operation: &Operation<'_>,
        witness: u64,
    ) -> Result<Option<Reply<'b>>> {
        let parent = header.node;
        match *operation {
            Operation::Symlink { name, .. } => self.finish_make(header, name, None),
            Operation::MkDir { name, mode, .. } | Operation::MkNod { name, mode, .. } => {
                self.finish_make(header, name, Some(mode))
            }
            Operation::Create { name, flags, mode, .. } => {
                let Some((node, about)) = self.finish_making(header, name, Some(mode))? else { return Ok(None) };
                let opened = self.opened_entry((node, header.unique), None, flags, &about);
                self.counted(node, opened).map(Some)
            }
            Operation::Unlink { name } | Operation::RmDir { name } if self.is_gone((parent, name), witness)? => {
                self.forget_name((parent, name))?;
                Ok(Some(Reply::empty()))
            }
            Operation::Rename { name, new_parent, new_name, flags } if self.is_gone((parent, name), witness)? => {
                self.finish_rename((parent, name), (new_parent, new_name), RenameFlags::from_bits_retain(flags))?;
                Ok(Some(Reply::empty()))
            }
            Operation::Link { target, name } => self.finish_link(target, (parent, name)),
            Operation::SetXattr(ref set) => repeated(self.set_xattr(parent, set), Errno::EXIST),
            Operation::RemoveXattr { name } => repeated(self.remove_xattr(parent, name), Errno::NODATA),
            _ => Ok(None),
        }
    }

    /// What a name has; None: nothing.
    fn about_name(&self, (parent, name): Name<'_>) -> Result<Option<Statx>> {
        match about_at(self.locate(parent)?.0, name.to_bytes()) {
            Ok(about) => Ok(Some(about)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Whether a name no longer has the inode `witness`; 0: it had none.
    fn is_gone(&self, name: Name<'_>, witness: u64) -> Result<bool> {
        Ok(witness != 0 && self.about_name(name)?.is_none_or(|about| about.stx_ino != witness))
    }

    fn finish_make<'b>(&self, header: &Header, name: &CStr, mode: Option<u32>) -> Result<Option<Reply<'b>>> {
        let Some((node, about)) = self.finish_making(header, name, mode)? else { return Ok(None) };
        Ok(Some(Reply::entry(&self.counted(node, self.entry(node, &about))?)))
    }

    /// Gives what was made to the caller, and looks it up. None: it was not made.
    fn finish_making(&self, header: &Header, name: &CStr, mode: Option<u32>) -> Result<Option<(NodeId, Statx)>> {
        let (folder, _) = self.locate(header.node)?;
        let made: OwnedFd =
            match openat(&folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Ok(made) => made,
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(errno),
            };
        self.give_to_caller(header, &folder, &made)?;
        if let Some(mode) = mode {
            keep_mode(&made, mode)?;
        }
        let about = about(&made)?;
        let dentry = Dentry::new(header.node, name.to_bytes());
        let node = self.inodes_mut().enter(dentry, self.source.identity(&about)).ok_or(Errno::STALE)?;
        Ok(Some((node, about)))
    }

    /// Has the nodes follow a name that went, unless they did.
    fn forget_name(&self, (parent, name): Name<'_>) -> Result<()> {
        let now = self.about_name((parent, name))?.map(|about| self.source.identity(&about));
        let dentry = Dentry::new(parent, name.to_bytes());
        let mut inodes = self.inodes_mut();
        let former = inodes.at(&dentry).and_then(|node| inodes.identity(node));
        if let Some(former) = former.filter(|former| now != Some(*former)) {
            inodes.unlink(&dentry, self.survival.take_spare(former));
        }
        Ok(())
    }

    /// Has the nodes follow a rename, unless they did.
    fn finish_rename(&self, from: Name<'_>, to: Name<'_>, flags: RenameFlags) -> Result<()> {
        let there = self.about_name(to)?.ok_or(Errno::NOENT)?;
        let moved = self.source.identity(&there);
        let dentry = |(parent, name): Name<'_>| Dentry::new(parent, name.to_bytes());
        let (old, new) = (dentry(from), dentry(to));
        let mut inodes = self.inodes_mut();
        let replaced = inodes.at(&new).and_then(|node| inodes.identity(node));
        if replaced == Some(moved) {
            return Ok(());
        }
        if flags.contains(RenameFlags::EXCHANGE) {
            inodes.exchange(&old, &new);
        } else {
            let kept = replaced.and_then(|replaced| self.survival.take_spare(replaced));
            inodes.unlink(&new, kept);
            inodes.rename(&old, new);
        }
        Ok(())
    }

    fn finish_link<'b>(&self, target: NodeId, (parent, name): Name<'_>) -> Result<Option<Reply<'b>>> {
        let Some(about) = self.about_name((parent, name))? else { return Ok(None) };
        let identity = self.source.identity(&about);
        let mut inodes = self.inodes_mut();
        if inodes.identity(target) != Some(identity) {
            return Ok(None);
        }
        let node = inodes.enter(Dentry::new(parent, name.to_bytes()), identity).ok_or(Errno::STALE)?;
        drop(inodes);
        Ok(Some(Reply::entry(&self.counted(node, self.entry(node, &about))?)))
    }
}

/// The answer to a request that is carried out again, and may find that it is done.
fn repeated(answer: Result<Reply<'_>>, is_done: Errno) -> Result<Option<Reply<'_>>> {
    match answer {
        Err(errno) if errno == is_done => Ok(Some(Reply::empty())),
        answer => answer.map(Some),
    }
}
