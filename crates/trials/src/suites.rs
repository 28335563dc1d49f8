//! Test suites of others in a mount and beside it, on the file system that SOURCE is on: each case
//! ends the same way in both, or is a known difference.
//!
//! A suite is a set of scripts, and a script names its cases. Suites that are not on a package
//! registry are built from Debian's source packages.

mod fsx;
mod git;
mod leveldb;
pub(crate) mod sources;
mod sqlite;
mod stressors;

use crate::artefacts::MissingError;
use crate::mounted::{Journaled, MountTestbed};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, fs, io, thread};

/// How often a script runs in which a case differs: cases of others may depend on time.
const TRIES: u32 = 3;

/// A script that runs longer hangs.
const HANGS_AFTER_SECONDS: &str = "14400";

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As its author wants it.
    Passed,
    /// Otherwise.
    Failed,
    /// It did not run, as something is missing that it needs.
    Skipped,
}

/// Verdicts by the names of cases.
type Verdicts = BTreeMap<String, Verdict>;

/// A suite of others.
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// Makes it, unless it was made before, and returns its folder.
    build: fn() -> Result<PathBuf, MissingError>,
    /// The names of its scripts, from its folder.
    scripts: fn(&Path) -> io::Result<Vec<String>>,
    /// Runs a script: the suite's folder, the script, and the folder to work in.
    command: fn(&Path, &str, &Path) -> Command,
    /// The case that a line of a script's output tells of.
    case: fn(&str) -> Option<(String, Verdict)>,
    /// The beginnings of names of cases that differ, as `docs/reference/mount-differences.md` has
    /// it.
    known: &'static [&'static str],
}

/// Every suite.
pub const SUITES: [Suite; 5] = [fsx::SUITE, stressors::SUITE, leveldb::SUITE, sqlite::SUITE, git::SUITE];

/// A case that ended in two ways. None: it was not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its script and its name.
    pub case: String,
    /// How it ended on the disk.
    pub on_disk: Option<Verdict>,
    /// How it ended on the mount.
    pub on_mount: Option<Verdict>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word =
            |verdict: Option<Verdict>| verdict.map_or("not reached".to_owned(), |verdict| format!("{verdict:?}"));
        write!(f, "{}: {} on the disk, {} on the mount", self.case, word(self.on_disk), word(self.on_mount))
    }
}

/// What came of a suite.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Scripts that ran.
    pub scripts: usize,
    /// Cases on the disk.
    pub cases: usize,
    /// Those that failed there.
    pub failed_on_disk: usize,
    /// Cases that differ, and are known to.
    pub known: Vec<Difference>,
    /// Cases that differ.
    pub differences: Vec<Difference>,
    /// Scripts that failed on the disk before any case passed: they compare nothing.
    pub void: Vec<String>,
}

impl Compared {
    /// Whether there was something to compare, and it is as expected.
    pub fn is_good(&self) -> bool {
        self.scripts > 0 && self.differences.is_empty() && self.void.is_empty()
    }
}

impl Suite {
    /// Runs every script whose name begins with one of `wanted`, in a mount and beside it. Without
    /// any, all run.
    ///
    /// # Errors
    /// A part of the suite is missing, or a folder cannot be made.
    pub fn compare(&self, wanted: &[String]) -> Result<Compared, MissingError> {
        let folder = (self.build)()?;
        let mut scripts = (self.scripts)(&folder).map_err(MissingError::file(&folder))?;
        scripts.retain(|script| wanted.is_empty() || wanted.iter().any(|begin| script.starts_with(begin)));
        let testbed = MountTestbed::on_large_disk(Journaled::Ext4);
        let mut compared = Compared::default();
        for script in scripts {
            self.compare_script((&folder, &script), &testbed, &mut compared)?;
        }
        Ok(compared)
    }

    fn compare_script(
        &self,
        (folder, script): (&Path, &str),
        testbed: &MountTestbed,
        compared: &mut Compared,
    ) -> Result<(), MissingError> {
        let run = |root: PathBuf| self.run((folder, script), &root.join(script));
        let both = || {
            thread::scope(|scope| {
                let on_disk = scope.spawn(|| run(testbed.beside()));
                let on_mount = run(testbed.mountpoint().join("suite"));
                Ok((on_disk.join().expect("no panic")?, on_mount?))
            })
        };
        let (on_disk, on_mount) = both()?;
        let mut differences = differences(&on_disk, &on_mount);
        for _ in 1..TRIES {
            if !differences.is_empty() {
                let (on_disk, on_mount) = both()?;
                let again = self::differences(&on_disk, &on_mount);
                differences.retain(|difference| again.contains(difference));
            }
        }
        if !on_disk.values().any(|verdict| *verdict == Verdict::Passed) {
            compared.void.push(script.to_owned());
        }
        compared.scripts += 1;
        compared.cases += on_disk.len();
        compared.failed_on_disk += on_disk.values().filter(|verdict| **verdict == Verdict::Failed).count();
        for mut difference in differences {
            difference.case = format!("{script}: {}", difference.case);
            let is_known = self.known.iter().any(|begin| difference.case.starts_with(begin));
            if is_known { &mut compared.known } else { &mut compared.differences }.push(difference);
        }
        Ok(())
    }

