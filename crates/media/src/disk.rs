//! Disks: a file or a block device as a row of blocks.
//!
//! Requests go past the page cache (`O_DIRECT`), and many writes at once through io_uring; where
//! the system refuses one of them, the disk works without it and [`FileDisk::way`] says so. Written
//! blocks are durable after [`FileDisk::flush`], which is `fdatasync`. The disk is opened for one
//! program alone: a lock keeps out other programs like this one, the kernel keeps out mounts of a
//! block device, and a file that a loop device shows, or another program has open for writing, is
//! refused.
//!
//! A request that the disk refuses (a bad sector, a full file system) is answered with the failed
//! bytes and whether only room is missing, and [`FileDisk::last_refusal`] keeps the error number.
//! No request is retried that could hide a loss: a failed flush fails for every caller that waited
//! for it, and the writes that it covered have to be written again.

mod claims;
mod identity;
mod left;
mod mark;
mod ring;
pub(crate) mod users;

use crate::block::backing::{AlignedBytes, Backing, Run};
use crate::block::{BlockDevice, Durability, Extent, ExtentKind, Geometry, Lba, LbaRange};
use crate::error::{Error, Misuse, NoRoom, Poison, Result, Sealed, tells_of_no_room};
use crate::locked_file::LockedFile;
use crate::locked_file::map_error::MapError;
use crate::sync::{AtomicU64, Mutex, Ordering};
pub use claims::{Claim, claim_of};
pub use identity::DiskIdentity;
pub use mark::DiskMark;
use ring::Ring;
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, SeekFrom, fallocate, fstat, seek};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Zeroes that are written at once where the system cannot zero a range.
const ZEROES_BYTES: usize = 1 << 20;

/// What a disk is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskAccess {
    /// Reading and writing, by nobody else at the same time.
    ReadWrite,
    /// Reading.
    ReadOnly,
}

/// How requests reach a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMethod {
    /// Past the page cache, many writes at once.
    DirectMany,
    /// Past the page cache, one at a time: the system refuses io_uring.
    DirectSingle,
    /// Through the page cache, one at a time: the disk cannot be reached past it.
    Cached,
}

impl fmt::Display for IoMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoMethod::DirectMany => "past the page cache, many writes at once",
            IoMethod::DirectSingle => "past the page cache, one write at a time (the system refuses io_uring)",
            IoMethod::Cached => "through the page cache, one write at a time (O_DIRECT is refused for such blocks)",
        })
    }
}

/// The last thing that a disk refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The blocks concerned; all of them for a flush.
    pub range: LbaRange,
    /// The system's error number.
    pub errno: i32,
    /// What was tried, as in "cannot ...".
    pub doing: &'static str,
}

impl Refusal {
    /// Whether something was to be changed or made durable.
    pub fn is_of_a_change(&self) -> bool {
        self.doing != READ
    }
}

/// What a refused read, and a refused flush, were about to do.
const READ: &str = "read";
const MAKE_DURABLE: &str = "make durable";

/// How often a disk refused something since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Reads.
    pub reads: u64,
    /// Writes, zeroes and discards.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
}

impl Refusals {
    fn count(&mut self, doing: &str) {
        match doing {
            READ => self.reads += 1,
            MAKE_DURABLE => self.flushes += 1,
            _ => self.writes += 1,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, end) = (self.range.first.0, self.range.end());
        write!(f, "cannot {} blocks {first}..{end}: {}", self.doing, Errno::from_raw_os_error(self.errno))
    }
}

/// A disk in a file or on a block device.
pub struct FileDisk {
    file: LockedFile,
    geometry: Geometry,
    way: IoMethod,
    /// Addresses of buffers that the disk takes as they are; 1: any.
    alignment: usize,
    ring: Mutex<Option<Ring>>,
    /// Flushes that failed. Relaxed: decided about under `flushing`.
    flushes_failed: AtomicU64,
    /// Held by the flush under way.
    flushing: Mutex<()>,
    /// The last refusal, and how many there were.
    refused: Mutex<(Option<Refusal>, Refusals)>,
    identity: DiskIdentity,
}

