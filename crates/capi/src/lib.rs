//! Tidegate for C programs: a disk behind persistent memory, with transactions, and logs.
//!
//! Everything unsafe is in this file, and is only this: pointers from C become references or slices
//! for the time of one call, or boxes that C holds by their address. The law that callers have to
//! keep stands in the header; each block here cites it.
//!
//! - **L1** A handle is null, or came from this library and was not given back (closed, committed
//!   or aborted) since.
//! - **L2** A path or another text is null or ends with a zero byte.
//! - **L3** A buffer is null or has as many bytes as the call says, which nobody else changes
//!   meanwhile.
//! - **L4** A place for a result is null or can be written to.
//! - **L5** A transaction is used by one thread at a time; so is a cache or log that is being
//!   closed.
//! - **L6** A function that is called back returns, and does not close the handle that called it.
//!
//! A handle belongs to the process that got it. A child of it has a copy of everything in memory,
//! and no part in what its parent does from then on: there every function but those that give a
//! handle back refuses, and giving one back frees the copy and leaves the region, the disk and
//! their locks alone.
//!
//! `include/tidegate.h` is made from this file by cbindgen; a test compares them.

mod cache;
mod log;
mod options;
mod status;

pub use cache::{Cache, Transaction};
pub use log::Log;
pub use status::Status;

use status::{CallFailure, ended};
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tidegate_append_log::OnDamage;

/// Makes a new region of `bytes` bytes in the file `pmem`, which may not exist, in front of `disk`:
/// a block device or a file, to which nothing is written. `block_size` is a power of two from 512
/// to 65536.
///
/// # Safety
/// L2 for both paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_create(
    pmem: *const c_char,
    bytes: u64,
    disk: *const c_char,
    block_size: u32,
) -> Status {
    // SAFETY: L2 for both.
    unsafe { tidegate_create_with(pmem, bytes, disk, block_size, std::ptr::null()) }
}

/// Does as tidegate_create(), with `options` if they are not null: `checksums=on` keeps a checksum
/// of each block. `ordered=on` has the disk keep the order of commits: at every instant it alone is
/// what all commits up to a moment left, and `tidegate replay` makes it so if the region is lost.
/// The end of the disk becomes its journal, with as many blocks as the region; it may hold nothing
/// but zeroes, and no file system or partition table may call it its own. With `force=on` it may
/// hold anything. A disk that has the journal of another region is refused, whether this one is
/// ordered or not, as that may have blocks that the disk lacks: run `tidegate detach` on that
/// region, which erases the journal; with `force=on` nobody asks. A disk amid a group is always
/// refused: see `tidegate replay`.
///
/// # Safety
/// L2 for both paths and for `options`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_create_with(
    pmem: *const c_char,
    bytes: u64,
    disk: *const c_char,
    block_size: u32,
    options: *const c_char,
) -> Status {
    ended(|| {
        // SAFETY: L2, and the texts are used within this call only.
        let (pmem, disk, words) = unsafe { (path(pmem)?, path(disk)?, words(options)?) };
        Cache::create(pmem, bytes, disk, block_size, words)
    })
}

/// Opens the cache in `pmem` in front of `disk`, and finishes what was interrupted. `*out` is to be
/// closed by tidegate_close(). Another disk is refused; but disks that have no name, as some
/// virtual ones, are not told from each other. If a disk in a file was changed since the region was
/// closed in good order, what is cached is dropped; if some of it is dirty, opening is refused
/// (TIDEGATE_REFUSED). If another process has the region or the disk, this waits for it for up to
/// 10 s, as the kernel may be about to end a process that was killed; not for a process of the same
/// program, nor for a server: then it fails at once (TIDEGATE_IN_USE).
///
/// # Safety
/// L2 for both paths, L4 for `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_open(pmem: *const c_char, disk: *const c_char, out: *mut *mut Cache) -> Status {
    // SAFETY: L2 for both, L4.
    unsafe { tidegate_open_with(pmem, disk, std::ptr::null(), out) }
}

