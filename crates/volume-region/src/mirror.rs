//! Two regions as one. A side is never opened for stores like a plain region, as its twin would
//! become stale unnoticed.

use crate::mapping::{map_file, map_file_at_once};
use crate::{MirrorFailure, RegionFailure, VolumeFailure, VolumeRegion};
use serde::Serialize;
use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidegate_host::default_paths::is_same_file;
use tidegate_host::units::Human;
use tidegate_layout::mirror::{MIRROR_PAGE_BYTES, MirrorSide, OpeningId, SideState};
use tidegate_media::{Access, MappedRegion, Region, Sealed};
use tidegate_mirror::page::{self, Page};
use tidegate_mirror::{Liveness, MaybeMirrored, Mirror, MirrorError};
use uuid::Uuid;

/// Between two lines about progress.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// The twin of a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MirrorPlan {
    /// None: the region is no side of a mirror.
    #[default]
    Absent,
    /// The region at that path.
    With(PathBuf),
    /// None any more: the region is a side, and goes on without its twin.
    Degraded,
}

impl MirrorPlan {
    /// The twin at `other`, if there is one.
    pub fn with(other: Option<PathBuf>) -> MirrorPlan {
        other.map_or(MirrorPlan::Absent, MirrorPlan::With)
    }

    /// Where the twin is, if there is one.
    pub fn twin(&self) -> Option<&Path> {
        match self {
            MirrorPlan::With(twin) => Some(twin),
            MirrorPlan::Absent | MirrorPlan::Degraded => None,
        }
    }
}

/// A mirror as users are shown it.
#[derive(Clone, Debug, Serialize)]
pub struct MirrorState {
    /// The set, which both sides share.
    pub set: Uuid,
    /// Grows with each opening and each change of state.
    pub generation: u64,
    /// Sides that have every write, by their numbers. Of a region that was named alone: its own.
    pub sides: Vec<u32>,
    /// `mirrored`, `alone`, `copying`: an incomplete copy, or `opening`: mirrored, and an opening
    /// of both sides was interrupted.
    pub state: &'static str,
}

impl MirrorState {
    /// The mirror that `region` is, or is a side of.
    pub fn of(region: &VolumeRegion) -> Option<MirrorState> {
        let mirror = region.mirror()?;
        let page = mirror.page();
        Some(MirrorState {
            set: Uuid::from_bytes(page.set),
            generation: page.generation,
            sides: match mirror.liveness() {
                Liveness::Both => vec![0, 1],
                Liveness::First => vec![0],
                Liveness::Second => vec![1],
            },
            state: match page.state {
                SideState::Mirrored => "mirrored",
                SideState::Alone => "alone",
                SideState::Copying => "copying",
                SideState::Opening => "opening",
            },
        })
    }
}

impl fmt::Display for MirrorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sides[..] {
            [one] => write!(f, "side {one} of 0 and 1")?,
            _ => f.write_str("sides 0 and 1")?,
        }
        write!(
            f,
            " of set {}, generation {}: {}",
            self.set,
            self.generation,
            match self.state {
                "alone" => "the other side is stale or lost; `tidegate rebuild` makes a new one",
                "copying" => "an incomplete copy; begin `tidegate rebuild` anew",
                _ if self.sides.len() == 1 => "each side has every write, as far as this one knows",
                _ => "each side has every write",
            }
        )
    }
}

/// Opens the region at `path` with its twin, as `plan` says. Both sides are equal then, durably. A
/// side that is opened without its twin makes that stale when it is told to: see
/// [`tidegate_mirror::open_alone`].
///
/// # Errors
/// A side that is named alone, absent, stale, incomplete, or of another set than its twin is
/// refused. So are two regions that do not survive the same failures.
pub fn open(path: &Path, plan: &MirrorPlan, access: Access) -> Result<VolumeRegion, RegionFailure> {
    open_by(map_file, path, plan, access)
}

/// Opens the region at `path` as [`open`] does, for stores of a server that has clients, and waits
/// for no lock. A side that is opened without its twin makes that stale.
///
/// # Errors
/// Those of [`open`], and those of [`go_alone`].
pub fn open_at_once(path: &Path, plan: &MirrorPlan) -> Result<VolumeRegion, RegionFailure> {
    let region = open_by(map_file_at_once, path, plan, Access::ReadWrite)?;
    go_alone(path, &region)?;
    Ok(region)
}

