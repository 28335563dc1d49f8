//! The command line: what may be written, and its help.

mod words;

use crate::disks::{self, DiskPlan, Named};
use crate::failure::{Exit, Failure, UsageFailure};
use crate::listen::Place;
use crate::peers;
use crate::risk;
use crate::transit::CacheWish;
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use rustix::fs::Mode;
use std::error::Error;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tidegate_disk_cache::Mode as CacheMode;
use tidegate_host::default_paths;
use tidegate_host::units;
use tidegate_layout::btt::{SECTOR_SIZES, Version};
use tidegate_layout::disk_cache::{CACHE_BLOCK_BYTES_MAX, CACHE_BLOCK_BYTES_MIN};
use tidegate_media::emulate::Profile;
use tidegate_policy::admit::Admit;
use tidegate_policy::destage::Caps;
use tidegate_policy::evict::Replacement;
use words::words;

/// Atomic block devices in persistent memory, served over NBD.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true)]
pub(crate) struct Program {
    /// Answer with JSON, one object to a line: answers on stdout, errors on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Log more than warnings to stderr: -v clients that come and go, and what the program does by itself; -vv also who each client is, scrapes, and what
    /// control sockets are asked; -vvv also each request of a client
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a region file with an empty volume in it
    Create(Create),
    /// Serve volumes over NBD until SIGTERM or SIGINT
    Serve(Box<Serve>),
    /// Show what a volume is, whether it is in use, and what survives what
    Info(Info),
    /// List servers and runs, and what killed ones left: for this user, or as root for all
    List,
    /// End a server in good order, wait until it has ended, and tell how
    Stop(Stop),
    /// Show what a running server does: requests, times, clients, and what reached the memory
    Stat(Stat),
    /// Check every rule of the format, and repair what can be repaired
    Check(Check),
    /// Write everything that only the cache of a disk has to that disk
    Flush(Flush),
    /// Change what the cache of a disk does with reads and writes, while it is served
    Mode(SetMode),
    /// Move everything from the cache of a disk to that disk, and set the disk free
    Detach(Detach),
    /// Give a detached cache a disk
    Attach(Attach),
    /// Make the region in front of a disk larger or smaller
    Resize(Resize),
    /// Write what only the cache of a disk has to a file or to another disk, without that disk
    Salvage(Salvage),
    /// Make an ordered disk whole whose region is lost: put in place what its journal holds
    Replay(Replay),
    /// Read every block that the cache of a disk holds, and compare it with its checksum
    Scrub(Scrub),
    /// Run an unchanged program whose syncs end in persistent memory, and return what it returns (experimental)
    ///
    /// Experimental: in some cases a recovery after a power loss puts older bytes over synced ones, or cannot put synced bytes back. The README lists them
    /// ("Files of programs that were never changed"). Keep backups of what lies below the roots.
    Run(Run),

    /// Show what a run is doing: files, their syncs, and what each saved
    Status(Status),

    /// Bring what a run left in its pool to its files; what cannot go there, aside
    Recover(Recover),
    /// Write manual pages: one for the program, one for each command
    Man(Man),
    /// Print a script that completes command lines
    Completions(Completions),
}

#[derive(Args, Debug)]
pub(crate) struct Create {
    /// The region: a new file (on a DAX file system, tmpfs or disk), or a DAX device
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: PathBuf,

    /// The disk to put the region in front of: a block device or a file. What it holds becomes the volume's contents
    #[arg(long, value_name = "DISK", value_hint = ValueHint::FilePath, conflicts_with = "btt")]
    pub(crate) disk: Option<PathBuf>,

    /// Bytes of the region: a multiple of 4096, 1G, 512M, 1GiB (units of 1024). The volume in it is a little smaller
    #[arg(long, value_parser = size)]
    pub(crate) size: Option<u64>,

