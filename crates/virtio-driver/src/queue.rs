//! A queue as its driver has it: descriptors, the ring of available requests, the ring of answers.
//!
//! Each request has a slot of its own, with three descriptors and room for data.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
    VIRTIO_BLK_T_WRITE_ZEROES,
};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::epoll::{Epoll, EpollEvent};
use vmm_sys_util::eventfd::EventFd;

/// Descriptors of a request: header, data, status.
const DESCRIPTORS: u16 = 3;
/// Bytes of a descriptor.
const DESCRIPTOR_BYTES: u64 = 16;
/// Bytes of a request's header; its status lies behind.
const HEADER_BYTES: u32 = 16;
/// A flag of descriptors: the chain goes on.
const NEXT: u16 = 1;
/// A flag of descriptors: the device writes.
const WRITE: u16 = 2;
/// Bytes of a slot in front of its data.
pub(crate) const SLOT_START_BYTES: u64 = 64;

/// What is asked of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sectors into the slot's data.
    Read,
    /// The slot's data into sectors.
    Write,
    /// That everything written is durable.
    Flush,
    /// The ranges in the slot's data are no longer needed.
    Discard,
    /// The range in the slot's data is to read as zeroes.
    WriteZeroes,
    /// The disk's identity.
    Identity,
    /// Whatever has this number.
    Numbered(u32),
}

impl Command {
    fn number(self) -> u32 {
        match self {
            Command::Read => VIRTIO_BLK_T_IN,
            Command::Write => VIRTIO_BLK_T_OUT,
            Command::Flush => VIRTIO_BLK_T_FLUSH,
            Command::Discard => VIRTIO_BLK_T_DISCARD,
            Command::WriteZeroes => VIRTIO_BLK_T_WRITE_ZEROES,
            Command::Identity => VIRTIO_BLK_T_GET_ID,
            Command::Numbered(number) => number,
        }
    }

    /// Whether the device writes the data.
    fn is_answered_with_data(self) -> bool {
        matches!(self, Command::Read | Command::Identity)
    }
}

/// Where the parts of a queue lie in the guest's memory.
#[derive(Clone, Copy, Debug)]
pub struct RingPlaces {
    /// The table of descriptors.
    pub descriptors: u64,
    /// The ring of available requests.
    pub available: u64,
    /// The ring of answers.
    pub used: u64,
    /// The first slot.
    pub slots: u64,
}

/// An answer of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The slot of its request.
    pub slot: u16,
    /// The request's status: 0 is good.
    pub status: u8,
    /// Bytes that the device says it wrote.
    pub written: u32,
}

/// A queue, driven by one thread.
pub struct DriverQueue {
    pub(crate) memory: Arc<GuestMemoryMmap>,
    pub(crate) places: RingPlaces,
    pub(crate) size: u16,
    pub(crate) slots: u16,
    pub(crate) slot_bytes: u64,
    pub(crate) kick: EventFd,
    pub(crate) call: EventFd,
    /// Tells of each signal of `call` once: it need not be read.
    pub(crate) called: Epoll,
    pub(crate) with_event_index: bool,
    pub(crate) submitted: u16,
    pub(crate) kicked: u16,
    pub(crate) answered: u16,
    pub(crate) doorbells: u64,
}

impl DriverQueue {
    /// Requests that may be under way together.
    pub fn slots(&self) -> u16 {
        self.slots
    }

    /// Where its parts lie.
    pub fn places(&self) -> RingPlaces {
        self.places
    }

    /// The guest's memory.
    pub fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// How often the doorbell was rung.
    pub fn doorbells(&self) -> u64 {
        self.doorbells
    }

