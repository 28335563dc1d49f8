//! A GlusterFS cluster of three nodes in network namespaces of this machine, with volumes of three
//! replicas.
//!
//! Every node has processes, mounts and a network of its own, so that its services can be killed by
//! themselves. A client has the bridge between the nodes, and mounts the volumes. Their bricks lie
//! on `tidegate mount`, on the disk, or in memory. All ends with the value, whatever became of its
//! user.

mod machine;

use crate::medium::remove_left_memory;
use crate::programs::said;
use crate::waiting::succeeds;
use anyhow::{Context, bail, ensure};
use machine::Machine;
use rustix::fs::getxattr;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Nodes of the cluster, each with one replica.
pub const NODES: usize = 3;

/// Programs that a cluster needs, and the packages that have them.
pub const PROGRAMS: [&str; 4] = ["glusterd", "glusterfs", "gluster", "ip"];
/// What brings these programs.
pub const REMEDY: &str = "apt-get install glusterfs-server glusterfs-client iproute2";

/// Looks without a change after which healing is asked for again.
const LOOKS: u32 = 5;

/// What `tidegate mount` says when programs can use the mount.
const MOUNTED: &str = "mounted";

/// `glusterd` wants more open files than a container allows to root, and ends without them. It
/// needs few.
const LIMITS: &str = "#define _GNU_SOURCE
#include <sys/resource.h>
int setrlimit64(__rlimit_resource_t which, const struct rlimit64 *limit)
{ (void)which; (void)limit; return 0; }
";

/// What the bricks of a volume lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bricks {
    /// `tidegate mount`, of a directory on the disk, with the pool in memory.
    Mounts,
    /// The disk's own file system.
    Disk,
    /// `/dev/shm`.
    Memory,
}

impl Bricks {
    /// The name of the volume with such bricks.
    fn volume(self) -> &'static str {
        match self {
            Bricks::Mounts => "mounts",
            Bricks::Disk => "disk",
            Bricks::Memory => "memory",
        }
    }
}

/// What a cluster is made of.
#[derive(Clone, Copy, Debug)]
pub struct ClusterParts<'a> {
    /// The program `tidegate`.
    pub tidegate: &'a Path,
    /// A folder on the disk of all nodes.
    pub disk: &'a Path,
    /// The size of each node's pool, as one types it.
    pub pool_size: &'static str,
}

/// The nodes, and a client that mounts their volumes.
pub struct Cluster {
    client: Machine,
    nodes: Vec<Machine>,
    tidegate: PathBuf,
    pool_size: &'static str,
    /// The library that lets `glusterd` begin.
    limits: PathBuf,
    /// Memory that outlives processes, one folder a node.
    memory: TempDir,
    _folder: TempDir,
}

impl Cluster {
    /// Starts nodes that know each other, and have no volume.
    pub fn start(parts: ClusterParts<'_>) -> anyhow::Result<Cluster> {
        ensure!(rustix::process::geteuid().is_root(), "a cluster makes namespaces and mounts: run this as root");
        let folder = tempfile::tempdir_in(parts.disk).context("making a folder on the disk")?;
        let memory = tempfile::tempdir_in("/dev/shm").context("making a folder in memory")?;
        let limits = library(folder.path())?;
        let client = Machine::start(folder.path().join("client"))?;
        client.tool("ip link add bridge type bridge")?;
        client.tool("ip addr add 10.7.0.254/24 dev bridge")?;
        client.tool("ip link set bridge up")?;
        let nodes = (0..NODES).map(|node| Machine::start(folder.path().join(format!("node{node}"))));
        let nodes = nodes.collect::<anyhow::Result<_>>()?;
        let (tidegate, pool_size) = (parts.tidegate.to_owned(), parts.pool_size);
        let cluster = Cluster { client, nodes, tidegate, pool_size, limits, memory, _folder: folder };
        for node in 0..NODES {
            cluster.connect(node)?;
            fs::create_dir(cluster.memory_of(node))?;
            cluster.start_services(node)?;
        }
        for node in 1..NODES {
            cluster.gluster_until(&format!("peer probe {}", address(node)), |_| true)?;
        }
        cluster.await_peers()?;
        Ok(cluster)
    }

