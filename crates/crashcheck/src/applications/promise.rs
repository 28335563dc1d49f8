//! Protocols and their promises, as data.

use crate::applications::found::{Found, FoundFile};
use crate::applications::step::{Step, Turn};

/// What an application does again and again, and what holds whenever it is interrupted.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// What it is, and who does it.
    pub name: &'static str,
    /// How many processes do it at once.
    pub processes: u64,
    /// Act 0: done once, and durable before the first cut.
    pub before: &'static [Step],
    /// One act. After a cut, a process does the act again that was interrupted.
    pub act: &'static [Step],
    /// What holds for each process after every cut.
    pub promise: &'static [Clause],
}

/// What holds after every cut. `done` is the number of the last act that a process completed; the
/// one after it may be there or not. Paths are as in [`Step`](crate::applications::Step).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// The file of each act that was done is there, whole, with so many bytes of that act.
    Kept(&'static str, u64),
    /// The file of the act that was done last is there, whole.
    KeptLast(&'static str, u64),
    /// The file of the act that was done last is there, whole, or that of the next one.
    KeptLastOrNext(&'static str, u64),
    /// The file of each act is gone, or whole.
    Intact(&'static str, u64),
    /// A name of each act that was done is gone.
    Gone(&'static str),
    /// A name of each act before the one that was done last is gone.
    GoneWithNext(&'static str),
    /// The file is whole, and of the act that was done last or the next one.
    Newest(&'static str, u64),
    /// The file is whole, and of some act: act 0 at the least.
    Version(&'static str, u64),
    /// Two files are whole, and of one act or of acts that follow each other, whichever is newer.
    Exchanged(&'static str, &'static str, u64),
    /// Records of so many bytes, one of each act in order: all that were done, and nothing torn
    /// behind them. Zeroes may follow.
    Log(&'static str, u64),
    /// Records of several processes, none of them torn: of each process all that were done, in
    /// order. One may be there twice.
    SharedLog(&'static str, u64),
    /// So many slots of so many bytes, each as the last act left it that wrote it.
    Slots(&'static str, u64, u64),
    /// Slots as in [`Clause::Slots`], if records of a log of acts are put in place first.
    Redone(&'static str, &'static str, u64, u64),
    /// A file of so many bytes is of the act that was done last or the next one, if a journal that
    /// is whole is put back first.
    RolledBack(&'static str, &'static str, u64),
    /// A file names an act, done last or the next one, whose file is there, whole.
    Current(&'static str, &'static str, u64),
    /// Exactly one of two names of each act that was done is there, whole.
    OneOf(&'static str, &'static str, u64),
    /// `user.state` of the file is of the act that was done last or the next one.
    State(&'static str),
    /// The permissions are those of the act that was done last or the next one.
    Mode(&'static str),
    /// The file of each act that was done has so many names.
    Links(&'static str, usize),
    /// Records of each act that was done: all are zeroes but the last so many.
    Trimmed(&'static str, u64, u64),
    /// There are no more names than so many.
    NamesMax(usize),
}

/// A process when it was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessState {
    /// Its number, from 0.
    pub process: u64,
    /// The last act that it completed.
    pub done: u64,
}

impl Protocol {
    /// The steps of an act.
    pub fn steps(&self, act: u64) -> Vec<Step> {
        let steps = if act == 0 { self.before } else { self.act };
        steps.iter().flat_map(|step| step.of_act(act)).collect()
    }

    /// Whether what was found keeps every clause.
    ///
    /// # Errors
    /// The clause, the process, and what was found instead.
    pub fn judge(&self, found: &Found, processes: &[ProcessState]) -> Result<(), String> {
        for state in processes {
            for clause in self.promise {
                clause.judge(found, *state).map_err(|what| {
                    let ProcessState { process, done } = state;
                    format!("{clause:?} of process {process} is broken after {done} acts: {what}")
                })?;
            }
        }
        Ok(())
    }
}

impl ProcessState {
    fn turn(self, act: u64) -> Turn {
        Turn { act, process: self.process }
    }

    fn newest(self, turn: Option<Turn>, what: &str) -> Result<u64, String> {
        let fits = |turn: &Turn| turn.process == self.process && (self.done..=self.done + 1).contains(&turn.act);
        turn.filter(fits).map(|turn| turn.act).ok_or_else(|| format!("{what} is of {turn:?}"))
    }

    fn all_done(self) -> impl Iterator<Item = Turn> {
        (1..=self.done).map(move |act| self.turn(act))
    }
}

impl Clause {
    fn judge(self, found: &Found, state: ProcessState) -> Result<(), String> {
        let here = |path: &str| state.turn(state.done).path(path);
        match self {
            Clause::Kept(path, bytes) => state.all_done().try_for_each(|turn| is_of(found, path, turn, bytes)),
            Clause::KeptLast(path, bytes) if state.done > 0 => is_of(found, path, state.turn(state.done), bytes),
            Clause::KeptLastOrNext(path, bytes) if state.done > 0 => {
                let of = |act| is_of(found, path, state.turn(act), bytes);
                of(state.done).or_else(|last| of(state.done + 1).map_err(|_| last))
            }
            Clause::KeptLast(..) | Clause::KeptLastOrNext(..) => Ok(()),
            Clause::Intact(path, bytes) => state
                .all_done()
                .try_for_each(|turn| is_gone(found, path, turn).or_else(|_| is_of(found, path, turn, bytes))),
            Clause::Gone(path) => state.all_done().try_for_each(|turn| is_gone(found, path, turn)),
            Clause::GoneWithNext(path) => {
                let before = state.all_done().filter(|turn| turn.act < state.done);
                before.into_iter().try_for_each(|turn| is_gone(found, path, turn))
            }
            Clause::Newest(path, bytes) => state.newest(whole(found, &here(path), bytes)?, path).map(drop),
            Clause::Version(path, bytes) => {
                let turn = whole(found, &here(path), bytes)?;
                let fits = turn.is_some_and(|turn| turn.process == state.process && turn.act <= state.done + 1);
                if fits { Ok(()) } else { Err(format!("{path} is of {turn:?}")) }
            }
            Clause::Exchanged(first, second, bytes) => exchanged(found, [&here(first), &here(second)], bytes, state),
            Clause::Log(path, bytes) => log(found, &here(path), bytes, state).map(drop),
            Clause::SharedLog(path, bytes) => shared_log(found, &here(path), bytes, state),
            Clause::Slots(path, slots, bytes) => are_slots(&file(found, &here(path))?.bytes, (slots, bytes), state),
            Clause::Redone(data, log, slots, bytes) => redone(found, (&here(data), &here(log)), (slots, bytes), state),
            Clause::RolledBack(data, journal, bytes) => rolled_back(found, (&here(data), &here(journal)), bytes, state),
            Clause::Current(pointer, path, bytes) => {
                let act = state.newest(whole(found, &here(pointer), 8)?, pointer)?;
                is_of(found, path, state.turn(act), bytes)
            }
            Clause::OneOf(first, second, bytes) => state.all_done().try_for_each(|turn| {
                let there = [first, second].map(|path| found.get(&turn.path(path)).is_some());
                match there {
                    [true, false] => is_of(found, first, turn, bytes),
                    [false, true] => is_of(found, second, turn, bytes),
                    _ => Err(format!("of {first} and {second} of act {}: {there:?}", turn.act)),
                }
            }),
            Clause::State(path) => {
                let value = file(found, &here(path))?.state.clone().unwrap_or_default();
                state.newest(Turn::of_bytes(&value), "user.state").map(drop)
            }
            Clause::Mode(path) => {
                let mode = file(found, &here(path))?.mode;
                let fits = (state.done..=state.done + 1).any(|act| state.turn(act).mode() == mode);
                if fits { Ok(()) } else { Err(format!("the mode is {mode:o}")) }
            }
            Clause::Links(path, links) => state.all_done().try_for_each(|turn| {
                let there = file(found, &turn.path(path))?.links;
                if there == links { Ok(()) } else { Err(format!("act {} has {there} links", turn.act)) }
            }),
            Clause::Trimmed(path, bytes, kept) => trimmed(&file(found, &here(path))?.bytes, (bytes, kept), state),
            Clause::NamesMax(names) if found.0.len() <= names => Ok(()),
            Clause::NamesMax(_) => Err(format!("{:?}", found.0.keys())),
        }
    }
}

fn file<'a>(found: &'a Found, path: &str) -> Result<&'a FoundFile, String> {
    found.get(path).ok_or_else(|| format!("{path} is missing; there are {:?}", found.0.keys()))
}

/// Whose the whole file is; None: it is of nobody alone.
fn whole(found: &Found, path: &str, bytes: u64) -> Result<Option<Turn>, String> {
    let file = file(found, path)?;
    if file.bytes.len() as u64 != bytes {
        return Err(format!("{path} has {} bytes of {bytes}", file.bytes.len()));
    }
    Ok(Turn::of_bytes(&file.bytes))
}

fn is_of(found: &Found, path: &str, turn: Turn, bytes: u64) -> Result<(), String> {
    let path = turn.path(path);
    let of = whole(found, &path, bytes)?;
    if of == Some(turn) { Ok(()) } else { Err(format!("{path} is of {of:?}")) }
}

fn is_gone(found: &Found, path: &str, turn: Turn) -> Result<(), String> {
    let path = turn.path(path);
    if found.get(&path).is_none() { Ok(()) } else { Err(format!("{path} is back")) }
}

fn exchanged(found: &Found, paths: [&str; 2], bytes: u64, state: ProcessState) -> Result<(), String> {
    let [first, second] = [whole(found, paths[0], bytes)?, whole(found, paths[1], bytes)?];
    let (Some(first), Some(second)) = (first, second) else { return Err(format!("{paths:?} are torn")) };
    let newer = first.act.max(second.act);
    let fits = first.act.abs_diff(second.act) <= 1 && (state.done..=state.done + 1).contains(&newer);
    if fits { Ok(()) } else { Err(format!("{paths:?} are of {} and {}", first.act, second.act)) }
}

/// How many records there are.
fn log(found: &Found, path: &str, bytes: u64, state: ProcessState) -> Result<u64, String> {
    let record = usize::try_from(bytes).expect("few bytes");
    let empty = Vec::new();
    let all = found.get(path).map_or(&empty, |file| &file.bytes);
    let mut act = 0;
    while all.chunks(record).nth(act).is_some_and(|found| found == state.turn(act as u64 + 1).bytes(bytes)) {
        act += 1;
    }
    let behind = &all[act * record..];
    let act = act as u64;
    // A record that was never synced may be there by part.
    let next = state.turn(act + 1).number().to_le_bytes();
    let is_next = |word: &[u8]| word == next || word.iter().all(|byte| *byte == 0);
    let torn = behind.get(..record.min(behind.len())).unwrap_or_default();
    if !torn.chunks(8).all(is_next) || behind[torn.len()..].iter().any(|byte| *byte != 0) {
        return Err(format!("{path} has something else behind {act} records"));
    }
    let fits = (state.done..=state.done + 1).contains(&act);
    if fits { Ok(act) } else { Err(format!("{path} has {act} records")) }
}

fn shared_log(found: &Found, path: &str, bytes: u64, state: ProcessState) -> Result<(), String> {
    let mut last = 0;
    for record in file(found, path)?.bytes.chunks(usize::try_from(bytes).expect("few bytes")) {
        let turn = Turn::of_bytes(record).filter(|_| record.len() as u64 == bytes);
        let turn = turn.ok_or_else(|| format!("{path} has a torn record"))?;
        if turn.process != state.process {
            continue;
        }
        if turn.act != last && turn.act != last + 1 {
            return Err(format!("{path} has act {} behind {last}", turn.act));
        }
        last = turn.act;
    }
    if (state.done..=state.done + 1).contains(&last) { Ok(()) } else { Err(format!("{path} ends with {last}")) }
}

/// What a slot has after an act; None: no act wrote it.
fn slot_after(act: u64, slot: u64, slots: u64) -> Option<u64> {
    (1..=act).rev().take(usize::try_from(slots).expect("few slots")).find(|act| act % slots == slot)
}

fn are_slots(found: &[u8], (slots, bytes): (u64, u64), state: ProcessState) -> Result<(), String> {
    let after = |act| -> Vec<u8> {
        let slot = |slot| match slot_after(act, slot, slots) {
            Some(act) => state.turn(act).bytes(bytes),
            None => vec![0; usize::try_from(bytes).expect("few bytes")],
        };
        (0..slots).flat_map(slot).collect()
    };
    let len = usize::try_from(slots * bytes).expect("few bytes");
    let mut padded = found.to_vec();
    padded.resize(len.max(found.len()), 0);
    let behind = padded.split_off(len);
    if behind.iter().all(|byte| *byte == 0) && (state.done..=state.done + 1).any(|act| after(act) == padded) {
        return Ok(());
    }
    let of = |slot: &[u8]| Turn::of_bytes(slot).map(|turn| turn.act);
    let acts: Vec<_> = padded.chunks(usize::try_from(bytes).expect("few bytes")).map(of).collect();
    Err(format!("slots are of the acts {acts:?}"))
}

fn redone(
    found: &Found,
    (data, log): (&str, &str),
    (slots, bytes): (u64, u64),
    state: ProcessState,
) -> Result<(), String> {
    let record = usize::try_from(bytes).expect("few bytes");
    let mut pages = file(found, data)?.bytes.clone();
    pages.resize(usize::try_from(slots).expect("few slots") * record, 0);
    let records = found.get(log).map_or(&[][..], |log| &log.bytes);
    for logged in records.chunks(record) {
        // Each record has its own checksum.
        let Some(turn) = Turn::of_bytes(logged).filter(|_| logged.len() == record) else { continue };
        let at = usize::try_from(turn.act % slots).expect("few slots") * record;
        let page = &mut pages[at..at + record];
        if Turn::of_bytes(page).is_none_or(|there| there.act < turn.act) {
            page.copy_from_slice(logged);
        }
    }
    are_slots(&pages, (slots, bytes), state)
}

fn rolled_back(found: &Found, (data, journal): (&str, &str), bytes: u64, state: ProcessState) -> Result<(), String> {
    let of_journal = found.get(journal).filter(|journal| journal.bytes.len() as u64 == bytes);
    match of_journal.and_then(|journal| Turn::of_bytes(&journal.bytes)) {
        Some(turn) => state.newest(Some(turn), journal).map(drop),
        None => state.newest(whole(found, data, bytes)?, data).map(drop),
    }
}

fn trimmed(found: &[u8], (bytes, kept): (u64, u64), state: ProcessState) -> Result<(), String> {
    let records: Vec<&[u8]> = found.chunks(usize::try_from(bytes).expect("few bytes")).collect();
    for turn in state.all_done() {
        let record = records.get(usize::try_from(turn.act - 1).expect("few acts")).copied().unwrap_or_default();
        let is_zero = record.iter().all(|byte| *byte == 0);
        // A power loss may leave a part of a hole that is not synced.
        let own = turn.number().to_le_bytes();
        let is_partly_zero = record.chunks(8).all(|word| word == own || word.iter().all(|byte| *byte == 0));
        let fits = match turn.act + kept {
            newest if newest > state.done + 1 => record == turn.bytes(bytes),
            next if next > state.done => is_partly_zero,
            _ => is_zero,
        };
        if !fits {
            return Err(format!("record {} of {} is not as it should be", turn.act, state.done));
        }
    }
    Ok(())
}
