//! Commands about a region in front of a disk, and the flags with which `serve` serves one.

use super::values::{admit, cache_mode, replacement, size};
use super::words::words;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;
use tidegate_disk_cache::Mode as CacheMode;
use tidegate_policy::admit::Admit;
use tidegate_policy::evict::Replacement;
use tidegate_policy::writeback::destage::Caps;
use tidegate_server::cached_disk::disk::{self, DiskLocation, DiskPlan};
use tidegate_server::cached_disk::volatile;

/// The heading of flags about disk caches, in the help of every command that has them.
pub(super) const DISK_CACHE: &str = "Disk cache";

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = DISK_CACHE)]
pub(crate) struct DiskFlags {
    /// The disk of a volume that caches one [default: where it was when the volume was last open]
    #[arg(long, value_name = "DISK", value_hint = ValueHint::FilePath)]
    disk: Option<PathBuf>,

    /// Accept a disk without a serial number at a new path. Needs --disk
    #[arg(long, requires = "disk")]
    force: bool,

    /// How the cache treats reads and writes: write-back, write-through, write-around, write-only,
    /// pass-through or read-only [default: write-back]
    #[arg(long, value_name = "MODE", value_parser = words(cache_mode, || CacheMode::ALL.map(CacheMode::name).to_vec()), hide_possible_values = true)]
    disk_mode: Option<CacheMode>,

    /// Serve by write-back or write-only even if a power loss empties the region (tmpfs, DAX memory
    /// that declares nothing). A power loss then takes completed writes, flushed ones too, that the
    /// disk does not have yet
    #[arg(long)]
    accept_volatile: bool,

    /// How clean blocks are evicted: lru, clock, sieve, 2q or s3-fifo [default: lru]
    #[arg(long, value_name = "NAME", value_parser = words(replacement, || Replacement::ALL.map(Replacement::name).to_vec()), hide_possible_values = true)]
    replacement: Option<Replacement>,

    /// Which blocks read from the disk enter the cache: always, second-miss (on their second read)
    /// or never [default: always]
    #[arg(long, alias = "admit", value_name = "NAME", value_parser = words(admit, || Admit::ALL.map(Admit::name).to_vec()), hide_possible_values = true)]
    read_admission: Option<Admit>,

    /// Do not cache sequential reads that are longer than this; 0 caches all [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    sequential_cutoff: Option<u64>,

    /// Do not persist read-cached blocks; the read cache starts empty after a restart
    #[arg(long, alias = "forget-reads")]
    volatile_reads: bool,

    /// Percentage of dirty blocks above which the disk is written without a pause [default: 70]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    dirty_percent: Option<u8>,

    /// Size of all dirty blocks above which the disk is written without a pause. If --dirty-percent
    /// is less, it decides
    #[arg(long, value_name = "SIZE", value_parser = size)]
    dirty_max: Option<u64>,

    /// Seconds after which a dirty block is written to the disk even if clients are busy [default:
    /// 30]
    #[arg(long, value_name = "SECONDS")]
    dirty_age: Option<u32>,
}

impl DiskFlags {
    /// Whether any of them is there, be it to say what is usual.
    fn is_given(&self) -> bool {
        let DiskFlags { disk, disk_mode, replacement, read_admission, sequential_cutoff, .. } = self;
        let DiskFlags { accept_volatile, volatile_reads, dirty_percent, dirty_max, dirty_age, .. } = self;
        let of_requests = disk.is_some() || disk_mode.is_some() || replacement.is_some() || read_admission.is_some();
        let of_dirt = dirty_percent.is_some() || dirty_max.is_some() || dirty_age.is_some();
        of_requests || of_dirt || *accept_volatile || *volatile_reads || sequential_cutoff.is_some()
    }

    /// What they ask for.
    pub(crate) fn plan(&self) -> DiskPlan {
        let usual = DiskPlan::default();
        DiskPlan {
            asked_for: self.is_given(),
            path: self.disk.clone(),
            force: self.force,
            mode: self.disk_mode.unwrap_or(usual.mode),
            volatile: volatile::accepted(self.accept_volatile),
            replacement: self.replacement.unwrap_or(usual.replacement),
            admit: self.read_admission.unwrap_or(usual.admit),
            sequential_bytes: self.sequential_cutoff.unwrap_or(usual.sequential_bytes),
            reads: disk::reads(self.volatile_reads),
            caps: Caps {
                dirty_bytes: self.dirty_max,
                dirty_percent: self.dirty_percent.unwrap_or(usual.caps.dirty_percent),
                age: self.dirty_age.map_or(usual.caps.age, |seconds| Duration::from_secs(seconds.into())),
            },
            ..usual
        }
    }
}

/// Where the disk of a volume is that no server runs.
#[derive(Args, Debug)]
pub(crate) struct DiskPlace {
    /// The disk, if no server runs [default: where it was when the volume was last open]
    #[arg(long, value_name = "DISK", value_hint = ValueHint::FilePath)]
    disk: Option<PathBuf>,

