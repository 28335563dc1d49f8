//! A medium that everybody shares: it does one thing at a time, and what it is asked for at a time
//! it does as soon as it is free from then on.

use std::collections::VecDeque;

/// When a medium has something to do. Times in picoseconds.
///
/// Cores run ahead of each other by all that they do between two points: a few blocks that are
/// streamed to a slow memory are some ten microseconds. So what is asked later may be for earlier,
/// and must not wait for what another core will ask for only then: it is done in the idle time
/// before that, of which the last spans are remembered. Older ones are lost, as if nobody asked for
/// a time that long ago.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    busy_until_ps: u64,
    /// From when to when it has nothing to do before that, ascending; none is empty.
    idle: VecDeque<(u64, u64)>,
}

/// Many times as many as cores leave behind them while one of them runs ahead.
const IDLE_MAX: usize = 4096;

impl Queue {
    /// Asks for `work_ps` of the medium's time from `now_ps` on. Returns when it is done.
    pub fn reserve(&mut self, now_ps: u64, work_ps: u64) -> u64 {
        self.part_at(now_ps);
        let mut left_ps = work_ps;
        let place = self.idle.partition_point(|(from, _)| *from < now_ps);
        while let Some((from, until)) = self.idle.get_mut(place) {
            let part_ps = left_ps.min(*until - *from);
            *from += part_ps;
            left_ps -= part_ps;
            let (done_ps, is_used_up) = (*from, from == until);
            if is_used_up {
                self.idle.remove(place);
            }
            if left_ps == 0 {
                return done_ps;
            }
        }
        self.busy_until_ps += left_ps;
        self.busy_until_ps
    }

    /// Makes one of the idle spans begin at `now_ps`, if the medium is idle then.
    fn part_at(&mut self, now_ps: u64) {
        if self.busy_until_ps < now_ps {
            self.idle.push_back((self.busy_until_ps, now_ps));
            self.busy_until_ps = now_ps;
        }
        let place = self.idle.partition_point(|(_, until)| *until <= now_ps);
        if let Some((from, _)) = self.idle.get_mut(place)
            && *from < now_ps
        {
            let before = (std::mem::replace(from, now_ps), now_ps);
            self.idle.insert(place, before);
        }
        let old = self.idle.len().saturating_sub(IDLE_MAX);
        self.idle.drain(..old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_virtual_cores::Rng;

    /// One for each picosecond: whether the medium is busy.
    struct Dull([bool; 4000]);

    impl Dull {
        fn reserve(&mut self, now: usize, work: usize) -> usize {
            let free: Vec<usize> = (now..self.0.len()).filter(|at| !self.0[*at]).take(work).collect();
            free.iter().for_each(|at| self.0[*at] = true);
            free.last().expect("there is some") + 1
        }
    }

    #[test]
    fn whatever_order_is_asked_in_each_gets_the_first_time_that_is_left() {
        for seed in 0..50 {
            let (mut random, mut queue, mut dull) = (Rng::new(seed), Queue::default(), Dull([false; 4000]));
            for _ in 0..200 {
                let (now, work) = (random.index(2000), 1 + random.index(8));
                assert_eq!(queue.reserve(now as u64, work as u64), dull.reserve(now, work) as u64, "seed {seed}");
            }
        }
    }

    #[test]
    fn what_takes_no_time_waits_for_what_is_under_way() {
        let mut queue = Queue::default();
        assert_eq!([queue.reserve(10, 5), queue.reserve(30, 5)], [15, 35]);
        assert_eq!([5, 10, 12, 20, 32].map(|now| queue.reserve(now, 0)), [5, 15, 15, 20, 35]);
    }

    #[test]
    fn idle_time_long_ago_is_lost() {
        let mut queue = Queue::default();
        let spans = IDLE_MAX as u64 + 1;
        (1..=spans).for_each(|nth| assert_eq!(queue.reserve(nth * 10, 1), nth * 10 + 1));
        assert_eq!(queue.idle.len(), IDLE_MAX);
        assert_eq!(queue.reserve(0, 1), 12, "the first span went");
    }
}
