//! `tidegate info`: a volume's format, its users, and the failures that it survives. The volume is
//! not changed, not even an interrupted write is finished.

use crate::errors::{Exit, Failure};
use crate::grammar::Info;
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_btt::{Identity, OpenError, Summary, identify, survey};
use tidegate_disk_cache::Identity as CacheIdentity;
use tidegate_host::columns::line;
use tidegate_host::default_paths;
use tidegate_host::units::Human;
use tidegate_layout::disk_cache::DETACHED;
use tidegate_media::Access;
use tidegate_server::cached_disk::contents;
use tidegate_server::cached_disk::disk::growth_at;
use tidegate_server::cached_disk::state::DiskState;
use tidegate_server::cached_disk::volatile::Stake;
use tidegate_server::control::client;
use tidegate_server::failure::Growth;
use tidegate_server::failure::VolumeFailure;
use tidegate_server::stats::snapshot::VolumeCounts;
use tidegate_server::volume::compose;
use tidegate_server::volume::orphans::{self, Leftover};
use tidegate_volume_region::append_log::LogDescription;
use tidegate_volume_region::damage::Damage;
use tidegate_volume_region::description::{Description, Memory};
use tidegate_volume_region::region;
use tidegate_volume_region::xattrs::Xattr;
use tidegate_volume_region::{RegionFailure, VolumeRegion};

/// What `info` answers.
#[derive(Serialize)]
struct VolumeInfo {
    in_use: bool,
    volume: Description,
    /// The disk behind it, and the cache in front of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskLook>,
    /// That the disk is larger than the volume, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_grown: Option<Growth>,
    /// Caches that servers of this volume left.
    leftovers: Vec<Leftover>,
}

impl fmt::Display for VolumeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.volume)?;
        self.disk.iter().try_for_each(|disk| write!(f, "{disk}"))?;
        self.disk_grown.iter().try_for_each(|growth| line(f, "larger", growth))?;
        let in_use = match &self.disk {
            _ if self.in_use => "yes: another process may write to it",
            Some(DiskLook::Served(DiskState { attached: false, .. })) => "no: a server goes on with the disk alone",
            _ => "no",
        };
        write!(f, "{:<10} {in_use}", "in use")?;
        self.leftovers.iter().try_for_each(|left| write!(f, "\n{:<10} {left}", "left"))
    }
}

/// A disk, and the cache in front of it.
#[derive(Serialize)]
#[serde(untagged)]
enum DiskLook {
    /// As its server sees it.
    Served(DiskState),
    /// As it lies there.
    Idle {
        /// Whether the cache belongs to a disk.
        attached: bool,
        /// Where that was when the volume was last open.
        #[serde(serialize_with = "tidegate_host::json_path::optional")]
        disk: Option<PathBuf>,
        dirty_bytes: u64,
        clean_bytes: u64,
        cache_bytes: u64,
        /// What a power loss takes by write-back, if it takes flushed writes.
        risk: Option<&'static str>,
    },
}

impl fmt::Display for DiskLook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (disk, risk, dirty, clean, all) = match self {
            DiskLook::Served(state) => return write!(f, "{state}"),
            DiskLook::Idle { attached: false, .. } => {
                return line(f, "disk", "none: the cache was detached; `tidegate attach` gives it one");
            }
            DiskLook::Idle { disk, risk, dirty_bytes, clean_bytes, cache_bytes, .. } => {
                (disk, risk, Human(*dirty_bytes), Human(*clean_bytes), Human(*cache_bytes))
            }
        };
        match disk {
            Some(disk) => line(f, "disk", disk.display())?,
            None => line(f, "disk", "not noted; name it with --disk")?,
        }
        risk.iter().try_for_each(|risk| line(f, "at risk", format_args!("by write-back: {risk}")))?;
        line(f, "cached", format_args!("{dirty} dirty, {clean} clean, of {all}"))
    }
}

impl DiskLook {
    /// Where the disk of an attached cache is, if that is known.
    fn place(&self) -> Option<&Path> {
        match self {
            DiskLook::Served(DiskState { attached: true, disk, .. }) => Some(disk),
            DiskLook::Served(_) => None,
            DiskLook::Idle { disk, .. } => disk.as_deref(),
        }
    }

    /// What the server of the volume at `path` says of its disk, if it has one. It answers once it
    /// has made a change that is under way.
    fn served(path: &Path) -> Option<DiskLook> {
        let snapshot = client::ask(&default_paths::control_socket(path), Some(path)).ok()?;
        volume_at(path, snapshot.volumes)?.disk.map(DiskLook::Served)
    }

    /// The cache `identity` in `region`, which has no server.
    fn idle(path: &Path, region: &VolumeRegion, identity: &CacheIdentity) -> Result<DiskLook, Failure> {
        let broken = |none: tidegate_disk_cache::NoCache| VolumeFailure::BrokenCache {
            path: path.to_owned(),
            why: none.to_string(),
        };
        let report = tidegate_disk_cache::check(region).map_err(broken)?;
        let bytes = |blocks: u32| u64::from(blocks) * u64::from(identity.block_size);
        let attached = identity.disk != DETACHED;
        Ok(DiskLook::Idle {
            attached,
            disk: attached.then(|| Xattr::Disk.read(path)).flatten(),
            dirty_bytes: bytes(report.dirty),
            clean_bytes: bytes(report.clean),
            cache_bytes: bytes(identity.blocks),
            risk: attached.then(|| Stake::of(path, region, identity).risk()).flatten(),
        })
    }
}

