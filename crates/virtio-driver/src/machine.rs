//! A machine that attaches a disk: its memory, and what its monitor says to the device.

use crate::queue::{DriverQueue, RingPlaces, SLOT_START_BYTES};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use vhost::vhost_user::message::VhostUserConfigFlags;
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Where the guest has its memory: not at 0, so that a forgotten address is noticed.
const GUEST_START: u64 = 0x1_0000;
/// Where the monitor says that it has it.
const MONITOR_START: u64 = 0x7000_0000_0000;
/// What queues and slots are aligned to.
const PAGE: u64 = 4096;

/// What a machine looks like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its queues.
    pub queues: usize,
    /// Descriptors of each: a power of two.
    pub queue_size: u16,
    /// Bytes of data that one request may have.
    pub data_bytes: u64,
    /// Whether its driver knows flushes; without them each write is durable.
    pub flushes: bool,
    /// Whether driver and device say which request or answer they want to hear of next.
    pub event_index: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { queues: 1, queue_size: 128, data_bytes: PAGE, flushes: true, event_index: true }
    }
}

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The device refused something, or went away.
    #[error("the device refused {what}: {error:?}")]
    Device {
        /// What.
        what: &'static str,
        /// Why.
        error: vhost::Error,
    },
    /// The system refused something.
    #[error(transparent)]
    System(#[from] io::Error),
}

fn device(what: &'static str) -> impl Fn(vhost::Error) -> MachineError {
    move |error| MachineError::Device { what, error }
}

/// A machine whose monitor has nothing more to say.
pub struct Machine {
    /// Its queues.
    pub queues: Vec<DriverQueue>,
    /// The features that both ends agreed to.
    pub features: u64,
    /// The first 60 bytes of the configuration space.
    pub config: Vec<u8>,
    shape: Shape,
    memory: SharedMemory,
    frontend: Frontend,
}

/// Memory that a machine shares.
struct SharedMemory {
    file: OwnedFd,
    bytes: u64,
    mapped: Arc<GuestMemoryMmap>,
}

impl SharedMemory {
    fn make(bytes: u64) -> io::Result<SharedMemory> {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes)?;
        let whole = FileOffset::new(File::from(file.try_clone()?), 0);
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let mapping = MmapRegion::from_file(whole, length).map_err(io::Error::other)?;
        let region = GuestRegionMmap::new(mapping, GuestAddress(GUEST_START)).ok_or(io::ErrorKind::InvalidInput)?;
        let mapped = GuestMemoryMmap::from_regions(vec![region]).map_err(io::Error::other)?;
        Ok(SharedMemory { file, bytes, mapped: Arc::new(mapped) })
    }

    /// As the device hears of it.
    fn told(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST_START,
            memory_size: self.bytes,
            userspace_addr: MONITOR_START,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }
}

impl Machine {
    /// Attaches the disk behind `socket` to a new machine of this shape.
    pub fn attach(socket: UnixStream, shape: Shape) -> Result<Machine, MachineError> {
        let memory = SharedMemory::make(queue_bytes(&shape) * shape.queues as u64)?;
        let queues = (0..shape.queues).map(|index| {
            let start = GUEST_START + index as u64 * queue_bytes(&shape);
            queue(&shape, places(&shape, start), Arc::clone(&memory.mapped))
        });
        let queues = queues.collect::<io::Result<Vec<_>>>()?;
        let frontend = Frontend::from_stream(socket, shape.queues as u64);
        let mut machine = Machine { queues, features: 0, config: Vec::new(), shape, memory, frontend };
        machine.set_up()?;
        Ok(machine)
    }

    /// Attaches the same machine once more, after its device went away: its memory and its rings
    /// are as they were, and requests without answers are still in them.
    pub fn attach_again(&mut self, socket: UnixStream) -> Result<(), MachineError> {
        self.frontend = Frontend::from_stream(socket, self.shape.queues as u64);
        self.set_up()
    }

    /// Stops a queue, as a monitor does before its machine is reset or moved. The position of the
    /// request that comes next.
    pub fn stop(&mut self, queue: usize) -> Result<u32, MachineError> {
        self.frontend.get_vring_base(queue).map_err(device("the end of a queue"))
    }

