//! Recovery: the files below are found again, one by one.
//!
//! The data of a file that is missing, was changed by others, or refuses stays in the pool, unless
//! the caller decides otherwise. So recovery can be repeated, and tries these files again.

use crate::below::{Below, Displaced, Disposition, FileIdentity};
use crate::cache::FileCache;
use crate::error::FileError;
use crate::open::attach::Detached;
use tidegate_media::Region;

/// What recovery did to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Which file it was.
    pub identity: FileIdentity,
    /// Where it was when it was cached.
    pub path_hint: Vec<u8>,
    /// Bytes that only the cache had.
    pub bytes: u64,
    /// Where these are now.
    pub outcome: Outcome,
}

/// Where the bytes are that an earlier process left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In the cache, which writes them back: the file below was found.
    Attached,
    /// In another file, as the caller decided.
    Salvaged(Displaced),
    /// Nowhere, as the caller decided.
    Discarded(Displaced),
    /// In the pool, until a later recovery.
    Retained(Displaced),
}

impl<R: Region> FileCache<R> {
    /// Finds the files below for every detached file. Writes nothing back: [`FileCache::drain`]
    /// does. An error is one of the memory.
    pub fn recover(&self, below: &dyn Below) -> Result<Vec<Recovered>, FileError> {
        let recover = |Detached { file, identity, path_hint, bytes }| {
            let lacks_only_its_time = self.lane().file(file)?.lacks_only_its_time();
            let found = below.find(identity, &path_hint);
            let attached = match found {
                Ok(Some(backing)) => self.attach(file, backing),
                Ok(None) => Err(FileError::Replaced),
                Err(refused) => Err(refused.into()),
            };
            let outcome = match attached {
                Ok(()) => Outcome::Attached,
                // Nothing is lost with it.
                Err(FileError::Replaced | FileError::Below(_)) if lacks_only_its_time => {
                    self.discard(file)?;
                    return Ok(None);
                }
                Err(FileError::Replaced) => self.displace(file, identity, &path_hint, Displaced::Missing, below)?,
                Err(FileError::Changed) => self.displace(file, identity, &path_hint, Displaced::Changed, below)?,
                Err(FileError::Below(refused)) => Outcome::Retained(Displaced::Refused(refused)),
                Err(error) => return Err(error),
            };
            Ok(Some(Recovered { identity, path_hint, bytes, outcome }))
        };
        self.detached().into_iter().filter_map(|detached| recover(detached).transpose()).collect()
    }

    fn displace(
        &self,
        file: crate::FileId,
        identity: FileIdentity,
        path_hint: &[u8],
        why: Displaced,
        below: &dyn Below,
    ) -> Result<Outcome, FileError> {
        let (done, outcome) = match below.displaced(identity, path_hint, why) {
            Ok(Disposition::Retain) => return Ok(Outcome::Retained(why)),
            Ok(Disposition::Salvage(into)) => (self.salvage(file, into), Outcome::Salvaged(why)),
            Ok(Disposition::Discard) => (self.discard(file), Outcome::Discarded(why)),
            Err(refused) => (Err(refused.into()), Outcome::Retained(why)),
        };
        match done {
            Ok(()) => Ok(outcome),
            Err(FileError::Below(refused)) => Ok(Outcome::Retained(Displaced::Refused(refused))),
            // A program that outlived the service stores to its blocks, which stay what they are.
            Err(FileError::Mapped) => Ok(Outcome::Retained(why)),
            Err(error) => Err(error),
        }
    }
}
