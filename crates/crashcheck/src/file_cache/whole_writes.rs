//! Writes of pages, as those of a database that has no copies of them: whatever was synced or not,
//! a power cut leaves each page as one of its writes left it. A write longer than a database's page
//! is whole if it was synced.
//!
//! A page is longer than a block of DRAM, than most blocks of the pool, and than the bytes that one
//! step has leave DRAM, so each of these may divide it. DRAM has room for a few pages, one commit
//! for fewer than are written, and a pool of one chunk for blocks of one size.

use crate::checker::Failure;
use crate::file_cache::checker::{Process, recover_on};
use crate::file_cache::machine::{FILES, JointCut, Machine, SimFile, SmallPool};
use crate::file_cache::model::FileModel;
use crate::file_cache::mutants::FilesBug;
use crate::file_cache::script::FileStep;
use std::fmt;
use std::ops::Range;
use tidegate_sim::{Region, Rng};

/// Bytes of a page.
const PAGE_BYTES: usize = 8192;

/// Pages of a file.
const PAGES: usize = 4;

/// Pages of a file that is written as a whole too, by a write that is too long to be whole.
const PAGES_OF_LONG: usize = 9;

/// Steps of a life, at most.
const STEPS_MAX: usize = 24;

/// States of memory and files that are judged of each cut.
const STATES: usize = 3;

/// Kills of a step that are judged, at most.
const KILLS_MAX: usize = 16;

/// What each byte of the files is at first.
const OLD: u8 = 0xee;

/// Who writes the pages, and where they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageWrites {
    /// Offset of the first page.
    pub first_at: u64,
    /// Whether programs write by leases too.
    pub by: PageWriters,
}

/// Programs that write pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageWriters {
    /// By requests.
    Requests,
    /// By requests and by leases.
    Leases,
    /// By requests for a page, and for all of a file's pages.
    LongRequests,
}

impl PageWrites {
    /// Pages of a file.
    fn pages(self) -> usize {
        if self.by == PageWriters::LongRequests { PAGES_OF_LONG } else { PAGES }
    }

    /// Where the first page begins in a file's bytes.
    fn first(self) -> usize {
        usize::try_from(self.first_at).expect("small")
    }
}

/// What a campaign has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholeTally {
    /// Cuts.
    pub cuts: u64,
    /// Kills.
    pub kills: u64,
    /// States of memory and files that were judged.
    pub states: u64,
    /// Pages found as a write left them that no sync covered.
    pub unsynced: u64,
    /// Pages with a part of a long write that no sync covered.
    pub torn: u64,
}

impl WholeTally {
    /// Adds what another life has shown.
    pub fn add(&mut self, other: &WholeTally) {
        self.cuts += other.cuts;
        self.kills += other.kills;
        self.states += other.states;
        self.unsynced += other.unsynced;
        self.torn += other.torn;
    }
}

impl fmt::Display for WholeTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WholeTally { cuts, kills, states, unsynced, torn } = self;
        write!(f, "{cuts} cuts, {kills} kills, {states} states; {unsynced} pages found newer than their last sync, ")?;
        write!(f, "{torn} with a part of a long write")
    }
}

/// A write of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    byte: u8,
    /// Whether a cut may leave it in part.
    long: bool,
}

/// The writes of each page that a cut may leave: the last durable one, and all later ones.
#[derive(Clone, Debug)]
struct Versions([Vec<Vec<Version>>; FILES]);

impl Versions {
    fn new(pages: usize) -> Versions {
        let old = Version { byte: OLD, long: false };
        Versions(std::array::from_fn(|_| vec![vec![old]; pages]))
    }

    fn write(&mut self, (file, pages): (usize, Range<usize>), byte: u8) {
        let long = pages.len() > 1;
        self.0[file][pages].iter_mut().for_each(|page| page.push(Version { byte, long }));
    }

    fn sync_pages(&mut self, (file, pages): (usize, Range<usize>)) {
        self.0[file][pages].iter_mut().for_each(|versions| {
            versions.drain(..versions.len() - 1);
        });
    }

    fn sync(&mut self, file: usize) {
        self.sync_pages((file, 0..self.0[file].len()));
    }
}

/// Judges the cuts of the last step of a life, which `seed` chooses.
pub fn judge_whole_writes(
    small: &SmallPool,
    writes: PageWrites,
    seed: u64,
    bug: Option<FilesBug>,
) -> Result<WholeTally, Failure> {
    let mut rng = Rng::new(seed);
    let bytes = vec![OLD; writes.first() + writes.pages() * PAGE_BYTES];
    let region = Region::with_line_order(small.image.clone(), small.order);
    let machine = Machine::new(small, region, vec![SimFile::new(&bytes); FILES], None, bug);
    let mut process = Process::start(&machine, vec![FileModel::new(&bytes); FILES], 0)?;
    let (mut versions, steps) = (Versions::new(writes.pages()), 1 + rng.index(STEPS_MAX));
    let mut made = Vec::new();
    for left in (0..steps).rev() {
        let (step, pages) = chosen(writes, &mut rng);
        made.push(step);
        let before = versions.clone();
        if left == 0 {
            machine.record();
            machine.record_kills();
        }
        process.step(small, step).map_err(|failure| failure.within(format_args!("{made:?}")))?;
        note(&mut versions, step, pages, process.byte);
        if left == 0 {
            let cuts = machine.take();
            let kills = sampled(machine.take_kills(), &mut rng);
            let killed = judge_kills(small, &kills, (&before, &versions), writes);
            killed.map_err(|failure| failure.within(format_args!("a kill, seed {seed}, {made:?}")))?;
            let judged = judge_cuts(small, &cuts, (&before, &versions), (writes, &mut rng));
            return judged
                .map(|tally| WholeTally { kills: kills.len() as u64, ..tally })
                .map_err(|failure| failure.within(format_args!("seed {seed}, {made:?}")));
        }
    }
    Ok(WholeTally::default())
}

