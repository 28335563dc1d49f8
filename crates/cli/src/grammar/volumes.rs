//! Commands about volumes: make, serve, show, stop and check them.

use super::disk_cache::{DISK_CACHE, DiskFlags};
use super::values::{
    BLOCK_WORDS, VERSION_WORDS, block_size, cache, from_one_on, group, listen, metrics, profile, sandbox_wishes, size,
    socket, socket_mode, sort_keys, user, version,
};
use super::words::words;
use clap::{Args, ValueHint};
use rustix::fs::Mode;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use tidegate_host::default_paths;
use tidegate_layout::btt::Version;
use tidegate_media::emulate::Profile;
use tidegate_sandbox::SandboxWish;
use tidegate_server::cached_disk::volatile;
use tidegate_server::options::{CreateOptions, MirrorPlan, UblkPlan};
use tidegate_server::sockets::listen::ListenAddress;
use tidegate_server::volume::write_cache::WriteCacheSize;
use tidegate_top::SortKey;

const REGION: &str = "Region";
const VOLUME: &str = "Volume";
const CONNECTIONS: &str = "Connections";
const MONITORING: &str = "Monitoring and control";

/// Flags of `serve` about one volume, which a configuration file says of each of its volumes.
const OF_ONE_VOLUME: [&str; 20] = [
    "pmem",
    "mirror",
    "degraded",
    "emulate",
    "write_cache",
    "wear_leveling",
    "read_only",
    "vhost_user",
    "ublk",
    "ublk_queues",
    "disk",
    "disk_mode",
    "accept_volatile",
    "replacement",
    "read_admission",
    "sequential_cutoff",
    "volatile_reads",
    "dirty_percent",
    "dirty_max",
    "dirty_age",
];

#[derive(Args, Debug)]
pub(crate) struct Create {
    /// The region to create: a new file (on a DAX file system, tmpfs or a disk), or a DAX device
    #[arg(long, help_heading = REGION, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: PathBuf,

    /// The other side of a mirror: a second region, on other memory. Each write then lies in both
    #[arg(long, help_heading = REGION, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "sparse")]
    pub(crate) mirror: Option<PathBuf>,

    /// The disk to cache: a block device or a file. Its contents become the contents of the volume
    #[arg(long, help_heading = DISK_CACHE, value_name = "DISK", value_hint = ValueHint::FilePath, conflicts_with = "btt")]
    pub(crate) disk: Option<PathBuf>,

    /// Bytes of the region: a multiple of 4096, 1G, 512M, 1GiB (units of 1024). The volume in it is
    /// a little smaller
    #[arg(long, help_heading = REGION, value_parser = size)]
    pub(crate) size: Option<u64>,

    /// Bytes of a block, per-block metadata included: 512, 520, 528, 4096 (4K), 4104, 4160 or 4224.
    /// With --disk a power of two from 512 to 65536 (64K)
    #[arg(long, help_heading = REGION, value_name = "BYTES", default_value = "4096", value_parser = words(block_size, || BLOCK_WORDS.to_vec()), hide_possible_values = true)]
    pub(crate) block: u32,

    /// Version of the BTT format: 1.1 (starts at byte 4096) or 2.0 (starts at byte 0)
    #[arg(long, help_heading = REGION, value_name = "VERSION", default_value = "1.1", value_parser = words(version, || VERSION_WORDS.to_vec()), hide_possible_values = true)]
    pub(crate) btt: Version,

    /// Keep a checksum of each cached block: reads, destaging and `tidegate scrub` then detect
    /// changed memory
    #[arg(long, help_heading = DISK_CACHE, requires = "disk")]
    pub(crate) checksums: bool,

    /// Keep the disk at every instant a consistent prefix of the writes. A journal as large as the
    /// region takes the end of the disk, and each block is written to the disk twice
    #[arg(long, help_heading = DISK_CACHE, requires = "disk")]
    pub(crate) ordered: bool,

