//! YCSB's workloads over LevelDB, one client: load, A (half reads, half updates), F (half reads,
//! half reads that are followed by a write). Or those of LevelDB's own db_bench: fillrandom,
//! overwrite, readrandom, readhot (a hundredth of the keys).
//!
//! Records are YCSB's: 1000 bytes under a key that hides in which order they were made. `bench`
//! starts this program on a file system under test, and reads what it took, as JSON, from its
//! output. An update writes the whole record, as LevelDB knows no fields.

#![deny(unsafe_code)]

mod leveldb;

use anyhow::ensure;
use clap::Parser;
use leveldb::Store;
use std::path::PathBuf;
use std::time::Instant;
use tidegate_reproduction::caiti::ycsb::{SHARES, Taken, WorkloadSize};
use tidegate_reproduction::keys::{Keys, Spread};
use tidegate_reproduction::recorded::clock_ns;
use tidegate_sim::{Rng, mix};

/// Bytes of a record: YCSB's ten fields of a hundred.
const RECORD_BYTES: usize = 1000;

/// Bytes of a value of the fill: db_bench's in the paper's figure of latencies.
const FILL_BYTES: usize = 4096;

/// Of how many keys one is hot: as in LevelDB's db_bench.
const HOT_ONE_IN: u64 = 100;

/// Runs YCSB's load, A and F, or db_bench's fillrandom, overwrite, readrandom and readhot, in a new
/// store
#[derive(Parser)]
struct Args {
    /// The store's folder, which does not exist
    #[arg(long)]
    folder: PathBuf,
    /// Records that are loaded
    #[arg(long)]
    records: u64,
    /// Operations of each workload after the load
    #[arg(long)]
    operations: u64,
    /// Which records YCSB asks for; without it, random keys are filled with values of 4 KiB, and
    /// nothing else is done
    #[arg(long)]
    spread: Option<Spread>,
    /// Bytes of db_bench's values: its four workloads instead of YCSB's
    #[arg(long, conflicts_with = "spread")]
    values: Option<usize>,
}

fn main() -> anyhow::Result<()> {
    let Args { folder, records, operations, spread, values } = Args::parse();
    let mut client = Client::new(Store::create(&folder)?);
    let taken = match (spread, values) {
        (Some(spread), _) => client.workloads(WorkloadSize { spread, records, operations })?,
        (None, Some(bytes)) => client.fills_and_reads(records, operations, bytes)?,
        (None, None) => vec![client.fill(records, records, FILL_BYTES)?],
    };
    println!("{}", serde_json::to_string(&taken)?);
    Ok(())
}

/// One client with its store.
struct Client {
    store: Store,
    random: Rng,
    /// Bytes that values are cut from.
    noise: Vec<u8>,
    read: Vec<u8>,
}

impl Client {
    fn new(store: Store) -> Client {
        let mut random = Rng::new(3);
        let noise = (0..1 << 16).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        Client { store, random, noise, read: Vec::new() }
    }

    fn workloads(&mut self, size: WorkloadSize) -> anyhow::Result<Vec<Taken>> {
        let WorkloadSize { spread, records, operations } = size;
        let load = timed(records, |client, record| client.write(record, RECORD_BYTES), self)?;
        let keys = Keys::new(spread, records);
        let a = timed(operations, |client, _| client.read_or_update(&keys), self)?;
        let f = timed(operations, |client, _| client.read_and_maybe_write(&keys), self)?;
        Ok(vec![load, a, f])
    }

    fn fills_and_reads(&mut self, records: u64, operations: u64, bytes: usize) -> anyhow::Result<Vec<Taken>> {
        let fill = self.fill(records, operations, bytes)?;
        let overwrite = self.fill(records, operations, bytes)?;
        let read = self.look(records, operations, bytes)?;
        let hot = self.look(records.div_ceil(HOT_ONE_IN), operations, bytes)?;
        Ok(vec![fill, overwrite, read, hot])
    }

    /// Writes any of `records` records, `count` times.
    fn fill(&mut self, records: u64, count: u64, bytes: usize) -> anyhow::Result<Taken> {
        ensure!(bytes < self.noise.len(), "values of {bytes} bytes are too long: at most {}", self.noise.len() - 1);
        let write = |client: &mut Client, _| {
            let record = client.random.below(records);
            client.write(record, bytes)
        };
        timed(count, write, self)
    }

