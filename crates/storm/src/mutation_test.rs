//! Mutation tests: each planted mistake runs with one seed after another until a seed shows it. A
//! mistake that no seed shows is one that storms are blind to, or none at all.

use crate::campaign::Campaign;
use crate::marks::Marks;
use crate::mutant::{CodeSite, Mislaid, Mutant, SiteKind};
use crate::script::{Bent, Failure, Script};
use crate::stack_base::Base;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tidegate_crashcheck::btt::Bug;
use tidegate_crashcheck::disk_cache::GroupPart;
use tidegate_virtual_cores::{Flaw, FlawKind};

/// Mistakes in the order of a write, planted between engine and memory.
const BUGS: [Bug; 11] = [
    Bug::TornWord,
    Bug::DataFenceMissing,
    Bug::FlogFlushMissing,
    Bug::FlogFenceMissing,
    Bug::FlogHalvesSwapped,
    Bug::MapBeforeFlog,
    Bug::MapFlushMissing,
    Bug::SettlingMissing,
    Bug::SecondFlushMissing,
    Bug::RecoveryFenceMissing,
    Bug::FlogOnOpenNotFlushed,
];

/// Seeds with files that visit every place of the file cache which storms come to.
const FILE_SEEDS: u64 = 60;

/// What a group's flushes follow.
const GROUP_PARTS: [GroupPart; 4] = [GroupPart::Copy, GroupPart::Told, GroupPart::Placed, GroupPart::Retired];

/// Where the engines lie that mistakes are planted in.
const ENGINES: [&str; 5] = [
    "crates/btt/src/",
    "crates/write-cache/src/",
    "crates/disk-cache/src/",
    "crates/wal/src/",
    "crates/media/src/flushes.rs",
];

