//! Layers that hold blocks on their way to the memory, and how far they have come when a server
//! ends.

use crate::units::Human;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use tidegate_media::Result;

/// Between two lines about progress.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// A layer that acknowledges blocks before they are where they belong.
pub trait Drain: Send + Sync {
    /// Bytes that were acknowledged and are still on their way.
    fn bytes_left(&self) -> u64;

    /// Moves all of them on, and makes them durable; `progress` is told now and then how many are
    /// left.
    ///
    /// # Errors
    /// The layer below failed; what is left stays left.
    fn finish(&self, progress: &mut dyn FnMut(u64)) -> Result<()>;

    /// Where the rest stays for the next server.
    fn kept_in(&self) -> &Path;

    /// Everything has arrived and is durable: what was kept for the next server goes.
    fn close(&self) -> io::Result<()>;
}

/// Moves everything on that `layer` holds. `tell` hears how much is left and how fast it goes, once
/// a second.
pub fn drain(layer: &dyn Drain, tell: impl FnMut(&str)) -> Result<()> {
    drain_by(layer, Instant::now, tell)
}

fn drain_by(layer: &dyn Drain, now: impl Fn() -> Instant, mut tell: impl FnMut(&str)) -> Result<()> {
    let mut meter = ProgressMeter { at: now(), left: layer.bytes_left() };
    layer.finish(&mut |left| meter.line(now(), left).iter().for_each(|line| tell(line)))
}

/// The progress of a drain when it was last shown.
pub struct ProgressMeter {
    at: Instant,
    left: u64,
}

impl ProgressMeter {
    /// A drain that has `left` bytes to go.
    pub fn begin(left: u64) -> ProgressMeter {
        ProgressMeter { at: Instant::now(), left }
    }

    /// Returns the line to show when `left` bytes are left `now`; `None` if the last one is fresh,
    /// or nothing was left then and nothing came since.
    pub fn line(&mut self, now: Instant, left: u64) -> Option<String> {
        self.line_if_due(now, || left)
    }

    /// As [`ProgressMeter::line`], for what takes a while to find out: `left` is asked only if a
    /// line is due.
    pub fn line_if_due(&mut self, now: Instant, left: impl FnOnce() -> u64) -> Option<String> {
        let passed = now.saturating_duration_since(self.at);
        if passed < LINE_EVERY {
            return None;
        }
        let left = left();
        let drained = u128::from(self.left.saturating_sub(left)) * 1_000_000_000 / passed.as_nanos();
        let per_second = u64::try_from(drained).unwrap_or(u64::MAX);
        let before = std::mem::replace(self, ProgressMeter { at: now, left });
        if before.left == 0 && left == 0 {
            return None;
        }
        let rate = format!("draining: {} left, {} per second", Human(left), Human(per_second));
        Some(match per_second {
            0 => rate,
            _ => format!("{rate}, {} s to go", left.div_ceil(per_second)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tidegate_media::Misuse;

    /// Moves a MiB each step, and fails when `fails_at` is left.
    struct Tank {
        left: AtomicU64,
        fails_at: u64,
    }

    impl Drain for Tank {
        fn bytes_left(&self) -> u64 {
            self.left.load(Ordering::Relaxed)
        }

        fn finish(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
            while self.bytes_left() > 0 {
                progress(self.bytes_left());
                if self.bytes_left() == self.fails_at {
                    return Err(Misuse::ReadOnly.into());
                }
                self.left.fetch_sub(1 << 20, Ordering::Relaxed);
            }
            Ok(())
        }

        fn kept_in(&self) -> &Path {
            Path::new("tank")
        }

        fn close(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Drains `mib` MiB, each step taking 400 ms; the lines, and whether it succeeded.
    fn lines(mib: u64, fails_at: u64) -> (Vec<String>, bool) {
        let (start, looks) = (Instant::now(), Cell::new(0));
        let now = || {
            looks.set(looks.get() + 1);
            start + Duration::from_millis(400) * (looks.get() - 1)
        };
        let tank = Tank { left: AtomicU64::new(mib << 20), fails_at };
        let mut lines = Vec::new();
        let done = drain_by(&tank, now, |line| lines.push(line.to_owned()));
        assert_eq!(done.is_ok(), tank.bytes_left() == 0);
        (lines, done.is_ok())
    }

    #[test]
    fn a_line_a_second_tells_what_is_left_and_how_fast_it_goes() {
        let expected = [
            "draining: 6 MiB left, 1.66 MiB per second, 4 s to go",
            "draining: 3 MiB left, 2.5 MiB per second, 2 s to go",
        ];
        assert_eq!(lines(8, u64::MAX), (expected.map(str::to_owned).to_vec(), true));
    }

    #[test]
    fn what_is_drained_is_told_once() {
        let mut meter = ProgressMeter::begin(8);
        let start = meter.at;
        let line = |meter: &mut ProgressMeter, seconds| meter.line(start + Duration::from_secs(seconds), 0);
        assert_eq!(line(&mut meter, 2).as_deref(), Some("draining: 0 B left, 4 B per second, 0 s to go"));
        assert_eq!([line(&mut meter, 4), line(&mut meter, 6)], [None, None]);
    }

    #[test]
    fn nothing_left_says_nothing_and_a_failure_ends_it() {
        assert_eq!(lines(0, u64::MAX), (Vec::new(), true));
        assert_eq!(lines(2, 1 << 20), (Vec::new(), false));
    }
}
