//! Commands about volumes: make, serve, show, stop and check them.

use super::disk_cache::DiskFlags;
use super::values::{
    BLOCK_WORDS, VERSION_WORDS, block_size, cache, from_one_on, metrics, profile, size, socket_mode, version,
};
use super::words::words;
use crate::listen::Place;
use crate::peers;
use crate::transit::CacheWish;
use clap::{Args, ValueHint};
use rustix::fs::Mode;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use tidegate_host::default_paths;
use tidegate_layout::btt::Version;
use tidegate_media::emulate::Profile;

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
