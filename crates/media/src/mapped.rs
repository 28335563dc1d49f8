//! A region in real memory: a file or device mapped into this process, or anonymous memory.
//!
//! Opening locks the file, measures it, probes its persistence domain, chooses the instructions,
//! and maps it. From then on each verb is a bounds check, a leaf routine and a count.

pub(crate) mod fenced_file;
pub(crate) mod mapped_chunks;
pub(crate) mod mapped_file;
pub(crate) mod mapped_part;
pub(crate) mod mapped_runs;
pub(crate) mod outliving;
pub(crate) mod own_words;
pub(crate) mod pin_charge;

use crate::counters::{Counters, RegionCounts};
use crate::domain::{Domain, Evidence, Sysfs};
use crate::error::{Poison, Sealed, tells_of_no_room};
use crate::locked_file::LockedFile;
use crate::locked_file::map_error::MapError;
use crate::mapped::mapped_part::MappedPart;
use crate::memory::{Instructions, Mapping, Sharing};
use crate::region::{ExchangeWords, Region};
use rustix::fd::AsFd;
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, SeekFrom, fallocate, fstat, fstatfs, ftruncate, seek};
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Bytes that are looked at together for one that is set.
const SEARCHED_BYTES: usize = 1 << 20;

/// How much of a new file has its place on the file system from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// All of it: no later store can fail for want of space.
    Full,
    /// Each page when it is first stored to; a store that finds the file system full seals the
    /// region.
    Sparse,
}

/// What opening a region is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Stores reach the file. Needs it for this process alone.
    ReadWrite,
    /// Stores change a private copy in memory, and the file never changes; any number of processes
    /// may do so at once. A device cannot be copied so: there a store seals the region.
    Private,
    /// Like [`Access::Private`], without a lock: for a look at a file that another process may be
    /// storing to.
    PrivateUnlocked,
}

impl Access {
    fn is_private(self) -> bool {
        self != Access::ReadWrite
    }
}

/// A region in mapped memory.
pub struct MappedRegion {
    part: MappedPart,
    file: Option<LockedFile>,
    domain: Domain,
    tally: RegionCounts,
    /// Why the first store was lost, found out when it is told first: there may be room later.
    why_sealed: OnceLock<Sealed>,
}

impl MappedRegion {
    /// Zeroed memory of this process alone, `len` bytes.
    pub fn anonymous(len: u64) -> Result<MappedRegion, MapError> {
        let path = Path::new("(anonymous memory)");
        let mapping = Mapping::anonymous(mappable(path, len)?).map_err(|error| MapError::io(path, "map it", error))?;
        Ok(MappedRegion::over(mapping, None, Domain::Volatile))
    }

    /// A new file of `len` zero bytes, locked for this process. A failure leaves no file behind.
    pub fn create(path: &Path, len: u64, allocation: Allocation) -> Result<MappedRegion, MapError> {
        mappable(path, len)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(file.map_err(|errno| MapError::opening(path, errno))?);
        let unfinished = UnfinishedFile(Some(path));
        let file = LockedFile::exclusive(path, file)?;
        allocate(path, &file, len, allocation)?;
        make_durable(path, &file).map_err(|error| MapError::io(path, "make it durable", error))?;
        let region = MappedRegion::map(path, file, Access::ReadWrite)?;
        unfinished.finish();
        Ok(region)
    }

    /// An existing file or device-DAX character device, all of it.
    pub fn open(path: &Path, access: Access) -> Result<MappedRegion, MapError> {
        MappedRegion::lock_and_map(path, opened(path, access, OFlags::empty())?, access)
    }

    /// Like [`MappedRegion::open`], but refuses a symbolic link as the last part of `path`, and an
    /// open file with which `accept` finds fault. Neither locks the file.
    pub fn open_if(
        path: &Path,
        access: Access,
        accept: impl FnOnce(&File) -> std::io::Result<()>,
    ) -> Result<MappedRegion, MapError> {
        let file = opened(path, access, OFlags::NOFOLLOW)?;
        accept(&file).map_err(|error| MapError::io(path, "accept the file", error))?;
        MappedRegion::lock_and_map(path, file, access)
    }

    /// Like [`MappedRegion::open`] for reading and writing, of a file that is open and was found at
    /// `path`. Has the lock in common with other processes that have the same open file.
    pub fn of_file(path: &Path, file: File) -> Result<MappedRegion, MapError> {
        MappedRegion::map(path, LockedFile::in_common(path, file)?, Access::ReadWrite)
    }

