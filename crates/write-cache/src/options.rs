//! How a cache is set up.

use tidegate_layout::write_cache::SlotPlan;
use tidegate_media::Sealed;

/// How a cache behaves. The default is the transit cache; the two switches take one of its ideas
/// away, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The volume whose blocks are cached: after a kill, they are given to no other.
    pub volume: [u8; 16],
    /// Blocks the cache has room for.
    pub slots: u32,
    /// How slots are filled.
    pub fill: Fill,
    /// Whether blocks are evicted as soon as they are there. If not, only when no slot is free, and
    /// by flushes.
    pub eager: bool,
    /// Whether writes go past the cache when no slot is free. If not, they evict a slot and take
    /// it.
    pub bypass: bool,
}

impl Options {
    /// The transit cache with room for `slots` blocks of `volume`.
    pub fn new(volume: [u8; 16], slots: u32) -> Options {
        Options { volume, slots, fill: Fill::Copy, eager: true, bypass: true }
    }
}

/// How the bytes of a write get into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// By ordinary stores: best while the slots in use fit into the processor's caches.
    Copy,
    /// Past the processor's caches: best for slots in cold memory.
    Stream,
}

/// Bytes of memory that `slots` blocks of `block_size` bytes take, headers included.
pub fn bytes_for(slots: u32, block_size: u32) -> u64 {
    SlotPlan { slots, block_size }.bytes()
}

/// Why a cache cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// A cache of no slots.
    #[error("a cache needs at least one slot")]
    NoSlots,
    /// Memory too small for the slots.
    #[error("{slots} slots take {needed} bytes, and the memory has {len}")]
    TooSmall {
        /// Slots asked for.
        slots: u32,
        /// Bytes they take.
        needed: u64,
        /// Bytes there are.
        len: u64,
    },
    /// The memory refused a store.
    #[error(transparent)]
    Memory(#[from] Sealed),
}
