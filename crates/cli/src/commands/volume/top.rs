//! `tidegate top`: everything that runs, on a screen or once as a table.

use crate::errors::{Exit, Failure};
use crate::grammar::Top;
use crate::output;
use std::time::Duration;
use tidegate_top::{TopFailure, TopOptions, look, watch};

/// Runs `tidegate top`.
pub(crate) fn run(args: &Top, json: bool) -> Result<Exit, Failure> {
    let options = TopOptions { interval: Duration::from_secs(args.interval.get().into()), sort: args.sort };
    match (args.once, json) {
        (true, _) => output::give(&look(&options), json)?,
        (false, true) => return Err(TopFailure::NoTerminal { why: "JSON has no screen" }.into()),
        (false, false) => watch(&options)?,
    }
    Ok(Exit::Done)
}