/// Does as tidegate_open(), with `options` if they are not null: words of the command line and
/// their values, parted by commas. `disk-mode` (write-back, write-through, write-around,
/// write-only, pass-through, read-only), `replacement` (lru, clock, sieve, 2q, s3-fifo), `admit`
/// (always, never, second-miss), `sequential-cutoff` (bytes; 0: no run of reads is too long to come
/// in), `forget-reads` (on, off: whether nothing is flushed for blocks that are read, so that the
/// next opening has forgotten them), and `conflicts`: of transactions that touch the same blocks at
/// the same time, with `last-wins` the last one wins each block, with `refuse` it gets
/// TIDEGATE_CONFLICT.
///
/// # Safety
/// L2 for both paths and for `options`, L4 for `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_open_with(
    pmem: *const c_char,
    disk: *const c_char,
    options: *const c_char,
    out: *mut *mut Cache,
) -> Status {
    ended(|| {
        // SAFETY: L4.
        let out = unsafe { out.as_mut() }.ok_or(CallFailure::Null)?;
        // SAFETY: L2, and the texts are used within this call only.
        let (pmem, disk, words) = unsafe { (path(pmem)?, path(disk)?, words(options)?) };
        let cache = Cache::open(pmem, disk, words)?;
        *out = Arc::into_raw(Arc::new(cache)).cast_mut();
        Ok(())
    })
}

/// Gives the cache back. What is dirty stays so, durably. Transactions that were begun keep it open
/// until they are committed or aborted. Null is allowed. In a forked child this frees the child's
/// copy and closes its descriptors; the parent goes on with the region and the disk, which stay
/// locked for it.
///
/// # Safety
/// L1 and L5.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_close(cache: *mut Cache) -> Status {
    ended(|| {
        if !cache.is_null() {
            // SAFETY: L1: it came from `Arc::into_raw` in `tidegate_open`, and comes back once.
            drop(unsafe { Arc::from_raw(cache.cast_const()) });
        }
        Ok(())
    })
}

/// Bytes in a block; 0 for null, and in a forked child.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_block_size(cache: *const Cache) -> u32 {
    // SAFETY: L1.
    number(unsafe { given(cache) }, |cache| cache.geometry().block_size)
}

/// Blocks of the disk; 0 for null, and in a forked child.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_blocks(cache: *const Cache) -> u64 {
    // SAFETY: L1.
    number(unsafe { given(cache) }, |cache| cache.geometry().blocks)
}

/// Blocks that a transaction may have at most; 0 for null, and in a forked child.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_transaction_blocks_max(cache: *const Cache) -> u32 {
    // SAFETY: L1.
    number(unsafe { given(cache) }, Cache::transaction_blocks_max)
}

/// Reads `bytes` bytes, whole blocks, from block `block` on.
///
/// # Safety
/// L1, and L3 for `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_read(cache: *const Cache, block: u64, out: *mut u8, bytes: usize) -> Status {
    // SAFETY: L1 and L3.
    ended(|| unsafe { given(cache) }?.read(block, unsafe { room(out, bytes) }?))
}

/// Writes `bytes` bytes, whole blocks, from block `block` on: durable on return as far as the
/// memory is. Up to 1 MiB, and no more than tidegate_transaction_blocks_max() blocks, is put in
/// place as a whole; in the modes write-around and pass-through, what the disk does as a whole.
///
/// # Safety
/// L1, and L3 for `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_write(cache: *const Cache, block: u64, data: *const u8, bytes: usize) -> Status {
    // SAFETY: L1 and L3.
    ended(|| unsafe { given(cache) }?.write(block, unsafe { slice(data, bytes) }?))
}

/// Moves at most `blocks_max` dirty blocks to the disk, from the calling thread. `*dirty` is how
/// many are dirty then; it may be null. Nobody else does this: a program that never calls it fills
/// the region, and then waits for the disk in its writes.
///
/// # Safety
/// L1, and L4 for `dirty`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_destage(cache: *const Cache, blocks_max: u32, dirty: *mut u64) -> Status {
    ended(|| {
        // SAFETY: L1.
        let left = unsafe { given(cache) }?.destage(blocks_max)?;
        // SAFETY: L4.
        unsafe { dirty.as_mut() }.into_iter().for_each(|dirty| *dirty = left);
        Ok(())
    })
}

/// Begins a transaction. `*out` is to be given to tidegate_commit() or tidegate_abort().
///
/// # Safety
/// L1, and L4 for `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_begin(cache: *const Cache, out: *mut *mut Transaction) -> Status {
    ended(|| {
        // SAFETY: L4.
        let out = unsafe { out.as_mut() }.ok_or(CallFailure::Null)?;
        // SAFETY: L1.
        unsafe { given(cache) }?;
        // SAFETY: L1: it came from `Arc::into_raw`, whose count goes up for the one that is made
        // here.
        unsafe { Arc::increment_strong_count(cache) };
        // SAFETY: as above.
        let owned = unsafe { Arc::from_raw(cache) };
        *out = Box::into_raw(Box::new(Transaction::begin(&owned)));
        Ok(())
    })
}

