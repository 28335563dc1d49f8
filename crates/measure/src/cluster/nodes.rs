//! The nodes of a cluster, a client, and what the files of their services lie on.
//!
//! A client has the bridge between the nodes. All ends with the value, whatever became of its user.

use super::disks::NodeDisk;
use super::machine::Machine;
use crate::medium::remove_left_memory;
use crate::programs::said;
use anyhow::{Context, ensure};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What `tidegate mount` says when programs can use the mount.
const MOUNTED: &str = "mounted";

/// What the files of a node's service lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStorage {
    /// `tidegate mount`, of a directory on a disk, with the pool in memory.
    Mount,
    /// The disk's own file system.
    Disk,
    /// A disk whose ext4 has all data in its journal first.
    Journal,
    /// A disk with such an ext4, which is a loop device over a file in memory.
    JournalInMemory,
    /// `/dev/shm`.
    Memory,
}

impl NodeStorage {
    /// Its short name, which folders and volumes have too.
    pub fn name(self) -> &'static str {
        match self {
            NodeStorage::Mount => "mounts",
            NodeStorage::Disk => "disk",
            NodeStorage::Journal => "journal",
            NodeStorage::JournalInMemory => "journal-in-memory",
            NodeStorage::Memory => "memory",
        }
    }

    /// Options of the ext4 below, where there is one.
    fn options(self) -> Option<&'static str> {
        match self {
            NodeStorage::Mount | NodeStorage::Disk => Some("data=ordered"),
            NodeStorage::Journal | NodeStorage::JournalInMemory => Some("data=journal"),
            NodeStorage::Memory => None,
        }
    }
}

/// The disks of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeDisks {
    /// All nodes have folders on one disk. No storage with a journal for data is there.
    Shared,
    /// Each node has a disk of so many MiB for each storage, so that what one of them writes is
    /// counted by itself.
    Own(u32),
}

/// What nodes are made of.
#[derive(Clone, Copy, Debug)]
pub struct NodeParts<'a> {
    /// The program `tidegate`.
    pub tidegate: &'a Path,
    /// A folder on the disk of all nodes.
    pub disk: &'a Path,
    /// The size of each node's pool, as one types it.
    pub pool_size: &'static str,
    /// What their files lie on in the end.
    pub disks: NodeDisks,
}

/// What a storage of a cluster did so far, on all nodes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks of 4 KiB that devices wrote.
    pub disk_blocks: u64,
    /// Lines of 64 bytes that mounts flushed to their pools.
    pub lines_flushed: u64,
}

impl Counts {
    /// What came after `before`.
    #[must_use]
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            disk_blocks: self.disk_blocks - before.disk_blocks,
            lines_flushed: self.lines_flushed - before.lines_flushed,
        }
    }
}

/// The nodes, and a client of theirs.
pub struct Nodes {
    client: Machine,
    nodes: Vec<Machine>,
    tidegate: PathBuf,
    pool_size: &'static str,
    own_disk_mib: Option<u32>,
    /// The disks of nodes that have their own: node, storage, disk.
    disks: Vec<(usize, NodeStorage, NodeDisk)>,
    /// Memory that outlives processes, one folder a node.
    memory: TempDir,
    folder: TempDir,
}

impl Nodes {
    /// Starts so many nodes that reach each other, and have no storage.
    pub fn start(parts: NodeParts<'_>, count: usize) -> anyhow::Result<Nodes> {
        ensure!(rustix::process::geteuid().is_root(), "a cluster makes namespaces and mounts: run this as root");
        let folder = tempfile::tempdir_in(parts.disk).context("making a folder on the disk")?;
        let memory = tempfile::tempdir_in("/dev/shm").context("making a folder in memory")?;
        let client = Machine::start(folder.path().join("client"))?;
        client.tool("ip link add bridge type bridge")?;
        client.tool(&format!("ip addr add {BESIDE_CLIENT}/24 dev bridge"))?;
        client.tool("ip link set bridge up")?;
        let nodes = (0..count).map(|node| Machine::start(folder.path().join(format!("node{node}"))));
        let nodes = nodes.collect::<anyhow::Result<_>>()?;
        let own_disk_mib = match parts.disks {
            NodeDisks::Shared => None,
            NodeDisks::Own(mib) => Some(mib),
        };
        let (tidegate, pool_size) = (parts.tidegate.to_owned(), parts.pool_size);
        let nodes = Nodes { client, nodes, tidegate, pool_size, own_disk_mib, disks: Vec::new(), memory, folder };
        for node in 0..nodes.count() {
            nodes.connect(node)?;
            fs::create_dir(nodes.memory_of(node))?;
        }
        Ok(nodes)
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

    /// How many there are.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn client(&self) -> &Machine {
        &self.client
    }

    pub(super) fn node(&self, node: usize) -> &Machine {
        &self.nodes[node]
    }

    /// A folder of all nodes and the client, on the disk.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A folder in memory, which outlives processes.
    pub(super) fn memory(&self) -> &Path {
        self.memory.path()
    }

