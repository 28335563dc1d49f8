//! PMDK as subjects: libpmem's durable copy, and the block pool of libpmemblk.
//!
//! The law of the unsafe code here: a handle of PMDK is made and freed by its owner only, is valid
//! in between, and is passed to the library from any thread, as its manual allows ("all functions
//! are thread-safe"). No Rust reference ever points into memory that PMDK maps; the library alone
//! stores to it.

#![expect(unsafe_code, reason = "PMDK speaks C")]

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, NonNull};
use tidegate_measure::medium::MemoryPath;
use tidegate_measure::subject::{BLOCK_BYTES, Block, Subject, sweep};

/// A pool of libpmemblk; the type is the library's own secret.
#[repr(C)]
struct PmemBlkPool {
    _secret: [u8; 0],
}

const PMEM_FILE_CREATE: c_int = 1;
const PMEM_FILE_EXCL: c_int = 2;
const OWNER_ONLY: u32 = 0o600;

#[link(name = "pmem")]
unsafe extern "C" {
    fn pmem_map_file(
        path: *const c_char,
        len: usize,
        flags: c_int,
        mode: u32,
        mapped_len: *mut usize,
        is_pmem: *mut c_int,
    ) -> *mut c_void;
    fn pmem_unmap(address: *mut c_void, len: usize) -> c_int;
    fn pmem_memcpy_persist(destination: *mut c_void, source: *const c_void, len: usize) -> *mut c_void;
    fn pmem_errormsg() -> *const c_char;
}

#[link(name = "pmemblk")]
unsafe extern "C" {
    fn pmemblk_create(path: *const c_char, block_size: usize, pool_size: usize, mode: u32) -> *mut PmemBlkPool;
    fn pmemblk_close(pool: *mut PmemBlkPool);
    fn pmemblk_nblock(pool: *mut PmemBlkPool) -> usize;
    fn pmemblk_write(pool: *mut PmemBlkPool, block: *const c_void, at: c_longlong) -> c_int;
    fn pmemblk_errormsg() -> *const c_char;
}

/// 4 KiB copies through `pmem_memcpy_persist` into a file that libpmem maps.
pub(crate) struct PersistCopies {
    mapped: NonNull<c_void>,
    len: usize,
}

// SAFETY: by the law above: the handle is the owner's, and the library takes it from any thread.
unsafe impl Send for PersistCopies {}
// SAFETY: as above.
unsafe impl Sync for PersistCopies {}

impl PersistCopies {
    /// Maps a nameless file of `len` bytes. Without `PMEM_IS_PMEM_FORCE=1` the library would sync
    /// it by system calls.
    pub(crate) fn new(len: u64) -> anyhow::Result<PersistCopies> {
        let path = MemoryPath::new();
        let name = CString::new(path.as_path().as_os_str().as_bytes())?;
        let (mut mapped_len, mut is_pmem) = (0, 0);
        let flags = PMEM_FILE_CREATE | PMEM_FILE_EXCL;
        // SAFETY: the name ends with a zero byte; both results are written to places that live
        // through the call.
        let mapped = unsafe {
            pmem_map_file(name.as_ptr(), usize::try_from(len)?, flags, OWNER_ONLY, &mut mapped_len, &mut is_pmem)
        };
        // SAFETY: the message is a string of the calling thread, never null, valid until its next
        // call of PMDK.
        let mapped = NonNull::new(mapped).ok_or_else(|| complaint(unsafe { CStr::from_ptr(pmem_errormsg()) }))?;
        anyhow::ensure!(is_pmem == 1, "libpmem takes {} for no persistent memory", path.as_path().display());
        Ok(PersistCopies { mapped, len: mapped_len })
    }

    /// Where block `at` lies: all of it in the mapping.
    fn block(&self, at: u32) -> *mut c_void {
        let offset = at as usize * BLOCK_BYTES;
        assert!(offset + BLOCK_BYTES <= self.len, "block {at} is outside the mapping");
        self.mapped.as_ptr().wrapping_byte_add(offset)
    }
}

