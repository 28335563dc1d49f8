//! `tidegate serve`: volumes over NBD, vhost-user-blk and ublk, until a signal says that it is
//! enough.
//!
//! One thread waits for clients and signals; each client has a thread of its own. On SIGTERM or
//! SIGINT: listening ends, requests in progress finish, blocks on their way arrive, the volumes are
//! flushed, the exit code is 0. Requests that do not finish in time are left behind, and the exit
//! code says so. A second signal does not wait, and tells what was left.

mod announce;
mod farewell;
mod look;
pub(crate) mod plan;
pub(crate) mod uris;

use crate::errors::{Exit, Failure, UsageFailure, refusal};
use crate::grammar::Serve;
use crate::output;
use announce::{ServedExport, Serving};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_host::default_paths;
use tidegate_host::sd_notify::SystemdNotify;
use tidegate_media::Access;
use tidegate_server::control::watching::Watching;
use tidegate_server::fronts::ublk::BlockDevices;
use tidegate_server::fronts::{Protocol, nbd};
use tidegate_server::options::{Plan, TlsIdentity, VolumePlan, access};
use tidegate_server::shutdown::{self, Ended, Ending};
use tidegate_server::signals::Signals;
use tidegate_server::sockets::accept::{Entrance, accept_until_signalled};
use tidegate_server::sockets::activation;
use tidegate_server::sockets::capacity;
use tidegate_server::sockets::connections::Connections;
use tidegate_server::sockets::listen::{ListenAddress, Listener};
use tidegate_server::volume::compose::{self, Volume};
use tidegate_server::volume::default_volume::default_volume;
use tidegate_server::volume::orphans;
use uris::Protection;

/// Runs `tidegate serve`.
pub(crate) fn run(args: &Serve, json: bool) -> Result<Exit, Failure> {
    let inherited = activation::inherited()?;
    let systemd = SystemdNotify::from_environment();
    let mut plan = plan::of(args)?;
    let created = plan.volumes.is_empty() && add_default_volume(&mut plan, args)?;
    let volumes = plan.volumes.iter().map(compose::open).collect::<Result<Vec<_>, _>>()?;
    let signals = Signals::watch().map_err(Failure::system("watching for signals"))?;
    let listeners = listen(&plan, inherited)?;
    let monitors = listen_for_monitors(&plan)?;
    warn_of_exposure(&plan, &listeners);
    warn_of_the_shut_out(&plan, &listeners);
    let exports = nbd::exports(&plan, &volumes);
    let exports = exports.map_err(|error| UsageFailure::Exports { why: error.to_string() })?;
    let services = nbd::services(&plan, exports)?;
    let connections = Connections::new(services, plan.peers.clone(), connections_max(&plan));
    let devices = BlockDevices::begin(&plan, &volumes, &connections)?;
    let serving = serving(&plan, &volumes, created, &listeners, &devices);
    let uris = (0..volumes.len()).map(|nth| serving.places_of(nth)).collect();
    let watching = Watching::begin(&plan, &volumes, &connections, uris, refusal)?;
    let served = plan.volumes.iter().zip(&volumes).map(|(plan, volume)| shutdown::ServedVolume {
        name: plan.name.clone(),
        pmem: plan.pmem.clone(),
        device: Arc::clone(&volume.device),
        drain: volume.drain.clone(),
        disk: volume.disk.clone(),
    });
    let ending = Ending {
        connections,
        devices,
        volumes: served.collect(),
        systemd,
        show_progress: if json { output::teller(true) } else { show_progress },
        tell: output::teller(json),
        interrupted: Exit::Interrupted as i32,
    };
    let (control, metrics) = (watching.control.clone(), watching.metrics.clone());
    let serving = Serving { control, metrics, ..serving };
    serving.announce(json);
    ending.systemd.ready(&serving.status());
    warn_of_leftovers(&plan, &volumes);
    let entrances: Vec<Entrance> =
        listeners.into_iter().map(|listener| Entrance { listener, protocol: Protocol::Nbd }).chain(monitors).collect();
    let waited = accept_until_signalled(&entrances, &signals, &ending.connections, &ending.systemd);
    waited.map_err(Failure::system("waiting for clients"))?;
    drop(entrances);
    let Ended { farewells, unfinished, settled } = ending.carry_out(signals)?;
    let exit = settled.map(|()| exit_after(unfinished)).map_err(Failure::from);
    let last_words = watching.end();
    let farewells = farewells.into_iter().zip(&volumes).map(|(farewell, volume)| farewell.with(volume.disk.as_deref()));
    let farewells: Vec<_> = farewells.collect();
    farewells.iter().for_each(|ended| farewell::tell(ended, json));
    last_words.say(&farewell::end_report(&farewells, &exit));
    exit
}

/// How a server ends that so many connections' requests did not let finish.
fn exit_after(unfinished: usize) -> Exit {
    if unfinished == 0 {
        return Exit::Done;
    }
    tracing::warn!("{unfinished} connections were cut, whose unanswered requests may or may not have been carried out");
    Exit::Interrupted
}