    /// Cache a disk even if a power loss empties the region (tmpfs, DAX memory that declares
    /// nothing)
    #[arg(long, help_heading = DISK_CACHE, requires = "disk")]
    pub(crate) accept_volatile: bool,

    /// Do not allocate the space of the file now: a later write may find the file system full
    #[arg(long, help_heading = REGION)]
    pub(crate) sparse: bool,

    /// Overwrite a file that is not empty. With --disk, take a disk that holds the journal of
    /// another region; with --ordered, overwrite the end of the disk
    #[arg(long, help_heading = REGION)]
    pub(crate) force: bool,
}

impl Create {
    /// What they ask for.
    pub(crate) fn options(&self) -> CreateOptions {
        let Create { pmem, mirror, disk, size, block, btt, checksums, ordered, accept_volatile, sparse, force } = self;
        CreateOptions {
            pmem: pmem.clone(),
            mirror: mirror.clone(),
            size: *size,
            block: *block,
            btt: *btt,
            disk: disk.clone(),
            checksums: *checksums,
            ordered: *ordered,
            volatile: volatile::accepted(*accept_volatile),
            sparse: *sparse,
            force: *force,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// The region with the volume [default: one of 1 GiB in the user's state directory, created if
    /// absent]
    #[arg(long, help_heading = VOLUME, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: Option<PathBuf>,

    /// The other side of the mirror that the region is a side of
    #[arg(long, help_heading = VOLUME, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "pmem")]
    pub(crate) mirror: Option<PathBuf>,

    /// Serve one side of a mirror alone, because the other one is lost. That one is stale from then
    /// on, until `tidegate rebuild`
    #[arg(long, help_heading = VOLUME, requires = "pmem", conflicts_with = "mirror")]
    pub(crate) degraded: bool,

    /// A TOML file with volumes, each an export by name, and keys like the flags here. Flags win
    /// over the file
    #[arg(long, help_heading = VOLUME, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = OF_ONE_VOLUME)]
    pub(crate) config: Option<PathBuf>,

    /// Where to listen, repeatable: unix:PATH or tcp:ADDRESS:PORT. TCP needs --tls-certificate or
    /// --insecure, on loopback too [default: a unix socket in the user's runtime directory]
    #[arg(long, help_heading = CONNECTIONS, value_name = "PLACE", value_parser = listen)]
    pub(crate) listen: Vec<ListenAddress>,

    /// Make the memory as slow as another medium: nvdimm, stt-ram, pcm, optane or cxl
    #[arg(long, help_heading = VOLUME, value_name = "NAME", value_parser = words(profile, || Profile::NAMES.to_vec()), hide_possible_values = true)]
    pub(crate) emulate: Option<Profile>,

    /// DRAM for the write cache: a size, off, or auto. auto means 16M if the region is much slower
    /// than DRAM, else off [default: auto]
    #[arg(long, help_heading = VOLUME, alias = "cache", value_name = "SIZE", value_parser = words(cache, || vec!["auto", "off"]), hide_possible_values = true)]
    pub(crate) write_cache: Option<WriteCacheSize>,

    /// Move one more block after every N writes, so that the memory wears evenly. 100 adds one
    /// write and one read to every hundred writes [default: blocks are not moved]
    #[arg(long, help_heading = VOLUME, alias = "level-wear", value_name = "N", value_parser = from_one_on::<NonZeroU32>)]
    pub(crate) wear_leveling: Option<NonZeroU32>,

    #[command(flatten)]
    pub(crate) disk: DiskFlags,

    /// Refuse writes, and never change the file
    #[arg(long, help_heading = VOLUME)]
    pub(crate) read_only: bool,

    /// Let virtual machines attach the volume as a disk, by vhost-user-blk on this unix socket. One
    /// machine at a time, unless --read-only
    #[arg(long, help_heading = CONNECTIONS, value_name = "PATH", value_hint = ValueHint::FilePath, value_parser = socket())]
    pub(crate) vhost_user: Option<PathBuf>,

    /// Make the volume a block device of this machine, /dev/ublkbN: the number N, or a free one. It
    /// needs root and the kernel's module ublk_drv (Linux 6.5 or newer)
    #[arg(long, help_heading = CONNECTIONS, value_name = "N", num_args = 0..=1, require_equals = true)]
    pub(crate) ublk: Option<Option<u32>>,

    /// Queues of the block device, a thread each [default: one for each processor, up to 4]
    #[arg(long, help_heading = CONNECTIONS, value_name = "COUNT", requires = "ublk", value_parser = from_one_on::<NonZeroU16>)]
    pub(crate) ublk_queues: Option<NonZeroU16>,

    /// The server's certificate, PEM. TCP connections must then be encrypted, and unix ones may be
    #[arg(long, help_heading = CONNECTIONS, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// The certificate's private key, PEM
    #[arg(long, help_heading = CONNECTIONS, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Certificate authorities, PEM: encrypted clients need a certificate that one of them signed
    #[arg(long, help_heading = CONNECTIONS, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_certificate")]
    pub(crate) tls_clients: Option<PathBuf>,

    /// Allow TCP without encryption: everyone who reaches the port reads and writes the volume, on
    /// loopback every user of this machine
    #[arg(long, help_heading = CONNECTIONS)]
    pub(crate) insecure: bool,

    /// Permissions of unix sockets, octal: 0660 lets a group open them [default: 0600]
    #[arg(long, help_heading = CONNECTIONS, value_name = "MODE", value_parser = words(socket_mode, || vec!["0600", "0660", "0666"]), hide_possible_values = true)]
    pub(crate) socket_mode: Option<Mode>,

    /// Serve this user on unix sockets too, by name or number, repeatable; --socket-mode must let
    /// the user open the socket [default: the server's own user and root]
    #[arg(long, help_heading = CONNECTIONS, value_name = "USER", value_hint = ValueHint::Username, value_parser = user)]
    pub(crate) allow_uid: Vec<u32>,

    /// Serve processes of this group on unix sockets too, by name or number, repeatable. With one
    /// group, a --socket-mode for a group means this one
    #[arg(long, help_heading = CONNECTIONS, value_name = "GROUP", value_parser = group)]
    pub(crate) allow_gid: Vec<u32>,

    /// Connections served at once, within the system's limits [default: 16384]
    #[arg(long, help_heading = CONNECTIONS, value_name = "COUNT", value_parser = from_one_on::<NonZeroUsize>)]
    pub(crate) connections_max: Option<NonZeroUsize>,

    /// Never poll for a client's next request, as on a machine that needs its processors for other
    /// work: each request then wakes a thread. Without this, a thread polls for up to 50 µs if its
    /// client is quick, and no more than half of the processors have such a thread
    #[arg(long, help_heading = CONNECTIONS)]
    pub(crate) no_busy_poll: bool,

    /// The control socket, which `tidegate stat` asks [default: beside each volume, FILE.control]
    #[arg(long, help_heading = MONITORING, value_name = "PATH", value_hint = ValueHint::FilePath, value_parser = socket())]
    pub(crate) control: Option<PathBuf>,

    /// Answer Prometheus and browsers over HTTP on this port: tcp:127.0.0.1:9809. Every user of
    /// this machine may read the metrics there, and change nothing. Addresses other than loopback
    /// need --metrics-token and --tls-certificate
    #[arg(long, help_heading = MONITORING, value_name = "PLACE", value_parser = metrics)]
    pub(crate) metrics: Option<SocketAddr>,

    /// Answer metrics only to clients that show the token in this file: one line of 16 characters
    /// or more; mode 0600. With --tls-certificate the port then speaks HTTPS
    #[arg(long, help_heading = MONITORING, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) metrics_token: Option<PathBuf>,

    /// Once everything is open, give up system calls that a server never needs: those that start
    /// programs, look into processes, mount, or change users. auto: if the kernel cannot do this,
    /// serve without it and warn; on: refuse to serve [default: auto]
    #[arg(long, help_heading = MONITORING, value_name = "WHEN", value_parser = sandbox_wishes())]
    pub(crate) sandbox: Option<SandboxWish>,
}

impl Serve {
    /// The twin of the region.
    pub(crate) fn mirror(&self) -> MirrorPlan {
        if self.degraded { MirrorPlan::Degraded } else { MirrorPlan::with(self.mirror.clone()) }
    }

    /// The block device that the volume is to be.
    pub(crate) fn ublk(&self) -> Option<UblkPlan> {
        self.ublk.map(|number| UblkPlan { number, queues: self.ublk_queues })
    }
}

#[derive(Args, Debug)]
pub(crate) struct Info {
    #[command(flatten)]
    pub(crate) region: NamedRegion,
}

#[derive(Args, Debug)]
pub(crate) struct Rebuild {
    /// The side of the mirror that has every write
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: PathBuf,

    /// The region to copy it to: the stale side, or another region of equal length, created if
    /// absent
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) mirror: PathBuf,

    /// Overwrite whatever the other region holds
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(crate) region: NamedRegion,

    /// The server's control socket [default: beside the volume, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, value_parser = socket())]
    pub(crate) control: Option<PathBuf>,
}

/// A region, named by a flag as everywhere or by the only argument.
#[derive(Args, Debug)]
pub(crate) struct NamedRegion {
    /// The region with the volume [default: the one in the user's state directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pmem: Option<PathBuf>,