    /// Ends the mapping and retains the lock. None: this is anonymous memory.
    pub fn into_locked_file(self) -> Option<LockedFile> {
        self.file
    }

    fn lock_and_map(path: &Path, file: File, access: Access) -> Result<MappedRegion, MapError> {
        let file = match access {
            Access::ReadWrite => LockedFile::exclusive(path, file)?,
            Access::Private => LockedFile::shared(path, file)?,
            Access::PrivateUnlocked => LockedFile::unlocked(file),
        };
        MappedRegion::map(path, file, access)
    }

    fn map(path: &Path, file: LockedFile, access: Access) -> Result<MappedRegion, MapError> {
        let sysfs = Sysfs::default();
        let stat = fstat(&*file).map_err(|errno| MapError::io(path, "read its attributes", errno.into()))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let len = match kind {
            FileType::RegularFile => stat.st_size.cast_unsigned(),
            FileType::CharacterDevice => {
                sysfs.dax_device_bytes(stat.st_rdev).ok_or_else(|| MapError::not_a_file(path, kind))?
            }
            _ => return Err(MapError::not_a_file(path, kind)),
        };
        let len = mappable(path, len)?;
        let file_system = fstatfs(&*file).map_err(|errno| MapError::io(path, "read its file system", errno.into()))?;
        let is_device = kind == FileType::CharacterDevice;
        let is_synchronous = !is_device && Mapping::is_synchronous(file.as_fd());
        let sharing = match access {
            Access::Private | Access::PrivateUnlocked if is_device => Sharing::ReadOnly,
            Access::Private | Access::PrivateUnlocked => Sharing::Private,
            Access::ReadWrite if is_synchronous => Sharing::Synchronous,
            Access::ReadWrite => Sharing::Shared,
        };
        let domain = sysfs.domain(Evidence::new(&stat, file_system.f_type as u64, is_synchronous));
        let mapping = Mapping::of_file(file.as_fd(), len, sharing).map_err(|e| MapError::io(path, "map it", e))?;
        Ok(MappedRegion::over(mapping, Some(file), domain))
    }

    fn over(mapping: Mapping, file: Option<LockedFile>, domain: Domain) -> MappedRegion {
        let instructions = Instructions::best(domain == Domain::PowerFail { caches_included: true });
        MappedRegion {
            part: MappedPart::over(mapping, instructions),
            file,
            domain,
            tally: RegionCounts::default(),
            why_sealed: OnceLock::new(),
        }
    }

    /// What the contents of the file survive. (What [`Access::Private`] stores survives nothing.)
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The instructions that carry stores to the medium.
    pub fn instructions(&self) -> Instructions {
        self.part.instructions()
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.tally.snapshot()
    }

    /// The file, locked as long as this region lives; None for anonymous memory.
    pub fn file(&self) -> Option<&File> {
        self.file.as_deref()
    }

    /// Makes what was stored durable where fences alone do not: in an ordinary file.
    pub fn sync_file(&self) -> std::io::Result<()> {
        match (self.domain(), self.file()) {
            (Domain::DiskFile, Some(file)) => file.sync_data(),
            _ => Ok(()),
        }
    }

    /// Whether no byte is set. Holes of a file are not read.
    pub fn is_all_zero(&self) -> Result<bool, Poison> {
        if let Some(Err(Errno::NXIO)) = self.file().map(|file| seek(file, SeekFrom::Data(0))) {
            return Ok(true);
        }
        let mut piece = vec![0; SEARCHED_BYTES];
        let mut at = 0;
        while at < self.len() {
            let bytes = usize::try_from(self.len() - at).map_or(SEARCHED_BYTES, |left| left.min(SEARCHED_BYTES));
            self.read(at, &mut piece[..bytes])?;
            if piece[..bytes].iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += bytes as u64;
        }
        Ok(true)
    }

