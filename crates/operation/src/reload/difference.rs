//! What differs between two plans of a server, key by key of its configuration.

use std::fmt::{self, Display};
use std::path::Path;
use tidegate_disk_cache::Reads;
use tidegate_host::units::Exact;
use tidegate_media::Access;
use tidegate_policy::writeback::destage::Caps;
use tidegate_server::cached_disk::disk::DiskPlan;
use tidegate_server::cached_disk::volatile::Volatile;
use tidegate_server::options::{MirrorPlan, Plan, TlsIdentity, UblkPlan, VolumePlan};
use tidegate_server::sockets::access::Peers;
use tidegate_server::sockets::listen::ListenAddress;
use tidegate_server::volume::write_cache::WriteCacheSize;

/// When a change of a key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakesEffect {
    /// While the server runs.
    Now,
    /// When the server is started again.
    AtRestart,
}

/// A key that has another value now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key, as the configuration names it, with its volume.
    pub key: String,
    /// The value before.
    pub old: String,
    /// The value now.
    pub new: String,
    /// When the new one takes effect.
    pub takes_effect: TakesEffect,
}

impl Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} → {}", self.key, self.old, self.new)?;
        match self.takes_effect {
            TakesEffect::Now => Ok(()),
            TakesEffect::AtRestart => f.write_str(" (restart to apply)"),
        }
    }
}

