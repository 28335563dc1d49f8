//! A program under a run, as the library under it acts.

use super::world::{Disks, Open, SimLog, Watched, World};
use super::{FILE, HOLDER, Mistake, POOL_BYTES, Promise, STRIP_BYTES, Step, WRITE, first_lines, parts_of, refused};
use crate::deny::Denied;
use crate::ground::Log;
use crate::journal::Journal;
use crate::keeper::{Keeper, Scope};
use crate::kept::Kept;
use crate::notes::Notes;
use crate::span::Span;
use crate::table::Table;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_media::{MappedRegion, Region as _};
use tidegate_preload_wire::notes::{APPENDED, DOUBT, NOTES_BYTES, bits_at, flags_at, place_of, summary_at, turn_at};
use tidegate_preload_wire::{Answer, OPEN, Request, Row, SHUT, STOP, TABLE_BYTES, VOID, row_at, session_number};
use tidegate_sim::Region;
use tidegate_wal::pair::Pair;
use tidegate_wal::strip::{Left as Room, Staged};

/// The strips of a program, which it may use while the supervisor is at work.
#[derive(Clone)]
pub(super) struct Strips(Arc<Mutex<Pair<Span<Watched>>>>);

impl Strips {
    pub(super) fn lock(&self) -> MutexGuard<'_, Pair<Span<Watched>>> {
        self.0.lock().expect("no holder panics")
    }
}

/// A filling that is to be absorbed.
pub(super) struct Later {
    pub(super) hold: u64,
    pub(super) size: u64,
    pub(super) filling: u32,
    pub(super) ranges: Vec<(u64, u64)>,
}

/// A program under a run, as the library under it acts.
pub(super) struct Program {
    pub(super) world: Arc<World>,
    pub(super) keeper: Keeper<Watched>,
    pub(super) hold: Option<u64>,
    pub(super) in_doubt: bool,
    pub(super) ranges: Vec<(u64, u64)>,
    pub(super) promise: Promise,
    pub(super) byte: u8,
    /// Whether a stranger told the supervisor to stop.
    pub(super) told: bool,
    pub(super) strips: Option<Strips>,
    /// What was handed over and is not absorbed, as far as the program knows.
    pub(super) later: Option<Later>,
    pub(super) slot: u32,
    /// What was kept or put on the strips reaches to here.
    pub(super) top: u64,
    pub(super) table: Arc<Region>,
    pub(super) mistake: Option<Mistake>,
    /// Where it notes what it writes, if its file is to be common,
    pub(super) notes: Option<Arc<MappedRegion>>,
    /// and the file's mark, while it is.
    pub(super) mark: Option<u16>,
}

/// A supervisor in `world`, and its table.
pub(super) fn keeper_on(world: &Arc<World>) -> (Keeper<Watched>, Arc<Region>) {
    let kept = Kept::lay_out(parts_of(world), refused).expect("the region takes a pool");
    let scope = Scope { roots: vec!["/root".into()], denied: Denied::default() };
    let table = Arc::new(Region::new(TABLE_BYTES));
    let its = Table::on(Box::new(Arc::clone(&table)));
    (Keeper::new(scope, kept, its, Journal::of(Box::new(SimLog(world.clone())), "run")), table)
}

impl Program {
    pub(super) fn start(bytes: Vec<u8>) -> Program {
        Program::start_on(STRIP_BYTES, bytes)
    }

    pub(super) fn start_on(strip_bytes: u64, bytes: Vec<u8>) -> Program {
        let disks = Disks::new(bytes.clone(), first_lines());
        Program::on(World::new(Region::new(POOL_BYTES), disks, strip_bytes), bytes)
    }

    pub(super) fn on(world: Arc<World>, bytes: Vec<u8>) -> Program {
        let (keeper, table) = keeper_on(&world);
        let promise = Promise { contents: vec![bytes], paths: ["/root/a".into()].into() };
        Program {
            world,
            keeper,
            hold: None,
            in_doubt: false,
            ranges: Vec::new(),
            promise,
            byte: 0,
            told: false,
            strips: None,
            later: None,
            slot: 0,
            top: 0,
            table,
            mistake: None,
            notes: None,
            mark: None,
        }
    }

    /// The same, which writes its file in common with others.
    pub(super) fn in_common(self) -> Program {
        let notes = Arc::new(MappedRegion::anonymous(NOTES_BYTES).expect("memory"));
        let keeper = self.keeper.with_notes(Notes::on(Box::new(Arc::clone(&notes))));
        Program { keeper, notes: Some(notes), ..self }
    }

    /// What was handed over comes first.
    pub(super) fn ask(&mut self, request: &Request<'_>) -> Answer {
        self.absorb();
        self.keeper.answer(HOLDER, request, None)
    }

