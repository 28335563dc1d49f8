//! Every power cut of every short script in which files of one name are made, synced and removed,
//! beside a dull model: all that the name has led to since the last time that something durable was
//! promised of it.

use super::folder::{FOLDER, OpenName};
use super::program::keeper_on;
use super::world::{Disks, Watched, World};
use super::{Allowed, HOLDER, Judge, POOL_BYTES, VOID_BYTES, first_lines, runs, scripts};
use crate::keeper::Keeper;
use crate::recover::Recovered;
use crate::span::Span;
use std::sync::Arc;
use tidegate_media::Region as _;
use tidegate_preload_wire::{Answer, Request, Row, row_at, session_number};
use tidegate_sim::Region;
use tidegate_wal::name::Name;
use tidegate_wal::strip::Staged;

/// Bytes of the strips: room for a few writes.
pub(super) const STRIP_BYTES: u64 = 1024;
const WRITE: usize = 100;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The program makes a file with the name, if there is none,
    Make,
    /// writes behind what it has written,
    Write,
    /// more than fits on the strip,
    WriteMuch,
    /// syncs it,
    Sync,
    /// syncs the folder,
    SyncFolder,
    /// and removes it.
    Remove,
    /// It asks for the name.
    Hold,
    /// Another program makes a file with the name, and syncs it and the folder;
    OtherMakes,
    /// or removes what has it, and syncs the folder.
    OtherRemoves,
    /// The program dies, and the supervisor lets go of the name.
    Die,
    /// The program renames the folder, which no sync of it or of files in it makes durable.
    MoveFolder,
}

const ALPHABET: [Step; 11] = [
    Step::Make,
    Step::Write,
    Step::WriteMuch,
    Step::Sync,
    Step::SyncFolder,
    Step::Remove,
    Step::Hold,
    Step::OtherMakes,
    Step::OtherRemoves,
    Step::Die,
    Step::MoveFolder,
];

/// What a judge has to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// A removal is not told.
    RemovalNotTold,
    /// The name of a young file is taken for durable with its folder, while the strip tells that
    /// nothing has it.
    NameNotTold,
    /// Nobody looks whether the kernel has synced the folder since it was changed.
    FolderNotSettled,
    /// The program does not look whether its commit counts.
    NoLook,
    /// The strip tells nothing any more before the folder is synced.
    DisclaimedTooSoon,
    /// A file that the strip does not have is taken for one that it has.
    SpoiltAndCommitted,
    /// Others do not know that the name is held.
    OthersUnaware,
    /// The memory takes no word of the map of void slots.
    LostMap,
    /// A name is held in a folder whose own name is not durable.
    PathLeft,
}

/// What may be found: everything that the name has led to since something was promised. The number
/// tells files apart.
#[derive(Clone, Debug, Hash)]
struct Promise(Vec<Option<(u64, Vec<u8>)>>);

impl Promise {
    /// Of a file any byte that it ever had: the kernel writes pages back as it likes.
    fn allows(&self, found: Option<&[u8]>) -> bool {
        let Some(found) = found else { return self.0.contains(&None) };
        let files = || self.0.iter().flatten();
        let of = |number: u64| files().filter(move |(other, _)| *other == number).map(|(_, bytes)| bytes);
        files().any(|(number, _)| {
            let lengths = || of(*number).map(Vec::len);
            let length = lengths().min() <= Some(found.len()) && Some(found.len()) <= lengths().max();
            let byte = |(at, byte): (usize, &u8)| of(*number).any(|one| one.get(at).copied().unwrap_or(0) == *byte);
            length && found.iter().enumerate().all(byte)
        })
    }
}

/// A program that holds a name, as the library under it acts.
pub(super) struct Program {
    pub(super) world: Arc<World>,
    pub(super) keeper: Keeper<Watched>,
    table: Arc<Region>,
    log: Option<Name<Span<Watched>>>,
    slot: u32,
    is_young: bool,
    is_spoilt: bool,
    /// Whether the strip tells of the young file; and whether it may tell anything.
    counts: bool,
    tells: bool,
    is_settled: bool,
    promise: Promise,
    number: u64,
    byte: u8,
    mistake: Option<Mistake>,
}

impl Program {
    pub(super) fn on(world: Arc<World>, mistake: Option<Mistake>) -> Program {
        let (keeper, table) = keeper_on(&world);
        Program {
            world,
            keeper,
            table,
            log: None,
            slot: 0,
            is_young: false,
            is_spoilt: false,
            counts: false,
            tells: false,
            is_settled: false,
            promise: Promise(vec![None]),
            number: 0,
            byte: 0,
            mistake,
        }
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        self.world.disks().folder.bytes().map(<[u8]>::to_vec)
    }

