//! Keeps a value on cache lines of its own, so that neighbours in a row do not slow each other.

use std::ops::Deref;

/// A value that shares its cache line with no other.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