/// Sites of which one mistake is none, and why: a part of the file's name, how the line begins
/// (and, after " after ", the line before it), and the argument.
const EXCUSED: [(&str, &str, &str); 51] = [
    (
        "disk-cache/src/destage/ordered.rs",
        "Lock: let mut stripes: Vec<_> = (0..self.table.index.stripes())",
        "left out, each stripe is locked when it is cut, and stays so until all are: the same cut. One stripe unlocked before the next is cut shows within two hundred seeds",
    ),
    (
        "disk-cache/src/read/volatile.rs",
        "Store: self.medium.store_block(*block, data)",
        "late, it comes behind the fence that asks whether the memory has lost a store, and before the table tells of the block; nothing has to be \
         durable of it",
    ),
    (
        "disk-cache/src/read/reader.rs",
        "Recheck: let lba = self.volatile.get(entry as usize)?.load",
        "a guess: what the entry is held for is looked at again with the stripe locked",
    ),
    (
        "disk-cache/src/region_io.rs",
        "Fence: if self.failed.load",
        "asks what has failed, once something has; one seed in thousands has two writers of one block meet that, and the cache's own tests show it",
    ),
    ("disk-cache/src/region_io.rs", "Recheck: if self.failed.load", "the same: the cache's own tests show it"),
    (
        "disk-cache/src/cache.rs",
        "Recheck: self.table.dirty.load(Ordering::Relaxed)",
        "how many blocks are dirty tells a sweep how far to look at a time, and a server what to show; every number is right",
    ),
    (
        "disk-cache/src/commit/group.rs",
        "Lock: let mut ring = self.committer.ring.lock()",
        "each turn of the loop takes it anew and holds it over all that it leads; who looked before may find nothing left to lead, and \
         commits nothing, which changes nothing",
    ),
    (
        "media/src/flushes.rs",
        "Lock: let mut numbers = self.numbers.lock()",
        "it is held over each flush all the same: no number changes in one. A number that goes back makes somebody flush once more, and who \
         flushes after a failure is told of it at the end",
    ),
    (
        "write-cache/src/read.rs",
        "Lock: let mut queue = self.sets[index].queue.lock(); after while self.is_used(index) {",
        "it is held from the first access, the search, to the first change, a count, which comes behind the look at the version",
    ),
    (
        "disk-cache/src/commit/conflicts.rs",
        "Lock: let mut commits = self.commits.lock(); after pub(crate) fn begin(&self) -> u64 {",
        "two transactions begin while nobody else runs, and a third is committed in between: one seed in thousands has that, and clients that \
         only increment a number show it",
    ),
    (
        "disk-cache/src/destage/write_around.rs",
        "Fence: self.medium.fence()?; after // old content would come back.",
        "asks whether the memory has lost a store; one seed in thousands needs to know, and the cache's own tests show it",
    ),
    (
        "disk-cache/src/open/superblock_copies.rs",
        "Store: region.stream(at, superblock)",
        "late, each copy comes behind the fence that follows it, and is covered by the next copy's; the last is visible at least, and the one \
         before it counts",
    ),
    (
        "write-cache/src/cache.rs",
        "Recheck: self.used[index / 64].load",
        "a slot that came into a set since the operation looked there first belongs to a write that is concurrent with it",
    ),
    (
        "disk-cache/src/commit/conflicts.rs",
        "Change: if self.running.fetch_add(1",
        "others begin under the same lock, so only an end in between is lost, and the count stays too high: then every commit is remembered, \
         as if a transaction ran, by one time for each block; whether one is refused is decided by times alone",
    ),
    (
        "btt/src/open.rs",
        "Store: region.stream(found.arena.start(), found.info.as_bytes())",
        "late, the restored info block is covered by the last fence of the opening instead of the one before",
    ),
    (
        "write-cache/src/cache.rs",
        "Store: slots.region().store_u64(0, u64::from_le_bytes",
        "nothing but its fence comes after the head's first word",
    ),
    (
        "write-cache/src/cache.rs",
        "Store: slots.region().store_u64(0, 0)",
        "late, it comes after the first slot is cleared and before the next: one instant of a start, at which a kill was tried in the \
         cache's own tests",
    ),
    (
        "write-cache/src/slots.rs",
        "Store: self.region.write(self.plan.block_at(slot), &[0; 8])",
        "the slot holds nothing, and gets a block before it counts",
    ),
    (
        "write-cache/src/slots.rs",
        "Store: self.region.store_u64(self.plan.head_at(slot), lba)",
        "late, the block's number still comes before the version, which alone makes the slot count",
    ),
    ("write-cache/src/", "Change: self.tally.", "a count of what was done, on which nothing rests"),
    ("write-cache/src/", "Change: && self.asleep.swap", "two writers ring for one that sleeps, which wakes it once"),
    (
        "write-cache/src/cache.rs",
        "Recheck: if self.withheld.wanted.load",
        "a slot comes back into use before the limit is kept again; the limit is about time",
    ),
    ("write-cache/src/cache.rs", "Recheck: let wanted = self.withheld.wanted.load", "the same, by one slot"),
    ("write-cache/src/cache.rs", "Recheck: self.draining.load", "draining that begins or ends one step later"),
    (
        "write-cache/src/cache.rs",
        "Recheck: if self.asleep.load",
        "with a cache that drains at once each write rings once; a later slot of one request needs no other ring",
    ),
    (
        "write-cache/src/write.rs",
        "Recheck: if (range.first.0..range.end()).contains(&self.slots.lba(slot)?)",
        "a slot that was freed and taken by another block is evicted with the rest, or one that came since is left: it is concurrent",
    ),
    (
        "write-cache/src/read.rs",
        "Recheck: let version = self.slots.version(slot)?",
        "an older version than the slot has differs from the one that is looked at after the copy, so the copy is made again",
    ),
    (
        "write-cache/src/free_set.rs",
        "Recheck: let mut top = self.top.load(Ordering::Relaxed)",
        "what is not the top any more fails the exchange, which then says what is",
    ),
    (
        "write-cache/src/free_set.rs",
        "Recheck: let mut top = self.top.load(Ordering::Acquire); after // Acquire as for `pop`.",
        "the same; whether there is a top at all was looked at before",
    ),
    (
        "write-cache/src/set.rs",
        "Recheck: self.0[slot as usize].position.load",
        "positions only grow: an older one makes a flush evict a slot more or stop before one that came since",
    ),
    (
        "btt/src/map.rs",
        "Recheck: Replacements(self.of(at)",
        "an older count, or another stripe's, is seldom that which is looked at behind the copy: where it differs, the block is copied again",
    ),
    (
        "btt/src/io.rs",
        "Store: self.region.stream(at, data)",
        "late, the data still comes before its fence: the look at the map and the flog's first word come in between",
    ),
    (
        "btt/src/lanes.rs",
        "Recheck: self.fences[lane as usize].load",
        "two looks in one write of several blocks, while the other lane passes a fence and stores to the second block's word: none of 40,000 seeds has that at its end. That such a \
         store is settled the enumeration of cuts shows",
    ),
    (
        "btt/src/loss.rs",
        "Recheck: if !self.any.load",
        "two looks in one write of several blocks, with another's loss in between: one seed in thousands has that, and the table's own tests show \
         that nothing is written after a loss",
    ),
    (
        "btt/src/lanes.rs",
        "Recheck: LaneFences(",
        "asked by the lane's holder, within one operation again only after a store of its own or after another lane's turn",
    ),
    (
        "disk-cache/src/read/checksums.rs",
        "Store: self.medium.stream_block(*block, data)",
        "late, it still comes before the ring's first fence, which covers all of a commit's data and elements",
    ),
    (
        "wal/src/redo_ring.rs",
        "Store: region.store_u64(self.plan.cursors_at, self.head)",
        "late, it comes behind the tail: in one line, before the flush and the fence that cover both, and either may arrive alone",
    ),
    (
        "wal/src/redo_ring.rs",
        "Store: self.plan.store_tail(region, self.head);",
        "late, the tail stays where it was until the next commit; only an entry that goes 2^15 steps without one would tell, and does in the \
         cache's own tests",
    ),
    (
        "wal/src/redo_ring.rs",
        "Flush: self.plan.flush_cursors(region); after self.plan.store_tail(region, self.head);",
        "the same",
    ),
    (
        "wal/src/redo_ring.rs",
        "Fence: region.fence().map_err(|sealed| self.fails(sealed)) after self.plan.flush_cursors(region); after self.plan.store_tail(region, self.head);",
        "covered by the next fence of the same thread, an eviction's or a commit's, long before the counter comes to another stride",
    ),
    (
        "wal/src/recovery.rs",
        "Store: self.plan.store_tail(region, self.head)",
        "what the old tail lets in is durable in its targets; the tail is covered by the second fence of the next commit, which comes before \
         any element that the old tail lets in is overwritten, for each commit takes half of the ring at most",
    ),
    (
        "wal/src/recovery.rs",
        "Flush: self.plan.flush_cursors(region); after self.plan.store_tail",
        "the same: the next commit flushes both cursors before its second fence",
    ),
    (
        "wal/src/recovery.rs",
        "Fence: region.fence()?; after self.plan.flush_cursors(region); after self.plan.store_tail",
        "the same: covered by the second fence of the next commit",
    ),
    (
        "disk-cache/src/index.rs",
        "Lock: let mut policy = self.policy.lock()",
        "each victim is chosen in one access, under the lock; between two, others may tell what they asked for or choose too",
    ),
    (
        "disk-cache/src/open/superblock_copies.rs",
        "Store: region.stream(at, newest.as_bytes())",
        "late, it comes behind the fence of the cursors and before that of the entries; the other copy is durable, and counts until then",
    ),
    (
        "disk-cache/src/destage/help.rs",
        "Lock: let mut sweep = self.destager.helping.lock();",
        "writers that destage at once do no harm: the states of blocks keep them apart; the lock is about time",
    ),
    (
        "disk-cache/src/allocate.rs",
        "Recheck: let state = self.medium.entry(entry)",
        "a guess: whether a victim is clean is looked at again with its stripe locked",
    ),
    (
        "disk-cache/src/allocate.rs",
        "Recheck: None => self.medium.entry(entry)",
        "the block that the entry was about before is cached elsewhere or not at all: nothing is given up for it, and another victim is",
    ),
    (
        "disk-cache/src/device.rs",
        "Recheck: Mode::numbered(self.mode.load",
        "a request that began before the mode changed goes by the old one",
    ),
    ("disk-cache/src/counters.rs", "Change: self.0.fetch_add", "a count of what was done, on which nothing rests"),
    (
        "disk-cache/src/destage/destager.rs",
        "Change: && self.asleep.swap",
        "two writers ring for one that sleeps, which wakes it once",
    ),
];

