//! The configuration file of `serve`: TOML. A key that is not known here is refused with its line
//! and the nearest key that is.
//! [`EXAMPLE`] has them all, each with its meaning.

use crate::errors::{ConfigFailure, Failure, UsageFailure};
use crate::grammar;
use rustix::fs::Mode;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_disk_cache::Mode as CacheMode;
use tidegate_host::files::regular;
use tidegate_host::spelling::nearest;
use tidegate_media::Access;
use tidegate_media::emulate::Profile;
use tidegate_policy::admit::Admit;
use tidegate_policy::evict::Replacement;
use tidegate_policy::placement::{NamedPlacement, UnknownPlacement};
use tidegate_policy::writeback::destage::Caps;
use tidegate_sandbox::SandboxWish;
use tidegate_server::cached_disk::disk::{self, DiskPlan};
use tidegate_server::cached_disk::volatile;
use tidegate_server::options::{MirrorPlan, Plan, TlsIdentity, UblkPlan, VolumePlan, access};
use tidegate_server::sockets::access::Peers;
use tidegate_server::sockets::listen::{ListenAddress, socket_path};
use tidegate_server::volume::write_cache::WriteCacheSize;
use toml::Spanned;

/// A file with every key, which the manual page shows and packages install.
pub(crate) const EXAMPLE: &str = include_str!("../systemd/example.toml");

/// Every key at the top of the file.
pub(crate) const KEYS: [&str; 13] = [
    "listen",
    "insecure",
    "tls",
    "socket_mode",
    "allow_uids",
    "allow_gids",
    "connections_max",
    "busy_poll",
    "control",
    "metrics",
    "metrics_token",
    "sandbox",
    "volume",
];

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    #[serde(default, deserialize_with = "one_or_more")]
    listen: Vec<WrittenPlace>,
    #[serde(default)]
    insecure: bool,
    tls: Option<WrittenIdentity>,
    #[serde(default, deserialize_with = "mode")]
    socket_mode: Option<Mode>,
    #[serde(default, deserialize_with = "one_or_more")]
    allow_uids: Vec<User>,
    #[serde(default, deserialize_with = "one_or_more")]
    allow_gids: Vec<Group>,
    connections_max: Option<NonZeroUsize>,
    busy_poll: Option<bool>,
    control: Option<PathBuf>,
    #[serde(default, deserialize_with = "metrics")]
    metrics: Option<SocketAddr>,
    metrics_token: Option<PathBuf>,
    #[serde(default, deserialize_with = "sandbox")]
    sandbox: SandboxWish,
    #[serde(default, deserialize_with = "one_or_more")]
    volume: Vec<WrittenVolume>,
}

/// The `[tls]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenIdentity {
    certificate: PathBuf,
    key: PathBuf,
    clients: Option<PathBuf>,
}

/// One `[[volume]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenVolume {
    pmem: PathBuf,
    mirror: Option<Spanned<PathBuf>>,
    degraded: Option<Spanned<bool>>,
    #[serde(default, deserialize_with = "name")]
    name: Option<String>,
    description: Option<String>,
    #[serde(default)]
    read_only: bool,
    #[serde(default, deserialize_with = "profile")]
    emulate: Option<Profile>,
    #[serde(default, alias = "cache", deserialize_with = "cache")]
    write_cache: WriteCacheSize,
    #[serde(alias = "level_wear")]
    wear_leveling: Option<NonZeroU32>,
    vhost_user: Option<PathBuf>,
    /// `Some(None)`: the file says that there is none.
    #[serde(default, deserialize_with = "ublk")]
    ublk: Option<Option<UblkPlan>>,
    ublk_queues: Option<Spanned<NonZeroU16>>,
    disk: Option<PathBuf>,
    #[serde(default, deserialize_with = "cache_mode")]
    disk_mode: CacheMode,
    #[serde(default)]
    accept_volatile: bool,
    #[serde(default, deserialize_with = "replacement")]
    replacement: Replacement,
    #[serde(default, alias = "admit", deserialize_with = "admit")]
    read_admission: Admit,
    #[serde(default, deserialize_with = "size")]
    sequential_cutoff: Option<u64>,
    #[serde(default, alias = "forget_reads")]
    volatile_reads: bool,
    #[serde(default, deserialize_with = "percent")]
    dirty_percent: Option<u8>,
    #[serde(default, deserialize_with = "size")]
    dirty_max: Option<u64>,
    dirty_age: Option<u32>,
}

