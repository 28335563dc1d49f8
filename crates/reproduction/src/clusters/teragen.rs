//! Fig. 10: TeraGen on HDFS, of four data nodes and one to three replicas.

use super::{Column, SUBJECTS, Subject, figures, programs_are_there, samples_of};
use crate::Scale;
use crate::figure::Figure;
use crate::hybrid::disk_is_there;
use anyhow::ensure;
use std::time::{Duration, Instant};
use tidegate_measure::cluster::hdfs::{DataNodes, Hdfs, PROGRAMS, REMEDY, ROW_BYTES};
use tidegate_measure::cluster::nodes::{Counts, NodeDisks, NodeParts, NodeStorage};
use tidegate_measure::testbed::program;

/// Data nodes of the paper.
const DATA_NODES: usize = 4;

/// Samples of each point at most, as many as the paper has: starting Java takes longer than most.
const SAMPLES_MAX: u16 = 3;

/// How large a run is.
struct Size {
    data_nodes: usize,
    subjects: Vec<Subject>,
    /// MiB of each disk of a node, and of a block of HDFS.
    disk_mib: u32,
    block_mib: u32,
    pool_size: &'static str,
    rows: u64,
    replicas: &'static [u16],
    samples: u16,
}

impl Size {
    fn of(scale: Scale) -> Size {
        let samples = scale.rounds.min(SAMPLES_MAX);
        let subjects = SUBJECTS.into_iter().filter(|subject| subject.storage != NodeStorage::JournalInMemory);
        let whole = Size {
            data_nodes: DATA_NODES,
            subjects: subjects.collect(),
            disk_mib: 768,
            block_mib: 16,
            pool_size: "64M",
            rows: 1_000_000,
            replicas: &[1, 2, 3],
            samples,
        };
        match scale {
            Scale::FULL => Size { rows: 2_500_000, ..whole },
            Scale::SMOKE => Size {
                data_nodes: 2,
                subjects: super::judged().into_iter().filter(|subject| subject.label == super::TIDEGATE).collect(),
                disk_mib: 96,
                block_mib: 1,
                rows: 20_000,
                replicas: &[2],
                samples: 0,
                ..whole
            },
            _ => whole,
        }
    }
}

/// What a sample took, on the whole cluster.
struct Sample {
    megabytes: f64,
    checksum: u64,
    /// Until the job ended, and until all of it was on the disks too.
    time: Duration,
    settled: Duration,
    counts: Counts,
}

impl Sample {
    fn each(&self, count: u64) -> f64 {
        count as f64 / self.megabytes
    }
}

const COLUMNS: &[Column<Sample>] = &[
    Column {
        id: "fig-10a",
        paper: "Fig. 10a",
        title: "Time of TeraGen on HDFS, 4 data nodes",
        unit: "seconds",
        value: |_, sample| Some(sample.time.as_secs_f64()),
        published: &[("1 replica", 1.0 - 0.29), ("2 replicas", 1.0 - 0.541), ("3 replicas", 1.0 - 0.597)],
    },
    Column {
        id: "fig-10a-settled",
        paper: "beyond the paper",
        title: "The same, until everything is on the disks",
        unit: "seconds",
        value: |_, sample| Some(sample.settled.as_secs_f64()),
        published: &[],
    },
    Column {
        id: "fig-10b",
        paper: "Fig. 10b",
        title: "Lines of 64 bytes that go to persistent memory",
        unit: "lines per MB of rows",
        value: |subject, sample| subject.lines(sample.counts).map(|lines| sample.each(lines)),
        published: &[("3 replicas", 1.0 - 0.807)],
    },
    Column {
        id: "fig-10c",
        paper: "Fig. 10c",
        title: "Blocks of 4 KiB that go to the disks",
        unit: "blocks per MB of rows",
        value: |subject, sample| subject.disk_blocks(sample.counts).map(|blocks| sample.each(blocks)),
        published: &[("3 replicas", 1.0 - 0.383)],
    },
];

/// Fig. 10.
pub(crate) fn replicas(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    disk_is_there()?;
    programs_are_there(&PROGRAMS, REMEDY)?;
    let (mut size, disk) = (Size::of(scale), std::env::temp_dir());
    let storages: Vec<NodeStorage> = size.subjects.iter().map(|subject| subject.storage).collect();
    let disks = NodeDisks::Own(size.disk_mib);
    let parts = NodeParts { tidegate: program()?, disk: &disk, pool_size: size.pool_size, disks };
    let data_nodes = DataNodes { count: size.data_nodes, storages: &storages, block_mib: size.block_mib };
    let cluster = Hdfs::start(parts, data_nodes)?;
    let (notes, mut taken) = (how(&size), Vec::new());
    for replicas in size.replicas {
        let load = (size.rows, *replicas);
        let of_place = |subject: &mut Subject| sample(&cluster, subject.storage, load);
        let samples = samples_of(&mut size.subjects, size.samples, of_place)?;
        for (subject, samples) in size.subjects.iter().zip(&samples) {
            is_read_back(&cluster, subject.storage, samples)?;
        }
        taken.push((super::replicas_named(*replicas), size.subjects.iter().copied().zip(samples).collect()));
    }
    Ok(figures(COLUMNS, &taken, super::CLASSIC, &[&notes]))
}

/// Fails unless the rows of the last sample sum up to what TeraGen told.
fn is_read_back(cluster: &Hdfs, storage: NodeStorage, samples: &[Sample]) -> anyhow::Result<()> {
    let (sum, told) = (cluster.checksum(storage)?, samples.last().map_or(0, |sample| sample.checksum));
    ensure!(sum == told, "rows read back sum up to {sum:x}, and not to {told:x}");
    Ok(())
}

fn sample(cluster: &Hdfs, storage: NodeStorage, (rows, replicas): (u64, u16)) -> anyhow::Result<Sample> {
    let nodes = cluster.nodes();
    cluster.clear(storage)?;
    nodes.settle(storage)?;
    let before = nodes.counts(storage)?;
    let generated = cluster.generate(storage, (rows, replicas), || {})?;
    let ended = Instant::now();
    nodes.settle(storage)?;
    let settled = generated.time + ended.elapsed();
    let counts = nodes.counts(storage)?.since(before);
    let (bytes, expected) = (cluster.block_bytes(storage)?, rows * ROW_BYTES * u64::from(replicas));
    ensure!(bytes == expected, "nodes have {bytes} bytes of blocks in {}, and not {expected}", storage.name());
    let megabytes = (rows * ROW_BYTES) as f64 / 1e6;
    Ok(Sample { megabytes, checksum: generated.checksum, time: generated.time, settled, counts })
}

fn how(size: &Size) -> String {
    format!(
        "Hadoop 3.4.2; {} MB of rows, blocks of {} MiB, pools of {}. A data node syncs a block when it is complete (dfs.datanode.synconclose=true), which it does not by default: else no \
         byte is durable when TeraGen ends. The time is the job's: Java's start is left out. The rows of the last sample are read back, and their checksum is compared with TeraGen's; the \
         blocks of all replicas of each sample have to lie in the folders of the subject. The name node has its files in memory. Blocks are those of the block devices, read once everything was \
         written to them. Classic's lines are the blocks that its file system writes, 64 lines each.",
        size.rows * ROW_BYTES / 1_000_000,
        size.block_mib,
        size.pool_size
    )
}