    fn is_mistaken(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn now(&self) -> Option<(u64, Vec<u8>)> {
        self.bytes().map(|bytes| (self.number, bytes))
    }

    /// What is now is durable.
    fn promise(&mut self) {
        self.promise = Promise(vec![self.now()]);
    }

    fn may_commit(&self) -> bool {
        let word = |column| self.table.load_u64(row_at(0) + column).expect("the memory is sound");
        let row = Row::of([0, 8, 16, 24].map(word));
        let allowed = row == Some(Row { file: FOLDER.name(b"name"), holder: HOLDER, slot: self.slot.into() });
        allowed || self.is_mistaken(Mistake::NoLook)
    }

    fn leave(&mut self) {
        (self.log, self.is_young, self.tells) = (None, false, false);
    }

    fn settle(&mut self) {
        self.keeper.answer(HOLDER, &Request::Settle(FOLDER.name(b"name")), None);
        self.leave();
    }

    /// The kernel is going to change what the name leads to, and the strip is not told.
    fn change(&mut self) {
        if self.log.is_some() && (self.tells || self.is_young) {
            self.settle();
        }
        self.is_settled = false;
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Make if self.bytes().is_none() => self.make(),
            Step::Write => self.write(WRITE),
            Step::WriteMuch => self.write(usize::try_from(STRIP_BYTES).expect("small")),
            Step::Sync if self.bytes().is_some() => self.sync(),
            Step::SyncFolder => self.sync_folder(),
            Step::Remove if self.bytes().is_some() => self.remove(),
            Step::Hold if self.bytes().is_some() && self.log.is_none() => self.hold(),
            Step::Make | Step::Sync | Step::Remove | Step::Hold => {}
            Step::OtherMakes | Step::OtherRemoves => self.others(step == Step::OtherMakes),
            Step::Die => {
                self.keeper.release(HOLDER);
                self.leave();
                self.is_settled = false;
            }
            Step::MoveFolder => {
                // All holds end.
                if self.log.is_some() {
                    self.settle();
                }
                self.world.disks().folder.rename();
                self.is_settled = false;
            }
        }
        let now = self.now();
        if self.promise.0.last() != Some(&now) {
            self.promise.0.push(now);
        }
    }

    fn make(&mut self) {
        self.is_young = self.log.is_some() && self.may_commit();
        if !self.is_young {
            self.change();
        }
        self.number += 1;
        self.world.disks().folder.make();
        let born = self.world.disks().folder.born().expect("it was made");
        if let Some(log) = self.log.as_mut().filter(|_| self.is_young) {
            log.begin(born).expect("the memory is sound");
        }
        (self.is_spoilt, self.counts) = (false, false);
    }

    fn write(&mut self, len: usize) {
        let Some(at) = self.bytes().map(|bytes| bytes.len()) else { return };
        self.byte += 1;
        let bytes = vec![self.byte; len];
        self.world.disks().folder.write(at, &bytes);
        if let Some(log) = self.log.as_mut().filter(|_| self.is_young) {
            self.is_spoilt |= log.stage(at as u64, &bytes) != Ok(Staged::There);
        }
    }

    fn sync(&mut self) {
        if !self.is_young {
            self.world.instant();
            self.world.disks().folder.sync_file();
            return;
        }
        let spoilt = self.is_spoilt && !self.is_mistaken(Mistake::SpoiltAndCommitted);
        if !spoilt && self.commits() {
            return self.promise();
        }
        if self.log.is_none() {
            return self.sync();
        }
        self.world.instant();
        self.world.disks().folder.sync_file();
        let early = self.is_mistaken(Mistake::DisclaimedTooSoon);
        if !early {
            self.world.sync_folder();
        }
        self.log.as_mut().expect("it was not left").disclaim().expect("the memory is sound");
        if early {
            self.world.sync_folder();
        }
        (self.is_young, self.tells, self.is_settled) = (false, false, true);
        self.promise();
    }

    fn commits(&mut self) -> bool {
        if !self.is_settled && !self.is_mistaken(Mistake::FolderNotSettled) {
            self.world.sync_folder();
            self.is_settled = true;
        }
        self.tells = true;
        let committed = self.log.as_mut().expect("a young file has one").commit([0o100_600, 0, 0]);
        if committed != Ok(Staged::There) {
            return false;
        }
        self.counts = true;
        let allowed = self.may_commit();
        if !allowed {
            self.leave();
        }
        allowed
    }

