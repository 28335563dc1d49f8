//! Builds all test programs at once and runs several side by side.
//!
//! `cargo test` runs one program after another, and most of them keep less than one core busy: they
//! wait for guests, for clients and for disks. Each program's output is printed whole when it ends.
//! A failing test is named again at the end, and a program that does not end is stopped, with a
//! list of what its threads waited for.

use crate::hang;
use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// A test program that runs longer hangs: many times the longest one's time on two busy cores.
const HANGS_AFTER: Duration = Duration::from_secs(20 * 60);

/// The limit where campaigns have their long forms: killing a hundred machines takes an hour.
const LONG_HANGS_AFTER: Duration = Duration::from_secs(4 * 60 * 60);

/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Targets that take minutes, the longest first: begun before the others, so that none runs alone
/// at the end.
const LONGEST: [&str; 11] = [
    "disk_cache_cuts",
    "mount_cluster",
    "mount_cluster_growth",
    "mount_hdfs",
    "mount_machine_killed",
    "machine_killed",
    "whole",
    "mount_restarts",
    "power_cuts_long",
    "flipped_bytes",
    "experiments",
];

/// A line of cargo's messages, as far as it matters.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// A test program that cargo built.
struct Program {
    /// Its package's folder and its target, as in `crates/btt: power_cuts`.
    title: String,
    target: String,
    executable: PathBuf,
    folder: PathBuf,
}

/// The test programs of a build, the longest first.
pub(crate) struct Suite {
    programs: Vec<Program>,
    /// Where the programs and libraries of the same build are.
    built_in: PathBuf,
}

/// How one program's run ended.
struct Outcome {
    title: String,
    took: Duration,
    /// Processor time of the program and of those it started and waited for.
    busy: Duration,
    failure: Option<Failure>,
}

/// A program's run that failed.
pub(crate) struct Failure {
    title: String,
    how: String,
    tests: Vec<String>,
    /// What helps to find the cause: of a failed test the first lines it printed, of a program that
    /// did not end what it waited for.
    details: String,
}

/// How a program ended, and what it waited for if it was stopped.
struct Ended {
    how: Result<ExitStatus, String>,
    waits: String,
    /// Processor time, as seen in the last [`LOOK`].
    busy: Duration,
}

/// The lines of a failed test's output that are printed again.
const LINES_AGAIN: usize = 20;

/// Tells tests and benchmarks that the folder it names holds all programs and libraries of this
/// workspace: none is built again.
pub(crate) const BUILT: &str = "TIDEGATE_BUILT";

impl Suite {
    /// Builds all of `packages`, arguments of cargo, which puts programs into `built_in`.
    ///
    /// One build makes tests, programs and libraries. A `cargo build` after a `cargo test` would
    /// build a third of it again, because the features of dependencies are others without the
    /// tests.
    pub(crate) fn build(mut cargo: Command, packages: &[&str], built_in: PathBuf) -> Result<Suite> {
        cargo.args(["build", "--all-targets", "--message-format=json-render-diagnostics"]).args(packages);
        let built = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
        ensure!(built.status.success(), "the tests do not compile: {}", built.status);
        let mut programs = programs(&String::from_utf8_lossy(&built.stdout))?;
        ensure!(!programs.is_empty(), "cargo built no test program");
        let place = |program: &Program| LONGEST.iter().position(|name| *name == program.target);
        programs.sort_by_key(|program| place(program).unwrap_or(usize::MAX));
        Ok(Suite { programs, built_in })
    }

    /// Runs every test with `variables`, and fails if one does.
    pub(crate) fn pass(&self, variables: &[(&str, &str)]) -> Result<()> {
        let failures = self.run(variables);
        if failures.is_empty() {
            return Ok(());
        }
        let told: Vec<_> = failures.iter().map(Failure::told).collect();
        bail!("{} of {} test programs failed:\n{}", failures.len(), self.programs.len(), told.join("\n"))
    }

    /// Runs every test with `variables`. Prints the longest runs.
    pub(crate) fn run(&self, variables: &[(&str, &str)]) -> Vec<Failure> {
        let lanes = thread::available_parallelism().map_or(2, usize::from) + 1;
        println!("{} test programs, {lanes} at a time", self.programs.len());
        let waiting = Mutex::new(self.programs.iter());
        let next = || waiting.lock().expect("no lane panics").next();
        let outcomes = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..lanes {
                scope.spawn(|| {
                    while let Some(program) = next() {
                        let outcome = program.run(&self.built_in, variables);
                        outcomes.lock().expect("no lane panics").push(outcome);
                    }
                });
            }
        });
        let mut outcomes = outcomes.into_inner().expect("no lane panics");
        outcomes.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
        println!("\nthe longest of {} test programs:", outcomes.len());
        for outcome in outcomes.iter().take(12) {
            let (took, busy) = (outcome.took.as_secs_f64(), outcome.busy.as_secs_f64());
            println!("{took:>8.1} s  {busy:>8.1} s of processor  {}", outcome.title);
        }
        outcomes.into_iter().filter_map(|outcome| outcome.failure).collect()
    }
}

