//! Marks: rare paths, and how often a campaign took each. One that is never taken is one that
//! nothing was proved of.

use crate::mutant::{CodeSite, SiteKind};
use std::collections::BTreeMap;
use tidegate_disk_cache::Mode;
use tidegate_virtual_cores::Wait;
use tidegate_write_cache::Counters;

/// A rare path, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(pub &'static str);

/// What a storm itself sees.
pub(crate) const FINISHED_WRITE: Mark = Mark("recovery finished a committed write");
pub(crate) const HALF_FLOG: Mark = Mark("a cut left half a flog entry");
pub(crate) const WHOLE_FLOG: Mark = Mark("a cut left a flog entry that no fence covered");
pub(crate) const LOST_FLOG: Mark = Mark("a cut lost a flog entry that no fence covered");
pub(crate) const TORN_DATA: Mark = Mark("a cut tore a block that no flog entry names");
pub(crate) const COMPLETED: Mark = Mark("slots of a killed process were completed");
pub(crate) const CUT_IN_RECOVERY: [Mark; 3] =
    [Mark("recovery was cut or killed"), Mark("so was the recovery from that"), Mark("and the recovery from that too")];
pub(crate) const KILLED_COMPLETING: Mark = Mark("a process was killed completing another's slots");
pub(crate) const CUT_COMPLETING: Mark = Mark("power failed while slots were completed");
pub(crate) const SLOTS_SEALED: Mark = Mark("slots lost a store, and the cache refused more");
pub(crate) const CACHE_REFUSED: Mark = Mark("no cache was made in memory that lost a store");
pub(crate) const MET_POISON: Mark = Mark("a request met an unreadable line of the memory");
pub(crate) const MET_HEALING: Mark = Mark("a request met an unreadable line that stores heal");
pub(crate) const MET_LOSS: Mark = Mark("a request met memory that loses stores");
pub(crate) const MET_END: Mark = Mark("a request met the end of a file that was cut short");
pub(crate) const MET_BAD_READ: Mark = Mark("a request met blocks of the disk that cannot be read");
pub(crate) const MET_BAD_WRITE: Mark = Mark("a request met blocks of the disk that cannot be written");
pub(crate) const MET_DEAD_DISK: Mark = Mark("a flush of the disk failed");
pub(crate) const DESTAGING_FAILED: Mark = Mark("blocks could not be destaged, and stayed dirty");
pub(crate) const TOGETHER: Mark = Mark("an end met a write of several blocks: none of it was in place");
pub(crate) const TOGETHER_ALL: Mark = Mark("an end met a write of several blocks: all of it was in place");
pub(crate) const RECOVERY_REFUSED: Mark = Mark("a recovery met a fault, said so, and was repeated");
pub(crate) const LOSS_TOLD: Mark = Mark("a flush or write was refused because of an earlier loss");
pub(crate) const STALLED: Mark = Mark("the disk stalled, and others went on");
pub(crate) const CLOCK_WENT_BACK: Mark = Mark("the clock was set back while it was asked");
pub(crate) const LOST_SECTOR: Mark = Mark("a cut lost a sector that no flush covered");
pub(crate) const TORN_BLOCK: Mark = Mark("a cut tore a block of the disk");
pub(crate) const RESTED: Mark = Mark("a disk cache's own account was right at rest");

pub(crate) const TORN_PAST: Mark = Mark("a cut tore a block that was written past the cache");
pub(crate) const OPENED_WITHOUT: Mark = Mark("a disk cache was opened without entries that cannot be read");
pub(crate) const LIE: Mark = Mark("a cut lost a block that the disk said it had flushed");
pub(crate) const COMMITTED: Mark = Mark("a transaction of several blocks was committed");
pub(crate) const ABORTED: Mark = Mark("a transaction was aborted");
pub(crate) const CONFLICT: Mark = Mark("a transaction was refused because of another write");
pub(crate) const TOO_LARGE: Mark = Mark("a transaction was too large");
pub(crate) const OWN_READ: Mark = Mark("a transaction read what it wrote");
pub(crate) const ALONE_AMID: Mark = Mark("an end met a group being put in place, and the disk alone was put in order");
pub(crate) const MADE_ANEW: Mark = Mark("a group that the journal gave back no more was made anew from the memory");
pub(crate) const READ_ONLY: Mark = Mark("a write was refused by a cache that is read only");
pub(crate) const LAID_OUT: Mark = Mark("a disk cache was laid out anew");
pub(crate) const LAYING_LEFT_OLD: Mark = Mark("an end met a disk cache being laid out anew, and left the old one");
pub(crate) const LAYING_LEFT_NEW: Mark = Mark("an end met a disk cache being laid out anew, and left the new one");