impl FileDisk {
    /// The disk at `path`, cut into blocks of `block_size` bytes (a power of two, 512 or more); a
    /// rest that is no whole block is out of reach.
    pub fn open(path: &Path, access: DiskAccess, block_size: u32) -> Result<FileDisk, MapError> {
        let (file, kind) = open(path, access)?;
        let io = |errno: Errno| MapError::io(path, "read its attributes", errno.into());
        let bytes = seek(&*file, SeekFrom::End(0)).map_err(io)?;
        let blocks = bytes / u64::from(block_size);
        if blocks == 0 {
            return Err(MapError::Empty { path: path.to_owned() });
        }
        let geometry = Geometry {
            block_size,
            blocks,
            atomic_blocks: 0,
            volatile_cache: true,
            read_only: access == DiskAccess::ReadOnly,
            fast_zeroes: kind == FileType::RegularFile,
        };
        let identity = DiskIdentity::of(&file, kind).map_err(|error| MapError::io(path, "identify it", error))?;
        let alignment = go_direct(&file, block_size);
        let ring = alignment.and_then(|_| Ring::new().ok());
        let way = match (alignment, &ring) {
            (Some(_), Some(_)) => IoMethod::DirectMany,
            (Some(_), None) => IoMethod::DirectSingle,
            (None, _) => IoMethod::Cached,
        };
        Ok(FileDisk {
            file,
            geometry,
            way,
            alignment: alignment.unwrap_or(1),
            ring: Mutex::new(ring),
            flushes_failed: AtomicU64::new(0),
            flushing: Mutex::new(()),
            refused: Mutex::new((None, Refusals::default())),
            identity,
        })
    }

    /// How requests reach it.
    pub fn way(&self) -> IoMethod {
        self.way
    }

    /// Which disk it is, whatever its name.
    pub fn identity(&self) -> DiskIdentity {
        self.identity
    }

    /// The last thing it refused since it was opened.
    pub fn last_refusal(&self) -> Option<Refusal> {
        self.refused.lock().0
    }

    /// How often it refused something since it was opened.
    pub fn refusals(&self) -> Refusals {
        self.refused.lock().1
    }

    fn byte(&self, at: Lba) -> u64 {
        at.0 * u64::from(self.geometry.block_size)
    }

    fn writable(&self) -> Result<(), Misuse> {
        if self.geometry.read_only { Err(Misuse::ReadOnly) } else { Ok(()) }
    }

    fn is_aligned(&self, bytes: &[u8]) -> bool {
        bytes.as_ptr().addr().is_multiple_of(self.alignment)
    }

    fn remember(&self, refusal: Refusal) {
        let mut refused = self.refused.lock();
        refused.0 = Some(refusal);
        refused.1.count(refusal.doing);
    }

    /// Remembers a refusal, and tells which bytes it concerns.
    fn refused(&self, doing: &'static str, at: u64, len: usize, error: &std::io::Error) -> Error {
        let size = u64::from(self.geometry.block_size);
        let len = len as u64;
        let first = Lba(at / size);
        let range = LbaRange { first, blocks: (at + len).div_ceil(size) - first.0 };
        let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        self.remember(Refusal { range, errno, doing });
        match doing != READ && tells_of_no_room(Errno::from_raw_os_error(errno)) {
            true => NoRoom { at, len }.into(),
            false => Poison { at, len }.into(),
        }
    }

    /// Writes all of `data`, which is aligned, at byte `at`.
    fn write_at(&self, at: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let rest = &data[done..];
            match self.file.write_at(rest, at + done as u64) {
                Ok(0) => Err(std::io::Error::from(Errno::IO)),
                Ok(some) => {
                    done += some;
                    Ok(())
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(()),
                Err(error) => Err(error),
            }
            .map_err(|error| self.refused("write", at + done as u64, rest.len(), &error))?;
        }
        Ok(())
    }

