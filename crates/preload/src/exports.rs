//! The functions that are taken over, by what they do. Each is a few lines: what it means stands in
//! [`crate::follow`].
//!
//! On machines of 64 bits the names that end in `64` are second names of the same functions.

mod attributes;
mod calls;
mod changes;
mod numbers;
mod sharers;
mod streams;
mod syncs;
mod unseen;
mod writes;

use crate::{follow, next, process};

/// Called by the loader before the program begins.
#[unsafe(link_section = ".init_array")]
#[used]
static START: extern "C" fn() = start;

extern "C" fn start() {
    crate::guarded(|| {
        next::find_all();
        #[cfg(target_arch = "x86_64")]
        sharers::find_all();
        process::start();
        follow::STANDARD.for_each(follow::opened);
    });
}