    fn sync_folder(&mut self) {
        if self.is_young && !self.counts && !self.is_spoilt && !self.is_mistaken(Mistake::NameNotTold) {
            self.tells = true;
            let committed = self.log.as_mut().expect("a young file has one").commit([0o100_600, 0, 0]);
            self.counts = committed == Ok(Staged::There);
        }
        let told = !self.is_young || self.counts;
        let settled = self.is_settled || self.is_mistaken(Mistake::FolderNotSettled);
        if !(self.log.is_some() && told && settled && self.may_commit()) {
            self.world.sync_folder();
            self.is_settled = true;
            if !told && !self.is_mistaken(Mistake::NameNotTold) {
                self.log.as_mut().expect("a young file has one").disclaim().expect("the memory is sound");
                (self.is_young, self.tells) = (false, false);
            }
        }
        let number = self.bytes().map(|_| self.number);
        self.promise.0.retain(|one| one.as_ref().map(|(number, _)| *number) == number);
    }

    fn remove(&mut self) {
        if self.is_young && self.may_commit() {
            self.world.instant();
            self.world.disks().folder.remove();
            if !self.is_mistaken(Mistake::RemovalNotTold) {
                self.tells = true;
                self.log.as_mut().expect("a young file has one").gone().expect("the memory is sound");
            }
            self.is_young = false;
            return self.promise();
        }
        self.change();
        self.world.instant();
        self.world.disks().folder.remove();
    }

    fn hold(&mut self) {
        let path = self.world.disks().folder.path();
        let held = self.keeper.hold_file(HOLDER, Arc::new(OpenName { world: self.world.clone(), path }));
        if let Some(Answer::Held { slot, strip: Some((at, len)), .. }) = held {
            let span = Span::new(Arc::new(self.world.memory()), at, at + len / 2);
            self.log = Some(Name::open(span, session_number(b"run"), slot).expect("the memory is sound"));
            (self.slot, self.is_young, self.tells, self.is_settled) = (slot, false, false, false);
        }
    }

    fn others(&mut self, make: bool) {
        if !self.is_mistaken(Mistake::OthersUnaware) {
            self.keeper.answer(HOLDER + 1, &Request::Settle(FOLDER.name(b"name")), None);
        }
        if self.bytes().is_some() {
            self.world.instant();
            self.world.disks().folder.remove();
        }
        if make {
            self.number += 1;
            self.world.disks().folder.make();
            self.world.disks().folder.write(0, &[0xee; 30]);
        }
        // What the holder had made is not at the name any more.
        self.is_young = false;
        self.world.sync_name();
        self.promise();
    }
}

/// Runs a script, and has `judge` judge every cut of its last step.
pub(super) fn judged(judge: &mut Judge, script: &[Step], mistake: Option<Mistake>) -> Result<(), String> {
    judge.tally.scripts += 1;
    let mut world = World::new(Region::new(POOL_BYTES), Disks::new(Vec::new(), first_lines()), STRIP_BYTES);
    let its = Arc::get_mut(&mut world).expect("nobody else has it");
    its.leaves_paths = mistake == Some(Mistake::PathLeft);
    if mistake == Some(Mistake::LostMap) {
        its.loses_from = POOL_BYTES - VOID_BYTES;
    }
    let mut program = Program::on(world, mistake);
    let (last, earlier) = script.split_last().expect("a script has steps");
    earlier.iter().for_each(|step| program.step(*step));
    let mut during = program.promise.clone();
    program.world.record();
    program.step(*last);
    during.0.extend(program.promise.0.clone());
    // Between what somebody removes and what he makes there is nothing, and then an empty file.
    if *last == Step::OtherMakes {
        during.0.extend([None, Some((program.number, Vec::new()))]);
    }
    let judged = judge.step(program.world.take(), &during, &program.promise);
    judged.map_err(|wrong| format!("{script:?}: {wrong}"))
}

impl Allowed for Promise {
    fn compare(&self, world: &World, _: &Recovered) -> Result<(), String> {
        let disks = world.disks();
        let found = disks.folder.bytes();
        if self.allows(found) {
            return Ok(());
        }
        let allowed: Vec<_> = self.0.iter().map(|one| told(one.as_ref().map(|(_, bytes)| &bytes[..]))).collect();
        Err(format!("{}, allowed: {}", told(found), allowed.join(" or ")))
    }
}

fn told(file: Option<&[u8]>) -> String {
    file.map_or_else(|| "nothing".to_owned(), |bytes| format!("a file of {}", runs(bytes)))
}

