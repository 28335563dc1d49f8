//! The device: requests, cut into blocks.

use crate::cache::WriteCache;
use tidegate_media::sync::Ordering;
use tidegate_media::{BlockDevice, Durability, Extent, ExtentKind, Geometry, Lba, LbaRange, Region, Result};

impl<R: Region> BlockDevice for WriteCache<R> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        let range = self.geometry.range(at, out.len())?;
        let size = self.block_bytes();
        // Blocks that no slot holds are read together.
        let mut missing = 0;
        for (index, lba) in range.iter().enumerate() {
            let start = index * size;
            if self.read_cached(lba.0, &mut out[start..start + size])? {
                self.read_below(range, &mut out[missing..start], missing)?;
                missing = start + size;
            }
        }
        self.read_below(range, &mut out[missing..], missing)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        let range = self.geometry.range(at, data.len())?;
        self.check()?;
        if durability == Durability::Fua {
            self.tally.forced.fetch_add(range.blocks, Ordering::Relaxed);
            return self.write_past(at.0, data, durability);
        }
        range
            .iter()
            .zip(data.chunks_exact(self.block_bytes()))
            .try_for_each(|(lba, block)| self.write_block(lba.0, block))
    }

    fn flush(&self) -> Result<()> {
        self.check()?;
        self.tally.flushes.fetch_add(1, Ordering::Relaxed);
        let mut scratch = self.scratch();
        for index in 0..self.sets.len() {
            if self.is_used(index) {
                let last = self.sets[index].queue.lock().last(&self.links);
                if let Some(through) = last {
                    self.evict_through(index, through, &mut scratch)?;
                }
            }
        }
        self.flush_device()
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        let range = self.geometry.within(range)?;
        self.check()?;
        self.past_cache(range, || self.device.discard(range))
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        let range = self.geometry.within(range)?;
        self.check()?;
        self.durably(durability, |durability| self.past_cache(range, || self.device.write_zeroes(range, durability)))
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        let below = self.device.extent(range)?;
        if below.kind == ExtentKind::Data {
            return Ok(below);
        }
        let hole = LbaRange { blocks: below.blocks, ..range };
        Ok(match self.first_cached(hole)? {
            Some(first) if first == range.first.0 => Extent { blocks: 1, kind: ExtentKind::Data },
            Some(first) => Extent { blocks: first - range.first.0, kind: ExtentKind::Hole },
            None => below,
        })
    }
}
