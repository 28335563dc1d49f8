//! How a worker waits for a request: it polls for a moment where that pays, or sleeps at once.
//!
//! A client waits for each of its requests. If its worker sleeps on another core, waking it takes
//! several times what the request does. But a worker that polls keeps a core from others, and a
//! client on the same core from sending anything. Which of the two it is, nobody tells: the worker
//! serves some requests in one way and some in the other, and keeps the quicker one
//! (`crates/policy/src/polling/trial.rs`). It does so while a core is
//! idle that it may use.

use crate::device::{Device, DeviceError, Received, RequestBuffer};
use crate::workers::standby::Standby;
use std::hint;
use std::time::{Duration, Instant};
use tidegate_policy::polling::busy_poll::BUSY_POLL_MAX;
use tidegate_policy::polling::trial::{Trial, TrialRules, Way};

/// Sleeping at once is the first way, polling the second one. Requests that come more rarely than
/// `quick` would be polled for in vain.
const RULES: TrialRules = TrialRules {
    window: 32,
    settling: 8,
    quick: Duration::from_micros(150),
    turns: 3,
    kept: 256,
    vain_min: 8,
    vain_max: 1024,
    vain_growth: 4,
    gain: 95,
};

/// After so many polls in a row that saw nothing, polling is given up for a while.
const VAIN_MAX: u32 = 3;

/// How one worker waits.
#[derive(Debug)]
pub(super) struct RequestWait {
    /// None: it never polls.
    trial: Option<Trial>,
    begun: Instant,
    vain: u32,
}

impl RequestWait {
    /// A worker that knows nothing of its clients yet, and may poll or not.
    pub(super) fn new(may_poll: bool) -> RequestWait {
        RequestWait { trial: may_poll.then(|| Trial::new(&RULES)), begun: Instant::now(), vain: 0 }
    }

    /// Waits for a request.
    pub(super) fn receive<'b>(
        &mut self,
        device: &Device,
        standby: &Standby,
        buffer: &'b mut RequestBuffer,
    ) -> Result<Received<'b>, DeviceError> {
        if self.trial.is_some() && standby.has_room_to_poll() && self.polls(Instant::now()) {
            self.learn(polled(|| device.is_readable())?);
        }
        device.receive(buffer)
    }

    /// Whether to poll for the next request, the last one having been answered `now`.
    fn polls(&mut self, now: Instant) -> bool {
        let Some(trial) = &mut self.trial else { return false };
        trial.note(1, now - self.begun);
        trial.way() == Way::Second
    }

    /// Learns whether polling saw a request.
    fn learn(&mut self, has_seen: bool) {
        self.vain = if has_seen { 0 } else { self.vain + 1 };
        if self.vain >= VAIN_MAX
            && let Some(trial) = &mut self.trial
        {
            trial.give_up();
            self.vain = 0;
        }
    }
}

/// Looks again and again for a moment. Whether a request is there.
fn polled(mut look: impl FnMut() -> Result<bool, DeviceError>) -> Result<bool, DeviceError> {
    let began = Instant::now();
    loop {
        if look()? {
            return Ok(true);
        }
        if began.elapsed() >= BUSY_POLL_MAX {
            return Ok(false);
        }
        hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// Of so many requests that each take so many microseconds, if polled for and if not, how many
    /// are polled for; the last ones alone.
    fn polled_of_last(wait: &mut RequestWait, now: &mut Instant, (polled, slept): (u64, u64), last: u32) -> u32 {
        let mut one = |_| {
            let polls = wait.polls(*now);
            *now += Duration::from_micros(if polls { polled } else { slept });
            u32::from(polls)
        };
        (0..2000).for_each(|nth| _ = one(nth));
        (0..last).map(one).sum()
    }

    #[test]
    fn requests_are_polled_for_where_that_is_quicker() {
        let (mut wait, mut now) = (RequestWait::new(true), Instant::now());
        let polled = polled_of_last(&mut wait, &mut now, (20, 40), 1000);
        assert!(polled > 700, "{polled}");
        // The client has come to share the core.
        let mut last = 0;
        for _ in 0..20 {
            last = polled_of_last(&mut wait, &mut now, (60, 7), 1000);
        }
        assert!(last < 200, "{last}");
        let mut never = RequestWait::new(false);
        assert_eq!(polled_of_last(&mut never, &mut now, (20, 40), 1000), 0);
    }

    #[test]
    fn polls_in_vain_end_it_at_once() {
        let (mut wait, mut now) = (RequestWait::new(true), Instant::now());
        let mut polls = 0;
        // Polling has gained so far.
        polled_of_last(&mut wait, &mut now, (20, 40), 0);
        while !wait.polls(now) {
            now += Duration::from_micros(40);
        }
        for _ in 0..200 {
            if wait.polls(now) {
                polls += 1;
                wait.learn(false);
            }
            now += Duration::from_micros(90);
        }
        assert_eq!(polls, VAIN_MAX);
    }

    /// The other end of a socket stands for the kernel.
    #[test]
    fn requests_and_the_end_of_the_device_come_to_a_worker_that_polls() {
        let flags = SocketFlags::CLOEXEC;
        let (kernel, own) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
        let (device, standby) = (Device::from_descriptor(own), Standby::new());
        standby.begin();
        standby.found_idle_core();
        let (mut wait, mut buffer) = (RequestWait::new(true), RequestBuffer::new());
        for byte in 0..100_u8 {
            rustix::io::write(&kernel, &[byte; 60]).expect("room");
            wait.trial = Some(always());
            let received = wait.receive(&device, &standby, &mut buffer).expect("readable");
            assert!(matches!(received, Received::Request(message) if message == [byte; 60]));
            assert_eq!(wait.vain, 0, "it was seen");
        }
        drop(kernel);
        assert!(matches!(wait.receive(&device, &standby, &mut buffer), Ok(Received::End)));
    }

    /// A trial in which polling was found to gain.
    fn always() -> Trial {
        let (mut trial, mut now) = (Trial::new(&RULES), Duration::ZERO);
        while trial.way() == Way::First {
            now += Duration::from_micros(10);
            trial.note(1, now);
        }
        trial
    }

    #[test]
    fn a_request_is_looked_for_until_it_is_there_or_a_moment_has_passed() {
        let began = Instant::now();
        let mut looks = 0;
        assert!(!polled(|| Ok(false)).expect("readable"));
        assert!(began.elapsed() >= BUSY_POLL_MAX);
        let second_time = || {
            looks += 1;
            Ok(looks == 2)
        };
        assert!(polled(second_time).expect("readable") || looks == 1, "a machine under load gave the core away");
    }
}
