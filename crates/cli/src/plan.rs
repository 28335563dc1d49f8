//! What `serve` is asked to do: which volumes, where to listen, whom to let in. The command line
//! and a configuration file lead to the same plan.

use crate::config;
use crate::connections::CONNECTIONS_MAX;
use crate::disks::DiskPlan;
use crate::failure::{Failure, UsageFailure};
use crate::grammar::Serve;
use crate::listen::{Place, SocketAccess};
use crate::peers::Peers;
use crate::transit::CacheWish;
use rustix::fs::Mode;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use tidegate_media::Access;
use tidegate_media::emulate::Profile;

/// A server to be.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The volumes, the default export first. None: the user's default volume.
    pub(crate) volumes: Vec<VolumePlan>,
    /// Where to listen; nowhere: a unix socket in the user's runtime folder.
    pub(crate) listen: Vec<Place>,
    /// Whether TCP may listen without encryption.
    pub(crate) insecure: bool,
    /// The server's identity: with it TCP connections have to be encrypted.
    pub(crate) tls: Option<Identity>,
    /// Permissions of unix sockets.
    pub(crate) socket_mode: Mode,
    /// Who may connect to them.
    pub(crate) peers: Peers,
    /// Connections served at once.
    pub(crate) connections_max: usize,
    /// The control socket; None: one beside each volume.
    pub(crate) control: Option<PathBuf>,
    /// Where Prometheus is answered.
    pub(crate) metrics: Option<SocketAddr>,
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
            control: None,
            metrics: None,
        }
    }
}

/// PEM files that tell clients who the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The server's certificate, and those that lead to its authority.
    pub(crate) certificate: PathBuf,
    /// Its private key.
    pub(crate) key: PathBuf,
    /// Authorities of clients' certificates; None: clients need none.
    pub(crate) clients: Option<PathBuf>,
}

/// A volume to be served.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VolumePlan {
    /// The export's name.
    pub(crate) name: String,
    /// What clients are told about it; what the volume is, if nothing was given.
    pub(crate) description: Option<String>,
    /// The region.
    pub(crate) pmem: PathBuf,
    /// Whether it may change.
    pub(crate) access: Access,
    /// The memory to be as slow as.
    pub(crate) emulate: Option<Profile>,
    /// The cache in front of it.
    pub(crate) cache: CacheWish,
    /// One write in so many is followed by the move of one more block; `None`: none moves.
    pub(crate) level_wear: Option<NonZeroU32>,
    /// The disk behind it, if it caches one.
    pub(crate) disk: DiskPlan,
}

impl VolumePlan {
    /// The volume in `pmem`, named after its file, as fast as it is.
    pub(crate) fn of(pmem: PathBuf, access: Access) -> VolumePlan {
        let name = pmem.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        VolumePlan {
            name,
            description: None,
            pmem,
            access,
            emulate: None,
            cache: CacheWish::default(),
            level_wear: None,
            disk: DiskPlan::default(),
        }
    }
}

/// How a volume is opened that only reads come through to.
pub(crate) fn access(read_only: bool) -> Access {
    if read_only { Access::Private } else { Access::ReadWrite }
}

impl Plan {
    /// Whether TCP may listen.
    pub(crate) fn may_be_exposed(&self) -> bool {
        self.insecure || self.tls.is_some()
    }

    /// Two sockets cannot be in one place. Port 0 is another one each time.
    fn refuse_place_twice(&self) -> Result<(), UsageFailure> {
        let control = self.control.as_deref().and_then(|path| std::path::absolute(path).ok()).map(Place::Unix);
        let metrics = self.metrics.map(Place::Tcp);
        let places: Vec<&Place> =
            self.listen.iter().chain(&control).chain(&metrics).filter(|place| place.is_one()).collect();
        let twice = places.iter().enumerate().find(|(nth, place)| places[..*nth].contains(place));
        twice.map_or(Ok(()), |(_, place)| Err(UsageFailure::PlaceTwice { place: place.to_string() }))
    }

    /// Whom the system lets open unix sockets. A mode that lets a group in means the one that is
    /// allowed, if there is only one.
    pub(crate) fn socket_access(&self) -> SocketAccess {
        let group = match &self.peers.gids[..] {
            [gid, others @ ..] if others.iter().all(|other| other == gid) => Some(*gid),
            _ => None,
        };
        SocketAccess { mode: self.socket_mode, group: group.filter(|_| self.socket_mode.intersects(Mode::RWXG)) }
    }

    /// What the command line asks for, with the configuration file that it names. Flags win over
    /// the file.
    pub(crate) fn of(wish: &Serve) -> Result<Plan, Failure> {
        let mut plan = match &wish.config {
            Some(path) => config::read(path)?,
            None => Plan::default(),
        };
        if let Some(pmem) = &wish.pmem {
            let volume = VolumePlan::of(pmem.clone(), access(wish.read_only));
            let cache = wish.write_cache.unwrap_or_default();
            let (emulate, level_wear) = (wish.emulate, wish.wear_leveling);
            plan.volumes.push(VolumePlan { emulate, cache, level_wear, disk: wish.disk.plan(), ..volume });
        }
        if !wish.listen.is_empty() {
            plan.listen.clone_from(&wish.listen);
        }
        plan.insecure |= wish.insecure;
        if let (Some(certificate), Some(key)) = (wish.tls_certificate.clone(), wish.tls_key.clone()) {
            plan.tls = Some(Identity { certificate, key, clients: wish.tls_clients.clone() });
        }
        plan.socket_mode = wish.socket_mode.unwrap_or(plan.socket_mode);
        plan.peers.uids.extend(&wish.allow_uid);
        plan.peers.gids.extend(&wish.allow_gid);
        plan.connections_max = wish.connections_max.map_or(plan.connections_max, NonZeroUsize::get);
        plan.control = wish.control.clone().or(plan.control);
        plan.metrics = wish.metrics.or(plan.metrics);
        plan.listen.iter().try_for_each(|place| place.check_exposure(plan.may_be_exposed()))?;
        plan.refuse_place_twice()?;
        Ok(plan)
    }
}