/// Adds whole blocks to a transaction: nobody else sees them before it is committed. One block more
/// than tidegate_transaction_blocks_max() is refused with TIDEGATE_TOO_LARGE, and the transaction
/// stays as it was.
///
/// # Safety
/// L1 and L5, and L3 for `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_transaction_write(
    transaction: *mut Transaction,
    block: u64,
    data: *const u8,
    bytes: usize,
) -> Status {
    ended(|| {
        // SAFETY: L1 and L5.
        let transaction = unsafe { transaction.as_mut() }.ok_or(CallFailure::Null)?.own()?;
        // SAFETY: L3.
        transaction.write(block, unsafe { slice(data, bytes) }?)
    })
}

/// Reads blocks as the transaction sees them: its own writes, and of the rest what is committed at
/// that moment.
///
/// # Safety
/// L1 and L5, and L3 for `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_transaction_read(
    transaction: *mut Transaction,
    block: u64,
    out: *mut u8,
    bytes: usize,
) -> Status {
    ended(|| {
        // SAFETY: L1 and L5.
        let transaction = unsafe { transaction.as_mut() }.ok_or(CallFailure::Null)?.own()?;
        // SAFETY: L3.
        transaction.read(block, unsafe { room(out, bytes) }?)
    })
}

/// Puts all that the transaction wrote in place at once, durably as far as the memory is, and frees
/// it. After TIDEGATE_MISUSE, TIDEGATE_TOO_LARGE or TIDEGATE_CONFLICT nothing of it is in place;
/// the last comes if the cache was opened to refuse conflicts. After TIDEGATE_SEALED the next
/// opening shows all of it or nothing. In the modes write-through, write-around and pass-through
/// the disk is asked behind the commit: if it fails (TIDEGATE_MEDIA, TIDEGATE_SEALED), all of it is
/// in place, and dirty. Read the blocks before trying again.
///
/// # Safety
/// L1 and L5.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_commit(transaction: *mut Transaction) -> Status {
    ended(|| {
        // SAFETY: L1 and L5.
        let mut transaction = unsafe { taken(transaction) }?;
        transaction.own()?;
        transaction.commit()
    })
}

/// Forgets all that the transaction wrote, and frees it. Null is allowed. In a forked child this
/// frees the child's copy.
///
/// # Safety
/// L1 and L5.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_abort(transaction: *mut Transaction) -> Status {
    ended(|| {
        if !transaction.is_null() {
            // SAFETY: L1 and L5.
            drop(unsafe { taken(transaction) }?);
        }
        Ok(())
    })
}

/// Makes an append-only log: a new region of `bytes` bytes in the file `pmem`, which may not exist,
/// in front of `below`: a block device, or a file that is empty or not there, which then gets room
/// for `capacity` bytes without taking it. 0 stands for about 40 MiB, and for 1 TiB.
///
/// # Safety
/// L2 for both paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_log_create(
    pmem: *const c_char,
    bytes: u64,
    below: *const c_char,
    capacity: u64,
) -> Status {
    // SAFETY: L2, and the texts are used within this call only.
    ended(|| Log::create(unsafe { path(pmem) }?, bytes, unsafe { path(below) }?, capacity))
}

/// Opens the log in `pmem` in front of `below`: it ends with the last sync that was answered, or
/// with one that was under way. `*out` is to be closed by tidegate_log_close(). A thread of the
/// library moves full parts of the log below. If bytes of the log are damaged, opening is refused
/// (TIDEGATE_REFUSED), and the message names them. It is refused too if `below` is absent or too
/// short; TIDEGATE_SYSTEM means that `pmem` is not there, or that the system refused.
///
/// # Safety
/// L2 for both paths, L4 for `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_log_open(pmem: *const c_char, below: *const c_char, out: *mut *mut Log) -> Status {
    // SAFETY: L2 for both, L4.
    unsafe { log_opened(pmem, below, OnDamage::Refuse, out) }
}