/// The change of a disk cache's mode to `mode`, under load.
pub(crate) fn of_mode(mode: Mode) -> Mark {
    Mark(match mode {
        Mode::WriteBack => "a disk cache was switched to write-back",
        Mode::WriteThrough => "a disk cache was switched to write-through",
        Mode::WriteAround => "a disk cache was switched to write-around",
        Mode::WriteOnly => "a disk cache was switched to write-only",
        Mode::PassThrough => "a disk cache was switched to pass-through",
        Mode::ReadOnly => "a disk cache was switched to read-only",
    })
}

/// Every mark that a storm itself sees.
const SEEN: [Mark; 44] = [
    MADE_ANEW,
    ALONE_AMID,
    LAID_OUT,
    LAYING_LEFT_OLD,
    LAYING_LEFT_NEW,
    OPENED_WITHOUT,
    TORN_PAST,
    LIE,
    COMMITTED,
    ABORTED,
    CONFLICT,
    TOO_LARGE,
    OWN_READ,
    READ_ONLY,
    RESTED,
    DESTAGING_FAILED,
    TOGETHER,
    TOGETHER_ALL,
    FINISHED_WRITE,
    HALF_FLOG,
    WHOLE_FLOG,
    LOST_FLOG,
    TORN_DATA,
    COMPLETED,
    KILLED_COMPLETING,
    CUT_COMPLETING,
    SLOTS_SEALED,
    CACHE_REFUSED,
    CUT_IN_RECOVERY[0],
    CUT_IN_RECOVERY[1],
    CUT_IN_RECOVERY[2],
    MET_POISON,
    MET_HEALING,
    MET_LOSS,
    MET_END,
    MET_BAD_READ,
    MET_BAD_WRITE,
    MET_DEAD_DISK,
    RECOVERY_REFUSED,
    LOSS_TOLD,
    STALLED,
    CLOCK_WENT_BACK,
    LOST_SECTOR,
    TORN_BLOCK,
];

/// How often a cache took a path, by its counters.
type Count = fn(&Counters) -> u64;

/// What the cache's own counters tell.
const COUNTED: [(Mark, Count); 6] = [
    (Mark("a write took an older one's place"), |counters| counters.replaced),
    (Mark("a write went past the cache for want of a slot"), |counters| counters.bypassed),
    (Mark("a forced write went past the cache"), |counters| counters.forced),
    (Mark("a request waited for an eviction"), |counters| counters.stalled),
    (Mark("a sleeping drain was woken"), |counters| counters.wake_ups),
    (Mark("a block was read from its slot"), |counters| counters.read_hits),
];

/// How often a disk cache took a path, by its counters.
type TierCount = fn(&tidegate_disk_cache::Counters) -> u64;

/// What a disk cache's own counters tell.
const TIER_COUNTED: [(Mark, TierCount); 6] = [
    (Mark("a block was read from the disk cache"), |counters| counters.read_hits),
    (Mark("a block that was read was taken into the disk cache"), |counters| counters.fills),
    (Mark("a clean block was given up for another"), |counters| counters.evictions),
    (Mark("a writer found no free block and destaged some itself"), |counters| counters.helps),
    (Mark("a transaction was committed by the thread of another"), |counters| counters.joined),
    (Mark("neighbours went to the disk in one write"), |counters| {
        counters.destaged.saturating_sub(counters.destage_writes)
    }),
];

