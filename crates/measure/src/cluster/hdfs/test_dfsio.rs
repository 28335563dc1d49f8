//! TestDFSIO: Hadoop's own measure of how quickly files of HDFS are written and read. Each file is
//! one map task; the local job runner has two of them at a time.

use super::{Hdfs, address, directory};
use crate::cluster::nodes::NodeStorage;
use anyhow::{Context, ensure};
use std::fs;
use std::time::Duration;

/// Where TestDFSIO has its files, in the directory of a storage.
const FOLDER: &str = "dfsio";

/// The port of a data node's beans.
const DATA_NODE_PORT: u16 = 9864;

/// Files of a test.
#[derive(Clone, Copy, Debug)]
pub struct DfsioFiles {
    /// How many there are.
    pub count: u32,
    /// MiB of each.
    pub mib: u32,
    /// Replicas of each block.
    pub replicas: u16,
}

impl DfsioFiles {
    /// MiB of all files, once.
    pub fn mib_in_all(self) -> u64 {
        u64::from(self.count) * u64::from(self.mib)
    }
}

/// What is done with the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DfsioTest {
    /// They are made anew.
    Write,
    /// They are read from their beginning to their end.
    Read,
}

/// What TestDFSIO tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DfsioResult {
    /// The job's time; starting Java is no part of it.
    pub time: Duration,
    /// MiB of all files, over the sum of the times of their tasks.
    pub mib_per_second_of_task: f64,
}

/// What each data node synced: a block's file, and the file with its checksums.
#[derive(Clone, Debug, PartialEq)]
pub struct DataNodeSyncs(Vec<NodeSyncs>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct NodeSyncs {
    /// Since the node was started.
    count: u64,
    /// Mean time of those since this was asked last, or of the last ones before.
    mean_ns: f64,
}

impl DataNodeSyncs {
    /// The syncs after `before`, and their mean time, if nothing else asked in between.
    pub fn since(&self, before: &DataNodeSyncs) -> (u64, Duration) {
        let (mut count, mut ns) = (0, 0.0);
        for (now, before) in self.0.iter().zip(&before.0) {
            let new = now.count - before.count;
            count += new;
            ns += now.mean_ns * new as f64;
        }
        (count, Duration::from_secs_f64(ns / 1e9 / count.max(1) as f64))
    }
}

impl Hdfs {
    /// Has TestDFSIO write or read files in the directory of this storage.
    pub fn test_dfsio(&self, storage: NodeStorage, test: DfsioTest, files: DfsioFiles) -> anyhow::Result<DfsioResult> {
        let results = self.client_folder().join("dfsio.log");
        let _ = fs::remove_file(&results);
        let what = match test {
            DfsioTest::Write => "-write",
            DfsioTest::Read => "-read",
        };
        let DfsioFiles { count, mib, replicas } = files;
        self.java(&format!(
            "org.apache.hadoop.fs.TestDFSIO -Dtest.build.data={}/{FOLDER} -Ddfs.replication={replicas} \
             {what} -nrFiles {count} -size {mib}MB -resFile {}",
            directory(storage),
            results.display()
        ))?;
        let told = fs::read_to_string(&results).with_context(|| format!("reading {}", results.display()))?;
        DfsioResult::of(&told, files)
    }

    /// What data nodes synced, as they count it themselves.
    pub fn data_node_syncs(&self) -> anyhow::Result<DataNodeSyncs> {
        let of = |node| {
            let bean = self.bean(&address(node), DATA_NODE_PORT, "Hadoop:service=DataNode,name=DataNodeActivity*")?;
            let count = bean["FsyncNanosNumOps"].as_u64().with_context(|| format!("no syncs in {bean}"))?;
            let mean_ns = bean["FsyncNanosAvgTime"].as_f64().with_context(|| format!("no time of syncs in {bean}"))?;
            Ok(NodeSyncs { count, mean_ns })
        };
        Ok(DataNodeSyncs((0..self.nodes.count()).map(of).collect::<anyhow::Result<_>>()?))
    }
}

impl DfsioResult {
    /// Reads the lines of a result. Fails unless all files were whole.
    fn of(told: &str, files: DfsioFiles) -> anyhow::Result<DfsioResult> {
        let number = |name: &str| -> anyhow::Result<f64> {
            let line = told.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().strip_prefix(':'));
            let value = line.with_context(|| format!("no {name} in {told}"))?;
            value.trim().parse().with_context(|| format!("{name}: {value}"))
        };
        let (count, mib) = (number("Number of files")?, number("Total MBytes processed")?);
        let expected = (f64::from(files.count), files.mib_in_all() as f64);
        ensure!((count, mib) == expected, "files and MiB are {count} and {mib}, and not {expected:?}");
        Ok(DfsioResult {
            time: Duration::from_secs_f64(number("Test exec time sec")?),
            mib_per_second_of_task: number("Throughput mb/sec")?,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    const RESULT: &str = "----- TestDFSIO ----- : write
            Date & time: Mon Nov 30 20:00:00 UTC 2026
        Number of files: 4
 Total MBytes processed: 64
      Throughput mb/sec: 31.25
 Average IO rate mb/sec: 33.5
  IO rate std deviation: 4.25
     Test exec time sec: 2.5
";

    #[test]
    fn a_result_is_read_if_all_files_are_whole() {
        let files = DfsioFiles { count: 4, mib: 16, replicas: 2 };
        let result = DfsioResult { time: Duration::from_millis(2500), mib_per_second_of_task: 31.25 };
        assert_eq!(DfsioResult::of(RESULT, files).unwrap(), result);
        assert!(DfsioResult::of(RESULT, DfsioFiles { mib: 17, ..files }).is_err(), "a file is short");
        assert!(DfsioResult::of("", files).is_err());
    }

    #[test]
    fn a_mean_is_of_new_syncs_of_all_nodes() {
        let syncs =
            |nodes: [(u64, f64); 3]| DataNodeSyncs(nodes.map(|(count, mean_ns)| NodeSyncs { count, mean_ns }).to_vec());
        let before = syncs([(10, 9e6), (10, 9e6), (0, 0.0)]);
        let after = syncs([(13, 2e6), (10, 9e6), (1, 6e6)]);
        assert_eq!(after.since(&before), (4, Duration::from_millis(3)));
        assert_eq!(after.since(&after), (0, Duration::ZERO));
    }
}
