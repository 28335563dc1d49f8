//! How many connections the system has room for: file descriptors and memory mappings are limited
//! for each process.

use crate::control::watchers::WATCHERS_MAX;
use tidegate_host::rlimits::{mappings_max, raise_descriptors};
use tidegate_nbd::OFFLOAD_THREADS_MAX;

/// Descriptors kept for everything but connections: those who watch, over either kind of socket,
/// and what does not hang on numbers.
const DESCRIPTORS_RESERVED: u64 = 2 * WATCHERS_MAX as u64 + 64;

/// Mappings of a thread: its stack and the one for signals, each with a page that guards it. A
/// thread that does not get them all takes the process with it.
const MAPPINGS_OF_THREAD: u64 = 4;

/// Mappings of a thread and the long buffers that it fills. Most buffers take none: neighbours in
/// memory share one, and one that gets none of its own goes to the heap.
const MAPPINGS_EACH: u64 = MAPPINGS_OF_THREAD + 2;

/// Mappings kept for everything but connections: the second threads that some of them have for a
/// while, and what does not hang on their number.
const MAPPINGS_RESERVED: u64 = MAPPINGS_EACH * OFFLOAD_THREADS_MAX as u64 + 2560;

/// Descriptors of a queue of a virtual machine: what its monitor gave, and two to wait by.
const DESCRIPTORS_OF_QUEUE: u64 = 5;

/// Lets this process open as many files as it may, and returns how many of `wanted` connections
/// have room beside `queues` of virtual machines.
pub fn connections(wanted: usize, queues: u64) -> usize {
    let room = room_of_descriptors(raise_descriptors(), queues).min(room_of_mappings(mappings_max(), queues));
    usize::try_from(room).unwrap_or(usize::MAX).clamp(1, wanted)
}

/// Returns how many connections have room beside `queues` of virtual machines in a process that may
/// open so many descriptors.
pub fn room_of_descriptors(descriptors: u64, queues: u64) -> u64 {
    descriptors.saturating_sub(DESCRIPTORS_RESERVED + DESCRIPTORS_OF_QUEUE * queues)
}

/// Returns how many connections have room beside `queues` of virtual machines in a process that may
/// have so many mappings.
pub fn room_of_mappings(mappings: u64, queues: u64) -> u64 {
    mappings.saturating_sub(MAPPINGS_RESERVED + MAPPINGS_EACH * queues) / MAPPINGS_EACH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_wanted_and_never_none() {
        assert_eq!(connections(1, 0), 1);
        assert!((1..=usize::MAX).contains(&connections(usize::MAX, 0)));
        assert!(connections(usize::MAX, 1000) < connections(usize::MAX, 0));
    }
}
