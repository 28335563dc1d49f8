//! Flaws: a lock, a second look or an indivisible change that is left out at one place of the code,
//! to see who notices.
//!
//! Nothing of the code is changed for it. The machine knows each use of a lock and each access to
//! an atomic by its place.

use std::collections::BTreeMap;
use std::panic::Location;

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlawKind {
    /// A lock: it is held during each single access to what it guards, and not between them.
    Lock,
    /// A second look: a thread that loads what it has loaded before, since it last began something,
    /// sees what it saw then.
    Recheck,
    /// An indivisible change: it is a load and, later, a store.
    Change,
}

/// A flaw at a place of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flaw {
    /// What is left out.
    pub kind: FlawKind,
    /// The file.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
}

impl Flaw {
    pub(crate) fn is_at(self, kind: FlawKind, place: &Location<'static>) -> bool {
        self.kind == kind && self.line == place.line() && self.file == place.file()
    }
}

/// A place at which a flaw would make a difference to somebody.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// What could be left out.
    pub kind: FlawKind,
    /// The place.
    pub place: &'static Location<'static>,
    /// How often: a lock was held in between accesses, a second look showed something else, a
    /// change was made.
    pub times: u64,
}

/// What was used where, and what each thread saw last.
#[derive(Default)]
pub(crate) struct Survey {
    pub(crate) uses: Vec<Use>,
    seen: BTreeMap<(usize, u64), u64>,
}

impl Survey {
    pub(crate) fn count(&mut self, kind: FlawKind, place: &'static Location<'static>) {
        match self.uses.iter_mut().find(|at| at.kind == kind && at.place == place) {
            Some(at) => at.times += 1,
            None => self.uses.push(Use { kind, place, times: 1 }),
        }
    }

    pub(crate) fn begin(&mut self, thread: usize) {
        self.seen.retain(|(whose, _), _| *whose != thread);
    }

    pub(crate) fn stored(&mut self, thread: usize, key: u64) {
        self.seen.remove(&(thread, key));
    }

    /// What `thread` saw last at `key`, if it looked there before.
    pub(crate) fn last_seen(&self, thread: usize, key: u64) -> Option<u64> {
        self.seen.get(&(thread, key)).copied()
    }

    /// `thread` sees `value` at `key`.
    pub(crate) fn sees(&mut self, thread: usize, key: u64, value: u64) {
        self.seen.insert((thread, key), value);
    }
}
