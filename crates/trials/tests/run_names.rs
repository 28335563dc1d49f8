//! SQLite with a journal that is made, synced and removed for each transaction, under
//! `tidegate run-log`, which holds the journal's name: program and supervisor are killed at any
//! instant, the files put back to what a disk may have had, and after recovery every transaction
//! that was committed is there. `TIDEGATE_CUTS` gives more power cuts than CI runs, `TIDEGATE_SEED`
//! the first testbed's seed.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use tidegate_trials::artefacts::run;
use tidegate_trials::run::{COMMITTER, Lost, Testbed, kill_all, wait_for_next_second};
use tidegate_trials::sectors::Dice;

/// Power cuts of one testbed, and testbeds that CI runs.
const CUTS: u64 = 8;
const STANDS: u64 = 4;
/// Stands side by side: each waits for the clock's next second between a cut and its recovery.
const BESIDE: u64 = 4;
/// So many times as many at most.
const FURTHER: u64 = 8;
/// Rows of the database, as in the committer, and which transactions write all of them.
const ROWS: u64 = 60;
const ALL_EVERY: u64 = 23;
/// Files of the journal's name that are remembered.
const EVER: usize = 40;

/// How the database is used.
#[derive(Clone, Copy, Debug)]
struct How {
    processes: u64,
    synchronous: &'static str,
    page_bytes: u64,
}

/// A database that is committed to, and what is known of it.
struct Campaign {
    testbed: Testbed,
    how: How,
    dice: Dice,
    /// The last transaction that was found.
    last: u64,
    /// What the journal's name had at some instants, and what the database was at one.
    ever: Vec<Vec<u8>>,
    before: Vec<u8>,
    lost: Lost,
}

impl Campaign {
    fn new(seed: u64) -> Campaign {
        let mut dice = Dice::new(seed);
        let processes = if dice.below(4) == 0 { 2 } else { 1 };
        let synchronous = if dice.below(2) == 0 { "full" } else { "extra" };
        let how = How { processes, synchronous, page_bytes: 512 << dice.below(4) };
        let (ever, before, lost) = (Vec::new(), Vec::new(), Lost::default());
        Campaign { testbed: Testbed::new(), how, dice, last: 0, ever, before, lost }
    }

    fn database(&self) -> PathBuf {
        self.testbed.root().join("data.db")
    }

    fn start(&self) -> (Child, BufReader<ChildStdout>) {
        let How { processes, synchronous, page_bytes } = self.how;
        let words = format!(
            "pragma page_size={page_bytes}; pragma journal_mode=delete; pragma synchronous={synchronous}; pragma cache_size=20"
        );
        let mut run = self.testbed.run();
        run.arg(COMMITTER.build().unwrap()).arg("data.db").arg(processes.to_string()).arg(words);
        let mut run = run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(run.stdout.take().unwrap());
        (run, said)
    }

    /// Commits for a while, until everything is killed at once. The last transaction that was
    /// committed.
    fn commit(&mut self) -> u64 {
        self.testbed.make_older_file();
        let (mut run, mut said) = self.start();
        let most = 5 + self.dice.below(200);
        let mut last = 0;
        let mut line = String::new();
        for _ in 0..most {
            line.clear();
            if said.read_line(&mut line).unwrap() == 0 {
                break;
            }
            last = line.trim().parse::<u64>().unwrap().max(last);
            self.look();
        }
        (0..self.dice.below(300)).for_each(|_| std::hint::spin_loop());
        self.look();
        kill_all(&mut run);
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        let mut told = String::new();
        run.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        assert!(last > 0, "it ended by itself: {told}");
        let complete = rest.rsplit_once('\n').map_or("", |(complete, _)| complete);
        complete.lines().map(|line| line.parse().unwrap()).fold(last, u64::max)
    }

    /// Remembers what the journal is, and now and then what the database is.
    fn look(&mut self) {
        let journal = fs::read(self.testbed.root().join("data.db-journal")).unwrap_or_default();
        if journal.len() > 28 {
            if self.ever.len() == EVER {
                let any = self.dice.below(EVER as u64);
                self.ever.swap_remove(usize::try_from(any).unwrap());
            }
            self.ever.push(journal);
        }
        if self.dice.below(30) == 0 {
            self.before = fs::read(self.database()).unwrap_or_default();
        }
    }

