//! Request coalescing: whether a thread that serves a client waits briefly for more requests before
//! it looks for them.
//!
//! A client with many requests under way and its server, on another core, take the cache lines of
//! the same queue from each other with every request. A server that takes many requests at a time
//! spares its client that. If it sleeps by a timer meanwhile, the client need not wake it either.
//! But a client with few requests under way waits for each of them. The server cannot ask which
//! kind its client is, so it tries: it serves some requests in one way and some in the other, in
//! turn, and keeps the quicker way until the next trial. Each trial that gains nothing makes the
//! next one rarer.

use std::time::Duration;

/// How long requests are coalesced, beside the system's own delay of some 40 µs on a virtual
/// machine.
const PAUSE: Duration = Duration::from_micros(5);

/// Requests of which the time is taken together.
const WINDOW: u32 = 64;

/// Requests before them that are not counted: the first pause keeps back what the first looks after
/// it find.
const SETTLING: u32 = 32;

/// The longest time of a request at which it is tried: with longer ones, too few would be
/// coalesced.
const QUICK: Duration = Duration::from_micros(10);

/// Windows of each way in a trial. The quickest counts: what disturbs a window makes it slower.
const TURNS: u32 = 3;

/// Windows between a trial that gained something and the next.
const KEPT: u32 = 256;

/// Windows until the first trial, and after one that gained nothing.
const VAIN_MIN: u32 = 16;

/// Windows until the next trial after many vain ones. The slow half of a trial takes some 3 ms with
/// four requests on their way, 0.03 µs for each request until the next.
const VAIN_MAX: u32 = 1024;

/// How much longer it is after each of them.
const VAIN_GROWTH: u32 = 4;

/// No window is slower.
const SLOWEST: Duration = Duration::from_secs(1 << 32);

/// A gain is told from chance if the quicker way takes at most so many hundredths of the other
/// one's time.
const GAIN: u32 = 97;

/// What is done in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    /// Requests are taken as they come.
    AsTheyCome,
    /// They are coalesced first.
    Coalesced,
}

/// What a window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The way that is kept, for so many windows more.
    Kept(Strategy, u32),
    /// One of two ways in turn: windows of both that are over, and the quickest of each.
    Trial { over: u32, as_they_come: Duration, coalesced: Duration },
}

/// The coalescing decision for one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    stage: Stage,
    /// When the counted part of a window began, if it did, and requests since then or since the
    /// window began.
    counted_since: Option<Duration>,
    requests: u32,
    /// Windows until the next trial if one gains nothing.
    vain: u32,
}

impl Default for Coalescing {
    /// Requests are taken as they come.
    fn default() -> Coalescing {
        let stage = Stage::Kept(Strategy::AsTheyCome, VAIN_MIN);
        Coalescing { stage, counted_since: None, requests: 0, vain: VAIN_MIN }
    }
}

impl Coalescing {
    /// How long to sleep before the next look, `answered` requests after the last time this was
    /// asked. `now` is any clock's time that never goes back.
    pub fn pause(&mut self, answered: u32, now: Duration) -> Option<Duration> {
        self.requests = self.requests.saturating_add(answered);
        match self.counted_since {
            None if self.requests >= SETTLING => (self.counted_since, self.requests) = (Some(now), 0),
            Some(begun) if self.requests >= WINDOW => {
                self.stage = self.next(now.saturating_sub(begun) / self.requests);
                (self.counted_since, self.requests) = (None, 0);
            }
            _ => {}
        }
        (self.stage.way() == Strategy::Coalesced).then_some(PAUSE)
    }

    /// What follows a window in which a request took `each`.
    fn next(&mut self, each: Duration) -> Stage {
        match self.stage {
            Stage::Kept(Strategy::AsTheyCome, _) if each > QUICK => self.stage,
            Stage::Kept(way, left) if left > 1 && each <= QUICK => Stage::Kept(way, left - 1),
            Stage::Kept(..) => Stage::Trial { over: 0, as_they_come: SLOWEST, coalesced: SLOWEST },
            Stage::Trial { over, mut as_they_come, mut coalesced } => {
                let quickest = match self.stage.way() {
                    Strategy::AsTheyCome => &mut as_they_come,
                    Strategy::Coalesced => &mut coalesced,
                };
                *quickest = each.min(*quickest);
                match over + 1 {
                    over if over < 2 * TURNS => Stage::Trial { over, as_they_come, coalesced },
                    _ => self.judge(as_they_come, coalesced),
                }
            }
        }
    }

    fn judge(&mut self, as_they_come: Duration, coalesced: Duration) -> Stage {
        if coalesced <= QUICK && coalesced * 100 <= as_they_come * GAIN {
            self.vain = VAIN_MIN;
            return Stage::Kept(Strategy::Coalesced, KEPT);
        }
        let vain = self.vain;
        self.vain = (vain * VAIN_GROWTH).min(VAIN_MAX);
        Stage::Kept(Strategy::AsTheyCome, vain)
    }
}

