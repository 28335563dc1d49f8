//! A connection with a monitor: it says where the guest's memory and rings are, and when queues
//! begin and end.
//!
//! A queue that works belongs to its thread. For every change the thread is ended, which finishes
//! the request under way, and begun anew: the two never share anything that changes.

use crate::failure::{BrokenQueue, ConnectionFailure, Refusal};
use crate::memory::{Place, REGIONS_MAX, SharedMemory};
use crate::requests::Executor;
use crate::ring::{Ring, RingSettings, Stop};
use crate::virtio::{ConfigSpace, QUEUE_SIZE_MAX, QUEUES_MAX, feature, features};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, Scope, ScopedJoinHandle, scope};
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
    /// Hears of a queue, by its number, that the guest broke. Called on the queue's thread.
    pub on_broken_queue: &'d (dyn Fn(usize, &BrokenQueue) + Sync),
}

/// Serves the monitor at the other end of `socket` until it goes away, or the socket is shut down.
/// Requests under way are finished then.
///
/// # Errors
/// The monitor broke the protocol, or asked for what cannot be. The disk is as its requests left
/// it.
pub fn serve(disk: &VirtualDisk<'_>, socket: UnixStream) -> Result<(), ConnectionFailure> {
    let tally = disk.export.count_connection();
    scope(|scope| {
        let connection = Arc::new(Mutex::new(MonitorSession::new(disk, &tally, scope)));
        let mut messages = BackendReqHandler::from_stream(socket, Arc::clone(&connection));
        let error = loop {
            if let Err(error) = messages.handle_request() {
                break error;
            }
        };
        let refused = connection.lock().expect(HOLDER_PANICKED).refused.take();
        match (refused, error) {
            (Some(refusal), _) => Err(ConnectionFailure::Refused(refusal)),
            (None, ProtocolError::Disconnected | ProtocolError::SocketBroken(_)) => Ok(()),
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
        features(self.disk.export) | PROTOCOL_FEATURES.bits()
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
        self.halt(index);
        let changed = change(&mut self.queues[index], &self.memory);
        match changed.and_then(|()| self.begin(index)) {
            Ok(()) => Ok(()),
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// Makes a change that concerns all queues while none works.
    fn change_all(&mut self, change: impl FnOnce(&mut Self) -> Result<(), Refusal>) -> ProtocolResult<()> {
        (0..self.queues.len()).for_each(|index| self.halt(index));
        let changed = change(self).and_then(|()| (0..self.queues.len()).try_for_each(|index| self.begin(index)));
        match changed {
            Ok(()) => Ok(()),
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// Ends the thread of a queue, if it works.
    fn halt(&mut self, index: usize) {
        let slot = &mut self.queues[index];
        let Some(Working { stop, thread }) = slot.working.take() else { return };
        stop.ask();
        let (next, end) = thread.join().expect("a queue's thread does not panic");
        slot.next = next;
        slot.is_broken |= end.is_err();
    }

    /// Begins the thread of a queue, if the monitor has said all that it needs.
    fn begin(&mut self, index: usize) -> Result<(), Refusal> {
        let slot = &self.queues[index];
        let is_enabled = slot.is_enabled || self.acknowledged & PROTOCOL_FEATURES.bits() == 0;
        let is_ready = is_enabled && !slot.is_broken && slot.settings.kick.is_some() && slot.settings.size > 0;
        if !is_ready {
            return Ok(());
        }
        let flushes = self.has_agreed_to(VIRTIO_BLK_F_FLUSH);
        let durability = if flushes { Durability::Volatile } else { Durability::Fua };
        let executor = Executor::new(self.disk.export, self.tally, durability);
        let with_event_index = self.has_agreed_to(VIRTIO_RING_F_EVENT_IDX);
        let settings = RingSettings { with_event_index, ..slot.settings.clone() };
        let ring = Ring::prepare(index, settings, self.memory.mapped(), executor, self.disk.poll_budget)?;
        let stop = ring.stop();
        let on_broken = self.disk.on_broken_queue;
        let work = move || {
            let (next, end) = ring.run();
            if let Err(broken) = &end {
                on_broken(index, broken);
            }
            (next, end)
        };
        let spawned = Builder::new().name(format!("queue {index}")).spawn_scoped(self.scope, work);
        let thread = spawned.map_err(|error| Refusal::System { what: "a thread for a queue", error })?;
        self.queues[index].working = Some(Working { stop, thread });
        Ok(())
    }
}

impl Drop for MonitorSession<'_, '_> {
    fn drop(&mut self) {
        (0..self.queues.len()).for_each(|index| self.halt(index));
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
        let foreign = features & !self.offered();
        if foreign != 0 {
            return self.refuse(Refusal::Features { features: foreign });
        }
        self.change_all(|connection| {
            connection.acknowledged = features;
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
        self.change_all(|connection| Ok(connection.memory.replace(table)?)).map(|()| None)
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
            slot.settings.descriptors = memory.guest_address(descriptor)?;
            slot.settings.available = memory.guest_address(available)?;
            slot.settings.used = memory.guest_address(used)?;
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
            slot.settings.kick = None;
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

    /// Drivers may only write fields of features that are not offered.
    fn set_config(&mut self, _offset: u32, _bytes: &[u8], _flags: VhostUserConfigFlags) -> ProtocolResult<()> {
        self.refuse(Refusal::NotOffered("SET_CONFIG"))
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
        self.change_all(|connection| Ok(connection.memory.add(place, file)?)).map(|()| None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> ProtocolResult<()> {
        let place = Place::from(&**region);
        self.change_all(|connection| Ok(connection.memory.remove(place)?))
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
