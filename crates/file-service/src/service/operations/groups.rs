//! `ioctl`s: those of F2FS for atomic groups of writes.

use crate::service::FileService;
use rustix::io::{Errno, Result};
use tidegate_fuse::{GroupCommand, Handle, Header, Ioctl, Reply};

impl FileService {
    /// Carries out an `ioctl` of a file.
    pub(crate) fn control<'b>(&self, header: &Header, ioctl: &Ioctl<'_>, buffer: &'b mut [u8]) -> Result<Reply<'b>> {
        if FileService::is_about_leases(ioctl.command) {
            return self.control_lease(header, ioctl, buffer);
        }
        let handle = ioctl.handle;
        match GroupCommand::of(ioctl.command).filter(|_| !ioctl.directory).ok_or(Errno::NOTTY)? {
            GroupCommand::Features => return Reply::group_features(buffer).ok_or(Errno::INVAL),
            GroupCommand::Begin => self.begin_group(handle)?,
            GroupCommand::Commit => self.commit_group(header, handle)?,
            GroupCommand::Abort => self.abort_group(handle)?,
        }
        Ok(Reply::ioctl(0, &[]))
    }

    fn begin_group(&self, handle: Handle) -> Result<()> {
        let file = self.handles.file_to_write(handle)?;
        // Recorded first: the next server has to know that the handle's writes are not whole.
        self.handles.begin_group(handle);
        file.groups.begin(handle);
        self.open_files.end_lease_of(&file)
    }

    fn commit_group(&self, header: &Header, handle: Handle) -> Result<()> {
        let file = self.handles.file_to_write(handle)?;
        let committed = file.groups.commit(handle, |writes| {
            self.open_files.make_room(&file, header.pid, writes.iter().map(|write| write.data.len()).sum());
            self.open_files.write_group(&file, writes)
        });
        self.handles.end_group(handle);
        committed
    }

    fn abort_group(&self, handle: Handle) -> Result<()> {
        self.handles.file_to_write(handle)?.groups.abort(handle);
        self.handles.end_group(handle);
        Ok(())
    }
}
