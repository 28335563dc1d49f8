//! The topic `mappings`: a C program that maps a file of a mount directly, stores to it, and syncs
//! what it stored.
//!
//! The floor is a copy of 4 KiB that is streamed to memory of the same size beside, and a fence, by
//! the same program.

use crate::files::testbed::{Storage, Talker, Testbed, missing};
use crate::target::{Outcome, Row, Target, Topic};
use anyhow::Context;
use std::fs;
use std::process::Command;
use tidegate_measure::Pairs;
use tidegate_measure::medium::ScratchPath;
use tidegate_measure::programs::said;
use tidegate_measure::workload::Effort;

/// The table.
pub const TOPIC: Topic = Topic {
    name: "mappings",
    about: "pages of files that a program maps directly",
    rows: &[
        Row::here("page", PAGE, FLOOR, Target::AtMost(15.0), |effort| over_floor(effort, PAGE_BYTES)),
        Row::here("around", AROUND, FLOOR, Target::AtMost(25.0), |effort| over_floor(effort, 2 << 20)),
        Row::here("around-bare", AROUND, BARE, Target::AtMost(1.3), |effort| over_bare(effort, 2 << 20)),
        Row::here("whole", WHOLE, FLOOR, Target::Shown, |effort| over_floor(effort, WHOLE_BYTES)),
        Row::here("whole-bare", WHOLE, BARE, Target::AtMost(1.3), |effort| over_bare(effort, WHOLE_BYTES)),
        Row::here("sizes", SIZES, "the shortest", Target::AtMost(1.5), longest_over_shortest),
        Row::here("make", "mmap of 64 MiB, for each 2 MiB", "call", Target::Shown, mapped_ahead),
    ],
};

const PAGE: &str = "4 KiB stored to a mapping of 64 MiB, and msync of that page";
const AROUND: &str = "4 KiB stored to a mapping of 64 MiB, and msync of the 2 MiB around it";
const WHOLE: &str = "4 KiB stored to a mapping of 64 MiB, and msync of all of it";
const SIZES: &str = "4 KiB stored and its msync, in mappings of 1, 16, 64 and 512 MiB: the longest median, \
    each as a multiple of a store and a flush in memory of that size";
const FLOOR: &str = "a streamed copy of 4 KiB, and a fence";

const BARE: &str = "a store, the kernel's own answer about these pages, and one page's flush";

const PAGE_BYTES: u64 = 4096;
const WHOLE_BYTES: u64 = (SIZE_MIB as u64) << 20;

/// MiB of a mapping.
const SIZE_MIB: u32 = 64;

/// MiB of the mappings whose times are compared.
const SIZES_MIB: [u32; 4] = [1, 16, 64, 512];

/// Those of a sample that only shows whether it can be taken.
const SIZES_MIB_OF_SMOKE: [u32; 2] = [1, 16];

/// Operations in a sample below which that is so.
const SMOKE_STEPS: u32 = 1000;

/// Most operations in a sample.
const STEPS_MAX: u32 = 20_000;

/// A part of a pool's blocks that may be mapped in one of its lanes, whatever their number.
const POOL_PARTS: u32 = 6;

/// The program with its mapping.
struct Mapper {
    talker: Talker,
    /// How long the mapping took, for each 2 MiB.
    nanoseconds: f64,
    // The program ends before its files go.
    _testbed: Testbed,
    _folder: ProgramFolder,
}

/// A folder for the program, which goes with it.
struct ProgramFolder(ScratchPath);

impl ProgramFolder {
    /// Compiles the program.
    fn compiled() -> anyhow::Result<ProgramFolder> {
        let folder = ProgramFolder(ScratchPath::new());
        let path = folder.0.as_path();
        fs::create_dir(path)?;
        fs::write(path.join("tidegate-mappings.h"), include_str!("../../direct-preload/include/tidegate-mappings.h"))?;
        fs::write(path.join("mappings.c"), include_str!("mappings.c"))?;
        let mut compiler = Command::new("gcc");
        compiler.args(["-O2", "-o"]).arg(path.join("mapper")).arg(path.join("mappings.c"));
        said(&mut compiler).context("compile the program that maps")?;
        Ok(folder)
    }
}

impl Drop for ProgramFolder {
    fn drop(&mut self) {
        // What cannot be removed is in a folder for what is temporary.
        let _ = fs::remove_dir_all(self.0.as_path());
    }
}

