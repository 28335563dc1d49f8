//! A thread that answers one client stays on that client's core.
//!
//! Client and supervisor take turns: one waits while the other works. On one core the turn is a switch; across cores each turn wakes a processor, which takes
//! several times as long as keeping a block.

use rustix::thread::{CpuSet, sched_setaffinity};

/// Where a client was last.
#[derive(Debug, Default)]
pub(super) struct Near {
    core: Option<u64>,
}

impl Near {
    /// The client asked from `core`. Where the system refuses, the thread stays where it is.
    pub(super) fn follow(&mut self, core: Option<u64>) {
        let Some(number) = core.filter(|core| self.core != Some(*core)).and_then(|core| usize::try_from(core).ok())
        else {
            return;
        };
        if number < CpuSet::MAX_CPU {
            let mut only = CpuSet::new();
            only.set(number);
            let _ = sched_setaffinity(None, &only);
        }
        self.core = core;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{sched_getaffinity, sched_getcpu};

    #[test]
    fn a_thread_goes_where_its_client_is() {
        let follow = || {
            let allowed = sched_getaffinity(None).expect("the system tells");
            let mut near = Near::default();
            for core in (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)) {
                near.follow(Some(core as u64));
                assert_eq!(sched_getcpu(), core);
                near.follow(None);
                near.follow(Some(u64::MAX));
                assert_eq!(sched_getcpu(), core, "there is no other place to go");
            }
        };
        std::thread::spawn(follow).join().expect("it went everywhere");
    }
}
