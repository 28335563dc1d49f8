//! Threads of a service: one that does something a few times a second, one that works while there
//! is something to do, and several that do the same at once.

mod on_demand;
mod periodic;
mod side_by_side;
mod signals;

pub use on_demand::{DemandBell, OnDemand};
pub use periodic::Periodic;
pub use side_by_side::side_by_side;
pub use signals::SignalsHandedOn;
pub(crate) use signals::is_ignored;