/// Has a side that was opened without its twin say that it goes on alone, durably: a client may
/// come from now on, and the twin is stale.
///
/// # Errors
/// The side at `path` loses the store.
pub fn go_alone(path: &Path, region: &VolumeRegion) -> Result<(), MirrorFailure> {
    region.go_alone().map_err(|sealed| MirrorFailure::of_one(path, MirrorError::Sealed { region: 0, sealed }))
}

/// How the file of a region is mapped.
type MapFile = fn(&Path, Access) -> Result<MappedRegion, VolumeFailure>;

fn open_by(map: MapFile, path: &Path, plan: &MirrorPlan, access: Access) -> Result<VolumeRegion, RegionFailure> {
    match plan {
        MirrorPlan::Absent => {
            let region = map(path, access)?;
            let page = page::read(&region);
            plain(path, (region, page), access)
        }
        MirrorPlan::Degraded => {
            refuse_look_at_device(path, access)?;
            let opened = tidegate_mirror::open_alone(map(path, access)?, MappedRegion::sync_file);
            Ok(mirrored(opened.map_err(|error| MirrorFailure::of_one(path, error))?))
        }
        MirrorPlan::With(other) => both(map, [path, other], access),
    }
}

fn both(map: MapFile, [path, other]: [&Path; 2], access: Access) -> Result<VolumeRegion, RegionFailure> {
    if is_same_file(path, other) {
        return Err(MirrorFailure::Same { path: path.to_owned() }.into());
    }
    [path, other].into_iter().try_for_each(|side| refuse_look_at_device(side, access))?;
    let regions = [in_pair(map(path, access), other)?, in_pair(map(other, access), path)?];
    refuse_other_domain([path, other], [&regions[0], &regions[1]])?;
    let progress = &mut once_a_second("compared", |line| tracing::info!("{}: {line}", path.display()));
    let opened = tidegate_mirror::open(regions, drawn(), MappedRegion::sync_file, progress);
    let (mirror, resync) = opened.map_err(|error| MirrorFailure::of_two([path, other], error))?;
    let changed = resync.copied_lines + resync.repaired_lines;
    if changed > 0 {
        tracing::info!("{}: stored {changed} lines of 64 bytes, in which the sides differed, anew", path.display());
    }
    Ok(mirrored(mirror))
}

/// The number of an opening.
fn drawn() -> OpeningId {
    let [one, two, three, four, five, six, ..] = Uuid::new_v4().into_bytes();
    OpeningId([one, two, three, four, five, six])
}

/// `region`, for a look at the volume in it if it is a side and nothing may be stored.
pub(crate) fn look(path: &Path, region: MappedRegion, access: Access) -> Result<VolumeRegion, RegionFailure> {
    match page::read(&region) {
        Page::Side(_) if access != Access::ReadWrite => Ok(tidegate_mirror::view(region)),
        page => plain(path, (region, page), access),
    }
}

/// Refuses to open the sides of a mirror for a look if the one at `path` is a DAX device: to open
/// them takes stores, and of a device there is no private copy.
fn refuse_look_at_device(path: &Path, access: Access) -> Result<(), MirrorFailure> {
    let is_device = || std::fs::metadata(path).is_ok_and(|about| about.file_type().is_char_device());
    match access {
        Access::Private | Access::PrivateUnlocked if is_device() => {
            Err(MirrorFailure::LookAtDevice { path: path.to_owned() })
        }
        Access::ReadWrite | Access::Private | Access::PrivateUnlocked => Ok(()),
    }
}

/// `region`, which has to be no side, as its last page says. One whose page does not tell is only
/// looked at.
fn plain(path: &Path, (region, page): (MappedRegion, Page), access: Access) -> Result<VolumeRegion, RegionFailure> {
    match page {
        Page::Unreadable if access == Access::ReadWrite => {
            Err(MirrorFailure::Unknown { path: path.to_owned(), bytes: region.len() }.into())
        }
        Page::Absent | Page::Unreadable => Ok(MaybeMirrored::Plain(region)),
        Page::Side(_) => Err(MirrorFailure::IsSide { path: path.to_owned() }.into()),
        Page::Damaged => Err(MirrorFailure::of_one(path, MirrorError::DamagedPage { region: 0 }).into()),
    }
}

fn mirrored(mirror: Mirror<MappedRegion>) -> VolumeRegion {
    MaybeMirrored::Mirrored(mirror.telling_loss(warn_of_loss))
}

