//! Requests of a driver, their answers, and what the disk holds then.

use crate::served::Served;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_block_export::RequestKind;
use tidegate_media::{BlockDevice, Durability, Lba, Result};
use tidegate_nbd_client::ram::Ram;
use tidegate_sim::{Intercept, Intercepted};
use tidegate_virtio_driver::{Answer, Command, Machine, Shape};

const GOOD: u8 = 0;
const FAILED: u8 = 1;
const UNSUPPORTED: u8 = 2;

fn with_data(bytes: u64) -> Shape {
    Shape { data_bytes: bytes, ..Shape::default() }
}

fn attached(device: impl BlockDevice + 'static, shape: Shape) -> (Machine, Served) {
    let served = Served::new(Arc::new(device));
    let (machine, _serving) = served.attach(shape);
    (machine.expect("a machine"), served)
}

fn request(machine: &mut Machine, command: Command, sector: u64, len: u32) -> Answer {
    machine.queues[0].request(command, sector, len).expect("an answer")
}

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
}

/// Counts flushes, and writes that had to be durable.
#[derive(Clone, Default)]
struct Durable(Arc<DurableCounts>);

#[derive(Default)]
struct DurableCounts {
    flushes: AtomicU64,
    writes: AtomicU64,
}

impl Intercept for Durable {
    fn write<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.0.writes.fetch_add(u64::from(durability == Durability::Fua), Ordering::Relaxed);
        device.write(at, data, durability)
    }

    fn flush<D: BlockDevice + ?Sized>(&self, device: &D) -> Result<()> {
        self.0.flushes.fetch_add(1, Ordering::Relaxed);
        device.flush()
    }
}

#[test]
fn what_was_written_is_read_in_any_sectors() {
    let (mut machine, served) = attached(Ram::new(4096, 64), with_data(8192));
    let bytes: Vec<u8> = (0..8192_u32).map(|at| (at * 7 / 3) as u8).collect();
    machine.queues[0].fill(0, &bytes);
    assert_eq!(request(&mut machine, Command::Write, 5, 8192), Answer { slot: 0, status: GOOD, written: 1 });
    machine.queues[0].fill(0, &[0; 8192]);
    assert_eq!(request(&mut machine, Command::Read, 6, 1024), Answer { slot: 0, status: GOOD, written: 1025 });
    let mut out = [0; 1024];
    machine.queues[0].take(0, &mut out);
    assert_eq!(out[..], bytes[512..1536]);
    let counters = served.export.counters();
    assert_eq!(counters.of(RequestKind::Write).bytes, 8192);
    assert_eq!(counters.of(RequestKind::Read).requests, 1);
    assert_eq!(counters.connections_open, 1);
}

#[test]
fn a_request_longer_than_the_devices_buffer_arrives_whole() {
    let bytes = 3 << 20;
    let (mut machine, _served) = attached(Ram::new(4096, 1024), Shape { queue_size: 4, ..with_data(bytes) });
    let data: Vec<u8> = (0..bytes).map(|at| (at / 1000) as u8).collect();
    machine.queues[0].fill(0, &data);
    assert_eq!(request(&mut machine, Command::Write, 8, bytes as u32).status, GOOD);
    machine.queues[0].fill(0, &vec![0; bytes as usize]);
    assert_eq!(request(&mut machine, Command::Read, 8, bytes as u32).written, bytes as u32 + 1);
    let mut out = vec![0; bytes as usize];
    machine.queues[0].take(0, &mut out);
    assert!(out == data);
}

