//! `ioctl`s: those of F2FS for atomic groups of writes, which SQLite looks for
//! (`SQLITE_ENABLE_BATCH_ATOMIC_WRITE`).

use crate::service::FileService;
use rustix::io::{Errno, Result};
use tidegate_fuse::{Handle, Ioctl, Reply};

/// `F2FS_IOC_START_ATOMIC_WRITE`.
const BEGIN: u32 = 0xf501;
/// `F2FS_IOC_COMMIT_ATOMIC_WRITE`.
const COMMIT: u32 = 0xf502;
/// `F2FS_IOC_ABORT_ATOMIC_WRITE`.
const ABORT: u32 = 0xf505;
/// `F2FS_IOC_GET_FEATURES`.
const FEATURES: u32 = 0x8004_f50c;
/// `F2FS_FEATURE_ATOMIC_WRITE`.
const ATOMIC_WRITES: u32 = 4;

impl FileService {
    /// Carries out an `ioctl` of a file.
    pub(crate) fn control<'b>(&self, ioctl: &Ioctl<'_>, buffer: &'b mut [u8]) -> Result<Reply<'b>> {
        let handle = ioctl.handle;
        match ioctl.command {
            _ if ioctl.directory => return Err(Errno::NOTTY),
            FEATURES => {
                let output = buffer.first_chunk_mut::<4>().ok_or(Errno::INVAL)?;
                *output = ATOMIC_WRITES.to_ne_bytes();
                return Ok(Reply::ioctl(0, output));
            }
            BEGIN => self.begin_group(handle)?,
            COMMIT => self.commit_group(handle)?,
            ABORT => self.abort_group(handle)?,
            _ => return Err(Errno::NOTTY),
        }
        Ok(Reply::ioctl(0, &[]))
    }

    fn begin_group(&self, handle: Handle) -> Result<()> {
        let file = self.handles.file_to_write(handle)?;
        // Recorded first: the next server has to know that the handle's writes are not whole.
        self.handles.begin_group(handle);
        file.groups.begin(handle);
        Ok(())
    }

    fn commit_group(&self, handle: Handle) -> Result<()> {
        let file = self.handles.file_to_write(handle)?;
        let committed = file.groups.commit(handle, |writes| self.open_files.write_group(&file, writes));
        self.handles.end_group(handle);
        committed
    }

    fn abort_group(&self, handle: Handle) -> Result<()> {
        self.handles.file_to_write(handle)?.groups.abort(handle);
        self.handles.end_group(handle);
        Ok(())
    }
}
