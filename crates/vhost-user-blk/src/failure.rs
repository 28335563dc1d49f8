//! What goes wrong between a disk and its virtual machine.

use crate::memory::MemoryFailure;
use std::io;

/// Why a connection with a monitor ended before the monitor closed it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionFailure {
    /// The monitor sent what the protocol does not allow.
    #[error("its monitor broke the protocol: {0}")]
    Protocol(vhost::vhost_user::Error),
    /// The monitor did not say where its memory is.
    #[error("its monitor was silent for too long")]
    Silent,
    /// What the monitor asked for was refused.
    #[error("its monitor asked for what cannot be: {0}")]
    Refused(Refusal),
}

/// Why a message of a monitor was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// About memory.
    #[error(transparent)]
    Memory(#[from] MemoryFailure),
    /// A queue that the disk does not have.
    #[error("queue {number}: the disk has queues 0 to {last}")]
    NoSuchQueue {
        /// Which one.
        number: u32,
        /// The last there is.
        last: u16,
    },
    /// Descriptors of a queue: no power of two, or too many.
    #[error("a queue of {size} descriptors: a power of two up to {most} is taken")]
    QueueSize {
        /// How many.
        size: u32,
        /// The most.
        most: u16,
    },
    /// Rings that lie outside the memory, or unaligned.
    #[error("the rings of queue {number} do not lie in the shared memory, or are not aligned")]
    Rings {
        /// Whose.
        number: usize,
    },
    /// More queues than the server has threads for.
    #[error("the server's machines have as many queues as it serves: give them fewer (QEMU: num-queues=1)")]
    TooManyQueues,
    /// Features that were not offered.
    #[error("features {features:#x} were not offered")]
    Features {
        /// Which.
        features: u64,
    },
    /// What no disk does.
    #[error("{0} is not offered")]
    NotOffered(&'static str),
    /// The system refused something.
    #[error("the system refused {what}: {error}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
}

/// How a guest broke one of its queues. The queue stands still until the driver resets the disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokenQueue {
    /// More requests than the queue has room for, or rings that cannot be read.
    #[error("its ring of available requests is damaged: {0}")]
    Ring(String),
    /// A chain of descriptors that ends nowhere, loops, or has no room for header or answer.
    #[error("the chain of descriptors from {head} on is damaged")]
    Chain {
        /// The first descriptor's number.
        head: u16,
    },
    /// An answer that could not be put into the guest's memory.
    #[error("the answer to the request at descriptor {head} has no place in the guest's memory")]
    NoPlaceForAnswer {
        /// The first descriptor's number.
        head: u16,
    },
}
