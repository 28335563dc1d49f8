//! A program that writes a file by the direct path, with somebody else coming in between at every
//! step: each write is there once, in its order, and each read gives what is there.

mod world;

use std::sync::Arc;
use tidegate_file_cache::{Persistence, check};
use tidegate_file_direct::{Attempted, DirectFile, ReadAids, Until, WriteTarget};
use tidegate_file_wire::{READ_BYTES_MAX, Read};
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
            let mut of = self.model.clone();
            let seen = (self.changes..=self.world.changes()).any(|_| {
                let from = usize::try_from(at).expect("small").min(of.len());
                let is_seen = of[from..(from + len).min(of.len())] == bytes;
                self.world.event.change(&mut of);
                is_seen
            });
            assert!(seen, "read at {at}");
        }
        (self.changes, self.model) = (self.world.changes(), contents);
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
    Read { lease: 0.into(), at: 0.into(), len: 0.into(), answer: 0.into(), data: [0; READ_BYTES_MAX] }
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
    assert_eq!((run.world.count(0), run.file.os().reads, run.file.take_kept_reads(5)), (2, 2 * 4 + 1 + 4, Some(5)));
}

#[test]
fn whatever_happens_at_whatever_step_each_write_is_there_once_and_in_its_order() {
    let (mut probes, mut shares) = (0, 0);
    let events = [
        Event::Request(Change::Append),
        Event::Request(Change::Overwrite),
        Event::Restart,
        Event::Revocation,
        Event::Release,
        Event::Share(Change::Append),
        Event::Share(Change::Overwrite),
    ];
    for (script, event) in [SCRIPT, READING].into_iter().flat_map(|script| events.map(|event| (script, event))) {
        // Programs that share a lease end it at times: it takes longer until they share one again.
        let script = &script.repeat(if matches!(event, Event::Share(_)) { 3 } else { 1 });
        let mut step = 0;
        loop {
            let run = Run::whole(script, event, step);
            probes += run.world.count(2);
            shares += run.world.shares();
            if !run.world.has_happened() {
                break;
            }
            step += 1;
        }
        assert!(step > 100, "{step} steps");
    }
    assert!(probes > 0, "no write was ever in doubt");
    assert!(shares > 1000, "{shares} changes by shares");
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