/// Does as tidegate_log_open(), and opens a damaged log for reading the bytes that are whole.
///
/// # Safety
/// L2 for both paths, L4 for `out`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_log_open_damaged(
    pmem: *const c_char,
    below: *const c_char,
    out: *mut *mut Log,
) -> Status {
    // SAFETY: L2 for both, L4.
    unsafe { log_opened(pmem, below, OnDamage::ReadOnly, out) }
}

/// Appends `bytes` bytes; `*end`, which may be null, is where they end in the log. They are durable
/// after tidegate_log_sync(). Waits while the region has no room. TIDEGATE_SYSTEM or TIDEGATE_MEDIA
/// if what lies below has none or refuses: what was synced is kept, and the call may be repeated
/// later, from the end that tidegate_log_sync() tells.
///
/// # Safety
/// L1, L3 for `data`, and L4 for `end`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_log_append(log: *const Log, data: *const u8, bytes: usize, end: *mut u64) -> Status {
    // SAFETY: L1, L3 and L4.
    told(end, || unsafe { given_log(log) }?.append(unsafe { slice(data, bytes) }?))
}

/// Makes durable what was appended before, as far as the memory is; `*end`, which may be null, is
/// where it ends. After TIDEGATE_SEALED nobody knows whether the last bytes are durable: close the
/// log, and open it anew.
///
/// # Safety
/// L1, and L4 for `end`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_log_sync(log: *const Log, end: *mut u64) -> Status {
    // SAFETY: L1 and L4.
    told(end, || unsafe { given_log(log) }?.sync())
}

/// Tells where the log begins and where its durable bytes end. Either place may be null.
///
/// # Safety
/// L1, and L4 for `begin` and `end`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_log_places(log: *const Log, begin: *mut u64, end: *mut u64) -> Status {
    ended(|| {
        // SAFETY: L1.
        let (from, to) = unsafe { given_log(log) }?.places();
        // SAFETY: L4 for both.
        unsafe { begin.as_mut() }.into_iter().for_each(|begin| *begin = from);
        // SAFETY: as above.
        unsafe { end.as_mut() }.into_iter().for_each(|end| *end = to);
        Ok(())
    })
}

/// Reads at most `bytes` durable bytes from byte `at` of the log on; `*got` is how many, which may
/// be fewer: 0 at the end only.
///
/// # Safety
/// L1, L3 for `out`, and L4 for `got`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_log_read(
    log: *const Log,
    at: u64,
    out: *mut u8,
    bytes: usize,
    got: *mut u64,
) -> Status {
    // SAFETY: L1, L3 and L4.
    told(got, || Ok(unsafe { given_log(log) }?.read(at, unsafe { room(out, bytes) }?)? as u64))
}

/// Calls `visit` with `with` and all durable bytes from byte `from` of the log on, or from its
/// begin, part by part in their order, each part with the place of its first byte. A part is there
/// for the time of the call only. `visit` returns 0 to go on.
///
/// # Safety
/// L1, and L6 for `visit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_log_replay(
    log: *const Log,
    from: u64,
    visit: Option<unsafe extern "C" fn(with: *mut c_void, at: u64, data: *const u8, bytes: usize) -> c_int>,
    with: *mut c_void,
) -> Status {
    ended(|| {
        let visit = visit.ok_or(CallFailure::Null)?;
        // SAFETY: L6, and the part lives as long as the call.
        let shown = |at, part: &[u8]| unsafe { visit(with, at, part.as_ptr(), part.len()) } == 0;
        // SAFETY: L1.
        unsafe { given_log(log) }?.replay(from, shown)
    })
}

/// Has the log begin at byte `offset`, durably; room of what lies before is given back below. Bytes
/// that are not durable cannot be dropped (TIDEGATE_MISUSE).
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_log_drop_behind(log: *const Log, offset: u64) -> Status {
    // SAFETY: L1.
    ended(|| unsafe { given_log(log) }?.drop_behind(offset))
}

/// Moves all durable bytes below, from the calling thread: byte n of the log is then byte n of the
/// file, as long as that is no longer than its capacity, and zeroes follow the last one.
///
/// # Safety
/// L1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_log_write_back(log: *const Log) -> Status {
    // SAFETY: L1.
    ended(|| unsafe { given_log(log) }?.write_back())
}

/// Makes durable what was appended, and gives the log back, whatever the answer is. Null is
/// allowed. In a forked child this frees the child's copy, and the parent goes on.
///
/// # Safety
/// L1 and L5.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tidegate_log_close(log: *mut Log) -> Status {
    ended(|| {
        if log.is_null() {
            return Ok(());
        }
        // SAFETY: L1: it came from `Box::into_raw` in `log_opened`, and comes back once.
        unsafe { Box::from_raw(log) }.close()
    })
}

