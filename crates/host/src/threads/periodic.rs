//! A thread that does something a few times a second.

use crate::threads::on_demand::{DemandBell, OnDemand};
use std::io;
use std::time::Duration;

/// The thread, until this is dropped.
pub struct Periodic {
    _thread: OnDemand,
}

impl Periodic {
    /// Starts the thread.
    pub fn start(name: &str, every: Duration, mut act: impl FnMut() + Send + 'static) -> io::Result<Periodic> {
        let act = move || {
            act();
            Some(every)
        };
        Ok(Periodic { _thread: OnDemand::start_after(Some(every), name, DemandBell::default(), act)? })
    }
}
