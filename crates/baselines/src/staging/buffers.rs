//! A cache divided into sub-buffers, as PMBD divides its own: each is a cache for itself, with its
//! own slots, lists and moment to let go of them.
//!
//! A stripe of 1024 neighbouring blocks belongs to one buffer, the next one to the next buffer
//! (`bufstride` of PMBD's source).

use super::{Request, RoomListener, Rule, Staging};
use std::sync::Arc;
use tidegate_media::{BlockDevice, Durability, Extent, Geometry, Lba, LbaRange, Region, Result};

/// Neighbouring blocks that share a buffer.
const STRIDE_BLOCKS: u64 = 1024;

/// The buffers, as many as the rule has them.
pub struct Buffers<P>(Vec<Staging<P>>);

impl<P: Rule> Buffers<P> {
    /// Buffers of `slots` slots in all over `device`, whose slots lie in `memory`.
    pub fn over(memory: Arc<dyn Region>, device: Arc<dyn BlockDevice>, slots: u32) -> anyhow::Result<Buffers<P>> {
        let count = P::buffers();
        anyhow::ensure!(slots >= count, "{slots} slots are too few for {count} buffers");
        let each = slots / count;
        let bytes = u64::from(each) * u64::from(device.geometry().block_size);
        let buffer = |nth: u32| Staging::over_part(memory.clone(), u64::from(nth) * bytes, device.clone(), each);
        Ok(Buffers((0..count).map(buffer).collect::<anyhow::Result<_>>()?))
    }

    /// Has `told` told of writers that find no slot.
    pub fn tell(&mut self, told: &RoomListener) {
        self.0.iter_mut().for_each(|buffer| buffer.tell(told.clone()));
    }

    /// One step of the thread beside all buffers; true: call again at once.
    pub fn background_step(&self) -> Result<bool> {
        self.0.iter().try_fold(false, |again, buffer| Ok(buffer.background_step()? || again))
    }

    /// Blocks that the buffers hold, dirty or clean.
    pub fn cached(&self) -> u32 {
        self.0.iter().map(Staging::cached).sum()
    }

    /// Bytes beside the blocks that the buffers have now.
    pub fn metadata_bytes(&self) -> usize {
        self.0.iter().map(Staging::metadata_bytes).sum()
    }

    /// The buffer that `at` belongs to, and the blocks from there on that do too.
    fn of(&self, at: u64) -> (&Staging<P>, u64) {
        let nth = at / STRIDE_BLOCKS % self.0.len() as u64;
        let left = if self.0.len() == 1 { u64::MAX } else { STRIDE_BLOCKS - at % STRIDE_BLOCKS };
        (&self.0[usize::try_from(nth).expect("an index of a vector")], left)
    }

    /// Does `act` with each part of `range` that one buffer has.
    fn each(&self, range: LbaRange, mut act: impl FnMut(&Staging<P>, LbaRange) -> Result<()>) -> Result<()> {
        let (mut at, end) = (range.first.0, range.first.0 + range.blocks);
        while at < end {
            let (buffer, left) = self.of(at);
            let blocks = left.min(end - at);
            act(buffer, LbaRange { first: Lba(at), blocks })?;
            at += blocks;
        }
        Ok(())
    }
}

impl<P: Rule> BlockDevice for Buffers<P> {
    fn geometry(&self) -> Geometry {
        self.0[0].geometry()
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        let (geometry, mut rest) = (self.geometry(), out);
        let range = geometry.range(at, rest.len())?;
        self.each(range, |buffer, part| {
            let bytes = usize::try_from(part.blocks).expect("within a slice") * geometry.block_size as usize;
            let (now, later) = std::mem::take(&mut rest).split_at_mut(bytes);
            rest = later;
            buffer.read(part.first, now)
        })
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        let (geometry, mut rest) = (self.geometry(), data);
        self.each(geometry.range(at, data.len())?, |buffer, part| {
            let bytes = usize::try_from(part.blocks).expect("within a slice") * geometry.block_size as usize;
            let (now, later) = rest.split_at(bytes);
            rest = later;
            buffer.write(part.first, now, durability)
        })
    }

    fn flush(&self) -> Result<()> {
        let _requests: Vec<Request<'_>> = self.0.iter().map(Staging::request).collect();
        self.0.iter().try_for_each(Staging::write_back)?;
        // All buffers stand over one device.
        self.0[0].slots.device().flush()
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.each(self.geometry().within(range)?, |buffer, part| buffer.discard(part))
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.each(self.geometry().within(range)?, |buffer, part| buffer.write_zeroes(part, durability))
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        let range = self.geometry().within(range)?;
        let (buffer, left) = self.of(range.first.0);
        buffer.extent(LbaRange { blocks: range.blocks.min(left), ..range })
    }
}
