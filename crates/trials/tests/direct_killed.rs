//! Programs with the direct path are killed, with the server or the whole service, or the power
//! fails: whatever was synced is there, whoever synced it.
//!
//! `TIDEGATE_KILLS` gives more rounds than CI runs, `TIDEGATE_CUTS` more power losses under each of
//! the other programs, `TIDEGATE_SEED` their first seed.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use tidegate_trials::artefacts::{CProgram, run};
use tidegate_trials::direct::{counted, with_direct_path};
use tidegate_trials::mounted::MountTestbed;
use tidegate_trials::programs::{CHILDREN, COMMITTER, CROWD, MOVER, STEPPER, Steps, WRITERS};
use tidegate_trials::sectors::Dice;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a number"))
}

/// A program and its children, which end together.
struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Running {
    /// Starts it in the mount.
    fn start(testbed: &MountTestbed, program: &CProgram, words: &[String]) -> Running {
        let program = program.build().unwrap_or_else(|missing| panic!("{missing}"));
        let mut command = with_direct_path(testbed, program.to_str().unwrap());
        command.args(words).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Running { child, said }
    }

    /// The next line; `None`: it has ended.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.ends_with('\n').then(|| line.trim_end().to_owned())
    }

    /// Kills all of it. Returns what it said meanwhile.
    fn kill(mut self) -> Vec<u8> {
        // It may have ended with the service.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let mut rest = Vec::new();
        self.said.read_to_end(&mut rest).unwrap();
        self.child.wait().unwrap();
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Program,
    /// The supervisor starts the next one, and the program goes on.
    Server,
    ServerAndProgram,
    /// Supervisor and server. The program goes on for as long as it can.
    Service,
    /// Everything, and what the disk does not have durably.
    Power,
}

const VICTIMS: [Victim; 5] =
    [Victim::Program, Victim::Server, Victim::ServerAndProgram, Victim::Service, Victim::Power];

/// Ways in which the stepper writes: with syncs, or with writes that are syncs.
const WAYS: [Option<&str>; 3] = [None, Some("appends"), Some("moves")];

impl Victim {
    /// Ends a life. Returns what the program said from now on.
    fn end(self, testbed: &mut MountTestbed, mut running: Running) -> Vec<u8> {
        let mut said = Vec::new();
        match self {
            Victim::Program => {}
            Victim::Server => {
                testbed.kill_server();
                for _ in 0..30 {
                    let line = running.line().unwrap_or_else(|| panic!("the program saw that its server was killed"));
                    said.extend(format!("{line}\n").into_bytes());
                }
            }
            Victim::ServerAndProgram => {
                testbed.kill_server();
                said.extend(running.kill());
                return said;
            }
            Victim::Service => testbed.kill(),
            Victim::Power => testbed.lose_power(),
        }
        said.extend(running.kill());
        if matches!(self, Victim::Service | Victim::Power) {
            testbed.mount_again();
        }
        said
    }
}

#[test]
fn nothing_synced_is_lost_whoever_is_killed() {
    let rounds = number("TIDEGATE_KILLS").unwrap_or(15);
    let mut testbed = MountTestbed::on_own_disk();
    let mut steps = Steps::new(7);
    let mut adopted = 0;
    for round in 0..rounds {
        let victim = VICTIMS[round as usize % VICTIMS.len()];
        let how = WAYS[round as usize / VICTIMS.len() % WAYS.len()];
        let words = steps.arguments().into_iter().chain(how.map(str::to_owned)).collect::<Vec<_>>();
        let mut running = Running::start(&testbed, &STEPPER, &words);
        for step in steps.done..steps.done + 100 + round * 37 % 300 {
            let said = running.line().unwrap_or_else(|| panic!("round {round}: it ended at step {step}"));
            assert_eq!(said.parse(), Ok(step), "round {round}");
            steps.advance(step + 1);
        }
        adopted += counted(&testbed, "adopted_bytes");
        let rest = victim.end(&mut testbed, running);
        let whole = &rest[..rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)];
        let last = String::from_utf8_lossy(whole).lines().last().map(|line| line.parse::<u64>().unwrap() + 1);
        steps.advance(last.unwrap_or(0));
        for (number, name) in Steps::NAMES.into_iter().enumerate() {
            let found = fs::read(testbed.mountpoint().join(name)).unwrap();
            steps.allows(number, &found).unwrap_or_else(|wrong| panic!("round {round}, {victim:?} killed: {wrong}"));
        }
    }
    println!("{rounds} rounds, {} steps, {adopted} bytes written by leases", steps.done);
    assert!(adopted > 0, "nothing was written by a lease");
    assert!(testbed.end().is_written_back());
}