    /// Bytes of a block, per-block metadata included: 512, 520, 528, 4096 (4K), 4104, 4160 or 4224; with --disk a power of two from 512 to 65536 (64K)
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = words(block_size, || BLOCK_WORDS.to_vec()), hide_possible_values = true)]
    pub(crate) block: u32,

    /// Version of the format: 1.1 (starts at byte 4096) or 2.0 (starts at byte 0)
    #[arg(long, value_name = "VERSION", default_value = "1.1", value_parser = words(version, || VERSION_WORDS.to_vec()), hide_possible_values = true)]
    pub(crate) btt: Version,

    /// Keep a checksum of each block in front of a disk: reads, writes to the disk and `tidegate scrub` notice memory that changed
    #[arg(long, requires = "disk")]
    pub(crate) checksums: bool,

    /// Let the disk alone be, at every instant, what all writes up to a moment left: a journal takes its end, as large as the memory, and each block
    /// reaches the disk twice
    #[arg(long, requires = "disk")]
    pub(crate) ordered: bool,

    /// Put a region in front of a disk although a power loss empties its memory (tmpfs, DAX memory that declares nothing)
    #[arg(long, requires = "disk")]
    pub(crate) accept_volatile: bool,

    /// Do not allocate the file's space now: writes may meet a full file system later
    #[arg(long)]
    pub(crate) sparse: bool,

    /// Overwrite a file that already holds something; take a disk that has the journal of another region, and with --ordered whatever its end holds
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// The region with the volume [default: one of 1 GiB in the user's state folder, created if absent]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: Option<PathBuf>,

    /// A TOML file with volumes, each an export by name, and what the flags here say. Flags win over the file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["pmem", "emulate", "cache", "level_wear", "read_only", "disk", "disk_mode", "accept_volatile", "replacement", "admit", "sequential_cutoff", "forget_reads", "dirty_percent", "dirty_max", "dirty_age"])]
    pub(crate) config: Option<PathBuf>,

    /// Where to listen: unix:PATH or tcp:ADDRESS:PORT, more than once if wanted; TCP, on loopback too, needs --tls-certificate or --insecure [default: a
    /// unix socket in the user's runtime folder]
    #[arg(long, value_name = "PLACE", value_parser = Place::parse)]
    pub(crate) listen: Vec<Place>,

    /// Make the memory as slow as another: nvdimm, stt-ram, pcm, optane or cxl
    #[arg(long, value_name = "NAME", value_parser = words(profile, || Profile::NAMES.to_vec()), hide_possible_values = true)]
    pub(crate) emulate: Option<Profile>,

    /// Memory for the cache in front of the volume: a size, off, or auto: 16M if the region is a good deal slower than DRAM [default: auto]
    #[arg(long, value_name = "SIZE", value_parser = words(cache, || vec!["auto", "off"]), hide_possible_values = true)]
    pub(crate) cache: Option<CacheWish>,

    /// After one write in so many move one more block, any, so that the memory wears evenly: a block that is written over and over would wear out two
    /// places. 100 costs one more write and a read in a hundred writes [default: blocks stay where they are]
    #[arg(long, value_name = "WRITES", value_parser = from_one_on::<NonZeroU32>)]
    pub(crate) level_wear: Option<NonZeroU32>,

    #[command(flatten)]
    pub(crate) disk: DiskFlags,

    /// Refuse writes, and never change the file
    #[arg(long)]
    pub(crate) read_only: bool,

    /// The server's certificate, PEM: with it TCP connections have to be encrypted, and unix ones may be
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// The certificate's private key, PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Authorities, PEM: encrypted clients need a certificate that one of them signed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_certificate")]
    pub(crate) tls_clients: Option<PathBuf>,

    /// Let TCP listen without encryption: whoever reaches the port reads and writes the volume, on loopback every user of this machine
    #[arg(long)]
    pub(crate) insecure: bool,

    /// Permissions of unix sockets, octal: 0660 lets a group open them [default: 0600]
    #[arg(long, value_name = "MODE", value_parser = words(socket_mode, || vec!["0600", "0660", "0666"]), hide_possible_values = true)]
    pub(crate) socket_mode: Option<Mode>,

    /// Serve this user on unix sockets too, by name or number, more than once if wanted [default: the server's own and root].
    /// --socket-mode has to let them open the socket
    #[arg(long, value_name = "USER", value_hint = ValueHint::Username, value_parser = peers::user)]
    pub(crate) allow_uid: Vec<u32>,

    /// Serve processes of this group on unix sockets too, by name or number, more than once if wanted. A --socket-mode for a group means this one if
    /// there is only one
    #[arg(long, value_name = "GROUP", value_parser = peers::group)]
    pub(crate) allow_gid: Vec<u32>,

    /// Connections served at once, as far as the system's limits allow [default: 16384]
    #[arg(long, value_name = "COUNT", value_parser = from_one_on::<NonZeroUsize>)]
    pub(crate) connections_max: Option<NonZeroUsize>,

    /// The control socket, which `tidegate stat` asks [default: beside each volume, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,

    /// Answer Prometheus over HTTP on this port of a loopback address: tcp:127.0.0.1:9809. Every user of this machine may read the counters there, and
    /// change nothing
    #[arg(long, value_name = "PLACE", value_parser = metrics)]
    pub(crate) metrics: Option<SocketAddr>,
}

