//! `tidegate create`: a region file, and an empty volume in it.

use crate::errors::{Exit, Failure};
use crate::grammar::Create;
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tidegate_host::shell::word;
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
}

impl fmt::Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "created\n{}", self.created)?;
        write!(f, "next: tidegate serve --pmem {}", word(&self.created.file))?;
        self.mirror.iter().try_for_each(|mirror| write!(f, " --mirror {}", word(mirror)))?;
        self.disk.iter().try_for_each(|disk| write!(f, " --disk {}", word(disk)))
    }
}

/// Runs `tidegate create`.
pub(crate) fn run(args: &Create, json: bool) -> Result<Exit, Failure> {
    let created = create(&args.options())?;
    output::give(&Created { created, disk: args.disk.clone(), mirror: args.mirror.clone() }, json)?;
    Ok(Exit::Done)
}
