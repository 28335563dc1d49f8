//! The region of a volume: one mapped file, or two that are the sides of a mirror. A side is never
//! opened for stores like a plain region, as its twin would become stale unnoticed.

pub mod rebuild;

use crate::failure::{Doing, Failure, MirrorFailure, VolumeFailure};
use crate::stats::registry::{Metric, MetricSource, Unit};
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidegate_host::default_paths::is_same_file;
use tidegate_host::units::Human;
use tidegate_host::unlocked::unlocked;
use tidegate_layout::mirror::SideState;
use tidegate_media::{
    Access, Counters, Domain, FileDisk, Instructions, LineOrder, MappedRegion, Poison, Region, Sealed,
};
use tidegate_mirror::page::{self, Page};
use tidegate_mirror::{Liveness, Mirror, MirrorError};
use uuid::Uuid;

/// Between two lines about progress.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// The region of a volume.
pub enum VolumeRegion {
    /// One region.
    Plain(MappedRegion),
    /// The sides of a mirror, or one of them.
    Mirrored {
        /// What the volume lies on.
        mirror: Mirror<MappedRegion>,
        /// Whether the log was told that a side was given up, or has nothing to tell.
        is_told: AtomicBool,
    },
}

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
}

/// A mirror as `info` and `serve` show it.
#[derive(Clone, Debug, Serialize)]
pub struct MirrorState {
    /// The set, which both sides share.
    pub set: Uuid,
    /// Grows with each change of state.
    pub generation: u64,
    /// Sides that have every write, by their numbers. Of a region that was named alone: its own.
    pub sides: Vec<u32>,
    /// `mirrored`, `alone`, or `copying`: an incomplete copy.
    pub state: &'static str,
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
                _ => "each side has every write",
            }
        )
    }
}

/// Maps the region at `path` as a file, side of a mirror or not.
pub(crate) fn map_file(path: &Path, access: Access) -> Result<MappedRegion, Failure> {
    unlocked(|| MappedRegion::open(path, access)).map_err(|error| not_mapped(access, error))
}

/// Why a region is not mapped.
pub(crate) fn not_mapped(access: Access, error: tidegate_media::MapError) -> Failure {
    let doing = if access == Access::ReadWrite { Doing::Write } else { Doing::Read };
    VolumeFailure::of_map(doing, error).into()
}

/// Opens the region at `path` with its twin, as `plan` says.
pub fn open(path: &Path, plan: &MirrorPlan, access: Access) -> Result<VolumeRegion, Failure> {
    match plan {
        MirrorPlan::Absent => plain(path, map_file(path, access)?),
        MirrorPlan::Degraded => {
            let region = map_file(path, access)?;
            let opened = tidegate_mirror::open_alone(region, MappedRegion::sync_file);
            Ok(mirrored(opened.map_err(|error| MirrorFailure::of_one(path, error))?))
        }
        MirrorPlan::With(other) => {
            if is_same_file(path, other) {
                return Err(MirrorFailure::Same { path: path.to_owned() }.into());
            }
            let regions = [in_pair(path, other, access)?, in_pair(other, path, access)?];
            refuse_other_domain([path, other], [&regions[0], &regions[1]])?;
            let progress = &mut once_a_second("compared", |line| tracing::info!("{}: {line}", path.display()));
            let opened = tidegate_mirror::open(regions, MappedRegion::sync_file, progress);
            let (mirror, resync) = opened.map_err(|error| MirrorFailure::of_two([path, other], error))?;
            if resync.copied_lines + resync.repaired_lines > 0 {
                tracing::info!("{}: made {} lines of both sides equal", path.display(), resync.copied_lines);
            }
            Ok(mirrored(mirror))
        }
    }
}

/// `region`, for a look at the volume in it if it is a side and nothing may be stored.
pub(crate) fn look(path: &Path, region: MappedRegion, access: Access) -> Result<VolumeRegion, Failure> {
    match page::read(&region) {
        Page::Side(_) if access != Access::ReadWrite => {
            let viewed = tidegate_mirror::view(region);
            Ok(mirrored(viewed.map_err(|error| MirrorFailure::of_one(path, error))?))
        }
        _ => plain(path, region),
    }
}

/// `region`, to be overwritten: what it holds shows on it.
pub(crate) fn to_overwrite(region: MappedRegion) -> VolumeRegion {
    match page::read(&region) {
        Page::Side(_) => match tidegate_mirror::view(region) {
            Ok(view) => mirrored(view),
            Err(_) => unreachable!(),
        },
        _ => VolumeRegion::Plain(region),
    }
}

/// `region`, which has to be no side.
fn plain(path: &Path, region: MappedRegion) -> Result<VolumeRegion, Failure> {
    match page::read(&region) {
        Page::Absent | Page::Unreadable => Ok(VolumeRegion::Plain(region)),
        Page::Side(_) => Err(MirrorFailure::IsSide { path: path.to_owned() }.into()),
        Page::Damaged => Err(MirrorFailure::of_one(path, MirrorError::DamagedPage { region: 0 }).into()),
    }
}