/// A list, or what would be its only element.
pub(crate) fn one_or_more<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_any(OneOrMore(PhantomData))
}

struct OneOrMore<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMore<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or a list of them")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        T::deserialize(text.into_deserializer()).map(|one| vec![one])
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Vec<T>, E> {
        T::deserialize(number.into_deserializer()).map(|one| vec![one])
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Vec<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(table)).map(|one| vec![one])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list))
    }
}

/// A place to listen, as the command line reads it; a relative path is left as it is.
struct WrittenPlace(ListenAddress);

impl<'de> Deserialize<'de> for WrittenPlace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WrittenPlace, D::Error> {
        deserializer.deserialize_str(ReadBy(grammar::listen_as_written)).map(WrittenPlace)
    }
}

/// A user's number.
struct User(u32);

impl<'de> Deserialize<'de> for User {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<User, D::Error> {
        deserializer.deserialize_any(NameOrNumber(ReadBy(grammar::user))).map(User)
    }
}

/// A group's number.
struct Group(u32);

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Group, D::Error> {
        deserializer.deserialize_any(NameOrNumber(ReadBy(grammar::group))).map(Group)
    }
}

/// A text, as a parser of the command line reads it. A refusal here has the line of the text
/// itself, also in a list.
struct ReadBy<T>(fn(&str) -> Result<T, UsageFailure>);

impl<T> Visitor<'_> for ReadBy<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(|refused| E::custom(refused.in_a_file()))
    }
}

/// A user or group, as the command line reads it.
struct NameOrNumber(ReadBy<u32>);

impl Visitor<'_> for NameOrNumber {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a user or group: a name or a number")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<u32, E> {
        self.0.visit_str(name)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<u32, E> {
        u32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }
}

/// A block device: whether there is one, or its number.
fn ublk<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<UblkPlan>>, D::Error> {
    deserializer.deserialize_any(WhetherOrNumber).map(Some)
}

struct WhetherOrNumber;

impl Visitor<'_> for WhetherOrNumber {
    type Value = Option<UblkPlan>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false or the number of a block device")
    }

    fn visit_bool<E: serde::de::Error>(self, whether: bool) -> Result<Option<UblkPlan>, E> {
        Ok(whether.then(UblkPlan::default))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Option<UblkPlan>, E> {
        let number = u32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))?;
        Ok(Some(UblkPlan { number: Some(number), queues: None }))
    }
}

/// What clients choose a volume by.
fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match String::deserialize(deserializer)? {
        name if name.is_empty() => Err(D::Error::custom("a volume's name is empty: write one, or leave it out")),
        name => Ok(Some(name)),
    }
}

/// Text read as the command line reads it, and refused in the same words.
fn profile<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Profile>, D::Error> {
    let read = grammar::profile(&String::deserialize(deserializer)?);
    read.map(Some).map_err(|refused| D::Error::custom(refused.in_a_file()))
}

/// An address, as the command line reads it.
fn metrics<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let read = grammar::metrics(&String::deserialize(deserializer)?);
    read.map(Some).map_err(|refused| D::Error::custom(refused.in_a_file()))
}

/// Whether there is a sandbox, as the command line reads it.
pub(crate) fn sandbox<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SandboxWish, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// A cache, as the command line reads it.
fn cache<'de, D: Deserializer<'de>>(deserializer: D) -> Result<WriteCacheSize, D::Error> {
    let read = grammar::cache(&String::deserialize(deserializer)?);
    read.map_err(|refused| D::Error::custom(refused.in_a_file()))
}

/// A cache's mode, as the command line reads it.
fn cache_mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CacheMode, D::Error> {
    let read = grammar::cache_mode(&String::deserialize(deserializer)?);
    read.map_err(|refused| D::Error::custom(refused.in_a_file()))
}

/// A replacement policy, as the command line reads it.
fn replacement<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Replacement, D::Error> {
    let read = grammar::replacement(&String::deserialize(deserializer)?);
    read.map_err(|refused| D::Error::custom(refused.in_a_file()))
}

/// An admission policy, as the command line reads it.
fn admit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Admit, D::Error> {
    let read = grammar::admit(&String::deserialize(deserializer)?);
    read.map_err(|refused| D::Error::custom(refused.in_a_file()))
}

/// A size, as the command line reads it.
pub(crate) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let read = grammar::size(&String::deserialize(deserializer)?);
    read.map(Some).map_err(|refused| D::Error::custom(refused.in_a_file()))
}

