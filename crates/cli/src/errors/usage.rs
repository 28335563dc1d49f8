//! Command lines that are never possible, whatever the machine's state.

use super::{Exit, Report};
use std::net::SocketAddr;
use tidegate_disk_cache::Mode;
use tidegate_failure_reports::block_size;
use tidegate_host::spelling::nearest;
use tidegate_host::units::{Human, NoSize};
use tidegate_media::emulate::Profile;
use tidegate_policy::admit::Admit;
use tidegate_policy::evict::Replacement;
use tidegate_policy::placement::BadGlob;
use tidegate_server::failure::{Exposed, Exposure, NoListenAddress};
use tidegate_server::options::{DEVICE_NUMBER_MAX, DEVICE_QUEUES_MAX};

/// What metrics need beyond this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsLack {
    /// A token that clients show.
    Token,
    /// An identity to encrypt with.
    Tls,
}

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
    /// A range of bytes that is none.
    #[error("{text:?} is no range of bytes")]
    ByteRange {
        /// The text.
        text: String,
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
    #[error(transparent)]
    Listen(#[from] NoListenAddress),
    /// A TCP port that asks nobody who they are.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// A medium nobody described.
    #[error("no emulated medium is called {text:?}")]
    Emulate {
        /// The text.
        text: String,
    },
    /// A glob that names no files.
    #[error("{text:?} names no files")]
    Glob {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: String,
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
    /// Metrics that other machines reach, without what protects them there.
    #[error("metrics at {address} can be reached by other machines")]
    MetricsExposed {
        /// The address.
        address: SocketAddr,
        /// What is missing.
        lack: MetricsLack,
    },
    /// A token that nobody is asked for.
    #[error("a token of metrics that are not answered")]
    TokenWithoutMetrics,
    /// Text that names no port.
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
    /// One place for two sockets.
    #[error("{place} is named twice")]
    PlaceTwice {
        /// The place.
        place: String,
    },
    /// One place for two sockets, in two spellings.
    #[error("{place} is where {first} is: they are named as two sockets")]
    PlaceSpeltTwice {
        /// The place.
        place: String,
        /// The place, as it is spelt first.
        first: String,
    },
    /// Two volumes that are to be one block device.
    #[error("volume {volume:?}: another volume is to be /dev/ublkb{number} too")]
    DeviceTwice {
        /// The second one's name.
        volume: String,
        /// The device's number.
        number: u32,
    },
    /// A block device whose number the kernel's driver cannot give.
    #[error("volume {volume:?}: there can be no /dev/ublkb{number}")]
    DeviceNumber {
        /// The volume's name.
        volume: String,
        /// The number.
        number: u32,
    },
    /// A block device with more queues than the kernel's driver makes.
    #[error("volume {volume:?}: a block device cannot have {queues} queues")]
    DeviceQueues {
        /// The volume's name.
        volume: String,
        /// How many.
        queues: u16,
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

impl From<BadGlob> for UsageFailure {
    fn from(BadGlob { text, why }: BadGlob) -> UsageFailure {
        UsageFailure::Glob { text, why }
    }
}

impl UsageFailure {
    /// What is wrong and what to write instead, as one sentence about a value in a file.
    pub(crate) fn in_a_file(&self) -> String {
        let Report { why, next, .. } = self.into();
        let tells_all = matches!(self, UsageFailure::Size { .. } | UsageFailure::Glob { .. } | UsageFailure::Listen(_));
        format!("{self}: {}", if tells_all { why } else { next })
    }
}

impl From<&UsageFailure> for Report {
    fn from(failure: &UsageFailure) -> Report {
        let what = failure.to_string();
        match failure {
            UsageFailure::Size { why, .. } => size(what, why),
            UsageFailure::Glob { why, .. } => glob(what, why),
            UsageFailure::ByteRange { .. } => byte_range(what),
            UsageFailure::BlockSize { .. } => block_size(what),
            UsageFailure::Version { .. } => version(what),
            UsageFailure::Listen(no_address) => listen(what, no_address.why),
            UsageFailure::Exposed(Exposed { to, .. }) => exposed(what, *to),
            UsageFailure::Emulate { text } => emulate(what, text),
            UsageFailure::CacheMode { text } => cache_mode(what, text),
            UsageFailure::Replacement { text } => replacement(what, text),
            UsageFailure::Admit { text } => admit(what, text),
            UsageFailure::SocketMode { .. } => socket_mode(what),
            UsageFailure::Metrics { .. } => metrics(what),
            UsageFailure::MetricsExposed { lack, .. } => metrics_exposed(what, *lack),
            UsageFailure::TokenWithoutMetrics => token_without_metrics(what),
            UsageFailure::Exports { why } => exports(what, why),
            UsageFailure::NotFromOneOn { .. } => not_from_one_on(what),
            UsageFailure::CacheTooFew { min, .. } => cache_too_few(what, *min),
            UsageFailure::NoUser { .. } => no_user(what),
            UsageFailure::NoGroup { .. } => no_group(what),
            UsageFailure::PlaceTwice { .. } | UsageFailure::PlaceSpeltTwice { .. } => place_twice(what),
            UsageFailure::DeviceTwice { .. } => device_twice(what),
            UsageFailure::DeviceNumber { .. } => device_number(what),
            UsageFailure::DeviceQueues { .. } => device_queues(what),
            UsageFailure::NoHelp { text, known } => no_help(what, text, known),
            UsageFailure::Value { of, command } => value(Report::from(&**of), command),
            UsageFailure::Grammar { why, tip, command, .. } => grammar(what, why, tip.as_deref(), command),
        }
    }
}

fn usage(kind: &'static str, what: String, why: impl Into<String>, next: impl Into<String>) -> Report {
    Report::new((kind, Exit::Usage), what, why, next)
}

fn size(what: String, why: &str) -> Report {
    let next = "write bytes, or a number and K, M, G, T or P (each 1024 of the last): 1G, 512M, 1GiB, 4096";
    usage("bad-size", what, why, next)
}

fn glob(what: String, why: &str) -> Report {
    let next = "write a name such as '*.log', or a path from the root of the mount on such as 'backup/**'";
    usage("bad-glob", what, why, next)
}

fn version(what: String) -> Report {
    let why = "Linux's driver and this program know no other";
    usage("bad-version", what, why, "use 1.1 (the default) or 2.0")
}

fn listen(what: String, why: &str) -> Report {
    let next = "write unix:PATH, tcp:ADDRESS:PORT, or tcp:[IPv6]:PORT: --listen unix:/run/v.sock";
    usage("bad-listen", what, why, next)
}

fn exposed(what: String, to: Exposure) -> Report {
    let why = "without --tls-certificate there is no encryption, and TCP does not tell users apart: whoever reaches the port reads and writes the volume";
    let next = match to {
        Exposure::Users => {
            "listen on a unix socket, --listen unix:PATH, which serves your user and those you name; or add --tls-certificate, --tls-key and --tls-clients; or add --insecure if you trust every user of this machine"
        }
        Exposure::Machines => {
            "add --tls-certificate, --tls-key and --tls-clients; or listen on a unix socket, --listen unix:PATH; or add --insecure on a network you trust"
        }
    };
    usage("exposed-port", what, why, next)
}

fn emulate(what: String, text: &str) -> Report {
    let why = "an emulated medium is chosen by the name of its profile";
    usage("unknown-emulation", what, why, one_of(text, &Profile::NAMES))
}

fn cache_mode(what: String, text: &str) -> Report {
    let why = "modes have the names of what is done with writes and reads";
    usage("bad-mode", what, why, one_of(text, &Mode::ALL.map(Mode::name)))
}

fn replacement(what: String, text: &str) -> Report {
    let next = one_of(text, &Replacement::ALL.map(Replacement::name));
    usage("unknown-replacement", what, CHOSEN_BY_NAME, next)
}

fn admit(what: String, text: &str) -> Report {
    usage("unknown-admission", what, CHOSEN_BY_NAME, one_of(text, &Admit::ALL.map(Admit::name)))
}

const CHOSEN_BY_NAME: &str = "a policy is chosen by its name";

fn socket_mode(what: String) -> Report {
    let next = "write 0600 for the owner alone, 0660 for a group too";
    usage("bad-socket-mode", what, "permissions are an octal number up to 0777", next)
}

fn metrics(what: String) -> Report {
    let next = "write an address and a port: tcp:127.0.0.1:9809";
    usage("bad-metrics", what, "metrics are answered over HTTP on a TCP port", next)
}

fn metrics_exposed(what: String, lack: MetricsLack) -> Report {
    let (why, add) = match lack {
        MetricsLack::Token => (
            "without a token everyone who reaches the port reads the names and numbers of all volumes",
            "--metrics-token FILE, --tls-certificate and --tls-key",
        ),
        MetricsLack::Tls => {
            ("without TLS the token and the numbers can be read on their way", "--tls-certificate and --tls-key")
        }
    };
    let next = format!("add {add}; or stay on this machine: --metrics tcp:127.0.0.1:9809");
    usage("exposed-metrics", what, why, next)
}

fn token_without_metrics(what: String) -> Report {
    let next = "add --metrics tcp:ADDRESS:PORT, or leave --metrics-token out";
    usage("token-without-metrics", what, "the token is asked for at the port of the metrics alone", next)
}

fn exports(what: String, why: &str) -> Report {
    let next = "give it another name or description in the configuration file, or serve some volumes by another server";
    usage("bad-exports", what, why, next)
}

fn byte_range(what: String) -> Report {
    let why = "a range is FROM..UNTIL, in bytes or with a unit, and UNTIL is greater";
    usage("bad-range", what, why, "write it like 0..64K or 1M..2M, or leave the option out")
}

fn not_from_one_on(what: String) -> Report {
    let next = "write a whole number from 1 on, or leave the option out";
    usage("bad-number", what, "it counts something, and nothing is left out instead", next)
}

fn cache_too_few(what: String, min: u64) -> Report {
    let why = format!("a cache has {} or more", Human(min));
    usage("size-too-small", what, why, format!("write {}K or more, or off", min >> 10))
}

fn no_user(what: String) -> Report {
    usage("no-user", what, UNKNOWN_NAME, "write a user as `getent passwd` shows them, by name or number")
}

fn no_group(what: String) -> Report {
    usage("no-group", what, UNKNOWN_NAME, "write a group as `getent group` shows them, by name or number")
}

const UNKNOWN_NAME: &str = "it is neither a number nor a name that the system knows";

fn place_twice(what: String) -> Report {
    usage("place-twice", what, "there is one socket in one place", "leave one of them out, or name another place")
}

fn device_twice(what: String) -> Report {
    let next = "name another number in one of them, or none: --ublk or ublk = true has the kernel choose";
    usage("device-twice", what, "a block device is one volume", next)
}

fn device_number(what: String) -> Report {
    let why = format!("the kernel numbers these devices from 0 to {DEVICE_NUMBER_MAX}");
    usage("bad-device-number", what, why, "name a smaller number, or none: --ublk or ublk = true has the kernel choose")
}

fn device_queues(what: String) -> Report {
    let why = format!("the kernel gives a device {DEVICE_QUEUES_MAX} queues at most");
    usage("too-many-queues", what, why, "leave --ublk-queues and ublk_queues out: one for each processor, up to 4")
}

fn no_help(what: String, text: &str, known: &[&str]) -> Report {
    usage("no-help", what, "it is neither a command nor a topic", one_of(text, known))
}

/// Of a value that is refused for the reasons of `report`.
fn value(report: Report, command: &str) -> Report {
    Report { next: format!("{}; see `{command} --help`", report.next), ..report }
}

fn grammar(what: String, why: &str, tip: Option<&str>, command: &str) -> Report {
    let see = format!("see `{command} --help`");
    usage("usage", what, why, tip.map_or(see.clone(), |tip| format!("{tip}; {see}")))
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
