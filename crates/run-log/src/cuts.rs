//! Every power cut of every short script under the protocol of a run, on simulated memory and a
//! simulated file, beside a dull model: all contents that the file had since its last sync.
//!
//! A script's last step is cut before each fence of the memory, before each thing that reaches a
//! disk, and at its end. Every state that the cut may leave is recovered, with a cut and a kill at
//! each of these instants in the recovery, which is done again then. The file has its last synced
//! bytes afterwards, or newer ones. `TIDEGATE_STEPS` gives longer scripts than CI runs.

mod again;
mod folder;
mod names;
mod program;
mod told;
mod world;

use super::ground::Unlike;
use super::journal::{self, Journal, Left};
use super::kept::{FAMILY_SLOTS, Parts, Shape};
use super::recover::{Recovered, Recovery, has_something, sync_each};
use crate::failure::RunFailure;
use program::{Later, Program};
use std::collections::{BTreeSet, HashSet};
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::Arc;
use tidegate_media::Domain;
use tidegate_preload_wire::{Answer, FileId, Request};
use tidegate_sim::{Image, Reduction, Region, hash_of};
use world::{Disks, INODE, JointCut, SimGround, SimLog, Watched, World};

/// Bytes of the small pool's map of void slots, and of all of it.
const VOID_BYTES: u64 = 4096;
const POOL_BYTES: u64 = 128 << 10;
/// Each of the two strips of it: room for a few records,
const STRIP_BYTES: u64 = 4096 * 3;
/// or for two writes, of which the first one leaves little.
const SMALL_STRIP_BYTES: u64 = 832;
/// Bytes of a write.
const WRITE: usize = 320;
const HOLDER: u64 = 5;
const FILE: FileId = FileId { device: 1, inode: INODE };

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The program writes inside of the file, over the border of two blocks.
    Write,
    Append,
    Sync,
    /// The program cuts the file, after it had it settled.
    Shorten,
    /// The program makes the file longer: the next sync is the kernel's.
    Lengthen,
    /// The program renames the file, which no sync of it makes durable.
    Rename,
    /// The program asks to hold the file, and syncs by the kernel.
    Hold,
    /// Somebody outside of the run cuts the file.
    ShortenOutside,
    /// The supervisor brings blocks to their disk.
    Destage,
    /// Another program cannot reach the supervisor, and says so; the next time it brings all files
    /// to their disks, and says that what was kept is void.
    Stranger,
    /// The program dies, and the supervisor lets go of its file.
    Die,
    /// The supervisor absorbs what was handed over;
    Absorb,
    /// the same, and the program writes and commits when one block of it has been read.
    AbsorbBeside,
}

const ALPHABET: [Step; 13] = [
    Step::Write,
    Step::Append,
    Step::Sync,
    Step::Shorten,
    Step::Lengthen,
    Step::Rename,
    Step::Hold,
    Step::ShortenOutside,
    Step::Destage,
    Step::Stranger,
    Step::Die,
    Step::Absorb,
    Step::AbsorbBeside,
];

/// What may be found after a cut.
#[derive(Clone, Debug, Hash)]
struct Promise {
    /// All contents since the last sync, that of the sync first.
    contents: Vec<Vec<u8>>,
    /// All names since.
    paths: BTreeSet<PathBuf>,
}

impl Promise {
    /// Any byte of any of the contents: the kernel writes pages back as it likes.
    fn allows(&self, found: &[u8]) -> bool {
        if self.contents.iter().any(|one| one == found) {
            return true;
        }
        let lengths = || self.contents.iter().map(Vec::len);
        let length = lengths().min() <= Some(found.len()) && Some(found.len()) <= lengths().max();
        let byte =
            |(at, byte): (usize, &u8)| self.contents.iter().any(|one| one.get(at).copied().unwrap_or(0) == *byte);
        length && found.iter().enumerate().all(byte)
    }
}

/// What a judge compares a world with that was recovered.
trait Allowed: Hash {
    fn compare(&self, world: &World, recovered: &Recovered) -> Result<(), String>;
}