fn mirrored(mirror: Mirror<MappedRegion>) -> VolumeRegion {
    let is_told = AtomicBool::new(mirror.liveness() != Liveness::Both);
    VolumeRegion::Mirrored { mirror, is_told }
}

/// Maps one of two regions. Without it the other one may go on alone.
fn in_pair(path: &Path, other: &Path, access: Access) -> Result<MappedRegion, Failure> {
    map_file(path, access).map_err(|failure| match failure {
        Failure::Volume(VolumeFailure::Absent { path }) => {
            MirrorFailure::Missing { path, other: other.to_owned() }.into()
        }
        failure => failure,
    })
}

/// A progress line a second for `tell`, of bytes done and bytes to do.
pub(super) fn once_a_second(verb: &'static str, mut tell: impl FnMut(&str)) -> impl FnMut(u64, u64) {
    let mut last = Instant::now();
    move |done, of| {
        if last.elapsed() >= LINE_EVERY {
            last = Instant::now();
            tell(&format!("{verb} {} of {}", Human(done), Human(of)));
        }
    }
}

pub(super) fn refuse_other_domain(paths: [&Path; 2], regions: [&MappedRegion; 2]) -> Result<(), Failure> {
    let domains = regions.map(MappedRegion::domain);
    if domains[0] == domains[1] {
        return Ok(());
    }
    Err(MirrorFailure::Domains { paths: paths.map(Path::to_owned), domains }.into())
}

/// Makes two regions, which hold zeroes or whatever is to be formatted over, the sides of a new
/// set.
pub(crate) fn create(paths: [&Path; 2], regions: [MappedRegion; 2]) -> Result<VolumeRegion, Failure> {
    refuse_other_domain(paths, [&regions[0], &regions[1]])?;
    let made = tidegate_mirror::create(regions, Uuid::new_v4().into_bytes(), MappedRegion::sync_file);
    Ok(mirrored(made.map_err(|error| MirrorFailure::of_two(paths, error))?))
}

impl VolumeRegion {
    /// The files that take stores now.
    pub(crate) fn live(&self) -> impl Iterator<Item = &MappedRegion> {
        let regions = match self {
            VolumeRegion::Plain(region) => [Some(region), None],
            VolumeRegion::Mirrored { mirror, .. } => {
                let [first, second] = mirror.sides();
                match mirror.liveness() {
                    Liveness::Both => [first, second],
                    Liveness::First => [first, None],
                    Liveness::Second => [None, second],
                }
            }
        };
        regions.into_iter().flatten()
    }

    /// The file that reads come from.
    fn reader(&self) -> &MappedRegion {
        self.live().next().expect("a region has a file that lives")
    }

    /// What the contents survive: of both sides alike.
    pub fn domain(&self) -> Domain {
        self.reader().domain()
    }

    /// The instructions that carry stores to the medium.
    pub fn instructions(&self) -> Instructions {
        self.reader().instructions()
    }

    /// The region's file, if it has one and no twin.
    pub(crate) fn only_file(&self) -> Option<&File> {
        match self {
            VolumeRegion::Plain(region) => region.file(),
            VolumeRegion::Mirrored { .. } => None,
        }
    }

    /// The region's mapped file. A side comes without its twin; of two sides, the first.
    pub(crate) fn into_mapped(self) -> MappedRegion {
        match self {
            VolumeRegion::Plain(region) => region,
            VolumeRegion::Mirrored { mirror, .. } => mirror.into_first(),
        }
    }

    /// Whether no byte is set. A mirror is never blank: its pages say what it is.
    pub(crate) fn is_all_zero(&self) -> Result<bool, Poison> {
        match self {
            VolumeRegion::Plain(region) => region.is_all_zero(),
            VolumeRegion::Mirrored { .. } => Ok(false),
        }
    }

    /// The files that take stores now.
    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.live().filter_map(MappedRegion::file)
    }

    /// Makes what was stored durable where fences alone do not.
    pub(crate) fn sync_files(&self) -> io::Result<()> {
        self.live().try_for_each(MappedRegion::sync_file)
    }

    /// Nothing is known of the disk that this region caches from now on.
    pub(crate) fn forget_disk(&self) -> io::Result<()> {
        self.live().try_for_each(MappedRegion::forget_disk)
    }

    /// Notes how the disk that this region caches is left.
    pub(crate) fn note_as_left(&self, disk: &FileDisk) {
        self.live().for_each(|region| disk.note_as_left(region));
    }

    /// Whether `disk` is known to be another than this region left it.
    pub(crate) fn knows_changed(&self, disk: &FileDisk) -> bool {
        self.live().any(|region| disk.was_changed_without(region))
    }

    /// The mirror that the region is, or is a side of.
    pub fn mirror(&self) -> Option<MirrorState> {
        let VolumeRegion::Mirrored { mirror, .. } = self else { return None };
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
            },
        })
    }
}

