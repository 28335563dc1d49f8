//! A mapped part of a file, for a process that owns only this part. It neither counts nor
//! allocates.

use crate::error::{Poison, Sealed};
use crate::memory::{AccessRefused, Instructions, Mapping, Sharing};
use crate::region::{ExchangeWords, Region};
use crate::sync::{AtomicU64, Ordering};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;
use std::ops::Range;

/// No store was lost.
const SOUND: u64 = u64::MAX;

/// Mapped memory as a region. A store that the medium refuses seals it: the offset is kept, and
/// every later fence reports it.
pub struct MappedPart {
    mapping: Mapping,
    pub(crate) instructions: Instructions,
    /// Offset of the first lost store, or [`SOUND`]. Relaxed everywhere: a fence reports what its
    /// own thread lost, and what others lost as soon as it sees it.
    first_lost: AtomicU64,
}

impl MappedPart {
    /// Maps `len` bytes of `file`, which others use too, from byte `at` on; a multiple of the size
    /// of a page. Children that are forked do not have the mapping. Where there are protection
    /// keys, nothing but these verbs reaches it in this process.
    ///
    /// `file` was opened for this and may be closed then: nobody else maps any of these bytes so
    /// while the mapping is there, as it keeps a lock of the open file (`F_OFD_SETLK`).
    pub fn of(file: BorrowedFd<'_>, at: u64, len: usize) -> io::Result<MappedPart> {
        // Before anything else: without the lock nothing is mapped.
        take_lock(file, LockKind::Exclusive, at, len as u64)?;
        MappedPart::unlocked(file, at, len)
    }

    /// As [`MappedPart::of`]; others may map the bytes so too.
    pub fn beside_others(file: BorrowedFd<'_>, at: u64, len: usize) -> io::Result<MappedPart> {
        take_lock(file, LockKind::Shared, at, len as u64)?;
        MappedPart::unlocked(file, at, len)
    }

    /// As [`MappedPart::of`], without a lock: whoever owns the file knows by other means that the
    /// bytes are mapped.
    pub fn unlocked(file: BorrowedFd<'_>, at: u64, len: usize) -> io::Result<MappedPart> {
        let sharing = if Mapping::is_synchronous(file) { Sharing::Synchronous } else { Sharing::Shared };
        let mut mapping = Mapping::of_part(file, at, len, sharing)?;
        mapping.keep_from_children()?;
        mapping.keep_from_strays();
        mapping.populate();
        Ok(MappedPart::over(mapping, Instructions::best(false)))
    }

    /// As [`MappedPart::unlocked`], for reading alone: stray stores of this process do not change
    /// it, so it needs no key, and its pages come as they are touched.
    pub(crate) fn read_only(file: BorrowedFd<'_>, at: u64, len: usize) -> io::Result<MappedPart> {
        let mapping = Mapping::of_part(file, at, len, Sharing::ReadOnly)?;
        mapping.keep_from_children()?;
        Ok(MappedPart::over(mapping, Instructions::best(false)))
    }

    /// Whether anybody has mapped any of these bytes with a lock, or as
    /// [`MappedRuns`](crate::MappedRuns), which has an answer of its own.
    pub fn is_mapped(file: BorrowedFd<'_>, at: u64, len: u64) -> io::Result<bool> {
        Ok(holder(file, at..at + len)?.is_some())
    }

    /// Whether no store was lost so far, as this thread knows: what a fence says, without a fence.
    pub(crate) fn sealed(&self) -> Result<(), Sealed> {
        match self.first_lost.load(Ordering::Relaxed) {
            SOUND => Ok(()),
            at => Err(Sealed::StoreLost { at }),
        }
    }

    pub(crate) fn over(mapping: Mapping, instructions: Instructions) -> MappedPart {
        MappedPart { mapping, instructions, first_lost: AtomicU64::new(SOUND) }
    }

