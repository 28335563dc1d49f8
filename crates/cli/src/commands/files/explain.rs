//! `tidegate explain`: where the bytes of a file of a mount lie, why, and what moves them.

use crate::errors::{Exit, Failure};
use crate::grammar::{self, ByteRange};
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tidegate_file_service::{FilePlaces, explain};
use tidegate_host::columns::line;
use tidegate_host::units::Human;

/// What `explain` answers.
#[derive(Serialize)]
struct Explanation {
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    #[serde(flatten)]
    places: FilePlaces,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, state) = (Human(self.places.size), self.places.state());
        line(f, "file", format_args!("{}, {size}: {state}", self.file.display()))?;
        self.places.fmt(f)
    }
}

/// Runs `tidegate explain`.
pub(crate) fn run(args: &grammar::Explain, json: bool) -> Result<Exit, Failure> {
    let ByteRange(from, until) = args.range.clone().unwrap_or(ByteRange(0, u64::MAX));
    let places = explain(&args.file, from..until)?;
    output::give(&Explanation { file: args.file.clone(), places }, json)?;
    Ok(Exit::Done)
}
