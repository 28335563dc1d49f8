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
mod reload;

use crate::errors::{Exit, Failure, UsageFailure, refusal};
use crate::grammar::Serve;
use crate::output;
use announce::{ServedExport, Serving};
use reload::Reload;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use tidegate_host::sd_notify::SystemdNotify;
use tidegate_media::Access;
use tidegate_operation::uris::Protection;
use tidegate_operation::{Running, terms};
use tidegate_sandbox::{Served, confine};
use tidegate_server::control::watching::Watching;
use tidegate_server::fronts::nbd;
use tidegate_server::fronts::ublk::BlockDevices;
use tidegate_server::options::{Plan, TlsIdentity, VolumePlan, access};
use tidegate_server::shutdown::{self, Ended, Ending};
use tidegate_server::signals::Signals;
use tidegate_server::sockets::accept::{Asked, accept_until_signalled};
use tidegate_server::sockets::activation;
use tidegate_server::sockets::connections::Connections;
use tidegate_server::sockets::entrances::Entrances;
use tidegate_server::sockets::listen::{ListenAddress, Listener};
use tidegate_server::volume::compose::{self, Volume};
use tidegate_server::volume::default_volume::default_volume;
use tidegate_server::volume::orphans;

/// Runs `tidegate serve`.
pub(crate) fn run(args: &Serve, json: bool) -> Result<Exit, Failure> {
    let inherited = activation::inherited()?;
    let systemd = SystemdNotify::from_environment();
    let mut plan = plan::of(args)?;
    let created = plan.volumes.is_empty() && add_default_volume(&mut plan, args)?;
    let volumes = plan.volumes.iter().map(compose::open).collect::<Result<Vec<_>, _>>()?;
    let signals = Signals::watch().map_err(Failure::system("watching for signals"))?;
    check_inherited(&plan, inherited.iter().map(Listener::place)).into_iter().next().map_or(Ok(()), Err)?;
    let entrances = Entrances::open(&plan, inherited)?;
    warn_of_exposure(&plan, &entrances);
    warn_of_the_shut_out(&plan, &entrances);
    let exports = nbd::exports(&plan, &volumes);
    let exports = exports.map_err(|error| UsageFailure::Exports { why: error.to_string() })?;
    let services = nbd::services(&plan, exports)?;
    let connections = Connections::new(terms(services, &plan));
    begin(&plan, &volumes, |volume| volume.ublk.is_some())?;
    let devices = BlockDevices::begin(&plan, &volumes, &connections)?;
    let mut serving = serving(&plan, &volumes, created, &entrances, &devices);
    let watching = Watching::begin(&plan, &volumes, &connections, serving.all_places(), refusal)?;
    serving.watched_by(&watching);
    serving.sandbox = confine(plan.sandbox, Served::Volumes)?.to_string();
    let served = plan.volumes.iter().zip(&volumes).map(served_volume);
    let ending = Ending {
        connections: Arc::clone(&connections),
        devices,
        volumes: served.collect(),
        systemd,
        show_progress: if json { output::teller(true) } else { show_progress },
        tell: output::teller(json),
        interrupted: Exit::Interrupted as i32,
    };
    begin(&plan, &volumes, |_| true)?;
    serving.announce(json);
    ending.systemd.ready(&serving.status());
    warn_of_leftovers(&plan, &volumes);
    let disks = volumes.iter().map(|volume| volume.disk.clone()).collect();
    let mut running = Running { plan, entrances, connections, disks, watching };
    loop {
        let asked = accept_until_signalled(running.entrances.all(), &signals, &running.connections, &ending.systemd);
        match asked.map_err(Failure::system("waiting for clients"))? {
            Asked::End => break,
            Asked::Reload => signals.take_reloads(),
        }
        Reload { args, systemd: &ending.systemd, json }.carry_out(&mut running, &mut serving);
    }
    let Running { entrances, watching, .. } = running;
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

/// Lets clients of the volumes come whose plans are `such`, as the last step that can fail.
fn begin(plan: &Plan, volumes: &[Volume], such: fn(&VolumePlan) -> bool) -> Result<(), Failure> {
    let such = plan.volumes.iter().zip(volumes).filter(|(plan, _)| such(plan));
    Ok(such.map(|(_, volume)| volume).try_for_each(Volume::begin)?)
}

/// A volume, to be brought to its end.
fn served_volume((plan, volume): (&VolumePlan, &Volume)) -> shutdown::ServedVolume {
    shutdown::ServedVolume {
        name: plan.name.clone(),
        pmem: plan.pmem.clone(),
        device: Arc::clone(&volume.device),
        drain: volume.drain.clone(),
        disk: volume.disk.clone(),
    }
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
    // Its sockets were in no plan before.
    plan::refuse_conflicts(plan)?;
    Ok(created)
}

/// What keeps the sockets that were given with the start from being served: ports that are open to
/// all by mistake.
fn check_inherited(plan: &Plan, inherited: impl Iterator<Item = ListenAddress>) -> Vec<UsageFailure> {
    let exposed = inherited.filter_map(|place| place.check_exposure(plan.may_be_exposed()).err());
    exposed.map(UsageFailure::from).collect()
}

fn warn_of_exposure(plan: &Plan, entrances: &Entrances) {
    let lack = match &plan.tls {
        Some(TlsIdentity { clients: Some(_), .. }) => return,
        Some(_) => "encrypted, and asks clients for no certificate",
        None => "without encryption or password",
    };
    for place in entrances.nbd_listeners().map(Listener::place) {
        if let Some(to) = place.exposure() {
            tracing::warn!("{place} is open to {to}, {lack}");
        }
    }
}

fn warn_of_the_shut_out(plan: &Plan, entrances: &Entrances) {
    for path in entrances.nbd_listeners().filter_map(|listener| listener.place().into_path()) {
        for (who, file) in plan.peers.shut_out_of(&path) {
            let (socket, file) = (path.display(), file.display());
            tracing::warn!(
                "{who} is allowed, and cannot reach socket {socket}: the mode of {file} does not let them (--socket-mode, chmod, chgrp)"
            );
        }
    }
}

/// What to say as soon as clients can connect.
fn serving(plan: &Plan, volumes: &[Volume], created: bool, entrances: &Entrances, devices: &BlockDevices) -> Serving {
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
    let places: Vec<ListenAddress> = entrances.nbd_listeners().map(Listener::place).collect();
    Serving::new(created, served.collect(), &places, protection(plan))
}

/// How TCP connections of the server of `plan` are protected.
fn protection(plan: &Plan) -> Protection {
    if plan.tls.is_some() { Protection::Tls } else { Protection::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_left_requests_behind_is_no_success() {
        assert_eq!([0, 1, 7].map(exit_after), [Exit::Done, Exit::Interrupted, Exit::Interrupted]);
    }
}
