//! Protection keys, where there are none.

use std::ffi::c_void;

/// Nothing is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectionKey {}

/// An open key.
#[derive(Debug)]
pub enum OpenKey {}

impl ProtectionKey {
    /// The one key of this process: none.
    pub fn of_process() -> Option<ProtectionKey> {
        None
    }

    /// Gives the key to memory.
    ///
    /// # Safety
    /// It is never called.
    pub unsafe fn close(self, _base: *mut c_void, _len: usize) -> bool {
        match self {}
    }

    /// Opens it.
    pub fn open(self) -> OpenKey {
        match self {}
    }
}