    fn connect(&self, node: usize) -> anyhow::Result<()> {
        // The other end is put into the namespace of a process by its number on this machine.
        let mut link = Command::new("nsenter");
        link.arg("--target").arg(self.client.init()).args(["--net", "ip", "link", "add"]);
        link.arg(format!("node{node}")).args(["type", "veth", "peer", "name", "eth0", "netns"]);
        said(link.arg(self.nodes[node].init())).with_context(|| format!("connecting node {node}"))?;
        self.client.tool(&format!("ip link set node{node} master bridge up"))?;
        self.nodes[node].tool(&format!("ip addr add {}/24 dev eth0", address(node)))?;
        self.nodes[node].tool("ip link set eth0 up")
    }

    fn start_services(&self, node: usize) -> anyhow::Result<()> {
        self.nodes[node].daemon("glusterd --log-level WARNING", &self.limits)
    }

    /// Makes a volume with such bricks, and mounts it at the client. Returns where it is for
    /// programs of this machine.
    pub fn add_volume(&self, bricks: Bricks) -> anyhow::Result<PathBuf> {
        for node in 0..NODES {
            if bricks == Bricks::Mounts {
                fs::create_dir(self.source(node))?;
                self.mount(node)?;
            }
            fs::create_dir(self.brick_from_here(node, bricks))?;
        }
        let volume = bricks.volume();
        let all: String = (0..NODES).map(|node| format!(" {}", self.brick(node, bricks))).collect();
        // The nodes are in no hurry to know each other.
        self.gluster_until(&format!("volume create {volume} replica {NODES}{all} force"), |_| true)?;
        self.gluster_until(&format!("volume start {volume}"), |_| true)?;
        self.await_bricks(bricks)?;
        let mountpoint = self.client.folder().join(volume);
        fs::create_dir(&mountpoint)?;
        let servers: String = (0..NODES).map(|node| format!(" --volfile-server={}", address(node))).collect();
        let mount = format!("glusterfs{servers} --volfile-id={volume} {}", mountpoint.display());
        self.client.daemon(&mount, &self.limits)?;
        Ok(self.client.path_here(&mountpoint))
    }

    /// A node's replica, for programs of this machine.
    pub fn brick_from_here(&self, node: usize, bricks: Bricks) -> PathBuf {
        self.nodes[node].path_here(&self.brick_folder(node, bricks))
    }

    /// What `tidegate status --json` says of a node's mount.
    pub fn status_json(&self, node: usize) -> anyhow::Result<String> {
        let mut status = self.nodes[node].command(&self.tidegate);
        said(status.arg("status").arg(self.pool(node)).arg("--json"))
    }

    /// Kills server and supervisor of a node's mount, and leaves the dead mount under its brick.
    pub fn kill_mount(&self, node: usize) -> anyhow::Result<()> {
        self.kill(node, Some(&self.tidegate))
    }

    /// Kills every process of a node.
    pub fn kill_node(&self, node: usize) -> anyhow::Result<()> {
        self.kill(node, None)
    }

    fn kill(&self, node: usize, program: Option<&Path>) -> anyhow::Result<()> {
        ensure!(self.nodes[node].kill(program), "processes of node {node} outlive being killed");
        Ok(())
    }

    /// Mounts a node's files again after their service was killed, and has the cluster's own
    /// services begin anew on them.
    pub fn restart_mount(&self, node: usize) -> anyhow::Result<()> {
        // What still runs has files of the dead mount open, and would take the next one for it.
        self.kill(node, Some(&gluster_program()?))?;
        self.restart_node(node)
    }

    /// Starts everything on a node with a mount whose processes were all killed.
    pub fn restart_node(&self, node: usize) -> anyhow::Result<()> {
        self.unmount(node)?;
        self.mount(node)?;
        self.remove_files_without_identity(node)?;
        self.start_services(node)?;
        self.await_bricks(Bricks::Mounts)
    }

