//! The answers of the program on stdout, for people or as JSON. A reader that went away ends the
//! command quietly.

use crate::errors::{Exit, Failure};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};
use tidegate_host::shell::{Ends, shown};

/// Prints `answer` for people, or as one line of JSON.
pub(crate) fn give<A: Serialize + Display>(answer: &A, json: bool) -> Result<(), Failure> {
    if json {
        print(&serde_json::to_string(answer).expect("answers are structs of strings and numbers"))
    } else {
        print(&shown(&answer.to_string(), Ends::OfLines))
    }
}

/// Prints `answer`, and ends with `exit`, also if nobody reads it: a script may want to know the
/// end alone.
pub(crate) fn end_with<A: Serialize + Display>(answer: &A, json: bool, exit: Exit) -> Result<Exit, Failure> {
    let given = give(answer, json);
    if !matches!(given, Err(Failure::NobodyReads)) {
        given?;
    }
    Ok(exit)
}

/// Prints `text` and an end of line, and flushes.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::NobodyReads,
        _ => Failure::Stdout { error },
    })
}
