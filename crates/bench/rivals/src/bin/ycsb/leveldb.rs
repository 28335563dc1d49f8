//! LevelDB by its C interface: open, put, get.
//!
//! The law of the unsafe code here: a handle of LevelDB is made and freed by its owner only and is
//! valid in between. Keys and values are lent to the library for the time of a call, which copies
//! them. Its results lie in its own memory, are copied out, and given back by `leveldb_free`.

#![expect(unsafe_code, reason = "LevelDB speaks C")]

use anyhow::{Context, bail};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};

/// What the library makes; the types are its own secrets.
#[repr(C)]
struct Secret {
    _secret: [u8; 0],
}

const NO_COMPRESSION: c_int = 0;

#[link(name = "leveldb")]
unsafe extern "C" {
    fn leveldb_options_create() -> *mut Secret;
    fn leveldb_options_destroy(options: *mut Secret);
    fn leveldb_options_set_create_if_missing(options: *mut Secret, yes: u8);
    fn leveldb_options_set_error_if_exists(options: *mut Secret, yes: u8);
    fn leveldb_options_set_compression(options: *mut Secret, level: c_int);
    fn leveldb_writeoptions_create() -> *mut Secret;
    fn leveldb_writeoptions_destroy(options: *mut Secret);
    fn leveldb_readoptions_create() -> *mut Secret;
    fn leveldb_readoptions_destroy(options: *mut Secret);
    fn leveldb_open(options: *const Secret, name: *const c_char, error: *mut *mut c_char) -> *mut Secret;
    fn leveldb_close(store: *mut Secret);
    fn leveldb_put(
        store: *mut Secret,
        options: *const Secret,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
        error: *mut *mut c_char,
    );
    fn leveldb_get(
        store: *mut Secret,
        options: *const Secret,
        key: *const c_char,
        key_len: usize,
        value_len: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    fn leveldb_free(memory: *mut c_void);
}

/// An open store. Writes are not synced, and nothing is compressed.
pub(crate) struct Store {
    store: NonNull<Secret>,
    options: NonNull<Secret>,
    writing: NonNull<Secret>,
    reading: NonNull<Secret>,
}

impl Store {
    /// A new store in `folder`, which does not exist.
    pub(crate) fn create(folder: &Path) -> anyhow::Result<Store> {
        let name = CString::new(folder.as_os_str().as_bytes()).context("a path without a zero byte")?;
        let made = |handle| NonNull::new(handle).context("LevelDB has no memory");
        // SAFETY: by the law above: each handle is made here and freed in `drop`, or by the end of
        // the process if a later one fails.
        let (options, writing, reading) = unsafe {
            (made(leveldb_options_create())?, made(leveldb_writeoptions_create())?, made(leveldb_readoptions_create())?)
        };
        let mut error = null_mut();
        // SAFETY: by the law above; the name outlives the call.
        let store = unsafe {
            leveldb_options_set_create_if_missing(options.as_ptr(), 1);
            leveldb_options_set_error_if_exists(options.as_ptr(), 1);
            leveldb_options_set_compression(options.as_ptr(), NO_COMPRESSION);
            leveldb_open(options.as_ptr(), name.as_ptr(), &raw mut error)
        };
        done(error).with_context(|| format!("open a store in {}", folder.display()))?;
        Ok(Store { store: made(store)?, options, writing, reading })
    }

    /// Puts `value` under `key`.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let mut error = null_mut();
        // SAFETY: by the law above; both slices outlive the call.
        unsafe {
            leveldb_put(
                self.store.as_ptr(),
                self.writing.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                &raw mut error,
            );
        }
        done(error)
    }

    /// Copies what lies under `key` to `out`, whatever was there; false if there is nothing.
    pub(crate) fn get(&self, key: &[u8], out: &mut Vec<u8>) -> anyhow::Result<bool> {
        let (mut error, mut len) = (null_mut(), 0);
        // SAFETY: by the law above; the key outlives the call.
        let value = unsafe {
            let (store, reading) = (self.store.as_ptr(), self.reading.as_ptr());
            leveldb_get(store, reading, key.as_ptr().cast(), key.len(), &raw mut len, &raw mut error)
        };
        done(error)?;
        let Some(value) = NonNull::new(value) else { return Ok(false) };
        out.clear();
        // SAFETY: by the law above: the library made `len` bytes there, which are ours until they
        // are given back on the next line.
        unsafe {
            out.extend_from_slice(std::slice::from_raw_parts(value.as_ptr().cast(), len));
            leveldb_free(value.as_ptr().cast());
        }
        Ok(true)
    }
}

/// What the library said, if it said something.
fn done(error: *mut c_char) -> anyhow::Result<()> {
    let Some(error) = NonNull::new(error) else { return Ok(()) };
    // SAFETY: by the law above: an error is a string that the library made, and is given back after
    // it was copied.
    let text = unsafe {
        let text = CStr::from_ptr(error.as_ptr()).to_string_lossy().into_owned();
        leveldb_free(error.as_ptr().cast());
        text
    };
    bail!("LevelDB: {text}")
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: by the law above: this is the owner, and nothing uses the handles any more.
        unsafe {
            leveldb_close(self.store.as_ptr());
            leveldb_readoptions_destroy(self.reading.as_ptr());
            leveldb_writeoptions_destroy(self.writing.as_ptr());
            leveldb_options_destroy(self.options.as_ptr());
        }
    }
}
