//! Atomic groups of writes, answered at once: a program sends the requests that it sends to the
//! service. Nothing is withheld, so a group that is aborted stays.

use rustix::io::Errno;
use std::collections::BTreeMap;
use tidegate_fuse::{DroppedPages, GroupCommand, Handle, Ioctl, Reply, Write};

/// The groups that are open, by their handles.
#[derive(Debug, Default)]
pub(crate) struct Groups(BTreeMap<Handle, DroppedPages>);

impl Groups {
    /// Carries out an `ioctl`.
    pub(crate) fn control<'b>(&mut self, ioctl: &Ioctl<'_>, buffer: &'b mut [u8]) -> Result<Reply<'b>, Errno> {
        match GroupCommand::of(ioctl.command).ok_or(Errno::NOTTY)? {
            GroupCommand::Features => return Reply::group_features(buffer).ok_or(Errno::INVAL),
            GroupCommand::Begin => {
                self.0.insert(ioctl.handle, DroppedPages::none(rustix::param::page_size()));
            }
            GroupCommand::Commit | GroupCommand::Abort => {
                self.0.remove(&ioctl.handle).ok_or(Errno::INVAL)?;
            }
        }
        Ok(Reply::ioctl(0, &[]))
    }

    /// The bytes of a write that are taken: all, unless the handle has a group.
    pub(crate) fn taken<'d>(&mut self, write: &Write<'d>) -> Result<&'d [u8], Errno> {
        let Some(pages) = self.0.get_mut(&write.handle) else { return Ok(write.data) };
        let taken = pages.take(write).ok_or(Errno::INTR)?;
        Ok(&write.data[..taken])
    }
}
