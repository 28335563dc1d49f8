//! The first write after a silence: how soon an idle server is awake.

use super::server::{Place, Server, as_client};
use crate::target::Outcome;
use std::time::{Duration, Instant};
use tidegate_measure::subject::{BLOCK_BYTES, Block};
use tidegate_measure::workload::Effort;
use tidegate_media::Durability;

/// Long enough for every thread to have gone to sleep, and for processors to have slowed down.
const SILENCE: Duration = Duration::from_secs(10);

/// Each costs a silence.
const SAMPLES: u64 = 5;

/// Writes before the first silence.
const WARM_WRITES: u64 = 1000;

/// The round trip in µs, with client and server on one core as for every row of one request at a
/// time: across cores it measures how long two sleeping processors take to wake.
pub(super) fn first_write(_: Effort) -> anyhow::Result<Outcome> {
    let server = Server::tidegate(Place::Together)?;
    let samples = as_client(|| round_trips(&server))?;
    Ok(Outcome::figure(&samples, "µs"))
}

fn round_trips(server: &Server) -> anyhow::Result<Vec<f64>> {
    let (mut client, block) = (server.client()?, Block::filled(0));
    let mut write = |nth: u64| -> anyhow::Result<f64> {
        let began = Instant::now();
        client.write(nth * BLOCK_BYTES as u64, block.bytes(), Durability::Volatile)?;
        Ok(began.elapsed().as_secs_f64() * 1e6)
    };
    for nth in 0..WARM_WRITES {
        write(nth)?;
    }
    let mut after_silence = |nth| {
        std::thread::park_timeout(SILENCE);
        write(nth)
    };
    (0..SAMPLES).map(|sample| after_silence(WARM_WRITES + sample)).collect()
}
