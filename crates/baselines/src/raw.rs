//! Persistent memory as a block device without a translation: fast, and a power cut tears blocks.

use tidegate_media::{BlockDevice, Durability, Extent, ExtentKind, Geometry, Lba, LbaRange, Misuse, Region, Result};

/// Blocks at their own place in a region, each written in place: a streamed copy and a fence.
///
/// The Linux driver leaves the fence to the next flush. Here each write pays it: an emulated medium
/// takes its time at the fence, and a real one cannot be outrun by its stores for longer than its
/// queues last.
pub struct RawPmem<R> {
    region: R,
    block_size: u32,
}

impl<R: Region> RawPmem<R> {
    /// All whole blocks of `block_size` bytes in `region`.
    pub fn new(region: R, block_size: u32) -> Result<RawPmem<R>, Misuse> {
        if block_size < 512 || !block_size.is_power_of_two() || u64::from(block_size) > region.len() {
            return Err(Misuse::PartialBlock { len: usize::try_from(region.len()).unwrap_or(usize::MAX), block_size });
        }
        Ok(RawPmem { region, block_size })
    }

    /// The memory.
    pub(crate) fn region(&self) -> &R {
        &self.region
    }

    /// Where the block `lba` begins.
    pub(crate) fn offset_of(&self, lba: Lba) -> u64 {
        lba.0 * u64::from(self.block_size)
    }
}

impl<R: Region> BlockDevice for RawPmem<R> {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: self.block_size,
            blocks: self.region.len() / u64::from(self.block_size),
            atomic_blocks: 0,
            volatile_cache: false,
            read_only: false,
            fast_zeroes: false,
        }
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.geometry().range(at, out.len())?;
        Ok(self.region.read(self.offset_of(at), out)?)
    }

    fn write(&self, at: Lba, data: &[u8], _durable_either_way: Durability) -> Result<()> {
        self.geometry().range(at, data.len())?;
        self.region.stream(self.offset_of(at), data);
        Ok(self.region.fence()?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.region.fence()?)
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.geometry().within(range)?;
        Ok(())
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        let zeroes = vec![0; self.block_size as usize];
        self.geometry().within(range)?.iter().try_for_each(|lba| self.write(lba, &zeroes, durability))
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        Ok(Extent { blocks: self.geometry().within(range)?.blocks, kind: ExtentKind::Data })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use tidegate_media::MappedRegion;

    #[test]
    fn blocks_lie_one_after_the_other() {
        let raw = RawPmem::new(MappedRegion::anonymous(10 * 512 + 100).unwrap(), 512).unwrap();
        assert_eq!(raw.geometry().blocks, 10);
        raw.write(Lba(3), &[7; 1024], Durability::Fua).unwrap();
        raw.write_zeroes(LbaRange { first: Lba(4), blocks: 1 }, Durability::Fua).unwrap();
        let mut read = [1; 1024];
        raw.read(Lba(3), &mut read).unwrap();
        assert!(read[..512] == [7; 512] && read[512..] == [0; 512]);
        assert!(raw.write(Lba(10), &[0; 512], Durability::Fua).is_err());
        assert!(RawPmem::new(MappedRegion::anonymous(4096).unwrap(), 1000).is_err());
    }
}
