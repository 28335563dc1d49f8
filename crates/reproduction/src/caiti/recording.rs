//! Programs on Ext4 over a device that records what it is asked: LevelDB with db_bench's workloads
//! and with YCSB's, and Filebench's personalities.
//!
//! The device is memory as it is, so that what it takes itself is little.

use super::platform::programs::{RECORDS, Recording};
use super::ycsb;
use crate::Scale;
use crate::mounted::Mounted;
use crate::personalities::Personality;
use crate::recorded::{Span, clock_ns};
use anyhow::Context;
use std::path::Path;
use tidegate_measure::medium::ScratchPath;

/// Size of the volume: less than the platform's blocks, as raw memory serves what lies beside it
/// too.
const VOLUME_MIB: u64 = 960;

/// Threads of a personality, as in Fig. 10 on threads.
const THREADS: u32 = 4;

/// A folder with the records of every program, which goes when this is dropped.
pub(crate) struct Records(ScratchPath);

impl Records {
    /// Runs and records the programs.
    pub(crate) fn of(scale: Scale) -> anyhow::Result<Records> {
        let records = Records(ScratchPath::new());
        std::fs::create_dir(records.folder()).context("a folder for records")?;
        record(scale, records.folder())?;
        Ok(records)
    }

    /// Where they are.
    pub(crate) fn folder(&self) -> &Path {
        self.0.as_path()
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        // What cannot be removed stays for the user to see.
        let _ = std::fs::remove_dir_all(self.folder());
    }
}

fn record(scale: Scale, folder: &Path) -> anyhow::Result<()> {
    let count = if scale == Scale::SMOKE { 2_000 } else { scale.requests.max(50_000) };
    let client = ycsb::client()?;
    let of_client = |arguments: &[&str], workloads: &[&str], root: &Path| {
        let taken = ycsb::run(&client, root, &count.to_string(), arguments)?;
        anyhow::ensure!(taken.len() >= workloads.len(), "the client tells of {} workloads", taken.len());
        let span = |(workload, taken): (&&str, &ycsb::Taken)| Span {
            workload: (*workload).to_owned(),
            operations: count.into(),
            ns: taken.span_ns,
        };
        Ok(workloads.iter().zip(&taken).map(span).collect())
    };
    let [leveldb, zipfian, personalities] = RECORDS;
    recorded(folder, leveldb, |root| of_client(&["--values", "2048"], &["fillrandom", "overwrite"], root))?;
    recorded(folder, zipfian, |root| of_client(&["--spread", "zipfian"], &ycsb::WORKLOADS, root))?;
    recorded(folder, personalities, |root| {
        Personality::ALL.into_iter().map(|one| personality(one, root, count / 100)).collect()
    })
}

/// One program, with a file system of its own.
fn recorded(folder: &Path, name: &str, program: impl FnOnce(&Path) -> anyhow::Result<Vec<Span>>) -> anyhow::Result<()> {
    let recording = Recording::of(folder, name);
    let mounted = Mounted::recorded(VOLUME_MIB, &recording.requests).with_context(|| format!("record {name}"))?;
    recording.store(&program(mounted.root())?)
}

fn personality(one: Personality, root: &Path, rounds: u32) -> anyhow::Result<Span> {
    one.prepare(root, THREADS)?;
    let begin = clock_ns();
    let taken = one.work(root, THREADS, rounds)?;
    let ns = (begin, clock_ns());
    Ok(Span { workload: one.label().to_owned(), operations: taken.operations.into(), ns })
}