/// A key with its value, as text by which values are compared.
type Setting = (&'static str, String, TakesEffect);

/// What an absent value is called.
const NONE: &str = "none";

/// Returns every key whose value in `new` is not that in `old`. Volumes are the same if their
/// regions are; one that came or went is part of the key `volume`.
pub fn differences(old: &Plan, new: &Plan) -> Vec<Difference> {
    let mut found = between("", of_server(old), of_server(new));
    for volume in &old.volumes {
        if let Some(next) = new.volumes.iter().find(|next| next.pmem == volume.pmem) {
            found.extend(between(&format!("volume {:?}: ", volume.name), of_volume(volume), of_volume(next)));
        }
    }
    found
}

fn between(of: &str, old: Vec<Setting>, new: Vec<Setting>) -> Vec<Difference> {
    let differs = |((key, old, _), (_, new, takes_effect)): (Setting, Setting)| {
        (old != new).then(|| Difference { key: format!("{of}{key}"), old, new, takes_effect })
    };
    old.into_iter().zip(new).filter_map(differs).collect()
}

fn of_server(plan: &Plan) -> Vec<Setting> {
    use TakesEffect::{AtRestart, Now};
    let Plan {
        volumes,
        listen,
        insecure,
        tls,
        socket_mode,
        peers,
        connections_max,
        busy_poll,
        control,
        metrics,
        metrics_token,
        sandbox,
    } = plan;
    let Peers { uids, gids } = peers;
    let place = |place: &ListenAddress| match place {
        ListenAddress::Unix(path) => format!("unix:{}", path.display()),
        ListenAddress::Tcp(address) => format!("tcp:{address}"),
    };
    vec![
        ("listen", list(listen.iter().map(place)), Now),
        ("insecure", insecure.to_string(), Now),
        ("tls", tls.as_ref().map_or(NONE.to_owned(), identity), Now),
        ("socket_mode", format!("{:04o}", socket_mode.as_raw_mode()), Now),
        ("allow_uids", list(uids), Now),
        ("allow_gids", list(gids), Now),
        ("connections_max", connections_max.to_string(), Now),
        ("busy_poll", busy_poll.to_string(), Now),
        ("control", or_none(control.as_deref().map(Path::display)), AtRestart),
        ("metrics", or_none(metrics.map(|address| format!("tcp:{address}"))), Now),
        ("metrics_token", or_none(metrics_token.as_deref().map(Path::display)), Now),
        ("sandbox", sandbox.name().to_owned(), AtRestart),
        ("volume", list(volumes.iter().map(|volume| volume.pmem.display())), AtRestart),
    ]
}

fn of_volume(plan: &VolumePlan) -> Vec<Setting> {
    use TakesEffect::{AtRestart, Now};
    let VolumePlan { name, description, pmem: _, mirror, access, emulate, cache, level_wear, disk, vhost_user, ublk } =
        plan;
    let twin = mirror.twin().map(Path::display);
    let size = match cache {
        WriteCacheSize::Auto => "auto".to_owned(),
        WriteCacheSize::Off => "off".to_owned(),
        WriteCacheSize::Bytes(bytes) => Exact(*bytes).to_string(),
    };
    let queues = ublk.and_then(|UblkPlan { queues, .. }| queues);
    let device = ublk.map(|UblkPlan { number, .. }| number.map_or("any number".to_owned(), |own| own.to_string()));
    let mut all = vec![
        ("name", name.clone(), AtRestart),
        ("description", or_none(description.as_ref()), AtRestart),
        ("mirror", or_none(twin), AtRestart),
        ("degraded", (*mirror == MirrorPlan::Degraded).to_string(), AtRestart),
        ("read_only", (*access != Access::ReadWrite).to_string(), AtRestart),
        ("emulate", or_none(emulate.as_ref()), AtRestart),
        ("write_cache", size, AtRestart),
        ("wear_leveling", or_none(*level_wear), AtRestart),
        ("vhost_user", or_none(vhost_user.as_deref().map(Path::display)), Now),
        ("ublk", or_none(device), AtRestart),
        ("ublk_queues", or_none(queues), AtRestart),
    ];
    all.extend(of_disk(disk));
    all
}

fn of_disk(plan: &DiskPlan) -> Vec<Setting> {
    use TakesEffect::{AtRestart, Now};
    // The others have no key: they belong to commands that open a disk once.
    let DiskPlan {
        path,
        mode,
        volatile,
        replacement,
        admit,
        sequential_bytes,
        reads,
        caps,
        asked_for: _,
        force: _,
        journaling: _,
        guard: _,
    } = plan;
    let Caps { dirty_bytes, dirty_percent, age } = caps;
    let (accepts, accepting) = match volatile {
        Volatile::Accepted => (true, Now),
        Volatile::Refused => (false, AtRestart),
    };
    vec![
        ("disk", or_none(path.as_deref().map(Path::display)), AtRestart),
        ("disk_mode", mode.to_string(), Now),
        ("accept_volatile", accepts.to_string(), accepting),
        ("replacement", replacement.to_string(), AtRestart),
        ("read_admission", admit.to_string(), AtRestart),
        ("sequential_cutoff", Exact(*sequential_bytes).to_string(), AtRestart),
        ("volatile_reads", (*reads == Reads::Forgotten).to_string(), AtRestart),
        ("dirty_percent", dirty_percent.to_string(), AtRestart),
        ("dirty_max", or_none(dirty_bytes.map(Exact)), AtRestart),
        ("dirty_age", format!("{} s", age.as_secs()), AtRestart),
    ]
}

fn identity(tls: &TlsIdentity) -> String {
    let TlsIdentity { certificate, key, clients } = tls;
    let [certificate, key] = [certificate, key].map(|path| path.display());
    format!("certificate {certificate}, key {key}, clients {}", or_none(clients.as_deref().map(Path::display)))
}

fn or_none(value: Option<impl Display>) -> String {
    value.map_or(NONE.to_owned(), |value| value.to_string())
}

fn list(values: impl IntoIterator<Item = impl Display>) -> String {
    let values: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    if values.is_empty() { NONE.to_owned() } else { values.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_disk_cache::Mode;

    fn plan() -> Plan {
        Plan { volumes: vec![VolumePlan::of("/v".into(), Access::ReadWrite)], ..Plan::default() }
    }

    fn told(change: impl FnOnce(&mut Plan)) -> Vec<String> {
        let mut next = plan();
        change(&mut next);
        differences(&plan(), &next).iter().map(Difference::to_string).collect()
    }

    #[test]
    fn a_difference_names_its_key_both_values_and_when_it_takes_effect() {
        assert_eq!(told(|_| ()), [""; 0]);
        assert_eq!(told(|plan| plan.connections_max = 5), ["connections_max: 16384 → 5"]);
        assert_eq!(
            told(|plan| plan.listen = vec![ListenAddress::Unix("/s".into()), ListenAddress::Unix("/t".into())]),
            ["listen: none → unix:/s, unix:/t"]
        );
        assert_eq!(
            told(|plan| plan.volumes[0].disk.mode = Mode::WriteThrough),
            ["volume \"v\": disk_mode: write-back → write-through"]
        );
        assert_eq!(
            told(|plan| plan.volumes[0].disk.caps.age = Duration::from_secs(7)),
            ["volume \"v\": dirty_age: 30 s → 7 s (restart to apply)"]
        );
        assert_eq!(
            told(|plan| plan.volumes[0].mirror = MirrorPlan::With("/m".into())),
            ["volume \"v\": mirror: none → /m (restart to apply)"]
        );
        assert_eq!(
            told(|plan| plan.volumes[0].mirror = MirrorPlan::Degraded),
            ["volume \"v\": degraded: false → true (restart to apply)"]
        );
        assert_eq!(
            told(|plan| plan.volumes.push(VolumePlan::of("/w".into(), Access::ReadWrite))),
            ["volume: /v → /v, /w (restart to apply)"]
        );
        assert_eq!(told(|plan| plan.control = Some("/c".into())), ["control: none → /c (restart to apply)"]);
    }

    #[test]
    fn a_volume_is_known_by_its_region_and_not_by_its_name_or_place() {
        let two = |first: &str, second: &str| {
            let volumes = [first, second].map(|pmem| VolumePlan::of(pmem.into(), Access::ReadWrite));
            Plan { volumes: volumes.to_vec(), ..Plan::default() }
        };
        let (old, mut new) = (two("/a", "/b"), two("/b", "/a"));
        new.volumes[0].name = "other".to_owned();
        let keys: Vec<_> = differences(&old, &new).into_iter().map(|difference| difference.key).collect();
        assert_eq!(keys, ["volume", "volume \"b\": name"]);
    }
}
