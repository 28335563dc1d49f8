//! Which of two ways to wait for a client's requests is the quicker one, found by trial.
//!
//! Some requests are served in one way and some in the other, in turn. The quicker way is kept
//! until the next trial. Each trial in which the second way gains nothing makes the next one rarer.

use std::time::Duration;

/// No window is slower.
const SLOWEST: Duration = Duration::from_secs(1 << 32);

/// How trials are made.
#[derive(Debug, PartialEq, Eq)]
pub struct TrialRules {
    /// Requests of which the time is taken together.
    pub window: u32,
    /// Requests before them that are not counted: they were sent while the other way was used.
    pub settling: u32,
    /// The longest time of a request at which the second way is tried.
    pub quick: Duration,
    /// Windows of each way in a trial. The quickest counts: what disturbs a window makes it slower.
    pub turns: u32,
    /// Windows between a trial that gained something and the next.
    pub kept: u32,
    /// Windows until the first trial, and after one that gained nothing.
    pub vain_min: u32,
    /// Windows until the next trial after many vain ones.
    pub vain_max: u32,
    /// How much longer it is after each of them.
    pub vain_growth: u32,
    /// A gain is told from chance if the second way takes at most so many hundredths of the first
    /// one's time.
    pub gain: u32,
}

/// One of the two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The one to begin with.
    First,
    /// The one that has to gain something.
    Second,
}

/// What a window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The way that is kept, for so many windows more.
    Kept(Way, u32),
    /// One of two ways in turn: windows of both that are over, and the quickest of each.
    Trial { over: u32, first: Duration, second: Duration },
}

/// The choice for one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    rules: &'static TrialRules,
    stage: Stage,
    /// When the counted part of a window began, if it did, and requests since then or since the
    /// window began.
    counted_since: Option<Duration>,
    requests: u32,
    /// Windows until the next trial if one gains nothing.
    vain: u32,
}

impl Trial {
    /// Requests are served in the first way.
    pub fn new(rules: &'static TrialRules) -> Trial {
        let stage = Stage::Kept(Way::First, rules.vain_min);
        Trial { rules, stage, counted_since: None, requests: 0, vain: rules.vain_min }
    }

    /// The way that is used now.
    pub fn way(&self) -> Way {
        self.stage.way()
    }

    /// So many more requests were served. `now` is any clock's time that never goes back.
    pub fn note(&mut self, served: u32, now: Duration) {
        self.requests = self.requests.saturating_add(served);
        match self.counted_since {
            None if self.requests >= self.rules.settling => (self.counted_since, self.requests) = (Some(now), 0),
            Some(begun) if self.requests >= self.rules.window => {
                self.stage = self.next(now.saturating_sub(begun) / self.requests);
                (self.counted_since, self.requests) = (None, 0);
            }
            _ => {}
        }
    }

    /// The second way is of no use, as is plain without a comparison.
    pub fn give_up(&mut self) {
        self.stage = self.kept_first();
        (self.counted_since, self.requests) = (None, 0);
    }

    /// What follows a window in which a request took `each`.
    fn next(&mut self, each: Duration) -> Stage {
        let TrialRules { quick, turns, .. } = *self.rules;
        match self.stage {
            Stage::Kept(Way::First, _) if each > quick => self.stage,
            Stage::Kept(way, left) if left > 1 && each <= quick => Stage::Kept(way, left - 1),
            Stage::Kept(..) => Stage::Trial { over: 0, first: SLOWEST, second: SLOWEST },
            Stage::Trial { over, mut first, mut second } => {
                let quickest = match self.stage.way() {
                    Way::First => &mut first,
                    Way::Second => &mut second,
                };
                *quickest = each.min(*quickest);
                match over + 1 {
                    over if over < 2 * turns => Stage::Trial { over, first, second },
                    _ => self.judge(first, second),
                }
            }
        }
    }

    fn judge(&mut self, first: Duration, second: Duration) -> Stage {
        let TrialRules { quick, kept, vain_min, gain, .. } = *self.rules;
        if second <= quick && second * 100 <= first * gain {
            self.vain = vain_min;
            return Stage::Kept(Way::Second, kept);
        }
        self.kept_first()
    }

    fn kept_first(&mut self) -> Stage {
        let vain = self.vain;
        self.vain = (vain * self.rules.vain_growth).min(self.rules.vain_max);
        Stage::Kept(Way::First, vain)
    }
}

impl Stage {
    fn way(self) -> Way {
        match self {
            Stage::Kept(way, _) => way,
            Stage::Trial { over, .. } if over % 2 == 0 => Way::First,
            Stage::Trial { .. } => Way::Second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: TrialRules = TrialRules {
        window: 4,
        settling: 2,
        quick: Duration::from_micros(100),
        turns: 2,
        kept: 5,
        vain_min: 1,
        vain_max: 8,
        vain_growth: 4,
        gain: 95,
    };

    /// What coalescing does with trials is tested there.
    #[test]
    fn a_way_that_is_given_up_is_tried_again_later_and_later() {
        let (mut trial, mut now, mut until_tried) = (Trial::new(&RULES), Duration::ZERO, Vec::new());
        for _ in 0..4 {
            let served = (0..1000).take_while(|_| {
                now += Duration::from_micros(10);
                trial.note(1, now);
                trial.way() == Way::First
            });
            until_tried.push(served.count());
            trial.give_up();
            assert_eq!(trial.way(), Way::First);
        }
        // Two windows of six requests until the first trial's second way, and then so many more.
        assert_eq!(until_tried, [11, 11, 29, 53]);
    }
}
