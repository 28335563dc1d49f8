//! Commands about a region in front of a disk, and the flags with which `serve` serves one.

use super::values::{admit, cache_mode, replacement, size};
use super::words::words;
use crate::disks::{self, DiskPlan, Named};
use crate::risk;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;
use tidegate_disk_cache::Mode as CacheMode;
use tidegate_policy::admit::Admit;
use tidegate_policy::evict::Replacement;
use tidegate_policy::writeback::destage::Caps;

#[derive(Args, Clone, Debug)]
pub(crate) struct DiskFlags {
    /// The disk behind a volume that caches one [default: where it was when the volume was last open]
    #[arg(long, value_name = "DISK", value_hint = ValueHint::FilePath)]
    disk: Option<PathBuf>,

    /// Take the disk that --disk names, which has no name of its own, although it is not where it was. Needs --disk
    #[arg(long, requires = "disk")]
    force: bool,

    /// What such a volume does with reads and writes: write-back, write-through, write-around, write-only, pass-through or read-only
    /// [default: write-back]
    #[arg(long, value_name = "MODE", value_parser = words(cache_mode, || CacheMode::ALL.map(CacheMode::name).to_vec()), hide_possible_values = true)]
    disk_mode: Option<CacheMode>,

    /// Serve by write-back or write-only although a power loss empties the region's memory (tmpfs, DAX memory that declares nothing): completed writes,
    /// flushed ones too, are lost then if the disk does not have them yet
    #[arg(long)]
    accept_volatile: bool,

    /// Which clean block goes when room is needed: lru, clock, sieve, 2q or s3-fifo [default: lru]
    #[arg(long, value_name = "NAME", value_parser = words(replacement, || Replacement::ALL.map(Replacement::name).to_vec()), hide_possible_values = true)]
    replacement: Option<Replacement>,

    /// Which blocks that are read come into such a volume's region: always, second-miss (when they are read again) or never
    /// [default: always]
    #[arg(long, value_name = "NAME", value_parser = words(admit, || Admit::ALL.map(Admit::name).to_vec()), hide_possible_values = true)]
    admit: Option<Admit>,

    /// Reads that follow each other for more bytes than this bring nothing in, or 0: they do [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    sequential_cutoff: Option<u64>,

    /// Flush nothing for blocks that are read: a restart forgets those that were not written since
    #[arg(long)]
    forget_reads: bool,

    /// How much of such a volume's region may be dirty before the disk is never left alone, in percent [default: 70]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    dirty_percent: Option<u8>,

    /// The same as a size; the smaller one counts
    #[arg(long, value_name = "SIZE", value_parser = size)]
    dirty_max: Option<u64>,

    /// Seconds after which a dirty block is written to the disk although writers are busy [default: 30]
    #[arg(long, value_name = "SECONDS")]
    dirty_age: Option<u32>,
}

impl DiskFlags {
    /// Whether any of them is there, be it to say what is usual.
    fn is_given(&self) -> bool {
        let DiskFlags { disk, disk_mode, replacement, admit, sequential_cutoff, .. } = self;
        let DiskFlags { accept_volatile, forget_reads, dirty_percent, dirty_max, dirty_age, .. } = self;
        let of_requests = disk.is_some() || disk_mode.is_some() || replacement.is_some() || admit.is_some();
        let of_dirt = dirty_percent.is_some() || dirty_max.is_some() || dirty_age.is_some();
        of_requests || of_dirt || *accept_volatile || *forget_reads || sequential_cutoff.is_some()
    }

    /// What they ask for.
    pub(crate) fn plan(&self) -> DiskPlan {
        let usual = DiskPlan::default();
        DiskPlan {
            asked_for: self.is_given(),
            path: self.disk.clone(),
            force: self.force,
            mode: self.disk_mode.unwrap_or(usual.mode),
            volatile: risk::accepted(self.accept_volatile),
            replacement: self.replacement.unwrap_or(usual.replacement),
            admit: self.admit.unwrap_or(usual.admit),
            sequential_bytes: self.sequential_cutoff.unwrap_or(usual.sequential_bytes),
            reads: disks::reads(self.forget_reads),
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

    /// Take the disk that --disk names, which has no name of its own, although it is not where it was. Needs --disk
    #[arg(long, requires = "disk")]
    force: bool,
}

impl DiskPlace {
    pub(crate) fn named(&self) -> Named<'_> {
        Named { path: self.disk.as_deref(), force: self.force }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Flush {
    /// The region that caches the disk
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: PathBuf,

    /// Wait until everything that was dirty is on the disk. Without a server this is always so
    #[arg(long)]
    pub(crate) wait: bool,

    /// The running server's control socket [default: beside the region, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,

    /// The disk, if no server runs [default: where it was when the volume was last open]
    #[arg(long, value_name = "DISK", value_hint = ValueHint::FilePath)]
    disk: Option<PathBuf>,

    /// Go on although the disk was written without its region since, so that the blocks that the region has for it go over what it holds now; and take a disk without a name although it is not where it was
    #[arg(long)]
    pub(crate) force: bool,
}

impl Flush {
    pub(crate) fn named(&self) -> Named<'_> {
        Named { path: self.disk.as_deref(), force: self.force }
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

    /// Change to write-back or write-only although a power loss empties the region's memory: completed writes, flushed ones too, are lost then if the disk
    /// does not have them yet
    #[arg(long)]
    pub(crate) accept_volatile: bool,

    /// write-back, write-through, write-around, write-only, pass-through or read-only
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

    /// The control socket of a server that serves the disk alone since it was detached [default: beside the region, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,

    /// The disk that it caches from now on
    #[arg(long, value_name = "DISK", value_hint = ValueHint::FilePath)]
    pub(crate) disk: PathBuf,

    /// Put the region in front of the disk although a power loss empties its memory (tmpfs, DAX memory that declares nothing)
    #[arg(long)]
    pub(crate) accept_volatile: bool,

    /// Write over what the end of the disk holds, where an ordered one has its journal, be it that of another region
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Resize {
    /// The region that caches the disk: a file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: PathBuf,

    /// Bytes of the region: a multiple of 4096, 1G, 512M, 1GiB (units of 1024). What it held of the disk goes, once the disk has it
    #[arg(long, value_parser = size, required_unless_present = "to_disk")]
    pub(crate) size: Option<u64>,

    /// Make the volume as large as its disk, which has grown. While no server runs
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

    /// Where to: a new file, sparse and as long as the disk; or, with --force, a copy of the disk
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) to: PathBuf,

    /// Write over what the file or disk holds
    #[arg(long)]
    pub(crate) force: bool,

    /// Write the cached blocks too that the disk had: for a disk that is lost
    #[arg(long)]
    pub(crate) clean_too: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Replay {
    /// The disk: a block device or a file, whose region was made with `tidegate create --ordered` and is lost
    #[arg(value_name = "DISK", value_hint = ValueHint::FilePath)]
    pub(crate) disk: PathBuf,

    /// Go on: the region is lost, and this disk was not written without it
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
