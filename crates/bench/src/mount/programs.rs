//! Programs that never sync: their files are many and small, or written through a buffer.
//!
//! A task is a shell script with three parts: what is laid out before, what is timed, and what is
//! taken away after each time. `$1` is a source tree, and the folder is the program's own.

use super::POOL_MIB;
use crate::files::testbed::{Storage, Testbed, missing};
use crate::served::load::parse_rate;
use crate::target::Outcome;
use std::path::Path;
use tidegate_measure::Pairs;
use tidegate_measure::programs::said;
use tidegate_measure::workload::Effort;

/// Operations in a sample for which the source tree is that of all crates, and not of this one.
const STEPS_OF_ALL: u32 = 2000;

/// What a program does.
#[derive(Clone, Copy)]
pub(crate) struct Task {
    /// The programs that have to be installed.
    needs: &'static [&'static str],
    before: &'static str,
    timed: &'static str,
    after: &'static str,
}

/// A source tree unpacked.
pub(crate) const UNPACK: Task = Task {
    needs: &["tar"],
    before: r#"tar cf tree.tar -C "$1" ."#,
    timed: "mkdir tree; tar xf tree.tar -C tree",
    after: "rm -r tree",
};

/// A source tree copied with all its attributes.
pub(crate) const COPY: Task = Task {
    needs: &["cp"],
    before: r#"mkdir tree; tar cf - -C "$1" . | tar xf - -C tree"#,
    timed: "cp -a tree copy",
    after: "rm -r copy",
};

/// The state of a repository.
pub(crate) const GIT_STATUS: Task = Task {
    needs: &["git"],
    before: r#"
        tar cf - -C "$1" . | tar xf -
        git init --quiet
        git add .
        git -c user.name=bench -c user.email=bench@localhost commit --quiet --message=all
        git status --porcelain
    "#,
    timed: "git status --porcelain; git status --porcelain; git status --porcelain",
    after: "",
};

/// Small C files, compiled two at a time.
pub(crate) const MAKE: Task = Task {
    needs: &["make", "gcc"],
    before: r#"
        for number in $(seq 40); do
            printf '#include <stdio.h>\nint of_%s(int n) { return printf("%%d", n); }\n' $number > file-$number.c
        done
        echo 'all: $(patsubst %.c,%.o,$(wildcard *.c))' > Makefile
    "#,
    timed: "make --silent -j2",
    after: "rm *.o",
};

/// Milliseconds of a task in the first storage over those in the second.
pub(super) fn compare(effort: Effort, task: Task, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(task.needs) {
        return Ok(missing);
    }
    let (over, under) = (prepared(task, at[0], sources(effort))?, prepared(task, at[1], sources(effort))?);
    let pairs = Pairs::try_alternate(effort.pairs, || milliseconds(task, &over), || milliseconds(task, &under))?;
    Ok(Outcome::ratio(&pairs, "ms"))
}

/// Milliseconds of a task in the mount over those on the bare server and on the disk together: the
/// service does in SOURCE what the program asks for, and then answers.
pub(super) fn over_both(effort: Effort, task: Task) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(task.needs) {
        return Ok(missing);
    }
    let prepared = |storage| prepared(task, storage, sources(effort));
    let (over, bare, disk) =
        (prepared(Storage::Mount(POOL_MIB))?, prepared(Storage::BareMount)?, prepared(Storage::Disk)?);
    let both = || Ok(milliseconds(task, &bare)? + milliseconds(task, &disk)?);
    let pairs = Pairs::try_alternate::<anyhow::Error>(effort.pairs, || milliseconds(task, &over), both)?;
    Ok(Outcome::ratio(&pairs, "ms"))
}

/// A source tree.
fn sources(effort: Effort) -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    if effort.steps < STEPS_OF_ALL { own } else { own.parent().expect("a crate lies among others") }
}

fn prepared(task: Task, storage: Storage, sources: &Path) -> anyhow::Result<Testbed> {
    let testbed = Testbed::new(storage)?;
    said(testbed.command("sh").args(["-euc", task.before, "sh"]).arg(sources))?;
    Ok(testbed)
}

fn milliseconds(task: Task, testbed: &Testbed) -> anyhow::Result<f64> {
    let Task { timed, after, .. } = task;
    let script = format!("began=$(date +%s%N)\n{timed} >&2\necho $(($(date +%s%N) - began))\n{after}");
    let nanoseconds: f64 = said(testbed.command("sh").args(["-euc", &script]))?.parse()?;
    Ok(nanoseconds / 1e6)
}

/// Microseconds of a buffered write of `block` bytes by fio, one after the other and never synced,
/// in the mount over those in `under`.
pub(super) fn buffered(effort: Effort, block: &str, under: Storage) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&["fio"]) {
        return Ok(missing);
    }
    let (over, under) = (Testbed::new(Storage::Mount(POOL_MIB))?, Testbed::new(under)?);
    let time = |testbed: &Testbed| Ok(1e6 / rate(testbed, block)?);
    let pairs = Pairs::try_alternate::<anyhow::Error>(effort.pairs, || time(&over), || time(&under))?;
    Ok(Outcome::ratio(&pairs, "µs"))
}

fn rate(testbed: &Testbed, block: &str) -> anyhow::Result<f64> {
    let mut fio = testbed.command("fio");
    fio.args(["--name=bench", "--ioengine=psync", "--thread", "--rw=write", "--filename=file", "--size=64m"]);
    fio.args(["--overwrite=1", "--invalidate=0", "--time_based", "--runtime=400ms", "--ramp_time=100ms"]);
    fio.args(["--output-format=json", &format!("--bs={block}")]);
    parse_rate(said(&mut fio)?.as_bytes(), "write")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_task_can_be_timed_more_than_once_in_its_folder() {
        let sources = tempfile::tempdir().unwrap();
        std::fs::write(sources.path().join("file"), b"bytes").unwrap();
        for task in [UNPACK, COPY] {
            let testbed = prepared(task, Storage::Memory, sources.path()).unwrap();
            assert!(milliseconds(task, &testbed).unwrap() > 0.0);
            assert!(milliseconds(task, &testbed).unwrap() > 0.0);
        }
        assert!(prepared(UNPACK, Storage::Memory, &sources.path().join("nowhere")).is_err());
    }
}
