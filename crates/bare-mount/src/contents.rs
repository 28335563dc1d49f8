//! The bytes of one file: in this process, or in a file that survives it.

use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The bytes of one file.
#[derive(Debug)]
pub(crate) enum Contents {
    /// In this process.
    Memory(Vec<u8>),
    /// In a file.
    Kept(File),
}

impl Contents {
    /// Opens the file at `path`, and makes it if it is not there.
    pub(crate) fn kept_at(path: &Path) -> Result<Contents, Errno> {
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        opened.map(Contents::Kept).map_err(errno)
    }

    pub(crate) fn len(&self) -> Result<u64, Errno> {
        match self {
            Contents::Memory(bytes) => Ok(bytes.len() as u64),
            Contents::Kept(file) => file.metadata().map(|metadata| metadata.len()).map_err(errno),
        }
    }

    pub(crate) fn set_len(&mut self, len: u64) -> Result<(), Errno> {
        match self {
            Contents::Memory(bytes) => {
                bytes.resize(usize::try_from(len).map_err(|_| Errno::FBIG)?, 0);
                Ok(())
            }
            Contents::Kept(file) => file.set_len(len).map_err(errno),
        }
    }

    /// Copies bytes from `offset` on; returns how many there were.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Contents::Memory(bytes) => {
                let from = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
                let len = from.len().min(out.len());
                out[..len].copy_from_slice(&from[..len]);
                Ok(len)
            }
            Contents::Kept(file) => file.read_at(out, offset).map_err(errno),
        }
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        match self {
            Contents::Memory(bytes) => {
                let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
                let end = start.checked_add(data.len()).ok_or(Errno::FBIG)?;
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(data);
                Ok(())
            }
            Contents::Kept(file) => file.write_all_at(data, offset).map_err(errno),
        }
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
