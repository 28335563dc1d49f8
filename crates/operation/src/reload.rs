//! A changed plan for a server that runs: its sockets, the terms of its clients, and the modes of
//! its caches are exchanged, or nothing is.
//!
//! First everything is made that can fail: the identity is read, sockets are opened. Then what is
//! there already is changed, and changed back if a part of that fails. Nothing fails after that:
//! clients are served on the new terms, sockets that no plan asks for are closed, and the
//! connections are cut that came by them or are not allowed any more. All others go on.

mod difference;

pub use difference::{Difference, TakesEffect, differences};

use std::sync::Arc;
use tidegate_disk_cache::Mode;
use tidegate_server::cached_disk::online::OnlineDisk;
use tidegate_server::cached_disk::volatile::Volatile;
use tidegate_server::control::watching::Watching;
use tidegate_server::failure::{ControlFailure, Failure, Refused};
use tidegate_server::fronts::nbd;
use tidegate_server::options::Plan;
use tidegate_server::sockets::capacity;
use tidegate_server::sockets::connections::{Connections, Services, Terms};
use tidegate_server::sockets::entrances::Entrances;
use tidegate_server::sockets::listen::Stream;

/// A running server, as far as its plan can change.
pub struct Running {
    /// What it does now.
    pub plan: Plan,
    /// Where its clients connect.
    pub entrances: Entrances,
    /// Its clients.
    pub connections: Arc<Connections>,
    /// The disk behind each volume that caches one, in the plan's order.
    pub disks: Vec<Option<Arc<OnlineDisk>>>,
    /// How it is watched.
    pub watching: Watching,
}

/// What a changed plan has done.
#[derive(Debug)]
pub struct Reloaded {
    /// The keys that have other values.
    pub differences: Vec<Difference>,
    /// Whether the files of an unchanged identity were read again.
    pub renewed_identity: bool,
    /// Whether the file of an unchanged token was read again.
    pub renewed_token: bool,
    /// Connections that were cut.
    pub cut: usize,
}

/// Returns how many of the connections that `plan` wants the system has room for.
fn connections_max(plan: &Plan) -> usize {
    let wanted = plan.connections_max;
    let room = capacity::connections(wanted, plan.queues_max());
    if room < wanted {
        tracing::info!("{room} connections at most, not {wanted}: the system has no files or mappings for more");
    }
    room
}

impl Running {
    /// Follows `new` from now on, as far as that is possible without a restart: the differences
    /// tell how far.
    ///
    /// # Errors
    /// A socket cannot be opened, an identity or a token not be read, or a mode not be set. Then
    /// everything is as it was.
    pub fn reload(&mut self, new: Plan) -> Result<Reloaded, Failure> {
        let differences = differences(&self.plan, &new);
        let new = followed(&self.plan, new);
        let terms = self.terms_of(&new)?;
        let metrics = self.watching.prepare_metrics(&new, &self.plan)?;
        let opened = self.entrances.open_missing(&new)?;
        self.change_in_place(&new)?;
        let is_changed = |key: &str| differences.iter().any(|difference| difference.key == key);
        let (of_tcp, of_users) = (is_changed("tls"), ["allow_uids", "allow_gids"].into_iter().any(is_changed));
        self.connections.set_terms(terms);
        self.watching.exchange_metrics(metrics);
        self.entrances.exchange(&new, opened);
        let cut = self.connections.cut(|stream, by| {
            self.entrances.has(by.entrance)
                && match stream {
                    Stream::Unix(stream) => !of_users || matches!(new.peers.stranger(stream), Ok(None)),
                    Stream::Tcp(_) => !of_tcp,
                }
        });
        let renewed_identity = new.tls.is_some() && !of_tcp;
        let renewed_token = new.metrics_token.is_some() && !is_changed("metrics_token");
        self.plan = new;
        Ok(Reloaded { differences, renewed_identity, renewed_token, cut })
    }