/// Places in the engines where something rare happens: the file's end, and a part of the line.
const PLACES: [(Mark, SiteKind, &str, &str); 14] = [
    (
        Mark("a block was read in by a disk cache that forgets it at a restart"),
        SiteKind::Store,
        "disk-cache/src/read/volatile.rs",
        "medium.store_block(",
    ),
    (
        Mark("elements of the ring were retired"),
        SiteKind::Flush,
        "disk-cache/src/commit/redo.rs",
        "medium.flush_entry(entry))",
    ),
    (
        Mark("recovery repeated an element of the ring"),
        SiteKind::Store,
        "disk-cache/src/open.rs",
        "medium.store_state(",
    ),
    (Mark("recovery moved the ring's tail"), SiteKind::Store, "wal/src/recovery.rs", "store_tail("),
    (Mark("two commits met in a stripe"), SiteKind::Wait, "disk-cache/src/commit.rs", "lock"),
    (
        Mark("a write-through waited for an older content's destaging"),
        SiteKind::Wait,
        "disk-cache/src/device.rs",
        "yield_now",
    ),
    (Mark("a writer waited for room that others hold"), SiteKind::Wait, "disk-cache/src/destage/help.rs", "yield_now"),
    (Mark("a lost info block was restored"), SiteKind::Store, "btt/src/open.rs", "found.info"),
    (Mark("a write waited for a lane"), SiteKind::Wait, "btt/src/lanes.rs", ".lock()"),
    (Mark("two writes met in a stripe of the map"), SiteKind::Wait, "btt/src/io.rs", "let mut stripe = live.map.lock("),
    (
        Mark("a reader that writers kept from its block waited for one of them"),
        SiteKind::Wait,
        "btt/src/io.rs",
        "let _unchanging = live.map.lock(",
    ),
    (Mark("another lane's store to the map was settled"), SiteKind::Flush, "btt/src/map.rs", "flush(store.at"),
    (Mark("a flush waited for a thread that drains"), SiteKind::Wait, "write-cache/src/drain.rs", "draining.lock()"),
    (Mark("a set's queue was waited for"), SiteKind::Wait, "write-cache/src/", "queue.lock()"),
];

/// How often each mark was reached, and each site visited.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    reached: BTreeMap<Mark, u64>,
    sites: BTreeMap<CodeSite, u64>,
}

impl Marks {
    pub(crate) fn reach(&mut self, mark: Mark) {
        self.add_to(mark, 1);
    }

    pub(crate) fn add_to(&mut self, mark: Mark, times: u64) {
        *self.reached.entry(mark).or_default() += times;
    }

    pub(crate) fn visit(&mut self, site: CodeSite, times: u64) {
        *self.sites.entry(site).or_default() += times;
    }

    pub(crate) fn wait(&mut self, wait: &Wait) {
        self.visit(CodeSite::at(SiteKind::Wait, wait.place), wait.times);
    }

    pub(crate) fn count(&mut self, counters: &Counters) {
        for (mark, of) in COUNTED {
            self.add_to(mark, of(counters));
        }
    }

    pub(crate) fn count_tier(&mut self, counters: &tidegate_disk_cache::Counters) {
        for (mark, of) in TIER_COUNTED {
            self.add_to(mark, of(counters));
        }
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Marks) {
        other.reached.iter().for_each(|(mark, times)| self.add_to(*mark, *times));
        other.sites.iter().for_each(|(site, times)| self.visit(*site, *times));
    }

    /// Every mark there is, and how often it was reached.
    pub fn all(&self) -> Vec<(Mark, u64)> {
        let counted = COUNTED.map(|(mark, _)| mark).into_iter().chain(TIER_COUNTED.map(|(mark, _)| mark));
        let own = SEEN.into_iter().chain(Mode::ALL.map(of_mode)).chain(counted);
        let own = own.map(|mark| (mark, self.reached.get(&mark).copied().unwrap_or(0)));
        own.chain(PLACES.map(|(mark, kind, file, line)| (mark, self.at(kind, file, line)))).collect()
    }

    /// The sites that engines have and that were visited, with how often.
    pub fn sites(&self) -> impl Iterator<Item = (CodeSite, u64)> + '_ {
        self.sites.iter().map(|(site, times)| (*site, *times))
    }

    fn at(&self, kind: SiteKind, file: &str, line: &str) -> u64 {
        let there = |site: &&CodeSite| site.kind == kind && site.file.contains(file) && site.text().contains(line);
        self.sites.keys().filter(there).map(|site| self.sites[site]).sum()
    }
}
