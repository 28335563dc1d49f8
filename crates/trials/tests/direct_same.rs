//! A program sees the same with the direct path, in the mount without it, and on the file system
//! below: the same random calls return the same, fail the same, and leave the same files.
//! `TIDEGATE_CALLS` gives more calls in all than CI runs, `TIDEGATE_ACTS` more acts on names,
//! `TIDEGATE_SEED` the first program's seed.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tidegate_trials::direct::{counted, with_direct_path};
use tidegate_trials::mounted::MountTestbed;
use tidegate_trials::programs::{ADDRESSES, DRIVER, LOUD, NAMER};

/// Calls of one program.
const CALLS: u64 = 1500;
/// Programs that CI runs.
const PROGRAMS: u64 = 8;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a number"))
}

/// The places where a program may run.
struct Places {
    testbed: MountTestbed,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
enum Place {
    Below,
    Mount,
    Direct,
}

impl Places {
    fn new() -> Places {
        Places { testbed: MountTestbed::new() }
    }

    /// What the program says in an empty directory of the place.
    fn said(&self, place: Place, program: &Path, words: &[String]) -> String {
        let folder = match place {
            Place::Below => self.testbed.beside(),
            Place::Mount | Place::Direct => self.testbed.mountpoint(),
        };
        let folder = folder.join("fresh");
        fs::create_dir(&folder).unwrap();
        let mut command = match place {
            Place::Below | Place::Mount => Command::new(program),
            Place::Direct => with_direct_path(&self.testbed, program.to_str().unwrap()),
        };
        let output = command.args(words).current_dir(&folder).stdin(Stdio::null()).output().unwrap();
        let [said, beside] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{words:?} {place:?}: {}: {beside}{said}", output.status);
        fs::remove_dir_all(folder).unwrap();
        said
    }

    /// What the program says in every place, which is the same.
    fn same(&self, program: &Path, words: &[String]) -> String {
        let expected = self.said(Place::Below, program, words);
        for place in [Place::Mount, Place::Direct] {
            assert_same(&expected, &self.said(place, program, words), place, words);
        }
        expected
    }

    /// How many leases were granted, and how many bytes came by them.
    fn leased(&self) -> (u64, u64) {
        (counted(&self.testbed, "leases_granted"), counted(&self.testbed, "adopted_bytes"))
    }
}

fn assert_same(expected: &str, seen: &str, place: Place, words: &[String]) {
    let first = expected.lines().zip(seen.lines()).position(|(expected, seen)| expected != seen);
    let at = |text: &str| text.lines().nth(first.unwrap_or_default()).unwrap_or_default().to_owned();
    assert_eq!(first, None, "{words:?}: {:?} below, {:?} in {place:?}", at(expected), at(seen));
    assert_eq!(expected.lines().count(), seen.lines().count(), "{words:?} in {place:?}");
}

/// Runs programs with seeds of their own, each in every place.
fn campaign(program: PathBuf, programs: u64, words: impl Fn(u64) -> Vec<String>) {
    let first = number("TIDEGATE_SEED").unwrap_or(1);
    let places = Places::new();
    for seed in first..first + programs {
        places.same(&program, &[vec![seed.to_string()], words(seed)].concat());
    }
    let (leases, bytes) = places.leased();
    println!("{programs} programs; {leases} leases granted, {bytes} bytes by them");
    assert!(leases > programs && bytes > 0, "only {leases} leases with {bytes} bytes: nothing was compared");
}

#[test]
fn random_calls_do_everywhere_what_they_do_below() {
    let programs = number("TIDEGATE_CALLS").map_or(PROGRAMS, |calls| calls.div_ceil(CALLS));
    campaign(DRIVER.build().unwrap(), programs, |seed| {
        let how = if seed.is_multiple_of(2) { "loud" } else { "quiet" };
        [CALLS.to_string(), how.to_owned(), "1".to_owned()].to_vec()
    });
}

#[test]
fn random_calls_of_processes_that_share_files_do_everywhere_what_they_do_below() {
    let programs = number("TIDEGATE_CALLS").map_or(PROGRAMS, |calls| calls.div_ceil(CALLS));
    campaign(DRIVER.build().unwrap(), programs, |seed| {
        let how = if seed.is_multiple_of(2) { "loud" } else { "quiet" };
        [CALLS.to_string(), how.to_owned(), "3".to_owned()].to_vec()
    });
}

/// Acts of one program that makes files with few names, over and over.
const ACTS: u64 = 60;

#[test]
fn files_with_few_names_are_everywhere_what_they_are_below() {
    let programs = number("TIDEGATE_ACTS").map_or(PROGRAMS, |acts| acts.div_ceil(ACTS));
    campaign(NAMER.build().unwrap(), programs, |_| vec![ACTS.to_string()]);
}

/// A call with a bad address on a leased file is a signal: these are made on other files.
#[test]
fn bad_addresses_are_refused_everywhere_as_they_are_below() {
    let expected = Places::new().same(&ADDRESSES.build().unwrap(), &[]);
    let fault = format!(" {}", Errno::FAULT.raw_os_error());
    let refused: BTreeSet<_> = expected.lines().filter(|line| line.ends_with(&fault)).collect();
    assert!(refused.len() > 300, "{expected}");
}

/// What may happen to a file whose writes are syncs.
const LOUD_CASES: [&str; 13] = [
    "closed",
    "copied-over",
    "closed-in-ranges",
    "streamed",
    "locked",
    "locked-by-child",
    "unlinked",
    "renamed",
    "shared",
    "cancelled",
    "crowded",
    "refused",
    "flagged",
];

#[test]
fn writes_that_are_syncs_do_everywhere_what_they_do_below() {
    let (loud, places) = (LOUD.build().unwrap(), Places::new());
    for (case, how) in LOUD_CASES.into_iter().flat_map(|case| ["appends", "moves"].map(|how| (case, how))) {
        let before = places.leased();
        places.same(&loud, &[case.to_owned(), how.to_owned()]);
        assert!(places.leased().0 > before.0, "{case}, {how}: the file was not leased");
    }
}