#[derive(Args, Debug)]
pub(crate) struct Info {
    #[command(flatten)]
    pub(crate) region: NamedRegion,
}

#[derive(Args, Debug)]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(crate) region: NamedRegion,

    /// The server's control socket [default: beside the volume, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,
}

/// A region by a flag, as everywhere, or alone.
#[derive(Args, Debug)]
pub(crate) struct NamedRegion {
    /// The region with the volume [default: the one in the user's state folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pmem: Option<PathBuf>,

    /// The same
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "pmem")]
    file: Option<PathBuf>,
}

impl NamedRegion {
    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.given().unwrap_or_else(default_paths::default_volume)
    }

    /// The same, if it was named.
    pub(crate) fn given(&self) -> Option<PathBuf> {
        self.pmem.clone().or_else(|| self.file.clone())
    }
}

#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// The region of a volume being served [default: the one in the user's state folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: Option<PathBuf>,

    /// The server's control socket [default: beside the volume, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with = "pmem")]
    pub(crate) control: Option<PathBuf>,

    /// After everything since the server's start, look again every second, and show what came in between: differences of what only grows, and what goes
    /// up and down as it is
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) region: NamedRegion,

    /// Repair what can be repaired; a repair that gives blocks up asks first, or needs --yes
    #[arg(long)]
    pub(crate) repair: bool,

    /// Say what the repair would do, and change nothing
    #[arg(long, requires = "repair")]
    pub(crate) dry_run: bool,

    /// Repair without asking, whatever has to be given up
    #[arg(long, requires = "repair")]
    pub(crate) yes: bool,
}