    pub(crate) fn instructions(&self) -> Instructions {
        self.instructions
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    fn seal(&self, refused: AccessRefused) {
        // The first offset stays: the exchange fails when one is there.
        let _ = self.first_lost.compare_exchange(SOUND, refused.0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl ExchangeWords for MappedPart {
    fn exchange_u64(&self, at: u64, old: u64, new: u64) -> Result<u64, Poison> {
        self.mapping.exchange(at, old, new).map_err(|_| Poison { at, len: 8 })
    }
}

impl Region for MappedPart {
    fn len(&self) -> u64 {
        self.mapping.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        let len = out.len() as u64;
        self.mapping.read(self.instructions, at, out).map_err(|_| Poison { at, len })
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.mapping.load(at).map_err(|_| Poison { at, len: 8 })
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.mapping.write(self.instructions, at, bytes).unwrap_or_else(|refused| self.seal(refused));
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        self.mapping.stream(self.instructions, at, bytes).unwrap_or_else(|refused| self.seal(refused));
    }

    fn store_u64(&self, at: u64, word: u64) {
        self.mapping.store(at, word).unwrap_or_else(|refused| self.seal(refused));
    }

    fn flush(&self, at: u64, len: u64) {
        self.mapping.flush(self.instructions, at, len).unwrap_or_else(|refused| self.seal(refused));
    }

    fn fence(&self) -> Result<(), Sealed> {
        self.mapping.fence();
        self.sealed()
    }
}

/// Who may have a lock beside another one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LockKind {
    Exclusive,
    Shared,
}

/// Takes a lock of the open file.
pub(super) fn take_lock(file: BorrowedFd<'_>, kind: LockKind, at: u64, len: u64) -> io::Result<()> {
    command(file, libc::F_OFD_SETLK, kind, at..at + len).map(drop)
}

/// A lock that another open file has on any of these bytes: its kind, and its bytes.
pub(super) fn holder(file: BorrowedFd<'_>, range: Range<u64>) -> io::Result<Option<(LockKind, Range<u64>)>> {
    let found = command(file, libc::F_OFD_GETLK, LockKind::Exclusive, range)?;
    let kind = match i32::from(found.l_type) {
        libc::F_UNLCK => return Ok(None),
        libc::F_RDLCK => LockKind::Shared,
        _ => LockKind::Exclusive,
    };
    let [at, len] = [found.l_start, found.l_len].map(|number| u64::try_from(number).unwrap_or(0));
    // Without a length it reaches to the end of every file.
    Ok(Some((kind, at..if len == 0 { u64::MAX } else { at + len })))
}

fn command(file: BorrowedFd<'_>, command: i32, kind: LockKind, range: Range<u64>) -> io::Result<libc::flock> {
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    // SAFETY: all zeroes is a valid lock.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    let kind = match kind {
        LockKind::Exclusive => libc::F_WRLCK,
        LockKind::Shared => libc::F_RDLCK,
    };
    lock.l_type = kind.try_into().map_err(invalid)?;
    lock.l_whence = libc::SEEK_SET.try_into().map_err(invalid)?;
    lock.l_start = range.start.try_into().map_err(invalid)?;
    lock.l_len = (range.end - range.start).try_into().map_err(invalid)?;
    // SAFETY: the descriptor is open, and the lock is this function's own.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_part_is_the_files_own_bytes_and_a_lost_store_seals_it() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 12_288]).expect("a file");
        let file = File::options().read(true).write(true).open(&path).expect("it is there");
        let part = MappedPart::of(file.as_fd(), 4096, 8192).expect("mapped");
        let other = File::open(&path).expect("it is there");
        let is_mapped = |at| MappedPart::is_mapped(other.as_fd(), at, 4096).expect("it can be asked");
        part.stream(8, &[1; 100]);
        assert_eq!(part.fence(), Ok(()));
        let bytes = std::fs::read(&path).expect("readable");
        assert_eq!((bytes[4103], bytes[4104], bytes[4203], bytes[4204]), (7, 1, 1, 7));
        file.set_len(8192).expect("cut short");
        part.stream(4096, &[1; 64]);
        assert_eq!(part.fence(), Err(Sealed::StoreLost { at: 4096 }));
        drop(file);
        assert!(!is_mapped(0) && is_mapped(4096) && is_mapped(8192), "the mapping keeps the lock");
        let again = File::options().read(true).write(true).open(&path).expect("it is there");
        assert!(MappedPart::of(again.as_fd(), 8192, 4096).is_err());
        drop(part);
        assert!(!is_mapped(4096));
    }

    /// The key that the kernel tells of the mapping with `address`.
    fn key_at(address: usize) -> Option<i32> {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("the kernel tells");
        let begin = format!("{address:08x}-");
        let own = maps.lines().skip_while(|line| !line.starts_with(&begin)).skip(1);
        own.take_while(|line| !line.contains('-'))
            .find_map(|line| line.strip_prefix("ProtectionKey:")?.trim().parse().ok())
    }

    #[test]
    fn a_part_has_the_key_of_the_process_where_the_system_has_keys_and_is_used_alike() {
        let file = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
        file.set_len(8192).expect("longer");
        let part = MappedPart::of(file.as_fd(), 0, 8192).expect("mapped");
        let processors = std::fs::read_to_string("/proc/cpuinfo").expect("the kernel tells");
        let has_keys = processors.split_whitespace().any(|flag| flag == "ospke");
        assert_eq!(crate::ProtectionKey::of_process().is_some(), has_keys);
        assert_eq!(part.mapping.is_closed(), has_keys);
        assert_eq!(key_at(part.mapping.address_of(0)).is_some_and(|key| key > 0), has_keys);
        std::thread::scope(|scope| {
            let every_verb = || {
                part.write(4000, &[3; 200]);
                part.stream(100, &[4; 1000]);
                part.store_u64(8, 5);
                part.flush(4000, 200);
                assert_eq!((part.fence(), part.load_u64(8)), (Ok(()), Ok(5)));
                let mut page = [0; 4096];
                part.read(0, &mut page).expect("readable");
                assert_eq!((page[99], page[100], page[1099], page[1100], page[4000]), (0, 4, 4, 0, 3));
            };
            scope.spawn(every_verb).join().expect("a thread that never had the key open");
            every_verb();
        });
    }
}
