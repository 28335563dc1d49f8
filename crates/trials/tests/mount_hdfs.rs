//! HDFS whose data nodes have their folders in mounts. Nodes are killed: TeraGen goes on, what a
//! node had is copied from others, and no block that was written is lost.
//!
//! | killed | afterwards |
//! | --- | --- |
//! | every process of a node, amid TeraGen, and its pool is lost | an empty node takes its place |
//! | every process of all nodes | all blocks are there: each was synced when complete |
//! | every process of a node, with `TIDEGATE_KILLS` only | it has its blocks again |
//!
//! Java's start is most of the time, so the rows are read back once, in the end.
//!
//! Hadoop is fetched from Maven Central once, 92 MB, into the target folder.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use tidegate_measure::cluster::hdfs::{DataNodes, Hdfs, PROGRAMS, REMEDY, ROW_BYTES};
use tidegate_measure::cluster::nodes::{NodeDisks, NodeParts, NodeStorage};
use tidegate_measure::testbed::absent;
use tidegate_measure::waiting::comes_true;
use tidegate_trials::served::program;

const NODES: usize = 3;
const REPLICAS: u16 = 2;
const ROWS: u64 = 100_000;
const BYTES: u64 = ROWS * ROW_BYTES;

/// Bytes of complete blocks, in all replicas, after which the first node is killed.
const BYTES_BEFORE_KILL: u64 = BYTES * REPLICAS as u64 / 8;

#[test]
fn hdfs_loses_no_block_when_nodes_are_killed() {
    assert_eq!(absent(&PROGRAMS), [""; 0], "{REMEDY}");
    let disk = std::env::temp_dir();
    let parts = NodeParts { tidegate: program(), disk: &disk, pool_size: "64M", disks: NodeDisks::Shared };
    let data_nodes = DataNodes { count: NODES, storages: &[NodeStorage::Mount], block_mib: 1 };
    let cluster = Hdfs::start(parts, data_nodes).unwrap();
    let mut written_at_kill = 0;
    let generated = cluster.generate(NodeStorage::Mount, (ROWS, REPLICAS), || {
        let written = || cluster.block_bytes(NodeStorage::Mount).unwrap();
        assert!(comes_true(|| written() > BYTES_BEFORE_KILL));
        cluster.nodes().kill_node(1).unwrap();
        written_at_kill = written();
    });
    let sum = generated.unwrap().checksum;
    assert!(written_at_kill < BYTES * u64::from(REPLICAS), "the node was killed after the last write");
    cluster.await_live(NODES - 1).unwrap();
    cluster.replace_node(1).unwrap();
    has_replicas(&cluster);

    (0..NODES).for_each(|node| cluster.nodes().kill_node(node).unwrap());
    cluster.await_live(0).unwrap();
    (0..NODES).for_each(|node| cluster.restart_node(node).unwrap());
    has_all(&cluster, sum);

    if std::env::var_os("TIDEGATE_KILLS").is_some() {
        cluster.nodes().kill_node(2).unwrap();
        cluster.await_live(NODES - 1).unwrap();
        cluster.await_replicas(NODES - 1).unwrap();
        cluster.restart_node(2).unwrap();
        has_all(&cluster, sum);
    }
}

/// All nodes have what they should, and the rows have the sum that TeraGen told.
fn has_all(cluster: &Hdfs, sum: u64) {
    has_replicas(cluster);
    assert_eq!(cluster.checksum(NodeStorage::Mount).unwrap(), sum);
}

/// Waits until all nodes are alive and have all replicas; those of a block are alike.
fn has_replicas(cluster: &Hdfs) {
    cluster.await_live(NODES).unwrap();
    cluster.await_replicas(NODES).unwrap();
    let mut replicas = BTreeMap::<_, Vec<[u8; 32]>>::new();
    for node in 0..NODES {
        for path in cluster.blocks_of(node, NodeStorage::Mount).unwrap() {
            let digest = Sha256::digest(fs::read(&path).unwrap()).into();
            replicas.entry(path.file_name().unwrap().to_owned()).or_default().push(digest);
        }
    }
    assert!(replicas.len() as u64 >= BYTES >> 20, "{} blocks", replicas.len());
    for (block, digests) in replicas {
        assert_eq!(digests, vec![digests[0]; usize::from(REPLICAS)], "{}", block.display());
    }
}
