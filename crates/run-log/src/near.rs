//! A thread that answers one client stays on that client's core while the client waits, and off it
//! while the client goes on.
//!
//! Client and supervisor take turns: one waits while the other works. On one core the turn is a
//! switch; across cores each turn wakes a processor, which takes several times as long as keeping a
//! block. What the client does not wait for would only be in its way there.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tidegate_preload_wire::Where;

/// Where a thread is.
#[derive(Debug, Default)]
pub(super) struct Near {
    place: Option<Where>,
    /// Where it might be.
    allowed: Option<CpuSet>,
}

impl Near {
    /// The client asked for an answer from there. Where the system refuses, the thread stays where
    /// it is.
    pub(super) fn follow(&mut self, place: Option<Where>) {
        let Some(place) = place.filter(|place| self.place != Some(*place)) else { return };
        let (Where::On(core) | Where::Off(core)) = place;
        let Some(core) = usize::try_from(core).ok().filter(|core| *core < CpuSet::MAX_CPU) else { return };
        let allowed = self.allowed.get_or_insert_with(|| sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new()));
        let mut cores = CpuSet::new();
        match place {
            Where::On(_) => cores.set(core),
            Where::Off(_) => {
                cores = *allowed;
                cores.unset(core);
            }
        }
        if cores.count() > 0 {
            let _ = sched_setaffinity(None, &cores);
        }
        self.place = Some(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getcpu;

    #[test]
    fn a_thread_goes_where_its_client_is() {
        let follow = || {
            let allowed = sched_getaffinity(None).expect("the system tells");
            let mut near = Near::default();
            for core in (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)) {
                near.follow(Some(Where::On(core as u64)));
                assert_eq!(sched_getcpu(), core);
                near.follow(None);
                near.follow(Some(Where::On(u64::MAX)));
                assert_eq!(sched_getcpu(), core, "there is no other place to go");
                near.follow(Some(Where::Off(core as u64)));
                assert!(sched_getcpu() != core || allowed.count() == 1);
            }
        };
        std::thread::spawn(follow).join().expect("it went everywhere");
    }
}
