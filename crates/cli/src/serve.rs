//! `tidegate serve`: volumes over NBD, until a signal says that it is enough.
//!
//! One thread waits for clients and signals; each client has a thread of its own. On SIGTERM or
//! SIGINT: listening ends, requests in progress finish, blocks on their way arrive, the volumes are
//! flushed, the exit code is 0. Requests that do not finish in time are left behind, and the exit
//! code says so. A second signal does not wait, and tells what was left.

mod accept;
mod activation;
mod announce;
mod default_volume;
mod ending;
mod farewell;
mod look;
mod signals;
mod watching;

use crate::compose::{self, Volume};
use crate::connections::{Connections, Offer};
use crate::failure::{Exit, Failure, ListenFailure, UsageFailure};
use crate::grammar::Serve;
use crate::leftovers;
use crate::listen::{Listener, Place};
use crate::plan::{Identity, Plan, VolumePlan, access};
use crate::room;
use crate::uris::Protection;
use announce::{Served, Serving};
use ending::{Ended, Ending};
use signals::Signals;
use std::sync::Arc;
use tidegate_block_export::Export;
use tidegate_host::default_paths;
use tidegate_media::Access;
use tidegate_nbd::{Encryption, Exports, Service, Tls};
use tidegate_server::report_seal::SealReporter;
use tidegate_server::sd_notify::SystemdNotify;
use watching::Watching;

/// Runs `tidegate serve`.
pub(crate) fn run(wish: &Serve, json: bool) -> Result<Exit, Failure> {
    let inherited = activation::inherited()?;
    let supervisor = SystemdNotify::from_environment();
    let mut plan = Plan::of(wish)?;
    let created = plan.volumes.is_empty() && add_default_volume(&mut plan, wish)?;
    let volumes = plan.volumes.iter().map(compose::open).collect::<Result<Vec<_>, _>>()?;
    let signals = Signals::watch().map_err(Failure::system("watching for signals"))?;
    let listeners = listen(&plan, inherited)?;
    warn_of_exposure(&plan, &listeners);
    warn_of_the_shut_out(&plan, &listeners);
    let offer = offer(&plan, exports(&plan, &volumes)?)?;
    let connections = Connections::new(offer, plan.peers.clone(), connections_max(plan.connections_max));
    let serving = serving(&plan, &volumes, created, &listeners);
    let watching = Watching::begin(&plan, &volumes, &connections, &serving)?;
    let served = plan.volumes.iter().zip(&volumes).map(|(plan, volume)| ending::Served {
        name: plan.name.clone(),
        pmem: plan.pmem.clone(),
        device: Arc::clone(&volume.device),
        drain: volume.drain.clone(),
        disk: volume.disk.clone(),
    });
    let ending = Ending { connections, volumes: served.collect(), supervisor, json };
    let serving = watching.shown(serving);
    serving.announce(json);
    ending.supervisor.ready(&serving.status());
    warn_of_leftovers(&plan, &volumes);
    let waited = accept::accept_until_signalled(&listeners, &signals, &ending.connections, &ending.supervisor);
    waited.map_err(Failure::system("waiting for clients"))?;
    drop(listeners);
    let Ended { farewells, exit } = ending.carry_out(signals)?;
    let last_words = watching.end();
    let farewells = farewells.into_iter().zip(&volumes).map(|(farewell, volume)| farewell.with(volume.disk.as_deref()));
    let farewells: Vec<_> = farewells.collect();
    farewells.iter().for_each(|farewell| farewell.tell(json));
    last_words.say(&farewell::last_words(&farewells, &exit));
    exit
}

fn warn_of_leftovers(plan: &Plan, volumes: &[Volume]) {
    for (plan, volume) in plan.volumes.iter().zip(volumes) {
        leftovers::of_volume(&plan.pmem, volume.facts.uuid).iter().for_each(|left| tracing::warn!("{left}"));
    }
}