/// What the command line says, or else what the file does.
pub(crate) fn said_or_written<T: Clone>(said: &[T], written: Vec<T>) -> Vec<T> {
    if said.is_empty() { written } else { said.to_vec() }
}

/// Globs of files that bypass a pool, as the command line reads them.
pub(crate) fn globs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let read: Vec<String> = one_or_more(deserializer)?;
    let checked = read.iter().map(|text| grammar::glob(text)).collect::<Result<_, _>>();
    checked.map_err(|refused| D::Error::custom(refused.in_a_file()))
}

/// The name of a placement, as the command line reads it.
pub(crate) fn placement<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NamedPlacement>, D::Error> {
    let read = String::deserialize(deserializer)?.parse().ok();
    let offered = read.filter(|read| NamedPlacement::OF_ONE_TIER.contains(read));
    offered.map(Some).ok_or_else(|| D::Error::custom(UnknownPlacement))
}

/// A share, as the command line reads it.
fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    let percent = i64::deserialize(deserializer)?;
    let share = u8::try_from(percent).ok().filter(|share| (1..=100).contains(share));
    share.map(Some).ok_or_else(|| D::Error::custom(format!("{percent} is no share: write 1 to 100")))
}

/// Permissions, as the command line reads them.
fn mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Mode>, D::Error> {
    let read = grammar::socket_mode(&String::deserialize(deserializer)?);
    read.map(Some).map_err(|refused| D::Error::custom(refused.in_a_file()))
}

/// Reads the plan in the file `path`.
pub(crate) fn read(path: &Path) -> Result<Plan, Failure> {
    Ok(parse(path, &text_of(path)?)?)
}

/// What a configuration file says.
pub(crate) fn text_of(path: &Path) -> Result<String, ConfigFailure> {
    let bytes = regular::read(path, CONFIG_BYTES_MAX)
        .map_err(|error| ConfigFailure::Unreadable { path: path.to_owned(), error })?;
    String::from_utf8(bytes).map_err(|_| ConfigFailure::NotText { path: path.to_owned() })
}

/// Most bytes of a configuration file.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

fn parse(path: &Path, text: &str) -> Result<Plan, ConfigFailure> {
    let plan = planned(path, text)?;
    conflicts(path, &plan).into_iter().next().map_or(Ok(plan), Err)
}

/// Reads the plan in the text of a file of `serve`. [`conflicts`] says whether it can be followed.
pub(crate) fn planned(path: &Path, text: &str) -> Result<Plan, ConfigFailure> {
    let written: ConfigFile = toml::from_str(text).map_err(|error| refused(path, text, &error))?;
    if let Some(queues) = written.volume.iter().find_map(WrittenVolume::queues_of_no_device) {
        let (path, line) = (path.to_owned(), line_of(text, queues.span().start));
        return Err(ConfigFailure::NeedsKey { path, line, key: "ublk_queues", needs: "ublk" });
    }
    if let Some((at, key, excludes)) = written.volume.iter().find_map(WrittenVolume::keys_that_exclude_each_other) {
        return Err(ConfigFailure::Excludes { path: path.to_owned(), line: line_of(text, at), key, excludes });
    }
    let folder = path.parent().unwrap_or(path);
    let listen = written.listen.into_iter().map(|WrittenPlace(place)| place.below(folder)).collect();
    let volumes = written.volume.into_iter().map(|volume| volume.plan(folder)).collect();
    let usual = Plan::default();
    Ok(Plan {
        volumes,
        listen,
        insecure: written.insecure,
        tls: written.tls.map(|files| files.plan(folder)),
        socket_mode: written.socket_mode.unwrap_or(usual.socket_mode),
        peers: Peers {
            uids: written.allow_uids.into_iter().map(|User(uid)| uid).collect(),
            gids: written.allow_gids.into_iter().map(|Group(gid)| gid).collect(),
        },
        connections_max: written.connections_max.map_or(usual.connections_max, NonZeroUsize::get),
        busy_poll: written.busy_poll.unwrap_or(usual.busy_poll),
        control: written.control.map(|control| folder.join(socket_path(control))),
        metrics: written.metrics,
        metrics_token: written.metrics_token.map(|file| folder.join(file)),
        sandbox: written.sandbox,
    })
}

