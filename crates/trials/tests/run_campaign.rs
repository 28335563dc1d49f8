//! Kills of the program, of its supervisor and of both, over and over on the same files and pool:
//! no synced byte is lost, whether the kernel lives on or the power fails with it. `TIDEGATE_KILLS`
//! gives more rounds than CI runs.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use tidegate_trials::run::{CROWD, STEPPER, Steps, Testbed};

const SEED: u64 = 7;

/// Who is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Program,
    Supervisor,
    Both,
    /// Every process is killed, and the power fails.
    Everything,
}

const VICTIMS: [Victim; 4] = [Victim::Program, Victim::Supervisor, Victim::Both, Victim::Everything];

/// A stepper under a run.
struct Running {
    run: Child,
    program: rustix::process::Pid,
    said: BufReader<ChildStdout>,
}

/// The only child of `run`.
fn program_of(run: &Child) -> rustix::process::Pid {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).unwrap();
    rustix::process::Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

impl Running {
    fn start(testbed: &Testbed, steps: &Steps, how: Option<&str>) -> Running {
        let mut run = testbed.run();
        run.arg(STEPPER.build().unwrap()).args(steps.arguments()).args(how);
        let mut run = run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(run.stdout.take().unwrap());
        let mut first = String::new();
        said.read_line(&mut first).unwrap();
        assert_eq!(first.trim().parse(), Ok(steps.done), "the first step is synced");
        let program = program_of(&run);
        Running { run, program, said }
    }

    /// Waits for the end of so many more steps, at most; returns how many steps are done.
    fn steps(&mut self, most: u64, done: u64) -> u64 {
        let mut done = done;
        let mut text = String::new();
        for _ in 0..most {
            text.clear();
            if self.said.read_line(&mut text).unwrap() == 0 || !text.ends_with('\n') {
                break;
            }
            done = text.trim().parse::<u64>().unwrap() + 1;
        }
        done
    }

    fn kill(&mut self, victim: Victim) {
        let program = self.program;
        let kill_program = || {
            // It may have ended with its supervisor.
            let _ = rustix::process::kill_process(program, rustix::process::Signal::KILL);
        };
        match victim {
            Victim::Program => kill_program(),
            Victim::Supervisor => self.run.kill().unwrap(),
            Victim::Both | Victim::Everything => {
                self.run.kill().unwrap();
                kill_program();
            }
        }
        self.run.wait().unwrap();
    }
}

#[test]
fn nothing_synced_is_lost_whoever_is_killed() {
    lose_nothing(&[None]);
}

#[test]
fn no_write_that_is_a_sync_is_lost_whoever_is_killed() {
    lose_nothing(&[Some("appends"), Some("moves")]);
}

/// Each round of kills has the stepper write in another one of these ways.
fn lose_nothing(ways: &[Option<&str>]) {
    let rounds = std::env::var("TIDEGATE_KILLS").map_or(16, |rounds| rounds.parse().expect("a number of rounds"));
    let testbed = Testbed::new();
    let mut steps = Steps::new(SEED);
    let (mut lost_blocks, mut power_cuts) = (0, 0);
    for round in 0..rounds {
        let victim = VICTIMS[round % VICTIMS.len()];
        let how = ways[round / VICTIMS.len() % ways.len()];
        let mut running = Running::start(&testbed, &steps, how);
        let mut done = running.steps(20 + (round as u64 * 37) % 90, steps.done + 1);
        running.kill(victim);
        if let Victim::Supervisor = victim {
            done = running.steps(30, done);
            running.kill_left();
        }
        done = running.steps(u64::MAX, done);
        steps.advance(done);
        if let Victim::Everything = victim {
            lost_blocks += testbed.cut_the_power();
            power_cuts += 1;
            let recovered = testbed.recover().output().unwrap();
            let said = String::from_utf8_lossy(&recovered.stderr).into_owned();
            assert!(recovered.status.success(), "round {round}: {said}{}", String::from_utf8_lossy(&recovered.stdout));
        }
        for (number, name) in Steps::NAMES.into_iter().enumerate() {
            let found = fs::read(testbed.root().join(name)).unwrap();
            steps.allows(number, &found).unwrap_or_else(|wrong| panic!("round {round}, {victim:?} killed: {wrong}"));
        }
    }
    println!(
        "{rounds} rounds, {} steps; {lost_blocks} blocks lost in {power_cuts} power cuts and recovered",
        steps.done
    );
    assert!(lost_blocks > 0, "no power cut took anything: nothing was recovered");
}

impl Running {
    /// The program is still there after its supervisor.
    fn kill_left(&self) {
        rustix::process::kill_process(self.program, rustix::process::Signal::KILL).unwrap();
    }
}

/// Places of a thread of a crowd, their bytes, and how far they are apart.
const PLACES: usize = 8;
const PLACE_BYTES: usize = 1000;
const STRIDE: usize = 1024;
const THREADS: usize = 4;
/// More writes than a thread makes in a round.
const NUMBERS: u64 = 1 << 40;

/// The last write of each place that was synced, and the last one that began.
fn notes(path: &Path) -> Vec<(u64, u64)> {
    let bytes = fs::read(path).unwrap_or_default();
    let words: Vec<_> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    words.as_chunks::<2>().0.iter().take(THREADS * PLACES).map(|[synced, begun]| (*synced, *begun)).collect()
}

#[test]
fn what_threads_synced_beside_each_other_is_there_after_the_power_failed() {
    let testbed = Testbed::new();
    let (file, noted) = (testbed.root().join("crowd"), testbed.folder().join("notes"));
    let mut lost = 0;
    for round in 1..=8_u64 {
        let mut run = testbed.run();
        let before = round * NUMBERS;
        run.arg(CROWD.build().unwrap()).arg(&file).arg(&noted).args([THREADS.to_string(), before.to_string()]);
        let mut run = run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let told = BufReader::new(run.stdout.take().unwrap()).lines().take(THREADS);
        assert_eq!(told.map(Result::unwrap).count(), THREADS, "it ended by itself");
        let program = program_of(&run);
        run.kill().unwrap();
        rustix::process::kill_process(program, rustix::process::Signal::KILL).unwrap();
        run.wait().unwrap();
        lost += testbed.cut_the_power();
        let recovered = testbed.recover().output().unwrap();
        assert!(recovered.status.success(), "{}", String::from_utf8_lossy(&recovered.stderr));
        let bytes = fs::read(&file).unwrap();
        for (place, (synced, begun)) in notes(&noted).into_iter().enumerate() {
            let words = bytes[place * STRIDE..].iter().take(PLACE_BYTES).copied().collect::<Vec<_>>();
            let words = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            let wrong: Vec<_> = words.filter(|word| !(synced..=begun).contains(word)).collect();
            assert!(wrong.is_empty(), "round {round}, place {place}: {synced} to {begun}, found {wrong:x?}");
        }
    }
    println!("{lost} ranges lost and recovered");
    assert!(lost > 0, "no power cut took anything: nothing was recovered");
}
