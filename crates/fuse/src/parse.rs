//! Fields of a message, taken from its front. Each failure is the rule that the message breaks.

use std::ffi::CStr;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The rule that a message breaks.
pub(crate) type Rule = &'static str;

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Fields<'a> {
        Fields(message)
    }

    pub(crate) fn record<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Rule> {
        let (record, rest) = T::read_from_prefix(self.0).map_err(|_| "the message has all fields of its operation")?;
        self.0 = rest;
        Ok(record)
    }

    /// The bytes before the next zero byte, which end with it.
    pub(crate) fn string(&mut self) -> Result<&'a CStr, Rule> {
        let string = CStr::from_bytes_until_nul(self.0).map_err(|_| "a string ends with a zero byte")?;
        if string.is_empty() {
            return Err("a string has a byte");
        }
        self.0 = &self.0[string.count_bytes() + 1..];
        Ok(string)
    }

    /// The name of an entry in a directory.
    pub(crate) fn name(&mut self) -> Result<&'a CStr, Rule> {
        let name = self.string()?;
        match name.to_bytes() {
            b"." | b".." => Err("a name is not that of a directory itself"),
            bytes if bytes.contains(&b'/') => Err("a name has no slash"),
            _ => Ok(name),
        }
    }

    /// The next `len` bytes.
    pub(crate) fn data(&mut self, len: usize) -> Result<&'a [u8], Rule> {
        let (data, rest) = self.0.split_at_checked(len).ok_or("the message has all of its data")?;
        self.0 = rest;
        Ok(data)
    }

    /// Takes `len` bytes off the end.
    pub(crate) fn drop_last(&mut self, len: usize) -> Result<(), Rule> {
        let kept = self.0.len().checked_sub(len).ok_or("extensions lie within the message")?;
        self.0 = &self.0[..kept];
        Ok(())
    }

    pub(crate) fn end(&self) -> Result<(), Rule> {
        if self.0.is_empty() { Ok(()) } else { Err("the message ends after its last field") }
    }
}
