//! The answer of `serve` as soon as clients can connect: its volumes, the failures that each
//! survives, and how to attach it.

use crate::errors::Failure;
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tidegate_host::columns::line;
use tidegate_operation::uris::{self, Attaching, ExportContents, Exported, Protection};
use tidegate_server::cached_disk::state::DiskState;
use tidegate_server::control::watching::Watching;
use tidegate_server::sockets::listen::ListenAddress;
use tidegate_volume_region::description::Description;

/// Everything a client or a script has to know.
#[derive(Serialize)]
pub(super) struct Serving {
    /// Whether the default volume was created just now.
    pub(super) created: bool,
    /// What is served, the default export first.
    pub(super) volumes: Vec<ServedExport>,
    /// The URI of each export at each place.
    pub(super) serving: Vec<String>,
    /// Control sockets.
    #[serde(serialize_with = "tidegate_host::json_path::each")]
    pub(super) control: Vec<PathBuf>,
    /// Where Prometheus is answered.
    pub(super) metrics: Option<String>,
    /// Whether system calls are given up.
    pub(super) sandbox: String,
}

/// One export.
#[derive(Serialize)]
pub(super) struct ServedExport {
    /// Its name.
    pub(super) name: String,
    /// Whether writes are refused.
    pub(super) read_only: bool,
    /// The cache in front of it, or why there is none.
    pub(super) cache: String,
    /// Blocks that a killed server had left in its cache, completed now.
    pub(super) completed: u64,
    /// The disk behind it, and the cache in front of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disk: Option<DiskState>,
    /// The socket where virtual machines attach it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "tidegate_host::json_path::optional")]
    pub(super) vhost_user: Option<PathBuf>,
    /// The block device of this machine that it is.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "tidegate_host::json_path::optional")]
    pub(super) ublk: Option<PathBuf>,
    /// What a client finds in it.
    #[serde(skip)]
    pub(super) holds: ExportContents,
    /// The volume.
    #[serde(flatten)]
    pub(super) facts: Description,
    /// Commands that attach it at the first place, and the one that undoes the mount.
    #[serde(flatten)]
    pub(super) attaching: Option<Attaching>,
}

impl Serving {
    /// `volumes` at `places`.
    pub(super) fn new(
        created: bool,
        mut volumes: Vec<ServedExport>,
        places: &[ListenAddress],
        protection: Protection,
    ) -> Serving {
        let names = export_names(&volumes);
        let serving = uris_of(&names, places, protection);
        for (volume, export) in volumes.iter_mut().zip(&names) {
            let exported = Exported { export, name: &volume.name, uuid: volume.facts.uuid, holds: volume.holds };
            volume.attaching = places.first().map(|place| uris::attaching(place, exported, protection));
            if let (Some(attaching), Some(socket)) = (&mut volume.attaching, &volume.vhost_user) {
                attaching.attach.push(uris::virtual_machine(socket));
            }
            if let (Some(attaching), Some(device)) = (&mut volume.attaching, &volume.ublk) {
                attaching.attach.push(uris::block_device(device, exported));
            }
        }
        Serving { created, volumes, serving, control: Vec::new(), metrics: None, sandbox: String::new() }
    }

    /// The server is watched at the sockets of `watching`.
    pub(super) fn watched_by(&mut self, watching: &Watching) {
        self.control.clone_from(&watching.control);
        self.metrics = watching.metrics();
    }

    /// Serves its volumes at other `places` from now on.
    pub(super) fn move_to(&mut self, places: &[ListenAddress], protection: Protection) {
        self.serving = uris_of(&export_names(&self.volumes), places, protection);
    }

    /// Where each volume is found.
    pub(super) fn all_places(&self) -> Vec<Vec<String>> {
        (0..self.volumes.len()).map(|nth| self.places_of(nth)).collect()
    }

    /// Where the volume `index` is found: its URI at each place, and its block device.
    fn places_of(&self, index: usize) -> Vec<String> {
        let uris = self.serving.iter().skip(index).step_by(self.volumes.len().max(1)).cloned();
        let device = self.volumes.get(index).and_then(|volume| volume.ublk.as_ref());
        uris.chain(device.map(|path| path.display().to_string())).collect()
    }

    /// All of it in one line, for a supervisor.
    pub(super) fn status(&self) -> String {
        let names: Vec<&str> = self.volumes.iter().map(|volume| volume.name.as_str()).collect();
        format!("serving {} at {}", names.join(", "), self.serving.join(" "))
    }

    /// Prints it. Nobody has to read it, and a full disk behind stdout keeps no server from
    /// serving.
    pub(super) fn announce(&self, json: bool) {
        if let Err(Failure::Stdout { error }) = output::give(self, json) {
            tracing::warn!("what is served cannot be written to stdout: {error}");
        }
    }
}

/// What clients choose each volume by: a sole one is the default export, which needs no name.
fn export_names(volumes: &[ServedExport]) -> Vec<String> {
    match volumes {
        [_] => vec![String::new()],
        several => several.iter().map(|volume| volume.name.clone()).collect(),
    }
}

/// The URI of each export at each place.
fn uris_of(exports: &[String], places: &[ListenAddress], protection: Protection) -> Vec<String> {
    places.iter().flat_map(|place| exports.iter().map(move |name| uris::uri(place, name, protection))).collect()
}

impl fmt::Display for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.created {
            writeln!(f, "created")?;
        }
        for ServedExport { name, read_only, cache, completed, disk, facts, .. } in &self.volumes {
            if self.volumes.len() > 1 {
                line(f, "export", name)?;
            }
            write!(f, "{facts}")?;
            match disk {
                Some(disk) => write!(f, "{disk}")?,
                None => line(f, "cache", cache)?,
            }
            if *completed > 0 {
                line(f, "completed", format_args!("{completed} blocks that a killed server left in its cache"))?;
            }
            if *read_only {
                line(f, "access", "read-only: the file does not change")?;
            }
        }
        for ServedExport { name, attaching, .. } in &self.volumes {
            let which = if self.volumes.len() > 1 { name } else { "it" };
            if let Some(Attaching { attach, undo }) = attaching {
                writeln!(f, "attach {which} with one of")?;
                attach.iter().try_for_each(|command| writeln!(f, "  {command}"))?;
                writeln!(f, "undo the mount with\n  {undo}")?;
            }
        }
        for control in &self.control {
            line(f, "control", control.display())?;
        }
        if let Some(metrics) = &self.metrics {
            line(f, "metrics", metrics)?;
        }
        line(f, "sandbox", &self.sandbox)?;
        let uris: Vec<String> = self.serving.iter().map(|uri| format!("serving    {uri}")).collect();
        write!(f, "{}", uris.join("\n"))
    }
}
