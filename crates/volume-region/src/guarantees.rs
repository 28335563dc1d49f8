//! The table of guarantees: which writes survive which failure, by the domain of the memory.
//! `create`, `serve` and `info` print it, and `docs/guarantees.md` holds the same words.

use serde::Serialize;
use std::fmt;
use tidegate_host::columns::line;
use tidegate_media::Domain;

/// What is promised when something happens.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Promise {
    /// What happens.
    pub event: &'static str,
    /// What becomes of a write that completed.
    pub completed: &'static str,
    /// What becomes of a write before a completed flush, or with FUA.
    pub flushed: &'static str,
}

const KEPT: &str = "kept";
const MAY_BE_LOST: &str = "may be lost";
const NO_PROMISE: &str = "no promise";
const POWER_FAILS: &str = "power loss, kernel crash";
const CLIENT_DIES: Promise = Promise { event: "kill -9 of a client", completed: KEPT, flushed: KEPT };
const SERVER_DIES: Promise = Promise { event: "kill -9 of the server", completed: KEPT, flushed: KEPT };
const SERVER_DIES_VOLATILE: Promise = Promise { completed: "lost", flushed: "lost", ..SERVER_DIES };
const TORN_BY_KILL: Promise =
    Promise { event: "block torn by a kill -9", completed: "never: old or new", flushed: "never: old or new" };

/// What stands around the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Nothing.
    Alone,
    /// A write cache in front of it, whose blocks outlive the server and not the power.
    BehindWriteCache,
    /// A disk behind it, whose blocks it caches.
    BeforeDisk,
    /// A disk behind it that keeps the order of commits.
    BeforeOrderedDisk,
    /// A disk that was behind it, and is not any more.
    Detached,
    /// A file or disk behind it, in front of which an append-only log has its window.
    BeforeLog,
}

impl Stack {
    /// What the promises are about: what completed, and what was made durable.
    fn heads(self) -> [&'static str; 2] {
        match self {
            Stack::BeforeLog => ["appended", "synced"],
            _ => ["write completed", "after flush, with FUA"],
        }
    }
}

/// The promises of memory in `domain`, in the order of growing trouble.
pub(crate) fn promises(domain: Domain, stack: Stack) -> Vec<Promise> {
    match stack {
        // Nothing goes through it.
        Stack::Detached => return Vec::new(),
        Stack::BeforeLog => return of_log(domain).to_vec(),
        Stack::Alone | Stack::BehindWriteCache | Stack::BeforeDisk | Stack::BeforeOrderedDisk => {}
    }
    let of_memory = of_memory(domain, stack == Stack::BehindWriteCache);
    if !matches!(stack, Stack::BeforeDisk | Stack::BeforeOrderedDisk) {
        return of_memory.to_vec();
    }
    let memory_fails = if stack == Stack::BeforeDisk { MEMORY_FAILS } else { MEMORY_FAILS_IN_ORDER };
    let of_power = |promise: Promise| match domain {
        Domain::PowerFail { .. } => promise,
        // Pages of a file reach its disk in any order: the cache may then take one block's bytes
        // for another's, and bring them to the disk.
        Domain::DiskFile => Promise { completed: NO_PROMISE, flushed: NO_PROMISE, ..promise },
        // The memory is lost with the power, and the disk is what is left.
        Domain::ProcessCrash | Domain::Volatile if promise.event == POWER_FAILS => {
            Promise { event: POWER_FAILS, ..memory_fails }
        }
        Domain::ProcessCrash | Domain::Volatile => promise,
    };
    let of_writes = of_memory.map(|promise| match promise.event {
        "block torn by a kill -9" => Promise { event: "whole write torn by a kill -9", ..promise },
        "block torn by a power loss" => of_power(Promise { event: "whole write torn by a power loss", ..promise }),
        POWER_FAILS => of_power(promise),
        _ => promise,
    });
    of_writes.into_iter().chain([DISK_FAILS, memory_fails]).collect()
}

const DISK_FAILS: Promise =
    Promise { event: "the disk fails", completed: "kept until salvaged", flushed: "kept until salvaged" };
const MEMORY_FAILS: Promise =
    Promise { event: "the memory is lost", completed: "lost if dirty", flushed: "lost if dirty" };

