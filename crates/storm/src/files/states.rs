//! What a file may show: the dull model of one file under a storm.
//!
//! One thread changes the file, so its visible states are a row, numbered. A power cut leaves one
//! of the states since the last sync that has ended, with the cuts and synchronous writes made
//! since, as a whole. Where the pool gave no promise of wholeness, because it does not know the
//! file, brought it below, or made a hole, each byte is that of any of these states.

use std::ops::Range;
use tidegate_file_cache::Synced;

/// A change of a file.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write(u64, Vec<u8>),
    WriteSynced(u64, Vec<u8>),
    Truncate(u64),
    Zeroes(Range<u64>),
}

/// Whether the pool keeps syncs whole in all of a life: it has room, and nobody drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wholeness {
    Promised,
    NotPromised,
}

/// A sync of a file that has begun.
#[derive(Clone, Copy)]
pub(crate) struct BegunSync(u64);

/// A read of a file that has begun.
#[derive(Clone, Copy)]
pub(crate) struct BegunRead(u64);

/// What a file shows, and may show after an end.
#[derive(Clone, Debug)]
pub(crate) struct FileStates {
    /// What programs saw in this life, by number.
    seen: Vec<Vec<u8>>,
    /// What may be durable, each with the number of the state that it comes from.
    durable: Vec<(u64, Vec<u8>)>,
    under_way: Option<UnderWay>,
    wholeness: Wholeness,
    /// Whether the pool has a record of the file, so that cuts of it are durable at once.
    is_known: bool,
    /// From which state on a sync makes all whole that came before; None: it is whole.
    torn_until: Option<u64>,
}

#[derive(Clone, Debug)]
struct UnderWay {
    change: Change,
    /// Whether the file was known when it began.
    was_known: bool,
}

impl Change {
    /// What becomes of `bytes`.
    fn on(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        match self {
            Change::Write(at, data) | Change::WriteSynced(at, data) => {
                let at = place(*at);
                bytes.resize(bytes.len().max(at + data.len()), 0);
                bytes[at..at + data.len()].copy_from_slice(data);
            }
            Change::Truncate(size) => bytes.resize(place(*size), 0),
            Change::Zeroes(range) => {
                let [start, end] = [range.start, range.end].map(|at| place(at).min(bytes.len()));
                bytes[start..end].fill(0);
            }
        }
        bytes
    }
}

fn place(at: u64) -> usize {
    usize::try_from(at).expect("files are small")
}

impl FileStates {
    /// A file with these bytes, durably.
    pub(crate) fn new(bytes: Vec<u8>, wholeness: Wholeness) -> FileStates {
        FileStates {
            seen: vec![bytes.clone()],
            durable: vec![(0, bytes)],
            under_way: None,
            wholeness,
            is_known: false,
            torn_until: Some(u64::MAX),
        }
    }

    /// What programs see.
    pub(crate) fn now(&self) -> &[u8] {
        self.seen.last().expect("a file begins with a state")
    }

    fn number(&self) -> u64 {
        self.seen.len() as u64 - 1
    }

    pub(crate) fn begin(&mut self, change: Change) {
        if matches!(change, Change::Zeroes(_)) {
            self.torn_until = Some(u64::MAX);
        }
        self.under_way = Some(UnderWay { change, was_known: self.is_known });
    }

    /// The change that was begun has ended.
    pub(crate) fn end(&mut self) {
        let UnderWay { change, was_known } = self.under_way.take().expect("a change was begun");
        let after = change.on(self.now());
        let changed = self.durable.iter().map(|(number, bytes)| (*number, change.on(bytes)));
        match change {
            Change::Write(..) => {}
            Change::WriteSynced(..) => self.durable = changed.collect(),
            Change::Truncate(_) if was_known => self.durable = changed.collect(),
            Change::Truncate(_) => self.durable = self.durable.iter().cloned().chain(changed).collect(),
            Change::Zeroes(_) => {
                self.durable = self.durable.iter().cloned().chain(changed).collect();
                self.torn_until = Some(self.number() + 1);
            }
        }
        self.seen.push(after.clone());
        self.durable.push((self.number(), after));
    }

    pub(crate) fn sync_begins(&self) -> BegunSync {
        BegunSync(self.number())
    }

    /// A sync by whichever client has ended.
    pub(crate) fn sync_ended(&mut self, BegunSync(began): BegunSync, synced: Synced) {
        self.durable.retain(|(number, _)| *number >= began);
        if self.wholeness == Wholeness::NotPromised {
            return;
        }
        if self.is_known && self.torn_until.is_some_and(|torn| torn <= began) {
            self.torn_until = None;
        }
        if !self.is_known && synced == Synced::Atomically {
            // What was written while it was not known may have gone below, the change that is under
            // way too.
            self.is_known = true;
            self.torn_until = Some(self.number() + u64::from(self.under_way.is_some()));
        }
    }

    pub(crate) fn read_begins(&self) -> BegunRead {
        BegunRead(self.number())
    }

    /// Whether every byte is one that the file had since the read began.
    pub(crate) fn explains(&self, BegunRead(began): BegunRead, read: &[u8]) -> bool {
        let after = self.under_way.as_ref().map(|under_way| under_way.change.on(self.now()));
        let states: Vec<&[u8]> = self.seen[place(began)..].iter().chain(&after).map(Vec::as_slice).collect();
        is_mix_of(&states, read)
    }