    /// Puts `bytes` into the data of `slot`.
    pub fn fill(&self, slot: u16, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(self.data(slot))).expect("a slot's data is in memory");
    }

    /// Copies the data of `slot` into `out`.
    pub fn take(&self, slot: u16, out: &mut [u8]) {
        self.memory.read_slice(out, GuestAddress(self.data(slot))).expect("a slot's data is in memory");
    }

    /// Makes a request available that begins at `sector` and has `len` bytes of data, in a slot
    /// that is free. The device need not hear of it yet.
    pub fn submit(&mut self, slot: u16, command: Command, sector: u64, len: u32) {
        let start = self.slot(slot);
        self.store(start, command.number());
        self.store(start + 4, 0_u32);
        self.store(start + 8, sector);
        let status_at = start + u64::from(HEADER_BYTES);
        self.store(status_at, 0xff_u8);
        let head = slot * DESCRIPTORS;
        let status = self.descriptor_of_status(len, head);
        self.describe(head, (start, HEADER_BYTES), NEXT, if len == 0 { status } else { head + 1 });
        if len > 0 {
            let write = if command.is_answered_with_data() { WRITE } else { 0 };
            self.describe(head + 1, (self.data(slot), len), NEXT | write, status);
        }
        self.describe(status, (status_at, 1), WRITE, 0);
        self.offer(head);
    }

    /// Makes the chain that begins with descriptor `head` available.
    pub fn offer(&mut self, head: u16) {
        let at = u64::from(self.submitted % self.size);
        self.store(self.places.available + 4 + 2 * at, head);
        self.submitted = self.submitted.wrapping_add(1);
        self.memory
            .store(self.submitted, GuestAddress(self.places.available + 2), Ordering::Release)
            .expect("the ring is in memory");
    }

    /// Writes a descriptor: address and bytes of its piece, flags, and the one that comes next.
    pub fn describe(&self, index: u16, (at, len): (u64, u32), flags: u16, next: u16) {
        let place = self.places.descriptors + DESCRIPTOR_BYTES * u64::from(index);
        self.store(place, at);
        self.store(place + 8, len);
        self.store(place + 12, flags);
        self.store(place + 14, next);
    }

    /// Rings the doorbell if the device asked for that.
    pub fn kick(&mut self) {
        // What was made available is seen before the device's wish is read.
        fence(Ordering::SeqCst);
        let wanted = if self.with_event_index {
            let event: u16 = self.load(self.places.used + 4 + 8 * u64::from(self.size));
            self.submitted.wrapping_sub(event).wrapping_sub(1) < self.submitted.wrapping_sub(self.kicked)
        } else {
            self.load::<u16>(self.places.used) & 1 == 0
        };
        self.kicked = self.submitted;
        if wanted {
            self.ring();
        }
    }

    /// Rings the doorbell.
    pub fn ring(&mut self) {
        self.doorbells += 1;
        self.kick.write(1).expect("an eventfd takes a signal");
    }

    /// The next answer, if it is there.
    pub fn answer(&mut self) -> Option<Answer> {
        let used: u16 =
            self.memory.load(GuestAddress(self.places.used + 2), Ordering::Acquire).expect("the ring is in memory");
        if used == self.answered {
            return None;
        }
        let at = self.places.used + 4 + 8 * u64::from(self.answered % self.size);
        let (head, written) = (self.load::<u32>(at), self.load::<u32>(at + 4));
        self.answered = self.answered.wrapping_add(1);
        let slot = u16::try_from(head).expect("the head of a chain") / DESCRIPTORS;
        Some(Answer { slot, status: self.load(self.slot(slot) + u64::from(HEADER_BYTES)), written })
    }

    /// Asks to be told of the next answer, and waits until the device does, or `milliseconds` have
    /// passed. True: there is an answer.
    pub fn wait(&mut self, milliseconds: i32) -> io::Result<bool> {
        if self.with_event_index {
            self.store(self.places.available + 4 + 2 * u64::from(self.size), self.answered);
        }
        fence(Ordering::SeqCst);
        while !self.has_answer() {
            if self.called.wait(milliseconds, &mut [EpollEvent::default()])? == 0 {
                return Ok(self.has_answer());
            }
        }
        Ok(true)
    }

    /// Makes one request and waits for its answer.
    pub fn request(&mut self, command: Command, sector: u64, len: u32) -> io::Result<Answer> {
        self.submit(0, command, sector, len);
        self.kick();
        self.wait(PATIENCE_MILLISECONDS)?;
        self.answer().ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    /// Says which answer the device shall tell of: the one behind so many that are not taken yet.
    pub fn ask_for_call(&self, after: u16) {
        self.store(self.places.available + 4 + 2 * u64::from(self.size), self.answered.wrapping_add(after));
    }

    /// Waits until the device calls, or `milliseconds` have passed, and looks at nothing else.
    /// True: it called.
    pub fn await_call(&mut self, milliseconds: i32) -> io::Result<bool> {
        Ok(self.called.wait(milliseconds, &mut [EpollEvent::default()])? > 0)
    }

    /// Whether there is an answer that was not taken.
    pub fn has_answer(&self) -> bool {
        let used = self.memory.load::<u16>(GuestAddress(self.places.used + 2), Ordering::Acquire);
        used.expect("the ring is in memory") != self.answered
    }

    fn descriptor_of_status(&self, len: u32, head: u16) -> u16 {
        if len == 0 { head + 1 } else { head + 2 }
    }

    fn slot(&self, slot: u16) -> u64 {
        self.places.slots + u64::from(slot) * (SLOT_START_BYTES + self.slot_bytes)
    }

    fn data(&self, slot: u16) -> u64 {
        self.slot(slot) + SLOT_START_BYTES
    }

    fn store<T: vm_memory::ByteValued>(&self, at: u64, value: T) {
        self.memory.write_obj(value, GuestAddress(at)).expect("queues are in memory");
    }

    fn load<T: vm_memory::ByteValued>(&self, at: u64) -> T {
        self.memory.read_obj(GuestAddress(at)).expect("queues are in memory")
    }
}

/// How long a request that somebody waits for may take.
const PATIENCE_MILLISECONDS: i32 = 60_000;