/// Of what only the memory has, nothing is lost before something older.
const MEMORY_FAILS_IN_ORDER: Promise =
    Promise { completed: "kept up to a moment", flushed: "kept up to a moment", ..MEMORY_FAILS };

/// The promises of an append-only log.
fn of_log(domain: Domain) -> [Promise; 4] {
    const IF_BELOW: &str = "kept if moved below";
    let kill = if domain == Domain::Volatile { IF_BELOW } else { KEPT };
    let power = match domain {
        Domain::PowerFail { .. } | Domain::DiskFile => KEPT,
        Domain::ProcessCrash | Domain::Volatile => IF_BELOW,
    };
    let synced = |event, flushed| Promise { event, completed: "lost", flushed };
    [
        synced("kill -9 of the program", kill),
        synced(POWER_FAILS, power),
        synced("the file or disk below is lost", "lost"),
        synced("the memory is lost", IF_BELOW),
    ]
}

fn of_memory(domain: Domain, cached: bool) -> [Promise; 5] {
    let power = |completed, flushed| Promise { event: POWER_FAILS, completed, flushed };
    let torn = |both| Promise { event: "block torn by a power loss", completed: both, flushed: both };
    match domain {
        Domain::PowerFail { .. } => {
            let completed = if cached { MAY_BE_LOST } else { KEPT };
            [CLIENT_DIES, SERVER_DIES, TORN_BY_KILL, power(completed, KEPT), torn("never: old or new")]
        }
        Domain::DiskFile => {
            let torn = Promise {
                event: "block torn by a power loss",
                completed: "possible",
                flushed: "never, until written again",
            };
            [CLIENT_DIES, SERVER_DIES, TORN_BY_KILL, power(MAY_BE_LOST, KEPT), torn]
        }
        Domain::ProcessCrash => [CLIENT_DIES, SERVER_DIES, TORN_BY_KILL, power("lost", "lost"), torn(NO_PROMISE)],
        Domain::Volatile => [CLIENT_DIES, SERVER_DIES_VOLATILE, TORN_BY_KILL, power("lost", "lost"), torn(NO_PROMISE)],
    }
}

/// The promises of memory in `domain` whose every write lies in two regions.
pub(crate) fn of_mirror(domain: Domain, stack: Stack) -> Vec<Promise> {
    let both_fail = |promise: Promise| match promise.event {
        "the memory is lost" => Promise { event: "both sides are lost", ..promise },
        _ => promise,
    };
    promises(domain, stack).into_iter().map(both_fail).chain([SIDE_FAILS]).collect()
}

const SIDE_FAILS: Promise = Promise { event: "one side of the mirror is lost", completed: KEPT, flushed: KEPT };

/// Promises as columns, for people.
pub(crate) struct Columns<'a> {
    /// The promises.
    pub promises: &'a [Promise],
    /// What stands around the memory.
    pub stack: Stack,
}

