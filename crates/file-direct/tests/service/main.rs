//! A program that writes a file by the direct path, with somebody else coming in between at every
//! step: each write is there once, in its order, and each read gives what is there.

mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidegate_file_cache::{Persistence, check};
use tidegate_file_direct::{Attempted, DirectFile, ReadAids, Until, WriteTarget};
use tidegate_file_wire::Read;
use tidegate_layout::file_cache::Class;
use world::{Change, Event, KEPT_PAGES, POOL_BYTES, Program, Served, World, read_cache};

#[derive(Clone, Copy, Debug)]
enum Act {
    Append(usize, Until),
    Write(u64, usize),
    Read(u64, usize),
    /// Sets the length to what it is.
    SameLength,
    Sync,
    Leave,
}

/// Claims, extends, leaves for want of room, reads what was just written, writes more than a log
/// takes.
const SCRIPT: &[Act] = {
    use Act::{Append, Leave, Read, Sync, Write};
    &[
        Append(700, Until::PowerLoss),
        Sync,
        Append(10, Until::PowerLoss),
        Sync,
        Append(5000, Until::PowerLoss),
        Sync,
        Write(3, 20),
        Write(4090, 9000),
        Read(0, 10_000),
        Sync,
        Append(300, Until::Erased),
        Append(300, Until::PowerLoss),
        Append(9000, Until::PowerLoss),
        Sync,
        Read(21_000, 9000),
        Write(70_000, 100),
        Sync,
        Append(100, Until::PowerLoss),
        Write(10, 30_000),
        Append(100, Until::Erased),
        Leave,
        Append(100, Until::PowerLoss),
        Sync,
        Append(1, Until::PowerLoss),
    ]
};

/// Reads what it has read before, and what it wrote since, within pages and across them, to the
/// end of the file and behind it.
const READING: &[Act] = {
    use Act::{Append, Leave, Read, SameLength, Sync, Write};
    &[
        Append(700, Until::PowerLoss),
        Sync,
        Append(5000, Until::PowerLoss),
        Sync,
        Append(9, Until::PowerLoss),
        Read(0, 6000),
        Read(3, 50),
        Write(1, 21),
        Read(0, 5709),
        Append(3000, Until::PowerLoss),
        Read(5000, 6000),
        Write(4091, 11),
        Read(4080, 40),
        Sync,
        Write(12_000, 700),
        Read(8000, 4500),
        SameLength,
        Read(12_699, 2),
        Leave,
        Append(3, Until::PowerLoss),
        Sync,
        Append(100, Until::Erased),
        Read(0, 13_000),
        Write(2, 4),
        SameLength,
        Read(0, 13_000),
        Write(4096, 8300),
        Read(0, 13_000),
        Write(4000, 8400),
        Read(0, 13_000),
    ]
};

/// Reads pages where they lie in the pool, writes some of them, and writes and reads blocks across
/// pages.
const LOCATING: &[Act] = {
    use Act::{Append, Leave, Read, Sync, Write};
    &[
        Append(20_480, Until::PowerLoss),
        Sync,
        Append(4096, Until::PowerLoss),
        Sync,
        Write(4096, 4096),
        Read(0, 4096),
        Read(8192, 8192),
        Read(16_500, 90),
        Write(8192, 4096),
        Read(8192, 8192),
        Write(12_288, 30),
        Read(8192, 8192),
        Read(0, 24_576),
        Sync,
        Write(24_632, 4096),
        Write(28_752, 4096),
        Leave,
        Write(0, 4096),
        Sync,
        Write(4096, 4096),
        Write(4096, 4096),
        Read(16_384, 4096),
        Read(20_480, 4096),
        Read(24_632, 4096),
        Read(28_752, 4096),
        Write(16_384, 4096),
        Read(0, 24_576),
        Write(24_630, 4),
        Read(24_632, 4096),
        Read(16_384, 8192),
    ]
};

