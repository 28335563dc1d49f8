//! A connection with a monitor: it says where the guest's memory and rings are, and when queues
//! begin and end.
//!
//! A queue that works belongs to its thread. For every change the thread is ended, which finishes
//! the request under way, and begun anew: the two never share anything that changes.

use crate::budget::{MachineAccess, QueueBudget};
use crate::failure::{BrokenQueue, ConnectionFailure, Refusal};
use crate::memory::{Place, REGIONS_MAX, SharedMemory};
use crate::requests::Executor;
use crate::ring::{Ring, RingSettings, Rings, Stop};
use crate::virtio::{ConfigSpace, QUEUE_SIZE_MAX, QUEUES_MAX, feature, features};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, Scope, ScopedJoinHandle, scope};
use std::time::Duration;
use tidegate_block_export::{ConnectionCounters, Export, PollBudget};
use tidegate_media::Durability;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight, VhostUserLog,
    VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    BackendReqHandler, Error as ProtocolError, GpuBackend, Result as ProtocolResult, VhostUserBackendReqHandlerMut,
};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// A volume as virtual machines get it.
pub struct VirtualDisk<'d> {
    /// The volume.
    pub export: &'d Export,
    /// The busy-poll budget, which all services on the same cores share.
    pub poll_budget: &'d PollBudget,
    /// The room for queues, which all machines share.
    pub queue_budget: &'d QueueBudget,
    /// Whether the machine may change the volume, if that can be changed.
    pub access: MachineAccess,
    /// Hears of a queue, by its number, that stands still from now on. Called on the queue's
    /// thread.
    pub on_broken_queue: &'d (dyn Fn(usize, &BrokenQueue) + Sync),
}

/// How long a monitor may be connected without saying where its memory is.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Small, as there are many threads; the buffers lie elsewhere.
const STACK_BYTES: usize = 256 << 10;

/// Serves the monitor at the other end of `socket` until it goes away, or the socket is shut down.
/// Requests under way are finished then.
///
/// # Errors
/// The monitor broke the protocol, asked for what cannot be, or said nothing. The disk is as its
/// requests left it.
pub fn serve(disk: &VirtualDisk<'_>, socket: UnixStream) -> Result<(), ConnectionFailure> {
    let tally = disk.export.count_connection();
    let limited = socket.try_clone().and_then(|same| same.set_read_timeout(Some(SILENCE_MAX)).map(|()| same));
    let limited = limited
        .map_err(|error| ConnectionFailure::Refused(Refusal::System { what: "a limit for a silent monitor", error }))?;
    scope(|scope| {
        let session = Arc::new(Mutex::new(MonitorSession::new(disk, &tally, scope)));
        let mut messages = BackendReqHandler::from_stream(socket, Arc::clone(&session));
        let mut has_memory = false;
        let error = loop {
            if let Err(error) = messages.handle_request() {
                break error;
            }
            if !has_memory && session.lock().expect(HOLDER_PANICKED).memory.is_shared() {
                // A monitor that attached the disk may be silent for ever.
                has_memory = limited.set_read_timeout(None).is_ok();
            }
        };
        let refused = session.lock().expect(HOLDER_PANICKED).refused.take();
        match (refused, error) {
            (Some(refusal), _) => Err(ConnectionFailure::Refused(refusal)),
            (None, ProtocolError::Disconnected | ProtocolError::SocketBroken(_)) => Ok(()),
            (None, ProtocolError::SocketRetry(_)) => Err(ConnectionFailure::Silent),
            (None, error) => Err(ConnectionFailure::Protocol(error)),
        }
    })
}

const HOLDER_PANICKED: &str = "nothing that holds this lock panics";

/// What a monitor said so far. Its queues end when this is dropped.
struct MonitorSession<'scope, 'env> {
    disk: &'env VirtualDisk<'env>,
    tally: &'env ConnectionCounters<'env>,
    scope: &'scope Scope<'scope, 'env>,
    memory: SharedMemory,
    acknowledged: u64,
    queues: Vec<QueueSlot<'scope>>,
    /// Why the last message was refused.
    refused: Option<Refusal>,
}

