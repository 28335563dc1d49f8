//! A client of GlusterFS volumes with three replicas, whose bricks lie in mounts, on the disk's own
//! file system, and in memory.
//!
//! All volumes belong to one cluster and are measured in turn. Its nodes share this machine's cores
//! and disk: the rows tell of times and requests, not of how a cluster grows. A cluster takes long
//! to start, so the first row that asks for it measures all of them.

use super::calls::{Act, Client};
use crate::files::testbed::missing;
use crate::served::server::{self, program};
use crate::target::Outcome;
use anyhow::Context;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use tidegate_measure::Pairs;
use tidegate_measure::cluster::gluster::{Gluster, PROGRAMS, REMEDY, Replication};
use tidegate_measure::cluster::nodes::{NodeDisks, NodeParts, NodeStorage};
use tidegate_measure::testbed::disk::Disk;
use tidegate_measure::testbed::number_in;
use tidegate_measure::workload::Effort;

/// Most blocks of a file: 16 MiB.
const BLOCKS_MAX: u32 = 4 << 10;

/// Calls in a sample, at most, where no disk is waited for, and where one is.
const CALLS_MAX: u32 = 500;
const DISK_CALLS_MAX: u32 = 50;

/// Bursts of which the quietest counts, and the calls of each.
const BURSTS: u32 = 8;
const BURST_CALLS: u32 = 50;

/// What is found out about the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The time with bricks in memory over that with bricks in mounts.
    MemoryOverMounts,
    /// The time with bricks on the disk over that with bricks in mounts.
    DiskOverMounts,
    /// What the mount of a brick counts, for each call of the client.
    Count(Counted),
}

/// What the mount of a brick counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// Requests of the kernel.
    Requests,
    /// Operations on names, such as attributes that were set.
    Names,
    /// Syncs in persistent memory.
    Syncs,
    /// Syncs and operations on names that waited for the disk.
    Waits,
}

impl Counted {
    const ALL: [Counted; 4] = [Counted::Requests, Counted::Names, Counted::Syncs, Counted::Waits];

    /// The numbers of a mount's status that make it up.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Counted::Requests => &["requests"],
            Counted::Names => &["names"],
            Counted::Syncs => &["syncs"],
            Counted::Waits => &["syncs_below", "names_below"],
        }
    }
}

/// The outcome for each question.
type Answers = Vec<(Asked, Outcome)>;

/// What was measured last: with which effort, and the answers or why there are none.
static LAST: Mutex<Option<(Effort, Result<Answers, String>)>> = Mutex::new(None);

/// Writes 4 KiB and syncs them as the cluster's client, and answers what is asked.
pub(super) fn measure(effort: Effort, asked: Asked) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&[]).or_else(|| server::missing(&PROGRAMS, REMEDY)) {
        return Ok(missing);
    }
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let answers = match last.take() {
        Some((of, answers)) if of == effort => answers,
        _ => measure_all(effort).map_err(|error| format!("{error:#}")),
    };
    let (_, answers) = last.insert((effort, answers));
    let answers = answers.as_ref().map_err(|error| anyhow::anyhow!(error.clone()))?;
    let answer = answers.iter().find(|(question, _)| *question == asked);
    answer.map(|(_, outcome)| outcome.clone()).with_context(|| format!("{asked:?} was not measured"))
}

fn measure_all(effort: Effort) -> anyhow::Result<Answers> {
    let disk = Disk::shared()?;
    let (replication, disks) = (Replication::THREE, NodeDisks::Shared);
    let parts = NodeParts { tidegate: program()?, disk: disk.folder(), pool_size: "256M", disks };
    let mut cluster = Gluster::start(parts, replication)?;
    let mut client = |storage| file_in(&cluster.add_volume(storage)?, effort);
    let (mut mounts, mut memory, mut on_disk) =
        (client(NodeStorage::Mount)?, client(NodeStorage::Memory)?, client(NodeStorage::Disk)?);
    let (calls, disk_calls) = (effort.steps.min(CALLS_MAX), effort.steps.min(DISK_CALLS_MAX));
    let over_memory =
        Pairs::try_alternate(effort.pairs, || memory.median_nanoseconds(calls), || mounts.median_nanoseconds(calls))?;
    let over_disk = Pairs::try_alternate(
        effort.pairs,
        || on_disk.median_nanoseconds(disk_calls),
        || mounts.median_nanoseconds(disk_calls),
    )?;
    let mut answers = vec![
        (Asked::MemoryOverMounts, Outcome::ratio(&over_memory, "ns")),
        (Asked::DiskOverMounts, Outcome::ratio(&over_disk, "ns")),
    ];
    answers.extend(counted(&cluster, &mut mounts)?);
    Ok(answers)
}

fn file_in(volume: &Path, effort: Effort) -> anyhow::Result<Client> {
    Client::new(Act::WriteAndSync, volume, 0, effort.steps.min(BLOCKS_MAX).into())
}

/// What the mount of a brick counts for each call, in the quietest of some short bursts: the
/// cluster's own services use bricks too, now and then. Of the bricks, the one with most counts.
fn counted(cluster: &Gluster, client: &mut Client) -> anyhow::Result<Answers> {
    let mut least = Counted::ALL.map(|_| u64::MAX);
    for _ in 0..BURSTS {
        let before = counts_of_bricks(cluster)?;
        (0..BURST_CALLS).try_for_each(|_| client.call())?;
        let after = counts_of_bricks(cluster)?;
        for (at, least) in least.iter_mut().enumerate() {
            let most = before.iter().zip(&after).map(|(before, after)| after[at] - before[at]).max();
            *least = (*least).min(most.unwrap_or(0));
        }
    }
    let outcome = |(counted, count)| (Asked::Count(counted), Outcome::count(count, BURST_CALLS.into()));
    Ok(Counted::ALL.into_iter().zip(least).map(outcome).collect())
}

/// What the mount of each node's brick counted so far.
fn counts_of_bricks(cluster: &Gluster) -> anyhow::Result<Vec<[u64; Counted::ALL.len()]>> {
    let counts = |node| {
        let (status, mut counts) = (cluster.nodes().status_json(node)?, [0; Counted::ALL.len()]);
        for (count, counted) in counts.iter_mut().zip(Counted::ALL) {
            *count = counted.keys().iter().map(|key| number_in(&status, key)).sum::<anyhow::Result<u64>>()?;
        }
        Ok(counts)
    };
    (0..cluster.nodes().count()).map(counts).collect()
}