struct Run {
    world: Arc<World>,
    file: DirectFile<Program>,
    /// What was said about the last read is in it.
    message: Read,
    model: Vec<u8>,
    /// How often somebody else had changed the file before this act.
    changes: u64,
}

impl Run {
    fn new(event: Event, step: u64) -> Run {
        let world = World::new(event, step, Class::ALL[0]);
        let file = DirectFile::new(Program::new(world.clone()), POOL_BYTES);
        world.admit(DirectFile::new(Program::new(world.clone()), POOL_BYTES));
        Run { world, file, message: no_read(), model: Vec::new(), changes: 0 }
    }

    /// Does what the descriptor would do.
    fn by_descriptor<T>(&self, act: impl FnOnce(&Served) -> T) -> T {
        act(&self.world.served())
    }

    fn write(&mut self, place: WriteTarget, data: &[u8], until: Until) -> Attempted {
        let outcome = self.file.write(place, data, until, &mut self.message);
        if outcome == Attempted::ByDescriptor {
            self.by_descriptor(|Served { pool, file }| match place {
                WriteTarget::End => pool.append(*file, data, Persistence::Asynchronous).map(drop),
                WriteTarget::At(at) => pool.write(*file, at, data, Persistence::Asynchronous),
            })
            .expect("nothing refuses");
        }
        outcome
    }

    /// What the file may hold after `change`, with what somebody else did before and behind it.
    fn after(&self, change: impl Fn(&mut Vec<u8>)) -> Vec<Vec<u8>> {
        let times = self.world.changes() - self.changes;
        let with = |before: u64| {
            let mut bytes = self.model.clone();
            (0..before).for_each(|_| self.world.event.change(&mut bytes));
            change(&mut bytes);
            (before..times).for_each(|_| self.world.event.change(&mut bytes));
            bytes
        };
        (0..=times).map(with).collect()
    }

    /// Carries out one act, and compares the file with the model.
    fn act(&mut self, act: Act, byte: u8) {
        let mut read = None;
        match act {
            Act::Append(len, until) => _ = self.write(WriteTarget::End, &vec![byte; len], until),
            Act::Write(at, len) => _ = self.write(WriteTarget::At(at), &vec![byte; len], Until::PowerLoss),
            Act::SameLength => {
                let aids = ReadAids { message: &mut self.message, cache: read_cache };
                let outcome = self.file.set_length(self.model.len() as u64, aids);
                if outcome == Attempted::ByDescriptor {
                    self.by_descriptor(|Served { pool, file }| pool.revoke(*file)).expect("nothing refuses");
                }
            }
            Act::Read(at, len) => read = Some((at, self.read(at, len))),
            Act::Sync if self.file.sync() == Attempted::ByDescriptor => {
                self.by_descriptor(|Served { pool, file }| pool.sync(*file)).map(drop).expect("nothing refuses");
            }
            Act::Sync => {}
            Act::Leave => self.file.leave(),
        }
        let change = |bytes: &mut Vec<u8>| match act {
            Act::Append(len, _) => bytes.extend(vec![byte; len]),
            Act::Write(at, len) => {
                let at = usize::try_from(at).expect("small");
                bytes.resize(bytes.len().max(at + len), 0);
                bytes[at..at + len].fill(byte);
            }
            _ => {}
        };
        let (possible, contents) = (self.after(change), self.world.contents());
        assert!(possible.contains(&contents), "after {act:?}: {} bytes", contents.len());
        if let Some((at, (bytes, len))) = read {
            self.assert_was_there(usize::try_from(at).expect("small"), &bytes, len);
        }
        (self.changes, self.model) = (self.world.changes(), contents);
    }

