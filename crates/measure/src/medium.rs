//! Where things are measured: regions in memory, as large as a random walk needs, gone when the run
//! ends.
//!
//! Persistent memory is mapped with pages of 2 MiB by device-DAX and by an aligned file on a DAX
//! file system. `/dev/shm` has pages of 4 KiB: on them a random walk measures the page tables too,
//! twice inside a virtual machine, and the figures follow how scattered the machine's free pages
//! happen to be. So a region lies on a tmpfs of its own with large pages where this process may
//! mount one.

use anyhow::Context;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tidegate_btt::{Btt, Contents, FormatSpec, OpenOptions};
use tidegate_layout::btt::{PAGE_BYTES, Version};
use tidegate_layout::disk_cache::SUPERBLOCK_COPIES_AT;
use tidegate_layout::file_cache::PoolSuperblock;
use tidegate_layout::mirror::MIRROR_PAGE_BYTES;
use tidegate_media::emulate::{Emulated, Profile};
use tidegate_media::{Allocation, MappedRegion, Region};
use tidegate_mirror::Mirror;
use zerocopy::{FromZeros, IntoBytes};

/// Bytes a random walk covers: far more than any cache holds.
pub const WALK_BYTES: u64 = 1 << 30;

/// Bytes an engine may add to [`WALK_BYTES`] for its own structures and spare blocks.
pub const OVERHEAD_BYTES: u64 = 16 << 20;

/// Where the data of the blocks of [`btt`] begins in its region: behind the one info block at its
/// start.
pub const DATA_START: u64 = PAGE_BYTES;

/// A region of memory in a file of its own, without a name.
pub fn region(len: u64) -> anyhow::Result<MappedRegion> {
    let path = MemoryPath::new();
    MappedRegion::create(path.as_path(), len, Allocation::Full)
        .with_context(|| format!("a region of {len} bytes at {}", path.as_path().display()))
}

/// A fresh BTT of 4 KiB blocks that offers at least [`WALK_BYTES`].
pub fn btt() -> anyhow::Result<Btt<MappedRegion>> {
    Ok(Btt::open(formatted(WALK_BYTES)?, &OpenOptions::default())?)
}

/// A fresh BTT of 4 KiB blocks on a mirror that offers at least [`WALK_BYTES`].
pub fn mirrored_btt() -> anyhow::Result<Btt<Mirror<MappedRegion>>> {
    let bytes = WALK_BYTES + OVERHEAD_BYTES + MIRROR_PAGE_BYTES;
    let mirror = tidegate_mirror::create([region(bytes)?, region(bytes)?], [7; 16], |_| Ok(()))?;
    format(&mirror)?;
    Ok(Btt::open(mirror, &OpenOptions::default())?)
}

/// A fresh BTT of 4 KiB blocks in memory as slow as `profile`'s that offers at least
/// [`WALK_BYTES`].
pub fn slow_btt(profile: &str) -> anyhow::Result<Btt<Emulated<MappedRegion>>> {
    slow_btt_of(profile, WALK_BYTES)
}

/// A fresh BTT of 4 KiB blocks in memory as slow as `profile`'s, with room for `bytes`.
pub fn slow_btt_of(profile: &str, bytes: u64) -> anyhow::Result<Btt<Emulated<MappedRegion>>> {
    Ok(Btt::open(Emulated::new(formatted(bytes)?, profile_named(profile)?), &OpenOptions::default())?)
}

/// A bare region of `bytes` as slow as `profile`'s.
pub fn slow_region(profile: &str, bytes: u64) -> anyhow::Result<Emulated<MappedRegion>> {
    Ok(Emulated::new(region(bytes)?, profile_named(profile)?))
}

fn profile_named(name: &str) -> anyhow::Result<Profile> {
    Profile::by_name(name).map_err(|_| anyhow::anyhow!("no medium is called {name}"))
}

fn formatted(bytes: u64) -> anyhow::Result<MappedRegion> {
    let region = region(bytes + OVERHEAD_BYTES)?;
    format(&region)?;
    Ok(region)
}