    /// Reads any of the first `records` records, `count` times. Some were never written.
    fn look(&mut self, records: u64, count: u64, bytes: usize) -> anyhow::Result<Taken> {
        let read = |client: &mut Client, _| {
            let record = client.random.below(records);
            let found = client.store.get(&key(record), &mut client.read)?;
            ensure!(!found || client.read.len() == bytes, "record {record} has {} bytes", client.read.len());
            Ok(())
        };
        timed(count, read, self)
    }

    fn read_or_update(&mut self, keys: &Keys) -> anyhow::Result<()> {
        let record = keys.draw(&mut self.random);
        if self.random.one_in(2) { self.read(record) } else { self.write(record, RECORD_BYTES) }
    }

    fn read_and_maybe_write(&mut self, keys: &Keys) -> anyhow::Result<()> {
        let record = keys.draw(&mut self.random);
        self.read(record)?;
        if self.random.one_in(2) { self.write(record, RECORD_BYTES) } else { Ok(()) }
    }

    fn write(&mut self, record: u64, bytes: usize) -> anyhow::Result<()> {
        let from = self.random.index(self.noise.len() - bytes);
        self.store.put(&key(record), &self.noise[from..from + bytes])
    }

    fn read(&mut self, record: u64) -> anyhow::Result<()> {
        ensure!(self.store.get(&key(record), &mut self.read)?, "record {record} is lost");
        ensure!(self.read.len() == RECORD_BYTES, "record {record} has {} bytes", self.read.len());
        Ok(())
    }
}

fn key(record: u64) -> [u8; 24] {
    let mut key = *b"user....................";
    let mut rest = mix(record);
    for digit in key[4..].iter_mut().rev() {
        *digit = b"0123456789"[(rest % 10) as usize];
        rest /= 10;
    }
    key
}

/// Does `operation` `count` times.
fn timed(
    count: u64,
    mut operation: impl FnMut(&mut Client, u64) -> anyhow::Result<()>,
    client: &mut Client,
) -> anyhow::Result<Taken> {
    let mut times = Vec::with_capacity(usize::try_from(count)?);
    let (begin, begin_ns) = (Instant::now(), clock_ns());
    for nth in 0..count {
        let before = begin.elapsed();
        operation(client, nth)?;
        times.push((begin.elapsed() - before).as_secs_f64() * 1e6);
    }
    let (seconds, span_ns) = (begin.elapsed().as_secs_f64(), (begin_ns, clock_ns()));
    times.sort_unstable_by(f64::total_cmp);
    ensure!(!times.is_empty(), "no operation was asked for");
    let exceeded = |one_in: usize| times[times.len() - 1 - (times.len() - 1) / one_in];
    let microseconds = SHARES.map(|(_, one_in)| exceeded(one_in)).to_vec();
    Ok(Taken { per_second: count as f64 / seconds, microseconds, span_ns })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn every_workload_reads_what_the_load_wrote() {
        let folder = tempfile::tempdir().unwrap();
        for (nth, spread) in [Spread::Uniform, Spread::Zipfian, Spread::Latest].into_iter().enumerate() {
            let store = Store::create(&folder.path().join(nth.to_string())).unwrap();
            let taken = Client::new(store).workloads(WorkloadSize { spread, records: 500, operations: 2000 }).unwrap();
            assert_eq!(taken.len(), 3);
            assert!(taken.iter().all(|one| one.per_second > 0.0 && one.microseconds.is_sorted()), "{taken:?}");
        }
    }

    #[test]
    fn fills_and_reads_find_values_of_their_length() {
        let folder = tempfile::tempdir().unwrap();
        let mut client = Client::new(Store::create(&folder.path().join("s")).unwrap());
        let taken = client.fills_and_reads(500, 1000, 128).unwrap();
        assert_eq!(taken.len(), 4);
        assert!(client.look(500, 1000, 129).unwrap_err().to_string().contains("128 bytes"), "they are looked at");
        assert!(client.fill(1, 1, usize::MAX).unwrap_err().to_string().contains("too long"));
    }

    #[test]
    fn a_record_that_was_never_loaded_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let mut client = Client::new(Store::create(&path).unwrap());
        client.write(1, RECORD_BYTES).unwrap();
        client.read(1).unwrap();
        assert!(client.read(2).unwrap_err().to_string().contains("record 2"));
        client.write(1, 10).unwrap();
        assert!(client.read(1).unwrap_err().to_string().contains("10 bytes"));
        drop(client);
        assert!(Store::create(&path).is_err(), "there is a store");
    }
}
