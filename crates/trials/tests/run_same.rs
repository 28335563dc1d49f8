//! A program under `tidegate run` sees what it sees without: the same random calls return the same, fail the same, and leave the same files.
//! `TIDEGATE_CALLS` gives more calls in all than CI runs, `TIDEGATE_SEED` the first program's seed.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::process::{Command, Stdio};
use tidegate_trials::run::{DRIVER, Stand, kept_syncs};

/// Calls of one program. In longer ones most files are the kernel's before half of the calls are made.
const CALLS: u64 = 1500;
/// Programs that CI runs.
const PROGRAMS: u64 = 8;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a number"))
}

/// What the driver says, and what is said beside it.
fn driven(command: &mut Command, seed: u64) -> (String, String) {
    let driven = command.arg(seed.to_string()).arg(CALLS.to_string()).stdin(Stdio::null()).output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(driven.status.success(), "seed {seed}: {}: {}", driven.status, said(&driven.stderr));
    (said(&driven.stdout), said(&driven.stderr))
}

#[test]
fn random_calls_do_under_run_what_they_do_without() {
    let driver = DRIVER.build().unwrap();
    let programs = number("TIDEGATE_CALLS").map_or(PROGRAMS, |calls| calls.div_ceil(CALLS));
    let first = number("TIDEGATE_SEED").unwrap_or(1);
    let mut kept = 0;
    for seed in first..first + programs {
        let (plain, under_run) = (Stand::new(), Stand::new());
        let (expected, _) = driven(Command::new(&driver).current_dir(plain.root()), seed);
        let (seen, beside) = driven(under_run.run().arg(&driver), seed);
        let first = expected.lines().zip(seen.lines()).position(|(expected, seen)| expected != seen);
        let at = |text: &str| text.lines().nth(first.unwrap_or_default()).unwrap_or_default().to_owned();
        assert_eq!(first, None, "seed {seed}: {:?} without, {:?} under run", at(&expected), at(&seen));
        assert_eq!(expected.lines().count(), seen.lines().count(), "seed {seed}");
        kept += kept_syncs(&beside);
    }
    println!("{programs} programs of {CALLS} calls each; {kept} syncs ended in the pool");
    assert!(kept > 10 * programs, "only {kept} syncs ended in the pool: nothing was compared");
}