/// Places of a thread of a crowd, their bytes, and how far they are apart.
const PLACES: usize = 8;
const PLACE_BYTES: usize = 1000;
const STRIDE: usize = 1024;
const THREADS: usize = 4;
/// More writes than a thread makes in a round.
const NUMBERS: u64 = 1 << 40;

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// The last write of each place that was synced, and the last one that began.
fn notes(path: &Path) -> Vec<(u64, u64)> {
    let words: Vec<_> = words_of(&fs::read(path).unwrap_or_default()).collect();
    words.as_chunks::<2>().0.iter().take(THREADS * PLACES).map(|[synced, begun]| (*synced, *begun)).collect()
}

/// So many power losses.
fn cuts(usual: u64) -> std::ops::Range<u64> {
    let first = number("TIDEGATE_SEED").unwrap_or(1);
    first..first + number("TIDEGATE_CUTS").unwrap_or(usual)
}

#[test]
fn what_threads_synced_beside_each_other_is_there_after_a_power_loss() {
    let mut testbed = MountTestbed::on_own_disk();
    let noted = testbed.beside().join("notes");
    for round in cuts(4) {
        let words = ["crowd", noted.to_str().unwrap(), &THREADS.to_string(), &(round * NUMBERS).to_string()];
        let mut running = Running::start(&testbed, &CROWD, &words.map(str::to_owned));
        (0..THREADS).for_each(|_| assert!(running.line().is_some(), "it ended by itself"));
        Victim::Power.end(&mut testbed, running);
        let bytes = fs::read(testbed.mountpoint().join("crowd")).unwrap();
        for (place, (synced, begun)) in notes(&noted).into_iter().enumerate() {
            let wrong: Vec<_> = words_of(&bytes[place * STRIDE..][..PLACE_BYTES])
                .filter(|word| !(synced..=begun).contains(word))
                .collect();
            assert!(wrong.is_empty(), "round {round}, place {place}: {synced} to {begun}, found {wrong:x?}");
        }
    }
}

/// A child that no library sees begin writes a file that its parent has leased.
fn children_lose_nothing(testbed: &mut MountTestbed, how: &str, syncs: &str) {
    const CHILD_PLACES: usize = 3;
    let mut running = Running::start(testbed, &CHILDREN, &[how.to_owned(), syncs.to_owned()]);
    let mut told = [0; CHILD_PLACES];
    loop {
        let line = running.line().unwrap_or_else(|| panic!("{how}, {syncs}: it ended by itself after {told:?}"));
        let Some((place, number)) = line.split_once(' ') else { break };
        told[place.parse::<usize>().unwrap()] = number.parse().unwrap();
    }
    Victim::Power.end(testbed, running);
    let bytes = fs::read(testbed.mountpoint().join("file")).unwrap();
    let found = std::array::from_fn(|place| words_of(&bytes[place * STRIDE..][..PLACE_BYTES]).collect());
    let found: [BTreeSet<u64>; CHILD_PLACES] = found;
    assert_eq!(found, told.map(|number| BTreeSet::from([number])), "{how}, {syncs}");
    fs::remove_file(testbed.mountpoint().join("file")).unwrap();
}

#[test]
fn what_parents_and_unseen_children_synced_is_there_after_a_power_loss() {
    let mut testbed = MountTestbed::on_own_disk();
    let ways = ["clone", "clone-files", "clone-memory", "clone-both", "vfork", "vfork-exec", "vfork-other"];
    for how in ways {
        ["parent", "child", "loud"].iter().for_each(|syncs| children_lose_nothing(&mut testbed, how, syncs));
    }
}

/// As in the writers' program.
mod writers {
    pub(super) const PLACES: usize = 3;
    pub(super) const PLACE_BYTES: usize = 400;
    pub(super) const STRIDE: usize = 512;
    pub(super) const LINES_AT: usize = 16384;
    pub(super) const LINE_BYTES: usize = 64;
}

/// What the writers say is synced and is not there.
fn missing(bytes: &[u8], packets: &[u8], processes: usize) -> Vec<String> {
    let mut told = vec![[0; writers::PLACES + 1]; processes];
    for packet in packets.chunks_exact(size_of_val(told.as_slice())) {
        told.iter_mut().flatten().zip(words_of(packet)).for_each(|(known, word)| *known = word.max(*known));
    }
    let mut missing = Vec::new();
    for (process, numbers) in told.iter().enumerate() {
        for (place, number) in numbers[..writers::PLACES].iter().enumerate() {
            let at = (place * processes + process) * writers::STRIDE;
            let found = words_of(&bytes[at..][..writers::PLACE_BYTES]).min().unwrap();
            if found < *number {
                missing.push(format!("process {process}, place {place}: {number}, found {found}"));
            }
        }
        let lines = bytes[writers::LINES_AT..].chunks_exact(writers::LINE_BYTES);
        let lines = lines.map(|line| words_of(line).collect::<Vec<_>>()).filter(|line| line[0] == process as u64 + 1);
        let lines: BTreeSet<u64> = lines.map(|line| line[1]).collect();
        let lost = (1..=numbers[writers::PLACES]).find(|line| !lines.contains(line));
        missing.extend(lost.map(|line| format!("process {process}: line {line} of {}", numbers[writers::PLACES])));
    }
    missing
}