impl Allowed for Promise {
    fn compare(&self, world: &World, recovered: &Recovered) -> Result<(), String> {
        let disks = world.disks();
        if !self.allows(&disks.file.bytes) {
            let allowed: Vec<_> = self.contents.iter().map(|one| runs(one)).collect();
            return Err(format!("the file has {}, allowed: {}", runs(&disks.file.bytes), allowed.join(" or ")));
        }
        if !self.paths.contains(&disks.file.path) {
            return Err(format!("the file is at {}, not one of {:?}", disks.file.path.display(), self.paths));
        }
        if !recovered.salvaged.is_empty() {
            return Err(format!("put aside without need: {:?}", recovered.salvaged));
        }
        Ok(())
    }
}

/// What a judge has to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// The memory takes no word of the map of void slots.
    LostMap,
    /// The program does not say which filling is absorbed.
    FillingNotTold,
    /// The program does not look whether its commit counts.
    NoLook,
    /// The newer filling is absorbed first.
    NewerFirst,
    /// The head of the other strip is cleared.
    WrongStrip,
    /// A strip is filled again before its filling is absorbed.
    TooSoon,
    /// What is written to a common file is not noted.
    NotNoted,
    /// A file is held at a path that is not durable.
    PathLeft,
}

/// What was judged.
#[derive(Debug, Default)]
struct Tally {
    scripts: u64,
    cuts: u64,
    states: u64,
    in_recoveries: u64,
    used: u64,
}

struct Judge {
    strip_bytes: u64,
    /// Whether the file is written in common.
    in_common: bool,
    /// Whether the journal takes no line of what was recovered, which the judge has to notice.
    forgets: bool,
    seen: HashSet<u64>,
    tally: Tally,
}

/// The boots after the first and the second cut.
const BOOTS: [&str; 3] = ["second", "third", "fourth"];

fn reduction() -> Reduction {
    let contents = POOL_BYTES / 4..POOL_BYTES - VOID_BYTES;
    Reduction { images_max: 64, samples: 8, ..Reduction::of(std::iter::once(contents)) }
}

impl Judge {
    /// Of pools with such strips.
    fn on(strip_bytes: u64) -> Judge {
        Judge { strip_bytes, in_common: false, forgets: false, seen: HashSet::new(), tally: Tally::default() }
    }

    /// A world after a cut: the memory and the disks are what they are.
    fn after(&self, region: &Image, disks: Disks) -> Arc<World> {
        let mut world = World::new(Region::from_image(region.clone()), disks, self.strip_bytes);
        Arc::get_mut(&mut world).expect("nobody else has it").forgets = self.forgets;
        world
    }

    /// Runs a script, and judges every cut of its last step.
    fn script(&mut self, before: &[Step], script: &[Step], mistake: Option<Mistake>) -> Result<(), String> {
        self.tally.scripts += 1;
        let bytes = vec![0xaa; 9000];
        let mut world = World::new(Region::new(POOL_BYTES), Disks::new(bytes.clone(), first_lines()), self.strip_bytes);
        let its = Arc::get_mut(&mut world).expect("nobody else has it");
        if mistake == Some(Mistake::LostMap) {
            its.loses_from = POOL_BYTES - VOID_BYTES;
        }
        its.leaves_paths = mistake == Some(Mistake::PathLeft);
        if mistake == Some(Mistake::WrongStrip) {
            let second = POOL_BYTES - VOID_BYTES - its.strip_bytes;
            its.clears = Some([second - its.strip_bytes, second]);
        }
        let mut program = Program { mistake, ..Program::on(world, bytes) };
        if self.in_common {
            program = program.in_common();
        }
        let (last, earlier) = script.split_last().expect("a script has steps");
        before.iter().chain(earlier).for_each(|step| program.step(*step));
        let mut during = program.promise.clone();
        program.world.record();
        program.step(*last);
        // Before a sync ends, what it syncs may be there or not.
        during.contents.extend(program.promise.contents.clone());
        during.paths.extend(program.promise.paths.clone());
        let judged = self.step(program.world.take(), &during, &program.promise);
        judged.map_err(|wrong| format!("{script:?}: {wrong}"))
    }

    /// Judges the cuts of a step, the last of which is of its end: what may be found `during` it,
    /// and `after` it.
    fn step<A: Allowed>(&mut self, mut cuts: Vec<JointCut>, during: &A, after: &A) -> Result<(), String> {
        let end = cuts.pop().expect("a cut of now");
        cuts.iter().try_for_each(|cut| self.cut(cut, during, 0))?;
        self.cut(&end, after, 0)
    }

