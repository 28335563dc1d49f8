//! SQLite's shell, which is fed transactions of one row.

use super::testbed::{Storage, Talker, Testbed, missing};
use crate::target::Outcome;
use anyhow::Context;
use std::fmt::Write;
use std::fs::{File, remove_file};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tidegate_measure::Pairs;
use tidegate_measure::sqlite::shell_with_groups;
use tidegate_measure::workload::Effort;

/// Most transactions in a sample.
const TRANSACTIONS_MAX: u32 = 400;

/// How a transaction is made safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Journal {
    /// New pages go to a log.
    Wal,
    /// Old pages go to a file that is made and removed with each transaction.
    Delete,
    /// None: the pages of a transaction are written as one atomic group. Where the file system has
    /// no such groups it is [`Journal::Delete`].
    Groups,
}

impl Journal {
    fn mode(self) -> &'static str {
        match self {
            Journal::Wal => "wal",
            Journal::Delete | Journal::Groups => "delete",
        }
    }
}

/// A shell with a table.
struct Shell {
    talker: Talker,
    site: Testbed,
}

impl Shell {
    fn start(storage: Storage, journal: Journal) -> anyhow::Result<Shell> {
        let testbed = Testbed::new(storage)?;
        let mut command = match journal {
            Journal::Groups => testbed.command(shell_with_groups(&cache()?)?),
            Journal::Wal | Journal::Delete => testbed.command("sqlite3"),
        };
        if journal != Journal::Groups {
            command.args(["-batch", "-bail"]);
        }
        let mut shell = Shell { talker: Talker::start(command.arg("data.db"))?, site: testbed };
        let mode = journal.mode();
        let answer = shell.talker.ask(&format!("pragma journal_mode={mode};\n"))?;
        anyhow::ensure!(answer == mode, "the journal is {answer}");
        shell
            .microseconds_after("pragma synchronous=full; create table rows(number integer primary key, text);\n", 1)?;
        Ok(shell)
    }

    fn microseconds(&mut self, effort: Effort) -> anyhow::Result<f64> {
        let (mut lines, transactions) = (String::new(), effort.steps.min(TRANSACTIONS_MAX));
        for row in 0..transactions {
            writeln!(lines, "insert into rows(text) values('row {row}, and some text behind its number');")?;
        }
        self.microseconds_after(&lines, transactions)
    }

    fn microseconds_after(&mut self, lines: &str, transactions: u32) -> anyhow::Result<f64> {
        let began = Instant::now();
        let answer = self.talker.ask(&format!("{lines}select 'done';\n"))?;
        anyhow::ensure!(answer == "done", "sqlite3 says {answer}");
        Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(transactions))
    }
}

/// The time of a transaction in the first storage over that in the second.
pub(crate) fn compare(effort: Effort, journal: Journal, at: [Storage; 2]) -> anyhow::Result<Outcome> {
    compare_shells(effort, at.map(|storage| (storage, journal)))
}

/// The time of a transaction in an atomic group in a storage, over one with a journal there.
pub(crate) fn groups_over_delete(effort: Effort, storage: Storage) -> anyhow::Result<Outcome> {
    compare_shells(effort, [(storage, Journal::Groups), (storage, Journal::Delete)])
}

/// The time of a transaction in `over` whose journal is made and removed with it, over one in
/// `under` and the making and removing of a file on the disk: SOURCE has both too before they are
/// answered.
pub(crate) fn delete_over_both(effort: Effort, [over, under]: [Storage; 2]) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&["sqlite3"]) {
        return Ok(missing);
    }
    let (mut over, mut under) = (Shell::start(over, Journal::Delete)?, Shell::start(under, Journal::Delete)?);
    let disk = Testbed::new(Storage::Disk)?;
    let mut both = || Ok(under.microseconds(effort)? + microseconds_of_a_file(effort, &disk.root().join("journal"))?);
    let pairs = Pairs::try_alternate::<anyhow::Error>(effort.pairs, || over.microseconds(effort), &mut both)?;
    Ok(Outcome::ratio(&pairs, "µs"))
}

/// The time to make an empty file and remove it.
fn microseconds_of_a_file(effort: Effort, path: &Path) -> anyhow::Result<f64> {
    let (began, times) = (Instant::now(), effort.steps.min(TRANSACTIONS_MAX));
    for _ in 0..times {
        File::create_new(path)?;
        remove_file(path)?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(times))
}

fn compare_shells(effort: Effort, shells: [(Storage, Journal); 2]) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&["sqlite3"]) {
        return Ok(missing);
    }
    let [over, under] = shells.map(|(storage, journal)| Shell::start(storage, journal));
    let (mut over, mut under) = (over?, under?);
    let pairs = Pairs::try_alternate(effort.pairs, || over.microseconds(effort), || under.microseconds(effort))?;
    if let (Journal::Groups, Some(mount)) = (shells[0].1, over.site.mount()) {
        anyhow::ensure!(mount.status("groups")? > 0, "SQLite wrote no atomic group");
    }
    Ok(Outcome::ratio(&pairs, "µs"))
}

/// Where SQLite with atomic groups is compiled: the folder of this program.
fn cache() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe()?;
    Ok(this.parent().context("this program lies in no folder")?.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_shell_does_what_it_is_told() {
        let mut shell = Shell::start(Storage::Memory, Journal::Delete).unwrap();
        assert!(shell.microseconds(Effort { pairs: 1, steps: 7 }).unwrap() > 0.0);
        assert_eq!(shell.talker.ask("select count(*) from rows;\n").unwrap(), "7");
        assert!(shell.microseconds_after("insert into nowhere values(1);\n", 1).is_err());
    }
}