    /// Reads all of `out`, which is aligned, from byte `at`.
    fn read_at(&self, at: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, at).map_err(|error| self.refused(READ, at, out.len(), &error))
    }

    fn write_zeroes_plainly(&self, mut at: u64, mut len: u64) -> Result<()> {
        let zeroes = AlignedBytes::zeroed(usize::try_from(len).map_or(ZEROES_BYTES, |len| len.min(ZEROES_BYTES)));
        while len > 0 {
            let piece = usize::try_from(len).map_or(ZEROES_BYTES, |len| len.min(ZEROES_BYTES));
            self.write_at(at, &zeroes[..piece])?;
            at += piece as u64;
            len -= piece as u64;
        }
        Ok(())
    }

    /// Changes the range as `flags` say; `Ok(false)`: the system or the disk cannot do that.
    fn change_range(&self, at: u64, len: u64, flags: FallocateFlags, doing: &'static str) -> Result<bool> {
        loop {
            match fallocate(&*self.file, flags | FallocateFlags::KEEP_SIZE, at, len) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::NODEV | Errno::PERM) => return Ok(false),
                Err(errno) => {
                    let len = usize::try_from(len).unwrap_or(usize::MAX);
                    return Err(self.refused(doing, at, len, &errno.into()));
                }
            }
        }
    }
}

impl BlockDevice for FileDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.geometry.range(at, out.len())?;
        if self.is_aligned(out) {
            return self.read_at(self.byte(at), out);
        }
        let mut aligned = AlignedBytes::zeroed(out.len());
        self.read_at(self.byte(at), &mut aligned)?;
        out.copy_from_slice(&aligned);
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.writable()?;
        self.geometry.range(at, data.len())?;
        if self.is_aligned(data) {
            self.write_at(self.byte(at), data)?;
        } else {
            self.write_at(self.byte(at), &aligned_copy(data))?;
        }
        self.flush_if(durability)
    }

    fn flush(&self) -> Result<()> {
        let failed_before = self.flushes_failed.load(Ordering::Relaxed);
        let _one_at_a_time = self.flushing.lock();
        // The kernel tells a failure once; whoever waited for that flush is not covered by the next
        // one either.
        let failed_meanwhile = self.flushes_failed.load(Ordering::Relaxed) != failed_before;
        let synced = if failed_meanwhile { Err(Errno::IO.into()) } else { self.file.sync_data() };
        synced.map_err(|error| {
            if !failed_meanwhile {
                self.flushes_failed.fetch_add(1, Ordering::Relaxed);
            }
            let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            let range = LbaRange { first: Lba(0), blocks: self.geometry.blocks };
            self.remember(Refusal { range, errno, doing: MAKE_DURABLE });
            Sealed::SyncFailed { errno }.into()
        })
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.writable()?;
        let range = self.geometry.within(range)?;
        if range.blocks == 0 {
            return Ok(());
        }
        let (at, len) = (self.byte(range.first), range.blocks * u64::from(self.geometry.block_size));
        // Blocks that cannot be given up keep their bytes, which is allowed.
        self.change_range(at, len, FallocateFlags::PUNCH_HOLE, "discard").map(drop)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.writable()?;
        let range = self.geometry.within(range)?;
        if range.blocks == 0 {
            return Ok(());
        }
        let (at, len) = (self.byte(range.first), range.blocks * u64::from(self.geometry.block_size));
        let zeroed = self.change_range(at, len, FallocateFlags::ZERO_RANGE, "zero")?
            || self.change_range(at, len, FallocateFlags::PUNCH_HOLE, "zero")?;
        if !zeroed {
            self.write_zeroes_plainly(at, len)?;
        }
        self.flush_if(durability)
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        let range = self.geometry.within(range)?;
        let size = u64::from(self.geometry.block_size);
        let at = self.byte(range.first);
        let (kind, end) = match seek(&*self.file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => (ExtentKind::Hole, range.end()),
            Ok(data) if data / size > range.first.0 => (ExtentKind::Hole, data / size),
            // A block with any data in it is data. Where holes cannot be found, so is everything.
            _ => (
                ExtentKind::Data,
                seek(&*self.file, SeekFrom::Hole(at)).map_or(range.end(), |hole| hole.div_ceil(size)),
            ),
        };
        Ok(Extent { blocks: end.clamp(range.first.0 + 1, range.end()) - range.first.0, kind })
    }
}

impl FileDisk {
    fn flush_if(&self, durability: Durability) -> Result<()> {
        match durability {
            Durability::Volatile => Ok(()),
            Durability::Fua => self.flush(),
        }
    }
}

