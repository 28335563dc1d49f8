//! The plan of a server, by the command line and by a configuration file.

use crate::config;
use crate::errors::{Failure, MetricsLack, UsageFailure};
use crate::grammar::Serve;
use std::collections::BTreeSet;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::{Path, PathBuf};
use tidegate_host::files::place_of;
use tidegate_server::options::{DEVICE_NUMBER_MAX, DEVICE_QUEUES_MAX, Plan, TlsIdentity, UblkPlan, VolumePlan, access};
use tidegate_server::sockets::listen::ListenAddress;

/// What the command line asks for, with the configuration file that it names. Flags win over
/// the file.
pub(super) fn of(args: &Serve) -> Result<Plan, Failure> {
    let plan = match &args.config {
        Some(path) => config::read(path)?,
        None => Plan::default(),
    };
    let plan = with_flags(plan, args);
    refuse_conflicts(&plan)?;
    Ok(plan)
}

/// `plan`, with what the command line says.
pub(super) fn with_flags(mut plan: Plan, args: &Serve) -> Plan {
    if let Some(pmem) = &args.pmem {
        let volume = VolumePlan::of(pmem.clone(), access(args.read_only));
        let cache = args.write_cache.unwrap_or_default();
        let (emulate, level_wear) = (args.emulate, args.wear_leveling);
        let (vhost_user, ublk) = (vhost_user(args), args.ublk());
        plan.volumes.push(VolumePlan {
            mirror: args.mirror(),
            emulate,
            cache,
            level_wear,
            disk: args.disk.plan(),
            vhost_user,
            ublk,
            ..volume
        });
    }
    if !args.listen.is_empty() {
        plan.listen.clone_from(&args.listen);
    }
    plan.insecure |= args.insecure;
    if let (Some(certificate), Some(key)) = (args.tls_certificate.clone(), args.tls_key.clone()) {
        plan.tls = Some(TlsIdentity { certificate, key, clients: args.tls_clients.clone() });
    }
    plan.socket_mode = args.socket_mode.unwrap_or(plan.socket_mode);
    plan.peers.uids.extend(&args.allow_uid);
    plan.peers.gids.extend(&args.allow_gid);
    plan.connections_max = args.connections_max.map_or(plan.connections_max, NonZeroUsize::get);
    plan.busy_poll &= !args.no_busy_poll;
    plan.control = args.control.clone().or(plan.control);
    plan.metrics = args.metrics.or(plan.metrics);
    plan.metrics_token = args.metrics_token.clone().or(plan.metrics_token);
    plan.sandbox = args.sandbox.unwrap_or(plan.sandbox);
    plan
}

/// Everything that no server does: ports that are open to all by mistake, a token that nobody is
/// asked for, two sockets in one place, block devices that cannot be.
pub(crate) fn conflicts(plan: &Plan) -> Vec<UsageFailure> {
    let exposed = plan.listen.iter().filter_map(|place| place.check_exposure(plan.may_be_exposed()).err());
    exposed.map(UsageFailure::from).chain(of_metrics(plan)).chain(places_twice(plan)).chain(of_devices(plan)).collect()
}

/// Block devices that the kernel's driver cannot make, or not twice.
fn of_devices(plan: &Plan) -> Vec<UsageFailure> {
    let (mut numbers, mut found) = (BTreeSet::new(), Vec::new());
    for VolumePlan { name, ublk, .. } in &plan.volumes {
        let (Some(UblkPlan { number, queues }), volume) = (*ublk, || name.clone()) else { continue };
        if let Some(number) = number {
            let is_new = numbers.insert(number);
            found.extend((!is_new).then(|| UsageFailure::DeviceTwice { volume: volume(), number }));
            let is_too_large = number > DEVICE_NUMBER_MAX;
            found.extend(is_too_large.then(|| UsageFailure::DeviceNumber { volume: volume(), number }));
        }
        let too_many = queues.map(NonZeroU16::get).filter(|queues| *queues > DEVICE_QUEUES_MAX);
        found.extend(too_many.map(|queues| UsageFailure::DeviceQueues { volume: volume(), queues }));
    }
    found
}

/// Refuses a plan with [`conflicts`].
pub(crate) fn refuse_conflicts(plan: &Plan) -> Result<(), UsageFailure> {
    conflicts(plan).into_iter().next().map_or(Ok(()), Err)
}

/// Metrics leave this machine only encrypted, and for those who have the token.
fn of_metrics(plan: &Plan) -> Option<UsageFailure> {
    let lacks = |lack| plan.metrics.map(|address| UsageFailure::MetricsExposed { address, lack });
    let leaves = plan.metrics.is_some_and(|address| !address.ip().to_canonical().is_loopback());
    match (plan.metrics, &plan.metrics_token, &plan.tls) {
        (None, Some(_), _) => Some(UsageFailure::TokenWithoutMetrics),
        (Some(_), None, _) if leaves => lacks(MetricsLack::Token),
        (Some(_), Some(_), None) if leaves => lacks(MetricsLack::Tls),
        _ => None,
    }
}

/// Where virtual machines attach the volume of the command line.
pub(super) fn vhost_user(args: &Serve) -> Option<PathBuf> {
    let path = args.vhost_user.clone()?;
    // If the current folder is gone, listening fails, and says so.
    Some(std::path::absolute(&path).unwrap_or(path))
}

/// Two sockets cannot be in one place, whatever the spelling of its path. Port 0 is another one
/// each time.
fn places_twice(plan: &Plan) -> Vec<UsageFailure> {
    let at = |path: &PathBuf| ListenAddress::Unix(path.clone()).below(Path::new(""));
    let control = plan.control.as_ref().map(at);
    let monitors: Vec<_> = plan.volumes.iter().filter_map(|volume| volume.vhost_user.as_ref().map(at)).collect();
    let metrics = plan.metrics.map(ListenAddress::Tcp);
    let places: Vec<&ListenAddress> =
        plan.listen.iter().chain(&monitors).chain(&control).chain(&metrics).filter(|place| place.is_one()).collect();
    let mut found = Vec::new();
    for (nth, place) in places.iter().enumerate() {
        let first = places[..nth].iter().find(|first| is_one_place(first, place));
        found.extend(first.map(|first| match (first.to_string(), place.to_string()) {
            (first, place) if first == place => UsageFailure::PlaceTwice { place },
            (first, place) => UsageFailure::PlaceSpeltTwice { place, first },
        }));
    }
    found
}

fn is_one_place(one: &ListenAddress, other: &ListenAddress) -> bool {
    match (one, other) {
        (ListenAddress::Unix(one), ListenAddress::Unix(other)) => place_of(one) == place_of(other),
        _ => one == other,
    }
}
