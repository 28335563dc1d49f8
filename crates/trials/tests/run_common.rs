//! Processes that write and sync one file under `tidegate run-log`, on a file system of their own.
//! All of them are killed with the supervisor at any instant, and the file system is what its disk
//! had got by then: nothing that only the kernel had. After recovery all is there that any process
//! had written when a sync of any of them began that returned. `TIDEGATE_CUTS` gives more power
//! cuts than CI runs, `TIDEGATE_SEED` the first one's seed.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use tidegate_trials::run::{Mounted, Testbed, WRITERS, empty_file_system, kill_all};
use tidegate_trials::sectors::Dice;

/// Power cuts that CI runs.
const CUTS: u64 = 6;
/// As in the program.
const PLACES: usize = 3;
const PLACE_BYTES: usize = 400;
const STRIDE: usize = 512;
const LINES_AT: usize = 16384;
const LINE_BYTES: usize = 64;
/// Of the file system.
const IMAGE_BYTES: u64 = 64 << 20;

/// What is written for certain: of each process the numbers of its places, and how many lines it
/// has appended.
type Reported = Vec<[u64; PLACES + 1]>;

/// The greatest of what the packets say.
fn told(packets: &[u8], processes: usize) -> Reported {
    let mut told = vec![[0; PLACES + 1]; processes];
    for packet in packets.chunks_exact(processes * (PLACES + 1) * 8) {
        let words = packet.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        told.iter_mut().flatten().zip(words).for_each(|(known, word)| *known = word.max(*known));
    }
    told
}

/// What is not there of what was told.
fn missing(bytes: &[u8], told: &Reported) -> Vec<String> {
    let words =
        |bytes: &[u8]| -> Vec<u64> { bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect() };
    let mut missing = Vec::new();
    for (process, numbers) in told.iter().enumerate() {
        for (place, number) in numbers[..PLACES].iter().enumerate() {
            let found = words(&bytes[(place * told.len() + process) * STRIDE..][..PLACE_BYTES]);
            if found.iter().any(|found| found < number) {
                missing.push(format!("process {process}, place {place}: {number}, found {:?}", found.iter().min()));
            }
        }
        let lines: Vec<u64> = bytes[LINES_AT..]
            .chunks_exact(LINE_BYTES)
            .map(words)
            .filter(|line| line[0] == process as u64 + 1)
            .map(|line| line[1])
            .collect();
        let lost = (1..=numbers[PLACES]).find(|line| !lines.contains(line));
        lost.into_iter()
            .for_each(|line| missing.push(format!("process {process}: line {line} of {}", numbers[PLACES])));
    }
    missing
}

/// One life and its power cut; how many syncs were told of.
fn cut(seed: u64) -> usize {
    let mut dice = Dice::new(seed);
    let testbed = Testbed::new();
    let (image, copy): (PathBuf, PathBuf) = (testbed.folder().join("image"), testbed.folder().join("copy"));
    let processes = 2 + dice.below(4) as usize;
    empty_file_system(&image, IMAGE_BYTES);
    let root = testbed.root();
    let mounted = Mounted::new(&image, &root);
    let mut command = testbed.run();
    command.arg(WRITERS.build().unwrap()).arg("file").arg(processes.to_string()).arg(seed.to_string());
    let mut run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut said = run.stdout.take().unwrap();
    let mut packets = vec![0; processes * (PLACES + 1) * 8 * (50 + dice.below(4000) as usize)];
    let (first, rest) = packets.split_at_mut(processes * (PLACES + 1) * 8 * 40);
    said.read_exact(first).unwrap();
    let status = testbed.status().output().unwrap();
    said.read_exact(rest).unwrap();
    kill_all(&mut run);
    fs::copy(&image, &copy).unwrap();
    said.read_to_end(&mut packets).unwrap();
    drop(mounted);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    let mounted = Mounted::new(&copy, &root);
    let told = told(&packets, processes);
    let lost = missing(&fs::read(root.join("file")).unwrap(), &told).len();
    testbed.change_boot();
    testbed.leave_files_alone();
    let recovered = testbed.recover().output().unwrap();
    assert!(recovered.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&recovered.stderr));
    let missing = missing(&fs::read(root.join("file")).unwrap(), &told);
    let syncs = packets.len() / (processes * (PLACES + 1) * 8);
    println!(
        "seed {seed}: {processes} processes, {syncs} syncs, {lost} places and lines were lost before recovery; {status}"
    );
    assert!(missing.is_empty(), "seed {seed}: {missing:#?}\n{status}");
    drop(mounted);
    syncs
}

#[test]
fn what_any_process_synced_is_there_after_the_power_failed() {
    let number = |name: &str| std::env::var(name).ok().map(|number| number.parse::<u64>().expect("a number"));
    let first = number("TIDEGATE_SEED").unwrap_or(1);
    let cuts = number("TIDEGATE_CUTS").unwrap_or(CUTS);
    let syncs: usize = (first..first + cuts).map(cut).sum();
    assert!(syncs > 0);
}