#[derive(Default)]
struct QueueSlot<'scope> {
    settings: RingSettings,
    is_enabled: bool,
    /// The request that comes next, as the monitor or the queue's last thread said.
    next: u16,
    is_broken: bool,
    working: Option<Working<'scope>>,
}

struct Working<'scope> {
    stop: Arc<Stop>,
    thread: ScopedJoinHandle<'scope, (u16, Result<(), BrokenQueue>)>,
}

/// What becomes of a queue whose rings do not lie in the memory that is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WithoutRings {
    /// The message is refused.
    Refuse,
    /// It stands still until they do: other memory may be about to be shared.
    Stand,
}

const PROTOCOL_FEATURES: VhostUserVirtioFeatures = VhostUserVirtioFeatures::PROTOCOL_FEATURES;

impl<'scope, 'env> MonitorSession<'scope, 'env> {
    fn new(
        disk: &'env VirtualDisk<'env>,
        tally: &'env ConnectionCounters<'env>,
        scope: &'scope Scope<'scope, 'env>,
    ) -> MonitorSession<'scope, 'env> {
        let queues = (0..QUEUES_MAX).map(|_| QueueSlot::default()).collect();
        MonitorSession { disk, tally, scope, memory: SharedMemory::none(), acknowledged: 0, queues, refused: None }
    }

    fn offered(&self) -> u64 {
        let is_read_only = self.disk.access == MachineAccess::ReadOnly || self.disk.export.is_read_only();
        features(is_read_only) | PROTOCOL_FEATURES.bits()
    }

    /// What a driver may have agreed to: a volume that may not be changed now could be before.
    fn ever_offered() -> u64 {
        features(true) | features(false) | PROTOCOL_FEATURES.bits()
    }

    fn has_agreed_to(&self, number: u32) -> bool {
        self.acknowledged & feature(number) != 0
    }

    /// Answers a message as refused, and remembers why.
    fn refuse<T>(&mut self, refusal: impl Into<Refusal>) -> ProtocolResult<T> {
        self.refused = Some(refusal.into());
        Err(ProtocolError::InvalidParam)
    }

