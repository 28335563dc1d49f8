//! A file in persistent memory that is reached directly, as Ext4-DAX does it: no block driver, no
//! atomic block.
//!
//! A write copies the bytes through the caches, writes each line back, and fences; a careful
//! application does the same on a mapping. A block is torn by a power cut in the middle. What
//! system call and file system take is added by those who use it.

use crate::raw::RawPmem;
use tidegate_media::{BlockDevice, Durability, Lba, LbaRange, Misuse, Region, Result};

/// Blocks at their own place in a file.
pub struct DaxFile<R>(RawPmem<R>);

impl<R: Region> DaxFile<R> {
    /// All whole blocks of `block_size` bytes in `region`.
    pub fn new(region: R, block_size: u32) -> Result<DaxFile<R>, Misuse> {
        Ok(DaxFile(RawPmem::new(region, block_size)?))
    }
}

impl<R: Region> BlockDevice for DaxFile<R> {
    tidegate_media::forward!(self => self.0; geometry, read, flush, discard, extent);

    fn write(&self, at: Lba, data: &[u8], _durable_either_way: Durability) -> Result<()> {
        self.geometry().range(at, data.len())?;
        let (region, offset) = (self.0.region(), self.0.offset_of(at));
        region.write(offset, data);
        region.flush(offset, data.len() as u64);
        Ok(region.fence()?)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        let zeroes = vec![0; self.geometry().block_size as usize];
        self.geometry().within(range)?.iter().try_for_each(|lba| self.write(lba, &zeroes, durability))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_media::MappedRegion;
    use tidegate_sim::{Image, power_cuts};

    #[test]
    fn each_line_of_a_write_is_written_back_and_one_fence_ends_it() -> anyhow::Result<()> {
        let file = DaxFile::new(MappedRegion::anonymous(4 * 4096)?, 4096)?;
        let before = file.0.region().counters();
        file.write(Lba(2), &[7; 4096], Durability::Volatile)?;
        let after = file.0.region().counters();
        assert_eq!((after.lines_flushed - before.lines_flushed, after.fences - before.fences), (64, 1));
        let mut read = [0; 4096];
        file.read(Lba(2), &mut read)?;
        assert_eq!(read, [7; 4096]);
        assert!(file.write(Lba(4), &[0; 4096], Durability::Fua).is_err());
        Ok(())
    }

    #[test]
    fn a_write_is_durable_when_it_returns_and_torn_before() {
        let cuts = power_cuts(&Image::zeroed(4096), |region| {
            let file = DaxFile::new(region.clone(), 512).expect("it has blocks");
            file.write(Lba(1), &[9; 512], Durability::Volatile).expect("the region is sound");
        });
        let bytes = |image: &Image| image.to_vec()[512..1024].to_vec();
        let last = cuts.last().expect("there is one at the end");
        assert!(last.is_settled() && bytes(last.least()) == [9; 512]);
        assert!(bytes(cuts[0].least()) == [0; 512] && bytes(&cuts[0].most()) == [9; 512]);
    }
}