    /// Starts a node that has lost its persistent memory: its brick begins anew.
    pub fn replace_memory(&self, node: usize) -> anyhow::Result<()> {
        self.unmount(node)?;
        remove_left_memory(&self.memory_of(node));
        for folder in [self.memory_of(node), self.source(node)] {
            fs::remove_dir_all(&folder)?;
            fs::create_dir(&folder)?;
        }
        self.mount(node)?;
        fs::create_dir(self.brick_from_here(node, Bricks::Mounts))?;
        self.start_services(node)?;
        self.await_peers()?;
        let (volume, brick) = (Bricks::Mounts.volume(), self.brick(node, Bricks::Mounts));
        self.gluster_until(&format!("volume reset-brick {volume} {brick} start"), |_| true)?;
        self.gluster_until(&format!("volume reset-brick {volume} {brick} {brick} commit force"), |_| true)?;
        self.await_bricks(Bricks::Mounts)
    }

    /// Waits until no replica on mounts lacks what another has.
    pub fn heal(&self) -> anyhow::Result<()> {
        let healed = |said: &str| said.lines().filter(|line| *line == "Number of entries: 0").count() == NODES;
        let (volume, mut last, mut looks) = (Bricks::Mounts.volume(), String::new(), 0);
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
        for folder in entries(&self.brick_from_here(node, Bricks::Mounts))? {
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

    fn await_bricks(&self, bricks: Bricks) -> anyhow::Result<()> {
        self.gluster_until(&format!("volume status {}", bricks.volume()), |said| online(said) == NODES)
    }

    fn await_peers(&self) -> anyhow::Result<()> {
        let known = |said: &str| said.matches("Peer in Cluster (Connected)").count() == NODES - 1;
        self.gluster_until("peer status", known)
    }

    fn unmount(&self, node: usize) -> anyhow::Result<()> {
        self.nodes[node].tool(&format!("umount --lazy {}", self.mountpoint(node).display()))
    }

    fn mount(&self, node: usize) -> anyhow::Result<()> {
        let (machine, mountpoint) = (&self.nodes[node], self.mountpoint(node));
        fs::create_dir_all(&mountpoint)?;
        let log = machine.folder().join("mount.log");
        let mut service = machine.command(&self.tidegate);
        service.arg("mount").args([self.source(node), mountpoint]).arg("--pool").arg(self.pool(node));
        service.args(["--pool-size", self.pool_size, "--dram", "16M", "--try"]);
        service.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut service = service.spawn().with_context(|| format!("starting {}", self.tidegate.display()))?;
        let said = BufReader::new(service.stdout.take().context("standard output is a pipe")?);
        let mut lines = said.lines().map_while(Result::ok);
        let is_mounted = lines.any(|line| line.starts_with(MOUNTED));
        // It ends with the node, and what it says then has to go somewhere.
        std::thread::spawn(move || {
            lines.for_each(drop);
            service.wait()
        });
        ensure!(is_mounted, "the service ended before it mounted: {}", fs::read_to_string(log)?);
        Ok(())
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
        let mut gluster = self.nodes[0].command("gluster");
        said(gluster.arg("--mode=script").args(line.split_whitespace()).stdin(Stdio::null()))
    }

    fn source(&self, node: usize) -> PathBuf {
        self.nodes[node].folder().join("source")
    }

    /// Where a node mounts its files.
    fn mountpoint(&self, node: usize) -> PathBuf {
        self.nodes[node].folder().join("mnt")
    }

    fn memory_of(&self, node: usize) -> PathBuf {
        self.memory.path().join(node.to_string())
    }

    fn pool(&self, node: usize) -> PathBuf {
        self.memory_of(node).join("pool")
    }

    fn brick_folder(&self, node: usize, bricks: Bricks) -> PathBuf {
        let above = match bricks {
            Bricks::Mounts => self.mountpoint(node),
            Bricks::Disk => self.nodes[node].folder().to_owned(),
            Bricks::Memory => self.memory_of(node),
        };
        above.join("brick")
    }

    fn brick(&self, node: usize, bricks: Bricks) -> String {
        format!("{}:{}", address(node), self.brick_folder(node, bricks).display())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The client first: it would wait for its servers.
        self.client.kill(None);
        for node in 0..self.nodes.len() {
            self.nodes[node].kill(None);
            remove_left_memory(&self.memory_of(node));
        }
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

fn address(node: usize) -> String {
    format!("10.7.0.{}", node + 1)
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