/// How a volume that caches a disk is served.
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

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Run {
    /// The pool: a file in persistent memory (on a DAX file system), or a DAX device; made if it is absent [default: one in the user's state
    /// folder]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pool: Option<PathBuf>,

    /// A TOML file with what the flags here say, by the same words. Flags win over the file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Bytes of a pool that is made: 64M, 1G [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) size: Option<u64>,

    /// A folder whose files, at any depth, may be held; more than once if wanted [default: the current folder]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Vec<PathBuf>,

    /// Files that are never held, more than once if wanted: `*.tmp` is about names, `/data/**` about paths
    #[arg(long, value_name = "GLOB")]
    pub(crate) deny: Vec<String>,

    /// Run even if the pool is no persistent memory: a power loss then takes what programs synced last
    #[arg(long = "try")]
    pub(crate) is_trial: bool,

    /// The program and its arguments
    #[arg(value_name = "CMD", value_hint = ValueHint::CommandWithArguments, required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The pool of a `run` that is under way [default: the one in the user's state folder]
    #[arg(value_name = "POOL", value_hint = ValueHint::FilePath)]
    pub(crate) pool: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Recover {
    /// The pool of a `run` that did not end well
    #[arg(value_name = "POOL", value_hint = ValueHint::FilePath)]
    pub(crate) pool: PathBuf,

    /// Where to put what was synced to files that are missing, others now, or written since [default: POOL.salvaged]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) to: Option<PathBuf>,

    /// Put aside what was synced to files of file systems that are not mounted, too
    #[arg(long)]
    pub(crate) force: bool,
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

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The folder to write them to, made if it is absent
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell that is to complete them
    pub(crate) shell: Shell,
}

/// Sizes of blocks as they are offered: [`SECTOR_SIZES`].
const BLOCK_WORDS: [&str; 7] = ["512", "520", "528", "4096", "4104", "4160", "4224"];

/// Versions of the format as they are offered: [`Version::ALL`].
const VERSION_WORDS: [&str; 2] = ["1.1", "2.0"];

/// Reads a size: bytes, or a number and a unit.
pub(crate) fn size(text: &str) -> Result<u64, UsageFailure> {
    Ok(units::parse(text)?)
}

fn block_size(text: &str) -> Result<u32, UsageFailure> {
    match units::parse(text).map(u32::try_from) {
        Ok(Ok(size)) if SECTOR_SIZES.contains(&size) => Ok(size),
        Ok(Ok(size @ CACHE_BLOCK_BYTES_MIN..=CACHE_BLOCK_BYTES_MAX)) if size.is_power_of_two() => Ok(size),
        _ => Err(UsageFailure::BlockSize { text: text.to_owned() }),
    }
}

/// Reads a number from 1 on.
fn from_one_on<N: FromStr>(text: &str) -> Result<N, UsageFailure> {
    text.parse().map_err(|_| UsageFailure::NotFromOneOn { text: text.to_owned() })
}

fn version(text: &str) -> Result<Version, UsageFailure> {
    let known = Version::ALL.into_iter().find(|version| version.to_string() == text);
    known.ok_or_else(|| UsageFailure::Version { text: text.to_owned() })
}

/// Reads the name of an emulated medium.
pub(crate) fn profile(text: &str) -> Result<Profile, UsageFailure> {
    Profile::by_name(text).map_err(|_| UsageFailure::Emulate { text: text.to_owned() })
}

/// Reads a place that only this machine reaches.
pub(crate) fn metrics(text: &str) -> Result<SocketAddr, UsageFailure> {
    match Place::parse(text) {
        Ok(Place::Tcp(address)) if address.ip().to_canonical().is_loopback() => Ok(address),
        _ => Err(UsageFailure::Metrics { text: text.to_owned() }),
    }
}

/// The smallest cache in front of a volume: a few blocks of any size.
const CACHE_BYTES_MIN: u64 = 64 << 10;

/// Reads what to do about a cache.
pub(crate) fn cache(text: &str) -> Result<CacheWish, UsageFailure> {
    match text {
        "auto" => Ok(CacheWish::Auto),
        "off" => Ok(CacheWish::Off),
        bytes => match size(bytes)? {
            0 => Ok(CacheWish::Off),
            bytes if bytes < CACHE_BYTES_MIN => Err(UsageFailure::CacheTooFew { bytes, min: CACHE_BYTES_MIN }),
            bytes => Ok(CacheWish::Bytes(bytes)),
        },
    }
}

/// Reads what a cache of a disk does with reads and writes.
pub(crate) fn cache_mode(text: &str) -> Result<CacheMode, UsageFailure> {
    text.parse().map_err(|_| UsageFailure::CacheMode { text: text.to_owned() })
}

/// Reads which block goes when room is needed.
pub(crate) fn replacement(text: &str) -> Result<Replacement, UsageFailure> {
    text.parse().map_err(|_| UsageFailure::Replacement { text: text.to_owned() })
}

/// Reads which blocks come in.
pub(crate) fn admit(text: &str) -> Result<Admit, UsageFailure> {
    text.parse().map_err(|_| UsageFailure::Admit { text: text.to_owned() })
}

/// Reads the permissions of a file: octal, at most 0777.
pub(crate) fn socket_mode(text: &str) -> Result<Mode, UsageFailure> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    mode.map(Mode::from_raw_mode).ok_or_else(|| UsageFailure::SocketMode { text: text.to_owned() })
}

/// What the command line leads to.
pub(crate) enum Parsed {
    /// A command to run.
    Run(Program),
    /// A text to print: help or the version.
    Print(String),
    /// A mistake, and whether the line asked for JSON.
    Refuse(Failure, bool),
}

/// Reads a whole command line, program name first.
pub(crate) fn parse(line: Vec<OsString>) -> Parsed {
    let json = line.iter().any(|word| word == "--json");
    let command = Program::command().after_help(exit_codes());
    let named = named_command(&command, &line);
    match command.try_get_matches_from(line).and_then(|matches| Program::from_arg_matches(&matches)) {
        Ok(program) => Parsed::Run(program),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Parsed::Print(error.render().to_string()),
            _ => Parsed::Refuse(refusal(&error, named).into(), json),
        },
    }
}