impl Failure {
    /// The program and, below it, its tests that failed.
    fn told(&self) -> String {
        let tests: String = self.tests.iter().map(|test| format!("\n    {test}")).collect();
        let details: String = self.details.lines().map(|line| format!("\n      {line}")).collect();
        format!("  {} ({}){tests}{details}", self.title, self.how)
    }

    /// A name for each test that failed; of the program, if none is known.
    pub(crate) fn names(&self) -> Vec<String> {
        let program = format!("{} ({})", self.title, self.how);
        match self.tests.is_empty() {
            true => vec![program],
            false => self.tests.iter().map(|test| format!("{program}: {test}")).collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn of(title: &str, how: &str, tests: &[&str]) -> Failure {
        let tests = tests.iter().map(|test| (*test).to_owned()).collect();
        Failure { title: title.to_owned(), how: how.to_owned(), tests, details: String::new() }
    }
}

/// The test programs that cargo's messages tell of.
fn programs(messages: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).with_context(|| format!("a message of cargo: {line}"))?;
        let is_test = message.reason == "compiler-artifact" && message.profile.is_some_and(|profile| profile.test);
        let (true, Some(executable), Some(target), Some(manifest)) =
            (is_test, message.executable, message.target, message.manifest_path)
        else {
            continue;
        };
        let folder = manifest.parent().context("a manifest lies in a folder")?.to_owned();
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        programs.push(Program {
            title: format!("{package}: {}", target.name),
            target: target.name,
            executable,
            folder,
        });
    }
    Ok(programs)
}

impl Program {
    /// Runs the program to its end and prints what it printed.
    fn run(&self, built_in: &Path, variables: &[(&str, &str)]) -> Outcome {
        let began = Instant::now();
        let (printed, ended) = match self.output(built_in, variables) {
            Ok(ran) => ran,
            Err(error) => (String::new(), Ended::never_begun(&error)),
        };
        let how = match ended.how {
            Ok(status) if status.success() => None,
            Ok(status) => Some(status.to_string()),
            Err(why) => Some(why),
        };
        let failure = how.map(|how| Failure {
            title: self.title.clone(),
            how,
            tests: failed_tests(&printed),
            details: printed_by_failed(&printed) + &ended.waits,
        });
        let took = began.elapsed();
        // One call: other lanes print too.
        let busy = ended.busy;
        let (took_s, busy_s) = (took.as_secs_f64(), busy.as_secs_f64());
        println!("\n---- {} ({took_s:.1} s, {busy_s:.1} s of processor)\n{printed}", self.title);
        Outcome { title: self.title.clone(), took, busy, failure }
    }

    /// What the program printed, and how it ended.
    fn output(&self, built_in: &Path, variables: &[(&str, &str)]) -> Result<(String, Ended)> {
        let (path, log) = log_file(&self.executable)?;
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).envs(variables.iter().copied()).stdin(Stdio::null());
        command.env("CARGO_MANIFEST_DIR", &self.folder).env(BUILT, built_in);
        command.stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.executable.display()))?;
        let ended = wait(&mut child, if variables.is_empty() { HANGS_AFTER } else { LONG_HANGS_AFTER })?;
        let mut printed = Vec::new();
        File::open(&path)?.read_to_end(&mut printed)?;
        std::fs::remove_file(&path)?;
        Ok((String::from_utf8_lossy(&printed).into_owned(), ended))
    }
}

/// The file beside `executable` into which its output goes.
fn log_file(executable: &Path) -> Result<(PathBuf, File)> {
    let path = executable.with_extension("log");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((path, file))
}

/// Waits until `child` ends, or stops it `limit` after its beginning.
fn wait(child: &mut Child, limit: Duration) -> Result<Ended> {
    let began = Instant::now();
    let mut busy = Duration::ZERO;
    loop {
        busy = busy.max(processor_time(child.id()));
        if let Some(status) = child.try_wait()? {
            return Ok(Ended { how: Ok(status), waits: String::new(), busy });
        }
        if began.elapsed() > limit {
            let waits = hang::processes_of(child.id());
            child.kill()?;
            child.wait()?;
            let how = Err(format!("stopped, as it had not ended after {} minutes", limit.as_secs() / 60));
            return Ok(Ended { how, waits, busy });
        }
        thread::park_timeout(LOOK);
    }
}

