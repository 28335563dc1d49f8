//! Who holds which file, and the answers to programs.
//!
//! A hold is ended in this order: no sync is kept any more, and the table says that no commit to
//! the strip counts any more; the kernel brings the file to its disk, what was kept is made void,
//! the table says that nobody holds it. If what was kept cannot be made void, everything is: all
//! holds are ended, and the journal says so. If a file cannot be brought to its disk, what is kept
//! of it stays, and the journal says that it may be older than the file: recovery puts it aside.
//!
//! A hold begins in this order: the journal says where the file is, the table says who holds it,
//! the file and the way to it are made durable, the program is told. So nothing is kept of a file
//! that a power cut puts back to another path.
//!
//! A filling of a strip may be absorbed while its program goes on. Whoever ends the hold waits
//! until that is done, or comes first, so that nothing is absorbed any more; what the program
//! committed on either strip before the table said that it may not is synced with the file.

mod abandoned;
mod joined;
mod unheld;

use self::abandoned::Abandoned;
use self::joined::Common;
pub use self::unheld::Unheld;
use self::unheld::{Refusal, Refusals};
use super::deny::Denied;
use super::ground::Below;
use super::held_file::HeldFile;
use super::held_name::HeldName;
use super::journal::{Journal, Named};
use super::kept::{self, FAMILY_SLOTS, Fill, Kept, NotKept, Place};
use super::notes::Notes;
use super::table::Table;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tidegate_host::progress::ProgressMeter;
use tidegate_media::Region;
use tidegate_preload_wire::{Answer, COMMON, FileId, Request, STATUS_BYTES_MAX};

/// Which files may be held.
pub(super) struct Scope {
    /// Those below these folders,
    pub(super) roots: Vec<PathBuf>,
    /// but not these.
    pub(super) denied: Denied,
}

impl Scope {
    fn has(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root)) && !self.denied.has(path)
    }
}

/// Who answers.
pub(super) struct Keeper<R: Region> {
    scope: Scope,
    kept: Kept<R>,
    /// Without them no file is common.
    notes: Option<Notes>,
    joining: Mutex<()>,
    /// None: the run has ended. Locked behind the state.
    journal: Arc<Mutex<Option<Journal>>>,
    state: Mutex<State>,
    /// Locked behind everything else.
    table: Arc<Mutex<Table>>,
    numbers: AtomicU64,
    /// Everything is the kernel's from now on. Set under the state's lock: what is held by then is
    /// found there.
    given_up: AtomicBool,
    /// Whether everything is void. Who comes second waits until the first has made it so.
    void: Mutex<bool>,
    tally: Tally,
}

struct State {
    holds: HashMap<u64, Arc<Hold>>,
    by_file: HashMap<FileId, u64>,
    abandoned: Abandoned,
    /// How often names were settled.
    settled: HashMap<FileId, u32>,
}

/// A name that was settled so often is held no more: those who use its folder take it from each
/// other.
const SETTLED_MAX: u32 = 16;

struct Hold {
    number: u64,
    holder: u64,
    file: FileId,
    born_ns: i128,
    path: PathBuf,
    began: Instant,
    counts: Counts,
    strip: Option<u32>,
    /// None: one process holds the file.
    common: Option<Common>,
    /// None: it has ended.
    place: Mutex<Option<Place>>,
}

/// What stays in the pool of a file that is held no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    Something,
}

/// Syncs of a file.
#[derive(Default)]
struct Counts {
    kept: AtomicU64,
    by_kernel: AtomicU64,
    /// Bytes that were written between the syncs that were kept.
    bytes: AtomicU64,
    /// Nanoseconds that those took.
    ns: AtomicU64,
}

impl Counts {
    /// A sync was kept that began then.
    fn keep(&self, tally: &Tally, began: Instant) {
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.ns.fetch_add(ns, Ordering::Relaxed);
        add_one([&tally.kept, &self.kept]);
    }
}

/// What a run is doing.
#[derive(Debug, Deserialize, Serialize)]
pub struct Status {
    /// The pool.
    pub pool: Fill,
    /// Files that were held so far, and syncs of all of them.
    pub held: u64,
    /// Those that ended in the pool,
    pub kept: u64,
    /// and in the kernel, while their files were held.
    pub by_kernel: u64,
    /// Files that could not be brought to their disks.
    pub failed: u64,
    /// Those that are not held, and why.
    pub unheld: Unheld,
    /// What is held now, those with the most syncs first.
    pub files: Vec<FileStatus>,
    /// Held files that are not told of here.
    pub more: usize,
}