impl Stage {
    fn way(self) -> Strategy {
        match self {
            Stage::Kept(way, _) => way,
            Stage::Trial { over, .. } if over % 2 == 0 => Strategy::AsTheyCome,
            Stage::Trial { .. } => Strategy::Coalesced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// A client that takes these times for a request if it is taken as it comes, and if it is
    /// coalesced.
    struct Client {
        coalescing: Coalescing,
        now: Duration,
        as_it_comes: Duration,
        coalesced: Duration,
    }

    impl Client {
        fn new(as_it_comes: u32, coalesced: u32) -> Client {
            let (as_it_comes, coalesced) = (MICROSECOND * as_it_comes, MICROSECOND * coalesced);
            Client { coalescing: Coalescing::default(), now: MICROSECOND * 1000, as_it_comes, coalesced }
        }

        /// Eight requests, and whether they coalesced.
        fn serve(&mut self) -> bool {
            let coalesces = self.coalescing.stage.way() == Strategy::Coalesced;
            self.now += 8 * if coalesces { self.coalesced } else { self.as_it_comes };
            let pause = self.coalescing.pause(8, self.now);
            assert_eq!(pause.is_some(), self.coalescing.stage.way() == Strategy::Coalesced);
            coalesces
        }

        /// How many of so many windows were coalesced.
        fn coalesced_of(&mut self, windows: u32) -> u32 {
            let coalesced: u32 = (0..windows * (SETTLING + WINDOW) / 8).map(|_| u32::from(self.serve())).sum();
            coalesced * 8 / (SETTLING + WINDOW)
        }

        /// A window, in the counted part of which others had the core for long.
        fn disturb(&mut self, really: bool) {
            for served in 0..(SETTLING + WINDOW) / 8 {
                self.now += if really && served == SETTLING / 8 { MICROSECOND * 5000 } else { Duration::ZERO };
                self.serve();
            }
        }
    }

    #[test]
    fn what_gains_by_coalescing_is_coalesced_but_for_trials() {
        let mut client = Client::new(5, 4);
        assert_eq!(client.coalesced_of(VAIN_MIN), 0);
        assert_eq!(client.coalesced_of(2 * TURNS), TURNS);
        assert_eq!(client.coalesced_of(KEPT), KEPT);
        assert_eq!(client.coalesced_of(2 * TURNS), TURNS);
        assert_eq!(client.coalesced_of(KEPT), KEPT);
    }

    #[test]
    fn what_loses_by_it_is_tried_ever_more_rarely() {
        let mut client = Client::new(4, 30);
        for windows in [16, 16, 64, 256, 1024, 1024] {
            assert_eq!(client.coalesced_of(windows), 0, "for {windows} windows");
            assert_eq!(client.coalesced_of(2 * TURNS), TURNS, "after {windows} windows");
        }
    }

    #[test]
    fn a_gain_that_may_be_chance_is_none() {
        let mut client = Client::new(100, 98);
        (client.as_it_comes, client.coalesced) = (client.as_it_comes / 20, client.coalesced / 20);
        assert_eq!(client.coalesced_of(VAIN_MIN + 2 * TURNS + VAIN_MIN), TURNS);
    }

    #[test]
    fn a_slow_client_is_not_tried_and_one_that_becomes_slow_is_let_be() {
        assert_eq!(Client::new(11, 4).coalesced_of(2000), 0);
        let mut client = Client::new(5, 4);
        assert_eq!(client.coalesced_of(VAIN_MIN + 2 * TURNS + 10), TURNS + 10);
        (client.as_it_comes, client.coalesced) = (MICROSECOND * 60, MICROSECOND * 50);
        assert_eq!(client.coalesced_of(1000), 1 + TURNS, "one that shows it, and a trial");
        (client.as_it_comes, client.coalesced) = (MICROSECOND * 5, MICROSECOND * 4);
        assert_eq!(
            client.coalesced_of(VAIN_MIN + 2 * TURNS + KEPT),
            TURNS + KEPT,
            "tried again when it is quick again"
        );
    }

    #[test]
    fn a_disturbed_window_decides_nothing() {
        let mut client = Client::new(5, 4);
        client.coalesced_of(VAIN_MIN);
        for turn in 0..2 * TURNS {
            client.disturb(turn < 4);
        }
        assert_eq!(client.coalesced_of(10), 10);
        client.disturb(true);
        assert_eq!(client.coalesced_of(2 * TURNS + KEPT), TURNS + KEPT, "it is tried, and kept");
    }
}
