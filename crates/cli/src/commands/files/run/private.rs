//! `tidegate run --private`: the run begins again in a mount namespace of its own.

use crate::errors::{Failure, ProgramFailure};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The flag.
const PRIVATE: &str = "--private";

/// Replaces this process by a run in a mount namespace of its own, from which no mount comes out.
/// Mounts and unmounts outside come in, so that a disk of no concern to the run can be removed.
pub(super) fn begin_again() -> Result<ExitCode, Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(ProgramFailure::PrivateTakesRoot.into());
    }
    let program = std::env::current_exe().map_err(Failure::system("asking where this program is"))?;
    tracing::warn!(
        "only the program and its children see the mounts: until the run ends, others find files there that may be older, and must not change them"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "slave", "--"]).arg(program);
    unshare.args(without_the_flag(std::env::args_os().skip(1)));
    let error = unshare.exec();
    Err(ProgramFailure::NotStarted { program: "unshare".into(), error }.into())
}

/// The words of a command line without the flag. Behind `--` stand the words of the program.
fn without_the_flag(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut is_of_program = false;
    let stays = |word: &OsString| {
        is_of_program |= word == "--";
        is_of_program || word != PRIVATE
    };
    words.filter(stays).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_goes_and_the_words_of_the_program_stay() {
        let words = ["run", "--private", "--try", "--", "ls", "--private"].map(OsString::from);
        assert_eq!(without_the_flag(words.into_iter()), ["run", "--try", "--", "ls", "--private"]);
    }
}
