//! How often files were synced by the kernel lately, whoever opened them: a program may open a file
//! anew for each of its syncs, as SQLite does with its journal.
//!
//! To hold a file and to end that costs syncs of the disk. What ended one hold may end the next one
//! as soon (SQLite cuts its journal at the end of each transaction, if it is told to), so a file
//! that is asked for again has to be synced twice as often each time.

use crate::asked;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_preload_wire::FileId;

/// A file that the kernel synced. Only a memory: what two threads make of it at once costs a hold
/// too early or too late.
struct Recent {
    device: AtomicU64,
    inode: AtomicU64,
    /// 0: nothing is remembered here.
    born_ns: AtomicU64,
    /// Syncs since it was last asked for,
    syncs: AtomicU64,
    /// and how often it was.
    asked: AtomicU64,
}

/// Times that make a difference.
const ASKED_MAX: u64 = 6;

static RECENT: [Recent; 16] = [const {
    Recent {
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
        born_ns: AtomicU64::new(0),
        syncs: AtomicU64::new(0),
        asked: AtomicU64::new(0),
    }
}; 16];
/// Which one is forgotten next.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Recent {
    fn is(&self, file: FileId, born_ns: u64) -> bool {
        let known = FileId { device: self.device.load(Ordering::Relaxed), inode: self.inode.load(Ordering::Relaxed) };
        known == file && self.born_ns.load(Ordering::Relaxed) == born_ns
    }

    /// What its syncs count for.
    fn worth(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed) >> self.asked.load(Ordering::Relaxed).min(ASKED_MAX)
    }
}

fn find(file: FileId, born_ns: u64) -> Option<&'static Recent> {
    RECENT.iter().find(|recent| recent.is(file, born_ns))
}

/// The file behind `descriptor` and its birth. A file without one is never held.
fn born(descriptor: i32) -> Option<(FileId, u64)> {
    let (file, born_ns) = asked::born(descriptor)?;
    Some((file, born_ns.filter(|born_ns| *born_ns != 0)?))
}

/// The kernel synced the file behind `descriptor`: how many syncs of it that counts for by now.
pub(crate) fn count(descriptor: i32) -> u64 {
    let Some((file, born_ns)) = born(descriptor) else { return 0 };
    let recent = find(file, born_ns).unwrap_or_else(|| {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % RECENT.len() as u64;
        let fresh = &RECENT[usize::try_from(next).unwrap_or(0)];
        fresh.syncs.store(0, Ordering::Relaxed);
        fresh.asked.store(0, Ordering::Relaxed);
        fresh.device.store(file.device, Ordering::Relaxed);
        fresh.inode.store(file.inode, Ordering::Relaxed);
        fresh.born_ns.store(born_ns, Ordering::Relaxed);
        fresh
    });
    recent.syncs.fetch_add(1, Ordering::Relaxed);
    recent.worth()
}

/// Whether it is so many. Only if there is such a file, it is asked which one that is.
pub(crate) fn reached(descriptor: i32, syncs: u64) -> bool {
    let often = |recent: &Recent| recent.worth() >= syncs;
    RECENT.iter().any(often) && born(descriptor).and_then(|(file, born_ns)| find(file, born_ns)).is_some_and(often)
}

/// The file behind `descriptor` is asked for: it is counted anew.
pub(crate) fn begin_anew(descriptor: i32) {
    let known = born(descriptor).and_then(|(file, born_ns)| find(file, born_ns));
    if let Some(recent) = known {
        recent.syncs.store(0, Ordering::Relaxed);
        recent.asked.fetch_add(1, Ordering::Relaxed);
    }
}
