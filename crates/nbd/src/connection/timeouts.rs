//! Timeouts: how long a connection has waited for its client, and how long it will.
//!
//! The stream's own limit is one short tick, set when there is a deadline to watch and taken away
//! when there is not. So the limit changes once in a burst of requests instead of with each, and an
//! idle connection sleeps without a timer.

use crate::failure::ConnectionError;
use crate::service::Timeouts;
use crate::stream::Stream;
use std::io;
use std::time::{Duration, Instant};

/// How late it may be noticed that a client is too slow, or idle.
const TICK_MAX: Duration = Duration::from_secs(1);

/// The shortest limit a socket takes.
const TICK_MIN: Duration = Duration::from_millis(1);

/// The deadlines of a connection: what it waits for, and since when.
pub(crate) struct Deadlines {
    timeouts: Timeouts,
    phase: Phase,
    /// Whether the stream has the limit of one tick.
    ticking: bool,
}

#[derive(Clone, Copy)]
enum Phase {
    Handshake {
        begun: Instant,
    },
    /// Between two requests, as far as is known.
    Idle,
    /// Some of a request is here, and was at this time.
    Half {
        begun: Instant,
    },
}

impl Deadlines {
    pub(crate) fn begin(timeouts: Timeouts) -> Deadlines {
        Deadlines { timeouts, phase: Phase::Handshake { begun: Instant::now() }, ticking: false }
    }

    pub(crate) fn handshake_ended(&mut self) {
        self.phase = Phase::Idle;
    }

    /// Whatever comes next is another message.
    pub(crate) fn message_ended(&mut self) {
        if let Phase::Half { .. } = self.phase {
            self.phase = Phase::Idle;
        }
    }

    /// Returns whether a timeout applies while waiting for the next bytes: in the handshake, and if
    /// some of a message is here.
    ///
    /// # Errors
    /// The timeout has passed.
    pub(crate) fn due(&mut self, half: bool) -> Result<bool, ConnectionError> {
        match self.phase {
            Phase::Handshake { begun } if begun.elapsed() > self.timeouts.handshake => {
                Err(ConnectionError::SlowHandshake { limit: self.timeouts.handshake })
            }
            Phase::Half { begun } if begun.elapsed() > self.timeouts.request => {
                Err(ConnectionError::SlowRequest { limit: self.timeouts.request })
            }
            Phase::Handshake { .. } | Phase::Half { .. } => Ok(true),
            Phase::Idle if half => {
                self.phase = Phase::Half { begun: Instant::now() };
                Ok(true)
            }
            Phase::Idle => Ok(false),
        }
    }

    /// Makes the next call that waits on `stream` return after a tick, or not before something
    /// arrives.
    pub(crate) fn tick(&mut self, stream: &impl Stream, ticking: bool) -> io::Result<()> {
        if ticking != self.ticking {
            let tick = self.timeouts.handshake.min(self.timeouts.request).clamp(TICK_MIN, TICK_MAX);
            stream.limit_waiting(ticking.then_some(tick))?;
            self.ticking = ticking;
        }
        Ok(())
    }
}