/// A held file.
#[derive(Debug, Deserialize, Serialize)]
pub struct FileStatus {
    /// Where it was when it was first held.
    pub path: PathBuf,
    /// Since when it is held, in milliseconds.
    pub held_ms: u64,
    /// Syncs that ended in the pool,
    pub kept: u64,
    /// those among them that its program did by itself,
    pub by_program: u64,
    /// and syncs that ended in the kernel.
    pub by_kernel: u64,
    /// Bytes that were synced to the pool.
    pub bytes: u64,
    /// Microseconds of one sync that the supervisor did.
    pub keep_us: Option<u64>,
}

/// Files that are told of at most, and bytes of their paths: the answer has to be one packet.
const TOLD_FILES_MAX: usize = 30;
const TOLD_PATH_BYTES_MAX: usize = 300;
/// A byte of a path takes six at most as JSON.
const _: () = assert!(TOLD_FILES_MAX * (TOLD_PATH_BYTES_MAX * 6 + 200) + 600 <= STATUS_BYTES_MAX);

#[derive(Default)]
struct Tally {
    held: AtomicU64,
    failed: AtomicU64,
    kept: AtomicU64,
    by_kernel: AtomicU64,
    refusals: Refusals,
}

/// What a run did.
pub(super) struct Ended {
    held: u64,
    kept: u64,
    by_kernel: u64,
    failed: u64,
    unheld: Unheld,
}

impl Ended {
    /// Says so, if there was anything.
    pub(super) fn tell(&self) {
        let Ended { held, kept, by_kernel, failed, unheld } = self;
        if *failed > 0 {
            tracing::warn!(
                "{failed} files were not written back: their synced bytes are still in the pool; `tidegate recover` writes them back or saves them to a separate file"
            );
        }
        if *held > 0 {
            tracing::info!(
                "{kept} syncs of {held} files completed in persistent memory, {by_kernel} fell back to the kernel"
            );
        }
        match (held, unheld.is_nothing()) {
            (_, false) => tracing::info!("files that were not accelerated: {unheld}"),
            (0, true) => tracing::info!(
                "no file was accelerated: no file under --root was fsynced four times by a dynamically linked program (static binaries such as Go's cannot be intercepted)"
            ),
            _ => {}
        }
    }
}