/// What is wrong with a line for `command`: a failure of ours if one of our parsers refused a value, else the grammar's own words.
fn refusal(error: &clap::Error, command: String) -> UsageFailure {
    if let Some(ours) = error.source().and_then(|source| source.downcast_ref::<UsageFailure>()) {
        return UsageFailure::Value { of: Box::new(ours.clone()), command };
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(|lines| lines.split_whitespace().collect::<Vec<_>>().join(" "));
    let first = paragraphs.next().unwrap_or_default();
    let what = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "no command was given".to_owned(),
        _ => first.trim_start_matches("error: ").to_owned(),
    };
    // The value's own error is the reason.
    let what = match error.source().and_then(|source| what.strip_suffix(&format!(": {source}"))) {
        Some(what) => what.to_owned(),
        None => what,
    };
    let mut tips = paragraphs.filter_map(|tip| tip.strip_prefix("tip: ").map(str::to_owned));
    let tip = tips.find(|tip| tip.contains("similar"));
    UsageFailure::Grammar { what, why: reason(error, &command), tip, command }
}

/// Why the grammar refuses a line for `command`.
fn reason(error: &clap::Error, command: &str) -> String {
    match error.kind() {
        ErrorKind::UnknownArgument => format!("`{command}` takes no such argument"),
        ErrorKind::InvalidSubcommand => "there is no such command".to_owned(),
        ErrorKind::MissingRequiredArgument => format!("`{command}`, as it is written here, needs them"),
        ErrorKind::ArgumentConflict => "one of them says what the other one does, or may be there once".to_owned(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            "the first word says what to do".to_owned()
        }
        ErrorKind::InvalidValue => "it takes one of a few words".to_owned(),
        // The value's own error.
        _ => error.source().map_or_else(
            || error.kind().as_str().unwrap_or("the command line does not follow the grammar").to_owned(),
            ToString::to_string,
        ),
    }
}

/// The command that `line` names: `tidegate create` if its first word without a dash is `create`.
fn named_command(command: &clap::Command, line: &[OsString]) -> String {
    let mut words = line.iter().skip(1).filter_map(|word| word.to_str()).filter(|word| !word.starts_with('-'));
    match words.next().and_then(|word| command.find_subcommand(word)) {
        Some(subcommand) => format!("tidegate {}", subcommand.get_name()),
        None => "tidegate".to_owned(),
    }
}

/// The exit codes, as `--help` ends with them.
fn exit_codes() -> String {
    let lines = Exit::ALL.map(|(exit, meaning)| format!("  {}  {meaning}\n", exit as u8));
    format!("Exit codes:\n{}", lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_has_no_contradictions() {
        Program::command().debug_assert();
    }

    #[test]
    fn the_words_that_are_offered_are_those_that_are_known() {
        assert_eq!(BLOCK_WORDS.map(|word| block_size(word).expect(word)), SECTOR_SIZES);
        assert_eq!(VERSION_WORDS.map(|word| version(word).expect(word)), Version::ALL);
    }

    /// Every flag and value that takes one of a few words takes each of them, and every path says of which kind it is.
    #[test]
    fn whatever_is_offered_is_taken() {
        let mut program = Program::command();
        program.build();
        let mut offered = 0;
        for command in program.get_subcommands() {
            for arg in command.get_arguments() {
                let parser = arg.get_value_parser();
                for value in parser.possible_values().into_iter().flatten() {
                    let alone = clap::Command::new("").arg(clap::Arg::new("value").value_parser(parser.clone()));
                    let taken = alone.try_get_matches_from(["", value.get_name()]);
                    assert!(taken.is_ok(), "{}: {}: {}", command.get_name(), arg.get_id(), value.get_name());
                    offered += 1;
                }
                let is_path = parser.type_id() == std::any::TypeId::of::<PathBuf>();
                assert!(
                    !is_path || arg.get_value_hint() != ValueHint::AnyPath,
                    "{}: {}",
                    command.get_name(),
                    arg.get_id()
                );
            }
        }
        assert!(offered > 30, "{offered}");
    }

    #[test]
    fn the_help_names_every_block_size_and_every_medium() {
        let mut command = Program::command();
        command.build();
        let mut help = |name| command.find_subcommand_mut(name).expect(name).render_help().to_string();
        let (create, serve) = (help("create"), help("serve"));
        assert!(SECTOR_SIZES.iter().all(|size| create.contains(&size.to_string())), "{create}");
        assert!(Profile::NAMES.iter().all(|name| serve.contains(name)), "{serve}");
    }
}