    /// These bytes were there at some time during the act; of a change of two pages perhaps those
    /// of one page before the other's, and as many as there were before.
    fn assert_was_there(&self, at: usize, bytes: &[u8], len: usize) {
        let mut states = vec![self.model.clone()];
        for _ in self.changes..self.world.changes() {
            let mut next = states.last().expect("one").clone();
            self.world.event.change(&mut next);
            states.push(next);
        }
        let there = |state: &Vec<u8>| {
            let there = state.get(at..).unwrap_or_default();
            there[..there.len().min(len)].to_vec()
        };
        let possible: Vec<Vec<u8>> = states.iter().map(there).collect();
        if self.world.event != Event::Share(Change::Pages) {
            assert!(possible.iter().any(|there| there == bytes), "read at {at}");
            return;
        }
        assert!(possible.iter().any(|there| there.len() == bytes.len()), "read {} at {at}", bytes.len());
        let mut from = 0;
        while from < bytes.len() {
            let until = bytes.len().min((at + from) / 4096 * 4096 + 4096 - at);
            let is_there = |there: &Vec<u8>| there.get(from..until) == Some(&bytes[from..until]);
            assert!(possible.iter().any(is_there), "read at {at}, from {from} on");
            from = until;
        }
    }

    fn read(&mut self, at: u64, len: usize) -> (Vec<u8>, usize) {
        let mut bytes = vec![0; len];
        let read = match self.file.read(at, &mut bytes, ReadAids { message: &mut self.message, cache: read_cache }) {
            Attempted::Done(read) => usize::try_from(read).expect("small"),
            _ => self.by_descriptor(|Served { pool, file }| pool.read(*file, at, &mut bytes)).expect("nothing refuses"),
        };
        bytes.truncate(read);
        (bytes, len)
    }

    fn whole(script: &[Act], event: Event, step: u64) -> Run {
        let mut run = Run::new(event, step);
        for (byte, act) in (1..).zip(script.iter().copied()) {
            run.act(act, byte);
        }
        run.file.leave();
        run.world.dismiss();
        assert_eq!(run.by_descriptor(|served| served.pool.leases()), Vec::new());
        assert_eq!(check(run.world.region()).expect("a pool").findings, []);
        run
    }
}

fn no_read() -> Read {
    Read::EMPTY
}

/// The script does what it is for.
#[test]
fn without_others_the_script_claims_extends_and_claims_again() {
    let run = Run::whole(SCRIPT, Event::Request(Change::Append), u64::MAX);
    assert!(!run.world.has_happened());
    let [claims, extensions, probes] = [0, 1, 2].map(|which| run.world.count(which));
    assert_eq!((claims, extensions > 0, probes), (6, true, 0), "{extensions}");
}

/// The file has four pages. A long write has one of them lost that is not one of its blocks, and
/// another one all of them.
#[test]
fn pages_are_asked_for_once_by_each_lease() {
    let mut run = Run::whole(READING, Event::Request(Change::Append), u64::MAX);
    let (reads, locates) = (run.file.os().reads, run.file.os().locates);
    assert_eq!((run.world.count(0), reads - locates, locates), (2, 2 * 4 + 1 + 4, 5));
    assert_eq!(run.file.take_kept_reads(5), Some(5));
}

/// Each lease asks once where the file's blocks lie, and for one page that has bytes of several
/// writes; the second lease for two more pages, as a block across them was written to.
#[test]
fn blocks_are_read_where_they_lie_in_the_pool() {
    let mut run = Run::whole(LOCATING, Event::Request(Change::Append), u64::MAX);
    let (reads, locates) = (run.file.os().reads, run.file.os().locates);
    assert_eq!((run.world.count(0), reads - locates, locates), (2, 1 + 3, 2 + 3));
    assert_eq!(run.file.take_kept_reads(1), Some(8));
}

