//! GlusterFS on the nodes of a cluster: volumes whose bricks lie on the storages of nodes.
//!
//! A client mounts the volumes. All ends with the value, whatever became of its user.

mod growth;
mod profile;
mod quotas;

pub use growth::Rebalanced;
pub use profile::BrickProfile;

use super::nodes::{NodeParts, NodeStorage, Nodes, address};
use crate::programs::said;
use crate::waiting::succeeds;
use anyhow::{Context, bail, ensure};
use rustix::fs::getxattr;
use rustix::io::Errno;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Programs that a cluster needs.
pub const PROGRAMS: [&str; 4] = ["glusterd", "glusterfs", "gluster", "ip"];
/// What brings these programs.
pub const REMEDY: &str = "apt-get install glusterfs-server glusterfs-client iproute2";

/// Looks without a change after which healing is asked for again.
const LOOKS: u32 = 5;

/// `glusterd` wants more open files than a container allows to root, and ends without them. It
/// needs few.
const LIMITS: &str = "#define _GNU_SOURCE
#include <sys/resource.h>
int setrlimit64(__rlimit_resource_t which, const struct rlimit64 *limit)
{ (void)which; (void)limit; return 0; }
";

/// How many nodes a cluster has, and on how many of them each file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// Nodes with one brick of each volume.
    pub nodes: usize,
    /// Bricks that have the same files; of `nodes` a divisor, and of `spare`.
    pub replicas: usize,
    /// Nodes beside those, which have a brick of a volume once it was grown.
    pub spare: usize,
}

impl Replication {
    /// Three nodes that all have all files.
    pub const THREE: Replication = Replication { nodes: 3, replicas: 3, spare: 0 };
    /// Four nodes, of which two at a time have the same files.
    pub const PAIRS: Replication = Replication { nodes: 4, replicas: 2, spare: 0 };
    /// Two nodes that have the same files, and two more by which a volume can grow.
    pub const GROWING: Replication = Replication { nodes: 2, replicas: 2, spare: 2 };
}

/// The nodes, and a client that mounts their volumes.
pub struct Gluster {
    nodes: Nodes,
    replication: Replication,
    /// The volumes that were grown: they have a brick on each node.
    grown: Vec<NodeStorage>,
    /// The library that lets `glusterd` begin.
    limits: PathBuf,
}

impl Gluster {
    /// Starts nodes that know each other, and have no volume.
    pub fn start(parts: NodeParts<'_>, replication: Replication) -> anyhow::Result<Gluster> {
        let count = replication.nodes + replication.spare;
        let nodes = Nodes::start(parts, count)?;
        let limits = library(nodes.folder())?;
        let cluster = Gluster { nodes, replication, grown: Vec::new(), limits };
        for node in 0..count {
            cluster.start_services(node)?;
        }
        for node in 1..count {
            cluster.gluster_until(&format!("peer probe {}", address(node)), |_| true)?;
        }
        cluster.await_peers()?;
        Ok(cluster)
    }

