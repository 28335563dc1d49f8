//! Request coalescing: whether a thread that serves a client waits briefly for more requests before
//! it looks for them.
//!
//! A client with many requests under way and its server, on another core, take the cache lines of
//! the same queue from each other with every request. A server that takes many requests at a time
//! spares its client that. If it sleeps by a timer meanwhile, the client need not wake it either.
//! But a client with few requests under way waits for each of them. The server cannot ask which
//! kind its client is, so it tries ([`trial`](super::trial)).

use super::trial::{Trial, TrialRules, Way};
use std::time::Duration;

/// How long requests are coalesced, beside the system's own delay of some 40 µs on a virtual
/// machine.
const PAUSE: Duration = Duration::from_micros(5);

/// With requests that take longer, too few would be coalesced. The first pause keeps back what the
/// first looks after it find, which is not counted. The slow half of a trial takes some 3 ms with
/// four requests on their way: after many vain ones, 0.03 µs for each request until the next.
const RULES: TrialRules = TrialRules {
    window: 64,
    settling: 32,
    quick: Duration::from_micros(10),
    turns: 3,
    kept: 256,
    vain_min: 16,
    vain_max: 1024,
    vain_growth: 4,
    gain: 97,
};

/// The coalescing decision for one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing(Trial);

impl Default for Coalescing {
    /// Requests are taken as they come.
    fn default() -> Coalescing {
        Coalescing(Trial::new(&RULES))
    }
}

impl Coalescing {
    /// How long to sleep before the next look, `answered` requests after the last time this was
    /// asked. `now` is any clock's time that never goes back.
    pub fn pause(&mut self, answered: u32, now: Duration) -> Option<Duration> {
        self.0.note(answered, now);
        (self.0.way() == Way::Second).then_some(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u32 = RULES.window;
    const SETTLING: u32 = RULES.settling;
    const TURNS: u32 = RULES.turns;
    const KEPT: u32 = RULES.kept;
    const VAIN_MIN: u32 = RULES.vain_min;
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
            let coalesces = self.coalescing.0.way() == Way::Second;
            self.now += 8 * if coalesces { self.coalesced } else { self.as_it_comes };
            let pause = self.coalescing.pause(8, self.now);
            assert_eq!(pause.is_some(), self.coalescing.0.way() == Way::Second);
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
