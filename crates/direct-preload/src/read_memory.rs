//! The DRAM in which this process keeps pages of leased files that it read. It is mapped with the
//! first page, and a child that is forked finds it empty.

use crate::process;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::null_mut;
use std::slice;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use tidegate_file_direct::ReadCache;
use tidegate_file_wire::{READ_CACHE, READ_CACHE_BYTES};

/// Its bytes; 0: there is none.
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// Where it is mapped; null: it is not yet.
static AT: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// Looks how large it is to be. Before the program begins.
pub(crate) fn start() {
    let said = process::said(READ_CACHE).and_then(|said| said.to_str().ok()?.parse().ok());
    BYTES.store(said.or(usize::try_from(READ_CACHE_BYTES).ok()).unwrap_or(0), Ordering::Relaxed);
}

/// The pages that are kept; `None`: the process keeps none.
pub(crate) fn cache() -> Option<ReadCache<'static>> {
    let bytes = BYTES.load(Ordering::Relaxed);
    if bytes == 0 {
        return None;
    }
    // Acquire: pairs with `mapped`.
    let known = AT.load(Ordering::Acquire);
    let at = if known.is_null() { mapped(bytes)? } else { known };
    // SAFETY: L6.
    ReadCache::over(unsafe { slice::from_raw_parts(at, bytes / size_of::<AtomicU64>()) })
}

/// Where it is mapped from now on: another thread may have done so meanwhile.
#[cold]
fn mapped(bytes: usize) -> Option<*mut AtomicU64> {
    let Some(at) = reserved(bytes) else {
        // The kernel is not asked again.
        BYTES.store(0, Ordering::Relaxed);
        return None;
    };
    match AT.compare_exchange(null_mut(), at, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(at),
        Err(others) => {
            // SAFETY: it was just mapped, and nobody else knows it.
            let _ = unsafe { munmap(at.cast(), bytes) };
            Some(others)
        }
    }
}

/// Memory that takes room as it is used, and that forks wipe. `None`: the kernel refuses.
fn reserved(bytes: usize) -> Option<*mut AtomicU64> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at a place that the kernel chooses.
    let at = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }.ok()?;
    // Pages are used one by one, and are nothing to look for in a core dump: without these two
    // they only cost more.
    for advice in [Advice::LinuxNoHugepage, Advice::LinuxDontDump] {
        // SAFETY: it was just mapped, and nobody else knows it.
        let _ = unsafe { madvise(at, bytes, advice) };
    }
    // SAFETY: as above.
    if unsafe { madvise(at, bytes, Advice::LinuxWipeOnFork) }.is_ok() {
        return Some(at.cast());
    }
    // SAFETY: as above.
    let _ = unsafe { munmap(at, bytes) };
    None
}
