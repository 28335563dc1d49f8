//! Files below that fail: each change below that a step makes is refused once, or made by half and
//! refused. The step may fail then. Every other byte reads as before, synced bytes survive a power
//! cut, and the next operations make the changes that are owed.

use crate::checker::Failure;
use crate::file_cache::checker::{Process, check, compare, recover_on};
use crate::file_cache::machine::{FILES, Machine, Refusal, SimFile, SmallPool};
use crate::file_cache::model::{Allowed, FileModel};
use crate::file_cache::script::FileStep;
use std::sync::Arc;
use tidegate_sim::{Region, Rng};

/// Power cuts that are tried after each refusal.
const CUTS: u64 = 6;

/// Judges a step that comes after `before`, with every refusal that it may meet, and says how many
/// those were.
pub fn judge_refusals(small: &SmallPool, before: &[FileStep], step: FileStep) -> Result<u64, Failure> {
    let mut refusals = 0;
    for refusal in [Refusal::Nothing, Refusal::Half] {
        for number in 0.. {
            let sound = run(small, before, step, None)?.0;
            let (failed, refused) = run(small, before, step, Some((number, refusal)))?;
            if !refused {
                break;
            }
            refusals += 1;
            let judged = after_refusal(small, failed, &sound.models);
            judged.map_err(|failure| failure.within(format_args!("{step:?}, refusal {number}: {refusal:?}")))?;
        }
    }
    Ok(refusals)
}

/// A process that has made a step, and whether one was refused.
fn run(
    small: &SmallPool,
    before: &[FileStep],
    step: FileStep,
    refusal: Option<(u32, Refusal)>,
) -> Result<(Process, bool), Failure> {
    let old = vec![0xee; 70];
    let region = Region::with_line_order(small.image.clone(), small.order);
    let machine = Machine::new(small, region, vec![SimFile::new(&old), SimFile::new(&[])], None, None);
    let mut process = Process::start(&machine, vec![FileModel::new(&old), FileModel::new(&[])], 0)?;
    for step in before {
        process.step(small, *step)?;
    }
    machine.refuse(refusal);
    let made = process.step(small, step);
    let refused = refusal.is_some() && machine.has_refused();
    machine.refuse(None);
    if refused { Ok((process, true)) } else { made.map(|_| (process, false)) }
}

/// `after` is what the files are if the step is made as a whole.
fn after_refusal(small: &SmallPool, mut process: Process, after: &[FileModel]) -> Result<(), Failure> {
    let before = process.models.clone();
    let both = || before.iter().zip(after);
    let read = both().map(|(old, new)| Allowed::of([old.now.clone(), new.now.clone()], true)).collect::<Vec<_>>();
    let found = process.read_all()?;
    check(&found, &read).map_err(|failure| failure.within("read after it"))?;
    let mut rng = Rng::new(1);
    for _ in 0..CUTS {
        let cut = process.machine.cut();
        let files = cut.files_images();
        let files = files[rng.index(files.len())].clone();
        let region = Region::with_line_order(cut.region.sample(&mut rng), small.order);
        let restarted = Machine::new(small, region, files, None, None);
        recover_on(&restarted)?;
        let cut = both().map(|(old, new)| Allowed::of(old.may.iter().chain(&new.may).cloned(), true));
        compare(&restarted, &cut.collect::<Vec<_>>()).map_err(|failure| failure.within("a power cut after it"))?;
    }
    for (model, found) in process.models.iter_mut().zip(&found) {
        *model = FileModel::new(found);
    }
    process.take_times()?;
    let reach = |file| FileStep::Write { file, at: 1200, len: 8 };
    let steps = (0..FILES).flat_map(|file| [reach(file), FileStep::Sync(file), FileStep::WriteBack]);
    for step in steps.collect::<Vec<_>>() {
        process.step(small, step).map_err(|failure| failure.within(format_args!("{step:?} after it")))?;
    }
    let whole = process.models.iter().map(|model| Allowed::of([model.now.clone()], false)).collect::<Vec<_>>();
    let cut = process.machine.cut();
    let files = cut.files_images().pop().unwrap_or_default();
    let restarted: Arc<Machine> =
        Machine::new(small, Region::with_line_order(cut.region.sample(&mut rng), small.order), files, None, None);
    recover_on(&restarted)?;
    compare(&restarted, &whole).map(drop).map_err(|failure| failure.within("a power cut in the end"))
}