/// The one of `volumes` that lies at `path`. A server may know it by a path that leads nowhere
/// here; its name is enough if no other has it.
fn volume_at(path: &Path, mut volumes: Vec<VolumeCounts>) -> Option<VolumeCounts> {
    if let Some(index) = volumes.iter().position(|volume| default_paths::is_same_file(&volume.pmem, path)) {
        return Some(volumes.swap_remove(index));
    }
    let mut named = volumes.into_iter().filter(|volume| volume.pmem.file_name() == path.file_name());
    named.next().filter(|_| named.next().is_none())
}

/// Runs `tidegate info`.
pub(crate) fn run(args: &Info, json: bool) -> Result<Exit, Failure> {
    let path = args.region.path();
    let (region, in_use) = look(&path)?;
    let log_in = if in_use { LogDescription::of_open } else { LogDescription::of };
    if let Some(log) = log_in(&path, &region)? {
        output::give(&log, json)?;
        return Ok(Exit::Done);
    }
    if region::disk_cache_in(&path, &region)?.is_some() {
        drop(region);
        return cache(&path, json);
    }
    let refused = |error| Failure::from(compose::no_table(&path, &region, error));
    let (summary, damage) =
        if in_use { summary_in_use(&path, &region) } else { surveyed(&path, &region) }.map_err(refused)?;
    let volume = Description::of(&path, Memory::of(&region), &summary).with_damage(damage);
    let leftovers = orphans::of_volume(&path, volume.uuid);
    output::give(&VolumeInfo { in_use, volume, disk: None, disk_grown: None, leftovers }, json)?;
    Ok(Exit::Done)
}

/// Shows the cache at `path`. Its server is asked while nothing is mapped here: a server that opens
/// its region again answers afterwards, and waits for the lock of whoever looks at that.
fn cache(path: &Path, json: bool) -> Result<Exit, Failure> {
    let served = DiskLook::served(path);
    let (region, in_use) = look(path)?;
    let identity = region::disk_cache_in(path, &region)?.ok_or_else(|| contents::no_cache(path, &region))?;
    let volume = Description::of_disk_cache(path, Memory::of(&region), &identity);
    let disk = served.map_or_else(|| DiskLook::idle(path, &region, &identity), Ok)?;
    let disk_grown = disk.place().and_then(|disk| growth_at(path, &identity, disk));
    output::give(&VolumeInfo { in_use, volume, disk: Some(disk), disk_grown, leftovers: Vec::new() }, json)?;
    Ok(Exit::Done)
}

/// The volume on `region`, and which rules it breaks.
fn surveyed(path: &Path, region: &VolumeRegion) -> Result<(Summary, Option<Damage>), OpenError> {
    let survey = survey(region)?;
    Ok((survey.summary, Damage::of(path, &survey)))
}

/// The volume on `region`, which a server may be writing to: map and flog agree at no one moment,
/// so that only info blocks are looked at.
fn summary_in_use(path: &Path, region: &VolumeRegion) -> Result<(Summary, Option<Damage>), OpenError> {
    match identify(region)? {
        Identity::Btt(summary) => Ok((summary, None)),
        Identity::Damaged { corrupt, twin: Some(summary) } => {
            Ok((summary, Some(Damage::of_info_block(path, corrupt.to_string()))))
        }
        Identity::Damaged { corrupt, twin: None } => Err(OpenError::Corrupt(corrupt)),
        Identity::Blank => Err(OpenError::Blank),
        Identity::Foreign { what } => Err(OpenError::Foreign { what }),
    }
}

/// The region as it is now, and whether another process may be writing to it.
fn look(path: &Path) -> Result<(VolumeRegion, bool), Failure> {
    let mapped = region::map_at_once(path, Access::Private);
    let in_use = matches!(&mapped, Err(RegionFailure::Volume(VolumeFailure::InUse { .. })));
    let mapped = if in_use { region::map_at_once(path, Access::PrivateUnlocked) } else { mapped };
    Ok((mapped?, in_use))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_served_volume_is_found_by_its_file_and_else_by_a_name_that_no_other_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for there in ["a", "b"] {
            std::fs::create_dir(path(there)).unwrap();
            std::fs::write(path(there).join("v"), "").unwrap();
        }
        std::os::unix::fs::symlink(path("b"), path("link")).unwrap();
        let found = |path: PathBuf, served: &[&str]| {
            let volume = |place: &&str| VolumeCounts {
                name: (*place).to_owned(),
                pmem: folder.path().join(place),
                format: String::new(),
                domain: String::new(),
                requests: Vec::new(),
                readings: Vec::new(),
                disk: None,
                read_only: false,
                uris: Vec::new(),
            };
            volume_at(&path, served.iter().map(volume).collect()).map(|volume| volume.name)
        };
        assert_eq!(found(path("a/v"), &["a/v", "b/v"]).as_deref(), Some("a/v"));
        assert_eq!(found(path("link/v"), &["a/v", "b/v"]).as_deref(), Some("b/v"));
        assert_eq!(found(path("b/v"), &["gone/v", "a/w"]).as_deref(), Some("gone/v"));
        assert_eq!(found(path("b/v"), &["gone/v", "lost/v"]), None);
    }
}