#[test]
fn writes_are_durable_by_the_next_flush_or_at_once_if_the_driver_knows_none() {
    for flushes in [true, false] {
        let durable = Durable::default();
        let device: Arc<dyn BlockDevice> = Arc::new(Ram::new(4096, 8));
        let device = Intercepted { device, by: durable.clone() };
        let (mut machine, _served) = attached(device, Shape { flushes, ..Shape::default() });
        assert_eq!(request(&mut machine, Command::Write, 0, 4096).status, GOOD);
        assert_eq!(durable.0.writes.load(Ordering::Relaxed), u64::from(!flushes));
        assert_eq!(request(&mut machine, Command::Flush, 0, 0).status, GOOD);
        assert_eq!(durable.0.flushes.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn ranges_are_discarded_and_zeroed() {
    let (mut machine, _served) = attached(Ram::new(4096, 64), with_data(4096));
    machine.queues[0].fill(0, &[7; 4096]);
    (0..4).for_each(|block| assert_eq!(request(&mut machine, Command::Write, 8 * block, 4096).status, GOOD));
    machine.queues[0].fill(0, &[range(0, 8, 0), range(16, 8, 0)].concat());
    assert_eq!(request(&mut machine, Command::Discard, 0, 32).status, GOOD);
    machine.queues[0].fill(0, &range(9, 2, 1));
    assert_eq!(request(&mut machine, Command::WriteZeroes, 0, 16).status, GOOD);
    assert_eq!(request(&mut machine, Command::Read, 8, 4096).status, GOOD);
    let mut out = [0; 4096];
    machine.queues[0].take(0, &mut out);
    assert_eq!((out[511], out[512], out[1535], out[1536]), (7, 0, 0, 7));
}

#[test]
fn the_disk_tells_what_it_is() {
    let (mut machine, _served) = attached(Ram::new(16384, 100), with_data(4096));
    let word = |at: usize| u32::from_le_bytes(machine.config[at..at + 4].try_into().expect("four bytes"));
    assert_eq!(word(0), 16384 / 512 * 100, "its capacity");
    assert_eq!((word(20), machine.config[24]), (4096, 2), "four logical blocks are a physical one");
    assert_eq!(word(44), 32, "discards in whole blocks");
    machine.queues[0].fill(0, &[9; 20]);
    assert_eq!(request(&mut machine, Command::Identity, 0, 20), Answer { slot: 0, status: GOOD, written: 21 });
    let mut identity = [0; 20];
    machine.queues[0].take(0, &mut identity);
    assert_eq!(&identity, b"the disk\0\0\0\0\0\0\0\0\0\0\0\0");
}

#[test]
fn requests_that_make_no_sense_fail_and_the_queue_goes_on() {
    let (mut machine, served) = attached(Ram::new(512, 64), with_data(8192));
    let mut fails = |command, sector, len, status| {
        assert_eq!(request(&mut machine, command, sector, len), Answer { slot: 0, status, written: 1 }, "{command:?}");
    };
    fails(Command::Read, 64, 512, FAILED);
    fails(Command::Read, 63, 1024, FAILED);
    fails(Command::Read, 0, 100, FAILED);
    fails(Command::Write, u64::MAX, 512, FAILED);
    fails(Command::Write, u64::MAX / 512, 512, FAILED);
    fails(Command::Numbered(77), 0, 512, UNSUPPORTED);
    fails(Command::Discard, 0, 0, FAILED);
    fails(Command::Discard, 0, 17, FAILED);
    fails(Command::Discard, 0, 17 * 16, UNSUPPORTED);
    machine.queues[0].fill(0, &range(60, 5, 0));
    let mut fails = |command, status| {
        assert_eq!(request(&mut machine, command, 0, 16).status, status, "{command:?}");
    };
    fails(Command::Discard, FAILED);
    fails(Command::WriteZeroes, FAILED);
    machine.queues[0].fill(0, &range(0, 8, 2));
    let mut fails = |command, status| {
        assert_eq!(request(&mut machine, command, 0, 16).status, status, "{command:?}");
    };
    fails(Command::Discard, UNSUPPORTED);
    fails(Command::WriteZeroes, UNSUPPORTED);
    assert_eq!(request(&mut machine, Command::Read, 0, 512).status, GOOD);
    assert_eq!(*served.broken.lock().expect("no panic"), []);
    assert_eq!(served.export.counters().of(RequestKind::Read).errors, 3);
}

#[test]
fn a_read_only_disk_says_so_and_refuses_changes() {
    let (mut machine, _served) = attached(Ram::read_only(4096, 8), with_data(4096));
    machine.queues[0].fill(0, &range(0, 8, 0));
    for (command, len) in [(Command::Write, 4096), (Command::Discard, 16), (Command::WriteZeroes, 16)] {
        assert_eq!(request(&mut machine, command, 0, len).status, FAILED, "{command:?}");
    }
    assert_eq!(request(&mut machine, Command::Read, 0, 4096).status, GOOD);
    assert_eq!(request(&mut machine, Command::Flush, 0, 0).status, GOOD);
}

#[test]
fn queues_work_side_by_side_each_in_its_order() {
    let shape = Shape { queues: 4, queue_size: 64, ..with_data(512) };
    for event_index in [true, false] {
        let (machine, served) = attached(Ram::new(512, 4096), Shape { event_index, ..shape });
        std::thread::scope(|scope| {
            for (index, mut queue) in machine.queues.into_iter().enumerate() {
                scope.spawn(move || {
                    let depth = queue.slots();
                    let first = 1024 * index as u64;
                    let mut sent = 0_u64;
                    let mut expected = std::collections::VecDeque::new();
                    while sent < 1000 || !expected.is_empty() {
                        while sent < 1000 && expected.len() < depth.into() {
                            let slot = (sent % u64::from(depth)) as u16;
                            queue.fill(slot, &[(sent % 251) as u8; 512]);
                            queue.submit(slot, Command::Write, first + sent, 512);
                            expected.push_back(slot);
                            sent += 1;
                        }
                        queue.kick();
                        assert!(queue.wait(60_000).expect("a wait"));
                        while let Some(answer) = queue.answer() {
                            assert_eq!((Some(answer.slot), answer.status), (expected.pop_front(), GOOD));
                        }
                    }
                    for sector in 0..1000 {
                        assert_eq!(queue.request(Command::Read, first + sector, 512).expect("an answer").status, GOOD);
                        let mut out = [0; 512];
                        queue.take(0, &mut out);
                        assert_eq!(out, [(sector % 251) as u8; 512]);
                    }
                });
            }
        });
        assert_eq!(served.export.counters().of(RequestKind::Write).requests, 4000);
    }
}
