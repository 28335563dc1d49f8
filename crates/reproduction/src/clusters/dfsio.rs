//! TestDFSIO on HDFS, of four data nodes and one to three replicas: files are written, and read.
//!
//! The paper has TeraGen only. TestDFSIO tells apart what TeraGen does not: writing from reading,
//! and the syncs of a data node.

use super::{Column, SUBJECTS, Subject, figures, programs_are_there, samples_of};
use crate::Scale;
use crate::figure::Figure;
use crate::hybrid::disk_is_there;
use anyhow::ensure;
use std::time::{Duration, Instant};
use tidegate_measure::cluster::hdfs::{DataNodes, DfsioFiles, DfsioResult, DfsioTest, Hdfs, PROGRAMS, REMEDY};
use tidegate_measure::cluster::nodes::{Counts, NodeDisks, NodeParts, NodeStorage};
use tidegate_measure::testbed::program;

const MIB: f64 = (1_u64 << 20) as f64;
const BLOCK_BYTES: f64 = 4096.0;

/// Samples of each point at most: starting Java takes longer than most.
const SAMPLES_MAX: u16 = 3;

/// How large a run is.
struct Size {
    data_nodes: usize,
    subjects: Vec<Subject>,
    /// MiB of each disk of a node, and of a block of HDFS.
    disk_mib: u32,
    block_mib: u32,
    pool_size: &'static str,
    files: u32,
    file_mib: u32,
    replicas: &'static [u16],
    samples: u16,
}

impl Size {
    fn of(scale: Scale) -> Size {
        let compared = [NodeStorage::Disk, NodeStorage::Mount, NodeStorage::Memory];
        let subjects = SUBJECTS.into_iter().filter(|subject| compared.contains(&subject.storage));
        let whole = Size {
            data_nodes: 4,
            subjects: subjects.collect(),
            disk_mib: 512,
            block_mib: 16,
            pool_size: "64M",
            files: 8,
            file_mib: 16,
            replicas: &[1, 2, 3],
            samples: scale.rounds.min(SAMPLES_MAX),
        };
        match scale {
            Scale::FULL => Size { file_mib: 32, ..whole },
            Scale::SMOKE => Size {
                data_nodes: 2,
                subjects: super::judged().into_iter().filter(|subject| subject.label == super::TIDEGATE).collect(),
                disk_mib: 96,
                block_mib: 1,
                files: 2,
                file_mib: 2,
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
    mib: f64,
    written: DfsioResult,
    /// Until the job that wrote had ended, and all of it was on the disks too.
    settled: Duration,
    read: DfsioResult,
    syncs: u64,
    sync_mean: Duration,
    counts: Counts,
}

const COLUMNS: &[Column<Sample>] = &[
    Column {
        id: "dfsio-write",
        paper: "beyond the paper",
        title: "TestDFSIO on HDFS, 4 data nodes: throughput of writing",
        unit: "MiB per second of a task",
        value: |_, sample| Some(sample.written.mib_per_second_of_task),
        published: &[],
    },
    Column {
        id: "dfsio-write-job",
        paper: "beyond the paper",
        title: "The whole job that writes",
        unit: "MiB per second",
        value: |_, sample| Some(sample.mib / sample.written.time.as_secs_f64()),
        published: &[],
    },
    Column {
        id: "dfsio-write-settled",
        paper: "beyond the paper",
        title: "The whole job that writes, until everything is on the disks",
        unit: "MiB per second",
        value: |_, sample| Some(sample.mib / sample.settled.as_secs_f64()),
        published: &[],
    },
    Column {
        id: "dfsio-read",
        paper: "beyond the paper",
        title: "TestDFSIO on HDFS, 4 data nodes: throughput of reading",
        unit: "MiB per second of a task",
        value: |_, sample| Some(sample.read.mib_per_second_of_task),
        published: &[],
    },
    Column {
        id: "dfsio-sync-time",
        paper: "beyond the paper",
        title: "Mean time of a sync at a data node",
        unit: "milliseconds",
        value: |_, sample| Some(sample.sync_mean.as_secs_f64() * 1e3),
        published: &[],
    },
    Column {
        id: "dfsio-syncs",
        paper: "beyond the paper",
        title: "Syncs of data nodes",
        unit: "syncs per MiB of files",
        value: |_, sample| Some(sample.syncs as f64 / sample.mib),
        published: &[],
    },
    Column {
        id: "dfsio-disk",
        paper: "beyond the paper",
        title: "Bytes that go to the disks",
        unit: "MiB per MiB of files",
        value: |subject, sample| {
            let blocks = subject.disk_blocks(sample.counts)?;
            Some(blocks as f64 * BLOCK_BYTES / MIB / sample.mib)
        },
        published: &[],
    },
];

/// TestDFSIO with one to three replicas.
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
        let files = DfsioFiles { count: size.files, mib: size.file_mib, replicas: *replicas };
        let of_place = |subject: &mut Subject| sample(&cluster, subject.storage, files);
        let samples = samples_of(&mut size.subjects, size.samples, of_place)?;
        taken.push((super::replicas_named(*replicas), size.subjects.iter().copied().zip(samples).collect()));
    }
    Ok(figures(COLUMNS, &taken, super::EXT4, &[&notes]))
}

/// Writes files and reads them.
fn sample(cluster: &Hdfs, storage: NodeStorage, files: DfsioFiles) -> anyhow::Result<Sample> {
    let nodes = cluster.nodes();
    cluster.clear(storage)?;
    nodes.settle(storage)?;
    let (before, syncs_before) = (nodes.counts(storage)?, cluster.data_node_syncs()?);
    let written = cluster.test_dfsio(storage, DfsioTest::Write, files)?;
    let ended = Instant::now();
    let (syncs, sync_mean) = cluster.data_node_syncs()?.since(&syncs_before);
    nodes.settle(storage)?;
    let settled = written.time + ended.elapsed();
    let counts = nodes.counts(storage)?.since(before);
    let (bytes, least) = (cluster.block_bytes(storage)?, (files.mib_in_all() * u64::from(files.replicas)) << 20);
    // Lists and results of the job lie beside the files.
    ensure!(bytes >= least, "nodes have {bytes} bytes of blocks in {}, and not {least}", storage.name());
    let read = cluster.test_dfsio(storage, DfsioTest::Read, files)?;
    Ok(Sample { mib: files.mib_in_all() as f64, written, settled, read, syncs, sync_mean, counts })
}

fn how(size: &Size) -> String {
    format!(
        "TestDFSIO of Hadoop 3.4.2: {} files of {} MiB, one map task each, two at a time; blocks of {} MiB, pools of {}. A data node syncs a block and its checksums when they are complete \
         (dfs.datanode.synconclose=true), and counts and times these syncs itself; they include the job's lists and results. Throughput is TestDFSIO's own: all bytes over the sum of the tasks' times. A job's time leaves Java's start out. Files are read right after they were written, while caches have them. Bytes are those of the block devices, read once everything was written to them.",
        size.files, size.file_mib, size.block_mib, size.pool_size
    )
}
