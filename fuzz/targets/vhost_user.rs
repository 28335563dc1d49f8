//! Machines that mean harm. The first byte chooses: the other bytes are what a monitor sends, or
//! what a guest does to its queue. Whatever that was, the device serves the next machine.

#![forbid(unsafe_code)]
#![no_main]

#[path = "../../crates/vhost-user-blk/tests/disk/scribble.rs"]
mod scribble;
#[path = "../../crates/vhost-user-blk/tests/disk/served.rs"]
mod served;

use libfuzzer_sys::fuzz_target;
use scribble::scribble;
use served::Served;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use tidegate_nbd_client::ram::Ram;
use tidegate_virtio_driver::{Command, Machine, Shape};

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

/// Does to a queue what `bytes` say, two for each choice.
fn be_a_guest(served: &Served, bytes: &[u8]) {
    let mut machine = attach(served);
    let queue = &mut machine.queues[0];
    let mut choices = bytes.chunks_exact(2).map(|two| u64::from(u16::from_le_bytes([two[0], two[1]])));
    for _ in 0..CHANGES_MAX {
        if choices.len() == 0 {
            break;
        }
        let mut pick = |below: u64| choices.next().unwrap_or(0) % below;
        scribble(queue, &mut pick);
        queue.offer(pick(17) as u16);
        queue.ring();
    }
    machine.stop(0).expect("a queue can be stopped");
}
