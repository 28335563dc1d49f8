//! The contents of a volume, as far as its beginning and its end tell: where file systems,
//! partition tables and the like have their marks.

use tidegate_media::{Access, BlockDevice, Lba, LbaRange};
use tidegate_operation::uris::ExportContents;
use tidegate_server::options::VolumePlan;
use tidegate_server::volume::compose::Volume;

/// Bytes that are looked at, at either end. More would keep clients waiting, and give a sparse
/// region on tmpfs pages for what it never had.
const LOOKED_AT_BYTES: u64 = 1 << 20;

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 256 << 10;

/// What `volume`, as `plan` describes it, holds.
pub(super) fn holds(plan: &VolumePlan, volume: &Volume) -> ExportContents {
    let blank = match &volume.disk {
        // Past the cache, which nothing is to come into for this.
        Some(disk) => disk.is_clean() && is_zero_at_its_ends(disk.alone(), disk.geometry().blocks),
        None => is_zero_at_its_ends(&*volume.device, volume.device.geometry().blocks),
    };
    match plan.access {
        Access::ReadWrite if volume.device.geometry().read_only => ExportContents::ReadOnly,
        Access::ReadWrite if blank => ExportContents::Zeroes,
        Access::ReadWrite => ExportContents::Something,
        Access::Private | Access::PrivateUnlocked => ExportContents::ReadOnly,
    }
}

/// Whether the first and the last bytes of the first `blocks` blocks of `device` are zeroes. What
/// cannot be read may be anything.
fn is_zero_at_its_ends(device: &dyn BlockDevice, blocks: u64) -> bool {
    let looked_at = (LOOKED_AT_BYTES / u64::from(device.geometry().block_size)).min(blocks);
    [0, blocks - looked_at].into_iter().all(|first| is_zero(device, LbaRange { first: Lba(first), blocks: looked_at }))
}

fn is_zero(device: &dyn BlockDevice, range: LbaRange) -> bool {
    let size = u64::from(device.geometry().block_size);
    let step = (PIECE_BYTES / size).max(1);
    let mut piece = vec![0; usize::try_from(step * size).unwrap_or(0)];
    let mut at = range.first.0;
    while at < range.end() {
        let blocks = step.min(range.end() - at);
        let out = &mut piece[..usize::try_from(blocks * size).unwrap_or(0)];
        if device.read(Lba(at), out).is_err() || out.iter().any(|byte| *byte != 0) {
            return false;
        }
        at += blocks;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_media::Durability;
    use tidegate_nbd_client::ram::Ram;

    #[test]
    fn a_byte_at_either_end_is_found_and_the_middle_is_not_looked_at() {
        let (blocks, ends) = (8192, LOOKED_AT_BYTES / 4096);
        for (block, zero) in [
            (0, false),
            (ends - 1, false),
            (ends, true),
            (blocks - ends - 1, true),
            (blocks - ends, false),
            (blocks - 1, false),
        ] {
            let device = Ram::new(4096, blocks);
            assert!(is_zero_at_its_ends(&device, blocks));
            device
                .write(Lba(block), &[[0; 4095].as_slice(), &[1]].concat(), Durability::Volatile)
                .expect("it is taken");
            assert_eq!(is_zero_at_its_ends(&device, blocks), zero, "block {block}");
        }
        assert!(is_zero_at_its_ends(&Ram::new(512, 3), 3), "smaller than what is looked at");
    }
}