/// A line about progress: on a terminal it takes the place of the one before.
fn show_progress(line: &str) {
    let mut stderr = io::stderr().lock();
    // A closed stderr has no reader.
    let _ = if stderr.is_terminal() { write!(stderr, "\r{line:<60}") } else { writeln!(stderr, "tidegate: {line}") };
}

fn warn_of_leftovers(plan: &Plan, volumes: &[Volume]) {
    for (plan, volume) in plan.volumes.iter().zip(volumes) {
        orphans::of_volume(&plan.pmem, volume.facts.uuid).iter().for_each(|left| tracing::warn!("{left}"));
    }
}

/// Plans to serve the default volume; whether it was created just now.
fn add_default_volume(plan: &mut Plan, args: &Serve) -> Result<bool, Failure> {
    let (path, created) = default_volume()?;
    plan.volumes.push(VolumePlan {
        emulate: args.emulate,
        cache: args.write_cache.unwrap_or_default(),
        level_wear: args.wear_leveling,
        disk: args.disk.plan(),
        vhost_user: plan::vhost_user(args),
        ublk: args.ublk(),
        ..VolumePlan::of(path, access(args.read_only))
    });
    Ok(created)
}

/// The sockets that were given with the start, then those of the plan; one by default if there are
/// neither.
fn listen(plan: &Plan, mut listeners: Vec<Listener>) -> Result<Vec<Listener>, Failure> {
    for place in listeners.iter().map(Listener::place) {
        place.check_exposure(plan.may_be_exposed()).map_err(UsageFailure::from)?;
    }
    if plan.listen.is_empty() && listeners.is_empty() {
        let socket = default_paths::default_socket(&plan.volumes[0].pmem);
        default_paths::make_own_folder_of(&socket)?;
        return Ok(vec![Listener::bind(&ListenAddress::Unix(socket), plan.socket_access())?]);
    }
    for place in &plan.listen {
        listeners.push(Listener::bind(place, plan.socket_access())?);
    }
    Ok(listeners)
}

/// The sockets where virtual machines attach volumes.
fn listen_for_monitors(plan: &Plan) -> Result<Vec<Entrance>, Failure> {
    let places = plan.volumes.iter().enumerate().filter_map(|(nth, volume)| Some((nth, volume.vhost_user.clone()?)));
    let entrance = |(nth, path): (usize, PathBuf)| {
        let place = ListenAddress::Unix(path).below(Path::new(""));
        let listener = Listener::bind(&place, plan.socket_access())?;
        Ok(Entrance { listener, protocol: Protocol::VhostUserBlk(nth) })
    };
    places.map(entrance).collect()
}

/// How many of the connections that `plan` wants the system has room for.
fn connections_max(plan: &Plan) -> usize {
    let wanted = plan.connections_max;
    let room = capacity::connections(wanted, plan.queues_max());
    if room < wanted {
        tracing::info!("{room} connections at most, not {wanted}: the system has no files or mappings for more");
    }
    room
}

fn warn_of_exposure(plan: &Plan, listeners: &[Listener]) {
    let lack = match &plan.tls {
        Some(TlsIdentity { clients: Some(_), .. }) => return,
        Some(_) => "encrypted, and asks clients for no certificate",
        None => "without encryption or password",
    };
    for place in listeners.iter().map(Listener::place) {
        if let Some(to) = place.exposure() {
            tracing::warn!("{place} is open to {to}, {lack}");
        }
    }
}

fn warn_of_the_shut_out(plan: &Plan, listeners: &[Listener]) {
    for path in listeners.iter().filter_map(|listener| listener.place().into_path()) {
        for (who, file) in plan.peers.shut_out_of(&path) {
            let (socket, file) = (path.display(), file.display());
            tracing::warn!(
                "{who} is allowed, and cannot reach socket {socket}: the mode of {file} does not let them (--socket-mode, chmod, chgrp)"
            );
        }
    }
}

/// What to say as soon as clients can connect.
fn serving(plan: &Plan, volumes: &[Volume], created: bool, listeners: &[Listener], devices: &BlockDevices) -> Serving {
    let served = plan.volumes.iter().zip(volumes).enumerate().map(|(nth, (plan, volume))| ServedExport {
        name: plan.name.clone(),
        read_only: volume.access != Access::ReadWrite,
        cache: volume.cache.as_ref().map_or_else(String::clone, |transit| transit.describe()),
        completed: volume.completed,
        disk: volume.disk.as_ref().map(|disk| disk.state()),
        holds: look::holds(plan, volume),
        attaching: None,
        vhost_user: plan.vhost_user.clone(),
        ublk: devices.path_of(nth),
        facts: volume.facts.clone(),
    });
    let places: Vec<ListenAddress> = listeners.iter().map(Listener::place).collect();
    let protection = if plan.tls.is_some() { Protection::Tls } else { Protection::None };
    Serving::new(created, served.collect(), &places, protection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_left_requests_behind_is_no_success() {
        assert_eq!([0, 1, 7].map(exit_after), [Exit::Done, Exit::Interrupted, Exit::Interrupted]);
    }
}