    /// The process was killed, and the next one finds this.
    pub(crate) fn judge_kill(&self, found: &[u8]) -> Result<(), String> {
        match &self.under_way {
            None if found == self.now() => Ok(()),
            Some(under_way) if is_mix_of(&[self.now(), &under_way.change.on(self.now())], found) => Ok(()),
            _ => Err(format!("after a kill it shows {}, not {}", Shown(found), Shown(self.now()))),
        }
    }

    /// The power has failed, and this is found then.
    pub(crate) fn judge_cut(&self, found: &[u8]) -> Result<(), String> {
        let may = self.may_be_durable();
        let is_torn = self.torn_until.is_some() || self.wholeness == Wholeness::NotPromised;
        let states: Vec<&[u8]> = may.iter().map(|(_, bytes)| bytes.as_slice()).collect();
        if states.contains(&found) || is_torn && is_mix_of(&states, found) {
            return Ok(());
        }
        let allowed: Vec<String> = states.iter().map(|bytes| Shown(bytes).to_string()).collect();
        Err(format!(
            "after a power cut it shows {}, allowed {allowed:?}{}",
            Shown(found),
            if is_torn { ", mixed" } else { "" }
        ))
    }

    fn may_be_durable(&self) -> Vec<(u64, Vec<u8>)> {
        let mut may = self.durable.clone();
        if let Some(UnderWay { change, .. }) = &self.under_way {
            if !matches!(change, Change::Write(..)) {
                may.extend(self.durable.iter().map(|(number, bytes)| (*number, change.on(bytes))));
            }
            may.push((self.number(), change.on(self.now())));
        }
        may
    }

    /// The states of the next life, which begins with `found` after a kill.
    pub(crate) fn after_kill(&self, found: Vec<u8>) -> FileStates {
        let former = self.may_be_durable().into_iter().map(|(_, bytes)| (0, bytes));
        let durable = former.chain([(1, found.clone())]).collect();
        // Number 1 is what the process found; nothing shows number 0 any more.
        let seen = vec![found.clone(), found];
        FileStates { seen, durable, under_way: None, is_known: false, torn_until: Some(u64::MAX), ..self.clone() }
    }
}

/// Whether `found` has a length between those of the states, and each byte one that a state has
/// there.
fn is_mix_of(states: &[&[u8]], found: &[u8]) -> bool {
    let lengths = || states.iter().map(|bytes| bytes.len());
    let fits = lengths().min() <= Some(found.len()) && Some(found.len()) <= lengths().max();
    let is_of_one = |(at, byte): (usize, &u8)| states.iter().any(|one| one.get(at).copied().unwrap_or(0) == *byte);
    fits && found.iter().enumerate().all(is_of_one)
}

/// The bytes of a file, in runs.
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for run in self.0.chunk_by(|one, other| one == other) {
            write!(f, "{}×{:02x} ", run.len(), run[0])?;
        }
        write!(f, "({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> FileStates {
        let mut file = FileStates::new(vec![0; 4], Wholeness::Promised);
        write(&mut file, 0, &[1; 2]);
        // The first sync makes the file known, the second one what was written before whole.
        (0..2).for_each(|_| file.sync_ended(file.sync_begins(), Synced::Atomically));
        file
    }

    fn write(file: &mut FileStates, at: u64, data: &[u8]) {
        file.begin(Change::Write(at, data.to_vec()));
        file.end();
    }

    #[test]
    fn a_cut_leaves_a_state_since_the_last_sync_as_a_whole() {
        let mut file = file();
        file.sync_ended(file.sync_begins(), Synced::Atomically);
        write(&mut file, 1, &[2; 2]);
        assert!(file.judge_cut(&[1, 1, 0, 0]).is_ok() && file.judge_cut(&[1, 2, 2, 0]).is_ok());
        assert!(file.judge_cut(&[1, 1, 2, 0]).is_err() && file.judge_cut(&[0; 4]).is_err());
        file.sync_ended(file.sync_begins(), Synced::Atomically);
        assert!(file.judge_cut(&[1, 1, 0, 0]).is_err());
    }

    #[test]
    fn a_cut_of_a_known_file_is_durable_at_once() {
        let mut file = file();
        write(&mut file, 4, &[3]);
        file.begin(Change::Truncate(1));
        assert!(file.judge_cut(&[1, 1, 0, 0]).is_ok());
        file.end();
        assert!(file.judge_cut(&[1]).is_ok() && file.judge_cut(&[1, 1, 0, 0]).is_err());
    }

    #[test]
    fn a_sync_covers_what_came_before_it_began() {
        let mut file = file();
        let began = file.sync_begins();
        write(&mut file, 0, &[9]);
        file.sync_ended(began, Synced::Atomically);
        assert!(file.judge_cut(&[1, 1, 0, 0]).is_ok() && file.judge_cut(&[9, 1, 0, 0]).is_ok());
    }

    #[test]
    fn a_kill_leaves_what_was_seen_and_the_next_life_may_lose_it() {
        let mut file = file();
        write(&mut file, 0, &[5; 4]);
        assert!(file.judge_kill(&[5; 4]).is_ok() && file.judge_kill(&[1, 1, 0, 0]).is_err());
        let next = file.after_kill(vec![5; 4]);
        assert!(next.judge_cut(&[5; 4]).is_ok() && next.judge_cut(&[1, 1, 0, 0]).is_ok());
    }

    #[test]
    fn reads_beside_a_change_show_bytes_of_either() {
        let mut file = file();
        let began = file.read_begins();
        file.begin(Change::Write(0, vec![7; 4]));
        assert!(file.explains(began, &[1, 7, 0, 7]) && !file.explains(began, &[2, 7, 0, 7]));
    }
}