    fn absorb(&mut self) {
        let Some(Later { hold, size, filling, mut ranges }) = self.later.take() else { return };
        if let Some(strips) = self.strips.as_ref().filter(|_| self.mistake == Some(Mistake::NewerFirst)) {
            ranges = strips.lock().ranges().to_vec();
        }
        let answer = self.keeper.answer(HOLDER, &Request::Absorb { hold, size, filling, ranges: &ranges }, None);
        match answer {
            Answer::Done => _ = self.strips.as_ref().map(|strips| strips.lock().absorbed(filling)),
            Answer::ByKernel => self.in_doubt = true,
            _ => self.leave(),
        }
    }

    /// As [`Program::absorb`]; meanwhile the program writes and syncs.
    fn absorb_beside(&mut self) {
        let whole = self.later.is_some() && self.is_whole(self.world.disks().file.bytes.len() as u64);
        let Some(strips) = self.strips.clone().filter(|_| whole && self.may_commit()) else { return self.absorb() };
        if strips.lock().left() != Room::Enough {
            return self.absorb();
        }
        self.byte += 1;
        let (world, bytes) = (self.world.clone(), [self.byte; WRITE]);
        let write = move || {
            world.disks().file.write(4000, &bytes);
            let mut strips = strips.lock();
            assert_eq!(strips.stage(4000, &bytes), Ok(Staged::There));
            strips.commit().expect("the memory is sound");
        };
        *self.world.beside() = Some(Box::new(write));
        self.absorb();
        assert!(self.world.beside().take().is_none(), "it has read blocks");
        self.promise.contents = vec![self.world.disks().file.bytes.clone()];
    }

    pub(super) fn step(&mut self, step: Step) {
        let len = self.world.disks().file.bytes.len();
        match step {
            Step::Write => self.write(4000.min(len), WRITE),
            Step::Append => self.write(len, 5000),
            Step::Sync => self.sync(),
            Step::Shorten => {
                self.settle();
                self.world.disks().file.set_len(len / 2);
            }
            Step::Lengthen => {
                self.world.disks().file.set_len(len + 700);
                self.in_doubt = true;
                self.note(|place, turn| (flags_at(place, turn), DOUBT));
            }
            Step::Rename => {
                self.settle();
                let mut disks = self.world.disks();
                let to = if disks.file.path == Path::new("/root/b") { "/root/a" } else { "/root/b" };
                disks.file.rename(to);
            }
            Step::Hold => self.hold(),
            Step::ShortenOutside => self.world.disks().file.set_len(len / 2),
            Step::Destage => self.keeper.kept().step(64),
            Step::Stranger => self.stranger(),
            Step::Die => {
                // What it asked for before is answered first.
                self.absorb();
                self.keeper.release(HOLDER);
                self.leave();
            }
            Step::Absorb => self.absorb(),
            Step::AbsorbBeside => self.absorb_beside(),
        }
        let disks = self.world.disks();
        if self.promise.contents.last() != Some(&disks.file.bytes) {
            self.promise.contents.push(disks.file.bytes.clone());
        }
        self.promise.paths.insert(disks.file.path.clone());
    }

    fn write(&mut self, at: usize, len: usize) {
        self.byte += 1;
        let bytes = vec![self.byte; len];
        let is_behind = at == self.world.disks().file.bytes.len();
        self.world.disks().file.write(at, &bytes);
        if is_behind {
            self.note(|place, turn| (flags_at(place, turn), APPENDED));
        }
        for block in (at / 4096..(at + len).div_ceil(4096)).filter(|_| !is_behind) {
            self.note(|place, turn| (summary_at(place, turn, 0), 1 << (block / 64)));
            self.note(|place, turn| (bits_at(place, turn, block as u64 / 64), 1 << (block % 64)));
        }
        let range = (at as u64, len as u64);
        let staged = self.strips.as_ref().map(|strips| strips.lock().stage(range.0, &bytes));
        if staged == Some(Ok(Staged::There)) {
            self.top = self.top.max(range.0 + range.1);
        } else {
            self.ranges.push(range);
        }
    }

    /// Notes something of its file, if that is common. Nobody else is at work meanwhile.
    fn note(&self, what: impl Fn(u64, u64) -> (u64, u64)) {
        let noted = self.notes.as_ref().zip(self.mark).filter(|_| self.mistake != Some(Mistake::NotNoted));
        if let Some((notes, mark)) = noted {
            let word = |at| notes.load_u64(at).expect("the memory is sound");
            let (at, bits) = what(place_of(mark), word(turn_at(place_of(mark))));
            notes.store_u64(at, word(at) | bits);
        }
    }

    fn stranger(&mut self) {
        let what = if std::mem::replace(&mut self.told, true) {
            self.world.sync_file();
            VOID
        } else {
            self.world.disks().journal.iter_mut().for_each(|journal| journal[0] = SHUT);
            STOP
        };
        let said = SimLog(self.world.clone()).append(format!("\n{what}run\n").as_bytes());
        said.expect("the journal takes it");
    }

    pub(super) fn filling(&self) -> Option<u32> {
        self.strips.as_ref().map(|strips| strips.lock().filling())
    }

    fn leave(&mut self) {
        (self.hold, self.strips, self.mark) = (None, None, None);
    }

