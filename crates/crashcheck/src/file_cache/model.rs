//! The dull model: each file as a row of bytes, and the rows that a cut may leave.

use std::collections::BTreeSet;
use tidegate_file_cache::Counters;

/// A file, as it has to be.
#[derive(Clone, Debug)]
pub(crate) struct FileModel {
    /// What the program sees.
    pub(crate) now: Vec<u8>,
    /// The contents without unsynced writes.
    pub(crate) base: Vec<u8>,
    /// What a power cut may leave, each as a whole.
    pub(crate) may: BTreeSet<Vec<u8>>,
    /// Whether the pool knows the file, so that cuts of it are durable at once.
    pub(crate) known: bool,
    /// Whether unsynced writes went below, where a power cut leaves any of them.
    pub(crate) torn: bool,
    /// Whether holes or direct writes were made below since the last sync, where a power cut leaves
    /// any of them.
    pub(crate) holed: bool,
    /// When the program changed it last.
    pub(crate) time: u64,
    /// A time that a power cut leaves, or a later one.
    pub(crate) durable_time: u64,
}

/// What a write did to make room in DRAM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// Whether something was committed.
    pub(crate) commits: bool,
    /// Whether unsynced writes of the file passed below.
    pub(crate) passed_below: bool,
}

impl Made {
    /// What was counted between two looks.
    pub(crate) fn between(before: Counters, after: Counters) -> Made {
        let commits = before.commits != after.commits;
        Made { commits, passed_below: before.bytes_passed_below != after.bytes_passed_below }
    }
}

/// What may be found of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Allowed {
    pub(crate) contents: BTreeSet<Vec<u8>>,
    /// Whether any of its bytes may be those of any of the contents: where no promise of wholeness
    /// was given.
    pub(crate) mixed: bool,
    /// The first and the last time of its last change.
    pub(crate) times: [u64; 2],
}

impl FileModel {
    pub(crate) fn new(bytes: &[u8]) -> FileModel {
        let bytes = || bytes.to_vec();
        let may = [bytes()].into();
        let (known, torn, holed) = (false, false, false);
        FileModel { now: bytes(), base: bytes(), may, known, torn, holed, time: 0, durable_time: 0 }
    }

    /// Whether a power cut leaves any bytes of what may be left.
    pub(crate) fn is_mixed(&self) -> bool {
        self.torn || self.holed
    }

    pub(crate) fn write(&mut self, at: u64, data: &[u8]) {
        put(&mut self.now, at, data);
    }

    /// An ordinary write. DRAM was full if there are `commits`: then the file's unsynced writes
    /// were made durable before, or, if there were none, this one. Or they passed below without a
    /// sync.
    pub(crate) fn write_with_room(&mut self, at: u64, data: &[u8], made: Made) {
        if made.passed_below {
            self.pass_below();
        }
        let committed = made.commits;
        if self.is_mixed() {
            self.may.extend(committed.then(|| self.now.clone()));
            self.write(at, data);
            self.may.extend(committed.then(|| self.now.clone()));
            return;
        }
        match (committed, self.now == self.base) {
            (true, true) => self.write_sync(at, data),
            (true, false) => {
                self.sync();
                self.write(at, data);
            }
            (false, _) => self.write(at, data),
        }
    }

    pub(crate) fn write_sync(&mut self, at: u64, data: &[u8]) {
        put(&mut self.now, at, data);
        put(&mut self.base, at, data);
        if self.torn {
            // The first sync covers what went below before.
            self.base = self.now.clone();
            self.torn = false;
        }
        self.durable_time = self.time;
        let former = std::mem::replace(&mut self.may, [self.base.clone()].into());
        if self.holed {
            // It says nothing about the bytes beside it.
            self.may.extend(former.into_iter().map(|mut one| {
                put(&mut one, at, data);
                one
            }));
            self.may.insert(self.now.clone());
        }
        self.known = true;
    }

    /// A direct write; if it `committed`, DRAM was full. What only the file below had of the range
    /// is there at once, and the rest is unsynced.
    pub(crate) fn write_direct(&mut self, at: u64, data: &[u8], committed: bool) {
        self.may.extend(committed.then(|| self.now.clone()));
        self.write(at, data);
        let written = |mut one: Vec<u8>| {
            put(&mut one, at, data);
            one
        };
        self.may.extend(self.may.iter().cloned().map(written).collect::<Vec<_>>());
        self.may.insert(self.now.clone());
        self.holed = true;
    }