#[test]
fn whatever_happens_at_whatever_step_each_write_is_there_once_and_in_its_order() {
    let (mut probes, mut shares, mut dropped) = (0, 0, 0);
    let events = [
        Event::Request(Change::Append),
        Event::Request(Change::Overwrite),
        Event::Restart,
        Event::Revocation,
        Event::Release,
        Event::Share(Change::Append),
        Event::Share(Change::Overwrite),
        Event::Share(Change::Pages),
        Event::Drop,
    ];
    for (script, event) in
        [SCRIPT, READING, LOCATING].into_iter().flat_map(|script| events.map(|event| (script, event)))
    {
        // Programs that share a lease end it at times: it takes longer until they share one again.
        let script = &script.repeat(if matches!(event, Event::Share(_)) { 3 } else { 1 });
        let mut step = 0;
        loop {
            let run = Run::whole(script, event, step);
            probes += run.world.count(2);
            shares += run.world.shares();
            dropped += run.world.dropped.load(Ordering::SeqCst);
            if !run.world.has_happened() {
                break;
            }
            step += 1;
        }
        assert!(step > 100, "{step} steps");
    }
    assert!(probes > 0, "no write was ever in doubt");
    assert!(shares > 1000, "{shares} changes by shares");
    assert!(dropped > 1000, "{dropped} pages were dropped");
}

/// Nothing that this program does meanwhile keeps the file from being lent.
#[test]
fn a_file_that_is_just_being_lent_is_asked_for_again_at_once() {
    let mut run = Run::new(Event::Request(Change::Append), u64::MAX);
    for _ in 0..2 {
        run.write(WriteTarget::End, &[1; 10], Until::PowerLoss);
        run.file.sync();
    }
    run.world.soon.store(3, Ordering::SeqCst);
    let outcome = run.write(WriteTarget::End, &[1; 10], Until::PowerLoss);
    assert_eq!((outcome, run.world.count(0)), (Attempted::Done(30), 3 + 1));
}

/// A write of which nobody knows whether others see it is not done again.
#[test]
fn memory_that_fails_behind_a_write_is_an_error() {
    let mut failed = 0;
    for step in 0..100 {
        let mut run = Run::new(Event::Poison, step);
        run.write(WriteTarget::End, &[1; 10], Until::Erased);
        let outcomes = [2, 3, 4].map(|byte| (byte, run.write(WriteTarget::End, &[byte; 10], Until::Erased)));
        let contents = run.world.contents();
        for (byte, outcome) in outcomes {
            let times = contents.iter().filter(|found| **found == byte).count() / 10;
            assert_eq!(times, 1, "step {step}, byte {byte}, {outcome:?}");
        }
        failed += outcomes.iter().filter(|(_, outcome)| *outcome == Attempted::Failed).count();
    }
    assert!(failed > 0);
}

/// More than a log has elements.
const OWN_WRITES: u64 = 8;
/// More than are kept.
const PAGES: u64 = KEPT_PAGES + 4;

#[test]
fn a_file_that_is_read_much_more_than_synced_is_not_leased() {
    let mut run = Run::new(Event::Request(Change::Append), u64::MAX);
    // As if the pages were below.
    run.world.tells_places.store(false, Ordering::SeqCst);
    for page in 0..=PAGES {
        run.write(WriteTarget::At(page * 4096), &[1; 4096], Until::PowerLoss);
    }
    for _ in 0..2 {
        run.write(WriteTarget::At(0), &[1; 10], Until::PowerLoss);
        run.file.sync();
    }
    // What was written by the lease is read without a request: no page but the first one is.
    for _ in 0..OWN_WRITES {
        run.write(WriteTarget::At(0), &[1; 4096], Until::PowerLoss);
    }
    assert!(run.file.is_leased());
    let mut read = |page: u64| run.read((page + 1) * 4096, 20).0.len() == 20 && run.file.is_leased();
    let reads = (0..5000).take_while(|turn| read(turn % PAGES)).count();
    // Two for each write by the lease, and those of the first pages, for which there is room.
    let allowed = 256 + 2 * OWN_WRITES + KEPT_PAGES;
    assert_eq!((run.file.os().reads, run.file.is_leased()), (allowed, false), "{reads} reads");
    let claims = |run: &Run| run.world.count(0);
    assert_eq!(claims(&run), 1);
    for round in 0..5 {
        run.write(WriteTarget::At(0), &[1; 10], Until::PowerLoss);
        assert_eq!(claims(&run), if round < 4 { 1 } else { 2 }, "round {round}");
        run.file.sync();
    }
}