    /// Makes a change of queue `number` while it does not work.
    fn change(
        &mut self,
        number: u32,
        change: impl FnOnce(&mut QueueSlot<'scope>, &SharedMemory) -> Result<(), Refusal>,
    ) -> ProtocolResult<()> {
        let index = number as usize;
        if index >= self.queues.len() {
            return self.refuse(Refusal::NoSuchQueue { number, last: QUEUES_MAX - 1 });
        }
        self.halt(index..index + 1);
        let changed = change(&mut self.queues[index], &self.memory);
        let begun = changed.and_then(|()| self.begin(index, WithoutRings::Refuse));
        begun.or_else(|refusal| self.refuse(refusal))
    }

    /// Makes a change that concerns all queues while none works.
    fn change_all(&mut self, change: impl FnOnce(&mut Self) -> Result<(), Refusal>) -> ProtocolResult<()> {
        self.halt(0..self.queues.len());
        let mut begun = change(self);
        for index in 0..self.queues.len() {
            begun = begun.and_then(|()| self.begin(index, WithoutRings::Stand));
        }
        begun.or_else(|refusal| self.refuse(refusal))
    }

    /// Ends the threads of these queues, as far as they work. All end side by side.
    fn halt(&mut self, indexes: Range<usize>) {
        let slots = &mut self.queues[indexes];
        slots.iter().filter_map(|slot| slot.working.as_ref()).for_each(|working| working.stop.ask());
        for slot in slots {
            let Some(Working { thread, .. }) = slot.working.take() else { continue };
            match thread.join() {
                Ok((next, end)) => (slot.next, slot.is_broken) = (next, end.is_err()),
                // The device below panicked, which is told on stderr: its other queues go on.
                Err(_) => slot.is_broken = true,
            }
        }
    }

    /// Begins the thread of a queue, if the monitor has said all that it needs.
    fn begin(&mut self, index: usize, without_rings: WithoutRings) -> Result<(), Refusal> {
        let (slot, disk) = (&self.queues[index], self.disk);
        let is_enabled = slot.is_enabled || self.acknowledged & PROTOCOL_FEATURES.bits() == 0;
        let Some(settings) = slot.settings.complete().filter(|_| is_enabled && !slot.is_broken) else {
            return Ok(());
        };
        let flushes = self.has_agreed_to(VIRTIO_BLK_F_FLUSH);
        let durability = if flushes { Durability::Volatile } else { Durability::Fua };
        let executor = Executor::new(disk.export, self.tally, disk.access, durability);
        let with_event_index = self.has_agreed_to(VIRTIO_RING_F_EVENT_IDX);
        let settings = RingSettings { with_event_index, ..settings };
        let permit = disk.queue_budget.take().ok_or(Refusal::TooManyQueues)?;
        let ring = match Ring::prepare(index, settings, self.memory.mapped(), executor, disk.poll_budget) {
            Err(Refusal::Rings { .. }) if without_rings == WithoutRings::Stand => return Ok(()),
            prepared => prepared?,
        };
        let stop = ring.stop();
        let on_broken = disk.on_broken_queue;
        let work = move || {
            let _until_it_ends = permit;
            let (next, end) = ring.run();
            if let Err(broken) = &end {
                on_broken(index, broken);
            }
            (next, end)
        };
        let thread = Builder::new().name(format!("queue {index}")).stack_size(STACK_BYTES);
        let spawned = thread.spawn_scoped(self.scope, work);
        let thread = spawned.map_err(|error| Refusal::System { what: "a thread for a queue", error })?;
        self.queues[index].working = Some(Working { stop, thread });
        Ok(())
    }
}

impl Drop for MonitorSession<'_, '_> {
    fn drop(&mut self) {
        self.halt(0..self.queues.len());
    }
}

/// The descriptor of a message, for a queue's thread, which must never be kept waiting by it.
fn unblocking(file: Option<File>) -> Result<Option<Arc<OwnedFd>>, Refusal> {
    let Some(file) = file else { return Ok(None) };
    let file = OwnedFd::from(file);
    let flags = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::NONBLOCK));
    flags.map_err(|errno| Refusal::System { what: "a descriptor that does not block", error: errno.into() })?;
    Ok(Some(Arc::new(file)))
}

impl VhostUserBackendReqHandlerMut for MonitorSession<'_, '_> {
    fn set_owner(&mut self) -> ProtocolResult<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> ProtocolResult<()> {
        self.refuse(Refusal::NotOffered("RESET_OWNER"))
    }

    fn reset_device(&mut self) -> ProtocolResult<()> {
        self.refuse(Refusal::NotOffered("RESET_DEVICE"))
    }

    fn get_features(&mut self) -> ProtocolResult<u64> {
        Ok(self.offered())
    }

    fn set_features(&mut self, features: u64) -> ProtocolResult<()> {
        let foreign = features & !Self::ever_offered();
        if foreign != 0 {
            return self.refuse(Refusal::Features { features: foreign });
        }
        self.change_all(|session| {
            session.acknowledged = features;
            Ok(())
        })
    }