    /// Gives each node this storage.
    pub(super) fn add_storage(&mut self, storage: NodeStorage) -> anyhow::Result<()> {
        for node in 0..self.count() {
            if let (Some(mib), Some(options)) = (self.own_disk_mib, storage.options()) {
                let above = match storage {
                    NodeStorage::JournalInMemory => self.memory_of(node),
                    _ => self.nodes[node].folder().to_owned(),
                };
                let image = above.join(format!("{}.img", storage.name()));
                let disk = NodeDisk::mount(&self.nodes[node], &image, mib, &self.disk_of(node, storage), options)?;
                self.disks.push((node, storage, disk));
            }
            if storage == NodeStorage::Mount {
                fs::create_dir(self.from_here(node, &self.source(node)))?;
                self.mount(node)?;
            }
        }
        Ok(())
    }

    /// Where a node has files of this storage, for itself.
    pub(super) fn storage_folder(&self, node: usize, storage: NodeStorage) -> PathBuf {
        match storage {
            NodeStorage::Mount => self.mountpoint(node),
            NodeStorage::Memory => self.memory_of(node),
            NodeStorage::Disk | NodeStorage::Journal | NodeStorage::JournalInMemory => self.disk_of(node, storage),
        }
    }

    /// Where a path of a node is for programs of this machine.
    pub fn from_here(&self, node: usize, path: &Path) -> PathBuf {
        self.nodes[node].path_here(path)
    }

    /// What `tidegate status --json` says of a node's mount.
    pub fn status_json(&self, node: usize) -> anyhow::Result<String> {
        let mut status = self.nodes[node].command(&self.tidegate);
        said(status.arg("status").arg(self.pool(node)).arg("--json"))
    }

    /// Has all nodes write at once all that they have in this storage to their disks.
    pub fn settle(&self, storage: NodeStorage) -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let all: Vec<_> =
                (0..self.count()).map(|node| scope.spawn(move || self.settle_node(node, storage))).collect();
            all.into_iter().try_for_each(|settled| settled.join().expect("a failure is returned"))
        })
    }

    fn settle_node(&self, node: usize, storage: NodeStorage) -> anyhow::Result<()> {
        if storage == NodeStorage::Mount {
            let mut flush = self.nodes[node].command(&self.tidegate);
            said(flush.args(["flush", "--wait"]).arg(self.pool(node)))?;
        }
        let own = self.disks_of(storage).find(|(of, ..)| *of == node);
        own.map_or(Ok(()), |(.., disk)| disk.settle(&self.nodes[node]))
    }

    /// What this storage did so far on all nodes that have a disk of their own.
    pub fn counts(&self, storage: NodeStorage) -> anyhow::Result<Counts> {
        let mut counts = Counts::default();
        for (node, _, disk) in self.disks_of(storage) {
            counts.disk_blocks += disk.blocks_written()?;
            if storage == NodeStorage::Mount {
                counts.lines_flushed += crate::testbed::number_in(&self.status_json(*node)?, "lines_flushed")?;
            }
        }
        Ok(counts)
    }

    fn disks_of(&self, storage: NodeStorage) -> impl Iterator<Item = &(usize, NodeStorage, NodeDisk)> {
        self.disks.iter().filter(move |(_, of, _)| *of == storage)
    }

    /// Kills the processes of a node whose program has this path; of every program: None.
    pub(super) fn kill(&self, node: usize, program: Option<&Path>) -> anyhow::Result<()> {
        ensure!(self.nodes[node].kill(program), "processes of node {node} outlive being killed");
        Ok(())
    }

    /// Kills server and supervisor of a node's mount, and leaves the dead mount.
    pub fn kill_mount(&self, node: usize) -> anyhow::Result<()> {
        self.kill(node, Some(&self.tidegate))
    }

    /// Kills every process of a node.
    pub fn kill_node(&self, node: usize) -> anyhow::Result<()> {
        self.kill(node, None)
    }

    pub(super) fn unmount(&self, node: usize) -> anyhow::Result<()> {
        self.nodes[node].tool(&format!("umount --lazy {}", self.mountpoint(node).display()))
    }

    pub(super) fn mount(&self, node: usize) -> anyhow::Result<()> {
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

    /// Removes what a dead node had in its pool and below, and mounts it anew, empty.
    pub(super) fn replace_memory(&self, node: usize) -> anyhow::Result<()> {
        self.unmount(node)?;
        remove_left_memory(&self.memory_of(node));
        for folder in [self.memory_of(node), self.from_here(node, &self.source(node))] {
            fs::remove_dir_all(&folder)?;
            fs::create_dir(&folder)?;
        }
        self.mount(node)
    }

    fn disk_of(&self, node: usize, storage: NodeStorage) -> PathBuf {
        let folder = self.nodes[node].folder();
        match self.own_disk_mib {
            None => folder.to_owned(),
            Some(_) => folder.join(format!("disk-{}", storage.name())),
        }
    }

    fn source(&self, node: usize) -> PathBuf {
        self.disk_of(node, NodeStorage::Mount).join("source")
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
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // The client first: it would wait for its servers.
        self.client.kill(None);
        for node in 0..self.nodes.len() {
            self.nodes[node].kill(None);
            remove_left_memory(&self.memory_of(node));
        }
    }
}

/// The client's address there, and that of what runs beside it.
pub(super) const BESIDE_CLIENT: &str = "10.7.0.254";

/// The address of a node in the cluster's network.
pub(super) fn address(node: usize) -> String {
    format!("10.7.0.{}", node + 1)
}
