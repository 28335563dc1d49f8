//! LevelDB's own tests of files, databases, recovery and damage.

use super::{Suite, Verdict, sources};
use std::io;
use std::path::Path;
use std::process::Command;

pub(super) const SUITE: Suite =
    Suite { name: "leveldb", build: || sources::built("leveldb", BUILD), scripts, command, case, known: &[] };

/// The test programs, by their sources.
const PROGRAMS: [&str; 8] = [
    "autocompact_test",
    "corruption_test",
    "db_test",
    "env_posix_test",
    "env_test",
    "fault_injection_test",
    "log_test",
    "recovery_test",
];

/// Its own makefiles want more libraries than these tests do.
const BUILD: &str = r#"
    compile() {
        g++ -std=c++14 -O1 -pthread -DLEVELDB_PLATFORM_POSIX=1 -DHAVE_FDATASYNC=1 -DHAVE_O_CLOEXEC=1 -I. -Iinclude "$@"
    }
    mkdir made
    for source in db/*.cc table/*.cc util/*.cc helpers/memenv/*.cc; do
        name=$(basename "$source" .cc)
        case $name in *windows*|leveldbutil|testutil) continue;; *_test) continue;; esac
        compile -c "$source" -o "made/$name.o"
    done
    compile -c util/testutil.cc -o made/testutil.o
    for source in db/autocompact_test.cc db/corruption_test.cc db/db_test.cc util/env_posix_test.cc util/env_test.cc \
        db/fault_injection_test.cc db/log_test.cc db/recovery_test.cc; do
        compile "$source" made/*.o -lgtest -lgmock -lbenchmark -o "made/$(basename "$source" .cc)"
    done
"#;

fn scripts(_tree: &Path) -> io::Result<Vec<String>> {
    Ok(PROGRAMS.map(str::to_owned).to_vec())
}

fn command(tree: &Path, program: &str, at: &Path) -> Command {
    let mut program = Command::new(tree.join("made").join(program));
    program.env("TEST_TMPDIR", at).env("TMPDIR", at).current_dir(at);
    program
}

/// A line of GoogleTest. Names of failed cases stand at the end again, without a time.
fn case(line: &str) -> Option<(String, Verdict)> {
    let (word, rest) = line.strip_prefix('[')?.split_once("] ")?;
    let verdict = match word.trim() {
        "OK" => Verdict::Passed,
        "FAILED" => Verdict::Failed,
        "SKIPPED" => Verdict::Skipped,
        _ => return None,
    };
    let (name, _) = rest.split_once(" (")?;
    name.contains('.').then(|| (name.to_owned(), verdict))
}
