//! `tidegate rebuild`: a side of a mirror is copied to the other one, or to a new region in its
//! place.

use crate::commands::volume::create::serving;
use crate::errors::{Exit, Failure};
use crate::grammar::Rebuild;
use crate::output::{self, teller};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tidegate_host::columns::line;
use tidegate_host::units::Human;
use tidegate_media::LINE_BYTES;
use tidegate_server::cached_disk::volatile::Volatile;
use tidegate_volume_region::rebuild::{TargetContents, rebuild};

/// What `rebuild` answers.
#[derive(Serialize)]
struct RebuildReport {
    #[serde(with = "tidegate_host::json_path")]
    pmem: PathBuf,
    #[serde(with = "tidegate_host::json_path")]
    mirror: PathBuf,
    /// The number of the side that was rebuilt.
    side: u32,
    /// Bytes that each side has for the volume.
    bytes: u64,
    /// Bytes that differed.
    copied_bytes: u64,
}

impl fmt::Display for RebuildReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "rebuilt", format_args!("{}, side {}", self.mirror.display(), self.side))?;
        line(f, "copied", format_args!("{} of {}: the rest was equal", Human(self.copied_bytes), Human(self.bytes)))?;
        write!(f, "next: {}", serving(&self.pmem, (Some(&self.mirror), None), Volatile::Refused))
    }
}

/// Runs `tidegate rebuild`.
pub(crate) fn run(args: &Rebuild, json: bool) -> Result<Exit, Failure> {
    let contents = if args.force { TargetContents::Overwrite } else { TargetContents::Keep };
    let rebuilt = rebuild(&args.pmem, &args.mirror, contents, teller(json))?;
    let report = RebuildReport {
        pmem: args.pmem.clone(),
        mirror: args.mirror.clone(),
        side: rebuilt.side,
        bytes: rebuilt.bytes,
        copied_bytes: rebuilt.copied_lines * LINE_BYTES,
    };
    output::give(&report, json)?;
    Ok(Exit::Done)
}
