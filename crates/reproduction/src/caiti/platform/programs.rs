//! Programs' requests, recorded on this machine, asked of each subject on the paper's platform
//! (Fig. 8 to 10).
//!
//! All subjects are asked the same: whatever a program, Ext4 and the page cache do above a block
//! device is in the record, and is the same for each. A request is asked when those that were done
//! before it in the record are done, and after as much time as the program then let the device be
//! idle. Requests that overlap in the record are asked one after the other: the drivers below
//! complete a request within the call that submits it.
//!
//! The time that the record's own way took, Ext4 on a loop device on nbdfuse, is part of those idle
//! times, on every bar alike. It makes the gaps between bars narrower than they are.

use super::testbed::{Platform, Room, Testbed};
use super::{BLOCKS_BYTES, CACHE_BYTES, frame, point, series};
use crate::Scale;
use crate::caiti::stacks::Kind;
use crate::figure::{Chart, Figure};
use crate::kernel::there_and_back;
use crate::recorded::{Asked, Request, Span, requests_in};
use anyhow::{Context, bail, ensure};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tidegate_media::{BlockDevice, Durability};
use tidegate_virtual_cores::{How, Machine, Order, Plan, charge, now_ns, pass_time};

/// The variable of the environment that names the folder of records.
pub const FOLDER: &str = "TIDEGATE_RECORDS";

/// The names of records: LevelDB with db_bench's workloads and with YCSB's, and Filebench's
/// personalities.
pub const RECORDS: [&str; 3] = ["leveldb", "ycsb", "personalities"];

/// Where one program's record is.
pub struct Recording {
    /// What the device was asked.
    pub requests: PathBuf,
    /// When the program did what.
    spans: PathBuf,
}

impl Recording {
    /// That of the program `name`.
    pub fn of(folder: &Path, name: &str) -> Recording {
        let file = |kind| folder.join(format!("{name}.{kind}"));
        Recording { requests: file("requests"), spans: file("spans") }
    }

    /// Stores when the program did what.
    pub fn store(&self, spans: &[Span]) -> anyhow::Result<()> {
        std::fs::write(&self.spans, serde_json::to_string(spans)?).context("store what a program did")
    }

    fn load(&self) -> anyhow::Result<Record> {
        let text = std::fs::read_to_string(&self.spans).with_context(|| format!("read {}", self.spans.display()))?;
        let spans: Vec<Span> = serde_json::from_str(&text)?;
        ensure!(spans.is_sorted_by_key(|span| span.ns), "a program does one thing after the other");
        Ok(Record { requests: requests_in(&self.requests)?, spans })
    }
}

/// One program's record.
struct Record {
    requests: Vec<Request>,
    spans: Vec<Span>,
}

/// Something in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A request, which was done at this time.
    Asked(Asked, u64),
    /// A part of the program's work begins.
    Begin,
    /// It ends.
    End,
}

impl Record {
    /// All of it by time.
    fn events(&self) -> Vec<(u64, Event)> {
        let of_request = |request: &Request| (request.begin_ns, Event::Asked(request.asked, request.end_ns));
        let of_span = |span: &Span| [(span.ns.0, Event::Begin), (span.ns.1, Event::End)];
        let mut events: Vec<_> =
            self.requests.iter().map(of_request).chain(self.spans.iter().flat_map(of_span)).collect();
        events.sort_by_key(|(at, _)| *at);
        events
    }

    /// Microseconds of an operation of each part, on `kind`.
    fn replayed(&self, kind: Kind, platform: &Platform) -> anyhow::Result<Vec<f64>> {
        let room = Room { bytes: BLOCKS_BYTES, cache_bytes: CACHE_BYTES, jobs: 1 };
        let testbed = Testbed::of(kind, platform, room).with_context(|| format!("set up {}", kind.label()))?;
        let times = replay(platform, testbed, self.events())?;
        ensure!(times.len() == self.spans.len(), "{} parts took time, and not {}", times.len(), self.spans.len());
        Ok(times.iter().zip(&self.spans).map(|(ns, span)| *ns as f64 / 1e3 / span.operations as f64).collect())
    }
}

/// Fig. 8a, 8b, 9c and 10a.
pub fn programs(_scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let folder = std::env::var_os(FOLDER).map(PathBuf::from).context("no folder of records")?;
    let platform = Platform::fitted()?;
    let [leveldb, ycsb, personalities] = RECORDS.map(|name| Recording::of(&folder, name).load());
    let (leveldb, ycsb, personalities) = (leveldb?, ycsb?, personalities?);
    let new = |name: &str, paper: &str, title: &str, unit: &str| {
        let mut figure = frame(name, &platform, paper, title, Chart::Bars, unit);
        figure.notes.push(
            "A program ran on this machine, on Ext4 on a device that recorded what it was asked. Each subject is asked the same, with the program's own pauses. They \
             have in them what the record's way took, a loop device on nbdfuse, on every bar alike. DAX and NOVA are file systems, and no block devices."
                .to_owned(),
        );
        figure
    };
    let mut fill = new("fig-8a", "Fig. 8a", "LevelDB, recorded: random fills", "µs per operation");
    let mut overwrite = new("fig-8b", "Fig. 8b", "LevelDB, recorded: random overwrites", "µs per operation");
    let mut zipfian = new("fig-9c", "Fig. 9c", "YCSB on LevelDB, recorded: zipfian keys", "operations per second");
    let mut servers = new("fig-10a", "Fig. 10a", "Filebench's personalities, recorded", "µs per operation");
    for kind in Kind::block_devices() {
        let times = leveldb.replayed(kind, &platform)?;
        for (figure, time) in [&mut fill, &mut overwrite].into_iter().zip(times) {
            figure.series.push(series(kind, vec![point("2048 B", time, None)]));
        }
        let of_parts = |record: &Record, value: fn(f64) -> f64| -> anyhow::Result<_> {
            let times = record.replayed(kind, &platform)?;
            Ok(record.spans.iter().zip(times).map(|(span, time)| point(&span.workload, value(time), None)).collect())
        };
        zipfian.series.push(series(kind, of_parts(&ycsb, |time| 1e6 / time)?));
        servers.series.push(series(kind, of_parts(&personalities, |time| time)?));
    }
    Ok(vec![fill, overwrite, zipfian, servers])
}

