//! A region whose fences reach its file, wherever that lies.
//!
//! In an ordinary file a fence makes nothing durable: its region lies in the page cache. Here each
//! fence ends with an `fdatasync` there, so that an engine that counts on fences is right after a
//! power loss, at the price of the disk. After one that failed no fence succeeds ([`Flushes`]).

use crate::domain::Domain;
use crate::error::{Poison, Sealed};
use crate::flushes::Flushes;
use crate::mapped::MappedRegion;
use crate::region::{LineOrder, Region};

/// A mapped region; on the domain `disk-file` each fence syncs the file.
pub struct FencedFile {
    region: MappedRegion,
    is_on_disk: bool,
    syncs: Flushes<Sealed>,
}

impl FencedFile {
    /// `region`, which is used in no other way.
    pub fn new(region: MappedRegion) -> FencedFile {
        FencedFile { is_on_disk: region.domain() == Domain::DiskFile, region, syncs: Flushes::default() }
    }
}

impl Region for FencedFile {
    fn len(&self) -> u64 {
        self.region.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.region.read(at, out)
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.region.load_u64(at)
    }

    #[track_caller]
    fn write(&self, at: u64, bytes: &[u8]) {
        self.region.write(at, bytes);
    }

    #[track_caller]
    fn stream(&self, at: u64, bytes: &[u8]) {
        self.region.stream(at, bytes);
    }

    #[track_caller]
    fn store_u64(&self, at: u64, word: u64) {
        self.region.store_u64(at, word);
    }

    #[track_caller]
    fn flush(&self, at: u64, len: u64) {
        self.region.flush(at, len);
    }

    fn fence(&self) -> Result<(), Sealed> {
        self.region.fence()?;
        if !self.is_on_disk {
            return Ok(());
        }
        self.syncs.cover(|| self.region.sync_file().map_err(|error| Sealed::by_failed_sync(&error)))
    }

    fn line_order(&self) -> LineOrder {
        self.region.line_order()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapped::{Access, Allocation};

    #[test]
    fn what_is_stored_behind_a_fence_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        let region = FencedFile::new(MappedRegion::create(&path, 8192, Allocation::Full).unwrap());
        region.stream(64, &[7; 64]);
        region.store_u64(128, 9);
        region.flush(128, 8);
        assert_eq!((region.fence(), region.load_u64(128), region.len()), (Ok(()), Ok(9), 8192));
        drop(region);
        let region = FencedFile::new(MappedRegion::open(&path, Access::ReadWrite).unwrap());
        let mut line = [0; 64];
        region.read(64, &mut line).unwrap();
        assert_eq!(line, [7; 64]);
    }
}
