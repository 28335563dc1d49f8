//! A child that no library sees begin writes a file that its parent holds: what was synced is there
//! after the power failed, whoever synced it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use tidegate_trials::run::{CHILDREN, Testbed};

/// Places of the file, their bytes, and how far they are apart.
const PLACES: usize = 3;
const PLACE_BYTES: usize = 1000;
const STRIDE: usize = 1024;

/// The only child of `run` that is left.
fn program_of(run: &Child) -> rustix::process::Pid {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).unwrap();
    rustix::process::Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

/// What is synced in the end at each place, by what the program says.
fn told(said: impl BufRead) -> [u64; PLACES] {
    let mut told = [0; PLACES];
    for line in said.lines().map(Result::unwrap) {
        match line.split_once(' ') {
            Some((place, number)) => told[place.parse::<usize>().unwrap()] = number.parse().unwrap(),
            None => return told,
        }
    }
    panic!("it ended by itself after {told:?}");
}

/// Runs the program to its end, has the power fail, and looks for what was synced.
fn nothing_is_lost(how: &str, syncs: &str) {
    let testbed = Testbed::new();
    let mut run = testbed.run();
    run.arg(CHILDREN.build().unwrap()).args([how, syncs]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut run = run.stderr(Stdio::inherit()).spawn().unwrap();
    let told = told(BufReader::new(run.stdout.take().unwrap()));
    let program = program_of(&run);
    run.kill().unwrap();
    rustix::process::kill_process(program, rustix::process::Signal::KILL).unwrap();
    run.wait().unwrap();
    let held = fs::read_to_string(testbed.journal()).unwrap().contains("/root/file\"");
    assert!(held, "{how}, {syncs}: the file was never held");
    let lost = testbed.cut_the_power();
    let recovered = testbed.recover().output().unwrap();
    assert!(recovered.status.success(), "{how}, {syncs}: {}", String::from_utf8_lossy(&recovered.stderr));
    let bytes = fs::read(testbed.root().join("file")).unwrap();
    let found: Vec<Vec<u64>> = (0..PLACES)
        .map(|place| {
            let words = bytes[place * STRIDE..][..PLACE_BYTES].as_chunks::<8>().0;
            let mut words: Vec<_> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            words.dedup();
            words
        })
        .collect();
    println!("{how}, {syncs}: {told:?}, {lost} ranges lost and recovered");
    assert_eq!(found, told.map(|number| vec![number]), "{how}, {syncs}");
}

/// Who syncs.
const SYNCS: [&str; 3] = ["parent", "child", "loud"];

#[test]
fn children_of_the_kernels_own_calls_lose_nothing() {
    for how in ["clone", "clone-files", "clone-memory", "clone-both"] {
        SYNCS.iter().for_each(|syncs| nothing_is_lost(how, syncs));
    }
}

#[test]
fn children_between_vfork_and_exec_lose_nothing() {
    for how in ["vfork", "vfork-exec"] {
        SYNCS.iter().for_each(|syncs| nothing_is_lost(how, syncs));
    }
}

#[test]
fn a_child_has_another_file_by_the_number_of_a_held_one() {
    SYNCS.iter().for_each(|syncs| nothing_is_lost("vfork-other", syncs));
}