impl Subject for PersistCopies {
    fn blocks(&self) -> u32 {
        u32::try_from(self.len / BLOCK_BYTES).expect("a few GiB at most")
    }
    fn step(&self, at: u32, block: &mut Block) {
        // SAFETY: the mapping is valid while `self` lives, the block was checked to lie in it, and
        // the source is a whole block outside of it.
        unsafe { pmem_memcpy_persist(self.block(at), block.bytes().as_ptr().cast(), BLOCK_BYTES) };
    }
}

impl Drop for PersistCopies {
    fn drop(&mut self) {
        // SAFETY: the mapping is this owner's, and nobody uses it after this.
        unsafe { pmem_unmap(self.mapped.as_ptr(), self.len) };
    }
}

/// 4 KiB copies out of a file that libpmem maps, by the C library's `memcpy`, which a copy of so
/// many bytes is compiled to.
pub(crate) struct PlainCopiesOut(PersistCopies);

impl PlainCopiesOut {
    /// Maps a nameless file of `len` bytes, and stores to all of them: what was never stored to may
    /// all be one page.
    pub(crate) fn new(len: u64) -> anyhow::Result<PlainCopiesOut> {
        let mapped = PersistCopies::new(len)?;
        sweep(&mapped);
        Ok(PlainCopiesOut(mapped))
    }
}

impl Subject for PlainCopiesOut {
    fn blocks(&self) -> u32 {
        self.0.blocks()
    }
    fn step(&self, at: u32, block: &mut Block) {
        let from = self.0.block(at);
        // SAFETY: the mapping is valid while `self` lives, the block was checked to lie in it, and
        // the target is a whole block outside of it.
        unsafe { ptr::copy_nonoverlapping(from.cast(), block.bytes_mut().as_mut_ptr(), BLOCK_BYTES) };
    }
}

/// 4 KiB writes to a pool of libpmemblk, whose engine is a block translation table too.
pub(crate) struct PoolWrites {
    pool: NonNull<PmemBlkPool>,
    blocks: u32,
}

// SAFETY: by the law above: the handle is the owner's, and the library takes it from any thread.
unsafe impl Send for PoolWrites {}
// SAFETY: as above.
unsafe impl Sync for PoolWrites {}

impl PoolWrites {
    /// Makes a nameless pool of `len` bytes.
    pub(crate) fn new(len: u64) -> anyhow::Result<PoolWrites> {
        let path = MemoryPath::new();
        let name = CString::new(path.as_path().as_os_str().as_bytes())?;
        // SAFETY: the name ends with a zero byte and lives through the call.
        let pool = unsafe { pmemblk_create(name.as_ptr(), BLOCK_BYTES, usize::try_from(len)?, OWNER_ONLY) };
        // SAFETY: the message is a string of the calling thread, never null, valid until its next
        // call of PMDK.
        let pool = NonNull::new(pool).ok_or_else(|| complaint(unsafe { CStr::from_ptr(pmemblk_errormsg()) }))?;
        // SAFETY: the pool was made above and lives.
        let blocks = unsafe { pmemblk_nblock(pool.as_ptr()) };
        Ok(PoolWrites { pool, blocks: u32::try_from(blocks)? })
    }
}

impl Subject for PoolWrites {
    fn blocks(&self) -> u32 {
        self.blocks
    }
    fn step(&self, at: u32, block: &mut Block) {
        // SAFETY: the pool lives while `self` does; the source is a whole block; the library
        // refuses blocks it lacks.
        let status = unsafe { pmemblk_write(self.pool.as_ptr(), block.bytes().as_ptr().cast(), c_longlong::from(at)) };
        assert_eq!(status, 0, "libpmemblk writes block {at}");
    }
}

impl Drop for PoolWrites {
    fn drop(&mut self) {
        // SAFETY: the pool is this owner's, and nobody uses it after this.
        unsafe { pmemblk_close(self.pool.as_ptr()) };
    }
}

fn complaint(message: &CStr) -> anyhow::Error {
    anyhow::anyhow!("PMDK: {}", message.to_string_lossy())
}