    /// Runs a script in a fresh folder, and removes that.
    fn run(&self, (folder, script): (&Path, &str), at: &Path) -> Result<Verdicts, MissingError> {
        fs::create_dir_all(at).map_err(MissingError::file(at))?;
        let command = (self.command)(folder, script, at);
        let mut timed = Command::new("timeout");
        timed.arg(HANGS_AFTER_SECONDS).arg(command.get_program()).args(command.get_args());
        timed.current_dir(command.get_current_dir().unwrap_or(at)).stdin(Stdio::null());
        timed.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = timed.output().map_err(MissingError::file(at))?;
        // Names of cases may have the folder in them, which is the one thing that has to differ.
        let resolved = fs::canonicalize(at).map_err(MissingError::file(at))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&*resolved.to_string_lossy(), ".");
        let said = [text(&output.stdout), text(&output.stderr)];
        let mut verdicts: Verdicts = said.iter().flat_map(|said| said.lines().filter_map(self.case)).collect();
        let ended = if output.status.success() { Verdict::Passed } else { Verdict::Failed };
        verdicts.insert("the script's end".to_owned(), ended);
        keep_log(at, &said);
        fs::remove_dir_all(at).map_err(MissingError::file(at))?;
        Ok(verdicts)
    }
}

/// Leaves what a script said beside its folder's file system, for whoever looks into a difference.
fn keep_log(at: &Path, said: &[String]) {
    let name: String = at.to_string_lossy().split('/').rev().take(2).collect::<Vec<_>>().join("-");
    if let Ok(folder) = crate::artefacts::cache() {
        let _ = fs::create_dir_all(folder.join("said"));
        let _ = fs::write(folder.join("said").join(name), said.concat());
    }
}

/// The cases that did not end the same way.
fn differences(on_disk: &Verdicts, on_mount: &Verdicts) -> Vec<Difference> {
    let mut cases: Vec<_> = on_disk.keys().chain(on_mount.keys()).collect();
    cases.sort();
    cases.dedup();
    let difference = |case: &String| {
        let (on_disk, on_mount) = (on_disk.get(case).copied(), on_mount.get(case).copied());
        (on_disk != on_mount).then(|| Difference { case: case.clone(), on_disk, on_mount })
    };
    cases.into_iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_differ_by_verdict_or_when_one_side_lacks_them() {
        let of = |cases: &[(&str, Verdict)]| -> Verdicts {
            cases.iter().map(|(name, verdict)| ((*name).to_owned(), *verdict)).collect()
        };
        let on_disk = of(&[("a", Verdict::Passed), ("b", Verdict::Failed), ("c", Verdict::Passed)]);
        let on_mount = of(&[("a", Verdict::Failed), ("b", Verdict::Failed), ("d", Verdict::Skipped)]);
        let told: Vec<_> = differences(&on_disk, &on_mount).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "a: Passed on the disk, Failed on the mount",
                "c: Passed on the disk, not reached on the mount",
                "d: not reached on the disk, Skipped on the mount"
            ]
        );
        assert_eq!(differences(&on_disk, &on_disk), []);
    }

    #[test]
    fn each_suite_reads_its_own_words() {
        let read = |suite: &str, line: &str| {
            let suite = SUITES.iter().find(|one| one.name == suite).expect("it is one of them");
            (suite.case)(line)
        };
        let case = |name: &str, verdict| Some((name.to_owned(), verdict));
        assert_eq!(read("git", "ok 4 - fsck"), case("4 - fsck", Verdict::Passed));
        assert_eq!(read("git", "ok 5 # skip fsck (missing X)"), case("5 # skip fsck (missing X)", Verdict::Skipped));
        assert_eq!(
            read("git", "not ok 6 - fsck # TODO known breakage"),
            case("6 - fsck # TODO known breakage", Verdict::Failed)
        );
        assert_eq!(read("git", "1..6"), None);
        assert_eq!(read("sqlite", "wal-1.0... Ok"), case("wal-1.0", Verdict::Passed));
        assert_eq!(read("sqlite", "! wal-1.1 expected: [1]"), case("wal-1.1", Verdict::Failed));
        assert_eq!(read("sqlite", "wal-1.2... Omitted"), case("wal-1.2", Verdict::Skipped));
        assert_eq!(read("leveldb", "[       OK ] DBTest.Empty (3 ms)"), case("DBTest.Empty", Verdict::Passed));
        assert_eq!(read("leveldb", "[  FAILED  ] DBTest.Get (3 ms)"), case("DBTest.Get", Verdict::Failed));
        let skipped = "stress-ng: info:  [7] fiemap: FS_IOC_FIEMAP not supported, skipping stressor";
        assert_eq!(read("stress-ng", skipped), case("it runs", Verdict::Skipped));
        let failed = "stress-ng: fail:  [7] rename: cannot rename a to b";
        assert_eq!(read("stress-ng", failed), case("rename: cannot rename a to b", Verdict::Failed));
        assert_eq!(read("stress-ng", "stress-ng: info:  [7] successful run completed in 1.01s"), None);
        assert_eq!(read("leveldb", "[----------] Global test environment"), None);
    }
}
