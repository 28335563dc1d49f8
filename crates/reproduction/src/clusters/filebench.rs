//! Fig. 11: Filebench's personalities on a volume of GlusterFS, of four nodes and two replicas; and
//! Fig. 13, the blocks of a transaction at the speed that they have there.

use super::{Column, SUBJECTS, Subject, figures, programs_are_there};
use crate::Scale;
use crate::figure::Figure;
use crate::hybrid::{disk_is_there, in_turn};
use crate::personalities::Personality;
use crate::tinca::files::blocks_at_speed;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tidegate_measure::cluster::gluster::{BrickProfile, Gluster, PROGRAMS, REMEDY, Replication};
use tidegate_measure::cluster::nodes::{Counts, NodeDisks, NodeParts};
use tidegate_measure::testbed::program;

/// The personalities of the paper.
const LOADS: [Personality; 3] = [Personality::FileServer, Personality::VarMail, Personality::WebProxy];

/// The size of each node's pool: all that a sample writes has room.
const POOL_SIZE: &str = "256M";

/// How large a run is.
struct Size {
    subjects: Vec<Subject>,
    /// MiB of each disk of a node.
    disk_mib: u32,
    threads: u32,
    /// Rounds of a thread in a sample.
    rounds: u32,
    samples: u16,
}

impl Size {
    fn of(scale: Scale) -> Size {
        let samples = scale.rounds;
        let subjects = SUBJECTS.to_vec();
        match scale {
            Scale::FULL => Size { subjects, disk_mib: 512, threads: 4, rounds: 50, samples },
            Scale::SMOKE => Size { subjects: super::judged(), disk_mib: 64, threads: 2, rounds: 1, samples },
            _ => Size { subjects, disk_mib: 512, threads: 4, rounds: 20, samples },
        }
    }
}

/// Nodes of the cluster, and replicas of a file.
const NODES: f64 = 4.0;
const REPLICAS: f64 = 2.0;

/// What a sample took, on the whole cluster.
struct Sample {
    load: Personality,
    rounds: f64,
    operations: f64,
    /// Until the last operation ended, and until all of it was on the disks.
    time: Duration,
    settled: Duration,
    bricks: BrickProfile,
    counts: Counts,
}

impl Sample {
    fn each(&self, count: u64) -> f64 {
        count as f64 / self.operations
    }

    /// Blocks that are dirty at a brick when its journal commits: of as many rounds as it gets
    /// until then, at the speed of this sample.
    fn transaction_blocks(&self) -> f64 {
        blocks_at_speed(self.load, self.rounds / self.time.as_secs_f64() * REPLICAS / NODES)
    }
}

const COLUMNS: &[Column<Sample>] = &[
    Column {
        id: "fig-11a",
        paper: "Fig. 11a",
        title: "Filebench on GlusterFS, 4 nodes, 2 replicas",
        unit: "operations per second",
        value: |_, sample| Some(sample.operations / sample.time.as_secs_f64()),
        published: &[("fileserver", 1.8), ("varmail", 1.5), ("webproxy", 1.201)],
    },
    Column {
        id: "fig-11a-settled",
        paper: "beyond the paper",
        title: "The same, until everything is on the disks",
        unit: "operations per second",
        value: |_, sample| Some(sample.operations / sample.settled.as_secs_f64()),
        published: &[],
    },
    Column {
        id: "fig-11b",
        paper: "Fig. 11b",
        title: "Lines of 64 bytes that go to persistent memory",
        unit: "lines per operation",
        value: |subject, sample| subject.lines(sample.counts).map(|lines| sample.each(lines)),
        published: &[],
    },
    Column {
        id: "fig-11c",
        paper: "Fig. 11c",
        title: "Blocks of 4 KiB that go to the disks",
        unit: "blocks per operation",
        value: |subject, sample| subject.disk_blocks(sample.counts).map(|blocks| sample.each(blocks)),
        published: &[],
    },
    Column {
        id: "fig-13-cluster",
        paper: "Fig. 13",
        title: "Blocks of a transaction at a brick, five seconds of work at that speed",
        unit: "blocks per transaction",
        value: |_, sample| Some(sample.transaction_blocks()),
        published: &[],
    },
    Column {
        id: "fig-11-syncs",
        paper: "beyond the paper",
        title: "Syncs of files at the bricks",
        unit: "syncs per operation",
        value: |_, sample| Some(sample.each(sample.bricks.syncs)),
        published: &[],
    },
    Column {
        id: "fig-11-sync-time",
        paper: "beyond the paper",
        title: "Mean time of a sync at a brick",
        unit: "microseconds",
        value: |_, sample| Some(sample.bricks.sync_mean().as_secs_f64() * 1e6),
        published: &[],
    },
    Column {
        id: "fig-11-bytes",
        paper: "beyond the paper",
        title: "Bytes written to the bricks",
        unit: "bytes per operation",
        value: |_, sample| Some(sample.each(sample.bricks.bytes_written)),
        published: &[],
    },
];

/// Fig. 11.
pub(crate) fn personalities(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    disk_is_there()?;
    programs_are_there(&PROGRAMS, REMEDY)?;
    let (size, disk) = (Size::of(scale), std::env::temp_dir());
    let (replication, disks) = (Replication::PAIRS, NodeDisks::Own(size.disk_mib));
    let parts = NodeParts { tidegate: program()?, disk: &disk, pool_size: POOL_SIZE, disks };
    let mut cluster = Gluster::start(parts, replication)?;
    let mut volumes = Vec::new();
    for subject in &size.subjects {
        let folder = cluster.add_volume(subject.storage)?;
        cluster.start_profile(subject.storage)?;
        volumes.push((*subject, folder));
    }
    let mut taken = Vec::new();
    for load in LOADS {
        volumes.iter().try_for_each(|(_, folder)| load.prepare(folder, size.threads))?;
        let samples = in_turn(size.samples, &mut volumes, |volume| sample(&cluster, volume, load, &size))?;
        let subjects = size.subjects.iter().copied();
        taken.push((load.label().to_owned(), subjects.zip(samples).collect()));
    }
    Ok(figures(COLUMNS, &taken, super::CLASSIC, &[&how(&size)]))
}

fn sample(
    cluster: &Gluster,
    (subject, folder): &(Subject, PathBuf),
    load: Personality,
    size: &Size,
) -> anyhow::Result<Sample> {
    let nodes = cluster.nodes();
    nodes.settle(subject.storage)?;
    cluster.profile(subject.storage)?;
    let (before, begin) = (nodes.counts(subject.storage)?, Instant::now());
    let done = load.work(folder, size.threads, size.rounds)?;
    let time = begin.elapsed();
    nodes.settle(subject.storage)?;
    let settled = begin.elapsed();
    let counts = nodes.counts(subject.storage)?.since(before);
    let bricks = cluster.profile(subject.storage)?;
    let rounds = f64::from(size.threads) * f64::from(size.rounds);
    Ok(Sample { load, rounds, operations: done.operations.into(), time, settled, bricks, counts })
}

fn how(size: &Size) -> String {
    format!(
        "{} threads of the client, with 50 files each; {} rounds of a thread are a sample. Samples of all subjects are taken in turn, every second time backwards. GlusterFS \
         syncs files at the bricks also where the client does not, before it notes that replicas are alike; it counts these syncs, their time and the bytes itself. Blocks are those of \
         the block devices, read once everything was written to them. Classic's lines are the blocks that its file system writes, 64 lines each; metadata of a cache would come on top.",
        size.threads, size.rounds
    )
}
