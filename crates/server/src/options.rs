//! The options of a server: its volumes, where it listens, and which users may connect; and the
//! options by which a volume is made.

pub use tidegate_volume_region::mirror::MirrorPlan;

use crate::cached_disk::disk::DiskPlan;
use crate::cached_disk::volatile::Volatile;
use crate::fronts::vhost_user::QUEUES_MAX;
use crate::sockets::access::Peers;
use crate::sockets::connections::CONNECTIONS_MAX;
use crate::sockets::listen::{ListenAddress, SocketAccess};
use crate::volume::write_cache::WriteCacheSize;
use rustix::fs::Mode;
use std::iter;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::{Path, PathBuf};
use tidegate_layout::btt::Version;
use tidegate_media::Access;
use tidegate_media::emulate::Profile;
use tidegate_sandbox::SandboxWish;

pub use tidegate_ublk::{DEVICE_NUMBER_MAX, DEVICE_QUEUES_MAX};

/// A server to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The volumes, the default export first. None: the user's default volume.
    pub volumes: Vec<VolumePlan>,
    /// Where to listen; nowhere: a unix socket in the user's runtime folder.
    pub listen: Vec<ListenAddress>,
    /// Whether TCP may listen without encryption.
    pub insecure: bool,
    /// The server's identity: with it TCP connections have to be encrypted.
    pub tls: Option<TlsIdentity>,
    /// Permissions of unix sockets.
    pub socket_mode: Mode,
    /// Who may connect to them.
    pub peers: Peers,
    /// Connections served at once.
    pub connections_max: usize,
    /// Whether threads of connections may poll for their clients.
    pub busy_poll: bool,
    /// The control socket; None: one beside each volume.
    pub control: Option<PathBuf>,
    /// Where Prometheus is answered.
    pub metrics: Option<SocketAddr>,
    /// The file of the token that those who ask there have to show; None: they show none.
    pub metrics_token: Option<PathBuf>,
    /// Whether system calls are given up once everything is open.
    pub sandbox: SandboxWish,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            volumes: Vec::new(),
            listen: Vec::new(),
            insecure: false,
            tls: None,
            socket_mode: Mode::RUSR | Mode::WUSR,
            peers: Peers::default(),
            connections_max: CONNECTIONS_MAX,
            busy_poll: true,
            control: None,
            metrics: None,
            metrics_token: None,
            sandbox: SandboxWish::default(),
        }
    }
}

/// PEM files that tell clients who the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The server's certificate, and those that lead to its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of clients' certificates; None: clients need none.
    pub clients: Option<PathBuf>,
}

/// A volume to be served.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumePlan {
    /// The export's name.
    pub name: String,
    /// What clients are told about it; what the volume is, if nothing was given.
    pub description: Option<String>,
    /// The region.
    pub pmem: PathBuf,
    /// Its twin, if it is a side of a mirror.
    pub mirror: MirrorPlan,
    /// Whether it may change.
    pub access: Access,
    /// The memory to be as slow as.
    pub emulate: Option<Profile>,
    /// The cache in front of it.
    pub cache: WriteCacheSize,
    /// One write in so many is followed by the move of one more block; `None`: none moves.
    pub level_wear: Option<NonZeroU32>,
    /// The disk behind it, if it caches one.
    pub disk: DiskPlan,
    /// The socket where virtual machines attach it as a disk of theirs.
    pub vhost_user: Option<PathBuf>,
    /// The block device of this machine that it is to be.
    pub ublk: Option<UblkPlan>,
}

/// A block device of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UblkPlan {
    /// Its number; None: the kernel chooses.
    pub number: Option<u32>,
    /// Its queues; None: one for each processor, up to four.
    pub queues: Option<NonZeroU16>,
}

impl VolumePlan {
    /// The volume in `pmem`, named after its file, as fast as it is.
    pub fn of(pmem: PathBuf, access: Access) -> VolumePlan {
        let name = pmem.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        VolumePlan {
            name,
            description: None,
            pmem,
            mirror: MirrorPlan::Absent,
            access,
            emulate: None,
            cache: WriteCacheSize::default(),
            level_wear: None,
            disk: DiskPlan::default(),
            vhost_user: None,
            ublk: None,
        }
    }

    /// The region, and its twin if it has one.
    pub fn regions(&self) -> impl Iterator<Item = &Path> {
        iter::once(self.pmem.as_path()).chain(self.mirror.twin())
    }
}

/// How a volume is opened that only reads come through to.
pub fn access(read_only: bool) -> Access {
    if read_only { Access::Private } else { Access::ReadWrite }
}

impl Plan {
    /// Queues of virtual machines that may work at once.
    pub fn queues_max(&self) -> u64 {
        if self.volumes.iter().any(|volume| volume.vhost_user.is_some()) { QUEUES_MAX } else { 0 }
    }

    /// Whether TCP may listen.
    pub fn may_be_exposed(&self) -> bool {
        self.insecure || self.tls.is_some()
    }

    /// Whom the system lets open unix sockets. A mode that lets a group in means the one that is
    /// allowed, if there is only one.
    pub fn socket_access(&self) -> SocketAccess {
        let group = match &self.peers.gids[..] {
            [gid, others @ ..] if others.iter().all(|other| other == gid) => Some(*gid),
            _ => None,
        };
        SocketAccess { mode: self.socket_mode, group: group.filter(|_| self.socket_mode.intersects(Mode::RWXG)) }
    }
}

/// A region to be made, and the volume in it.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// The region.
    pub pmem: PathBuf,
    /// The other side of a mirror.
    pub mirror: Option<PathBuf>,
    /// Its bytes; None: those of a device.
    pub size: Option<u64>,
    /// Bytes of a block.
    pub block: u32,
    /// Version of the format, if no disk is cached.
    pub btt: Version,
    /// The disk to cache.
    pub disk: Option<PathBuf>,
    /// Whether each cached block has a checksum.
    pub checksums: bool,
    /// Whether the disk is a consistent prefix of the writes at every instant.
    pub ordered: bool,
    /// Whether completed writes may be only in memory that a power loss empties.
    pub volatile: Volatile,
    /// Whether the file gets its space when it is written.
    pub sparse: bool,
    /// Whether what is there is overwritten.
    pub force: bool,
}

impl CreateOptions {
    /// A volume in a region of `bytes` at `pmem` as `tidegate create` makes it if it is told no
    /// more, with blocks of 4096 bytes.
    pub(crate) fn new(pmem: PathBuf, bytes: u64) -> CreateOptions {
        CreateOptions {
            pmem,
            mirror: None,
            size: Some(bytes),
            block: 4096,
            btt: Version::V1_1,
            disk: None,
            checksums: false,
            ordered: false,
            volatile: Volatile::Refused,
            sparse: false,
            force: false,
        }
    }
}