/// What was wrong with the last call of this thread that did not return TIDEGATE_OK; it stays until
/// the next such call.
#[unsafe(no_mangle)]
pub extern "C" fn tidegate_message() -> *const c_char {
    status::message()
}

/// A number about `of`; 0 if it may not be used, or the library has a mistake.
fn number<N: Default>(of: Result<&Cache, CallFailure>, about: impl FnOnce(&Cache) -> N) -> N {
    let mut number = N::default();
    let asked = ended(|| {
        number = about(of?);
        Ok(())
    });
    if asked == Status::TidegateOk { number } else { N::default() }
}

/// # Safety
/// L1, for as long as the answer lives.
unsafe fn given<'a>(cache: *const Cache) -> Result<&'a Cache, CallFailure> {
    // SAFETY: the caller keeps L1.
    unsafe { cache.as_ref() }.ok_or(CallFailure::Null)?.own()
}

/// # Safety
/// L2 for both paths, L4 for `out`.
unsafe fn log_opened(pmem: *const c_char, below: *const c_char, on_damage: OnDamage, out: *mut *mut Log) -> Status {
    ended(|| {
        // SAFETY: L4.
        let out = unsafe { out.as_mut() }.ok_or(CallFailure::Null)?;
        // SAFETY: L2, and the texts are used within this call only.
        let log = Log::open(unsafe { path(pmem) }?, unsafe { path(below) }?, on_damage)?;
        *out = Box::into_raw(Box::new(log));
        Ok(())
    })
}

/// Puts the number that `call` answers at `place`, which keeps L4.
fn told(place: *mut u64, call: impl FnOnce() -> Result<u64, CallFailure>) -> Status {
    ended(|| {
        let number = call()?;
        // SAFETY: the caller keeps L4.
        unsafe { place.as_mut() }.into_iter().for_each(|place| *place = number);
        Ok(())
    })
}

/// # Safety
/// L1, for as long as the answer lives.
unsafe fn given_log<'a>(log: *const Log) -> Result<&'a Log, CallFailure> {
    // SAFETY: the caller keeps L1.
    unsafe { log.as_ref() }.ok_or(CallFailure::Null)?.own()
}

/// # Safety
/// L1 and L5; the handle is not used any more.
unsafe fn taken(transaction: *mut Transaction) -> Result<Box<Transaction>, CallFailure> {
    if transaction.is_null() {
        return Err(CallFailure::Null);
    }
    // SAFETY: L1: it came from `Box::into_raw` in `tidegate_begin`, and comes back once.
    Ok(unsafe { Box::from_raw(transaction) })
}

/// # Safety
/// L2, for as long as the answer lives.
unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path, CallFailure> {
    if text.is_null() {
        return Err(CallFailure::Null);
    }
    // SAFETY: the caller keeps L2.
    let text = unsafe { CStr::from_ptr(text) };
    let bytes = text.to_bytes();
    if bytes.is_empty() { Err(CallFailure::Text) } else { Ok(Path::new(OsStr::from_bytes(bytes))) }
}

/// Options as they were named; null names none.
///
/// # Safety
/// L2, for as long as the answer lives.
unsafe fn words<'a>(text: *const c_char) -> Result<&'a str, CallFailure> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: the caller keeps L2.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| CallFailure::Text)
}

/// # Safety
/// L3, for as long as the answer lives.
unsafe fn slice<'a>(data: *const u8, bytes: usize) -> Result<&'a [u8], CallFailure> {
    if data.is_null() || isize::try_from(bytes).is_err() {
        return Err(CallFailure::Null);
    }
    // SAFETY: the caller keeps L3, and no slice is longer than `isize` says.
    Ok(unsafe { std::slice::from_raw_parts(data, bytes) })
}

/// # Safety
/// L3, for as long as the answer lives.
unsafe fn room<'a>(out: *mut u8, bytes: usize) -> Result<&'a mut [u8], CallFailure> {
    if out.is_null() || isize::try_from(bytes).is_err() {
        return Err(CallFailure::Null);
    }
    // SAFETY: the caller keeps L3, and no slice is longer than `isize` says.
    Ok(unsafe { std::slice::from_raw_parts_mut(out, bytes) })
}