/// Everything that keeps the plan of a file from being followed.
pub(crate) fn conflicts(path: &Path, plan: &Plan) -> Vec<ConfigFailure> {
    let (path, volumes) = (|| path.to_owned(), &plan.volumes);
    let mut names = BTreeSet::new();
    let twice = volumes.iter().filter(|volume| !names.insert(&volume.name));
    let absent = volumes.is_empty().then(|| ConfigFailure::NoVolume { path: path() });
    let same_names = twice.map(|twice| ConfigFailure::SameName { path: path(), name: twice.name.clone() });
    let same_file = served_twice(volumes).map(|pmem| ConfigFailure::SameFile { path: path(), pmem: pmem.to_owned() });
    absent.into_iter().chain(same_names).chain(same_file).collect()
}

/// The region of two volumes one of which may change it.
fn served_twice(volumes: &[VolumePlan]) -> Option<&Path> {
    let real = |region: &Path| region.canonicalize().unwrap_or_else(|_| region.to_owned());
    let regions = volumes.iter().flat_map(|volume| volume.regions().map(move |region| (region, volume.access)));
    let places: Vec<_> = regions.map(|(region, access)| (real(region), region, access)).collect();
    let twice = places.iter().enumerate().find(|(index, (place, _, access))| {
        let changes = |access: &Access| *access == Access::ReadWrite;
        places[..*index].iter().any(|(other, _, of)| other == place && (changes(of) || changes(access)))
    });
    twice.map(|(_, (_, region, _))| *region)
}

impl WrittenIdentity {
    fn plan(self, folder: &Path) -> TlsIdentity {
        let WrittenIdentity { certificate, key, clients } = self;
        let in_folder = |path: PathBuf| folder.join(path);
        TlsIdentity { certificate: in_folder(certificate), key: in_folder(key), clients: clients.map(in_folder) }
    }
}

impl WrittenVolume {
    fn plan(self, folder: &Path) -> VolumePlan {
        let disk = self.disk_plan(folder);
        let plan = VolumePlan::of(folder.join(self.pmem), access(self.read_only));
        let name = self.name.unwrap_or(plan.name);
        let is_degraded = self.degraded.is_some_and(Spanned::into_inner);
        let mirror = MirrorPlan::with(self.mirror.map(|twin| folder.join(twin.into_inner())));
        VolumePlan {
            name,
            mirror: if is_degraded { MirrorPlan::Degraded } else { mirror },
            description: self.description,
            emulate: self.emulate,
            cache: self.write_cache,
            level_wear: self.wear_leveling,
            disk,
            vhost_user: self.vhost_user.map(|socket| folder.join(socket_path(socket))),
            ublk: self
                .ublk
                .flatten()
                .map(|plan| UblkPlan { queues: self.ublk_queues.map(Spanned::into_inner), ..plan }),
            ..plan
        }
    }

    /// The queues of a block device of which the file says nothing. One that is turned off keeps
    /// them.
    fn queues_of_no_device(&self) -> Option<&Spanned<NonZeroU16>> {
        self.ublk_queues.as_ref().filter(|_| self.ublk.is_none())
    }

    /// A key that no volume with the other one has, and where in the file it is.
    fn keys_that_exclude_each_other(&self) -> Option<(usize, &'static str, &'static str)> {
        let degraded = self.degraded.as_ref().filter(|degraded| *degraded.get_ref());
        let of_mirror = match (&self.mirror, degraded) {
            (Some(_), Some(degraded)) => return Some((degraded.span().start, "degraded", "mirror")),
            (Some(mirror), None) => (mirror.span().start, "mirror", "write_cache"),
            (None, Some(degraded)) => (degraded.span().start, "degraded", "write_cache"),
            (None, None) => return None,
        };
        matches!(self.write_cache, WriteCacheSize::Bytes(_)).then_some(of_mirror)
    }

    fn disk_plan(&self, folder: &Path) -> DiskPlan {
        let usual = Caps::default();
        DiskPlan {
            path: self.disk.as_ref().map(|disk| folder.join(disk)),
            mode: self.disk_mode,
            volatile: volatile::accepted(self.accept_volatile),
            replacement: self.replacement,
            admit: self.read_admission,
            sequential_bytes: self.sequential_cutoff.unwrap_or_default(),
            reads: disk::reads(self.volatile_reads),
            caps: Caps {
                dirty_bytes: self.dirty_max,
                dirty_percent: self.dirty_percent.unwrap_or(usual.dirty_percent),
                age: self.dirty_age.map_or(usual.age, |seconds| Duration::from_secs(seconds.into())),
            },
            ..DiskPlan::default()
        }
    }
}