impl Ended {
    /// The end of a program that could not be run, for the reason that `error` gives.
    fn never_begun(error: &anyhow::Error) -> Ended {
        Ended { how: Err(format!("{error:#}")), waits: String::new(), busy: Duration::ZERO }
    }
}

/// Processor time that a process and its children that ended have spent; zero where it is unknown.
fn processor_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: utime, stime, cutime, cstime in 10 ms.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().skip(11).take(4);
    Duration::from_millis(fields.filter_map(|field| field.parse::<u64>().ok()).map(|ticks| ticks * 10).sum())
}

/// The tests that a program's output calls failed, and those that it began and did not end.
fn failed_tests(printed: &str) -> Vec<String> {
    let named = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
    let slow = |line: &str| Some(line.strip_prefix("test ")?.split_once(" has been running for over")?.0.to_owned());
    let ended = |name: &str| printed.contains(&format!("test {name} ... "));
    let failed = printed.lines().filter_map(named);
    let open = printed.lines().filter_map(slow).filter(|name| !ended(name)).map(|name| format!("{name} (not ended)"));
    failed.chain(open).collect()
}

/// The first lines that each failed test printed, where the program's `failures` show them.
fn printed_by_failed(printed: &str) -> String {
    let sections = printed.split("\n---- ").skip(1).filter_map(|section| section.split_once(" stdout ----\n"));
    let shown = |(test, text): (&str, &str)| {
        let own = text.split("\n\nfailures:").next().unwrap_or_default();
        let lines = own.lines().filter(|line| !line.is_empty()).take(LINES_AGAIN);
        std::iter::once(test).chain(lines).map(|line| format!("{line}\n")).collect::<String>()
    };
    sections.map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn what_a_failed_test_printed_is_printed_again() {
        let printed = "test a ... ok\ntest two ... FAILED\n\nfailures:\n\n---- two stdout ----\n\nthread 'two' panicked at x.rs:1:\n\
                       no\n\n---- three stdout ----\nmore\n\n\nfailures:\n    two\n    three\n";
        assert_eq!(printed_by_failed(printed), "two\nthread 'two' panicked at x.rs:1:\nno\nthree\nmore\n");
        let failure =
            Failure { details: printed_by_failed(printed), ..Failure::of("btt: cuts", "exit status: 101", &["two"]) };
        let told = failure.told();
        assert!(told.starts_with("  btt: cuts (exit status: 101)\n    two\n      two\n      thread"), "{told}");
    }

    #[test]
    fn a_program_that_does_not_end_is_stopped() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat");
        // It runs once it answers: before that the kernel may not tell its command line.
        child.stdin.as_mut().expect("a pipe").write_all(b"x").expect("written");
        child.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("read");
        let ended = wait(&mut child, Duration::ZERO).expect("looked at");
        assert_eq!(ended.how, Err("stopped, as it had not ended after 0 minutes".to_owned()));
        assert!(ended.waits.contains("cat"), "{}", ended.waits);
    }

    #[test]
    fn cargos_messages_name_test_programs() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/btt/Cargo.toml","target":{"name":"cuts"},"profile":{"test":true},"executable":"/t/cuts-1"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml","target":{"name":"tidegate"},"profile":{"test":false},"executable":"/t/tidegate"}
{"reason":"build-finished","success":true}"#;
        let programs = programs(messages).expect("messages");
        assert_eq!(programs.iter().map(|program| program.title.as_str()).collect::<Vec<_>>(), ["btt: cuts"]);
        assert_eq!(programs[0].folder, Path::new("/w/crates/btt"));
    }

    #[test]
    fn a_failing_or_hanging_test_is_named() {
        let failed = "test one ... ok\ntest two ... FAILED\n";
        assert_eq!(failed_tests(failed), ["two"]);
        let hung = "test one has been running for over 60 seconds\ntest two has been running for over 60 seconds\ntest two ... ok\n";
        assert_eq!(failed_tests(hung), ["one (not ended)"]);
        assert_eq!(failed_tests(&format!("{hung}test three ... FAILED\n")), ["three", "one (not ended)"]);
        let failure = Failure::of("btt: cuts", "exit status: 101", &["two"]);
        assert_eq!(failure.told(), "  btt: cuts (exit status: 101)\n    two");
    }

    #[test]
    fn a_program_that_fails_is_told_of() {
        let folder = std::env::temp_dir().join(format!("tidegate-suite-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let executable = folder.join("fails");
        std::os::unix::fs::symlink("/bin/false", &executable).expect("a link");
        let title = "a program".to_owned();
        let program = Program { title, target: "fails".to_owned(), executable, folder: folder.clone() };
        let error = Suite { programs: vec![program], built_in: "/".into() }.pass(&[]).expect_err("it fails");
        std::fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(error.to_string(), "1 of 1 test programs failed:\n  a program (exit status: 1)");
    }
}
