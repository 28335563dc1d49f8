//! A medium that everybody shares: what is asked of it is done one after the other.

/// When a medium will have done all that was asked of it so far. Times in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    busy_until_ps: u64,
}

impl Queue {
    /// Asks for `work_ps` of the medium's time at `now_ps`. Returns when it is done.
    ///
    /// Cores run ahead of each other by less than one act; an earlier `now_ps` than the last one's queues behind it.
    pub fn reserve(&mut self, now_ps: u64, work_ps: u64) -> u64 {
        self.busy_until_ps = self.busy_until_ps.max(now_ps) + work_ps;
        self.busy_until_ps
    }
}
