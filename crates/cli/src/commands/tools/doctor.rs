//! `tidegate doctor`: findings about this machine, or about the directory of a database.

use crate::errors::{Exit, Failure};
use crate::grammar::Doctor;
use crate::output;
use tidegate_doctor::{examine_database, examine_machine};

/// Runs `tidegate doctor`.
pub(crate) fn run(args: &Doctor, json: bool) -> Result<Exit, Failure> {
    let examination = match &args.directory {
        Some(directory) => examine_database(directory, args.settings.as_deref())?,
        None => examine_machine(),
    };
    let exit = if examination.has_fault() { Exit::Refused } else { Exit::Done };
    output::end_with(&examination, json, exit)
}