    /// The region with the volume, as --pmem names it
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "pmem")]
    file: Option<PathBuf>,
}

impl NamedRegion {
    /// The path that was named, or the default.
    pub(crate) fn path(&self) -> PathBuf {
        self.given().unwrap_or_else(default_paths::default_volume)
    }

    /// The path, if one was named.
    pub(crate) fn given(&self) -> Option<PathBuf> {
        self.pmem.clone().or_else(|| self.file.clone())
    }
}

#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// The region of a served volume [default: the one in the user's state directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) pmem: Option<PathBuf>,

    /// The server's control socket [default: beside the volume, FILE.control]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, value_parser = socket(), conflicts_with = "pmem")]
    pub(crate) control: Option<PathBuf>,

    /// Show all counts since the server's start, then every second the growth of each counter and
    /// the value of each gauge
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Instead of a screen, answer Prometheus about every mount of this user, or as root of all, on
    /// this port: tcp:127.0.0.1:9810. Every user of this machine may read the metrics there.
    /// Addresses other than loopback need --metrics-token and --tls-certificate
    #[arg(long, help_heading = MONITORING, value_name = "PLACE", value_parser = metrics, conflicts_with = "once")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Answer metrics only to clients that show the token in this file: one line of 16 characters
    /// or more; mode 0600. With --tls-certificate the port then speaks HTTPS
    #[arg(long, help_heading = MONITORING, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) metrics_token: Option<PathBuf>,

    /// The certificate of the port of the metrics, PEM
    #[arg(long, help_heading = MONITORING, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["tls_key", "metrics_token"])]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// The certificate's private key, PEM
    #[arg(long, help_heading = MONITORING, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Ask twice, an interval apart, print the table once, and end
    #[arg(long)]
    pub(crate) once: bool,

    /// Seconds between two requests to each server and mount
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = from_one_on::<NonZeroU32>)]
    pub(crate) interval: NonZeroU32,

    /// The column to sort by at first
    #[arg(long, value_name = "KEY", default_value_t, value_parser = sort_keys())]
    pub(crate) sort: SortKey,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) region: NamedRegion,

    /// The other side of the mirror that the region is a side of: both are made equal first.
    /// Without it a side is checked alone, and not repaired
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) mirror: Option<PathBuf>,

    /// Repair what can be repaired. A repair that gives up blocks asks first, or needs --yes
    #[arg(long)]
    pub(crate) repair: bool,

    /// Print what the repair would do, and change nothing
    #[arg(long, requires = "repair")]
    pub(crate) dry_run: bool,

    /// Repair without asking, even if blocks are given up
    #[arg(long, requires = "repair")]
    pub(crate) yes: bool,
}