    /// Takes the machine's memory from the device, which must not be asked for anything then.
    pub fn take_memory_away(&mut self) -> Result<(), MachineError> {
        self.frontend.remove_mem_region(&self.memory.told()).map_err(device("memory to be taken away"))
    }

    /// Gives it back, as it is.
    pub fn share_memory_again(&mut self) -> Result<(), MachineError> {
        self.frontend.add_mem_region(&self.memory.told()).map(drop).map_err(device("more memory"))
    }

    /// Says all that a device has to know.
    fn set_up(&mut self) -> Result<(), MachineError> {
        let (shape, frontend) = (self.shape, &mut self.frontend);
        frontend.set_owner().map_err(device("an owner"))?;
        let offered = frontend.get_features().map_err(device("its features"))?;
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        self.features = offered & (protocol | 1 << VIRTIO_F_VERSION_1);
        self.features |= if shape.flushes { offered & (1 << VIRTIO_BLK_F_FLUSH) } else { 0 };
        self.features |= if shape.event_index { offered & (1 << VIRTIO_RING_F_EVENT_IDX) } else { 0 };
        let told = frontend.get_protocol_features().map_err(device("its protocol features"))?;
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        frontend.set_protocol_features(told & wanted).map_err(device("protocol features"))?;
        let config = frontend.get_config(0, 60, VhostUserConfigFlags::empty(), &[0; 60]);
        self.config = config.map_err(device("its configuration"))?.1;
        frontend.set_features(self.features).map_err(device("features"))?;
        frontend.set_mem_table(&[self.memory.told()]).map_err(device("memory"))?;
        self.queues.iter_mut().enumerate().try_for_each(|(index, queue)| set_up_queue(frontend, index, queue))
    }
}

/// Bytes of memory for a queue with all its slots.
fn queue_bytes(shape: &Shape) -> u64 {
    let slots = u64::from(slots(shape)) * (SLOT_START_BYTES + shape.data_bytes);
    (places(shape, 0).slots + slots).next_multiple_of(PAGE)
}

fn slots(shape: &Shape) -> u16 {
    shape.queue_size / 3
}

fn places(shape: &Shape, start: u64) -> RingPlaces {
    let size = u64::from(shape.queue_size);
    let available = start + 16 * size;
    let used = (available + 6 + 2 * size).next_multiple_of(64);
    RingPlaces { descriptors: start, available, used, slots: (used + 6 + 8 * size).next_multiple_of(PAGE) }
}

fn queue(shape: &Shape, places: RingPlaces, memory: Arc<GuestMemoryMmap>) -> io::Result<DriverQueue> {
    let (kick, call) = (EventFd::new(EFD_NONBLOCK)?, EventFd::new(EFD_NONBLOCK)?);
    let called = Epoll::new()?;
    called.ctl(ControlOperation::Add, call.as_raw_fd(), EpollEvent::new(EventSet::IN | EventSet::EDGE_TRIGGERED, 0))?;
    Ok(DriverQueue {
        memory,
        places,
        size: shape.queue_size,
        slots: slots(shape),
        slot_bytes: shape.data_bytes,
        kick,
        call,
        called,
        with_event_index: shape.event_index,
        submitted: 0,
        kicked: 0,
        answered: 0,
        doorbells: 0,
    })
}

fn set_up_queue(frontend: &mut Frontend, index: usize, queue: &DriverQueue) -> Result<(), MachineError> {
    let at = |address: u64| address - GUEST_START + MONITOR_START;
    let addresses = VringConfigData {
        queue_max_size: queue.size,
        queue_size: queue.size,
        flags: 0,
        desc_table_addr: at(queue.places.descriptors),
        used_ring_addr: at(queue.places.used),
        avail_ring_addr: at(queue.places.available),
        log_addr: None,
    };
    frontend.set_vring_num(index, queue.size).map_err(device("a queue's size"))?;
    frontend.set_vring_base(index, queue.answered).map_err(device("a queue's beginning"))?;
    frontend.set_vring_addr(index, &addresses).map_err(device("a queue's rings"))?;
    frontend.set_vring_call(index, &queue.call).map_err(device("a queue's calls"))?;
    frontend.set_vring_kick(index, &queue.kick).map_err(device("a queue's kicks"))?;
    frontend.set_vring_enable(index, true).map_err(device("a queue"))
}