impl Backing for FileDisk {
    fn write_runs(&self, runs: &[Run<'_>]) -> Vec<Result<()>> {
        let mut ring = self.ring.lock();
        let Some(ring) = ring.as_mut().filter(|_| runs.len() > 1 && !self.geometry.read_only) else {
            return runs.iter().map(|run| self.write(run.at, run.data, Durability::Volatile)).collect();
        };
        let copies: Vec<Option<AlignedBytes>> =
            runs.iter().map(|run| (!self.is_aligned(run.data)).then(|| aligned_copy(run.data))).collect();
        let within = |run: &Run<'_>| self.geometry.range(run.at, run.data.len());
        let pieces: Vec<(u64, &[u8])> = runs
            .iter()
            .zip(&copies)
            .map(|(run, copy)| (self.byte_of(within(run)), copy.as_deref().unwrap_or(run.data)))
            .map(|(at, data)| at.map_or((0, &[][..]), |at| (at, data)))
            .collect();
        let written = ring.write_all(&self.file, &pieces);
        let rest = |(nth, (at, data)): (usize, &(u64, &[u8]))| {
            within(&runs[nth])?;
            // What the ring left is tried again alone: that succeeds, or tells why not.
            let done = written[nth];
            self.write_at(at + done as u64, &data[done..])
        };
        pieces.iter().enumerate().map(rest).collect()
    }
}

impl FileDisk {
    fn byte_of(&self, range: Result<LbaRange, Misuse>) -> Option<u64> {
        range.ok().map(|range| self.byte(range.first))
    }
}

fn aligned_copy(data: &[u8]) -> AlignedBytes {
    let mut aligned = AlignedBytes::zeroed(data.len());
    aligned.copy_from_slice(data);
    aligned
}

/// Opens and locks the disk; its kind.
fn open(path: &Path, access: DiskAccess) -> Result<(LockedFile, FileType), MapError> {
    let mode = match access {
        // The kernel refuses a block device that is mounted or otherwise in use.
        DiskAccess::ReadWrite => OFlags::RDWR | OFlags::EXCL,
        DiskAccess::ReadOnly => OFlags::RDONLY,
    };
    // A FIFO would make a plain open wait for its other end.
    let flags = mode | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::BUSY => MapError::InUse { path: path.to_owned(), holder: users::user_of_device(path) },
        errno => MapError::opening(path, errno),
    })?;
    let stat = fstat(&file).map_err(|errno| MapError::io(path, "read its attributes", errno.into()))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
        return Err(MapError::not_a_file(path, kind));
    }
    // It would make io_uring refuse what cannot be done at once.
    let undelayed =
        rustix::fs::fcntl_getfl(&file).and_then(|flags| rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK));
    undelayed.map_err(|errno| MapError::io(path, "change its flags", errno.into()))?;
    let file = File::from(file);
    let locked = match access {
        DiskAccess::ReadWrite => LockedFile::exclusive(path, file)?,
        DiskAccess::ReadOnly => LockedFile::shared(path, file)?,
    };
    if (access, kind) == (DiskAccess::ReadWrite, FileType::RegularFile) {
        let user = users::of_file(&locked).map_err(|error| MapError::io(path, "read its attributes", error))?;
        if let Some(holder) = user {
            return Err(MapError::InUse { path: path.to_owned(), holder });
        }
    }
    Ok((locked, kind))
}

/// Lets requests of blocks of `block_size` bytes go past the page cache. What buffers have to be
/// aligned to then; none: it cannot be done.
fn go_direct(file: &File, block_size: u32) -> Option<usize> {
    let flags = rustix::fs::fcntl_getfl(file).ok()?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
    let size = block_size as usize;
    let mut room = AlignedBytes::zeroed(2 * crate::block::backing::ALIGNMENT_BYTES + size);
    // The second block, if there is one: its offset is a multiple of the block size and of nothing
    // more.
    let mut works = |shift: usize| {
        let read = file.read_at(&mut room[shift..shift + size], u64::from(block_size));
        read.is_ok() || read.is_err_and(|error| error.raw_os_error() == Some(Errno::IO.raw_os_error()))
    };
    let alignment = [512, crate::block::backing::ALIGNMENT_BYTES].into_iter().find(|alignment| works(*alignment));
    if alignment.is_none() {
        // It worked before without the flag.
        rustix::fs::fcntl_setfl(file, flags).ok()?;
    }
    alignment
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod tests_as_root;
