//! All tests, several times, on a machine that is busy with other work: no verdict may depend on
//! the clock or the load.

use crate::steps;
use crate::suite::Failure;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::process::{Child, Command, ExitCode, Stdio};

/// The program that keeps every core busy, and its arguments.
const STRESS: (&str, &[&str]) = ("stress-ng", &["--cpu", "8", "--quiet"]);

/// Runs every test `rounds` times beside [`STRESS`], and names each test that failed with its
/// rounds.
pub(crate) fn test(rounds: u32) -> Result<ExitCode> {
    // A missing program is told of before the long build, which is no test and needs no load.
    drop(Load::start(STRESS.0, &["--version"])?);
    let suite = steps::suite()?;
    let mut load = Load::start(STRESS.0, STRESS.1)?;
    let mut failures: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for round in 1..=rounds {
        println!("\n==== round {round} of {rounds}, beside {} {}", STRESS.0, STRESS.1.join(" "));
        load.check()?;
        for test in suite.run(&[]).iter().flat_map(Failure::names) {
            println!("round {round} failed: {test}");
            failures.entry(test).or_default().push(round);
        }
    }
    print!("{}", report(rounds, &failures));
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A process that keeps the machine busy. It is ended when this is dropped.
struct Load(Child);

impl Load {
    fn start(program: &str, arguments: &[&str]) -> Result<Load> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        let child = command.spawn().with_context(|| {
            format!("cannot run {program}; as root: apt-get install --yes --no-install-recommends {program}")
        })?;
        Ok(Load(child))
    }

    /// Fails if the process has ended by itself: what follows would not be under load.
    fn check(&mut self) -> Result<()> {
        match self.0.try_wait()? {
            Some(status) => bail!("the load has ended by itself: {status}"),
            None => Ok(()),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // SIGTERM, so that it ends its own workers. If that fails, SIGKILL is left; the workers
        // follow their parent.
        let asked = Command::new("kill").arg(self.0.id().to_string()).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

fn report(rounds: u32, failures: &BTreeMap<String, Vec<u32>>) -> String {
    let row = |(test, failed): (&String, &Vec<u32>)| {
        let failed: Vec<_> = failed.iter().map(u32::to_string).collect();
        format!("{test}: failed in {} of {rounds} rounds ({})\n", failed.len(), failed.join(", "))
    };
    let rows: String = failures.iter().map(row).collect();
    format!("\n==== {rounds} rounds under load\n{rows}{} tests failed in some round\n", failures.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn failing_tests_are_named_with_their_program() {
        let cuts = Failure::of("btt: cuts", "exit status: 101", &["one", "two"]);
        let wire = Failure::of("nbd: wire", "signal: 9", &[]);
        let names = ["btt: cuts (exit status: 101): one", "btt: cuts (exit status: 101): two", "nbd: wire (signal: 9)"];
        assert_eq!([cuts.names(), wire.names()].concat(), names);
    }

    #[test]
    fn the_report_tells_the_rounds_of_a_failure() {
        let failures = BTreeMap::from([("btt: one".to_owned(), vec![2, 7])]);
        assert!(report(20, &failures).contains("btt: one: failed in 2 of 20 rounds (2, 7)\n1 tests"));
        assert!(report(20, &BTreeMap::new()).contains("0 tests failed"));
    }

    #[test]
    fn the_load_ends_with_its_owner() {
        let mut load = Load::start("sleep", &["1000"]).expect("sleep is everywhere");
        load.check().expect("it sleeps");
        let process = format!("/proc/{}", load.0.id());
        assert!(Path::new(&process).exists());
        drop(load);
        assert!(!Path::new(&process).exists());
        assert!(Load::start("no-such-program", &[]).is_err());
    }
}