#[test]
fn what_any_process_synced_to_one_file_is_there_after_a_power_loss() {
    let mut testbed = MountTestbed::on_own_disk();
    for seed in cuts(4) {
        let mut dice = Dice::new(seed);
        let processes = 2 + dice.below(4) as usize;
        let name = format!("file{seed}");
        let words = [name.clone(), processes.to_string(), seed.to_string()];
        let mut running = Running::start(&testbed, &WRITERS, &words);
        let mut packets = vec![0; processes * (writers::PLACES + 1) * 8 * (50 + dice.below(1500) as usize)];
        running.said.read_exact(&mut packets).unwrap();
        packets.extend(Victim::Power.end(&mut testbed, running));
        let missing = missing(&fs::read(testbed.mountpoint().join(name)).unwrap(), &packets, processes);
        assert!(missing.is_empty(), "seed {seed}: {missing:#?}");
    }
}

#[test]
fn what_is_synced_to_a_file_that_got_another_path_is_there_after_a_power_loss() {
    let mut testbed = MountTestbed::on_own_disk();
    let ways = [
        ("renamed", "from/new"),
        ("moved", "to/new"),
        ("exchanged", "from/other"),
        ("put-over", "from/other"),
        ("folder", "new/file"),
    ];
    for (how, path) in ways {
        let mut running = Running::start(&testbed, &MOVER, &[how.to_owned()]);
        let mut last: u64 = 0;
        while last < 60 {
            last = running.line().unwrap_or_else(|| panic!("{how}: it ended by itself")).parse().unwrap();
        }
        let rest = Victim::Power.end(&mut testbed, running);
        let rest = String::from_utf8_lossy(&rest).into_owned();
        // A kill leaves the last line without its end, perhaps.
        let whole = rest.rsplit_once('\n').map_or("", |(whole, _)| whole);
        last = whole.lines().last().map_or(last, |line| line.parse().unwrap());
        let bytes = fs::read(testbed.mountpoint().join(path)).unwrap();
        let found: u64 = String::from_utf8_lossy(&bytes[100..]).lines().next().unwrap().parse().unwrap();
        assert!(found >= last, "{how}: {found} found, {last} synced");
        for folder in ["from", "to", "new"] {
            let _ = fs::remove_dir_all(testbed.mountpoint().join(folder));
        }
    }
}

/// What SQLite answers about a database.
fn asked(database: &Path, question: &str) -> String {
    run(Command::new("sqlite3").arg(database).arg(question), "sqlite3").unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn every_transaction_that_was_committed_is_there_after_a_power_loss() {
    let mut testbed = MountTestbed::on_own_disk();
    for (seed, (mode, processes)) in cuts(4).zip([("delete", 1), ("wal", 3), ("delete", 3), ("wal", 1)].iter().cycle())
    {
        let mut dice = Dice::new(seed);
        let name = format!("{mode}{seed}.db");
        let pragmas = format!("pragma journal_mode={mode}; pragma synchronous=full");
        let mut running = Running::start(&testbed, &COMMITTER, &[name.clone(), processes.to_string(), pragmas]);
        let mut last: u64 = 0;
        for _ in 0..60 + dice.below(400) {
            let line = running.line().unwrap_or_else(|| panic!("{mode}: it ended by itself after {last}"));
            last = line.parse::<u64>().unwrap().max(last);
        }
        let rest = Victim::Power.end(&mut testbed, running);
        let rest = String::from_utf8_lossy(&rest).into_owned();
        let whole = rest.rsplit_once('\n').map_or("", |(whole, _)| whole);
        last = whole.lines().map(|line| line.parse().unwrap()).fold(last, u64::max);
        let database = testbed.mountpoint().join(name);
        assert_eq!(asked(&database, "pragma integrity_check").trim(), "ok", "{mode}, seed {seed}");
        let found: u64 = asked(&database, "select max(v) from t").trim().parse().unwrap();
        assert!(found >= last, "{mode}, seed {seed}: {found} found, {last} committed");
        // Of every number below, the rows that no later one wrote.
        let torn = "select count(*) from t where length(b) <> 1 + (n * 7919 + v * 104729) % 700";
        assert_eq!(asked(&database, torn).trim(), "0", "{mode}, seed {seed}");
    }
}