impl Mapper {
    fn start(mib: u32) -> anyhow::Result<Mapper> {
        let (folder, testbed) = (ProgramFolder::compiled()?, Testbed::new(Storage::Direct(mib * POOL_PARTS + 64))?);
        let mut talker = Talker::start(&mut testbed.command(folder.0.as_path().join("mapper")))?;
        let nanoseconds = number(&talker.ask(&format!("map {mib}\n"))?)?;
        Ok(Mapper { talker, nanoseconds, _testbed: testbed, _folder: folder })
    }

    /// The median nanoseconds of a store and the sync of so many bytes around it.
    fn sync(&mut self, range: u64, steps: u32) -> anyhow::Result<f64> {
        number(&self.talker.ask(&format!("sync {range} {steps}\n"))?)
    }

    /// The median nanoseconds of a store, the kernel's answer about so many bytes around it, and
    /// the flush of its page.
    fn bare(&mut self, range: u64, steps: u32) -> anyhow::Result<f64> {
        number(&self.talker.ask(&format!("bare {range} {steps}\n"))?)
    }

    /// The median nanoseconds of a store, its flush and a fence, in other memory of that size.
    fn plain(&mut self, steps: u32) -> anyhow::Result<f64> {
        number(&self.talker.ask(&format!("plain {steps}\n"))?)
    }

    /// The median nanoseconds of a streamed copy and a fence.
    fn floor(&mut self, steps: u32) -> anyhow::Result<f64> {
        number(&self.talker.ask(&format!("floor {steps}\n"))?)
    }
}

fn number(answer: &str) -> anyhow::Result<f64> {
    answer.parse().with_context(|| format!("the program that maps says {answer}"))
}

fn over_floor(effort: Effort, range: u64) -> anyhow::Result<Outcome> {
    over(effort, range, Mapper::floor)
}

fn over_bare(effort: Effort, range: u64) -> anyhow::Result<Outcome> {
    over(effort, range, |mapper, steps| mapper.bare(range, steps))
}

/// A store and the sync of so many bytes around it, over what `under` measures.
fn over(
    effort: Effort,
    range: u64,
    under: impl Fn(&mut Mapper, u32) -> anyhow::Result<f64>,
) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&["gcc"]) {
        return Ok(missing);
    }
    let (mapper, steps) = (std::cell::RefCell::new(Mapper::start(SIZE_MIB)?), effort.steps.min(STEPS_MAX));
    let over = || mapper.borrow_mut().sync(range, steps);
    let pairs = Pairs::try_alternate(effort.pairs, over, || under(&mut mapper.borrow_mut(), steps))?;
    Ok(Outcome::ratio(&pairs, "ns"))
}

fn longest_over_shortest(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&["gcc"]) {
        return Ok(missing);
    }
    let steps = effort.steps.min(STEPS_MAX);
    let sizes = if steps < SMOKE_STEPS { &SIZES_MIB_OF_SMOKE[..] } else { &SIZES_MIB };
    let mut mappers = sizes.iter().map(|mib| Mapper::start(*mib)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut ratio = || {
        let each = mappers.iter_mut().map(|mapper| Ok(mapper.sync(PAGE_BYTES, steps)? / mapper.plain(steps)?));
        let each = each.collect::<anyhow::Result<Vec<_>>>()?;
        anyhow::Ok(each.iter().copied().fold(0.0, f64::max) / each.iter().copied().fold(f64::INFINITY, f64::min))
    };
    let samples = (0..effort.pairs).map(|_| ratio()).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Outcome::figure(&samples, "×"))
}

fn mapped_ahead(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&["gcc"]) {
        return Ok(missing);
    }
    let samples = (0..effort.pairs).map(|_| Ok(Mapper::start(SIZE_MIB)?.nanoseconds));
    Ok(Outcome::figure(&samples.collect::<anyhow::Result<Vec<_>>>()?, "ns"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn the_program_maps_and_syncs_and_tells_what_fails() {
        let mut mapper = Mapper::start(1).unwrap();
        assert!(mapper.nanoseconds > 0.0 && mapper.sync(PAGE_BYTES, 10).unwrap() > 0.0);
        assert!(mapper.sync(2 << 20, 10).unwrap() > 0.0 && mapper.floor(10).unwrap() > 0.0);
        assert!(mapper.bare(2 << 20, 10).unwrap() > 0.0 && mapper.plain(10).unwrap() > 0.0);
        assert!(mapper.talker.ask("what\n").unwrap().starts_with("unknown"));
        let without = ProgramFolder::compiled().unwrap();
        let folder = without.0.as_path();
        let mut alone = Talker::start(Command::new(folder.join("mapper")).current_dir(folder)).unwrap();
        assert!(number(&alone.ask("map 1\n").unwrap()).is_err(), "no mount, no library");
    }
}