    /// Makes every byte read as zero if that can be done without storing each; a fully allocated
    /// file stays so, and a sparse one sparse. `Ok(false)`: it cannot, and nothing was changed. Not
    /// to be called while other threads store to the region.
    pub fn zero_all(&self) -> Result<bool, MapError> {
        let path = Path::new("(the mapped file)");
        match (&self.file, self.part.mapping().sharing()) {
            (_, Sharing::ReadOnly) | (Some(_), Sharing::Private) => Ok(false),
            (None, _) => self
                .part
                .mapping()
                .forget_contents()
                .map(|()| true)
                .map_err(|e| MapError::io(path, "give up its contents", e)),
            (Some(file), Sharing::Shared | Sharing::Synchronous) => zero_file(path, file, self.len()),
        }
    }

    /// What puts other memory behind whole pages of a regular file; other regions have `None`.
    /// These pages read as zeroes then: memory that the kernel refers to, for a device or a pipe,
    /// is no part of the file any more. False: the pages are as before, or are none; nobody may
    /// store to them then. Not to be called while others use them.
    pub fn renewal(region: &Arc<MappedRegion>) -> Option<Arc<dyn Fn(Range<u64>) -> bool + Send + Sync>> {
        let is_regular = |file: &File| file.metadata().is_ok_and(|about| about.is_file());
        let region = region.file().is_some_and(is_regular).then(|| Arc::clone(region))?;
        Some(Arc::new(move |range| region.renew(range.start, range.end - range.start)))
    }

    fn renew(&self, at: u64, len: u64) -> bool {
        let Some(file) = &self.file else { return true };
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A large page that somebody refers to is not cut: it stays, as zeroes.
        fallocate(&**file, punch, at, len).is_ok()
            && seek(&**file, SeekFrom::Data(at)).map_or_else(|errno| errno == Errno::NXIO, |data| data >= at + len)
            && fallocate(&**file, FallocateFlags::KEEP_SIZE, at, len).is_ok()
    }

    /// Makes the last `bytes` bytes, a few KiB, read as zero, durably, of devices too. Not to be
    /// called while other threads store there.
    pub fn zero_end(&self, bytes: u64) -> Result<(), Sealed> {
        let zeroes = vec![0; usize::try_from(bytes).expect("a few KiB")];
        self.stream(self.len() - bytes, &zeroes);
        self.fence()?;
        self.sync_file().map_err(|error| Sealed::by_failed_sync(&error))
    }
}

impl ExchangeWords for MappedRegion {
    fn exchange_u64(&self, at: u64, old: u64, new: u64) -> Result<u64, Poison> {
        self.tally.stored(8);
        self.part.exchange_u64(at, old, new)
    }
}

impl Region for MappedRegion {
    fn len(&self) -> u64 {
        self.part.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.part.read(at, out).or_else(|poison| if self.read_beside_holes(at, out) { Ok(()) } else { Err(poison) })
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.part.load_u64(at).or_else(|poison| {
            let mut word = [0; 8];
            if self.read_beside_holes(at, &mut word) { Ok(u64::from_ne_bytes(word)) } else { Err(poison) }
        })
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.tally.stored(bytes.len() as u64);
        self.part.write(at, bytes);
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        self.tally.streamed(at, bytes.len() as u64);
        self.part.stream(at, bytes);
    }

    fn store_u64(&self, at: u64, word: u64) {
        self.tally.stored(8);
        self.part.store_u64(at, word);
    }

    fn flush(&self, at: u64, len: u64) {
        self.tally.flushed(at, len);
        self.part.flush(at, len);
    }

    fn fence(&self) -> Result<(), Sealed> {
        self.tally.fenced();
        self.part.fence().map_err(|sealed| *self.why_sealed.get_or_init(|| self.why(sealed)))
    }
}

impl MappedRegion {
    /// Why a store was lost: for want of room, if the file cannot be given the page now either.
    fn why(&self, sealed: Sealed) -> Sealed {
        let (Sealed::StoreLost { at }, Some(file)) = (sealed, &self.file) else { return sealed };
        let page = rustix::param::page_size() as u64;
        let is_inside = file.metadata().is_ok_and(|there| there.is_file() && at < there.len());
        let first = at / page * page;
        let given = |()| fallocate(&**file, FallocateFlags::KEEP_SIZE, first, page);
        match is_inside.then_some(()).map(given) {
            Some(Err(errno)) if tells_of_no_room(errno) => Sealed::NoRoom { at },
            _ => sealed,
        }
    }

