//! `fsx`: random operations on a file, through system calls and mappings, and a model in memory.

use super::{Suite, Verdict};
use crate::mounted::{FSX, suites};
use std::io;
use std::path::Path;
use std::process::Command;

pub(super) const SUITE: Suite = Suite { name: "fsx", build: suites, scripts, command, case: no_case, known: &[] };

const OPERATIONS: &str = "1000000";
const SEEDS: u32 = 8;

fn scripts(_programs: &Path) -> io::Result<Vec<String>> {
    Ok((1..=SEEDS).map(|seed| format!("seed-{seed}")).collect())
}

fn command(programs: &Path, script: &str, at: &Path) -> Command {
    let seed = script.strip_prefix("seed-").unwrap_or(script);
    let line =
        format!("printf '%s' \"$FSX\" > fsx.toml && exec \"$0\" -N {OPERATIONS} -S {seed} -f fsx.toml -P . file");
    let mut shell = Command::new("sh");
    shell.args(["-ec", &line]).arg(programs.join("fsx")).env("FSX", FSX).current_dir(at);
    shell
}

/// The one case is how the program ends.
fn no_case(_line: &str) -> Option<(String, Verdict)> {
    None
}