/// Plans to serve the default volume; whether it was created just now.
fn add_default_volume(plan: &mut Plan, wish: &Serve) -> Result<bool, Failure> {
    let (path, created) = default_volume::default_volume()?;
    plan.volumes.push(VolumePlan {
        emulate: wish.emulate,
        cache: wish.write_cache.unwrap_or_default(),
        level_wear: wish.wear_leveling,
        disk: wish.disk.plan(),
        ..VolumePlan::of(path, access(wish.read_only))
    });
    Ok(created)
}

/// The sockets that were given with the start, then those of the plan; one by default if there are
/// neither.
fn listen(plan: &Plan, mut listeners: Vec<Listener>) -> Result<Vec<Listener>, Failure> {
    for place in listeners.iter().map(Listener::place) {
        place.check_exposure(plan.may_be_exposed())?;
    }
    if plan.listen.is_empty() && listeners.is_empty() {
        let socket = default_paths::default_socket(&plan.volumes[0].pmem);
        default_paths::make_own_folder_of(&socket)?;
        return Ok(vec![Listener::bind(&Place::Unix(socket), plan.socket_access())?]);
    }
    for place in &plan.listen {
        listeners.push(Listener::bind(place, plan.socket_access())?);
    }
    Ok(listeners)
}

/// How many of `wish` connections the system has room for.
fn connections_max(wish: usize) -> usize {
    let room = room::make(wish);
    if room < wish {
        tracing::info!("{room} connections at most, not {wish}: the system has no files or mappings for more");
    }
    room
}

fn warn_of_exposure(plan: &Plan, listeners: &[Listener]) {
    let lack = match &plan.tls {
        Some(Identity { clients: Some(_), .. }) => return,
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

/// The exports as they are offered: with an identity, encrypted on TCP and as clients like on unix
/// sockets.
fn offer(plan: &Plan, exports: Exports) -> Result<Offer, Failure> {
    let plain = Service::plain(exports);
    let Some(Identity { certificate, key, clients }) = &plan.tls else {
        return Ok(Offer { tcp: plain.with(Encryption::Off), unix: plain });
    };
    let tls = Tls::from_pem_files(certificate, key, clients.as_deref());
    let tls = tls.map_err(|error| ListenFailure::Identity { error })?;
    Ok(Offer { unix: plain.with(Encryption::Allowed(tls.clone())), tcp: plain.with(Encryption::Required(tls)) })
}

fn exports(plan: &Plan, volumes: &[Volume]) -> Result<Exports, Failure> {
    let export = |(plan, volume): (&VolumePlan, &Volume)| {
        let facts = || format!("{} volume {}, {}", volume.facts.format, volume.facts.uuid, volume.facts.domain);
        let description = plan.description.clone().unwrap_or_else(facts);
        let export =
            Export::new(&plan.name, &description, Arc::new(SealReporter::new(Arc::clone(&volume.device), &plan.pmem)));
        if volume.facts.atomic_bytes.is_some() { export.with_whole_writes() } else { export }
    };
    let offered = Exports::new(plan.volumes.iter().zip(volumes).map(export).collect());
    offered.map_err(|error| UsageFailure::Exports { why: error.to_string() }.into())
}

/// What to say as soon as clients can connect.
fn serving(plan: &Plan, volumes: &[Volume], created: bool, listeners: &[Listener]) -> Serving {
    let served = plan.volumes.iter().zip(volumes).map(|(plan, volume)| Served {
        name: plan.name.clone(),
        read_only: volume.access != Access::ReadWrite,
        cache: volume.cache.as_ref().map_or_else(String::clone, |transit| transit.describe()),
        completed: volume.completed,
        disk: volume.disk.as_ref().map(|disk| disk.state()),
        holds: look::holds(plan, volume),
        attaching: None,
        facts: volume.facts.clone(),
    });
    let places: Vec<Place> = listeners.iter().map(Listener::place).collect();
    let protection = if plan.tls.is_some() { Protection::Tls } else { Protection::None };
    Serving::new(created, served.collect(), &places, protection)
}
