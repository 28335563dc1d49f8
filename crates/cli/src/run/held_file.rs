//! A held file as the supervisor has it: opened for reading, and never written.

use super::journal::Named;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use tidegate_preload_wire::FileId;

/// Bytes of the largest file that is held.
pub(super) const FILE_BYTES_MAX: u64 = super::kept::FILE_BLOCKS * super::kept::BLOCK_BYTES;

/// A file, opened anew: locks and the position belong to what the program has open.
#[derive(Debug)]
pub(super) struct HeldFile {
    file: File,
    /// Which one.
    pub(super) id: FileId,
    /// Where it is.
    pub(super) path: PathBuf,
    born_ns: i128,
}

impl HeldFile {
    /// The file behind a descriptor of a program, if it is a regular one with a name by which it can be found again.
    pub(super) fn of(descriptor: impl AsFd) -> io::Result<Option<HeldFile>> {
        let link = format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd());
        let path = std::fs::read_link(&link)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOATIME;
        let open = |flags| rustix::fs::open(link.as_str(), flags, Mode::empty());
        let file = File::from(open(flags).or_else(|_| open(flags - OFlags::NOATIME))?);
        let stat = rustix::fs::fstat(&file)?;
        let by_name = rustix::fs::stat(&path).ok();
        let found = by_name.is_some_and(|found| (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino));
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let small = stat.st_size.unsigned_abs() < FILE_BYTES_MAX;
        let Some(born_ns) = born_ns(&file)?.filter(|_| found && regular && small) else { return Ok(None) };
        let id = FileId { device: stat.st_dev, inode: stat.st_ino };
        Ok(Some(HeldFile { file, id, path, born_ns }))
    }

    /// As the journal has it.
    pub(super) fn named(&self, family: u32) -> Named {
        Named { family, path: self.path.clone(), inode: self.id.inode, born_ns: self.born_ns }
    }

    /// Fills `block` from byte `at` on; behind the end of the file with zeroes.
    pub(super) fn read(&self, at: u64, block: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < block.len() {
            match self.file.read_at(&mut block[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        block[filled..].fill(0);
        Ok(())
    }

    /// Brings the file to its disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Whether the file at `named.path` is the one that was held; None: there is none.
pub(super) fn is_same(named: &Named) -> io::Result<Option<bool>> {
    let file = match File::open(&named.path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let inode = rustix::fs::fstat(&file)?.st_ino;
    Ok(Some(inode == named.inode && born_ns(&file)? == Some(named.born_ns)))
}

/// When the file's inode was made, where the file system knows.
fn born_ns(file: &File) -> io::Result<Option<i128>> {
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?;
    let known = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(known.then(|| i128::from(stat.stx_btime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_btime.tv_nsec)))
}