    fn cut<A: Allowed>(&mut self, cut: &JointCut, promise: &A, boot: usize) -> Result<(), String> {
        self.tally.cuts += u64::from(boot == 0);
        self.each_state(cut, (promise, boot), |judge, region, disks| {
            judge.recovered(&judge.after(region, disks.clone()), promise, boot)
        })
    }

    /// Has `judge` judge each state that `cut` may leave and that was not judged so before; `how`
    /// tells ways of judging apart.
    fn each_state(
        &mut self,
        cut: &JointCut,
        how: impl Hash,
        mut judge: impl FnMut(&mut Judge, &Image, &Disks) -> Result<(), String>,
    ) -> Result<(), String> {
        let how = hash_of(&how);
        // Files are long: each is hashed once, not once with each image of the region.
        let disks_images: Vec<_> =
            cut.disks_images().into_iter().map(|disks| (hash_of(&(&disks, how)), disks)).collect();
        let reduction = reduction();
        let mut images = cut.region.images(&reduction);
        while let Some(region) = images.advance() {
            for (disks_hash, disks) in &disks_images {
                if self.seen.insert(hash_of(&(region.hash(), disks_hash))) {
                    judge(self, region, disks)?;
                }
            }
        }
        Ok(())
    }

    /// The world at `cut`, if all that ran in it is killed there.
    fn killed(&self, cut: &JointCut) -> Arc<World> {
        World::new(Region::after_kill(&cut.region), cut.disks.clone(), self.strip_bytes)
    }

    /// Recovers, and judges what is there then; and what is there if that is interrupted.
    fn recovered<A: Allowed>(&mut self, world: &Arc<World>, promise: &A, boot: usize) -> Result<(), String> {
        *(if boot == 0 { &mut self.tally.states } else { &mut self.tally.in_recoveries }) += 1;
        world.record();
        let recovered = recover(world, BOOTS[boot])?;
        let cuts = world.take();
        promise.compare(world, &recovered)?;
        if boot > 0 {
            return Ok(());
        }
        for cut in &cuts {
            self.cut(cut, promise, boot + 1).map_err(|wrong| format!("cut in the recovery: {wrong}"))?;
            self.tally.in_recoveries += 1;
            let killed = self.killed(cut);
            let again = recover(&killed, BOOTS[boot])?;
            promise.compare(&killed, &again).map_err(|wrong| format!("killed in the recovery: {wrong}"))?;
        }
        cuts.iter().try_for_each(|cut| self.used(cut)).map_err(|wrong| format!("used in the recovery: {wrong}"))
    }
}

/// The first lines of a journal beside persistent memory.
fn first_lines() -> String {
    journal::first_lines("run", "first", Domain::PowerFail { caches_included: false })
}

fn refused(why: String) -> RunFailure {
    RunFailure::Pool { pool: "pool".into(), why }
}

/// The pool in the memory of `world`.
fn parts_of(world: &Arc<World>) -> Parts<Watched> {
    let shape = Shape { strips: 2, strip_bytes: world.strip_bytes, void_bytes: VOID_BYTES };
    Parts::shaped(Arc::new(world.memory()), shape)
}

fn recover(world: &Arc<World>, boot: &str) -> Result<Recovered, String> {
    let journal = world.disks().journal.clone();
    let Some(mut left) = journal.and_then(|journal| Left::parse(&journal)) else { return Ok(Recovered::default()) };
    let mut journal = Journal::of(Box::new(SimLog(world.clone())), "run");
    let ground = SimGround(world.clone());
    sync_each(&mut left, boot, &ground, &mut journal).map_err(|error| error.to_string())?;
    let mut recovery = Recovery { left: &left, boot: boot.to_owned(), journal, ground: &ground };
    let mut recovered = Recovered::default();
    if recovery.has_work() {
        let parts = parts_of(world);
        recovered = recovery.bring(parts, refused).map_err(|failure| format!("{failure:?}"))?;
    }
    world.set_brought();
    recovery.end(Some(parts_of(world))).map_err(|error| error.to_string())?;
    Ok(recovered)
}

/// Bytes, those that are alike together.
fn runs(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|one, next| one == next).map(|run| format!("{}×{:02x}", run.len(), run[0]));
    runs.collect::<Vec<_>>().join(" ")
}