/// Seeds that showed mistakes in the last mutation tests, those that showed most first: a test of
/// all mistakes takes a twentieth of the runs. After a change of an engine they are seeds like
/// others, and the test prints those that would take their place.
const TELLING_SEEDS: [u64; 48] = [
    0, 1, 2, 3, 7, 4, 8, 10, 12, 16, 668, 5, 14, 17, 45, 9, 22, 53, 58, 60, 82, 87, 96, 98, 100, 109, 182, 186, 214,
    248, 270, 362, 409, 508, 585, 602, 625, 628, 649, 683, 684, 718, 1351, 1645, 1740, 2060, 2940, 3635,
];

/// In which order a mutation test tries seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other: the number of them that a mistake takes means something.
    InTurn,
    /// First those that showed mistakes before: it ends sooner.
    TellingFirst,
}

impl Order {
    fn seeds(self, seeds_max: u64) -> impl Iterator<Item = u64> {
        let telling = if self == Order::TellingFirst { &TELLING_SEEDS[..] } else { &[] };
        let again = |seed: &u64| telling.contains(seed);
        telling.iter().copied().chain((0..seeds_max).filter(move |seed| !again(seed)))
    }
}

/// Why the mistake `mutant` harms nothing, if that is known.
pub fn excuse(mutant: &Mutant) -> Option<&'static str> {
    let site = match mutant {
        Mutant::Ignored(site) | Mutant::Late(site) => *site,
        Mutant::Flawed(Flaw { kind, file, line }) => CodeSite { kind: SiteKind::from(*kind), file, line: *line },
        _ => return None,
    };
    let what = format!("{:?}: {}", site.kind, site.lines().join(" after "));
    let excused = EXCUSED.iter().find(|(file, line, _)| site.file.contains(file) && what.starts_with(line));
    excused.map(|(_, _, why)| *why)
}

