//! Connections of monitors: their ends, new beginnings, and messages that are refused.

use crate::served::Served;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier};
use tidegate_media::{BlockDevice, Result};
use tidegate_nbd_client::ram::Ram;
use tidegate_sim::{Intercept, Intercepted};
use tidegate_vhost_user_blk::{ConnectionFailure, Refusal};
use tidegate_virtio_driver::{Command, Machine, Shape};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};

/// A flush meets somebody when it begins, and again before it ends.
struct Meeting(Arc<Barrier>);

impl Intercept for Meeting {
    fn flush<D: BlockDevice + ?Sized>(&self, device: &D) -> Result<()> {
        self.0.wait();
        self.0.wait();
        device.flush()
    }
}

fn served() -> Served {
    Served::new(Arc::new(Ram::new(4096, 64)))
}

#[test]
fn a_monitor_that_goes_away_ends_its_connection_and_no_other() {
    let served = served();
    let (first, first_serving) = served.attach(Shape::default());
    let (second, _serving) = served.attach(Shape::default());
    drop(first.unwrap());
    first_serving.join().unwrap().unwrap();
    assert_eq!(second.unwrap().queues[0].request(Command::Write, 0, 4096).unwrap().status, 0);
    assert_eq!(served.export.counters().connections_open, 1);
}

#[test]
fn requests_that_a_device_left_unanswered_are_answered_by_the_next() {
    let served = served();
    let (near, serving) = served.connect();
    let end = near.try_clone().unwrap();
    let mut machine = Machine::attach(near, Shape { queues: 2, ..Shape::default() }).unwrap();
    for queue in &mut machine.queues {
        assert_eq!(queue.request(Command::Write, 0, 4096).unwrap().status, 0);
    }
    end.shutdown(Shutdown::Both).unwrap();
    serving.join().unwrap().unwrap();
    for (index, queue) in machine.queues.iter_mut().enumerate() {
        for slot in 0..queue.slots() {
            queue.fill(slot, &[(100 + slot) as u8; 512]);
            queue.submit(slot, Command::Write, 64 * (index as u64 + 1) + u64::from(slot), 512);
        }
    }
    let (socket, _serving) = served.connect();
    machine.attach_again(socket).unwrap();
    for (index, queue) in machine.queues.iter_mut().enumerate() {
        for slot in 0..queue.slots() {
            assert!(queue.wait(60_000).unwrap(), "queue {index} has no answer for slot {slot}");
            let answer = queue.answer().unwrap();
            assert_eq!((answer.slot, answer.status), (slot, 0));
        }
        let mut out = [0; 512];
        assert_eq!(queue.request(Command::Read, 64 * (index as u64 + 1) + 7, 512).unwrap().status, 0);
        queue.take(0, &mut out);
        assert_eq!(out, [107; 512]);
    }
}

#[test]
fn the_request_under_way_is_finished_before_a_queue_stops() {
    let meeting = Arc::new(Barrier::new(2));
    let device: Arc<dyn BlockDevice> = Arc::new(Ram::new(4096, 8));
    let served = Served::new(Arc::new(Intercepted { device, by: Meeting(Arc::clone(&meeting)) }));
    let (near, serving) = served.connect();
    let end = near.try_clone().unwrap();
    let mut machine = Machine::attach(near, Shape::default()).unwrap();
    machine.queues[0].submit(0, Command::Flush, 0, 0);
    machine.queues[0].kick();
    meeting.wait();
    end.shutdown(Shutdown::Both).unwrap();
    meeting.wait();
    serving.join().unwrap().unwrap();
    assert_eq!(machine.queues[0].answer().unwrap().status, 0);
}

#[test]
fn a_stopped_queue_tells_where_it_goes_on() {
    let (machine, _serving) = served().attach(Shape::default());
    let mut machine = machine.unwrap();
    for _ in 0..5 {
        assert_eq!(machine.queues[0].request(Command::Flush, 0, 0).unwrap().status, 0);
    }
    assert_eq!(machine.stop(0).unwrap(), 5);
    machine.queues[0].submit(0, Command::Flush, 0, 0);
    machine.queues[0].ring();
    assert_eq!(machine.stop(0).unwrap(), 5, "it stands still");
    assert!(machine.queues[0].answer().is_none());
}

/// A monitor with nothing said, whose messages want an answer, and its device's end.
fn monitor(served: &Served) -> (Frontend, crate::served::Serving) {
    let (near, serving) = served.connect();
    let mut frontend = Frontend::from_stream(near, 64);
    frontend.set_owner().unwrap();
    let features = frontend.get_features().unwrap();
    frontend.set_features(features).unwrap();
    let told = frontend.get_protocol_features().unwrap();
    frontend.set_protocol_features(told | VhostUserProtocolFeatures::REPLY_ACK).unwrap();
    frontend.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
    (frontend, serving)
}

#[test]
fn what_a_monitor_may_not_ask_for_ends_its_connection_and_says_why() {
    let refused = |ask: &dyn Fn(&mut Frontend)| -> String {
        let (mut frontend, serving) = monitor(&served());
        ask(&mut frontend);
        drop(frontend);
        let failure = serving.join().unwrap().unwrap_err();
        assert!(matches!(failure, ConnectionFailure::Refused(_)), "{failure}");
        failure.to_string()
    };
    let why = refused(&|monitor| monitor.set_vring_num(0, 100).unwrap_err().to_string().clear());
    assert!(why.contains("a queue of 100 descriptors"), "{why}");
    let why = refused(&|monitor| monitor.set_vring_num(63, 4096).unwrap_err().to_string().clear());
    assert!(why.contains("a queue of 4096 descriptors"), "{why}");
    let why = refused(&|monitor| monitor.set_features(1 << 63).unwrap_err().to_string().clear());
    assert!(why.contains("0x8000000000000000"), "{why}");
    let rings = VringConfigData {
        queue_max_size: 8,
        queue_size: 8,
        flags: 0,
        desc_table_addr: 0x1000,
        used_ring_addr: 0x2000,
        avail_ring_addr: 0x3000,
        log_addr: None,
    };
    let why = refused(&|monitor| monitor.set_vring_addr(0, &rings).unwrap_err().to_string().clear());
    assert!(why.contains("address 0x1000 is not in the shared memory"), "{why}");
}

#[test]
fn memory_that_ends_before_it_is_said_to_is_refused() {
    let (frontend, serving) = monitor(&served());
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let region = VhostUserMemoryRegionInfo {
        guest_phys_addr: 0,
        memory_size: 8192,
        userspace_addr: 0x1_0000,
        mmap_offset: 0,
        mmap_handle: std::os::fd::AsRawFd::as_raw_fd(&file),
    };
    frontend.set_mem_table(&[region]).unwrap_err();
    let Err(ConnectionFailure::Refused(Refusal::Memory(failure))) = serving.join().unwrap() else {
        panic!("it is not refused for its memory")
    };
    assert_eq!(failure.to_string(), "the file behind shared memory has 4096 bytes, and 8192 are needed");
}

#[test]
fn a_client_of_another_protocol_is_sent_away() {
    let (mut near, serving) = served().connect();
    std::io::Write::write_all(&mut near, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let failure = serving.join().unwrap().unwrap_err();
    assert!(matches!(failure, ConnectionFailure::Protocol(_)), "{failure}");
    let (near, serving) = served().connect();
    drop::<UnixStream>(near);
    serving.join().unwrap().unwrap();
}