/// Makes `region`, which holds zeroes, a BTT of 4 KiB blocks.
fn format<R: Region>(region: &R) -> anyhow::Result<()> {
    let spec = FormatSpec { version: Version::V2_0, sector_size: 4096, uuid: [7; 16], parent_uuid: [0; 16] };
    Ok(tidegate_btt::format(region, &spec, Contents::Zeroed)?)
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
        // Nothing there means nothing was made; any other failure leaves a file for the user to
        // see.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A path for a file of memory; file and path are gone when this is dropped, and mappings of the
/// file stay.
pub struct MemoryPath {
    file: PathBuf,
    // Fields are dropped in order: the file system comes off its folder before that is removed.
    own: Option<LargePages>,
    _folder: ScratchPath,
}

impl MemoryPath {
    /// A path on a file system with large pages where this process may mount one, else in
    /// `/dev/shm`.
    #[expect(clippy::new_without_default, reason = "two of them are never equal")]
    pub fn new() -> MemoryPath {
        let folder = ScratchPath::new();
        let own = LargePages::mount_at(folder.as_path());
        let file = if own.is_some() { folder.as_path().join("region") } else { folder.as_path().to_owned() };
        MemoryPath { file, own, _folder: folder }
    }

    /// The whole path; nothing has it yet.
    pub fn as_path(&self) -> &Path {
        &self.file
    }

    /// The pages that files have here, in a few words.
    pub fn pages() -> &'static str {
        match MemoryPath::new().own {
            Some(_) => "2 MiB pages",
            None => "4 KiB pages (root's runs have 2 MiB pages, as DAX mappings do)",
        }
    }
}

/// A tmpfs with large pages. It leaves its place when this is dropped, and memory with the last
/// mapping of its files.
struct LargePages(PathBuf);

impl LargePages {
    /// None where this process may not mount, or the kernel has no large pages to give.
    fn mount_at(folder: &Path) -> Option<LargePages> {
        std::fs::create_dir(folder).ok()?;
        let mounted =
            mount("tidegate-bench", folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"huge=always"));
        match mounted {
            Ok(()) => Some(LargePages(folder.to_owned())),
            Err(_) => {
                // The path is to be free for a file.
                let _ = std::fs::remove_dir(folder);
                None
            }
        }
    }
}

impl Drop for LargePages {
    fn drop(&mut self) {
        // What cannot be unmounted stays for the user to see.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Removes the memory of unsynced writes of every pool in `folder`: a service that was killed for
/// good leaves it.
pub fn remove_left_memory(folder: &Path) {
    let pools = std::fs::read_dir(folder).into_iter().flatten().flatten();
    pools.filter_map(|entry| uuid_and_lanes(&entry.path())).for_each(|(uuid, lanes)| remove_memory_of(uuid, lanes));
}

/// Removes the same of the pool with `uuid`, which has or had so many `lanes`.
pub fn remove_memory_of(uuid: [u8; 16], lanes: u32) {
    let uuid: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let names = ["gone", "contexts"].map(str::to_owned).into_iter().chain((0..lanes).map(|lane| lane.to_string()));
    for name in names {
        // A service that ended by itself has removed it.
        let _ = std::fs::remove_file(format!("/dev/shm/tidegate-{uuid}-{name}"));
    }
}

fn uuid_and_lanes(path: &Path) -> Option<([u8; 16], u32)> {
    let file = File::open(path).ok()?;
    let mut raw = PoolSuperblock::new_zeroed();
    file.read_exact_at(raw.as_mut_bytes(), SUPERBLOCK_COPIES_AT[0]).ok()?;
    let pool = raw.check(file.metadata().ok()?.len()).ok()?;
    Some((pool.uuid, pool.plan.lanes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_media::{BlockDevice, Lba, Region};

    #[test]
    fn a_region_outlives_its_path_and_leaves_nothing_behind() {
        let path = MemoryPath::new();
        let folder = path._folder.as_path().to_owned();
        let region = MappedRegion::create(path.as_path(), 4 << 20, Allocation::Full).unwrap();
        drop(path);
        assert!(!folder.exists(), "{} is left", folder.display());
        region.write(0, b"still there");
        let mut read = [0; 11];
        region.read(0, &mut read).unwrap();
        assert_eq!(&read, b"still there");
        let mounts = std::fs::read("/proc/mounts").unwrap();
        assert!(!String::from_utf8_lossy(&mounts).contains(folder.to_str().unwrap()));
    }

    #[test]
    fn data_begins_where_it_is_said_to() {
        let btt = btt().unwrap();
        let block = [0x5a; 4096];
        btt.region().write(DATA_START + 7 * 4096, &block);
        let mut read = [0; 4096];
        btt.read(Lba(7), &mut read).unwrap();
        assert!(read == block, "a block never written has its own place");
    }
}
