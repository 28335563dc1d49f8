//! Guests that mean harm: rings and requests of random bytes, changed while the device reads them.

use crate::scribble::scribble;
use crate::served::Served;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidegate_nbd_client::ram::Ram;
use tidegate_sim::Rng;
use tidegate_vhost_user_blk::BrokenQueue;
use tidegate_virtio_driver::{Command, DriverQueue, Machine, Shape};
use vm_memory::{Bytes, GuestAddress};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// How long something may take that is certain to come, on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(600);

/// Attaches `served` to a machine, however often its guest breaks it.
fn attach(served: &Served) -> Machine {
    served.attach(Shape { queue_size: 16, data_bytes: 512, ..Shape::default() }).0.unwrap()
}

/// Has the guest do what breaks its queue, and waits until the device says so.
fn broken_by(harm: impl FnOnce(&mut DriverQueue)) -> BrokenQueue {
    let served = Served::new(Arc::new(Ram::new(512, 64)));
    let mut machine = attach(&served);
    assert_eq!(machine.queues[0].request(Command::Flush, 0, 0).unwrap().status, 0);
    harm(&mut machine.queues[0]);
    machine.queues[0].ring();
    let begun = Instant::now();
    let why = loop {
        if let Some((queue, why)) = served.broken.lock().unwrap().pop() {
            assert_eq!(queue, 0);
            break why;
        }
        assert!(begun.elapsed() < PATIENCE, "the device does not notice");
        std::thread::yield_now();
    };
    let mut another = attach(&served);
    assert_eq!(another.queues[0].request(Command::Flush, 0, 0).unwrap().status, 0, "other guests are served");
    machine.stop(0).unwrap();
    why
}

#[test]
fn each_kind_of_damage_stops_the_queue_and_is_told_once() {
    let no_end = broken_by(|queue| {
        queue.describe(0, (queue.places().slots, 16), NEXT, 0);
        queue.offer(0);
    });
    assert_eq!(no_end, BrokenQueue::Chain { head: 0 }, "a loop");
    let outside = broken_by(|queue| {
        queue.describe(3, (queue.places().slots, 16), NEXT, 99);
        queue.offer(3);
    });
    assert_eq!(outside, BrokenQueue::Chain { head: 3 }, "a descriptor that there is not");
    let no_answer = broken_by(|queue| {
        queue.describe(3, (queue.places().slots, 16), 0, 0);
        queue.offer(3);
    });
    assert_eq!(no_answer, BrokenQueue::Chain { head: 3 }, "no room for a status");
    let far = broken_by(|queue| {
        queue.describe(3, (queue.places().slots, 16), NEXT, 4);
        queue.describe(4, (u64::MAX - 8, 1), WRITE, 0);
        queue.offer(3);
    });
    assert_eq!(far, BrokenQueue::NoPlaceForAnswer { head: 3 });
    let indirect = broken_by(|queue| {
        queue.describe(3, (queue.places().slots, 17), INDIRECT, 0);
        queue.offer(3);
    });
    assert_eq!(indirect, BrokenQueue::Chain { head: 3 }, "a table of a descriptor and a bit");
    let too_many = broken_by(|queue| {
        let (available, index) = (queue.places().available, 500_u16);
        queue.memory().write_obj(index, GuestAddress(available + 2)).unwrap();
    });
    assert!(matches!(too_many, BrokenQueue::Ring(_)), "{too_many:?}");
}

/// Changes that a guest makes in one test, unless `TIDEGATE_INPUTS` says another number.
const INPUTS: u64 = 200_000;
/// Changes between two new beginnings of a queue, which a device that stopped it needs.
const CHANGES: u64 = 200;

#[test]
fn a_guest_that_writes_anything_anywhere_harms_itself_alone() {
    let inputs = std::env::var("TIDEGATE_INPUTS").map_or(INPUTS, |text| text.parse().expect("a number of inputs"));
    let served = Served::new(Arc::new(Ram::new(512, 64)));
    let neighbour = Served::new(Arc::new(Ram::new(512, 64)));
    let mut other = attach(&neighbour);
    other.queues[0].fill(0, &[0x5a; 512]);
    assert_eq!(other.queues[0].request(Command::Write, 9, 512).unwrap().status, 0);
    for round in 0..inputs / CHANGES {
        let seed = round * 0x9e37_79b9 + 1;
        let mut machine = attach(&served);
        let is_over = AtomicBool::new(false);
        let queue = &mut machine.queues[0];
        std::thread::scope(|scope| {
            // The memory is one file: another mapping of it changes it beside the device's reads.
            let (memory, places) = (queue.memory().clone(), queue.places());
            let over = &is_over;
            scope.spawn(move || {
                let mut rng = Rng::new(seed | 1 << 40);
                while !over.load(Ordering::Relaxed) {
                    let at = places.descriptors + rng.below(places.slots + 600 - places.descriptors);
                    memory.write_obj(rng.below(8) as u8, GuestAddress(at)).unwrap();
                }
            });
            let mut rng = Rng::new(seed);
            let mut pick = |below| rng.below(below);
            for _ in 0..CHANGES {
                scribble(queue, &mut pick);
                queue.offer(pick(17) as u16);
                queue.ring();
            }
            over.store(true, Ordering::Relaxed);
        });
        machine.stop(0).unwrap();
    }
    assert_eq!(other.queues[0].request(Command::Read, 9, 512).unwrap().status, 0);
    let mut out = [0; 512];
    other.queues[0].take(0, &mut out);
    assert_eq!(out, [0x5a; 512]);
    let mut sound = attach(&served);
    sound.queues[0].fill(0, &[7; 512]);
    assert_eq!(sound.queues[0].request(Command::Write, 3, 512).unwrap().status, 0, "the disk is served on");
}