/// Every script of up to so many steps, or of as many as `TIDEGATE_STEPS` says; one in five of
/// them unless `TIDEGATE_SCRIPTS` asks for all. `behind` steps that come before them move the
/// choice, so that campaigns over different states take different ones.
fn scripts<S: Copy>(alphabet: &[S], steps: u32, behind: usize) -> impl Iterator<Item = Vec<S>> {
    let steps = std::env::var("TIDEGATE_STEPS").map_or(steps, |steps| steps.parse().expect("a number of steps"));
    let one_in = if std::env::var_os("TIDEGATE_SCRIPTS").is_some() { 1 } else { 5 };
    let each = alphabet.len();
    let script = move |steps, number| (0..steps).map(|place| alphabet[number / each.pow(place) % each]).collect();
    let all = (1..=steps).flat_map(move |steps| (0..each.pow(steps)).map(move |number| script(steps, number)));
    all.skip(behind % one_in).step_by(one_in)
}

/// A file that is held, with something synced that only the pool has.
const BUSY: [Step; 4] = [Step::Hold, Step::Append, Step::Write, Step::Sync];

/// The same once the strip was full, its file was brought to its disk, and the strip is filled
/// again.
const ABSORBED: [Step; 10] = {
    use Step::{Append, Destage, Hold, Sync, Write};
    [Hold, Write, Sync, Append, Append, Append, Sync, Destage, Write, Sync]
};

/// A file that was renamed without a word to its disk, and is held again, with something synced
/// that only the pool has.
const RENAMED: [Step; 6] = {
    use Step::{Hold, Rename, Sync, Write};
    [Hold, Write, Rename, Hold, Write, Sync]
};

/// On small strips: a filling is handed over that the supervisor has not absorbed,
const HANDED_OVER: [Step; 3] = [Step::Hold, Step::Write, Step::Sync];

/// and something lies on the other strip.
const BOTH: [Step; 5] = [Step::Hold, Step::Write, Step::Sync, Step::Write, Step::Sync];

/// The same once the older filling was absorbed, and the strip that it was on is filled again.
const AGAIN: [Step; 9] = {
    use Step::{Absorb, Hold, Sync, Write};
    [Hold, Write, Sync, Write, Sync, Absorb, Sync, Write, Sync]
};

fn every_script(before: &[Step], steps: u32) {
    every_script_on(STRIP_BYTES, before, steps);
}

fn every_script_on(strip_bytes: u64, before: &[Step], steps: u32) {
    let mut judge = Judge::on(strip_bytes);
    scripts(&ALPHABET, steps, before.len())
        .try_for_each(|script| judge.script(before, &script, None))
        .unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{:?}", judge.tally);
    assert!(judge.tally.states > 0 && judge.tally.in_recoveries > 0);
}

#[test]
fn every_cut_of_every_script_on_a_file_that_is_not_held() {
    every_script(&[], 2);
}

#[test]
fn every_cut_of_every_script_on_a_file_that_is_held() {
    every_script(&BUSY, 1);
}

