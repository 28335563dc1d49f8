//! Volumes as exports of the NBD protocol.

use crate::failure::ListenFailure;
use crate::options::{Plan, TlsIdentity, VolumePlan};
use crate::sockets::connections::Services;
use crate::volume::compose::Volume;
use crate::volume::report_seal::SealReporter;
use std::path::Path;
use std::sync::Arc;
use tidegate_block_export::Export;
use tidegate_host::files::regular;
use tidegate_nbd::{Encryption, Exports, ExportsError, Service, Tls};

/// The exports as they are offered: with an identity, encrypted on TCP and as clients like on unix
/// sockets.
pub fn services(plan: &Plan, exports: Exports) -> Result<Services, ListenFailure> {
    services_like(plan, &Service::plain(exports))
}

/// What `service` offers, encrypted as `plan` says. The identity is read anew.
pub fn services_like(plan: &Plan, service: &Service) -> Result<Services, ListenFailure> {
    let plain = service.with(Encryption::Off);
    let Some(tls) = identity(plan)? else {
        return Ok(Services { tcp: plain.with(Encryption::Off), unix: plain });
    };
    Ok(Services { unix: plain.with(Encryption::Allowed(tls.clone())), tcp: plain.with(Encryption::Required(tls)) })
}

/// The identity of the server, read from the PEM files of `plan`, if it has one.
pub fn identity(plan: &Plan) -> Result<Option<Tls>, ListenFailure> {
    plan.tls.as_ref().map(|named| read_identity(named, named.clients.as_deref())).transpose()
}

/// Most bytes of a PEM file: every authority that a system trusts takes a quarter of it.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// An identity, read from its PEM files. Clients need a certificate that one of `clients` signed,
/// if these are named.
pub(crate) fn read_identity(named: &TlsIdentity, clients: Option<&Path>) -> Result<Tls, ListenFailure> {
    let TlsIdentity { certificate, key, clients: _ } = named;
    let read = |path: &Path| regular::read(path, PEM_BYTES_MAX);
    Tls::from_pem_files(certificate, key, clients, read).map_err(|error| ListenFailure::Identity { error })
}

/// Checks that the names and descriptions of `plan` can be offered.
pub fn check_texts(plan: &Plan) -> Result<(), ExportsError> {
    let texts = plan.volumes.iter().map(|volume| (&*volume.name, volume.description.as_deref().unwrap_or_default()));
    Exports::check_texts(texts)
}

/// The exports of `volumes`, each as `plan` describes it.
pub fn exports(plan: &Plan, volumes: &[Volume]) -> Result<Exports, ExportsError> {
    let export = |(plan, volume): (&VolumePlan, &Volume)| {
        let facts = || format!("{} volume {}, {}", volume.facts.format, volume.facts.uuid, volume.facts.domain);
        let description = plan.description.clone().unwrap_or_else(facts);
        let export =
            Export::new(&plan.name, &description, Arc::new(SealReporter::new(Arc::clone(&volume.device), &plan.pmem)));
        if volume.facts.atomic_bytes.is_some() { export.with_whole_writes() } else { export }
    };
    Exports::new(plan.volumes.iter().zip(volumes).map(export).collect())
}