    /// Its nodes.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    fn start_services(&self, node: usize) -> anyhow::Result<()> {
        self.nodes.node(node).daemon("glusterd --log-level WARNING", &self.limits)
    }

    /// Makes a volume whose bricks lie on such storages, and mounts it at the client. Returns where
    /// it is for programs of this machine.
    pub fn add_volume(&mut self, storage: NodeStorage) -> anyhow::Result<PathBuf> {
        self.nodes.add_storage(storage)?;
        let volume = storage.name();
        let all = self.new_bricks(0..self.bricks(storage), storage)?;
        // The nodes are in no hurry to know each other.
        let create = format!("volume create {volume} replica {}{all} force", self.replication.replicas);
        self.gluster_until(&create, |_| true)?;
        self.gluster_until(&format!("volume start {volume}"), |_| true)?;
        self.await_bricks(storage)?;
        let client = self.nodes.client();
        let mountpoint = client.folder().join(volume);
        fs::create_dir(&mountpoint)?;
        let servers: String =
            (0..self.bricks(storage)).map(|node| format!(" --volfile-server={}", address(node))).collect();
        let mount = format!("glusterfs{servers} --volfile-id={volume} {}", mountpoint.display());
        client.daemon(&mount, &self.limits)?;
        Ok(client.path_here(&mountpoint))
    }

    /// Begins to count what the bricks of a volume are asked.
    pub fn start_profile(&self, storage: NodeStorage) -> anyhow::Result<()> {
        self.gluster_until(&format!("volume profile {} start", storage.name()), |_| true)
    }

    /// What the bricks of a volume were asked since this was asked last, all together.
    pub fn profile(&self, storage: NodeStorage) -> anyhow::Result<BrickProfile> {
        let line = format!("volume profile {} info incremental", storage.name());
        succeeds(&line, || {
            let said = self.gluster(&line)?;
            let bricks = said.lines().filter(|line| line.starts_with("Brick: ")).count();
            ensure!(bricks == self.bricks(storage), "{bricks} bricks answer: {said}");
            BrickProfile::of(&said)
        })
    }

    /// A node's replica, for programs of this machine.
    pub fn brick_from_here(&self, node: usize, storage: NodeStorage) -> PathBuf {
        self.nodes.from_here(node, &self.brick_folder(node, storage))
    }

    /// Mounts a node's files again after their service was killed, and has the cluster's own
    /// services begin anew on them.
    pub fn restart_mount(&self, node: usize) -> anyhow::Result<()> {
        // What still runs has files of the dead mount open, and would take the next one for it.
        self.nodes.kill(node, Some(&gluster_program()?))?;
        self.restart_node(node)
    }

    /// Starts everything on a node with a mount whose processes were all killed.
    pub fn restart_node(&self, node: usize) -> anyhow::Result<()> {
        self.nodes.unmount(node)?;
        self.nodes.mount(node)?;
        self.remove_files_without_identity(node)?;
        self.start_services(node)?;
        self.await_bricks(NodeStorage::Mount)
    }

    /// Starts a node that has lost its persistent memory: its brick begins anew.
    pub fn replace_memory(&self, node: usize) -> anyhow::Result<()> {
        self.nodes.replace_memory(node)?;
        fs::create_dir(self.brick_from_here(node, NodeStorage::Mount))?;
        self.start_services(node)?;
        self.await_peers()?;
        let (volume, brick) = (NodeStorage::Mount.name(), self.brick(node, NodeStorage::Mount));
        self.gluster_until(&format!("volume reset-brick {volume} {brick} start"), |_| true)?;
        self.gluster_until(&format!("volume reset-brick {volume} {brick} {brick} commit force"), |_| true)?;
        self.await_bricks(NodeStorage::Mount)
    }

    /// Waits until no replica on mounts lacks what another has.
    pub fn heal(&self) -> anyhow::Result<()> {
        let bricks = self.bricks(NodeStorage::Mount);
        let healed = |said: &str| said.lines().filter(|line| *line == "Number of entries: 0").count() == bricks;
        let (volume, mut last, mut looks) = (NodeStorage::Mount.name(), String::new(), 0);
        succeeds("the replicas to heal", || {
            // Counting takes no locks. `info` locks the files that it names, and keeps them from
            // healing.
            let said = self.gluster(&format!("volume heal {volume} statistics heal-count"))?;
            if healed(&said) {
                return Ok(());
            }
            // What it could not heal at once it tries again when told: it looks at all each time.
            let is_first = last.is_empty();
            looks = if said == last { looks + 1 } else { 1 };
            last.clone_from(&said);
            let is_due = is_first || looks % LOOKS == 0;
            let told = is_due.then(|| self.gluster(&format!("volume heal {volume}")));
            bail!("{told:?}\n{said}")
        })
    }

    /// Removes the files of a brick that were made and not yet given their identity when it was
    /// killed. GlusterFS never heals a folder with one (gluster/glusterfs#848).
    fn remove_files_without_identity(&self, node: usize) -> anyhow::Result<()> {
        for folder in entries(&self.brick_from_here(node, NodeStorage::Mount))? {
            if folder.ends_with(".glusterfs") || !folder.is_dir() {
                continue;
            }
            for file in entries(&folder)? {
                match getxattr(&file, "trusted.gfid", &mut [0; 16]) {
                    Err(Errno::NODATA) => {
                        let bytes = file.metadata()?.len();
                        ensure!(bytes == 0, "{} had contents before its identity", file.display());
                        fs::remove_file(&file)?;
                    }
                    identity => _ = identity?,
                }
            }
        }
        Ok(())
    }

    /// How many bricks a volume has: the first nodes have one each.
    fn bricks(&self, storage: NodeStorage) -> usize {
        if self.grown.contains(&storage) { self.nodes.count() } else { self.replication.nodes }
    }

    /// Makes the folders of bricks of these nodes. Returns them as words of a command.
    fn new_bricks(&self, nodes: Range<usize>, storage: NodeStorage) -> anyhow::Result<String> {
        nodes
            .map(|node| {
                fs::create_dir(self.brick_from_here(node, storage))?;
                Ok(format!(" {}", self.brick(node, storage)))
            })
            .collect()
    }

    fn await_bricks(&self, storage: NodeStorage) -> anyhow::Result<()> {
        self.gluster_until(&format!("volume status {}", storage.name()), |said| online(said) == self.bricks(storage))
    }

    fn await_peers(&self) -> anyhow::Result<()> {
        let known = |said: &str| said.matches("Peer in Cluster (Connected)").count() == self.nodes.count() - 1;
        self.gluster_until("peer status", known)
    }

    /// Runs a command of the cluster until it succeeds and says what is wanted: nodes refuse one
    /// while they still carry out another.
    fn gluster_until(&self, line: &str, wanted: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        succeeds(line, || {
            let said = self.gluster(line)?;
            ensure!(wanted(&said), "{said}");
            Ok(())
        })
    }

    fn gluster(&self, line: &str) -> anyhow::Result<String> {
        let mut gluster = self.nodes.node(0).command("gluster");
        said(gluster.arg("--mode=script").args(line.split_whitespace()).stdin(Stdio::null()))
    }

    fn brick_folder(&self, node: usize, storage: NodeStorage) -> PathBuf {
        self.nodes.storage_folder(node, storage).join("brick")
    }

    fn brick(&self, node: usize, storage: NodeStorage) -> String {
        format!("{}:{}", address(node), self.brick_folder(node, storage).display())
    }
}