    fn set_mem_table(
        &mut self,
        table: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> ProtocolResult<Option<Vec<u64>>> {
        let table = table.iter().map(Place::from).zip(files).collect();
        self.change_all(|session| Ok(session.memory.replace(table)?)).map(|()| None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> ProtocolResult<()> {
        self.change(index, |slot, _| {
            let fits = u16::try_from(num).ok().filter(|size| size.is_power_of_two() && *size <= QUEUE_SIZE_MAX);
            slot.settings.size = fits.ok_or(Refusal::QueueSize { size: num, most: QUEUE_SIZE_MAX })?;
            Ok(())
        })
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> ProtocolResult<()> {
        self.change(index, |slot, memory| {
            slot.settings.rings = Some(Rings {
                descriptors: memory.guest_address(descriptor)?,
                available: memory.guest_address(available)?,
                used: memory.guest_address(used)?,
            });
            slot.is_broken = false;
            Ok(())
        })
    }

    /// The ring of answers tells more exactly where to go on.
    fn set_vring_base(&mut self, index: u32, base: u32) -> ProtocolResult<()> {
        self.change(index, |slot, _| {
            // The ring's positions have 16 bits.
            let [low, high, ..] = base.to_le_bytes();
            slot.next = u16::from_le_bytes([low, high]);
            Ok(())
        })
    }

    fn get_vring_base(&mut self, index: u32) -> ProtocolResult<VhostUserVringState> {
        self.change(index, |slot, _| {
            (slot.settings.kick, slot.settings.rings) = (None, None);
            Ok(())
        })?;
        Ok(VhostUserVringState::new(index, self.queues[index as usize].next.into()))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> ProtocolResult<()> {
        self.change(index.into(), |slot, _| {
            slot.settings.kick = unblocking(fd)?;
            slot.is_broken = false;
            Ok(())
        })
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> ProtocolResult<()> {
        self.change(index.into(), |slot, _| {
            slot.settings.call = unblocking(fd)?;
            Ok(())
        })
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> ProtocolResult<()> {
        self.change(index.into(), |slot, _| {
            slot.settings.broken = unblocking(fd)?;
            Ok(())
        })
    }

    fn get_protocol_features(&mut self) -> ProtocolResult<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, _features: u64) -> ProtocolResult<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> ProtocolResult<u64> {
        Ok(QUEUES_MAX.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> ProtocolResult<()> {
        self.change(index, |slot, _| {
            slot.is_enabled = enable;
            Ok(())
        })
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> ProtocolResult<Vec<u8>> {
        Ok(ConfigSpace::of(self.disk.export).read(offset, size))
    }

    /// A guest may write to its configuration space at any time: nothing there can be changed, as
    /// the features for that are not offered.
    fn set_config(&mut self, _offset: u32, _bytes: &[u8], _flags: VhostUserConfigFlags) -> ProtocolResult<()> {
        Ok(())
    }

    fn set_gpu_socket(&mut self, _socket: GpuBackend) -> ProtocolResult<()> {
        self.refuse(Refusal::NotOffered("GPU_SET_SOCKET"))
    }

    fn get_shared_object(&mut self, _object: VhostUserSharedMsg) -> ProtocolResult<File> {
        self.refuse(Refusal::NotOffered("GET_SHARED_OBJECT"))
    }

    fn get_inflight_fd(&mut self, _asked: &VhostUserInflight) -> ProtocolResult<(VhostUserInflight, File)> {
        self.refuse(Refusal::NotOffered("GET_INFLIGHT_FD"))
    }

    fn set_inflight_fd(&mut self, _told: &VhostUserInflight, _file: File) -> ProtocolResult<()> {
        self.refuse(Refusal::NotOffered("SET_INFLIGHT_FD"))
    }

    fn get_max_mem_slots(&mut self) -> ProtocolResult<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy_listening: Option<bool>,
    ) -> ProtocolResult<Option<u64>> {
        let place = Place::from(&**region);
        self.change_all(|session| Ok(session.memory.add(place, file)?)).map(|()| None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> ProtocolResult<()> {
        let place = Place::from(&**region);
        self.change_all(|session| Ok(session.memory.remove(place)?))
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> ProtocolResult<Option<File>> {
        self.refuse(Refusal::NotOffered("SET_DEVICE_STATE_FD"))
    }

    fn check_device_state(&mut self) -> ProtocolResult<()> {
        self.refuse(Refusal::NotOffered("CHECK_DEVICE_STATE"))
    }

    fn get_shmem_config(&mut self) -> ProtocolResult<VhostUserShMemConfig> {
        self.refuse(Refusal::NotOffered("GET_SHMEM_CONFIG"))
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> ProtocolResult<()> {
        self.refuse(Refusal::NotOffered("SET_LOG_BASE"))
    }
}