    /// One life and its power cut; `planted` happens before recovery. What is wrong with the
    /// database then.
    fn cut(&mut self, planted: impl FnOnce(&Testbed)) -> Result<(), String> {
        let committed = self.commit();
        self.lost += self.testbed.cut_the_power_by(&mut self.dice, &self.ever, &self.before);
        planted(&self.testbed);
        wait_for_next_second();
        let names = self.testbed.families_of_names();
        let recovery = self.testbed.recover_after_boot().output().unwrap();
        let said = [recovery.stdout, recovery.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        // A journal that was held as a file may have been removed, and its hold not have ended yet,
        // while no strip told of its name.
        let aside: Vec<u64> = said[0].lines().filter(|line| line.starts_with("salvaged")).map(family).collect();
        if !recovery.status.success() && aside.is_empty() || aside.iter().any(|family| names.contains(family)) {
            return Err(format!("{}: {said:?}", recovery.status));
        }
        let _ = fs::remove_dir_all(self.testbed.folder().join("pool.salvaged"));
        self.last = self.judged(committed).map_err(|wrong| format!("{wrong}; {committed} committed; {said:?}"))?;
        Ok(())
    }

    /// Looks at the database as the next program will; the last transaction that it has.
    fn judged(&self, committed: u64) -> Result<u64, String> {
        let sql = "pragma integrity_check; select max(v) from t; select n || ' ' || v || ' ' || (b = substr(replace(hex(zeroblob(700)), \
                   '00', char(97 + v % 26)), 1, 1 + (n * 7919 + v * 104729) % 700)) from t order by n";
        let answer =
            run(Command::new("sqlite3").arg(self.database()).arg(sql), "sqlite3").map_err(|e| e.to_string())?;
        let mut lines = answer.lines();
        if lines.next() != Some("ok") {
            return Err(answer);
        }
        let last: u64 = lines.next().and_then(|last| last.parse().ok()).unwrap_or(0);
        let allowed = committed..=committed + self.how.processes;
        if !allowed.contains(&last) {
            return Err(format!("{last} is the last one that is there"));
        }
        let found: Vec<_> = lines.map(ToOwned::to_owned).collect();
        let expected: Vec<_> = rows(last).into_iter().map(|(row, by)| format!("{row} {by} 1")).collect();
        if found == expected { Ok(last) } else { Err(format!("{found:?}, not {expected:?}")) }
    }
}

/// Under which number that was held of which a line tells where it was put aside.
fn family(line: &str) -> u64 {
    line.rsplit('/').next().unwrap().split('-').nth(1).unwrap().parse().unwrap()
}

/// The rows that are there after `last` transactions, and which one wrote each.
fn rows(last: u64) -> Vec<(u64, u64)> {
    let wrote = |number: u64, row: u64| {
        number.is_multiple_of(ALL_EVERY)
            || [number, number * 7 + 3, number * 13 + 5].iter().any(|each| each % ROWS == row)
    };
    (0..ROWS).filter_map(|row| Some((row, (1..=last).rev().find(|number| wrote(*number, row))?))).collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a number"))
}

#[test]
fn every_committed_transaction_is_there_after_the_power_failed() {
    let stands = number("TIDEGATE_CUTS").map_or(STANDS, |cuts| cuts.div_ceil(CUTS));
    let first = number("TIDEGATE_SEED").unwrap_or(1);
    let mut lost = Lost::default();
    let mut transactions = 0;
    let mut lived_through = 0;
    // What a cut can take depends on how far the disk has come: so there are further databases
    // until each kind of loss was seen.
    let is_seen = |lost: &Lost| lost.files > 0 && lost.removed > 0 && lost.ranges > 0 && lost.shorter > 0;
    while lived_through < stands || (!is_seen(&lost) && lived_through < FURTHER * stands) {
        let some = first + lived_through..first + lived_through + BESIDE.min(stands);
        lived_through += BESIDE.min(stands);
        let sites = std::thread::scope(|scope| {
            let sites: Vec<_> = some.map(|seed| scope.spawn(move || lived(seed))).collect();
            sites.into_iter().map(|campaign| campaign.join().unwrap()).collect::<Vec<_>>()
        });
        for campaign in sites {
            lost += campaign.lost;
            transactions += campaign.last;
        }
    }
    println!("{lived_through} databases, {CUTS} power cuts each; {transactions} transactions; {lost:?}");
    assert!(is_seen(&lost), "nothing was lost: {lost:?}");
}

fn lived(seed: u64) -> Campaign {
    let mut campaign = Campaign::new(seed);
    for cut in 0..CUTS {
        let how = campaign.how;
        campaign.cut(|_| {}).unwrap_or_else(|wrong| panic!("seed {seed}, cut {cut}, {how:?}: {wrong}"));
    }
    campaign
}

#[test]
fn a_strip_that_tells_nothing_of_the_journal_is_found_out() {
    let found_out = (1..=3 * CUTS).any(|seed| {
        let mut campaign = Campaign::new(seed);
        campaign.how.processes = 1;
        campaign.cut(Testbed::forget_names).is_err()
    });
    assert!(found_out, "nobody misses what the strips tell");
}