/// Compiles the library that lets `glusterd` begin, in `folder`.
fn library(folder: &Path) -> anyhow::Result<PathBuf> {
    let (source, library) = (folder.join("limits.c"), folder.join("limits.so"));
    fs::write(&source, LIMITS)?;
    said(Command::new("gcc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source))?;
    Ok(library)
}

/// What a folder has.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    Ok(entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?)
}

/// The program of bricks, which goes by the names of other services too.
fn gluster_program() -> anyhow::Result<PathBuf> {
    fs::canonicalize("/usr/sbin/glusterfsd").context(REMEDY)
}

/// How many bricks a volume's status calls online: `Y` in its third column. A long path is broken
/// into several words.
fn online(status: &str) -> usize {
    let words: Vec<_> = status.split_whitespace().collect();
    let rows = words.split(|word| *word == "Brick").skip(1);
    rows.filter(|row| row.iter().find(|word| ["Y", "N"].contains(word)) == Some(&"Y")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bricks_online_are_counted_whatever_their_path() {
        let status = "Gluster process  TCP Port  RDMA Port  Online  Pid
            Brick 10.7.0.1:/tmp/a                        50412     0          Y       90
            Brick 10.7.0.2:/tmp/a-long-path-of-a-bric
            k                                            N/A       N/A        N       N/A
            Brick 10.7.0.3:/tmp/a-long-path-of-a-bric
            k                                            60979     0          Y       48
            Self-heal Daemon on localhost                N/A       N/A        Y       107";
        assert_eq!(online(status), 2);
    }
}