/// Tells the log that a side was given up: clients notice nothing.
fn warn_of_loss(survivor: &MirrorSide) {
    tracing::warn!(
        "side {} of the mirror {} lost a store: side {} goes on alone; see dmesg, replace the memory, then run: tidegate rebuild",
        1 - survivor.side,
        Uuid::from_bytes(survivor.set),
        survivor.side
    );
}

/// One of two regions. Without it the other one may go on alone.
fn in_pair(mapped: Result<MappedRegion, VolumeFailure>, other: &Path) -> Result<MappedRegion, RegionFailure> {
    let missing = |path, found| MirrorFailure::Missing { path, other: other.to_owned(), found }.into();
    mapped.map_err(|failure| match failure {
        VolumeFailure::Absent { path } => missing(path, "no such file"),
        VolumeFailure::Blank { path, bytes: 0 } => missing(path, "the file is empty"),
        failure => failure.into(),
    })
}

/// A progress line a second for `tell`, of bytes done and bytes to do.
pub(crate) fn once_a_second(verb: &'static str, mut tell: impl FnMut(&str)) -> impl FnMut(u64, u64) {
    let mut last = Instant::now();
    move |done, of| {
        if last.elapsed() >= LINE_EVERY {
            last = Instant::now();
            tell(&format!("{verb} {} of {}", Human(done), Human(of)));
        }
    }
}

pub(crate) fn refuse_other_domain(paths: [&Path; 2], regions: [&MappedRegion; 2]) -> Result<(), MirrorFailure> {
    let domains = regions.map(MappedRegion::domain);
    if domains[0] == domains[1] {
        return Ok(());
    }
    Err(MirrorFailure::Domains { paths: paths.map(Path::to_owned), domains })
}

/// Lets `region` at `path` be no side any more, whatever its last page says: a volume of its own is
/// about to be made in it.
///
/// # Errors
/// The memory loses the store.
pub fn leave(path: &Path, region: &MappedRegion) -> Result<(), VolumeFailure> {
    if page::read(region) == Page::Absent {
        return Ok(());
    }
    let lost = |sealed: Sealed| VolumeFailure::NotDurable { path: path.to_owned(), why: sealed.to_string() };
    region.zero_end(MIRROR_PAGE_BYTES).map_err(lost)
}

/// Makes two regions, which hold zeroes or bytes to be formatted over, the sides of a new set.
///
/// # Errors
/// The regions have different lengths, or do not survive the same failures.
pub fn create(paths: [&Path; 2], regions: [MappedRegion; 2]) -> Result<VolumeRegion, MirrorFailure> {
    refuse_other_domain(paths, [&regions[0], &regions[1]])?;
    let made = tidegate_mirror::create(regions, Uuid::new_v4().into_bytes(), MappedRegion::sync_file);
    Ok(mirrored(made.map_err(|error| MirrorFailure::of_two(paths, error))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_media::Allocation;

    #[test]
    fn a_region_whose_last_page_does_not_tell_is_only_looked_at() {
        let folder = tempfile::tempdir().expect("a folder");
        for access in [Access::ReadWrite, Access::Private] {
            let path = folder.path().join(format!("{access:?}"));
            drop(MappedRegion::create(&path, 64 << 10, Allocation::Full).expect("a region"));
            let region = MappedRegion::open(&path, access).expect("a region");
            let file = std::fs::File::options().write(true).open(&path).expect("a file");
            file.set_len((64 << 10) - MIRROR_PAGE_BYTES).expect("its last page is gone");
            let page = page::read(&region);
            match plain(&path, (region, page), access) {
                Ok(shown) => assert!(access == Access::Private && MirrorState::of(&shown).is_none()),
                Err(RegionFailure::Mirror(MirrorFailure::Unknown { bytes, .. })) => {
                    assert_eq!((access, bytes), (Access::ReadWrite, 64 << 10));
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn sides_on_a_device_are_not_opened_for_a_look() {
        let device = Path::new("/dev/null");
        for plan in [MirrorPlan::Degraded, MirrorPlan::With("/dev/zero".into())] {
            let refused = open(device, &plan, Access::Private).err();
            assert!(
                matches!(&refused, Some(RegionFailure::Mirror(MirrorFailure::LookAtDevice { path })) if path == device)
            );
            let other = open(device, &plan, Access::ReadWrite).err();
            assert!(matches!(other, Some(RegionFailure::Volume(_))), "a region that cannot be mapped: {other:?}");
        }
    }
}
