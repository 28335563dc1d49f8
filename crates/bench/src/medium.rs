//! Where things are measured: regions in `/dev/shm`, as large as a random walk needs, gone when the run ends.

use anyhow::Context;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tidegate_btt::{Btt, Contents, FormatSpec, OpenOptions};
use tidegate_layout::btt::Version;
use tidegate_media::emulate::{Emulated, Profile};
use tidegate_media::{Allocation, MappedRegion};

/// Bytes a random walk covers: far more than any cache holds.
pub const WALK_BYTES: u64 = 1 << 30;

/// Bytes an engine may add to [`WALK_BYTES`] for its own structures and spare blocks.
pub const OVERHEAD_BYTES: u64 = 16 << 20;

/// A region of memory in a file of its own, without a name.
pub fn region(len: u64) -> anyhow::Result<MappedRegion> {
    let path = ScratchPath::new();
    MappedRegion::create(path.as_path(), len, Allocation::Full)
        .with_context(|| format!("a region of {len} bytes at {}", path.as_path().display()))
}

/// A fresh BTT of 4 KiB blocks that offers at least [`WALK_BYTES`].
pub fn btt() -> anyhow::Result<Btt<MappedRegion>> {
    Ok(Btt::open(formatted()?, &OpenOptions::default())?)
}

/// The same in memory as slow as `profile`'s.
pub fn slow_btt(profile: &str) -> anyhow::Result<Btt<Emulated<MappedRegion>>> {
    let profile = Profile::by_name(profile).map_err(|_| anyhow::anyhow!("no medium is called {profile}"))?;
    Ok(Btt::open(Emulated::new(formatted()?, profile), &OpenOptions::default())?)
}

fn formatted() -> anyhow::Result<MappedRegion> {
    let region = region(WALK_BYTES + OVERHEAD_BYTES)?;
    let spec = FormatSpec { version: Version::V2_0, sector_size: 4096, uuid: [7; 16], parent_uuid: [0; 16] };
    tidegate_btt::format(&region, &spec, Contents::Zeroed)?;
    Ok(region)
}

/// A name in `/dev/shm` that no other run uses; whatever has it is removed when this is dropped.
pub struct ScratchPath(PathBuf);

impl ScratchPath {
    /// A new name; nothing has it yet.
    #[expect(clippy::new_without_default, reason = "two of them are never equal")]
    pub fn new() -> ScratchPath {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number only has to be another one each time.
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        ScratchPath(PathBuf::from(format!("/dev/shm/tidegate-bench-{}-{nth}", std::process::id())))
    }

    /// The whole path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchPath {
    fn drop(&mut self) {
        // Nothing there means nothing was made; any other failure leaves a file for the user to see.
        let _ = std::fs::remove_file(&self.0);
    }
}
