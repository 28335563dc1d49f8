//! SQLite's own tests of crashes, I/O errors and write-ahead logs.

use super::{Suite, Verdict, sources};
use std::path::Path;
use std::process::Command;

pub(super) const SUITE: Suite = Suite {
    name: "sqlite",
    build: || sources::built("sqlite3", BUILD),
    scripts: |tree| sources::names(&tree.join("test"), is_wanted),
    command,
    case,
    known: &[],
};

const BUILD: &str = "mkdir made; cd made; ../configure --quiet --disable-shared CFLAGS=-O1; make testfixture";

fn is_wanted(name: &str) -> bool {
    name.ends_with(".test") && ["crash", "ioerr", "wal"].iter().any(|begin| name.starts_with(begin))
}

fn command(tree: &Path, script: &str, at: &Path) -> Command {
    let mut testfixture = Command::new(tree.join("made/testfixture"));
    testfixture.arg(tree.join("test").join(script)).current_dir(at);
    testfixture
}

fn case(line: &str) -> Option<(String, Verdict)> {
    if let Some(failed) = line.strip_prefix("! ") {
        let (name, _) = failed.split_once(" expected:")?;
        return Some((name.to_owned(), Verdict::Failed));
    }
    let (name, word) = line.split_once("... ")?;
    let verdict = match word.trim() {
        "Ok" => Verdict::Passed,
        "Omitted" => Verdict::Skipped,
        _ => return None,
    };
    Some((name.to_owned(), verdict))
}
