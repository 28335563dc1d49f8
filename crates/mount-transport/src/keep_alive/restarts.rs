//! How long to wait before a server that died is started again: a short pause is all that programs
//! should see, and a server that cannot even begin should not keep a processor busy.

use std::time::Duration;

/// A server that lived this long did not die at its start.
const LIFE_MIN: Duration = Duration::from_secs(1);
/// The wait after the second early death in a row; each further one doubles it.
const WAIT_MIN: Duration = Duration::from_millis(10);
/// Early deaths in a row after which no further server is started: they took five seconds.
const DEATHS_MAX: u32 = 10;

/// Deaths in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restarts {
    early_deaths: u32,
}

/// What follows a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStart {
    /// The next server is started after this time.
    For(Duration),
    /// None is: so many died at their start.
    GiveUp {
        /// How many.
        deaths: u32,
    },
}

impl Restarts {
    /// Counts a death. Returns how long to wait before the next start: not at all after a first
    /// one, so that programs see a short pause.
    pub(crate) fn wait_after(&mut self, lived: Duration) -> NextStart {
        if lived >= LIFE_MIN {
            self.early_deaths = 0;
        }
        self.early_deaths += 1;
        match self.early_deaths {
            1 => NextStart::For(Duration::ZERO),
            DEATHS_MAX.. => NextStart::GiveUp { deaths: self.early_deaths },
            deaths => NextStart::For(WAIT_MIN.saturating_mul(1 << (deaths - 2))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_until_a_server_lives_long_or_too_many_died() {
        let mut restarts = Restarts::default();
        let short = Duration::from_millis(5);
        let waits: Vec<_> = (0..9).map(|_| restarts.wait_after(short)).collect();
        let expected =
            [0, 10, 20, 40, 80, 160, 320, 640, 1280].map(|millis| NextStart::For(Duration::from_millis(millis)));
        assert_eq!(waits, expected);
        assert_eq!(restarts.wait_after(LIFE_MIN), NextStart::For(Duration::ZERO));
        let waits: Vec<_> = (0..9).map(|_| restarts.wait_after(short)).collect();
        assert_eq!(waits[0], NextStart::For(WAIT_MIN));
        assert_eq!(waits[8], NextStart::GiveUp { deaths: 10 });
    }
}
