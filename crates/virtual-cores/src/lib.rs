//! Threads on virtual cores in virtual time.
//!
//! A [`Machine`] runs any number of virtual threads, each a coroutine, on one thread of the
//! operating system. Locks, atomics, parking and time come from [`sync`], [`thread`] and
//! [`now_ns`]; each use of one is a *point* at which the machine may go on with another thread. A
//! seed makes every choice, by the rules of an [`Order`], and [`Ended::hash`] is a digest of all
//! choices and of everything that [`note`] was told: two runs with the same digest did the same in
//! the same order. Nothing in it depends on addresses, on the clock, or on how the code was
//! compiled.
//!
//! Every core has a clock, which only [`charge`], waiting and points move. With [`Order::Timed`]
//! the core whose clock is furthest behind goes on, as if all of them ran at once.
//!
//! Interleavings are those of whole accesses: an atomic of any ordering acts as if it were
//! sequentially consistent. What a weaker ordering permits beyond that is not explored here.
//!
//! Off the machine, on a plain thread, everything here does what its counterpart in `std` does.

#![forbid(unsafe_code)]

mod flaw;
mod machine;
mod order;
mod random;
mod slots;
pub mod sync;
pub mod thread;
mod trace;

pub use flaw::{Flaw, FlawKind, Use};
pub use machine::{
    Costs, Ended, How, Machine, Plan, Wait, begin, charge, is_inside, loaded, note, now_ns, park, pass_time, point,
    set_token, stop, stored, thread_number, token, unpark,
};
pub use order::Order;
pub use random::{Rng, mix};
pub use trace::Trace;
