//! A program under `tidegate run-log` sees the same as without: the same random calls return the
//! same, fail the same, and leave the same files. `TIDEGATE_CALLS` gives more calls in all than CI
//! runs,
//! `TIDEGATE_ACTS` more acts on names, `TIDEGATE_SEED` the first program's seed.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::io::Errno;
use std::process::{Command, Stdio};
use tidegate_trials::run::{ADDRESSES, DRIVER, FOLDERS, LOUD, NAMER, Testbed, kept_syncs};

/// Calls of one program. In longer ones most files are the kernel's before half of the calls are
/// made.
const CALLS: u64 = 1500;
/// Programs that CI runs.
const PROGRAMS: u64 = 8;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a number"))
}

/// Whether most files of this program are opened so that each write is a sync.
fn is_loud(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

/// What the driver says, and what is said beside it.
fn driven(command: &mut Command, seed: u64) -> (String, String) {
    told(command.arg(seed.to_string()).arg(CALLS.to_string()).args(is_loud(seed).then_some("loud")), seed)
}

fn told(command: &mut Command, seed: u64) -> (String, String) {
    let driven = command.stdin(Stdio::null()).output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(driven.status.success(), "seed {seed}: {}: {}", driven.status, said(&driven.stderr));
    (said(&driven.stdout), said(&driven.stderr))
}

fn assert_same(expected: &str, seen: &str, seed: u64) {
    let first = expected.lines().zip(seen.lines()).position(|(expected, seen)| expected != seen);
    let at = |text: &str| text.lines().nth(first.unwrap_or_default()).unwrap_or_default().to_owned();
    assert_eq!(first, None, "seed {seed}: {:?} without, {:?} under run", at(expected), at(seen));
    assert_eq!(expected.lines().count(), seen.lines().count(), "seed {seed}");
}

#[test]
fn random_calls_do_under_run_what_they_do_without() {
    let driver = DRIVER.build().unwrap();
    let programs = number("TIDEGATE_CALLS").map_or(PROGRAMS, |calls| calls.div_ceil(CALLS));
    let first = number("TIDEGATE_SEED").unwrap_or(1);
    let mut kept = [0; 2];
    for seed in first..first + programs {
        let (plain, under_run) = (Testbed::new(), Testbed::new());
        let (expected, _) = driven(Command::new(&driver).current_dir(plain.root()), seed);
        let (seen, beside) = driven(under_run.run().arg(&driver), seed);
        assert_same(&expected, &seen, seed);
        kept[usize::from(is_loud(seed))] += kept_syncs(&beside);
    }
    println!("{programs} programs of {CALLS} calls each; {kept:?} syncs ended in the pool");
    assert!(
        kept.iter().all(|kept| *kept > 5 * programs),
        "only {kept:?} syncs ended in the pool: nothing was compared"
    );
}

/// Acts of one program that makes files with few names, over and over.
const ACTS: u64 = 150;

#[test]
fn files_with_few_names_are_under_run_what_they_are_without() {
    let namer = NAMER.build().unwrap();
    let programs = number("TIDEGATE_ACTS").map_or(PROGRAMS, |acts| acts.div_ceil(ACTS));
    let first = number("TIDEGATE_SEED").unwrap_or(1);
    let mut kept = 0;
    for seed in first..first + programs {
        let (plain, under_run) = (Testbed::new(), Testbed::new());
        let words = [seed.to_string(), ACTS.to_string()];
        let (expected, _) = told(Command::new(&namer).args(&words).current_dir(plain.root()), seed);
        let (seen, beside) = told(under_run.run().arg(&namer).args(&words), seed);
        assert_same(&expected, &seen, seed);
        kept += kept_syncs(&beside);
    }
    println!("{programs} programs of {ACTS} acts each; {kept} syncs and removals ended in the pool");
    // Each act syncs a file that is held by itself, once.
    assert!(kept > ACTS * programs, "only {kept} syncs ended in the pool: no names were held");
}

#[test]
fn bad_addresses_are_refused_under_run_as_they_are_without() {
    let addresses = ADDRESSES.build().unwrap();
    let (plain, under_run) = (Testbed::new(), Testbed::new());
    let (expected, _) = told(Command::new(&addresses).current_dir(plain.root()), 0);
    let (seen, beside) = told(under_run.run().arg(&addresses), 0);
    assert_same(&expected, &seen, 0);
    let refused = expected.lines().filter(|line| line.ends_with(&format!(" {}", Errno::FAULT.raw_os_error())));
    assert!(refused.count() > 400, "{expected}");
    // A name is held for them, too.
    assert!(kept_syncs(&beside) > 60, "{beside}");
}

#[test]
fn a_folder_with_a_held_name_is_synced_by_the_kernel_once_anything_was_done_to_it() {
    let folders = FOLDERS.build().unwrap();
    for (what, after) in [
        ("nothing", "pool"),
        ("flags", "kernel"),
        ("call", "kernel"),
        ("attributes", "kernel"),
        ("times", "kernel"),
        ("attribute", "kernel"),
        ("name", "kernel"),
    ] {
        let under_run = Testbed::new();
        let said = under_run.run().arg(&folders).arg(what).stdin(Stdio::null()).output().unwrap();
        let told = String::from_utf8_lossy(&said.stdout).into_owned();
        assert_eq!(
            told.trim(),
            format!("pool {after}"),
            "{what}: {}: {:?}",
            said.status,
            String::from_utf8_lossy(&said.stderr)
        );
    }
}

/// What may happen to a file whose writes are syncs, and how many of those end in the pool at
/// least, of many.
const LOUD_CASES: [(&str, u64); 13] = [
    ("closed", 60),
    ("copied-over", 100),
    ("closed-in-ranges", 90),
    ("streamed", 30),
    ("locked", 60),
    ("locked-by-child", 30),
    ("unlinked", 60),
    ("renamed", 90),
    ("shared", 1000),
    ("cancelled", 60),
    ("crowded", 200),
    ("refused", 30),
    ("flagged", 30),
];

#[test]
fn writes_that_are_syncs_do_under_run_what_they_do_without_and_end_in_the_pool() {
    let loud = LOUD.build().unwrap();
    for ((case, least), how) in LOUD_CASES.into_iter().flat_map(|case| ["appends", "moves"].map(|how| (case, how))) {
        let said = |mut command: Command| {
            let output = command.args([case, how]).stdin(Stdio::null()).output().unwrap();
            let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            assert!(output.status.success(), "{case}, {how}: {}: {said:?}", output.status);
            said
        };
        let (plain, under_run) = (Testbed::new(), Testbed::new());
        let mut without = Command::new(&loud);
        without.current_dir(plain.root());
        let [expected, _] = said(without);
        let mut with = under_run.run();
        with.arg(&loud);
        let [seen, beside] = said(with);
        assert_eq!(expected, seen, "{case}, {how}");
        assert!(kept_syncs(&beside) >= least, "{case}, {how}: {beside}");
    }
}
