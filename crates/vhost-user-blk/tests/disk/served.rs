//! A disk served to a machine, both in this process.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use tidegate_block_export::{Export, PollBudget};
use tidegate_media::BlockDevice;
use tidegate_vhost_user_blk::{BrokenQueue, ConnectionFailure, MachineAccess, QueueBudget, VirtualDisk, serve};
use tidegate_virtio_driver::{Machine, MachineError, Shape};

/// Queues that a machine may have at a time.
pub(crate) const QUEUES: u64 = 8;

/// Queues that guests broke.
pub(crate) type Broken = Arc<Mutex<Vec<(usize, BrokenQueue)>>>;

/// A device, as clients of all fronts have it.
#[derive(Clone)]
pub(crate) struct Served {
    /// The export.
    pub(crate) export: Arc<Export>,
    /// What was told of guests.
    pub(crate) broken: Broken,
}

/// A connection, from the device's end.
pub(crate) type Serving = JoinHandle<Result<(), ConnectionFailure>>;

impl Served {
    /// Offers `device`.
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Served {
        Served { export: Arc::new(Export::new("the disk", "", device)), broken: Broken::default() }
    }

    /// Serves one more monitor, whose end of the socket is returned.
    pub(crate) fn connect(&self) -> (UnixStream, Serving) {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let Served { export, broken } = self.clone();
        let serving = thread::spawn(move || {
            let on_broken_queue =
                |queue: usize, why: &BrokenQueue| broken.lock().expect("no panic").push((queue, why.clone()));
            let (poll_budget, queue_budget) = (PollBudget::default(), QueueBudget::new(QUEUES));
            let disk = VirtualDisk {
                export: &export,
                poll_budget: &poll_budget,
                queue_budget: &queue_budget,
                access: MachineAccess::ReadWrite,
                on_broken_queue: &on_broken_queue,
            };
            serve(&disk, far)
        });
        (near, serving)
    }

    /// Attaches it to a new machine.
    pub(crate) fn attach(&self, shape: Shape) -> (Result<Machine, MachineError>, Serving) {
        let (socket, serving) = self.connect();
        (Machine::attach(socket, shape), serving)
    }
}
