//! What the kernel is told of a volume: its size, its blocks, and what a write promises.

use crate::driver::{ParameterRecord, SECTOR_BYTES, SECTOR_BYTES_32, parameter};
use tidegate_block_export::{Export, WHOLE_WRITE_BYTES_MAX};
use tidegate_media::Durability;

/// Bytes of a request's data at most: a write that a volume puts in place as a whole is never cut.
pub(crate) const REQUEST_BYTES_MAX: u32 = WHOLE_WRITE_BYTES_MAX;

/// The longest range of a discard: a longer one would keep the queue from the requests behind it.
pub(crate) const DISCARD_BYTES_MAX: u64 = 1 << 30;

/// The longest range to fill with zeroes, which may have to be written.
pub(crate) const ZEROES_BYTES_MAX: u64 = 64 << 20;

/// Logical blocks have a size that Linux takes: of a larger block of a volume, a request may cover
/// a part.
const LOGICAL_BLOCK_BYTES_MAX: u32 = 4096;

/// Bytes of a logical block of the device of `export`.
pub(crate) fn logical_block_bytes(export: &Export) -> u32 {
    let block = export.geometry().block_size;
    if block.is_power_of_two() { block.min(LOGICAL_BLOCK_BYTES_MAX) } else { SECTOR_BYTES_32 }
}

/// Bytes of the device of `export`: whole logical blocks.
pub(crate) fn device_bytes(export: &Export) -> u64 {
    let block = u64::from(logical_block_bytes(export));
    export.bytes() / block * block
}

/// How writes of the device of `export` are durable without a flush. A volume that keeps nothing
/// back has no flush from the kernel: it is told to store each write for good, whatever becomes of
/// the volume later.
pub(crate) fn durability(export: &Export) -> Durability {
    if export.geometry().volatile_cache { Durability::Volatile } else { Durability::Fua }
}

/// The parameters of the device of `export`.
pub(crate) fn parameters(export: &Export) -> ParameterRecord {
    let (geometry, logical) = (export.geometry(), logical_block_bytes(export));
    let shift = |bytes: u32| u8::try_from(bytes.trailing_zeros()).expect("a number of bits");
    let physical = if geometry.block_size.is_power_of_two() { geometry.block_size } else { logical };
    let sectors = |bytes: u64| u32::try_from(bytes / SECTOR_BYTES).expect("a constant");
    let read_only = export.is_read_only();
    let changing = |sectors: u32| if read_only { 0 } else { sectors };
    let writes = match durability(export) {
        Durability::Volatile => parameter::VOLATILE_CACHE | parameter::FUA,
        Durability::Fua => 0,
    };
    ParameterRecord {
        len: parameter::BYTES.into(),
        parts: (parameter::BASIC | parameter::DISCARD).into(),
        attributes: (writes | if read_only { parameter::READ_ONLY } else { 0 }).into(),
        logical_block_shift: shift(logical),
        physical_block_shift: shift(physical),
        best_shift: shift(physical),
        least_shift: shift(physical),
        request_sectors_max: sectors(REQUEST_BYTES_MAX.into()).into(),
        sectors: (device_bytes(export) / SECTOR_BYTES).into(),
        discard_granularity: physical.into(),
        discard_sectors_max: changing(sectors(DISCARD_BYTES_MAX)).into(),
        zeroes_sectors_max: changing(sectors(ZEROES_BYTES_MAX)).into(),
        discard_ranges_max: 1.into(),
        ..ParameterRecord::default()
    }
}

/// What of a device that waits for its volume does not fit the volume any more; None: all does.
pub(crate) fn difference(device: &ParameterRecord, volume: &ParameterRecord) -> Option<&'static str> {
    let read_only = |of: &ParameterRecord| of.attributes.get() & parameter::READ_ONLY;
    if device.sectors != volume.sectors {
        Some("its size")
    } else if read_only(device) != read_only(volume) {
        Some("whether it is read-only")
    } else if device.attributes != volume.attributes {
        Some("whether writes wait for a flush to be durable")
    } else if device.logical_block_shift != volume.logical_block_shift
        || device.request_sectors_max != volume.request_sectors_max
    {
        Some("its blocks")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tidegate_media::{BlockDevice, Geometry};
    use tidegate_nbd_client::ram::Ram;

    /// A device that says this of itself.
    struct Like(Ram, Geometry);

    impl BlockDevice for Like {
        tidegate_media::forward!(self => self.0; read, write, flush, discard, write_zeroes, extent);

        fn geometry(&self) -> Geometry {
            self.1
        }
    }

    fn export(change: impl Fn(&mut Geometry)) -> Export {
        let device = Ram::new(4096, 64);
        let mut geometry = device.geometry();
        change(&mut geometry);
        Export::new("v", "", Arc::new(Like(device, geometry)))
    }

    #[test]
    fn a_volume_of_4_kib_blocks_is_a_device_of_4_kib_blocks() {
        let told = parameters(&export(|_| {}));
        assert_eq!((told.logical_block_shift, told.physical_block_shift, told.sectors.get()), (12, 12, 512));
        assert_eq!((told.request_sectors_max.get(), told.discard_granularity.get()), (2048, 4096));
        assert_eq!(told.attributes.get(), parameter::VOLATILE_CACHE | parameter::FUA);
        assert!(told.discard_sectors_max.get() > 0 && told.zeroes_sectors_max.get() > 0);
    }

    #[test]
    fn larger_blocks_are_physical_ones_and_smaller_ones_are_both() {
        let large = parameters(&export(|geometry| geometry.block_size = 65536));
        assert_eq!((large.logical_block_shift, large.physical_block_shift), (12, 16));
        let small = parameters(&export(|geometry| geometry.block_size = 512));
        assert_eq!((small.logical_block_shift, small.physical_block_shift), (9, 9));
    }

    #[test]
    fn a_volume_that_keeps_nothing_back_is_told_so_and_writes_for_good() {
        let steady = export(|geometry| geometry.volatile_cache = false);
        assert_eq!(parameters(&steady).attributes.get(), 0);
        assert_eq!(durability(&steady), Durability::Fua);
        assert_eq!(durability(&export(|_| {})), Durability::Volatile);
    }

    #[test]
    fn a_read_only_volume_is_a_device_that_refuses_changes() {
        let told = parameters(&export(|geometry| geometry.read_only = true));
        assert_ne!(told.attributes.get() & parameter::READ_ONLY, 0);
        assert_eq!((told.discard_sectors_max.get(), told.zeroes_sectors_max.get()), (0, 0));
    }

    #[test]
    fn a_device_that_waits_fits_its_volume_and_no_other_form_of_it() {
        let told = parameters(&export(|_| {}));
        let of = |change: fn(&mut Geometry)| difference(&told, &parameters(&export(change)));
        assert_eq!(of(|_| {}), None);
        assert_eq!(of(|geometry| geometry.blocks += 1), Some("its size"));
        assert_eq!(of(|geometry| geometry.read_only = true), Some("whether it is read-only"));
        assert!(of(|geometry| geometry.volatile_cache = false).is_some_and(|what| what.contains("flush")));
        let small = |geometry: &mut Geometry| {
            geometry.block_size = 512;
            geometry.blocks *= 8;
        };
        assert_eq!(of(small), Some("its blocks"));
    }
}