    /// The terms of the plan `new`, with its identity as it is now.
    fn terms_of(&self, new: &Plan) -> Result<Terms, Failure> {
        let services = nbd::services_like(new, &self.connections.terms().services.unix)?;
        Ok(terms(services, new))
    }

    /// Changes the permissions of sockets that stay, and the modes of caches, or none of them.
    fn change_in_place(&self, new: &Plan) -> Result<(), Failure> {
        let mut changed = Vec::new();
        let access = new.socket_access();
        let shared = match access == self.plan.socket_access() {
            true => Ok(()),
            false => self.entrances.share(new, access),
        };
        let outcome = shared.and_then(|()| self.set_modes(new, &mut changed));
        if outcome.is_err() {
            for (disk, mode) in changed {
                let restored = disk.set_mode(mode, Volatile::Accepted);
                restored.unwrap_or_else(|failure| tracing::warn!("a cache keeps its new mode: {failure}"));
            }
            let restored = self.entrances.share(&self.plan, self.plan.socket_access());
            restored.unwrap_or_else(|failure| tracing::warn!("a socket keeps its new permissions: {failure}"));
        }
        outcome
    }

    /// Sets the modes of `new` that are others, and adds the former ones to `changed`.
    fn set_modes<'a>(&'a self, new: &Plan, changed: &mut Vec<(&'a OnlineDisk, Mode)>) -> Result<(), Failure> {
        for ((old, new), disk) in self.plan.volumes.iter().zip(&new.volumes).zip(&self.disks) {
            if old.disk.mode == new.disk.mode {
                continue;
            }
            let no_cache = || ControlFailure::Refused(Refused::NoCache { pmem: old.pmem.clone() });
            let disk = disk.as_deref().ok_or_else(no_cache)?;
            let before = disk.lasting_mode();
            disk.set_mode(new.disk.mode, new.disk.volatile)?;
            changed.push((disk, before));
        }
        Ok(())
    }
}

/// The terms of a plan on which these services are served.
pub fn terms(services: Services, plan: &Plan) -> Terms {
    let (peers, connections_max) = (plan.peers.clone(), connections_max(plan));
    Terms { services, peers, connections_max, busy_poll: plan.busy_poll }
}

/// The plan `old`, with everything of `new` that a running server can follow.
fn followed(old: &Plan, new: Plan) -> Plan {
    let volumes = old.volumes.iter().map(|volume| {
        let mut followed = volume.clone();
        if let Some(next) = new.volumes.iter().find(|next| next.pmem == volume.pmem) {
            followed.vhost_user.clone_from(&next.vhost_user);
            followed.disk.mode = next.disk.mode;
            // What was accepted before stays accepted until the server ends.
            if next.disk.volatile == Volatile::Accepted {
                followed.disk.volatile = Volatile::Accepted;
            }
        }
        followed
    });
    Plan { volumes: volumes.collect(), control: old.control.clone(), sandbox: old.sandbox, ..new }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_media::Access;
    use tidegate_server::options::VolumePlan;

    #[test]
    fn a_running_server_follows_every_key_that_takes_effect_now_and_no_other() {
        let old = Plan { volumes: vec![VolumePlan::of("/v".into(), Access::ReadWrite)], ..Plan::default() };
        let mut new = Plan { connections_max: 5, control: Some("/c".into()), ..old.clone() };
        new.volumes[0].vhost_user = Some("/m".into());
        new.volumes[0].disk.mode = Mode::WriteAround;
        new.volumes[0].name = "other".to_owned();
        new.volumes.insert(0, VolumePlan::of("/w".into(), Access::ReadWrite));
        let left = differences(&followed(&old, new.clone()), &new);
        assert!(left.iter().all(|difference| difference.takes_effect == TakesEffect::AtRestart), "{left:?}");
        let keys: Vec<_> = left.iter().map(|difference| difference.key.as_str()).collect();
        assert_eq!(keys, ["control", "volume", "volume \"v\": name"]);
    }
}
