//! Machines that mean harm. The first byte chooses: the other bytes are what a monitor sends, or
//! what a guest does to its queue, five bytes for each change of the memory. Whatever that was, the
//! device serves the next machine.

#![forbid(unsafe_code)]
#![no_main]

#[path = "../../crates/vhost-user-blk/tests/disk/served.rs"]
mod served;

use libfuzzer_sys::fuzz_target;
use served::Served;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use tidegate_nbd_client::ram::Ram;
use tidegate_virtio_driver::{Command, DriverQueue, Machine, Shape};
use vm_memory::{Bytes, GuestAddress};

/// Changes of the memory in one life of a queue.
const CHANGES_MAX: usize = 200;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let served = Served::new(Arc::new(Ram::new(512, 64)));
    if choice % 2 == 0 {
        be_a_monitor(&served, rest);
    } else {
        be_a_guest(&served, rest);
    }
    let mut next = attach(&served);
    next.queues[0].fill(0, &[7; 512]);
    let answer = next.queues[0].request(Command::Write, 3, 512).expect("the disk is served on");
    assert!(answer.status == 0, "the disk is served on");
});

fn attach(served: &Served) -> Machine {
    let shape = Shape { queue_size: 16, data_bytes: 512, ..Shape::default() };
    served.attach(shape).0.expect("a machine can attach the disk")
}

/// Sends `bytes` to the device's socket, and reads what it says until it has ended.
fn be_a_monitor(served: &Served, bytes: &[u8]) {
    let (mut socket, serving) = served.connect();
    // The device may have enough before the end.
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    let _ = socket.read_to_end(&mut Vec::new());
    // How the connection ended is its own affair, but it did not panic.
    let _ = serving.join().expect("no panic");
}

/// Does to a queue what `bytes` say.
fn be_a_guest(served: &Served, bytes: &[u8]) {
    let mut machine = attach(served);
    let queue = &mut machine.queues[0];
    for change in bytes.chunks_exact(5).take(CHANGES_MAX) {
        scribble(queue, [change[0], change[1], change[2], change[3]]);
        queue.offer(u16::from(change[4] % 17));
        queue.ring();
    }
    machine.stop(0).expect("a queue can be stopped");
}

/// Changes the queue's memory somewhere, by what may mean something there.
fn scribble(queue: &DriverQueue, [what, one, two, three]: [u8; 4]) {
    let places = queue.places();
    let addresses = [0, places.descriptors, places.slots, places.slots + 40, u64::MAX - 3, u64::MAX];
    let lengths = [0, 1, 15, 16, 17, 32, 512, 1 << 20, u32::MAX];
    let among = |choice: u8, count: usize| usize::from(choice) % count;
    match what % 4 {
        0 => {
            let (at, len) = (addresses[among(one, addresses.len())], lengths[among(one >> 4, lengths.len())]);
            queue.describe(u16::from(two % 16), (at, len), u16::from(three % 8), u16::from(two >> 4));
        }
        1 => {
            let room = places.used - places.available;
            let at = places.available + u64::from(u16::from_le_bytes([one, two])) % room;
            queue.memory().write_obj(three % 20, GuestAddress(at)).expect("the memory is the guest's own");
        }
        2 => {
            let kinds = [0_u32, 1, 4, 8, 11, 13, 99];
            let header = [kinds[among(one, kinds.len())].to_le_bytes(), [0; 4]].concat();
            let sectors = [0, 1, 63, 64, u64::MAX];
            queue.memory().write_slice(&header, GuestAddress(places.slots)).expect("the memory is the guest's own");
            let sector = sectors[among(two, sectors.len())];
            queue.memory().write_obj(sector, GuestAddress(places.slots + 8)).expect("the memory is the guest's own");
        }
        _ => {
            let room = places.slots + 600 - places.descriptors;
            let at = places.descriptors + u64::from(u16::from_le_bytes([one, two])) % room;
            queue.memory().write_obj(three, GuestAddress(at)).expect("the memory is the guest's own");
        }
    }
}