/// What the parser refused, with its line; an unknown key with the nearest known one.
pub(crate) fn refused(path: &Path, text: &str, error: &toml::de::Error) -> ConfigFailure {
    let line = line_of(text, error.span().map_or(0, |span| span.start));
    let path = path.to_owned();
    match unknown_key(error.message()) {
        Some((key, known)) => {
            let nearest = nearest(&key, known.iter().map(String::as_str)).map(str::to_owned);
            ConfigFailure::UnknownKey { path, line, nearest, key, known }
        }
        None => ConfigFailure::Invalid { path, line, what: error.message().trim().to_owned() },
    }
}

/// The line of the byte `at`, from 1.
fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// Keys that have another name now. They are still read, and no message offers them.
const OLD_KEYS: [&str; 4] = ["cache", "level_wear", "admit", "forget_reads"];

/// The unknown key and the known ones, out of the words in which serde refuses a key: the one place
/// where it lists them.
fn unknown_key(message: &str) -> Option<(String, Vec<String>)> {
    let mut quoted = message.strip_prefix("unknown field `")?.split('`').step_by(2).map(str::to_owned);
    Some((quoted.next()?, quoted.filter(|key| !OLD_KEYS.contains(&key.as_str())).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::Report;
    use tidegate_disk_cache::Reads;

    fn plan(text: &str) -> Result<Plan, ConfigFailure> {
        parse(Path::new("/etc/tidegate/t.toml"), text)
    }

    const EVERY_KEY: &str = r#"
            listen = ["unix:/run/a.sock", "tcp:127.0.0.1:7", "unix:b.sock"]
            insecure = true
            socket_mode = "0660"
            allow_uids = [7, "8", "root"]
            allow_gids = [70]
            connections_max = 5
            busy_poll = false
            control = "c"
            metrics = "tcp:127.0.0.1:9"
            metrics_token = "t"
            sandbox = "on"
            [tls]
            certificate = "c.pem"
            key = "/k.pem"
            clients = "a.pem"
            [[volume]]
            name = "db"
            pmem = "v/one.pmem"
            description = "the database"
            read_only = true
            emulate = "pcm"
            write_cache = "32M"
            wear_leveling = 100
            vhost_user = "v/one.vhost"
            ublk = 3
            ublk_queues = 2
            disk = "v/disk"
            disk_mode = "write-through"
            accept_volatile = true
            replacement = "sieve"
            read_admission = "second-miss"
            sequential_cutoff = "4M"
            volatile_reads = true
            dirty_percent = 50
            dirty_max = "1G"
            dirty_age = 5
            [[volume]]
            pmem = "/dev/shm/two.pmem"
            degraded = true
            [[volume]]
            pmem = "three"
            mirror = "v/twin.pmem"
            degraded = false
            write_cache = "off"
    "#;

    #[test]
    fn what_is_told_of_a_value_fits_every_command_that_reads_a_file() {
        let refused = plan("listen = 7").map_err(Failure::from).unwrap_err();
        let told = Option::<Report>::from(&refused).expect("somebody reads it");
        assert!(!format!("{told:?}").contains("serve"), "{told:?}");
    }

    #[test]
    fn every_key_reaches_the_plan() {
        let plan = plan(EVERY_KEY).expect("a good file");
        let sockets: Vec<_> = plan.listen.iter().cloned().filter_map(ListenAddress::into_path).collect();
        assert_eq!((plan.listen.len(), &sockets[..]), (3, &["/run/a.sock".into(), "/etc/tidegate/b.sock".into()][..]));
        assert!(plan.insecure);
        let in_etc = |name: &str| PathBuf::from("/etc/tidegate").join(name);
        let identity =
            TlsIdentity { certificate: in_etc("c.pem"), key: "/k.pem".into(), clients: Some(in_etc("a.pem")) };
        assert_eq!(plan.tls, Some(identity));
        assert_eq!(plan.socket_mode.as_raw_mode(), 0o660);
        assert_eq!(plan.peers, Peers { uids: vec![7, 8, 0], gids: vec![70] });
        assert_eq!(plan.connections_max, 5);
        assert!(!plan.busy_poll);
        assert_eq!(plan.control.as_deref(), Some(Path::new("/etc/tidegate/c")));
        assert_eq!(plan.metrics.map(|address| address.port()), Some(9));
        assert_eq!(plan.metrics_token.as_deref(), Some(Path::new("/etc/tidegate/t")));
        assert_eq!(plan.sandbox, SandboxWish::On);
        let [first, second, third] = &plan.volumes[..] else { panic!("{plan:?}") };
        let expected = VolumePlan {
            name: "db".to_owned(),
            description: Some("the database".to_owned()),
            pmem: "/etc/tidegate/v/one.pmem".into(),
            mirror: MirrorPlan::Absent,
            access: Access::Private,
            emulate: Some(Profile::by_name("pcm").expect("a medium")),
            cache: WriteCacheSize::Bytes(32 << 20),
            level_wear: NonZeroU32::new(100),
            disk: DiskPlan {
                path: Some("/etc/tidegate/v/disk".into()),
                mode: CacheMode::WriteThrough,
                volatile: volatile::Volatile::Accepted,
                replacement: Replacement::Sieve,
                admit: Admit::SecondMiss,
                sequential_bytes: 4 << 20,
                reads: Reads::Forgotten,
                caps: Caps { dirty_bytes: Some(1 << 30), dirty_percent: 50, age: Duration::from_secs(5) },
                ..DiskPlan::default()
            },
            vhost_user: Some("/etc/tidegate/v/one.vhost".into()),
            ublk: Some(UblkPlan { number: Some(3), queues: NonZeroU16::new(2) }),
        };
        assert_eq!(*first, expected);
        let two = VolumePlan::of("/dev/shm/two.pmem".into(), Access::ReadWrite);
        assert_eq!(*second, VolumePlan { mirror: MirrorPlan::Degraded, ..two });
        assert_eq!(second.name, "two");
        assert_eq!(third.mirror, MirrorPlan::With("/etc/tidegate/v/twin.pmem".into()));
    }

    #[test]
    fn a_block_device_is_wished_for_by_a_word_or_its_number() {
        let of = |value: &str| plan(&format!("[[volume]]\npmem = \"a\"\nublk = {value}\n"));
        let wish = |value| of(value).expect(value).volumes[0].ublk;
        assert_eq!(wish("true"), Some(UblkPlan::default()));
        assert_eq!(wish("false"), None);
        assert_eq!(wish("0").and_then(|plan| plan.number), Some(0));
        for refused in ["-1", "4294967296", "\"3\""] {
            assert!(matches!(of(refused), Err(ConfigFailure::Invalid { line: 3, .. })), "{refused}");
        }
    }

    #[test]
    fn a_mirror_has_both_sides_or_one_and_no_write_cache() {
        for (keys, line, told) in [
            ("mirror = \"b\"\ndegraded = true", 4, "degraded and mirror"),
            ("degraded = true\nmirror = \"b\"", 3, "degraded and mirror"),
            ("write_cache = \"32M\"\nmirror = \"b\"", 4, "mirror and write_cache"),
            ("degraded = true\nwrite_cache = \"32M\"", 3, "degraded and write_cache"),
        ] {
            let refused = plan(&format!("[[volume]]\npmem = \"a\"\n{keys}\n")).expect_err(keys);
            assert_eq!(refused.refused_at(), tidegate_doctor::RefusedAt::Line(line), "{refused:?}");
            let report = Option::<Report>::from(&Failure::from(refused)).expect("somebody reads it");
            assert!(format!("{report:?}").contains(told), "{report:?}");
        }
        for keys in ["mirror = \"b\"\nwrite_cache = \"auto\"", "degraded = false\nwrite_cache = \"32M\""] {
            plan(&format!("[[volume]]\npmem = \"a\"\n{keys}\n")).expect(keys);
        }
    }

    #[test]
    fn queues_of_a_block_device_need_the_device() {
        let refused = plan("\n[[volume]]\npmem = \"a\"\nublk_queues = 2\n").expect_err("there is no device");
        assert_eq!(refused.refused_at(), tidegate_doctor::RefusedAt::Line(4), "{refused:?}");
        let told = Option::<Report>::from(&Failure::from(refused)).expect("somebody reads it");
        let words = format!("{told:?}");
        assert!(words.contains("t.toml:4: ublk_queues without ublk") && words.contains("ublk = true"), "{words}");
        for (device, queues) in [("true", Some(2)), ("false", None)] {
            let text = format!("[[volume]]\npmem = \"a\"\nublk = {device}\nublk_queues = 2\n");
            let wish = plan(&text).expect("a device with queues, on or off").volumes[0].ublk;
            assert_eq!(wish.and_then(|plan| plan.queues).map(NonZeroU16::get), queues);
        }
    }

    #[test]
    fn old_names_of_keys_are_read_and_never_offered() {
        let renamed = [
            ("write_cache", "\"32M\""),
            ("wear_leveling", "9"),
            ("read_admission", "\"never\""),
            ("volatile_reads", "true"),
        ];
        for (old, (new, value)) in OLD_KEYS.into_iter().zip(renamed) {
            let of = |key: &str| plan(&format!("[[volume]]\npmem = \"a\"\n{key} = {value}\n")).expect(key).volumes;
            assert_eq!(of(old), of(new), "{old}");
            assert_ne!(of(old), [VolumePlan::of("/etc/tidegate/a".into(), Access::ReadWrite)], "{old}");
        }
        let Err(ConfigFailure::UnknownKey { known, .. }) = plan("[[volume]]\npmem = \"a\"\nforget = true\n") else {
            panic!("it is not refused for a key")
        };
        assert!(!known.iter().any(|key| OLD_KEYS.contains(&key.as_str())), "{known:?}");
        assert!(known.iter().any(|key| key == "volatile_reads"), "{known:?}");
    }

    #[test]
    fn the_example_is_good_and_has_every_key() {
        plan(EXAMPLE).expect("the example is a good file");
        for wrong in ["no_such_key = 1\n", "[tls]\nno_such_key = 1\n", "[[volume]]\npmem = \"a\"\nno_such_key = 1\n"] {
            let Err(ConfigFailure::UnknownKey { known, .. }) = plan(wrong) else { panic!("{wrong:?}") };
            for key in known {
                let begins = |line: &str| {
                    line.starts_with(&format!("{key} = ")) || line == format!("[[{key}]]") || line == format!("[{key}]")
                };
                assert!(EXAMPLE.lines().any(begins), "no {key} in the example");
            }
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_nearest_one() {
        for (text, line, key, near) in [
            ("\n[[volume]]\npmem = \"a\"\nread_olny = true\n", 4, "read_olny", Some("read_only")),
            ("listne = []\n", 1, "listne", Some("listen")),
            ("[[volumes]]\npmem = \"a\"\n", 1, "volumes", Some("volume")),
            ("[[volume]]\npmem = \"a\"\n\n\ncompression = 1\n", 5, "compression", None),
        ] {
            let Err(ConfigFailure::UnknownKey { line: at, key: found, nearest, known, .. }) = plan(text) else {
                panic!("{text:?} is not refused for a key")
            };
            assert_eq!((at, found.as_str(), nearest.as_deref()), (line, key, near), "{text:?}");
            assert!(known.len() >= 3, "{known:?}");
        }
    }

    #[test]
    fn a_bad_value_is_refused_with_its_line() {
        for (text, line, words) in [
            ("listen = [\n\"unix:/a\",\n\"/b\"]\n", 3, "neither unix: nor tcp:"),
            ("[[volume]]\npmem = \"a\"\nemulate = \"tape\"", 3, "\"tape\""),
            ("[[volume]]\npmem = \"a\"\ndisk_mode = \"fast\"", 3, "write-through"),
            ("[[volume]]\npmem = \"a\"\nreplacement = \"best\"", 3, "s3-fifo"),
            ("[[volume]]\npmem = \"a\"\nread_admission = \"some\"", 3, "second-miss"),
            ("[[volume]]\npmem = 3\n", 2, "string"),
            ("[[volume]]\nname = \"x\"\n", 1, "pmem"),
            ("\nsocket_mode = \"rw\"\n", 2, "0660"),
            ("metrics = \"unix:/s\"", 1, "an address and a port"),
            ("connections_max = 0", 1, "nonzero"),
            ("\nsandbox = \"yes\"", 2, "auto"),
            ("[[volume]]\npmem = \"a\"\ndirty_percent = 101", 3, "1 to 100"),
            ("[[volume]]\npmem = \"a\"\ndirty_percent = -1", 3, "1 to 100"),
            ("\nallow_gids = [\n\"root\",\n\"no such group\"]", 4, "there is no group"),
            ("\nallow_uids = [1,\n4294967296]", 3, "a name or a number"),
            ("allow_uids = [-1]", 1, "a name or a number"),
            ("[[volume]]\npmem = \"a\"\nname = \"\"", 3, "name is empty"),
            ("x = \n", 1, "value"),
        ] {
            let Err(ConfigFailure::Invalid { line: at, what, .. }) = plan(text) else { panic!("{text:?}") };
            assert!(at == line && what.contains(words), "{text:?}: line {at}: {what}");
        }
    }

    #[test]
    fn the_keys_at_the_top_are_those_that_the_file_knows() {
        let Err(ConfigFailure::UnknownKey { known, .. }) = plan("other = 1\n") else { panic!("it is taken") };
        assert_eq!(known, KEYS);
    }

    #[test]
    fn all_mistakes_are_told_in_the_order_of_their_lines() {
        let text = "listne = 1\nmetrics = \"x\"\n[[volume]]\npmem = \"a\"\nemulate = \"tape\"\n[[volum]]\npmem = 1\n";
        let read = |text: &str| planned(Path::new("/etc/t.toml"), text);
        let refused = tidegate_doctor::read_all(text, read, ConfigFailure::refused_at).expect_err("a bad file");
        let lines: Vec<_> = refused.iter().map(ConfigFailure::refused_at).collect();
        assert_eq!(lines, [1, 2, 5, 6].map(tidegate_doctor::RefusedAt::Line));
        let missing = planned(Path::new("t"), "[[volume]]\nname = \"x\"\n").expect_err("no pmem");
        assert_eq!(missing.refused_at(), tidegate_doctor::RefusedAt::MissingKey);
        let path = Path::new("/etc/t.toml");
        let plan = planned(path, &"[[volume]]\npmem = \"/v\"\n".repeat(3)).expect("it is read");
        assert_eq!(conflicts(path, &plan).len(), 3);
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("long.toml");
        let file = std::fs::File::create(&path).expect("made");
        file.set_len(CONFIG_BYTES_MAX + 1).expect("sparse");
        assert!(matches!(text_of(&path), Err(ConfigFailure::Unreadable { .. })));
        file.set_len(CONFIG_BYTES_MAX).expect("sparse");
        assert!(text_of(&path).is_ok());
    }

    #[test]
    fn a_list_of_one_needs_no_brackets() {
        let one = plan(
            "listen = \"unix:s\"\nallow_uids = 7\nallow_gids = \"root\"\n[volume]\npmem = \"v\"\ndirty_percent = 5\n",
        );
        let one = one.expect("a good file");
        assert_eq!(one.listen, [ListenAddress::Unix("/etc/tidegate/s".into())]);
        assert_eq!(one.peers, Peers { uids: vec![7], gids: vec![0] });
        assert_eq!(one.volumes.iter().map(|volume| volume.name.as_str()).collect::<Vec<_>>(), ["v"]);
        for (text, line, words) in [
            ("\nlisten = \"/b\"\n", 2, "neither unix: nor tcp:"),
            ("\nlisten = true\n", 2, "a value or a list of them"),
            ("\n\nallow_uids = \"no such user\"", 3, "there is no user"),
            ("[volume]\npmem = \"a\"\nemulate = \"tape\"", 3, "\"tape\""),
        ] {
            let Err(ConfigFailure::Invalid { line: at, what, .. }) = plan(text) else { panic!("{text:?}") };
            assert!(at == line && what.contains(words), "{text:?}: line {at}: {what}");
        }
    }

    #[test]
    fn a_file_without_volumes_or_with_one_name_twice_is_refused() {
        assert!(matches!(plan("listen = []"), Err(ConfigFailure::NoVolume { .. })));
        let twice = "[[volume]]\npmem = \"/a/v.pmem\"\n[[volume]]\npmem = \"/b/v.pmem\"\n";
        assert!(matches!(plan(twice), Err(ConfigFailure::SameName { name, .. }) if name == "v"));
    }

    #[test]
    fn one_file_is_two_volumes_only_if_neither_changes_it() {
        let twice = |one: &str, other: &str| {
            plan(&format!("[[volume]]\npmem = \"/a/v\"\n{one}\n[[volume]]\nname = \"w\"\npmem = \"/a/v\"\n{other}\n"))
        };
        let frozen = "read_only = true";
        for (one, other) in [("", ""), (frozen, ""), ("", frozen)] {
            let refused = twice(one, other);
            assert!(
                matches!(&refused, Err(ConfigFailure::SameFile { pmem, .. }) if pmem == Path::new("/a/v")),
                "{refused:?}"
            );
        }
        assert_eq!(twice(frozen, frozen).expect("both only look").volumes.len(), 2);
    }
}
