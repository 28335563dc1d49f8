//! A GlusterFS volume of three replicas whose bricks lie on mounts. Services are killed under load:
//! clients see no error, replicas heal, and no synced byte is lost.
//!
//! | killed | afterwards |
//! | --- | --- |
//! | server and supervisor of a node's mount | the next mount has all, and the brick heals |
//! | every process of a node, and its pool is lost | an empty brick takes its place, and heals |
//! | every process of a node, with `TIDEGATE_KILLS` only | as after the first |
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use tidegate_measure::cluster::gluster::{Gluster, Replication};
use tidegate_measure::cluster::nodes::{NodeDisks, NodeParts, NodeStorage};
use tidegate_trials::cluster_writers::{Writing, digests, go_on, written_amid};
use tidegate_trials::served::program;

/// What is killed, and what is started again.
struct Event {
    name: &'static str,
    kill: fn(&Gluster, usize),
    restart: fn(&Gluster, usize),
}

const EVENTS: [Event; 3] = [
    Event {
        name: "mount",
        kill: |cluster, node| cluster.nodes().kill_mount(node).unwrap(),
        restart: |cluster, node| cluster.restart_mount(node).unwrap(),
    },
    Event {
        name: "memory",
        kill: |cluster, node| cluster.nodes().kill_node(node).unwrap(),
        restart: |cluster, node| cluster.replace_memory(node).unwrap(),
    },
    Event {
        name: "node",
        kill: |cluster, node| cluster.nodes().kill_node(node).unwrap(),
        restart: |cluster, node| cluster.restart_node(node).unwrap(),
    },
];

/// Files of a folder at least: each act of each writer leaves one there.
const FILES_MIN: usize = 3;

/// Events of a run that is told no number of kills.
const EVENTS_SHORT: usize = 2;

#[test]
fn a_cluster_heals_what_a_killed_node_missed() {
    let disk = std::env::temp_dir();
    let (replication, disks) = (Replication::THREE, NodeDisks::Shared);
    let parts = NodeParts { tidegate: program(), disk: &disk, pool_size: "64M", disks };
    let mut cluster = Gluster::start(parts, replication).unwrap();
    let volume = cluster.add_volume(NodeStorage::Mount).unwrap();
    let (rounds, events) = campaign();
    for round in 0..rounds {
        // The first node answers the commands of the trial.
        let node = 1 + round % (Replication::THREE.nodes - 1);
        for event in events {
            survives((&cluster, &volume), node, event, &format!("{}-{round}", event.name));
        }
    }
}

/// Writes in a folder of this name while the event happens. Afterwards every replica has what was
/// acknowledged, also in former folders.
fn survives((cluster, volume): (&Gluster, &Path), node: usize, event: &Event, name: &str) {
    let written = written_amid(&volume.join(name), Writing::Everything, |heard| {
        go_on(heard);
        (event.kill)(cluster, node);
        go_on(heard);
        (event.restart)(cluster, node);
        go_on(heard);
    });
    cluster.heal().unwrap();
    written.check();
    let expected = digests(volume);
    assert!(expected.len() >= FILES_MIN);
    for node in 0..cluster.nodes().count() {
        assert_eq!(digests(&cluster.brick_from_here(node, NodeStorage::Mount)), expected, "node {node} after {name}");
    }
}

/// How many rounds there are, and the events of each: one with the first events, or as many as kill
/// as often as a long campaign is told.
fn campaign() -> (usize, &'static [Event]) {
    const KILLS_OF_A_ROUND: usize = 3 * 8;
    match std::env::var("TIDEGATE_KILLS") {
        Ok(kills) => ((kills.parse::<usize>().unwrap() / KILLS_OF_A_ROUND).max(1), &EVENTS),
        Err(_) => (1, &EVENTS[..EVENTS_SHORT]),
    }
}
