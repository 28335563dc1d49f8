//! Writes of pages, as those of a database that has no copies of them: whatever was synced or not,
//! a power cut leaves each page as one of its writes left it.
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
use tidegate_sim::{Region, Rng};

/// Bytes of a page.
const PAGE_BYTES: usize = 8192;

/// Pages of a file.
const PAGES: usize = 4;

/// Steps of a life, at most.
const STEPS_MAX: usize = 24;

/// States of memory and files that are judged of each cut.
const STATES: usize = 3;

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
}

/// What a campaign has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholeTally {
    /// Cuts.
    pub cuts: u64,
    /// States of memory and files that were judged.
    pub states: u64,
    /// Pages found as a write left them that no sync covered.
    pub unsynced: u64,
}

impl WholeTally {
    /// Adds what another life has shown.
    pub fn add(&mut self, other: &WholeTally) {
        self.cuts += other.cuts;
        self.states += other.states;
        self.unsynced += other.unsynced;
    }
}

impl fmt::Display for WholeTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WholeTally { cuts, states, unsynced } = self;
        write!(f, "{cuts} cuts, {states} states; {unsynced} pages found newer than their last sync")
    }
}

/// The writes of each page that a cut may leave: the last durable one, and all later ones.
#[derive(Clone, Debug)]
struct Versions([[Vec<u8>; PAGES]; FILES]);

impl Versions {
    fn new() -> Versions {
        Versions(std::array::from_fn(|_| std::array::from_fn(|_| vec![OLD])))
    }

    fn write(&mut self, (file, page): (usize, usize), byte: u8) {
        self.0[file][page].push(byte);
    }

    fn sync_page(&mut self, (file, page): (usize, usize)) {
        let versions = &mut self.0[file][page];
        versions.drain(..versions.len() - 1);
    }

    fn sync(&mut self, file: usize) {
        (0..PAGES).for_each(|page| self.sync_page((file, page)));
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
    let bytes = vec![OLD; usize::try_from(writes.first_at).expect("small") + PAGES * PAGE_BYTES];
    let region = Region::with_line_order(small.image.clone(), small.order);
    let machine = Machine::new(small, region, vec![SimFile::new(&bytes); FILES], None, bug);
    let mut process = Process::start(&machine, vec![FileModel::new(&bytes); FILES], 0)?;
    let (mut versions, steps) = (Versions::new(), 1 + rng.index(STEPS_MAX));
    let mut made = Vec::new();
    for left in (0..steps).rev() {
        let (step, page) = chosen(writes, &mut rng);
        made.push(step);
        let before = versions.clone();
        if left == 0 {
            machine.record();
        }
        process.step(small, step).map_err(|failure| failure.within(format_args!("{made:?}")))?;
        note(&mut versions, step, page, process.byte);
        if left == 0 {
            let cuts = machine.take();
            let judged = judge_cuts(small, &cuts, (&before, &versions), (writes, &mut rng));
            return judged.map_err(|failure| failure.within(format_args!("seed {seed}, {made:?}")));
        }
    }
    Ok(WholeTally::default())
}

/// A step, and the page that it writes, if it writes one.
fn chosen(writes: PageWrites, rng: &mut Rng) -> (FileStep, usize) {
    let (file, page, len) = (rng.index(FILES), rng.index(PAGES), PAGE_BYTES);
    let at = writes.first_at + (page * PAGE_BYTES) as u64;
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
    (step, page)
}

fn note(versions: &mut Versions, step: FileStep, page: usize, byte: u8) {
    match step {
        FileStep::Write { file, .. } | FileStep::LeasedWrite { file, .. } => versions.write((file, page), byte),
        FileStep::WriteSync { file, .. } => {
            versions.write((file, page), byte);
            versions.sync_page((file, page));
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
            for (file, found) in restarted.contents().iter().enumerate() {
                let pages = found[usize::try_from(writes.first_at).expect("small")..].chunks(PAGE_BYTES);
                for (page, bytes) in pages.enumerate() {
                    let allowed = || least.0[file][page].iter().chain(&after.0[file][page]);
                    if bytes.iter().any(|byte| *byte != bytes[0]) {
                        return Err(Failure::new(format_args!("page {page} of file {file} is torn: {}", runs(bytes))));
                    }
                    if !allowed().any(|byte| *byte == bytes[0]) {
                        let found = bytes[0];
                        return Err(Failure::new(format_args!("page {page} of file {file} is write {found}")));
                    }
                    tally.unsynced += u64::from(least.0[file][page][0] != bytes[0]);
                }
            }
        }
    }
    Ok(tally)
}

fn runs(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|one, next| one == next).map(|run| format!("{} of {}", run.len(), run[0]));
    runs.collect::<Vec<_>>().join(", ")
}