    /// Accept a disk without a serial number at a new path. Needs --disk
    #[arg(long, requires = "disk")]
    force: bool,
}

impl DiskPlace {
    pub(crate) fn location(&self) -> DiskLocation<'_> {
        DiskLocation { path: self.disk.as_deref(), force: self.force }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Flush {
    /// The region that caches a disk, or the pool of a mount
    #[arg(value_name = "FILE", required_unless_present = "pmem", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,

    /// The region that caches the disk
    #[arg(long, value_name = "FILE", conflicts_with = "file", value_hint = ValueHint::FilePath)]
    pmem: Option<PathBuf>,

    /// The other side of the mirror that the region is a side of, if no server runs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) mirror: Option<PathBuf>,

    /// Wait until all blocks that were dirty are on the disk. Without a server this is always so
    #[arg(long)]
    pub(crate) wait: bool,

    /// The running server's control socket [default: beside the region, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,

    /// The disk, if no server runs [default: where it was when the volume was last open]
    #[arg(long, value_name = "DISK", value_hint = ValueHint::FilePath)]
    disk: Option<PathBuf>,

    /// Go on although another program wrote to the disk since: the region's dirty blocks overwrite
    /// what the disk holds there. Accept a disk without a serial number at a new path, too
    #[arg(long)]
    pub(crate) force: bool,
}

impl Flush {
    /// The region or pool. The grammar has one of both.
    pub(crate) fn region(&self) -> PathBuf {
        self.file.as_ref().or(self.pmem.as_ref()).cloned().unwrap_or_default()
    }

    pub(crate) fn location(&self) -> DiskLocation<'_> {
        DiskLocation { path: self.disk.as_deref(), force: self.force }
    }
}

#[derive(Args, Debug)]
pub(crate) struct SetMode {
    /// The region of the served volume
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: PathBuf,

    /// The running server's control socket [default: beside the region, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,

    /// Change to write-back or write-only even if a power loss empties the region. A power loss
    /// then takes completed writes, flushed ones too, that the disk does not have yet
    #[arg(long)]
    pub(crate) accept_volatile: bool,

    /// The new mode: write-back, write-through, write-around, write-only, pass-through or read-only
    #[arg(value_name = "MODE", value_parser = words(cache_mode, || CacheMode::ALL.map(CacheMode::name).to_vec()), hide_possible_values = true)]
    pub(crate) mode: CacheMode,
}

#[derive(Args, Debug)]
pub(crate) struct Detach {
    /// The region that caches the disk
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: PathBuf,

    /// The running server's control socket [default: beside the region, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) place: DiskPlace,
}

#[derive(Args, Debug)]
pub(crate) struct Attach {
    /// A region that was detached from its disk
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: PathBuf,

    /// The other side of the mirror that the region is a side of, if no server runs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) mirror: Option<PathBuf>,

    /// The control socket of a server that serves the disk alone since it was detached [default:
    /// beside the region, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,

    /// The disk to cache from now on
    #[arg(long, value_name = "DISK", value_hint = ValueHint::FilePath)]
    pub(crate) disk: PathBuf,

    /// Cache the disk even if a power loss empties the region (tmpfs, DAX memory that declares
    /// nothing)
    #[arg(long)]
    pub(crate) accept_volatile: bool,

    /// Overwrite the end of the disk, where an ordered disk has its journal, even if that of
    /// another region is there
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Resize {
    /// The region that caches the disk: a file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: PathBuf,

    /// Bytes of the region: a multiple of 4096, 1G, 512M, 1GiB (units of 1024). Its cached blocks
    /// are dropped once the disk has them
    #[arg(long, value_parser = size, required_unless_present = "to_disk")]
    pub(crate) size: Option<u64>,

    /// Make the volume as large as its disk, which has grown. No server may run
    #[arg(long, conflicts_with_all = ["control", "size"])]
    pub(crate) to_disk: bool,

    /// The running server's control socket [default: beside the region, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) place: DiskPlace,
}

#[derive(Args, Debug)]
pub(crate) struct Salvage {
    /// The region that caches a disk. It is not changed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: PathBuf,

    /// Where to write: a new file, sparse and as long as the disk; or, with --force, a copy of the
    /// disk
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) to: PathBuf,

    /// Overwrite what the file or disk holds
    #[arg(long)]
    pub(crate) force: bool,

    /// Write clean blocks too: for a disk that is lost
    #[arg(long)]
    pub(crate) clean_too: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// The disk, a block device or a file: its region was made with `tidegate create --ordered` and
    /// is lost
    #[arg(value_name = "DISK", value_hint = ValueHint::FilePath)]
    pub(crate) disk: PathBuf,

    /// Confirm that the region is lost, and that no other program wrote to the disk since
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Scrub {
    /// The region that caches a disk. It is not changed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: PathBuf,

    /// The running server's control socket [default: beside the region, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,
}