    /// Reads page by page what the mapping does not give as a whole: a full file system may have no
    /// room even to show a hole, and then its zeroes come from the file itself. Whether that is all
    /// there was to it.
    fn read_beside_holes(&self, mut at: u64, mut out: &mut [u8]) -> bool {
        let Some(file) = &self.file else { return false };
        let page = rustix::param::page_size() as u64;
        while !out.is_empty() {
            let first = at / page * page;
            let bytes = usize::try_from(first + page - at).unwrap_or(usize::MAX).min(out.len());
            let (piece, rest) = out.split_at_mut(bytes);
            if self.part.read(at, piece).is_err() && !(is_hole(file, first) && file.read_exact_at(piece, at).is_ok()) {
                return false;
            }
            (at, out) = (at + bytes as u64, rest);
        }
        true
    }
}

/// Whether the page at `at` in `file` was never stored to.
fn is_hole(file: &File, at: u64) -> bool {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => data > at,
        Err(errno) => errno == Errno::NXIO,
    }
}

/// Opens an existing file, with `more` flags than it takes.
fn opened(path: &Path, access: Access, more: OFlags) -> Result<File, MapError> {
    let mode = if access.is_private() { OFlags::RDONLY } else { OFlags::RDWR };
    // A FIFO would make a plain open wait for its other end.
    let file = rustix::fs::open(path, mode | OFlags::CLOEXEC | OFlags::NONBLOCK | more, Mode::empty());
    Ok(File::from(file.map_err(|errno| MapError::opening(path, errno))?))
}

/// A file that is removed again when this is dropped, if any, unless its creation comes to its end.
pub struct UnfinishedFile<'a>(pub Option<&'a Path>);

impl UnfinishedFile<'_> {
    /// The file stays.
    pub fn finish(mut self) {
        self.0 = None;
    }
}

impl Drop for UnfinishedFile<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // The failure that led here is the one to report; a file that cannot be removed stays,
            // empty.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// `len` as a length that a mapping can have.
fn mappable(path: &Path, len: u64) -> Result<usize, MapError> {
    match usize::try_from(len) {
        Ok(0) => Err(MapError::Empty { path: path.to_owned() }),
        Ok(len) if len <= isize::MAX as usize => Ok(len),
        _ => Err(MapError::TooLarge { path: path.to_owned(), len }),
    }
}

fn allocate(path: &Path, file: &File, len: u64, allocation: Allocation) -> Result<(), MapError> {
    let done = match allocation {
        Allocation::Sparse => ftruncate(file, len),
        Allocation::Full => fallocate_whole(file, FallocateFlags::empty(), len),
    };
    done.map_err(|errno| match errno {
        Errno::NOSPC | Errno::DQUOT => MapError::NoSpace { path: path.to_owned(), len },
        Errno::FBIG | Errno::INVAL => MapError::TooLarge { path: path.to_owned(), len },
        Errno::OPNOTSUPP => MapError::CannotAllocate { path: path.to_owned() },
        errno => MapError::io(path, "allocate it", errno.into()),
    })
}

/// `fallocate` over the whole file, begun again when a signal interrupts it.
fn fallocate_whole(file: &File, flags: FallocateFlags, len: u64) -> Result<(), Errno> {
    loop {
        match fallocate(file, flags, 0, len) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Zeroes a whole file: a sparse one by one hole, a full one without giving up its space.
fn zero_file(path: &Path, file: &File, len: u64) -> Result<bool, MapError> {
    let failed = |errno: Errno| MapError::io(path, "zero it", errno.into());
    let stat = fstat(file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(false);
    }
    // `stat` counts blocks of 512 bytes.
    let is_full = stat.st_blocks.cast_unsigned().saturating_mul(512) >= len;
    // Zeroing a range also allocates it, which is why a sparse file does without.
    if is_full && done_if_supported(fallocate_whole(file, FallocateFlags::ZERO_RANGE, len)).map_err(failed)? {
        return Ok(true);
    }
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let is_zero = done_if_supported(fallocate_whole(file, hole, len)).map_err(failed)?;
    if is_zero && is_full {
        allocate(path, file, len, Allocation::Full)?;
    }
    Ok(is_zero)
}

/// Whether it was done; false if the file system cannot do it at all.
fn done_if_supported(done: Result<(), Errno>) -> Result<bool, Errno> {
    match done {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Makes a new file, its length and its name survive a power cut.
fn make_durable(path: &Path, file: &File) -> std::io::Result<()> {
    file.sync_all()?;
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).map_or(PathBuf::from("."), PathBuf::from);
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod tests_as_root;
