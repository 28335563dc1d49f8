//! Connections of monitors: their ends, new beginnings, and messages that are refused.

use crate::served::{QUEUES, Served};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier};
use tidegate_media::{BlockDevice, Result};
use tidegate_nbd_client::ram::Ram;
use tidegate_sim::{Intercept, Intercepted};
use tidegate_vhost_user_blk::{ConnectionFailure, Refusal};
use tidegate_virtio_driver::{Command, Machine, Shape};
use vhost::vhost_user::message::VhostUserConfigFlags;
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
    // Its connection ends with it.
    let mut second = second.unwrap();
    assert_eq!(second.queues[0].request(Command::Write, 0, 4096).unwrap().status, 0);
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

/// How long a call may take, on a machine that is busy with much else.
const PATIENCE_MILLISECONDS: i32 = 600_000;

#[test]
fn answers_that_a_device_left_untold_are_told_by_the_next() {
    let served = served();
    let (near, serving) = served.connect();
    let end = near.try_clone().unwrap();
    let mut machine = Machine::attach(near, Shape::default()).unwrap();
    let queue = &mut machine.queues[0];
    assert_eq!(queue.request(Command::Flush, 0, 0).unwrap().status, 0);
    while queue.await_call(0).unwrap() {}
    // The guest wants to hear of a later answer alone, so that the device tells of none.
    queue.ask_for_call(100);
    queue.submit(0, Command::Flush, 0, 0);
    queue.ring();
    while !queue.has_answer() {
        std::thread::yield_now();
    }
    end.shutdown(Shutdown::Both).unwrap();
    serving.join().unwrap().unwrap();
    while queue.await_call(0).unwrap() {}
    queue.ask_for_call(0);
    let (socket, _serving) = served.connect();
    machine.attach_again(socket).unwrap();
    assert!(machine.queues[0].await_call(PATIENCE_MILLISECONDS).unwrap(), "the guest waits for ever");
}

#[test]
fn an_answer_is_told_before_a_long_request_behind_it_is_carried_out() {
    let meeting = Arc::new(Barrier::new(2));
    let device: Arc<dyn BlockDevice> = Arc::new(Ram::new(4096, 8));
    let served = Served::new(Arc::new(Intercepted { device, by: Meeting(Arc::clone(&meeting)) }));
    let (machine, _serving) = served.attach(Shape::default());
    let mut machine = machine.unwrap();
    let queue = &mut machine.queues[0];
    while queue.await_call(100).unwrap() {}
    queue.ask_for_call(0);
    queue.submit(0, Command::Write, 0, 4096);
    queue.submit(1, Command::Flush, 0, 0);
    queue.kick();
    meeting.wait();
    assert!(queue.await_call(PATIENCE_MILLISECONDS).unwrap(), "the write is not told of");
    assert_eq!(queue.answer().unwrap().slot, 0);
    assert!(queue.answer().is_none());
    meeting.wait();
    assert!(queue.wait(PATIENCE_MILLISECONDS).unwrap());
}

/// A flush panics.
struct Panicking;

impl Intercept for Panicking {
    fn flush<D: BlockDevice + ?Sized>(&self, _: &D) -> Result<()> {
        panic!("a device that panics, as this test wants it to")
    }
}

#[test]
fn a_device_that_panics_stops_one_queue_and_keeps_no_connection_from_its_end() {
    let device: Arc<dyn BlockDevice> = Arc::new(Ram::new(4096, 8));
    let served = Served::new(Arc::new(Intercepted { device, by: Panicking }));
    let (machine, serving) = served.attach(Shape { queues: 3, ..Shape::default() });
    let mut machine = machine.unwrap();
    for queue in &mut machine.queues[..2] {
        queue.submit(0, Command::Flush, 0, 0);
        queue.ring();
    }
    assert_eq!(machine.queues[2].request(Command::Write, 0, 4096).unwrap().status, 0);
    drop(machine);
    serving.join().unwrap().unwrap();
}

#[test]
fn more_queues_than_the_server_has_threads_for_are_refused() {
    let (machine, serving) =
        served().attach(Shape { queues: usize::try_from(QUEUES).unwrap() + 1, ..Shape::default() });
    drop(machine);
    let failure = serving.join().unwrap().unwrap_err();
    assert!(matches!(failure, ConnectionFailure::Refused(Refusal::TooManyQueues)), "{failure}");
}

#[test]
fn a_guest_that_writes_to_its_configuration_space_keeps_its_disk() {
    let (mut frontend, serving) = monitor(&served());
    frontend.set_config(32, VhostUserConfigFlags::WRITABLE, &[0]).unwrap();
    assert!(frontend.get_config(32, 1, VhostUserConfigFlags::empty(), &[0]).is_ok());
    drop(frontend);
    serving.join().unwrap().unwrap();
}

#[test]
fn a_queue_stands_still_while_its_memory_is_exchanged() {
    let (machine, serving) = served().attach(Shape::default());
    let mut machine = machine.unwrap();
    assert_eq!(machine.queues[0].request(Command::Write, 0, 4096).unwrap().status, 0);
    machine.take_memory_away().unwrap();
    machine.queues[0].submit(0, Command::Write, 0, 4096);
    machine.share_memory_again().unwrap();
    assert!(machine.queues[0].wait(PATIENCE_MILLISECONDS).unwrap(), "it goes on");
    assert_eq!(machine.queues[0].answer().unwrap().status, 0);
    drop(machine);
    serving.join().unwrap().unwrap();
}

#[test]
fn what_could_be_agreed_to_before_may_be_agreed_to_again() {
    let served = Served::new(Arc::new(Ram::read_only(4096, 8)));
    let (frontend, serving) = monitor(&served);
    let offered = frontend.get_features().unwrap();
    let discard = 1 << 13;
    assert_eq!(offered & discard, 0);
    // The volume could be written when the guest agreed.
    frontend.set_features(offered | discard).unwrap();
    drop(frontend);
    serving.join().unwrap().unwrap();
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
