//! Which thread goes on: the rules by which a seed chooses an interleaving.

use crate::random::Rng;

/// How a machine chooses the thread that goes on at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// At one point in so many, any thread that can go on.
    Random {
        /// Points between two choices, on average; at least 1.
        one_in: u64,
    },
    /// Each thread has a priority, and the highest that can go on does. At a few points, chosen
    /// beforehand, the running thread's falls below all others (PCT: an interleaving that needs few
    /// such changes is found with a known probability).
    Priorities {
        /// How many such points there are.
        changes: u32,
        /// Points among which they are chosen.
        points: u64,
    },
    /// As `Random` with `one_in` 8, but one thread at a time hardly ever goes on while another can;
    /// which one changes every so many points.
    Unfair {
        /// Points until another thread is neglected.
        points: u64,
    },
    /// The core whose clock is furthest behind, as if all cores ran at once.
    Timed,
}

impl Order {
    /// Any of the untimed ones, as `rng` has it; `points` is about how many points there will be.
    pub fn any(rng: &mut Rng, points: u64) -> Order {
        match rng.below(8) {
            0 => Order::Random { one_in: 1 },
            1 => Order::Random { one_in: 3 },
            2 => Order::Random { one_in: 10 },
            3 => Order::Random { one_in: 60 },
            4 => Order::Priorities { changes: 3, points },
            5 => Order::Priorities { changes: 30, points },
            6 => Order::Priorities { changes: 1000, points },
            _ => Order::Unfair { points: 3000 },
        }
    }
}

/// An order at work on untimed threads.
pub(crate) struct Chooser {
    order: Order,
    rng: Rng,
    /// With priorities: each thread's, and the one below all.
    priorities: Vec<i64>,
    lowest: i64,
    /// With priorities: points at which the running thread falls, the next one last.
    falls: Vec<u64>,
    /// The thread neglected at present, and until which point.
    neglected: (usize, u64),
}

impl Chooser {
    pub(crate) fn new(order: Order, seed: u64, threads: usize) -> Chooser {
        let mut rng = Rng::new(seed);
        let mut priorities: Vec<i64> = (1..).take(threads).collect();
        for index in (1..threads).rev() {
            priorities.swap(index, rng.index(index + 1));
        }
        let mut falls = Vec::new();
        if let Order::Priorities { changes, points } = order {
            falls = (0..changes).map(|_| rng.below(points.max(1))).collect();
            falls.sort_unstable_by(|one, other| other.cmp(one));
            falls.dedup();
        }
        Chooser { order, rng, priorities, lowest: 0, falls, neglected: (0, 0) }
    }

    /// The thread that goes on at point number `now`, at which thread `current` could: one of
    /// `ready`, which is not empty.
    pub(crate) fn at_point(&mut self, now: u64, current: usize, ready: &[usize]) -> usize {
        match self.order {
            Order::Random { one_in } => {
                if self.rng.one_in(one_in.max(1)) {
                    return self.any(ready);
                }
                current
            }
            Order::Priorities { .. } => {
                if self.falls.last().is_some_and(|at| *at <= now) {
                    self.falls.pop();
                    self.fall(current);
                }
                self.highest(ready)
            }
            Order::Unfair { .. } => {
                if current != self.neglect(now) && !self.rng.one_in(8) {
                    return current;
                }
                self.any_but_neglected(now, ready)
            }
            Order::Timed => current,
        }
    }

    /// The thread that goes on when `current` gives way, or cannot go on.
    pub(crate) fn instead(&mut self, now: u64, current: usize, ready: &[usize]) -> usize {
        match self.order {
            Order::Priorities { .. } => {
                self.fall(current);
                self.highest(ready)
            }
            Order::Random { .. } | Order::Unfair { .. } | Order::Timed => {
                let others = ready.len() - usize::from(ready.contains(&current));
                if others == 0 {
                    return current;
                }
                // Once in a while the neglected one too: a loop that gives way may wait for nobody
                // else.
                let mut thread = self.any(ready);
                while thread == current || (thread == self.neglect(now) && others > 1 && !self.rng.one_in(16)) {
                    thread = self.any(ready);
                }
                thread
            }
        }
    }

    fn any(&mut self, ready: &[usize]) -> usize {
        ready[self.rng.index(ready.len())]
    }

    fn any_but_neglected(&mut self, now: u64, ready: &[usize]) -> usize {
        let neglected = self.neglect(now);
        let thread = self.any(ready);
        if thread != neglected || ready.len() == 1 || self.rng.one_in(256) {
            return thread;
        }
        let place = ready.iter().position(|other| *other == thread).expect("it was drawn from there");
        ready[(place + 1) % ready.len()]
    }

    fn neglect(&mut self, now: u64) -> usize {
        let Order::Unfair { points } = self.order else { return usize::MAX };
        if now >= self.neglected.1 {
            self.neglected = (self.rng.index(self.priorities.len()), now + 1 + self.rng.below(2 * points.max(1)));
        }
        self.neglected.0
    }

    fn fall(&mut self, thread: usize) {
        self.lowest -= 1;
        self.priorities[thread] = self.lowest;
    }

    fn highest(&self, ready: &[usize]) -> usize {
        *ready.iter().max_by_key(|thread| self.priorities[**thread]).expect("some thread is ready")
    }
}
