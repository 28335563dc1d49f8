//! Command lines that ask for what is never possible, whatever the machine's state.

use super::{Exit, Told};
use crate::listen::Exposure;
use crate::spelling::nearest;
use std::net::SocketAddr;
use tidegate_disk_cache::Mode;
use tidegate_host::units::{Exact, Human, NoSize};
use tidegate_layout::btt::{SECTOR_SIZES, Version};
use tidegate_layout::disk_cache::{CACHE_BLOCK_BYTES_MAX, CACHE_BLOCK_BYTES_MIN};
use tidegate_media::emulate::Profile;
use tidegate_policy::admit::Admit;
use tidegate_policy::evict::Replacement;

/// A mistake on the command line.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum UsageFailure {
    /// Text that is no size.
    #[error("{text:?} is no size")]
    Size {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A size that is not a multiple of a page.
    #[error("a region of {size} bytes is not a multiple of 4096")]
    SizeNotMultiple {
        /// The size, in bytes.
        size: u64,
    },
    /// A size too small for one arena.
    #[error("a region of {size} bytes is too small")]
    SizeTooSmall {
        /// The size, in bytes.
        size: u64,
        /// The smallest region, in bytes.
        min: u64,
        /// The version it is smallest for.
        version: Version,
    },
    /// No size, and no device that knows its own.
    #[error("no size was given for the region file")]
    SizeMissing,
    /// A size too small for a cache of a disk.
    #[error("a region of {size} bytes is too small for a cache")]
    CacheTooSmall {
        /// The size, in bytes.
        size: u64,
        /// The smallest region, in bytes.
        min: u64,
    },
    /// A block size that caches of disks do not have.
    #[error("a cache has no blocks of {size} bytes")]
    CacheBlockSize {
        /// The size, in bytes.
        size: u32,
    },
    /// A block size the format does not have.
    #[error("{text:?} is no block size of the format")]
    BlockSize {
        /// The text.
        text: String,
    },
    /// A version the format does not have.
    #[error("{text:?} is no version of the format")]
    Version {
        /// The text.
        text: String,
    },
    /// Text that names no place to listen.
    #[error("{text:?} names no place to listen")]
    Listen {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A TCP port that asks nobody who they are.
    #[error("{address} can be reached by {to}")]
    Exposed {
        /// The address.
        address: SocketAddr,
        /// By whom.
        to: Exposure,
    },
    /// A medium nobody described.
    #[error("no emulated medium is called {text:?}")]
    Emulate {
        /// The text.
        text: String,
    },
    /// A mode that no cache has.
    #[error("{text:?} is no mode of a cache")]
    CacheMode {
        /// The text.
        text: String,
    },
    /// A replacement policy nobody wrote.
    #[error("no replacement policy is called {text:?}")]
    Replacement {
        /// The text.
        text: String,
    },
    /// An admission policy nobody wrote.
    #[error("no admission policy is called {text:?}")]
    Admit {
        /// The text.
        text: String,
    },
    /// Text that is no permissions.
    #[error("{text:?} is no mode of a socket")]
    SocketMode {
        /// The text.
        text: String,
    },
    /// Text that names no port of this machine alone.
    #[error("{text:?} is no place for metrics")]
    Metrics {
        /// The text.
        text: String,
    },
    /// Volumes that the protocol cannot offer.
    #[error("the volumes cannot be offered to clients")]
    Exports {
        /// What is wrong with them.
        why: String,
    },
    /// Text that is no number from 1 on.
    #[error("{text:?} is no number from 1 on")]
    NotFromOneOn {
        /// The text.
        text: String,
    },
    /// A cache in front of a volume that is too small to be one.
    #[error("a cache of {bytes} bytes is too small")]
    CacheTooFew {
        /// Its bytes.
        bytes: u64,
        /// The smallest.
        min: u64,
    },
    /// A user that the system does not know.
    #[error("there is no user {text:?}")]
    NoUser {
        /// The name.
        text: String,
    },
    /// A group that the system does not know.
    #[error("there is no group {text:?}")]
    NoGroup {
        /// The name.
        text: String,
    },
    /// A region that is to be in front of itself.
    #[error("the region and the disk are the same file")]
    OwnDisk,
    /// One place for two sockets.
    #[error("{place} is named twice")]
    PlaceTwice {
        /// The place.
        place: String,
    },
    /// What the help has nothing about.
    #[error("there is no help about {text:?}")]
    NoHelp {
        /// The word.
        text: String,
        /// The words that it knows.
        known: Vec<&'static str>,
    },
    /// A value that is refused.
    #[error("{of}")]
    Value {
        /// Why.
        of: Box<UsageFailure>,
        /// The command whose help to read.
        command: String,
    },
    /// Anything else the grammar refuses.
    #[error("{what}")]
    Grammar {
        /// The grammar's own words.
        what: String,
        /// Why.
        why: String,
        /// What may have been meant.
        tip: Option<String>,
        /// The command whose help to read: `tidegate`, or `tidegate create` and so on.
        command: String,
    },
}

impl From<NoSize> for UsageFailure {
    fn from(NoSize { text, why }: NoSize) -> UsageFailure {
        UsageFailure::Size { text, why }
    }
}

impl UsageFailure {
    pub(super) fn told(&self) -> Told {
        Told { kind: self.kind(), what: self.to_string(), why: self.why(), next: self.next(), exit: Exit::Usage }
    }

    /// What is wrong and what to write instead, as one sentence about a value in a file.
    pub(crate) fn in_a_file(&self) -> String {
        match self {
            UsageFailure::Size { why, .. } | UsageFailure::Listen { why, .. } => format!("{self}: {why}"),
            _ => format!("{self}: {}", self.next()),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            UsageFailure::Size { .. } => "bad-size",
            UsageFailure::SizeNotMultiple { .. } => "size-not-multiple",
            UsageFailure::SizeTooSmall { .. } => "size-too-small",
            UsageFailure::SizeMissing => "size-missing",
            UsageFailure::BlockSize { .. } | UsageFailure::CacheBlockSize { .. } => "bad-block-size",
            UsageFailure::CacheTooSmall { .. } => "size-too-small",
            UsageFailure::Version { .. } => "bad-version",
            UsageFailure::Listen { .. } => "bad-listen",
            UsageFailure::Exposed { .. } => "exposed-port",
            UsageFailure::Emulate { .. } => "unknown-emulation",
            UsageFailure::CacheMode { .. } => "bad-mode",
            UsageFailure::Replacement { .. } => "unknown-replacement",
            UsageFailure::Admit { .. } => "unknown-admission",
            UsageFailure::SocketMode { .. } => "bad-socket-mode",
            UsageFailure::Metrics { .. } => "bad-metrics",
            UsageFailure::Exports { .. } => "bad-exports",
            UsageFailure::NotFromOneOn { .. } => "bad-number",
            UsageFailure::CacheTooFew { .. } => "size-too-small",
            UsageFailure::NoUser { .. } => "no-user",
            UsageFailure::NoGroup { .. } => "no-group",
            UsageFailure::OwnDisk => "same-file",
            UsageFailure::PlaceTwice { .. } => "place-twice",
            UsageFailure::NoHelp { .. } => "no-help",
            UsageFailure::Value { of, .. } => of.kind(),
            UsageFailure::Grammar { .. } => "usage",
        }
    }

    fn why(&self) -> String {
        match self {
            UsageFailure::Size { why, .. } | UsageFailure::Listen { why, .. } => (*why).to_owned(),
            UsageFailure::SizeNotMultiple { .. } => "a region is made of whole pages of 4096 bytes".to_owned(),
            UsageFailure::SizeTooSmall { min, version, .. } => {
                format!("BTT {version} needs at least {min} bytes ({}) for one arena", Exact(*min))
            }
            UsageFailure::SizeMissing => "only a device knows its own size".to_owned(),
            UsageFailure::CacheTooSmall { .. } => "it has to hold a ring, entries and some blocks".to_owned(),
            UsageFailure::CacheBlockSize { .. } => "they are powers of two from 512 to 65536".to_owned(),
            UsageFailure::BlockSize { .. } | UsageFailure::Version { .. } => {
                "Linux's driver and this program know no other".to_owned()
            }
            UsageFailure::Exposed { .. } => {
                "without --tls-certificate there is no encryption, and TCP does not tell users apart: whoever reaches the port reads and writes the volume"
                    .to_owned()
            }
            UsageFailure::Emulate { .. } => "an emulated medium is chosen by the name of its profile".to_owned(),
            UsageFailure::CacheMode { .. } => "modes have the names of what is done with writes and reads".to_owned(),
            UsageFailure::Replacement { .. } | UsageFailure::Admit { .. } => {
                "a policy is chosen by its name".to_owned()
            }
            UsageFailure::SocketMode { .. } => "permissions are an octal number up to 0777".to_owned(),
            UsageFailure::Metrics { .. } => "metrics ask no password, so they stay on this machine".to_owned(),
            UsageFailure::Exports { why } => why.clone(),
            UsageFailure::NotFromOneOn { .. } => "it counts something, and nothing is left out instead".to_owned(),
            UsageFailure::CacheTooFew { min, .. } => format!("a cache has {} or more", Human(*min)),
            UsageFailure::NoUser { .. } | UsageFailure::NoGroup { .. } => {
                "it is neither a number nor a name that the system knows".to_owned()
            }
            UsageFailure::OwnDisk => "a region caches a disk other than itself".to_owned(),
            UsageFailure::PlaceTwice { .. } => "there is one socket in one place".to_owned(),
            UsageFailure::NoHelp { .. } => "it is neither a command nor a topic".to_owned(),
            UsageFailure::Value { of, .. } => of.why(),
            UsageFailure::Grammar { why, .. } => why.clone(),
        }
    }

    fn next(&self) -> String {
        match self {
            UsageFailure::Size { .. } => {
                "write bytes, or a number and K, M, G, T or P (each 1024 of the last): 1G, 512M, 1GiB, 4096".to_owned()
            }
            UsageFailure::SizeNotMultiple { size } => match size.checked_next_multiple_of(4096) {
                Some(more) => format!("use --size {} or --size {more}", size / 4096 * 4096),
                None => format!("use --size {}", size / 4096 * 4096),
            },
            UsageFailure::SizeTooSmall { min, .. } => format!("use --size {min} or more"),
            UsageFailure::SizeMissing => "give one: --size 1G".to_owned(),
            UsageFailure::CacheTooSmall { min, .. } => format!("use --size {min} or more"),
            UsageFailure::CacheBlockSize { .. } => "leave --block out, which is 4096, or use a power of two".to_owned(),
            UsageFailure::BlockSize { .. } => format!(
                "use one of {}; with --disk a power of two from {CACHE_BLOCK_BYTES_MIN} to {CACHE_BLOCK_BYTES_MAX}",
                SECTOR_SIZES.map(|size| size.to_string()).join(", ")
            ),
            UsageFailure::Version { .. } => "use 1.1 (the default) or 2.0".to_owned(),
            UsageFailure::Listen { .. } => {
                "write unix:PATH, tcp:ADDRESS:PORT, or tcp:[IPv6]:PORT: --listen unix:/run/v.sock".to_owned()
            }
            UsageFailure::Exposed { to: Exposure::Users, .. } => {
                "listen on a unix socket, --listen unix:PATH, which serves your user and those you name; or add --tls-certificate, --tls-key and --tls-clients; or add --insecure if you trust every user of this machine"
                    .to_owned()
            }
            UsageFailure::Exposed { to: Exposure::Machines, .. } => {
                "add --tls-certificate, --tls-key and --tls-clients; or listen on a unix socket, --listen unix:PATH; or add --insecure on a network you trust"
                    .to_owned()
            }
            UsageFailure::Emulate { text } => one_of(text, &Profile::NAMES),
            UsageFailure::CacheMode { text } => one_of(text, &Mode::ALL.map(Mode::name)),
            UsageFailure::Replacement { text } => one_of(text, &Replacement::ALL.map(Replacement::name)),
            UsageFailure::Admit { text } => one_of(text, &Admit::ALL.map(Admit::name)),
            UsageFailure::SocketMode { .. } => "write 0600 for the owner alone, 0660 for a group too".to_owned(),
            UsageFailure::Metrics { .. } => "write a loopback address and a port: tcp:127.0.0.1:9809".to_owned(),
            UsageFailure::Exports { .. } => {
                "give it another name or description in the configuration file, or serve some volumes by another server"
                    .to_owned()
            }
            UsageFailure::NotFromOneOn { .. } => "write a whole number from 1 on, or leave the option out".to_owned(),
            UsageFailure::CacheTooFew { min, .. } => format!("write {}K or more, or off", min >> 10),
            UsageFailure::NoUser { .. } => "write a user as `getent passwd` shows them, by name or number".to_owned(),
            UsageFailure::NoGroup { .. } => "write a group as `getent group` shows them, by name or number".to_owned(),
            UsageFailure::OwnDisk => "name a new file for the region: --pmem FILE".to_owned(),
            UsageFailure::PlaceTwice { .. } => "leave one of them out, or name another place".to_owned(),
            UsageFailure::NoHelp { text, known } => one_of(text, known),
            UsageFailure::Value { of, command } => format!("{}; see `{command} --help`", of.next()),
            UsageFailure::Grammar { command, tip: Some(tip), .. } => format!("{tip}; see `{command} --help`"),
            UsageFailure::Grammar { command, tip: None, .. } => format!("see `{command} --help`"),
        }
    }
}

/// What to write instead of `text`: the word that was meant, if one is near, and all that there
/// are.
fn one_of(text: &str, words: &[&str]) -> String {
    let all = words.join(", ");
    match nearest(text, words.iter().copied()) {
        Some(word) => format!("did you mean {word}? It is one of {all}"),
        None => format!("use one of {all}"),
    }
}
