//! The length of a leased file, set to what it is: programs do so to be sure of it, SQLite at each
//! checkpoint.

use super::{Attempted, DirectFile, ReadAids};
use crate::os::Os;
use tidegate_file_cache::Wrote;

impl<O: Os> DirectFile<O> {
    /// Sets the file's length. By the lease nothing is done but what leaves the file as it is: its
    /// last byte is written once more, so that it has the time of a change.
    pub fn set_length(&mut self, length: u64, aids: ReadAids<'_>) -> Attempted {
        let mut last = [0];
        let is_as_before = self.lease.as_ref().is_some_and(|leased| leased.file.size() == length);
        let Some(at) = length.checked_sub(1).filter(|_| is_as_before) else { return Attempted::ByDescriptor };
        if self.read(at, &mut last, aids) != Attempted::Done(1) {
            return Attempted::ByDescriptor;
        }
        let now = self.os.now();
        // Only by the lease that the byte was read by: nobody has changed it since.
        match self.lease.as_mut().map(|leased| leased.file.write(at, &last, now)) {
            Some(Ok(Wrote::Done)) => Attempted::Done(length),
            Some(Ok(Wrote::InDoubt)) => self.resolve(length),
            _ => Attempted::ByDescriptor,
        }
    }
}
