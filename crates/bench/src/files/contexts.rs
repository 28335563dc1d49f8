//! What it costs to find the program context of a call, under unchanged programs, and whether it is
//! the right one: by the library of `tidegate-context-probe`, which unwinds every stack besides.

use super::testbed::missing;
use crate::target::Outcome;
use anyhow::Context;
use serde::Deserialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tidegate_measure::medium::ScratchPath;
use tidegate_measure::programs::{built, said};
use tidegate_measure::workload::Effort;

/// Most calls of which none may have a wrong context, over all samples.
const CALLS: u64 = 100_000;
/// Transactions of SQLite in a sample.
const TRANSACTIONS_MAX: u32 = 2000;

/// What the library reports.
#[derive(Debug, Deserialize)]
struct Report {
    calls: u64,
    known: u64,
    wrong: u64,
    contexts: u64,
    median_ns: f64,
}

/// A program whose contexts are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// SQLite's shell, with transactions, scans and an index.
    Sqlite,
    /// fio, which reads and writes at random by `pread` and `pwrite`.
    Fio,
}

impl Subject {
    fn program(self) -> &'static str {
        match self {
            Subject::Sqlite => "sqlite3",
            Subject::Fio => "fio",
        }
    }

    fn run(self, library: &Path, steps: u32) -> anyhow::Result<Report> {
        let (told, data) = (ScratchPath::new(), ScratchPath::new());
        let (report, data) = (told.as_path(), data.as_path());
        let mut command = Command::new(self.program());
        command.env("LD_PRELOAD", library).env("TIDEGATE_CONTEXT_REPORT", report);
        match self {
            Subject::Sqlite => transact(command.arg(data), steps.min(TRANSACTIONS_MAX))?,
            Subject::Fio => {
                command.arg("--filename").arg(data).args(["--name=bench", "--ioengine=psync", "--thread"]);
                command.args(["--rw=randrw", "--bs=4k", "--size=16m", "--fsync=32", "--norandommap"]);
                said(command.arg(format!("--number_ios={}", 5 * steps)))?;
            }
        }
        let report = std::fs::read_to_string(report).context("the library has reported nothing")?;
        Ok(serde_json::from_str(&report)?)
    }
}

/// Feeds SQLite's shell.
fn transact(command: &mut Command, transactions: u32) -> anyhow::Result<()> {
    let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("cannot start sqlite3")?;
    let mut told = shell.stdin.take().context("it has a standard input")?;
    writeln!(told, "create table rows(number integer primary key, text);")?;
    for row in 0..transactions {
        writeln!(told, "insert into rows(text) values(hex(randomblob(200)));")?;
        match row % 50 {
            7 => writeln!(told, "select count(*) from rows where text like '%{row}%';")?,
            11 => writeln!(told, "create index texts on rows(text); drop index texts;")?,
            13 => writeln!(told, "delete from rows where number % 10 = 3; vacuum;")?,
            _ => {}
        }
    }
    drop(told);
    anyhow::ensure!(shell.wait()?.success(), "sqlite3 failed");
    Ok(())
}

/// Microseconds that it takes in the median to find a context. A wrong one is a failure.
pub(super) fn per_call(effort: Effort, subject: Subject) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[subject.program()]) {
        return Ok(missing);
    }
    let library: PathBuf = built(&["--package", "tidegate-context-probe"], "libtidegate_context_probe.so")?;
    let (mut times, mut calls) = (Vec::new(), 0);
    let is_whole = effort.steps >= TRANSACTIONS_MAX;
    while times.len() < effort.pairs as usize || (is_whole && calls < CALLS) {
        let report = subject.run(&library, effort.steps)?;
        anyhow::ensure!(report.calls > 0 && report.contexts > 1, "the library saw nothing: {report:?}");
        anyhow::ensure!(report.wrong == 0, "contexts were wrong: {report:?}");
        anyhow::ensure!(2 * report.known > report.calls, "most keys are not known: {report:?}");
        calls += report.calls;
        times.push(report.median_ns / 1e3);
    }
    Ok(Outcome::figure(&times, "µs"))
}