/// Asks `testbed` what the `events` tell; virtual nanoseconds from each begin to its end.
fn replay(platform: &Platform, testbed: Testbed, events: Vec<(u64, Event)>) -> anyhow::Result<Vec<u64>> {
    if !cfg!(virtual_cores) {
        bail!("this program was built without virtual cores");
    }
    let cores = platform.profile.cores;
    let costs = platform.profile.processor.of_cores();
    let mut machine = Machine::new(Plan { costs, ..Plan::new(1, cores, Order::Timed) });
    let Testbed { device, threads, beside, .. } = testbed;
    let (path_ns, found) = (there_and_back(platform.path_ns), Rc::new(RefCell::new(Vec::new())));
    let of_writer = found.clone();
    machine.spawn(0, move || {
        *of_writer.borrow_mut() = ask(&*device, path_ns, &events);
        threads.end();
    });
    let idle = cores.saturating_sub(2).max(1);
    for (nth, work) in (0..).zip(beside) {
        machine.spawn((2 + nth % idle) % cores, work);
    }
    match machine.run().how {
        How::Finished => {}
        How::Panicked(_, panic) => std::panic::resume_unwind(panic),
        other => bail!("the virtual cores ended otherwise than expected: {other:?}"),
    }
    Ok(Rc::into_inner(found).context("every thread has returned")?.into_inner())
}

/// Nothing is waited for before the first part begins.
fn ask(device: &dyn BlockDevice, path_ns: (u64, u64), events: &[(u64, Event)]) -> Vec<u64> {
    let (mut buffer, mut times) = (Vec::new(), Vec::new());
    let mut begun: Option<u64> = None;
    let mut recorded_ns = 0;
    for (at, event) in events {
        if begun.is_some() {
            pass_time(at.saturating_sub(recorded_ns));
        }
        recorded_ns = recorded_ns.max(*at);
        match event {
            Event::Begin => begun = Some(now_ns()),
            Event::End => times.extend(begun.take().map(|begin| now_ns() - begin)),
            Event::Asked(asked, end) => {
                charge(path_ns.0);
                answer(device, *asked, &mut buffer);
                charge(path_ns.1);
                recorded_ns = recorded_ns.max(*end);
            }
        }
    }
    times
}

fn answer(device: &dyn BlockDevice, asked: Asked, buffer: &mut Vec<u8>) {
    let mut of_size = |blocks: u64| buffer.resize(usize::try_from(blocks * 4096).expect("a request fits"), 0x5a);
    match asked {
        Asked::Read(range) => {
            of_size(range.blocks);
            device.read(range.first, buffer).expect("the device reads");
        }
        Asked::Write(range) => {
            of_size(range.blocks);
            device.write(range.first, buffer, Durability::Volatile).expect("the device writes");
        }
        Asked::Flush => device.flush().expect("the device flushes"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use tidegate_baselines::raw::RawPmem;
    use tidegate_media::{Lba, LbaRange, MappedRegion};

    fn record() -> Record {
        let asked = |first| Asked::Write(LbaRange { first: Lba(first), blocks: 2 });
        let request = |begin_ns, end_ns, asked| Request { begin_ns, end_ns, asked };
        let requests = vec![request(1, 2, asked(0)), request(20, 30, asked(2)), request(40, 41, Asked::Flush)];
        Record { requests, spans: vec![Span { workload: "a".to_owned(), operations: 2, ns: (10, 50) }] }
    }

    #[test]
    fn everything_is_asked_in_the_order_of_time() {
        let events = record().events();
        let times: Vec<u64> = events.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [1, 10, 20, 40, 50]);
        assert_eq!((events[1].1, events[4].1), (Event::Begin, Event::End));
        let device = RawPmem::new(MappedRegion::anonymous(8 * 4096).unwrap(), 4096).unwrap();
        assert_eq!(ask(&device, (0, 0), &events).len(), 1);
        let mut block = [0; 4096];
        assert!((0..4).all(|lba| device.read(Lba(lba), &mut block).is_ok() && block == [0x5a; 4096]));
    }

    #[test]
    fn a_record_is_found_where_it_was_stored() {
        let folder = tempfile::tempdir().unwrap();
        let recording = Recording::of(folder.path(), "one");
        recording.store(&record().spans).unwrap();
        assert!(recording.load().is_err(), "it has no requests");
        std::fs::write(&recording.requests, "20 30 w 2 2\n1 2 w 0 2\n").unwrap();
        let loaded = recording.load().unwrap();
        assert_eq!((loaded.spans, loaded.requests.len()), (record().spans, 2));
    }
}
