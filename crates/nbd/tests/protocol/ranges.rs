//! Byte ranges over blocks: agreement with a plain row of bytes, and writers that share a block.

use crate::connections::{attach, detach};
use crate::script::exports_of;
use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier};
use std::thread;
use tidegate_media::{BlockDevice, Durability, Lba, Result};
use tidegate_nbd_client::client::{Client, Dialect, Operation};
use tidegate_nbd_client::ram::Ram;

#[derive(Clone, Copy, Debug)]
enum Step {
    Read,
    Write(u8, Durability),
    Zero(Durability),
    Trim,
    Flush,
}

const DEVICE_BYTES: u64 = 1 << 20;

fn step() -> impl Strategy<Value = (Step, u64, u32)> {
    let durability = prop_oneof![Just(Durability::Volatile), Just(Durability::Fua)];
    let step = prop_oneof![
        3 => Just(Step::Read),
        4 => (any::<u8>(), durability.clone()).prop_map(|(seed, durability)| Step::Write(seed, durability)),
        2 => durability.prop_map(Step::Zero),
        1 => Just(Step::Trim),
        1 => Just(Step::Flush),
    ];
    let offset = prop_oneof![2 => 0..5000u64, 1 => 0..DEVICE_BYTES, 1 => (0..256u64).prop_map(|block| block * 4096)];
    let len = prop_oneof![1 => Just(0u32), 6 => 0..2000u32, 2 => Just(4096), 1 => 0..700_000u32];
    (step, offset, len)
        .prop_map(|(step, offset, len)| (step, offset, len.min(u32::try_from(DEVICE_BYTES - offset).unwrap())))
}

/// Bytes that tell their place and their write apart.
fn pattern(seed: u8, len: u32) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_add((at % 251) as u8)).collect()
}

fn run(client: &mut Client<UnixStream>, model: &mut [u8], (step, offset, len): (Step, u64, u32), block_size: u64) {
    let range = usize::try_from(offset).unwrap()..usize::try_from(offset).unwrap() + len as usize;
    match step {
        Step::Read => {
            let mut seen = vec![0xaa; len as usize];
            client.read(offset, &mut seen).unwrap();
            assert!(seen == model[range], "{len} bytes at {offset} differ");
        }
        Step::Write(seed, durability) => {
            model[range].copy_from_slice(&pattern(seed, len));
            client.write(offset, &pattern(seed, len), durability).unwrap();
        }
        Step::Zero(durability) => {
            model[range].fill(0);
            client.write_zeroes(offset, len, durability).unwrap();
        }
        Step::Trim => {
            // This device zeroes what is discarded; blocks covered in part stay.
            let (first, end) = (offset.div_ceil(block_size), (offset + u64::from(len)) / block_size);
            if first < end {
                let at = |block: u64| usize::try_from(block * block_size).unwrap();
                model[at(first)..at(end)].fill(0);
            }
            client.trim(offset, len).unwrap();
        }
        Step::Flush => client.flush().unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_range_agrees_with_a_row_of_bytes(
        steps in vec(step(), 1..60),
        block_shift in 9u32..=16,
        dialect in prop_oneof![Just(Dialect::Simple), Just(Dialect::Structured), Just(Dialect::Extended)],
    ) {
        let exports = Arc::new(exports_of(Ram::new(1 << block_shift, DEVICE_BYTES >> block_shift)));
        let (mut client, server) = attach(&exports, dialect);
        let mut model = vec![0; usize::try_from(DEVICE_BYTES).unwrap()];
        for step in steps {
            run(&mut client, &mut model, step, 1 << block_shift);
        }
        let mut all = vec![0; model.len()];
        client.read(0, &mut all).unwrap();
        assert!(all == model, "the device differs from the model");
        detach((client, server));
    }
}

/// A device whose readers are overtaken whenever that is possible.
struct Dawdling(Ram);

impl BlockDevice for Dawdling {
    tidegate_media::forward!(self => self.0; geometry, write, flush, discard, write_zeroes, extent);

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        let result = self.0.read(at, out);
        thread::yield_now();
        result
    }
}

/// Writes one byte to each of the block's positions of one parity, all in flight at once.
fn write_own_bytes(client: &mut Client<UnixStream>, parity: u64, value: u8) {
    for offset in (parity..512).step_by(2) {
        client.submit(Operation::Write { offset, data: &[value], durability: Durability::Volatile }).unwrap();
    }
    while client.pending().next().is_some() {
        client.complete().unwrap().outcome.unwrap();
    }
}

#[test]
fn writers_of_alternating_bytes_of_one_block_lose_nothing() {
    let exports = Arc::new(exports_of(Dawdling(Ram::new(512, 2))));
    let writers = [0, 1].map(|parity| {
        let exports = Arc::clone(&exports);
        thread::spawn(move || {
            let (mut client, server) = attach(&exports, Dialect::Simple);
            let mut block = [0; 512];
            for value in 1..=12 {
                write_own_bytes(&mut client, parity, value);
                client.read(0, &mut block).unwrap();
                let own = block.iter().skip(usize::try_from(parity).unwrap()).step_by(2);
                assert!(own.clone().all(|byte| *byte == value), "round {value}: a byte was undone");
            }
            detach((client, server));
        })
    });
    for writer in writers {
        writer.join().unwrap();
    }
}

#[test]
fn a_whole_block_is_not_undone_by_a_writer_of_a_part_of_it() {
    const ROUNDS: u8 = 200;
    let exports = Arc::new(exports_of(Dawdling(Ram::new(512, 2))));
    let barrier = Arc::new(Barrier::new(2));
    let patcher = {
        let (exports, barrier) = (Arc::clone(&exports), Arc::clone(&barrier));
        thread::spawn(move || {
            let (mut client, server) = attach(&exports, Dialect::Simple);
            for _ in 0..ROUNDS {
                barrier.wait();
                for _ in 0..8 {
                    client.write(7, &[0xff], Durability::Volatile).unwrap();
                }
                barrier.wait();
            }
            detach((client, server));
        })
    };
    let (mut client, server) = attach(&exports, Dialect::Simple);
    let mut block = [0; 512];
    for round in 1..=ROUNDS {
        barrier.wait();
        client.write(0, &[round; 512], Durability::Volatile).unwrap();
        barrier.wait();
        client.read(0, &mut block).unwrap();
        let others = block[..7].iter().chain(&block[8..]);
        assert!(others.clone().all(|byte| *byte == round), "round {round}: the whole block was undone");
        assert!(block[7] == round || block[7] == 0xff);
    }
    patcher.join().unwrap();
    detach((client, server));
}
