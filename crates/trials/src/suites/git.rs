//! Git's own tests t0000 to t3999: they rename, link, remove and map files, and read times.

use super::{Suite, Verdict, sources};
use std::path::Path;
use std::process::Command;

pub(super) const SUITE: Suite = Suite {
    name: "git",
    build: || sources::built("git", BUILD),
    scripts: |tree| sources::names(&tree.join("t"), is_wanted),
    command,
    case,
    known: &[],
};

const BUILD: &str = "make -j2 CFLAGS=-O1 NO_CURL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_TCLTK=1 NO_PYTHON=1 NO_OPENSSL=1 all";

/// Scripts about files: those behind are about servers and mail.
fn is_wanted(name: &str) -> bool {
    name.ends_with(".sh") && ["t0", "t1", "t2", "t3"].iter().any(|begin| name.starts_with(begin))
}

fn command(tree: &Path, script: &str, at: &Path) -> Command {
    let mut shell = Command::new("sh");
    shell.arg(format!("./{script}")).current_dir(tree.join("t"));
    shell.env("TEST_OUTPUT_DIRECTORY", at).env("GIT_TEST_FSYNC", "1");
    shell
}

/// A line of the Test Anything Protocol.
fn case(line: &str) -> Option<(String, Verdict)> {
    let (rest, verdict) = match line.strip_prefix("not ok ") {
        Some(rest) => (rest, Verdict::Failed),
        None => (line.strip_prefix("ok ")?, Verdict::Passed),
    };
    Some((rest.to_owned(), if rest.contains("# skip") { Verdict::Skipped } else { verdict }))
}
