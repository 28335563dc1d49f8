//! `tidegate create`: a region file, and an empty volume in it.

use crate::errors::{Exit, Failure};
use crate::grammar::Create;
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_host::shell::word;
use tidegate_server::cached_disk::volatile::{Volatile, accepted};
use tidegate_server::volume::create::create;
use tidegate_volume_region::description::Description;

/// What `create` answers.
#[derive(Serialize)]
struct Created {
    created: Description,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "tidegate_host::json_path::optional")]
    disk: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "tidegate_host::json_path::optional")]
    mirror: Option<PathBuf>,
    /// The command that serves it.
    #[serde(skip)]
    serve: String,
}

impl fmt::Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "created\n{}", self.created)?;
        write!(f, "next: {}", self.serve)
    }
}

/// Runs `tidegate create`.
pub(crate) fn run(args: &Create, json: bool) -> Result<Exit, Failure> {
    let created = create(&args.options())?;
    let serve = serving(&created.file, (args.mirror.as_deref(), args.disk.as_deref()), accepted(args.accept_volatile));
    output::give(&Created { created, disk: args.disk.clone(), mirror: args.mirror.clone(), serve }, json)?;
    Ok(Exit::Done)
}

/// The command that serves a region with its twin and its disk, `volatile` or not.
pub(crate) fn serving(pmem: &Path, (mirror, disk): (Option<&Path>, Option<&Path>), volatile: Volatile) -> String {
    let option =
        |name: &str, path: Option<&Path>| path.map(|path| format!(" {name} {}", word(path))).unwrap_or_default();
    let accepted = if volatile == Volatile::Accepted { " --accept-volatile" } else { "" };
    format!("tidegate serve --pmem {}{}{}{accepted}", word(pmem), option("--mirror", mirror), option("--disk", disk))
}
