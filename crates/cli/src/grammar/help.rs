//! The help that `tidegate --help` prints beside what clap makes of the grammar.

use crate::failure::Exit;

/// The exit codes, as `--help` ends with them.
pub(super) fn exit_codes() -> String {
    let lines = Exit::ALL.map(|(exit, meaning)| format!("  {}  {meaning}\n", exit as u8));
    format!("Exit codes:\n{}", lines.concat())
}