    fn settle(&mut self) {
        if self.hold.is_some() || self.mark.is_some() {
            self.leave();
            self.ask(&Request::Settle(FILE));
        }
    }

    fn hold(&mut self) {
        let path = self.world.disks().file.path.clone();
        let file = Arc::new(Open { world: self.world.clone(), path: path.clone() });
        if self.notes.is_some() {
            if let Some(Answer::Joined { mark }) = self.keeper.join_file(HOLDER, file) {
                self.mark = Some(mark);
                self.promise.paths = [path].into();
            }
            self.sync();
        } else if self.hold.is_none() {
            let held = self.keeper.hold_file(HOLDER, file);
            if let Some(Answer::Held { hold, slot, strip, .. }) = held {
                (self.hold, self.slot, self.top) = (Some(hold), slot, 0);
                self.promise.paths = [path].into();
                self.strips = strip.map(|strip| self.opened(strip));
            }
            self.in_doubt = true;
            self.sync();
        }
    }

    fn opened(&self, (at, len): (u64, u64)) -> Strips {
        let span = |at| Span::new(Arc::new(self.world.memory()), at, at + len / 2);
        let pair = Pair::open([span(at), span(at + len / 2)], session_number(b"run"), self.slot);
        Strips(Arc::new(Mutex::new(pair.expect("the memory is sound"))))
    }

    /// Whether the supervisor lets this program commit by itself, and nobody has said that nobody
    /// may.
    fn may_commit(&self) -> bool {
        let word = |column| self.table.load_u64(row_at(0) + column).expect("the memory is sound");
        let row = Row::of([0, 8, 16, 24].map(word));
        let open = self.world.disks().journal.as_ref().is_some_and(|journal| journal[0] == OPEN);
        row == Some(Row { file: FILE, holder: HOLDER, slot: self.slot.into() }) && open
    }

    /// Whether all that was written lies on strips, of a file of `size` bytes.
    fn is_whole(&self, size: u64) -> bool {
        self.hold.is_some() && !self.in_doubt && self.ranges.is_empty() && size >= self.top
    }

    /// Whether all that was written is synced by this program's own commit.
    fn commits(&mut self, size: u64) -> bool {
        let Some(strips) = self.strips.clone().filter(|_| self.is_whole(size)) else { return false };
        let commits = strips.lock().commit().is_ok();
        let counts = commits && (self.mistake == Some(Mistake::NoLook) || self.may_commit());
        if counts {
            self.hand_over(&strips, size);
        }
        counts
    }

    /// Goes on with the other strip if there is little room on this one.
    fn hand_over(&mut self, strips: &Strips, size: u64) {
        let left = strips.lock().left();
        if left == Room::HardlyAny {
            self.absorb();
        }
        let mut strips = strips.lock();
        let (filling, ranges) = (strips.filling(), strips.ranges().to_vec());
        let free = self.later.is_none() || self.mistake == Some(Mistake::TooSoon);
        let Some(hold) = self.hold.filter(|_| left != Room::Enough && free) else { return };
        if strips.turn() {
            self.later = Some(Later { hold, size, filling, ranges });
            self.top = self.top.max(size);
            if self.mistake == Some(Mistake::TooSoon) {
                strips.absorbed(filling);
            }
        }
    }

    fn sync(&mut self) {
        let size = self.world.disks().file.bytes.len() as u64;
        if !self.commits(size) {
            self.sync_by_others(size);
        }
        self.in_doubt = false;
        let disks = self.world.disks();
        self.promise.contents = vec![disks.file.bytes.clone()];
    }

    fn sync_by_others(&mut self, size: u64) {
        if let Some(mark) = self.mark {
            let answer = self.ask(&Request::Sync { file: FILE, mark, whole: false });
            if answer != Answer::Done {
                self.world.sync_file();
                self.leave();
            }
            return;
        }
        let mut ranges = std::mem::take(&mut self.ranges);
        let mut filling = 0;
        if let Some(strips) = self.strips.as_ref().map(Strips::lock).filter(|strips| !strips.ranges().is_empty()) {
            ranges.extend(strips.ranges());
            filling = strips.filling();
        }
        let told = if self.mistake == Some(Mistake::FillingNotTold) { 0 } else { filling };
        let answer = match self.hold {
            Some(hold) if !self.in_doubt && size >= self.top => {
                self.ask(&Request::Keep { hold, size, filling: told, ranges: &ranges })
            }
            Some(_) => Answer::ByKernel,
            None => Answer::NotHeld,
        };
        if answer == Answer::Done {
            self.strips.as_ref().map(|strips| strips.lock().absorbed(filling));
            self.top = self.top.max(size);
            return;
        }
        self.world.sync_file();
        let Some(hold) = self.hold.filter(|_| answer == Answer::ByKernel) else {
            self.leave();
            return;
        };
        match self.ask(&Request::Forget { hold }) {
            Answer::Anew { slot } => {
                (self.slot, self.top) = (slot, size);
                self.strips.iter().for_each(|strips| strips.lock().forgotten(slot));
            }
            _ => self.settle(),
        }
    }
}