/// A name that is held, with a file that the kernel has made;
const HELD: [Step; 3] = [Step::Make, Step::Write, Step::Hold];
/// with nothing that has it, which the strip tells;
const GONE: [Step; 8] = {
    use Step::{Hold, Make, Remove, Sync, Write};
    [Make, Write, Hold, Remove, Make, Write, Sync, Remove]
};
/// with a young file that was synced, in a folder that was renamed without a word to its disk;
const MOVED: [Step; 9] = {
    use Step::{Hold, Make, MoveFolder, Remove, Sync, Write};
    [Make, Write, Hold, MoveFolder, Hold, Remove, Make, Write, Sync]
};
/// with a young file that was synced, and written since.
pub(super) const YOUNG: [Step; 8] = {
    use Step::{Hold, Make, Remove, Sync, Write};
    [Make, Hold, Remove, Make, Write, Sync, Write, Write]
};

fn every_script(before: &[Step], steps: u32) {
    let mut judge = Judge::on(STRIP_BYTES);
    for script in scripts(&ALPHABET, steps, before.len()) {
        judged(&mut judge, &[before, &script].concat(), None).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    println!("{:?}", judge.tally);
    assert!(judge.tally.states > 0 && judge.tally.in_recoveries > 0);
}

#[test]
fn every_cut_of_every_script_on_a_name_that_is_not_held() {
    every_script(&[], 3);
}

#[test]
fn every_cut_of_every_script_on_a_name_that_is_held() {
    every_script(&HELD, 3);
}

#[test]
fn every_cut_of_every_script_on_a_name_that_nothing_has() {
    every_script(&GONE, 2);
}

#[test]
fn every_cut_of_every_script_on_the_name_of_a_young_file() {
    every_script(&YOUNG, 2);
}

#[test]
fn every_cut_of_every_script_on_a_name_in_a_folder_that_was_renamed() {
    every_script(&MOVED, 1);
}

#[test]
fn young_files_are_synced_without_the_kernel() {
    let world = World::new(Region::new(POOL_BYTES), Disks::new(Vec::new(), first_lines()), STRIP_BYTES);
    let mut program = Program::on(world, None);
    GONE.iter().for_each(|step| program.step(*step));
    program.world.record();
    [Step::Make, Step::Write].iter().for_each(|step| program.step(*step));
    let disks = program.world.disks().folder.clone();
    program.step(Step::Sync);
    program.step(Step::SyncFolder);
    assert!(program.is_young && program.promise.0.len() == 1);
    let unchanged = program.world.disks().folder.images().len() == disks.images().len();
    assert!(unchanged, "the disk was told");
}

#[test]
fn a_file_that_others_made_unseen_is_left_alone() {
    for before in [&GONE[..], &YOUNG] {
        let script = [before, &[Step::OtherMakes]].concat();
        let judged = judged(&mut Judge::on(STRIP_BYTES), &script, Some(Mistake::OthersUnaware));
        judged.unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

#[test]
fn mistakes_are_noticed() {
    use Mistake::{
        DisclaimedTooSoon, FolderNotSettled, LostMap, NameNotTold, NoLook, OthersUnaware, PathLeft, RemovalNotTold,
        SpoiltAndCommitted,
    };
    use Step::{Die, Make, OtherRemoves, Remove, Sync, SyncFolder, Write, WriteMuch};
    let shown: [(Mistake, &[Step], &[Step]); 9] = [
        (RemovalNotTold, &YOUNG, &[Remove]),
        (NameNotTold, &GONE, &[Make, SyncFolder]),
        (FolderNotSettled, &HELD, &[Remove, SyncFolder]),
        (NoLook, &GONE, &[OtherRemoves, Make, Write, Sync]),
        (DisclaimedTooSoon, &GONE, &[Make, WriteMuch, Sync]),
        (SpoiltAndCommitted, &GONE, &[Make, WriteMuch, Sync]),
        (OthersUnaware, &YOUNG, &[OtherRemoves]),
        (LostMap, &YOUNG, &[Die, Remove, SyncFolder]),
        (PathLeft, &MOVED, &[Write]),
    ];
    for (mistake, before, script) in shown {
        let script = [before, script].concat();
        judged(&mut Judge::on(STRIP_BYTES), &script, None).unwrap_or_else(|wrong| panic!("without a mistake: {wrong}"));
        let noticed = judged(&mut Judge::on(STRIP_BYTES), &script, Some(mistake));
        println!("{mistake:?}: {}", noticed.expect_err("nobody noticed"));
    }
}