/// Tells the log that a side was given up: clients notice nothing.
#[cold]
fn tell_of_loss(mirror: &Mirror<MappedRegion>) {
    let lost = if mirror.liveness() == Liveness::First { 1 } else { 0 };
    tracing::warn!(
        "side {lost} of the mirror {} lost a store: the other side goes on alone; see dmesg, replace the memory, then run: tidegate rebuild",
        Uuid::from_bytes(mirror.page().set)
    );
}

impl Region for VolumeRegion {
    fn len(&self) -> u64 {
        match self {
            VolumeRegion::Plain(region) => region.len(),
            VolumeRegion::Mirrored { mirror, .. } => mirror.len(),
        }
    }

    #[inline]
    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        match self {
            VolumeRegion::Plain(region) => region.read(at, out),
            VolumeRegion::Mirrored { mirror, .. } => mirror.read(at, out),
        }
    }

    #[inline]
    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        match self {
            VolumeRegion::Plain(region) => region.load_u64(at),
            VolumeRegion::Mirrored { mirror, .. } => mirror.load_u64(at),
        }
    }

    #[inline]
    #[track_caller]
    fn write(&self, at: u64, bytes: &[u8]) {
        match self {
            VolumeRegion::Plain(region) => region.write(at, bytes),
            VolumeRegion::Mirrored { mirror, .. } => mirror.write(at, bytes),
        }
    }

    #[inline]
    #[track_caller]
    fn stream(&self, at: u64, bytes: &[u8]) {
        match self {
            VolumeRegion::Plain(region) => region.stream(at, bytes),
            VolumeRegion::Mirrored { mirror, .. } => mirror.stream(at, bytes),
        }
    }

    #[inline]
    #[track_caller]
    fn store_u64(&self, at: u64, word: u64) {
        match self {
            VolumeRegion::Plain(region) => region.store_u64(at, word),
            VolumeRegion::Mirrored { mirror, .. } => mirror.store_u64(at, word),
        }
    }

    #[inline]
    #[track_caller]
    fn flush(&self, at: u64, len: u64) {
        match self {
            VolumeRegion::Plain(region) => region.flush(at, len),
            VolumeRegion::Mirrored { mirror, .. } => mirror.flush(at, len),
        }
    }

    #[inline]
    fn fence(&self) -> Result<(), Sealed> {
        match self {
            VolumeRegion::Plain(region) => region.fence(),
            VolumeRegion::Mirrored { mirror, is_told } => {
                let fenced = mirror.fence();
                // Relaxed: one of those that see it tells.
                if mirror.liveness() != Liveness::Both && !is_told.swap(true, Ordering::Relaxed) {
                    tell_of_loss(mirror);
                }
                fenced
            }
        }
    }

    fn line_order(&self) -> LineOrder {
        self.reader().line_order()
    }
}

impl MetricSource for VolumeRegion {
    fn metrics(&self) -> Vec<Metric> {
        let VolumeRegion::Mirrored { mirror, .. } = self else {
            return self.live().flat_map(|region| metrics_of(region.counters())).collect();
        };
        let counted = mirror.sides().into_iter().flatten().map(MappedRegion::counters);
        let sum = counted.fold(Counters::default(), |sum, side| Counters {
            bytes_stored: sum.bytes_stored + side.bytes_stored,
            lines_flushed: sum.lines_flushed + side.lines_flushed,
            lines_256_touched: sum.lines_256_touched + side.lines_256_touched,
            fences: sum.fences + side.fences,
        });
        let gauge = |name, help, value| Metric::gauge(name, help, Unit::Count, value);
        let mut metrics = metrics_of(sum);
        metrics.extend([
            gauge("mirror_sides", "Sides of the mirror that have every write", self.live().count() as u64),
            gauge("mirror_generation", "Changes of the mirror's state", mirror.page().generation),
            Metric::counter(
                "mirror_repaired_lines",
                "Lines of 64 bytes that one side could not give and got from the other",
                Unit::Count,
                mirror.repaired_lines(),
            ),
        ]);
        metrics
    }
}

/// What one region counted, or both sides of a mirror together.
fn metrics_of(counters: Counters) -> Vec<Metric> {
    let Counters { bytes_stored, lines_flushed, lines_256_touched, fences } = counters;
    let counter = |name, help, unit, value| Metric::counter(name, help, unit, value);
    vec![
        counter("region_stored", "Bytes stored to the region", Unit::Bytes, bytes_stored),
        counter("region_flushed_lines", "Lines of 64 bytes flushed or streamed", Unit::Count, lines_flushed),
        counter("region_touched_256_byte_lines", "Lines of 256 bytes of those", Unit::Count, lines_256_touched),
        counter("region_fences", "Fences", Unit::Count, fences),
    ]
}
