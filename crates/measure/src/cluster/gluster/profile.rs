//! What `gluster volume profile … info incremental` says of bricks.

use anyhow::Context;
use std::time::Duration;

/// What the bricks of a volume were asked, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BrickProfile {
    /// Syncs of files.
    pub syncs: u64,
    /// The time of all of them.
    pub syncing: Duration,
    /// Writes.
    pub writes: u64,
    /// Bytes of them.
    pub bytes_written: u64,
}

impl BrickProfile {
    /// The mean time of a sync; 0 without one.
    pub fn sync_mean(&self) -> Duration {
        self.syncing.div_f64(self.syncs.max(1) as f64)
    }

    /// Adds up what the command says of each brick in its last interval.
    pub(super) fn of(said: &str) -> anyhow::Result<BrickProfile> {
        let mut profile = BrickProfile::default();
        for line in said.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                // Share of the time; mean, least and most with their units; calls; operation.
                [_, mean, unit, _, _, _, _, calls, "FSYNC"] => {
                    let calls: u64 = calls.parse().with_context(|| format!("calls in {line:?}"))?;
                    let mean: f64 = mean.parse().with_context(|| format!("a time in {line:?}"))?;
                    let seconds = mean * seconds_of(unit).with_context(|| format!("a unit in {line:?}"))?;
                    profile.syncs += calls;
                    profile.syncing += Duration::from_secs_f64(seconds * calls as f64);
                }
                [.., calls, "WRITE"] => {
                    profile.writes += calls.parse::<u64>().with_context(|| format!("calls in {line:?}"))?;
                }
                ["Data", "Written:", bytes, ..] => {
                    profile.bytes_written += bytes.parse::<u64>().with_context(|| format!("bytes in {line:?}"))?;
                }
                _ => {}
            }
        }
        Ok(profile)
    }
}

fn seconds_of(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-9),
        "us" => Some(1e-6),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn syncs_writes_and_bytes_of_all_bricks_are_added_up() {
        let brick = "Brick: 10.7.0.1:/srv/brick
            ------------------------
            Interval 1 Stats:
               Block Size:              16384b+
             No. of Reads:                    0
            No. of Writes:                    6
             %-latency   Avg-latency   Min-Latency   Max-Latency   No. of calls         Fop
                  0.00       0.00 us       0.00 us       0.00 us             12     RELEASE
                 30.00     100.00 us      10.00 us     200.00 us              6       WRITE
                 70.00    1500.00 us    1010.00 us    2000.00 us              4       FSYNC

                Duration: 2 seconds
               Data Read: 0 bytes
            Data Written: 98304 bytes\n";
        let profile = BrickProfile::of(&brick.repeat(2)).unwrap();
        assert_eq!((profile.syncs, profile.writes, profile.bytes_written), (8, 12, 196_608));
        assert_eq!(profile.sync_mean(), Duration::from_micros(1500));
        assert_eq!(BrickProfile::of("").unwrap().sync_mean(), Duration::ZERO);
        assert!(BrickProfile::of("1.0 2.0 parsecs 1.0 us 3.0 us 4 FSYNC").is_err(), "no unit of time");
    }
}
