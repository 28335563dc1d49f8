//! The answers of the program on stdout and its progress on stderr, for people or as JSON. A reader
//! that went away ends the command quietly.

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

/// Tells a line about progress.
pub(crate) type Teller = fn(&str);

/// Who tells of progress on stderr: for people, or by objects of JSON.
pub(crate) fn teller(json: bool) -> Teller {
    match json {
        true => |progress| on_stderr(&in_json(progress)),
        false => |progress| on_stderr(&format!("tidegate: {progress}")),
    }
}

fn in_json(progress: &str) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        progress: &'a str,
    }
    serde_json::to_string(&Line { progress }).expect("a string has a JSON form")
}

/// Writes a line to stderr.
pub(crate) fn on_stderr(line: &str) {
    // A closed stderr has no reader.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_json_where_answers_are() {
        let line: serde_json::Value = serde_json::from_str(&in_json("draining: 1 \"MiB\" left")).expect("JSON");
        assert_eq!(line["progress"], "draining: 1 \"MiB\" left");
    }
}