/// A step, and the pages that it writes, if it writes any.
fn chosen(writes: PageWrites, rng: &mut Rng) -> (FileStep, Range<usize>) {
    let (file, page) = (rng.index(FILES), rng.index(writes.pages()));
    let long = writes.by == PageWriters::LongRequests && rng.below(2) == 0;
    let pages = if long { 0..writes.pages() } else { page..page + 1 };
    let (at, len) = (writes.first_at + (pages.start * PAGE_BYTES) as u64, pages.len() * PAGE_BYTES);
    let leased = writes.by == PageWriters::Leases;
    let step = match rng.below(12) {
        0..4 if leased => FileStep::LeasedWrite { file, at, len },
        4 if leased => FileStep::LeasedSync(file),
        0..6 => FileStep::Write { file, at, len },
        6 => FileStep::WriteSync { file, at, len },
        7 => FileStep::Sync(file),
        8 => FileStep::WriteBack,
        9 => FileStep::WriteDirty,
        _ => FileStep::WriteDirtyOne,
    };
    (step, pages)
}

fn note(versions: &mut Versions, step: FileStep, pages: Range<usize>, byte: u8) {
    match step {
        FileStep::Write { file, .. } | FileStep::LeasedWrite { file, .. } => versions.write((file, pages), byte),
        FileStep::WriteSync { file, .. } => {
            versions.write((file, pages.clone()), byte);
            versions.sync_pages((file, pages));
        }
        FileStep::Sync(file) => versions.sync(file),
        // A lease's sync covers what was written by the lease alone.
        _ => {}
    }
}

fn judge_cuts(
    small: &SmallPool,
    cuts: &[JointCut],
    (before, after): (&Versions, &Versions),
    (writes, rng): (PageWrites, &mut Rng),
) -> Result<WholeTally, Failure> {
    let mut tally = WholeTally::default();
    for (number, cut) in cuts.iter().enumerate() {
        tally.cuts += 1;
        // The last cut comes after the step.
        let least = if number + 1 == cuts.len() { after } else { before };
        for _ in 0..STATES {
            tally.states += 1;
            let files = cut.files.iter().map(|file| file.sample(rng)).collect();
            let region = Region::with_line_order(cut.region.sample(rng), small.order);
            let restarted = Machine::new(small, region, files, None, None);
            recover_on(&restarted)?;
            for Found { file, page, bytes } in pages(&restarted.contents(), writes) {
                let (least, most) = (&least.0[file][page], &after.0[file][page]);
                let is_torn = is_torn(bytes);
                let may_be = |found: &u8| {
                    // The durable one is what a long write is mixed with.
                    let mut allowed = least.iter().chain(most).enumerate();
                    allowed.any(|(age, version)| version.byte == *found && (!is_torn || age == 0 || version.long))
                };
                if !bytes.iter().all(may_be) {
                    let wrong = if is_torn { "torn" } else { "a lost write" };
                    return Err(Failure::new(format_args!("page {page} of file {file} is {wrong}: {}", runs(bytes))));
                }
                tally.unsynced += u64::from(least[0].byte != bytes[0]);
                tally.torn += u64::from(is_torn);
            }
        }
    }
    Ok(tally)
}

/// A page of a file after a restart.
struct Found<'a> {
    file: usize,
    page: usize,
    bytes: &'a [u8],
}

fn pages(contents: &[Vec<u8>], writes: PageWrites) -> impl Iterator<Item = Found<'_>> {
    contents.iter().enumerate().flat_map(move |(file, found)| {
        let pages = found[writes.first()..].chunks(PAGE_BYTES).enumerate();
        pages.map(move |(page, bytes)| Found { file, page, bytes })
    })
}

fn is_torn(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| *byte != bytes[0])
}

/// Some of the kills, in their order, and the last.
fn sampled(mut kills: Vec<JointCut>, rng: &mut Rng) -> Vec<JointCut> {
    while kills.len() > KILLS_MAX {
        kills.remove(rng.index(kills.len() - 1));
    }
    kills
}

/// A kill leaves every page as its last write left it, or the write under way; a long one in part.
fn judge_kills(
    small: &SmallPool,
    kills: &[JointCut],
    (before, after): (&Versions, &Versions),
    writes: PageWrites,
) -> Result<(), Failure> {
    for (number, kill) in kills.iter().enumerate() {
        // The last kill comes after the step.
        let least = if number + 1 == kills.len() { after } else { before };
        let region = Region::after_kill(&kill.region);
        let restarted = Machine::new(small, region, kill.files.clone(), Some(kill.dram.clone()), None);
        recover_on(&restarted)?;
        for Found { file, page, bytes } in pages(&restarted.contents(), writes) {
            let newest = [least, after].map(|versions| versions.0[file][page].last().expect("one was there first"));
            let may_be = |byte: &u8| newest.iter().any(|version| version.byte == *byte);
            if !bytes.iter().all(may_be) || (is_torn(bytes) && !newest[1].long) {
                return Err(Failure::new(format_args!("page {page} of file {file} is torn: {}", runs(bytes))));
            }
        }
    }
    Ok(())
}

fn runs(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|one, next| one == next).map(|run| format!("{} of {}", run.len(), run[0]));
    runs.collect::<Vec<_>>().join(", ")
}
