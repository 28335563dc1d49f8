//! Which pools this program reads, and which it lays out.
//!
//! Of version 5, strips are twice as long as before. Of version 4, a strip may be that of a name,
//! which programs that know none but older versions take for a file's. Of version 3, a file may
//! have records on two strips. A program that knows none but version 2 reads one of them, so it has
//! to refuse the pool. In a pool of version 2 the neighbour of a file's strip has nothing of that
//! file: it is read like any other.

use crate::failure::{Failure, RunFailure};
use std::path::Path;
use tidegate_disk_cache::identify;
use tidegate_layout::kept::{POOL_VERSION, POOL_VERSIONS, pool_disk, pool_version};
use tidegate_media::MappedRegion;

/// The version of new pools.
pub(super) const NEW: u8 = POOL_VERSION;
/// The first one whose strips have the length that they have now.
pub(super) const LONGER_STRIPS: u8 = 5;

/// What the cache of a new pool says that its disk is.
pub(super) fn disk() -> [u8; 32] {
    pool_disk(NEW)
}

/// The version of the pool that was laid out on `region`, if one was.
pub(super) fn version_on(region: &MappedRegion) -> Option<u8> {
    identify(region).ok().flatten().and_then(|identity| pool_version(&identity.disk))
}

/// Whether a pool that can be read was laid out on `region`.
pub(super) fn is_pool(region: &MappedRegion) -> bool {
    version_on(region).is_some_and(|version| POOL_VERSIONS.contains(&version))
}

/// Refuses to lay a pool over anything but zeroes and a pool that can be read.
pub(super) fn refuse_others(path: &Path, region: &MappedRegion) -> Result<(), Failure> {
    let why = match version_on(region) {
        Some(version) if POOL_VERSIONS.contains(&version) => return Ok(()),
        Some(_) => "it was laid out by another version of tidegate, and only that one can read it",
        None if region.is_all_zero().map_err(|poison| Failure::Poisoned { pool: path.to_owned(), poison })? => {
            return Ok(());
        }
        None => "it holds something else",
    };
    Err(RunFailure::Pool { pool: path.to_owned(), why: why.to_owned() }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_disk_cache::{FormatSpec, format};
    use tidegate_media::Contents;

    fn refused(disk: [u8; 32]) -> Option<String> {
        let region = MappedRegion::anonymous(16 << 20).expect("memory");
        let spec = FormatSpec { block_size: 4096, disk_blocks: 1 << 20, ring_slots: 1024, uuid: [7; 16], disk };
        format(&region, &spec, Contents::Unknown).expect("formatted");
        let refused = refuse_others(Path::new("pool"), &region).err().map(|failure| format!("{failure:?}"));
        assert_eq!(is_pool(&region), refused.is_none());
        refused
    }

    #[test]
    fn pools_of_known_versions_are_read_and_others_refused() {
        assert_eq!(disk(), *b"files of programs below run, v 5");
        assert_eq!([2, 3, 4, 5].map(|version| refused(pool_disk(version))), [const { None }; 4]);
        for version in [1, 6, 200] {
            let why = refused(pool_disk(version)).expect("it is refused");
            assert!(why.contains("another version of tidegate"), "{why}");
        }
        let why = refused([1; 32]).expect("it is refused");
        assert!(why.contains("something else"), "{why}");
    }
}