/// What became of a planted mistake.
#[derive(Clone, Debug)]
pub struct MutantOutcome {
    /// The mistake.
    pub mutant: Mutant,
    /// How it showed, if it did.
    pub killed: Option<Killed>,
    /// A script on the way that fails without the mistake too: it shows something else.
    pub sound: Option<Failure>,
}

/// How a planted mistake showed.
#[derive(Clone, Debug)]
pub struct Killed {
    /// How many seeds it took.
    pub tried: u64,
    /// The last of them.
    pub seed: u64,
    /// What failed.
    pub failure: Failure,
}

/// Every mistake that is planted of itself and has no excuse: each flush and fence left out, each
/// store late, and those that are known. [`mistakes_with_files`] are others.
pub fn mistakes() -> Vec<Mutant> {
    every_mistake().into_iter().filter(|mistake| excuse(mistake).is_none()).collect()
}

/// Every mistake of the file cache that has no excuse.
pub fn mistakes_with_files() -> Vec<Mutant> {
    every_mistake_with_files().into_iter().filter(|mistake| excuse(mistake).is_none()).collect()
}

/// Those that are excused too.
pub fn every_mistake_with_files() -> Vec<Mutant> {
    let first = Script { base: Base::Files, acts: 200, mutant: Mutant::Survey, ..Script::of(0) };
    let base = Some(Base::Files);
    let quiet = Campaign { first, base, seeds: FILE_SEEDS, time: Duration::MAX, progress: None };
    let of_files = |mistake: &Mutant| mistake.base() == Some(Base::Files);
    let at_sites = at_sites(&quiet.run().marks, &["crates/file-cache/src/"]).into_iter().filter(of_files);
    at_sites.chain([Mutant::Mislaid(Mislaid::FileSyncs)]).collect()
}