    /// The file is mapped, which syncs it but for what is `stored` by another mapping.
    pub(crate) fn map(&mut self, stored: bool) {
        if stored {
            self.may.insert(self.now.clone());
            self.holed = true;
        } else {
            self.sync();
        }
        self.known = true;
    }

    /// A program stored by its mapping: a power cut leaves any of these bytes.
    pub(crate) fn store_mapped(&mut self, at: u64, data: &[u8]) {
        self.write_direct(at, data, false);
    }

    /// All bytes before `end` are durable as they are.
    pub(crate) fn sync_to(&mut self, end: u64) {
        let end = usize::try_from(end).expect("small");
        let synced = self.now[..end].to_vec();
        put(&mut self.base, 0, &synced);
        self.may = std::mem::take(&mut self.may)
            .into_iter()
            .map(|mut one| {
                put(&mut one, 0, &synced);
                one
            })
            .collect();
        if self.now == self.base {
            let durable_time = self.durable_time;
            self.all_durable();
            self.durable_time = durable_time;
        }
    }

    /// Makes a range zeroes; if it `committed`, DRAM was full. What the file below had of it is
    /// zeroes there at once, and the rest is unsynced.
    pub(crate) fn zero(&mut self, at: u64, len: u64, committed: bool) {
        self.may.extend(committed.then(|| self.now.clone()));
        let zeroed = |bytes: &[u8]| {
            let [at, end] = [at, at + len].map(|place| usize::try_from(place).expect("small").min(bytes.len()));
            [&bytes[..at], &vec![0; end - at], &bytes[end..]].concat()
        };
        self.now = zeroed(&self.now);
        self.may.extend(self.may.iter().map(|one| zeroed(one)).collect::<Vec<_>>());
        self.may.insert(self.now.clone());
        self.holed = true;
    }

    pub(crate) fn sync(&mut self) {
        self.known |= self.now != self.base;
        self.all_durable();
    }

    /// Everything is below.
    pub(crate) fn drain(&mut self) {
        self.all_durable();
        self.known = false;
    }

    /// The unsynced writes are not in DRAM any more. A file that the pool did not know, and now has
    /// bytes of, was synced below first.
    pub(crate) fn write_dirty(&mut self, in_pool: bool) {
        if self.known && !self.holed || !self.known && in_pool {
            self.known = true;
            self.all_durable();
        } else {
            self.pass_below();
        }
    }

    /// Unsynced writes went below, without a sync.
    fn pass_below(&mut self) {
        if self.now != self.base {
            self.torn = true;
            self.may.insert(self.now.clone());
        }
    }

    fn all_durable(&mut self) {
        (self.torn, self.holed) = (false, false);
        self.durable_time = self.time;
        self.base = self.now.clone();
        self.may = [self.now.clone()].into();
    }

    pub(crate) fn truncate(&mut self, size: u64) {
        let size = usize::try_from(size).expect("small");
        self.now.resize(size, 0);
        self.base.resize(size, 0);
        let former = self.may.clone();
        if self.known {
            self.may.clear();
        }
        if self.holed {
            self.may.extend(former.into_iter().map(|mut one| {
                one.resize(size, 0);
                one
            }));
        }
        self.may.insert(self.base.clone());
        self.may.extend(self.is_mixed().then(|| self.now.clone()));
    }
}

impl Allowed {
    pub(crate) fn of(contents: impl IntoIterator<Item = Vec<u8>>, mixed: bool) -> Allowed {
        Allowed { contents: contents.into_iter().collect(), mixed, times: [0, u64::MAX] }
    }

    /// What was changed last between two times.
    pub(crate) fn changed(self, first: u64, last: u64) -> Allowed {
        Allowed { times: [first, last], ..self }
    }

    pub(crate) fn allows(&self, found: &[u8]) -> bool {
        if self.contents.contains(found) {
            return true;
        }
        let lengths = || self.contents.iter().map(Vec::len);
        let length = lengths().min() <= Some(found.len()) && Some(found.len()) <= lengths().max();
        let byte =
            |(at, byte): (usize, &u8)| self.contents.iter().any(|one| one.get(at).copied().unwrap_or(0) == *byte);
        self.mixed && length && found.iter().enumerate().all(byte)
    }
}

fn put(bytes: &mut Vec<u8>, at: u64, data: &[u8]) {
    let at = usize::try_from(at).expect("small");
    if bytes.len() < at + data.len() {
        bytes.resize(at + data.len(), 0);
    }
    bytes[at..at + data.len()].copy_from_slice(data);
}