#[test]
fn every_cut_of_every_script_on_a_file_that_was_renamed_and_is_held_again() {
    every_script(&RENAMED, 1);
    let mut judge = Judge { in_common: true, ..Judge::on(STRIP_BYTES) };
    for step in [Step::Write, Step::Rename, Step::Die] {
        judge.script(&RENAMED, &[step], None).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

#[test]
fn every_cut_beside_a_program_that_cannot_reach_the_supervisor() {
    use Step::{Stranger, Sync, Write};
    let mut judge = Judge::on(STRIP_BYTES);
    let scripts: [&[Step]; 3] =
        [&[Stranger, Write, Sync], &[Stranger, Write, Sync, Stranger], &[Stranger, Stranger, Write, Sync]];
    for script in scripts {
        judge.script(&BUSY, script, None).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    println!("{:?}", judge.tally);
}

#[test]
fn every_cut_of_every_script_behind_a_filling_that_was_absorbed() {
    every_script(&ABSORBED, 1);
}

#[test]
fn every_cut_of_every_script_while_a_filling_is_handed_over() {
    every_script_on(SMALL_STRIP_BYTES, &HANDED_OVER, 1);
}

#[test]
fn every_cut_of_every_script_while_fillings_of_both_strips_count() {
    every_script_on(SMALL_STRIP_BYTES, &BOTH, 1);
}

#[test]
fn every_cut_of_every_script_while_the_strip_that_was_absorbed_is_filled_again() {
    every_script_on(SMALL_STRIP_BYTES, &AGAIN, 1);
}

#[test]
fn a_file_that_somebody_else_cut_does_not_get_its_end_back() {
    use Step::{Append, Hold, ShortenOutside, Sync, Write};
    let scripts: [&[Step]; 4] = [
        &[Hold, ShortenOutside, Write, Sync],
        &[Hold, Write, Sync, ShortenOutside, Write, Sync],
        &[Hold, Append, Sync, ShortenOutside, Sync],
        &[Hold, Append, Write, Sync, ShortenOutside, Append, Sync],
    ];
    let mut judge = Judge::on(STRIP_BYTES);
    for script in scripts {
        judge.script(&[], script, None).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    println!("{:?}", judge.tally);
}

#[test]
fn strips_are_committed_to_and_absorbed() {
    let mut program = Program::start(vec![0xaa; 9000]);
    ABSORBED.iter().for_each(|step| program.step(*step));
    let status = program.keeper.status();
    // The first sync of a hold is the kernel's, and one was the supervisor's: what it keeps is no
    // more on the strip.
    assert_eq!((status.kept, status.files[0].by_program, status.by_kernel), (3, 2, 1));
    assert_eq!(program.filling(), Some(2));
    assert_eq!(status.files[0].bytes, (WRITE + (WRITE + 15_000) + WRITE) as u64);
}

#[test]
fn strips_are_filled_in_turn_while_the_supervisor_absorbs_them() {
    let mut program = Program::start_on(SMALL_STRIP_BYTES, vec![0xaa; 9000]);
    AGAIN.iter().for_each(|step| program.step(*step));
    let status = program.keeper.status();
    // What the supervisor absorbed had been synced.
    assert_eq!((status.kept, status.files[0].by_program, status.by_kernel), (3, 3, 1));
    assert_eq!((program.filling(), program.later.as_ref().map(|later| later.filling)), (Some(3), Some(2)));
    assert_eq!(status.files[0].bytes, 3 * WRITE as u64);
}

#[test]
fn what_lies_on_strips_alone_is_told() {
    use Step::{Absorb, Append, Hold, Lengthen, Rename, Sync, Write};
    let mut program = Program::start_on(SMALL_STRIP_BYTES, vec![0xaa; 9000]);
    let write = WRITE as u64;
    let mut after = |steps: &[Step], bring: bool| {
        steps.iter().for_each(|step| program.step(*step));
        if bring {
            program.keeper.kept().bring_committed();
        }
        let pool = program.keeper.status().pool;
        (pool.strip_bytes, pool.waiting_bytes)
    };
    assert_eq!(after(&[Hold, Write], false), (0, 0), "it was not synced");
    assert_eq!(after(&[Sync], false), (write, 0));
    // The word of the strip says what it said before.
    assert_eq!(after(&[], true), (0, 0));
    assert_eq!(after(&[Write, Sync], false), (write, 0));
    // The older one is on its disk, and blocks of it wait for that again, with its size.
    assert_eq!(after(&[Absorb], false), (write, 3 * 4096));
    assert_eq!(after(&[Sync, Write, Sync], false), (2 * write, 3 * 4096), "on both strips");
    assert_eq!(after(&[Append, Sync], false).0, 0, "the supervisor keeps all of it");
    assert_eq!(after(&[Write, Sync], false).0, write);
    assert_eq!(after(&[Lengthen, Sync], false).0, 0, "the kernel synced it");
    assert_eq!(after(&[Write, Sync], false).0, write);
    assert_eq!(after(&[Rename], false).0, 0, "it is held no more");
}

#[test]
fn fillings_are_absorbed_in_their_order_and_nothing_is_kept_before_them() {
    let mut program = Program::start_on(SMALL_STRIP_BYTES, vec![0xaa; 9000]);
    BOTH.iter().for_each(|step| program.step(*step));
    assert_eq!(program.filling(), Some(2));
    let Later { hold, size, filling, ranges } = program.later.take().expect("it was handed over");
    let ranges = &*ranges;
    assert_eq!(program.ask(&Request::Keep { hold, size, filling: filling + 1, ranges }), Answer::ByKernel);
    assert_eq!(program.ask(&Request::Absorb { hold, size, filling: filling + 1, ranges }), Answer::ByKernel);
    assert_eq!(program.ask(&Request::Keep { hold, size, filling: 0, ranges }), Answer::ByKernel, "one waits");
    assert_eq!(program.ask(&Request::Absorb { hold, size, filling, ranges }), Answer::Done);
    assert_eq!(program.ask(&Request::Absorb { hold, size, filling, ranges }), Answer::ByKernel, "it was absorbed");
    assert_eq!(program.ask(&Request::Absorb { hold, size, filling: filling + 1, ranges }), Answer::Done);
    assert_eq!(program.ask(&Request::Keep { hold, size, filling: 0, ranges }), Answer::Done);
}

#[test]
fn mistakes_are_noticed() {
    use Step::{Absorb, AbsorbBeside, Append, Destage, Hold, Lengthen, Stranger, Sync, Write};
    let full = [Hold, Write, Sync, Append, Append, Write, Write, Write, Write, Write];
    let turned = [Hold, Append, Append, Write, Write, Sync];
    let shown: [(Mistake, u64, &[Step], &[Step]); 7] = [
        (Mistake::LostMap, STRIP_BYTES, &[Hold, Write, Sync], &[Write, Lengthen, Sync, Write]),
        (Mistake::FillingNotTold, STRIP_BYTES, &full, &[Write, Sync, Destage]),
        (Mistake::NoLook, STRIP_BYTES, &[Hold, Write, Sync], &[Stranger, Stranger, Write, Sync]),
        (Mistake::NewerFirst, STRIP_BYTES, &turned, &[Write, Sync, Absorb, Write]),
        (Mistake::WrongStrip, SMALL_STRIP_BYTES, &HANDED_OVER, &[AbsorbBeside]),
        (Mistake::TooSoon, STRIP_BYTES, &turned, &[Append, Sync, Append]),
        (Mistake::PathLeft, STRIP_BYTES, &RENAMED, &[Write]),
    ];
    for (mistake, strip_bytes, before, script) in shown {
        let judged = Judge::on(strip_bytes).script(before, script, Some(mistake));
        println!("{mistake:?}: {}", judged.expect_err("nobody noticed"));
    }
}

/// Steps of programs that write a file in common; what is held is what has joined.
const IN_COMMON: [Step; 11] = [
    Step::Write,
    Step::Append,
    Step::Sync,
    Step::Shorten,
    Step::Lengthen,
    Step::Rename,
    Step::Hold,
    Step::ShortenOutside,
    Step::Destage,
    Step::Stranger,
    Step::Die,
];

#[test]
fn every_cut_of_every_script_of_a_common_file_is_recovered() {
    let mut judge = Judge { in_common: true, ..Judge::on(STRIP_BYTES) };
    for script in scripts(&IN_COMMON, 2, 0) {
        judge.script(&BUSY, &script, None).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    println!("{:?}", judge.tally);
    assert!(judge.tally.states > 1000, "{:?}", judge.tally);
    let noticed = judge.script(&BUSY, &[Step::Write, Step::Sync], Some(Mistake::NotNoted));
    println!("{}", noticed.expect_err("nobody noticed"));
}

#[test]
fn what_is_kept_of_a_common_file_stays_if_its_disk_fails() {
    let mut program = Program::start(vec![0xaa; 9000]).in_common();
    BUSY.iter().for_each(|step| program.step(*step));
    let synced = program.world.disks().file.bytes.clone();
    // Its next sync is the kernel's, who says so once.
    program.step(Step::Lengthen);
    program.world.disks().failing = true;
    let mark = program.mark.expect("it joined");
    assert_eq!(program.ask(&Request::Sync { file: FILE, mark: mark ^ 64, whole: false }), Answer::NotHeld);
    assert!(program.world.disks().failing, "who knows another mark is not answered");
    assert_eq!(program.ask(&Request::Sync { file: FILE, mark, whole: false }), Answer::NotHeld);
    assert!(!program.world.disks().failing, "the kernel was asked");
    program.keeper.end(|_| {}).tell();
    let recovered = recover(&program.world, "second").expect("recovered");
    assert_eq!(recovered.salvaged.iter().map(|salvaged| salvaged.unlike).collect::<Vec<_>>(), [Unlike::Failed]);
    let disks = program.world.disks();
    let aside = disks.aside.as_ref().expect("it was put aside");
    assert_eq!(&aside.bytes[9000..synced.len()], &synced[9000..], "what was appended and synced");
}

#[test]
fn what_a_failing_disk_did_not_take_is_put_aside() {
    let mut program = Program::start(vec![0xaa; 9000]);
    BUSY.iter().for_each(|step| program.step(*step));
    program.world.disks().failing = true;
    program.step(Step::Destage);
    program.step(Step::Die);
    let ended = program.keeper.end(|_| {});
    ended.tell();
    // In the same boot: the kernel does not have it any more.
    let recovered = recover(&program.world, "first").expect("recovered");
    assert_eq!(recovered.salvaged.len(), 1);
    let disks = program.world.disks();
    let aside = disks.aside.as_ref().expect("it was put aside");
    assert_eq!(&aside.bytes[9000..], &disks.file.bytes[9000..], "what was appended and synced");
    assert_eq!(&aside.bytes[4096..4300], &disks.file.bytes[4096..4300], "what was written and synced");
    assert!(disks.journal.is_none());
}

#[test]
fn a_failed_disk_is_known_after_a_kill_whoever_found_out() {
    // The supervisor, before it was killed; or the recovery.
    for killed_first in [false, true] {
        let mut program = Program::start(vec![0xaa; 9000]);
        BUSY.iter().for_each(|step| program.step(*step));
        program.world.disks().failing = true;
        if !killed_first {
            program.step(Step::Destage);
        }
        let recovered = recover(&program.world, "first").expect("recovered");
        let why: Vec<_> = recovered.salvaged.iter().map(|salvaged| salvaged.unlike).collect();
        assert_eq!(why, [Unlike::Failed], "killed first: {killed_first}");
    }
}

#[test]
fn what_a_pool_that_is_no_persistent_memory_has_is_put_aside() {
    let mut program = Program::start(vec![0xaa; 9000]);
    BUSY.iter().for_each(|step| program.step(*step));
    let world = program.world.clone();
    let rest = journal_without_its_first_lines(&world);
    world.disks().journal = Some([journal::first_lines("run", "first", Domain::DiskFile).into_bytes(), rest].concat());
    let before = world.disks().file.bytes.clone();
    let recovered = recover(&world, "second").expect("recovered");
    assert_eq!(recovered.salvaged.iter().map(|salvaged| salvaged.unlike).collect::<Vec<_>>(), [Unlike::Newer]);
    assert!(recovered.written.is_empty() && world.disks().aside.is_some());
    assert_eq!(world.disks().file.bytes, before);
}

#[test]
fn only_a_pool_with_something_that_counts_needs_its_journal() {
    let started = || Program::start(vec![0xaa; 9000]);
    let has_something = |program: &Program| has_something(parts_of(&program.world)).expect("it opens");
    let mut program = started();
    assert!(!has_something(&program), "nothing was kept yet");
    BUSY.iter().for_each(|step| program.step(*step));
    assert!(has_something(&program), "it has what was synced");
    recover(&program.world, "second").expect("recovered");
    assert!(!has_something(&program), "the file has it now");
    let mut program = started();
    BUSY.iter().for_each(|step| program.step(*step));
    program.keeper.end(|_| {}).tell();
    assert!(!has_something(&program), "the run ended well");
}

#[test]
fn every_sync_of_a_held_file_is_counted_where_it_ends() {
    let mut program = Program::start(vec![0xaa; 9000]);
    for step in [Step::Hold, Step::Write, Step::Sync, Step::Lengthen, Step::Sync, Step::Write, Step::Sync] {
        program.step(step);
    }
    let status = program.keeper.status();
    assert_eq!(
        (status.kept, status.by_kernel),
        (2, 2),
        "the first one of a hold, and that of a longer file are the kernel's"
    );
    assert_eq!((status.files[0].kept, status.files[0].by_kernel), (2, 2));
}

#[test]
fn a_hold_ends_with_the_last_slot_of_its_family() {
    let mut program = Program::start(vec![0xaa; 9000]);
    program.step(Step::Hold);
    let hold = program.hold.expect("it is held");
    let forgotten = |_: &u32| matches!(program.ask(&Request::Forget { hold }), Answer::Anew { .. });
    // One was used when the file came to be held.
    assert_eq!((1..=FAMILY_SLOTS).take_while(forgotten).count(), FAMILY_SLOTS as usize - 2);
    assert_eq!(program.ask(&Request::Keep { hold, size: 9000, filling: 0, ranges: &[] }), Answer::NotHeld);
    assert_eq!(program.ask(&Request::Forget { hold }), Answer::NotHeld);
}

fn journal_without_its_first_lines(world: &World) -> Vec<u8> {
    let journal = world.disks().journal.clone().expect("there is a journal");
    journal.split_inclusive(|byte| *byte == b'\n').skip(2).flatten().copied().collect()
}