/// Those that are excused too.
pub fn every_mistake() -> Vec<Mutant> {
    let small = Script { acts: 200, mutant: Mutant::Survey, ..Script::of(0) };
    let quiet = Campaign { first: small, base: None, seeds: 600, time: Duration::MAX, progress: None };
    let at_sites = at_sites(&quiet.run().marks, &ENGINES);
    let mislaid = [Mislaid::Flushes, Mislaid::Force, Mislaid::Slots, Mislaid::Together, Mislaid::DiskFlushes];
    let of_groups = GROUP_PARTS.map(Mislaid::GroupFlush);
    let mislaid = mislaid.into_iter().chain(of_groups).map(Mutant::Mislaid);
    at_sites.into_iter().chain(BUGS.map(Mutant::Planted)).chain(mislaid).collect()
}

/// What may be broken at the places that storms came to below one of the `folders`.
fn at_sites(marks: &Marks, folders: &[&str]) -> Vec<Mutant> {
    let in_engine = |site: &CodeSite| folders.iter().any(|folder| site.file.starts_with(folder));
    let at_sites = marks.sites().filter(|(site, _)| in_engine(site)).filter_map(|(site, _)| match site.kind {
        SiteKind::Fence | SiteKind::Flush => Some(Mutant::Ignored(site)),
        SiteKind::Store => Some(Mutant::Late(site)),
        SiteKind::Lock => flaw(FlawKind::Lock, site),
        SiteKind::Recheck => flaw(FlawKind::Recheck, site),
        SiteKind::Change => flaw(FlawKind::Change, site),
        SiteKind::Wait => None,
    });
    at_sites.collect()
}

/// A flaw at `site`.
fn flaw(kind: FlawKind, site: CodeSite) -> Option<Mutant> {
    Some(Mutant::Flawed(Flaw { kind, file: site.file, line: site.line }))
}

/// Runs up to `seeds_max` seeds with each mistake, several at once. A seed that fails without it
/// shows nothing of it.
pub fn test_mutants(mistakes: &[Mutant], order: Order, seeds_max: u64) -> Vec<MutantOutcome> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some(mutant) = mistakes.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = test_mutant(*mutant, order.seeds(seeds_max));
            done.lock().expect("no holder panics").push(outcome);
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let mut outcomes = done.into_inner().expect("no holder panicked");
    let place = |one: &MutantOutcome| mistakes.iter().position(|mistake| *mistake == one.mutant);
    outcomes.sort_by_key(place);
    outcomes
}

fn test_mutant(mutant: Mutant, seeds: impl Iterator<Item = u64>) -> MutantOutcome {
    let mut sound = None;
    let killed = (1..).zip(seeds).find_map(|(tried, seed)| {
        let base = mutant.base().unwrap_or(Base::of_write_cache(seed));
        // Some mistakes show only in a crowd.
        let usual = Script::of(seed);
        let clients = if seed % 4 == 3 || usual.bent() == Bent::Transactions { 8 } else { 4 };
        let script = Script { acts: 200, clients, base, mutant, ..usual };
        let failure = script.run().failure?;
        let anyway = Script { mutant: Mutant::None, ..script }.run().failure;
        if anyway.is_some() {
            sound = anyway;
            return None;
        }
        Some(Killed { tried, seed, failure })
    });
    MutantOutcome { mutant, killed, sound }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The source files at `path`, which may be a folder.
    fn sources(path: &Path) -> Vec<String> {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).expect("a folder");
            return entries.flat_map(|entry| sources(&entry.expect("an entry").path())).collect();
        }
        vec![std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))]
    }

    #[test]
    fn every_excuse_is_for_a_line_that_exists() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of crates");
        for (file, line, _) in EXCUSED {
            let (_, wanted) = line.split_once(": ").expect("a kind and a line");
            let holds = |source: &String| {
                let lines: Vec<&str> = source.lines().map(str::trim).rev().collect();
                lines.windows(3).any(|lines| lines.join(" after ").starts_with(wanted))
            };
            assert!(sources(&crates.join(file)).iter().any(holds), "{file} has no line `{wanted}`");
        }
    }
}
