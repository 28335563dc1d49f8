//! What a process with the direct path has mapped: the addresses that have pages of the pool, or of
//! the kernel, and where it says when it stored to them.
//!
//! This is data, without an allocation: it lies in statics of the preloaded library, behind that
//! library's lock. Here it has tests of its own. The library has none: in a test program its
//! exports would take over that program's calls.
//!
//! # The law of the unsafe code
//!
//! - **L4** A time page is mapped while an entry of the table of mappings names it, and is only
//!   used as atomics.
//! - **L5** What is known of a paged mapping's extents is mapped while the table names the mapping,
//!   and is only used as atomics by whoever has the table's lock.

mod kernel_mappings;
mod mapped_areas;
mod mapped_ranges;
mod paged;
mod times;

pub use kernel_mappings::{KernelMapping, KernelMappings};
pub use mapped_areas::is_mapped;
pub use mapped_ranges::{MappedPages, MappedRanges, Pin, Reach};
pub use paged::{Arrivals, COMES, EXTENT_BYTES, PAGED_MAX, Paged, PagedExtent, Which};
pub use times::{Times, now};

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;