#[cfg(test)]
mod tests {
    use crate::file_cache::machine::{Machine, Refusal, SimFile, SmallPool, backing};
    use tidegate_file_cache::Persistence;
    use tidegate_sim::Region;

    /// A pool with files of four zeroes below.
    fn machine() -> std::sync::Arc<Machine> {
        let small = SmallPool::of(4);
        let region = Region::with_line_order(small.image.clone(), small.order);
        Machine::new(&small, region, vec![SimFile::new(&[0; 4]), SimFile::new(&[0; 4])], None, None)
    }

    #[test]
    fn a_file_keeps_its_age_until_it_has_left_dram_or_refuses() {
        let machine = machine();
        let pool = machine.open().unwrap();
        let file = pool.open_file(&backing(&machine, 0), b"a path").unwrap();
        // Behind what the file below has: that may be written there without a sync.
        for block in 1..4 {
            pool.write(file, block * 8192, b"unsynced", Persistence::Asynchronous).unwrap();
        }
        pool.tick(7);
        for left in [16, 8] {
            assert_eq!(pool.write_dirty_step(0, 1, 7).unwrap().left_bytes, left);
        }
        machine.refuse(Some((0, Refusal::Nothing)));
        pool.write_dirty_step(0, 1, 7).unwrap_err();
        assert_eq!(pool.write_dirty_step(0, 1, 7).unwrap().left_bytes, 8);
        assert_eq!(pool.write_dirty_step(0, 1, 8).unwrap().left_bytes, 0);
    }

    #[test]
    fn a_file_that_refuses_does_not_hold_others_up() {
        let machine = machine();
        let pool = machine.open().unwrap();
        for (number, bytes) in [(0, b"old "), (1, b"new ")] {
            let file = pool.open_file(&backing(&machine, number), b"a path").unwrap();
            pool.write(file, 0, bytes, Persistence::Synchronous).unwrap();
        }
        machine.refuse(Some((0, Refusal::Nothing)));
        pool.write_back_step(0, u64::MAX).unwrap_err();
        assert!(pool.write_back_step(0, u64::MAX).unwrap().left_bytes > 0);
        assert_eq!(machine.contents(), [[0; 4], *b"new "]);
        assert_eq!(pool.write_back_step(0, u64::MAX).unwrap().left_bytes, 0);
        assert_eq!(machine.contents(), [*b"old ", *b"new "]);
    }

    #[test]
    fn a_file_is_closed_only_when_all_of_it_is_below_and_it_is_open_once() {
        let machine = machine();
        let pool = machine.open().unwrap();
        let file = pool.open_file(&backing(&machine, 0), b"a path").unwrap();
        pool.write(file, 0, b"new ", Persistence::Asynchronous).unwrap();
        assert_eq!(pool.close_if_done(file, || Ok(())), Ok(false), "unsynced");
        pool.sync(file).unwrap();
        assert_eq!(pool.close_if_done(file, || Ok(())), Ok(false), "out of sync");
        pool.write_back_step(0, u64::MAX).unwrap();
        assert_eq!(pool.open_file(&backing(&machine, 0), b"a path"), Ok(file));
        assert_eq!(pool.close_if_done(file, || Ok(())), Ok(false), "open twice");
        pool.close(file).unwrap();
        assert_eq!(pool.close_if_done(file, || Ok(())), Ok(true));
        assert_eq!((pool.files(), &machine.contents()[0][..]), (vec![], &b"new "[..]));
    }
}
