//! What virtio-blk says about a disk, and what a driver asks of it: features, the configuration
//! space, headers of requests. All integers are little-endian. Source: Virtual I/O Device 1.2, 5.2.

use tidegate_block_export::Export;
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The unit of addresses and lengths, whatever the block size.
pub(crate) const SECTOR_BYTES: u64 = SECTOR_BYTES_32 as u64;
const SECTOR_BYTES_32: u32 = 512;

/// Queues that a disk may have: as many as the protocol has numbers for. QEMU makes one for each
/// processor of a machine.
pub(crate) const QUEUES_MAX: u16 = 256;

/// Descriptors of a queue at most.
pub(crate) const QUEUE_SIZE_MAX: u16 = 1024;

/// Pieces of memory in one request: what fits into QEMU's default queue of 128 descriptors beside
/// header and status.
const SEGMENTS_MAX: u32 = 126;

/// Bytes of an identity, as GET_ID tells it.
pub(crate) const IDENTITY_BYTES: usize = 20;

/// Ranges that one discard may have.
pub(crate) const DISCARD_RANGES_MAX: u32 = 16;

/// The longest range of a discard: a longer one would keep the queue from the requests behind it.
pub(crate) const DISCARD_BYTES_MAX: u64 = 1 << 30;

/// The longest range to fill with zeroes, which may have to be written.
pub(crate) const ZEROES_BYTES_MAX: u64 = 64 << 20;

/// How a request ended: the last byte of its answer.
pub(crate) mod status {
    /// It was carried out.
    pub(crate) const GOOD: u8 = 0;
    /// It was not, or in part.
    pub(crate) const FAILED: u8 = 1;
    /// Disks here do not do that.
    pub(crate) const UNSUPPORTED: u8 = 2;
}

/// What a driver may agree to by its number.
pub(crate) const fn feature(number: u32) -> u64 {
    1 << number
}

/// What is offered to drivers of a disk.
pub(crate) fn features(is_read_only: bool) -> u64 {
    let always = [
        VIRTIO_F_VERSION_1,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_BLK_F_FLUSH,
        VIRTIO_BLK_F_MQ,
    ];
    let only: &[u32] =
        if is_read_only { &[VIRTIO_BLK_F_RO] } else { &[VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES] };
    always.iter().chain(only).fold(0, |all, number| all | feature(*number))
}

/// The configuration space of a disk: `virtio_blk_config` up to the fields for zeroes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ConfigSpace {
    /// Sectors of the disk.
    pub(crate) capacity: U64,
    size_max: U32,
    seg_max: U32,
    cylinders: U16,
    heads: u8,
    sectors: u8,
    /// Bytes of a logical block.
    pub(crate) blk_size: U32,
    /// Logical blocks in a physical one, as a power of two.
    pub(crate) physical_block_exp: u8,
    alignment_offset: u8,
    min_io_size: U16,
    opt_io_size: U32,
    writeback: u8,
    unused: u8,
    num_queues: U16,
    max_discard_sectors: U32,
    max_discard_seg: U32,
    discard_sector_alignment: U32,
    max_write_zeroes_sectors: U32,
    max_write_zeroes_seg: U32,
    write_zeroes_may_unmap: u8,
    unused_end: [u8; 3],
}

/// Logical blocks have a size that Linux takes: blocks of a volume that are larger or no power of
/// two are read, changed and written where a request covers them in part.
const LOGICAL_BLOCK_MAX: u32 = 4096;

impl ConfigSpace {
    /// That of `export`.
    pub(crate) fn of(export: &Export) -> ConfigSpace {
        let block = export.geometry().block_size;
        let logical = if block.is_power_of_two() { block.min(LOGICAL_BLOCK_MAX) } else { SECTOR_BYTES_32 };
        let per_physical = if block.is_power_of_two() { block / logical } else { 1 };
        let in_sectors = |bytes: u64| U32::new(u32::try_from(bytes / SECTOR_BYTES).unwrap_or(u32::MAX));
        ConfigSpace {
            capacity: U64::new(capacity_bytes(export) / SECTOR_BYTES),
            seg_max: U32::new(SEGMENTS_MAX),
            blk_size: U32::new(logical),
            physical_block_exp: u8::try_from(per_physical.trailing_zeros()).expect("a power of two"),
            min_io_size: U16::new(u16::try_from(per_physical).unwrap_or(u16::MAX)),
            writeback: 1,
            num_queues: U16::new(QUEUES_MAX),
            max_discard_sectors: in_sectors(DISCARD_BYTES_MAX),
            max_discard_seg: U32::new(DISCARD_RANGES_MAX),
            discard_sector_alignment: in_sectors(u64::from(logical * per_physical)),
            max_write_zeroes_sectors: in_sectors(ZEROES_BYTES_MAX),
            max_write_zeroes_seg: U32::new(1),
            write_zeroes_may_unmap: 1,
            ..ConfigSpace::default()
        }
    }

    /// `size` bytes from `offset` on; fields that later versions added read as zeroes.
    pub(crate) fn read(&self, offset: u32, size: u32) -> Vec<u8> {
        let rest = self.as_bytes().iter().skip(offset as usize);
        rest.copied().chain(std::iter::repeat(0)).take(size as usize).collect()
    }
}

/// Bytes of `export` that sectors reach. Of a volume with odd blocks the last few may be left over.
pub(crate) fn capacity_bytes(export: &Export) -> u64 {
    export.bytes() / SECTOR_BYTES * SECTOR_BYTES
}

/// The first bytes of each request.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RequestStart {
    pub(crate) kind: U32,
    pub(crate) unused: U32,
    pub(crate) sector: U64,
}

/// A range of a discard, or one to fill with zeroes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RequestRange {
    pub(crate) sector: U64,
    pub(crate) sectors: U32,
    pub(crate) flags: U32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_space_has_the_fields_where_the_standard_has_them() {
        assert_eq!(size_of::<ConfigSpace>(), 60);
        let space = ConfigSpace { num_queues: U16::new(0x0102), write_zeroes_may_unmap: 7, ..ConfigSpace::default() };
        assert_eq!(space.read(34, 2), [2, 1]);
        assert_eq!(space.read(56, 8), [7, 0, 0, 0, 0, 0, 0, 0], "what is past the end reads as zeroes");
        assert_eq!(space.read(200, 2), [0, 0]);
        assert_eq!(space.read(u32::MAX, 1), [0]);
    }
}