/// Nothing is concluded from a count.
fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// The same of many.
fn add_one(counters: [&AtomicU64; 2]) {
    for counter in counters {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes that the file of `family` could not be brought to its disk.
fn add_failed(journal: &Mutex<Option<Journal>>, family: u32) {
    if let Some(Err(error)) = lock(journal).as_mut().map(|journal| journal.add_failed(family)) {
        tracing::warn!("the journal of holds cannot be written: {error}");
    }
}

/// Makes durable that `file`, which the table has, is where the journal says: recovery looks for it
/// there. Whoever renames it looks at the table behind the kernel's work, and who did so before
/// that is found out here.
fn can_be_found(file: &dyn Below) -> bool {
    file.sync_in_place().unwrap_or_else(|error| {
        tracing::debug!("{} is not accelerated, as its path cannot be made durable: {error}", file.path().display());
        false
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R: Region> Keeper<R> {
    /// With nothing held.
    pub(super) fn new(scope: Scope, kept: Kept<R>, table: Table, journal: Journal) -> Keeper<R> {
        let state = State {
            holds: HashMap::new(),
            by_file: HashMap::new(),
            abandoned: Abandoned::default(),
            settled: HashMap::new(),
        };
        let (journal, table) = (Arc::new(Mutex::new(Some(journal))), Arc::new(Mutex::new(table)));
        let its = (Arc::clone(&journal), Arc::clone(&table));
        kept.on_failure(move |slot, file| {
            add_failed(&its.0, slot / FAMILY_SLOTS);
            // From now on the program is to ask, and to be told.
            lock(&its.1).allow(file, 0);
        });
        Keeper {
            scope,
            kept,
            notes: None,
            joining: Mutex::new(()),
            journal,
            state: Mutex::new(state),
            table,
            numbers: AtomicU64::new(1),
            given_up: AtomicBool::new(false),
            void: Mutex::new(false),
            tally: Tally::default(),
        }
    }

    /// With `notes`, so that files may be common.
    pub(super) fn with_notes(self, notes: Notes) -> Keeper<R> {
        Keeper { notes: Some(notes), ..self }
    }

    /// What is kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> &Kept<R> {
        &self.kept
    }

    /// A number that nobody had before.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Answers `request` of `holder`; `passed` came with it.
    pub(super) fn answer(&self, holder: u64, request: &Request<'_>, passed: Option<OwnedFd>) -> Answer {
        match *request {
            Request::Hold => passed.and_then(|passed| self.hold(holder, passed)).unwrap_or(Answer::Refused),
            Request::HoldName => passed.and_then(|passed| self.hold_name(holder, passed)).unwrap_or(Answer::Refused),
            Request::Join => passed.and_then(|passed| self.join(holder, passed)).unwrap_or(Answer::Refused),
            Request::Sync { file, mark, whole } => self.sync_common(file, mark, whole),
            Request::Keep { hold, size, filling, ranges } => self.keep(hold, size, filling, ranges),
            Request::Absorb { hold, size, filling, ranges } => self.absorb(hold, size, filling, ranges),
            Request::Forget { hold } => self.forget(hold),
            Request::Settle(file) => {
                self.count_settled(file);
                self.of_file(file).iter().for_each(|hold| self.end_hold(hold));
                Answer::Done
            }
            Request::Abandon { file, born_ns } => {
                self.abandon(file, born_ns.map(i128::from));
                Answer::Done
            }
            Request::SettleAll => {
                self.end_all();
                Answer::Done
            }
            // Its answer is no packet of words: the door gives it.
            Request::Status => Answer::Refused,
        }
    }

    fn hold(&self, holder: u64, passed: OwnedFd) -> Option<Answer> {
        let file = HeldFile::of(&passed).ok().flatten().or_else(|| self.refuse(Refusal::Unfit))?;
        // What a program has open is not to stay open here: its locks go with the last descriptor.
        drop(passed);
        if file.takes_of_reserve() {
            return None;
        }
        self.hold_file(holder, Arc::new(file))
    }

    /// Ends the hold of `file`, which was born then, or of the name that it has, and lets nobody
    /// hold it any more.
    fn abandon(&self, file: FileId, born_ns: Option<i128>) {
        let name = lock(&self.table).name_of(file);
        let file = name.unwrap_or(file);
        // What is held is the one that is meant: its number is no other file's as long as it is
        // open here. And nobody else knows when a name's folder was born.
        let held = self.of_file(file).map(|hold| hold.born_ns);
        lock(&self.state).abandoned.insert(file, held.or(born_ns.filter(|_| name.is_none())));
        // Whoever came to hold it before that is found now.
        self.of_file(file).iter().for_each(|hold| self.end_hold(hold));
    }

    /// Counts that a name is settled.
    fn count_settled(&self, file: FileId) {
        let held = self.of_file(file).filter(|hold| hold.file.is_name());
        held.into_iter().for_each(|hold| *lock(&self.state).settled.entry(hold.file).or_default() += 1);
    }

    fn hold_name(&self, holder: u64, passed: OwnedFd) -> Option<Answer> {
        let name = HeldName::of(&passed).ok()??;
        drop(passed);
        let settled = lock(&self.state).settled.get(&name.id()).copied().unwrap_or_default();
        if name.takes_of_reserve() || settled >= SETTLED_MAX {
            return None;
        }
        // Without strips there is nothing that tells of it.
        let answer = self.hold_file(holder, Arc::new(name))?;
        match answer {
            Answer::Held { hold, strip: None, .. } => {
                self.of_number(hold).iter().for_each(|hold| self.end_hold(hold));
                None
            }
            answer => Some(answer),
        }
    }

    /// `holder` holds `file` from now on, if it may.
    pub(super) fn hold_file(&self, holder: u64, file: Arc<dyn Below>) -> Option<Answer> {
        if !self.scope.has(file.path()) {
            return self.refuse(Refusal::Denied);
        }
        let id = file.id();
        if let Some(hold) = self.of_file(id) {
            // The asker does not know yet.
            if hold.common.is_some() {
                return Some(Answer::NotHeld);
            }
            // Of a process that has ended, as no living one may hold it and ask again.
            self.end_hold(&hold);
        }
        let family = self.kept.family().or_else(|| self.refuse(Refusal::Full))?;
        let strip = self.kept.strip();
        let answer = self.enter(holder, file, family, strip, None);
        if answer.is_none() {
            self.kept.take_back(strip);
        }
        answer
    }

    /// Enters that `file` is held: by `holder` alone, or as it is `common`.
    fn enter(
        &self,
        holder: u64,
        file: Arc<dyn Below>,
        family: u32,
        strip: Option<u32>,
        common: Option<Common>,
    ) -> Option<Answer> {
        let id = file.id();
        let holder = if common.is_some() { COMMON } else { holder };
        let number = self.number();
        let mut state = lock(&self.state);
        let named = Named { strip, ..file.named(family) };
        let refused = state.abandoned.has(id, named.born_ns) || state.by_file.contains_key(&id);
        if refused || self.given_up.load(Ordering::SeqCst) {
            return None;
        }
        lock(&self.journal).as_mut()?.add(&named).ok()?;
        let path = file.path().to_owned();
        let slot = kept::first_slot(family);
        let mark = common.as_ref().map(|common| common.mark);
        if !lock(&self.table).enter(id, holder, mark.map_or(strip.map_or(0, |_| slot), u32::from)) {
            return None;
        }
        let place = Mutex::new(Some(self.kept.place(Arc::clone(&file), family, strip)));
        let counts = Counts::default();
        let born_ns = named.born_ns;
        let hold = Arc::new(Hold {
            number,
            holder,
            file: id,
            born_ns,
            path,
            began: Instant::now(),
            counts,
            strip,
            common,
            place,
        });
        // Whoever ends the hold meanwhile waits for this.
        let held = lock(&hold.place);
        state.holds.insert(number, Arc::clone(&hold));
        state.by_file.insert(id, number);
        drop(state);
        let can_be_found = can_be_found(&*file);
        drop(held);
        if !can_be_found {
            self.end_hold(&hold);
            return Some(Answer::Refused);
        }
        self.tally.held.fetch_add(1, Ordering::Relaxed);
        let strip = strip.map(|strip| self.kept.strip_range(strip));
        Some(mark.map_or(Answer::Held { hold: number, holder, slot, strip }, |mark| Answer::Joined { mark }))
    }

    fn keep(&self, hold: u64, size: u64, filling: u32, ranges: &[(u64, u64)]) -> Answer {
        let Some(hold) = self.of_number(hold) else { return Answer::NotHeld };
        let began = Instant::now();
        let answer = self.keep_of(&hold, |place| self.keep_in(place, size, filling, ranges));
        // One that ends in the kernel is counted when the program says that it has.
        if answer == Answer::Done {
            hold.counts.bytes.fetch_add(ranges.iter().map(|(_, len)| len).sum(), Ordering::Relaxed);
            hold.counts.keep(&self.tally, began);
        }
        answer
    }

    /// What the program has synced by itself, and counted: it goes on meanwhile.
    fn absorb(&self, hold: u64, size: u64, filling: u32, ranges: &[(u64, u64)]) -> Answer {
        let Some(hold) = self.of_number(hold) else { return Answer::NotHeld };
        self.keep_of(&hold, |place| {
            place.hand_over(filling);
            self.keep_in(place, size, filling, ranges)
        })
    }

    /// Has `keep` keep something in the place of `hold`, if it is held.
    fn keep_of(&self, hold: &Hold, keep: impl FnOnce(&mut Place) -> Answer) -> Answer {
        let answer = lock(&hold.place).as_mut().map_or(Answer::NotHeld, keep);
        // Behind what was kept and before it is promised: a program that says so later has the
        // kernel sync what is promised now.
        if answer == Answer::Done && self.is_stopped() {
            tracing::warn!("a program cannot reach this supervisor: from now on all syncs fall back to the kernel");
            self.give_up();
            return Answer::NotHeld;
        }
        answer
    }

    fn keep_in(&self, place: &mut Place, size: u64, filling: u32, ranges: &[(u64, u64)]) -> Answer {
        match self.kept.keep(place, size, filling, ranges) {
            Ok(()) => Answer::Done,
            Err(NotKept::NoRoom) => Answer::ByKernel,
            Err(NotKept::Unreadable(error)) => {
                tracing::debug!("{} cannot be read: {error}", place.file().path().display());
                Answer::ByKernel
            }
            Err(NotKept::Failed(error)) => self.refused(place, &error),
            Err(NotKept::Sealed(error)) => self.refused(place, &error),
        }
    }

    fn refused(&self, place: &Place, error: &dyn Display) -> Answer {
        tracing::warn!("the pool refuses what is synced to {}: {error}", place.file().path().display());
        Answer::ByKernel
    }

    /// Whether nothing may be promised any more.
    fn is_stopped(&self) -> bool {
        lock(&self.journal).as_mut().is_none_or(Journal::is_stopped)
    }

    /// What is going on.
    pub(super) fn status(&self) -> Status {
        let mut holds: Vec<_> = lock(&self.state).holds.values().cloned().collect();
        let kept = |hold: &Hold| count(&hold.counts.kept) + self.kept.done_at(hold.strip).syncs;
        holds.sort_by_cached_key(|hold| std::cmp::Reverse(kept(hold)));
        let file = |hold: &Arc<Hold>| FileStatus {
            path: hold.path.clone(),
            held_ms: u64::try_from(hold.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            kept: kept(hold),
            by_program: self.kept.done_at(hold.strip).syncs,
            by_kernel: count(&hold.counts.by_kernel),
            bytes: count(&hold.counts.bytes) + self.kept.done_at(hold.strip).bytes,
            keep_us: count(&hold.counts.ns).checked_div(count(&hold.counts.kept)).map(|ns| ns / 1000),
        };
        let short = |hold: &&Arc<Hold>| hold.path.as_os_str().len() <= TOLD_PATH_BYTES_MAX;
        let files: Vec<_> = holds.iter().filter(short).take(TOLD_FILES_MAX).map(file).collect();
        Status {
            pool: self.kept.fill(),
            held: count(&self.tally.held),
            kept: self.kept_so_far(),
            by_kernel: count(&self.tally.by_kernel),
            failed: count(&self.tally.failed),
            unheld: self.unheld(),
            more: holds.len() - files.len(),
            files,
        }
    }

    /// Syncs that ended in the pool.
    fn kept_so_far(&self) -> u64 {
        count(&self.tally.kept) + self.kept.done_at_strips().syncs
    }

    fn forget(&self, hold: u64) -> Answer {
        let Some(hold) = self.of_number(hold) else { return Answer::NotHeld };
        let forgotten = {
            let mut place = lock(&hold.place);
            let Some(its) = place.as_mut() else { return Answer::NotHeld };
            add_one([&self.tally.by_kernel, &hold.counts.by_kernel]);
            let forgotten = if self.kept.is_brought(its, true) {
                let slot = self.kept.forget(its);
                if let (Ok(Some(slot)), Some(_)) = (&slot, its.strip()) {
                    lock(&self.table).allow(hold.file, *slot);
                }
                slot.map(|slot| slot.ok_or(Rest::Nothing))
            } else {
                self.leave_failed(its);
                Ok(Err(Rest::Something))
            };
            // Without a slot of its own the place would be another file's.
            if let Ok(Err(_)) = forgotten {
                *place = None;
            }
            forgotten
        };
        match forgotten {
            Ok(Ok(slot)) => Answer::Anew { slot },
            // Without another slot the hold is over; the file is durable.
            Ok(Err(left)) => {
                self.remove(&hold, left);
                Answer::NotHeld
            }
            Err(error) => {
                tracing::warn!("the pool takes no stores any more: {error}");
                self.give_up();
                Answer::NotHeld
            }
        }
    }

    /// The process `holder` has ended.
    pub(super) fn release(&self, holder: u64) {
        let is_being_written = |mark| self.notes.as_ref().is_none_or(|notes| notes.is_being_written(mark));
        self.end_those(|hold| hold.holder == holder || hold.is_left_by(holder, is_being_written));
    }

    /// Files without a name are not held any more: they take room on their disk as long as they are
    /// open here. What was kept of one is brought to its disk as ever, as a power cut may give it
    /// its name back.
    pub(super) fn let_go_of_removed(&self) {
        self.end_those(|hold| lock(&hold.place).as_ref().is_some_and(|place| place.file().is_removed()));
    }

    fn end_all(&self) {
        self.end_those(|_| true);
    }

    /// Ends the holds that are there now and that `ends` names, which may look into their places:
    /// the state is not locked.
    fn end_those(&self, ends: impl Fn(&Hold) -> bool) {
        let all: Vec<_> = lock(&self.state).holds.values().cloned().collect();
        all.iter().filter(|hold| ends(hold)).for_each(|hold| self.end_hold(hold));
    }

    fn of_number(&self, number: u64) -> Option<Arc<Hold>> {
        lock(&self.state).holds.get(&number).cloned()
    }

    /// The hold of `file`, or of the name that it has.
    fn of_file(&self, file: FileId) -> Option<Arc<Hold>> {
        let name = if file.is_name() { None } else { lock(&self.table).name_of(file) };
        let file = name.unwrap_or(file);
        let state = lock(&self.state);
        state.by_file.get(&file).and_then(|number| state.holds.get(number)).cloned()
    }

    fn end_hold(&self, hold: &Hold) {
        let mut held = lock(&hold.place);
        let Some(place) = held.take() else { return };
        let brought = self.bring(hold, &place);
        if let Err(error) = if brought == Rest::Nothing { self.kept.end(&place) } else { Ok(()) } {
            tracing::warn!("the pool takes no stores any more: {error}");
            drop(held);
            self.give_up();
        }
        self.remove(hold, brought);
    }

    /// Brings the file to its disk, with everything that it ever got.
    fn bring(&self, hold: &Hold, place: &Place) -> Rest {
        // What its program commits from now on it takes for nothing, and what it committed before
        // is synced here.
        lock(&self.table).allow(hold.file, 0);
        let synced = place.file().sync();
        if let Err(error) = &synced {
            tracing::warn!("{} was not written back: {error}", place.file().path().display());
        }
        if self.kept.is_brought(place, synced.is_ok()) {
            return Rest::Nothing;
        }
        self.leave_failed(place);
        Rest::Something
    }

    /// What is kept of the file stays, and may be older than the file from now on.
    fn leave_failed(&self, place: &Place) {
        self.tally.failed.fetch_add(1, Ordering::Relaxed);
        add_failed(&self.journal, place.family());
    }

    fn remove(&self, hold: &Hold, left: Rest) {
        let mut state = lock(&self.state);
        let was_there = state.holds.remove(&hold.number).is_some();
        state.by_file.remove(&hold.file);
        lock(&self.table).remove(hold.file);
        if was_there && left == Rest::Nothing {
            self.kept.take_back(hold.strip);
        }
        if was_there && let Some((notes, common)) = self.notes.as_ref().zip(hold.common.as_ref()) {
            notes.end(common.mark);
        }
    }

    /// From now on nothing is held anew; what is held.
    fn stop_holding(&self) -> Vec<Arc<Hold>> {
        let state = lock(&self.state);
        self.given_up.store(true, Ordering::SeqCst);
        state.holds.values().cloned().collect()
    }

    /// Everything is the kernel's from now on: all that is kept is void.
    fn give_up(&self) {
        let mut void = lock(&self.void);
        if std::mem::replace(&mut *void, true) {
            return;
        }
        let held = self.stop_holding();
        for hold in &held {
            // Its strip is left alone: only the journal says that nothing on it counts.
            let _ = lock(&hold.place).take().map(|place| self.bring(hold, &place));
        }
        if let Some(Err(error)) = lock(&self.journal).as_mut().map(Journal::make_void) {
            tracing::warn!("the journal of holds cannot be written: {error}");
        }
        // Not before: what the kernel syncs for a program that finds it held by nobody is newer
        // than what was kept.
        held.iter().for_each(|hold| self.remove(hold, Rest::Something));
    }

    /// The program has ended: brings everything to its disk.
    pub(super) fn end(&self, tell: fn(&str)) -> Ended {
        let waiting = self.kept.dirty_bytes();
        let held = self.stop_holding();
        if !held.is_empty() {
            tracing::info!("bringing {} files to their disks, {waiting} bytes", held.len());
        }
        let mut meter = ProgressMeter::begin(waiting);
        for hold in &held {
            self.end_hold(hold);
            meter.line(Instant::now(), self.kept.dirty_bytes()).iter().for_each(|line| tell(line));
        }
        let journal = lock(&self.journal).take();
        let failed = count(&self.tally.failed);
        // What failed stays in the pool, and the next run finds it by the journal. Without a
        // journal nothing may seem to count.
        let whole = failed == 0 && self.kept.clear_strips().is_ok();
        if let Some(Err(error)) = journal.filter(|_| whole).map(Journal::end) {
            tracing::warn!("the journal of holds cannot be removed: {error}");
        }
        let (held, kept) = (count(&self.tally.held), self.kept_so_far());
        Ended { held, kept, by_kernel: count(&self.tally.by_kernel), failed, unheld: self.unheld() }
    }
}