impl fmt::Display for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stack == Stack::Detached {
            return line(f, "promises", "none while it is detached: a disk alone promises what it promises by itself");
        }
        let [completed, flushed] = self.stack.heads();
        writeln!(f, "  {:<34} {completed:<20} {flushed}", "")?;
        for promise in self.promises {
            writeln!(f, "  {:<34} {:<20} {}", promise.event, promise.completed, promise.flushed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    const DOMAINS: [Domain; 4] =
        [Domain::PowerFail { caches_included: false }, Domain::DiskFile, Domain::ProcessCrash, Domain::Volatile];

    /// The promises of all domains as `docs/guarantees.md` has them.
    fn markdown() -> String {
        let mut text = String::new();
        for domain in DOMAINS {
            write!(text, "### `{domain}`\n\nMeaning: {}.\n\n", domain.meaning()).expect("a string takes all");
            write_rows(&mut text, Stack::Alone, &promises(domain, Stack::Alone));
        }
        let [power_fail, disk_file, process_crash, _] = DOMAINS;
        for (domain, stack, place) in [
            (power_fail, Stack::BehindWriteCache, "behind a write cache"),
            (power_fail, Stack::BeforeDisk, "in front of a disk"),
            (disk_file, Stack::BeforeDisk, "in front of a disk"),
            (process_crash, Stack::BeforeDisk, "in front of a disk"),
            (power_fail, Stack::BeforeOrderedDisk, "in front of an ordered disk"),
            (process_crash, Stack::BeforeOrderedDisk, "in front of an ordered disk"),
            (power_fail, Stack::BeforeLog, "with an append-only log"),
            (disk_file, Stack::BeforeLog, "with an append-only log"),
            (process_crash, Stack::BeforeLog, "with an append-only log"),
        ] {
            write!(text, "### `{domain}` {place}\n\n").expect("a string takes all");
            write_rows(&mut text, stack, &promises(domain, stack));
        }
        for (stack, place) in [(Stack::Alone, "on a mirror"), (Stack::BeforeDisk, "on a mirror in front of a disk")] {
            write!(text, "### `{power_fail}` {place}\n\n").expect("a string takes all");
            write_rows(&mut text, stack, &of_mirror(power_fail, stack));
        }
        text
    }

    fn write_rows(text: &mut String, stack: Stack, promises: &[Promise]) {
        let [completed, flushed] = stack.heads();
        writeln!(text, "| | {completed} | {flushed} |\n| --- | --- | --- |").expect("a string takes all");
        for Promise { event, completed, flushed } in promises {
            writeln!(text, "| {event} | {completed} | {flushed} |").expect("a string takes all");
        }
        text.push('\n');
    }

    #[test]
    fn a_cache_takes_nothing_from_the_lesser_domains() {
        let words = |domain, stack| format!("{:?}", promises(domain, stack));
        let same = |domain: &Domain| words(*domain, Stack::Alone) == words(*domain, Stack::BehindWriteCache);
        assert!(DOMAINS[1..].iter().all(same));
    }

    #[test]
    fn a_disk_behind_the_memory_changes_what_is_one_unit_and_adds_what_may_fail() {
        for domain in DOMAINS {
            let (alone, with_disk) = (promises(domain, Stack::Alone), promises(domain, Stack::BeforeDisk));
            let words = |promise: &Promise| (promise.completed, promise.flushed);
            // Nothing is promised of files over a power loss; of memory that it empties, what the
            // disk has.
            let (same, power) = match domain {
                Domain::PowerFail { .. } => (5, (KEPT, KEPT)),
                Domain::DiskFile => (3, (NO_PROMISE, NO_PROMISE)),
                Domain::ProcessCrash | Domain::Volatile => (3, words(&MEMORY_FAILS)),
            };
            assert!(alone[..same].iter().map(words).eq(with_disk[..same].iter().map(words)));
            assert_eq!(words(&with_disk[3]), power, "{domain}");
            assert!(with_disk[same..5].iter().skip(1).all(|promise| words(promise) == (NO_PROMISE, NO_PROMISE)));
            let whole = with_disk.iter().filter(|promise| promise.event.starts_with("whole write torn")).count();
            assert_eq!((whole, with_disk.len()), (2, 7));
        }
    }

    #[test]
    fn a_mirror_adds_the_loss_of_a_side_and_changes_no_other_promise() {
        for (domain, stack) in
            DOMAINS.into_iter().flat_map(|domain| [(domain, Stack::Alone), (domain, Stack::BeforeDisk)])
        {
            let (plain, mirrored) = (promises(domain, stack), of_mirror(domain, stack));
            let words = |promise: &Promise| (promise.completed, promise.flushed);
            assert!(plain.iter().map(words).eq(mirrored[..plain.len()].iter().map(words)));
            assert_eq!(words(&mirrored[plain.len()]), (KEPT, KEPT));
            assert!(mirrored.iter().all(|promise| promise.event != "the memory is lost"));
        }
    }

    #[test]
    fn the_document_makes_the_same_promises() {
        let document = include_str!("../../../docs/guarantees.md");
        let expected = markdown();
        let on_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            on_one_line(document).contains(&on_one_line(&expected)),
            "docs/guarantees.md ought to contain:\n\n{expected}"
        );
    }

    #[test]
    fn caches_that_the_platform_saves_change_no_promise() {
        let words = |caches_included| format!("{:?}", promises(Domain::PowerFail { caches_included }, Stack::Alone));
        assert_eq!(words(false), words(true));
    }
}
