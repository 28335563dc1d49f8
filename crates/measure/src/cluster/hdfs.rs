//! HDFS on the nodes of a cluster: a data node on each, a name node beside the client, and TeraGen.
//!
//! The folders of a data node lie on all storages that are compared. HDFS chooses among them by a
//! storage policy of each directory, so that one cluster has a directory for each storage:
//!
//! | storage | type of its folders | policy of its directory |
//! | --- | --- | --- |
//! | disk | `DISK` | `HOT` |
//! | journal | `ARCHIVE` | `COLD` |
//! | mounts | `SSD` | `ALL_SSD` |
//! | memory | `NVDIMM` | `ALL_NVDIMM` |
//!
//! Types are names: a data node does the same with folders of each of them. A data node syncs a
//! block when it is complete (`dfs.datanode.synconclose`), which it does not by default: without,
//! no bytes of a block are durable when a file is closed. The name node's files are in memory.

mod jars;
mod test_dfsio;

pub use jars::PROGRAMS;
pub use test_dfsio::{DataNodeSyncs, DfsioFiles, DfsioResult, DfsioTest};

use super::nodes::{BESIDE_CLIENT, NodeParts, NodeStorage, Nodes, address};
use crate::programs::said;
use crate::waiting::succeeds;
use anyhow::{Context, bail, ensure};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What brings the programs.
pub const REMEDY: &str = "apt-get install openjdk-17-jre-headless curl iproute2";

/// Bytes of a row of TeraGen.
pub const ROW_BYTES: u64 = 100;

/// Java as small as it does here: many of it run on few cores.
const JAVA: &str =
    "java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.net.preferIPv4Stack=true";

/// How long the name node is left alone before it is asked again.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Answers in succession that have to be as wanted: what it tells is up to a second old.
const ANSWERS: u32 = 8;
const METRICS: &str = "*.period=1\n";

/// Settings of all nodes and clients.
const SETTINGS: [(&str, &str); 20] = [
    ("fs.defaultFS", "hdfs://10.7.0.254:8020"),
    ("dfs.namenode.http-address", "10.7.0.254:9870"),
    ("dfs.namenode.datanode.registration.ip-hostname-check", "false"),
    ("dfs.permissions.enabled", "false"),
    ("dfs.datanode.synconclose", "true"),
    // A node counts as dead after 11 s.
    ("dfs.heartbeat.interval", "1"),
    ("dfs.namenode.heartbeat.recheck-interval", "500"),
    // A copy that a dead node was to make is tried again soon.
    ("dfs.namenode.reconstruction.pending.timeout-sec", "5"),
    ("dfs.namenode.redundancy.interval.seconds", "1"),
    ("dfs.namenode.replication.max-streams", "8"),
    ("dfs.namenode.replication.max-streams-hard-limit", "8"),
    // No reads in the background amid a measurement.
    ("dfs.block.scanner.volume.bytes.per.second", "0"),
    ("dfs.namenode.fs-limits.min-block-size", "1048576"),
    // A gibibyte is to stay free by default.
    ("dfs.datanode.round-robin-volume-choosing-policy.additional-available-space", "0"),
    ("mapreduce.framework.name", "local"),
    ("mapreduce.local.map.tasks.maximum", "2"),
    ("mapreduce.job.maps", "2"),
    ("mapreduce.task.io.sort.mb", "8"),
    ("mapreduce.client.completion.pollinterval", "20"),
    ("mapreduce.client.progressmonitor.pollinterval", "20"),
];

/// The data nodes of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct DataNodes<'a> {
    /// How many there are.
    pub count: usize,
    /// What their folders lie on.
    pub storages: &'a [NodeStorage],
    /// MiB of a block of HDFS.
    pub block_mib: u32,
}

/// The nodes, with a name node and a client.
pub struct Hdfs {
    nodes: Nodes,
    storages: Vec<NodeStorage>,
    block_mib: u32,
    classpath: String,
}

/// What TeraGen did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generated {
    /// From the job's start until its end; starting Java is no part of it.
    pub time: Duration,
    /// The sum over all rows that TeraGen tells.
    pub checksum: u64,
}

/// What the name node says of its blocks and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Data nodes that send heartbeats.
    pub live: u64,
    /// Blocks with fewer replicas than wanted.
    pub low: u64,
    /// Replicas that are under way, or still to be deleted.
    pub pending: u64,
    /// Blocks without a replica.
    pub missing: u64,
}

impl Hdfs {
    /// Starts a cluster whose nodes are all known, with an empty directory for each storage.
    pub fn start(parts: NodeParts<'_>, data_nodes: DataNodes<'_>) -> anyhow::Result<Hdfs> {
        let classpath = jars::fetched()?;
        let DataNodes { count, storages, block_mib } = data_nodes;
        let mut nodes = Nodes::start(parts, count)?;
        for storage in storages {
            nodes.add_storage(*storage)?;
        }
        let cluster = Hdfs { nodes, storages: storages.to_vec(), block_mib, classpath };
        cluster.configure(&cluster.client_folder(), &[("dfs.namenode.name.dir", cluster.name_folder())])?;
        let name_node = "org.apache.hadoop.hdfs.server.namenode.NameNode";
        cluster.java(&format!("{name_node} -format -nonInteractive"))?;
        cluster.nodes.client().service(&cluster.line(&cluster.client_folder(), name_node), &cluster.log())?;
        for node in 0..count {
            cluster.start_data_node(node)?;
        }
        cluster.await_storages(count * cluster.storages.len())?;
        cluster.make_directories()?;
        Ok(cluster)
    }

    /// Its nodes.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    fn start_data_node(&self, node: usize) -> anyhow::Result<()> {
        let machine = self.nodes.node(node);
        let folders = self
            .storages
            .iter()
            .map(|storage| format!("[{}]{}", type_of(*storage), self.data_folder(node, *storage).display()));
        let folders = folders.collect::<Vec<_>>().join(",");
        self.configure(
            machine.folder(),
            &[("dfs.datanode.data.dir", folders), ("dfs.datanode.hostname", address(node))],
        )?;
        let line = self.line(machine.folder(), "org.apache.hadoop.hdfs.server.datanode.DataNode");
        machine.service(&line, &machine.folder().join("log/data-node.log"))
    }

    /// Waits until the name node was told of so many storages since its start.
    fn await_storages(&self, count: usize) -> anyhow::Result<()> {
        succeeds("reports of all storages", || {
            let log = fs::read_to_string(self.log())?;
            let told =
                log.lines().filter(|line| line.contains("processReport") && line.contains("from storage")).count();
            ensure!(told >= count, "{told} of {count} storages are known");
            Ok(())
        })
    }

    fn make_directories(&self) -> anyhow::Result<()> {
        let all: String = self.storages.iter().map(|storage| format!(" {}", directory(*storage))).collect();
        self.java(&format!("org.apache.hadoop.fs.FsShell -mkdir{all}"))?;
        for storage in &self.storages {
            let (path, policy) = (directory(*storage), policy_of(*storage));
            let program = "org.apache.hadoop.hdfs.tools.StoragePolicyAdmin";
            self.java(&format!("{program} -setStoragePolicy -path {path} -policy {policy}"))?;
        }
        Ok(())
    }

    /// Removes what the directory of this storage has, and waits until no node has a block there.
    pub fn clear(&self, storage: NodeStorage) -> anyhow::Result<()> {
        self.java(&format!("org.apache.hadoop.fs.FsShell -rm -r -f -skipTrash {}/*", directory(storage)))?;
        succeeds("the blocks to be removed", || {
            let bytes = self.block_bytes(storage)?;
            ensure!(bytes == 0, "{bytes} bytes of blocks are left");
            Ok(())
        })
    }

    /// Has TeraGen write so many rows into a new folder of the directory of this storage, with so
    /// many replicas of each block. `begun` is called when it has begun.
    pub fn generate(
        &self,
        storage: NodeStorage,
        (rows, replicas): (u64, u16),
        begun: impl FnOnce(),
    ) -> anyhow::Result<Generated> {
        let program = "org.apache.hadoop.examples.terasort.TeraGen";
        let line = format!("{program} -Ddfs.replication={replicas} {rows} {}/rows", directory(storage));
        let (mut begin, mut end, mut checksum, mut begun) = (None, None, None, Some(begun));
        let mut told = String::new();
        let mut job = self.client_command(&line);
        let mut job = job.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().context("starting TeraGen")?;
        for line in BufReader::new(job.stderr.take().context("standard error is a pipe")?).lines() {
            let line = line?;
            if line.contains("Running job:") {
                begin = Some(Instant::now());
                begun.take().into_iter().for_each(|begun| begun());
            } else if line.contains("completed successfully") {
                end = Some(Instant::now());
            } else if let Some(sum) = line.trim().strip_prefix("CHECKSUM=") {
                checksum = Some(sum.parse()?);
            }
            let _ = writeln!(told, "{line}");
        }
        let status = job.wait()?;
        match (status.success(), begin, end, checksum) {
            (true, Some(begin), Some(end), Some(checksum)) => Ok(Generated { time: end - begin, checksum }),
            _ => bail!("TeraGen: {status}: {told}"),
        }
    }

    /// The sum over all rows that this storage's directory has, read back.
    pub fn checksum(&self, storage: NodeStorage) -> anyhow::Result<u64> {
        let directory = directory(storage);
        let program = "org.apache.hadoop.examples.terasort.TeraChecksum";
        self.java(&format!("{program} {directory}/rows {directory}/sum"))?;
        let told = self.java(&format!("org.apache.hadoop.fs.FsShell -cat {directory}/sum/part-r-00000"))?;
        self.java(&format!("org.apache.hadoop.fs.FsShell -rm -r -skipTrash {directory}/sum"))?;
        u64::from_str_radix(told.trim(), 16).with_context(|| format!("a checksum: {told}"))
    }

    /// Bytes of the blocks that nodes have on this storage, without their checksums.
    pub fn block_bytes(&self, storage: NodeStorage) -> anyhow::Result<u64> {
        let all = (0..self.nodes.count()).map(|node| blocks(&self.data_folder_from_here(node, storage)));
        let all = all.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(all.iter().flatten().map(|(_, bytes)| bytes).sum())
    }

    /// The files of blocks of a node on this storage, for programs of this machine.
    pub fn blocks_of(&self, node: usize, storage: NodeStorage) -> anyhow::Result<Vec<PathBuf>> {
        let found = blocks(&self.data_folder_from_here(node, storage))?;
        Ok(found.into_iter().map(|(path, _)| path).collect())
    }

    /// What the name node says.
    pub fn health(&self) -> anyhow::Result<Health> {
        let bean = self.bean(BESIDE_CLIENT, 9870, "Hadoop:service=NameNode,name=FSNamesystem")?;
        let number = |name: &str| bean[name].as_u64().with_context(|| format!("no {name} in {bean}"));
        Ok(Health {
            live: number("NumLiveDataNodes")?,
            low: number("UnderReplicatedBlocks")?,
            pending: number("PendingReplicationBlocks")? + number("PendingDeletionBlocks")?,
            missing: number("MissingBlocks")?,
        })
    }

    /// Waits until so many nodes are alive and each block has all of its replicas.
    pub fn await_replicas(&self, live: usize) -> anyhow::Result<()> {
        let wanted = Health { live: live as u64, low: 0, pending: 0, missing: 0 };
        self.await_health("all replicas", |health| health == wanted)
    }

    /// Waits until the name node takes so many nodes for alive.
    pub fn await_live(&self, live: usize) -> anyhow::Result<()> {
        self.await_health("the name node's count of nodes", |health| health.live == live as u64)
    }

    fn await_health(&self, what: &str, wanted: impl Fn(Health) -> bool) -> anyhow::Result<()> {
        let mut held = 0;
        succeeds(what, || {
            let health = self.health()?;
            held = if wanted(health) { held + 1 } else { 0 };
            if held < ANSWERS {
                std::thread::park_timeout(ASKED_AGAIN_AFTER);
                bail!("{health:?}");
            }
            Ok(())
        })
    }

    /// Starts a node whose processes were all killed, on what its storages have.
    pub fn restart_node(&self, node: usize) -> anyhow::Result<()> {
        self.nodes.unmount(node)?;
        self.nodes.mount(node)?;
        self.start_data_node(node)
    }

    /// Starts a node whose processes were all killed, and whose persistent memory is lost: it
    /// begins anew.
    pub fn replace_node(&self, node: usize) -> anyhow::Result<()> {
        self.nodes.replace_memory(node)?;
        self.start_data_node(node)
    }

    /// What Java's beans of a service say that have this name.
    fn bean(&self, host: &str, port: u16, name: &str) -> anyhow::Result<serde_json::Value> {
        let url = format!("http://{host}:{port}/jmx?qry={name}");
        let mut curl = self.nodes.client().command("curl");
        let told = said(curl.args(["--silent", "--show-error", "--fail", &url]))?;
        let told: serde_json::Value = serde_json::from_str(&told)?;
        Ok(told["beans"][0].clone())
    }

    /// Writes the settings of a machine into its folder.
    fn configure(&self, folder: &Path, own: &[(&str, String)]) -> anyhow::Result<()> {
        let block = (u64::from(self.block_mib) << 20).to_string();
        let tmp = tmp_of(folder);
        fs::create_dir_all(&tmp)?;
        let common = SETTINGS.map(|(name, value)| (name, value.to_owned())).into_iter();
        let all = common.chain([("dfs.blocksize", block), ("hadoop.tmp.dir", tmp)]).chain(own.iter().cloned());
        let mut text = "<configuration>\n".to_owned();
        for (name, value) in all {
            let _ = writeln!(text, "<property><name>{name}</name><value>{value}</value></property>");
        }
        text.push_str("</configuration>\n");
        let conf = folder.join("conf");
        fs::create_dir_all(&conf)?;
        fs::write(conf.join("hadoop-metrics2.properties"), METRICS)?;
        // Defaults of a part of Hadoop are read after the settings of the parts below it.
        let files = ["core-site.xml", "hdfs-site.xml", "mapred-site.xml"];
        files.iter().try_for_each(|file| fs::write(conf.join(file), &text)).context("writing settings of HDFS")
    }

    /// The line of words that starts a class with the settings in `folder`.
    fn line(&self, folder: &Path, class: &str) -> String {
        let (tmp, conf) = (tmp_of(folder), folder.join("conf"));
        format!("{JAVA} -Djava.io.tmpdir={tmp} -cp {}:{} {class}", conf.display(), self.classpath)
    }

    fn client_command(&self, class: &str) -> Command {
        let line = self.line(&self.client_folder(), class);
        let mut words = line.split_whitespace();
        let mut command = self.nodes.client().command(words.next().unwrap_or_default());
        command.args(words).current_dir(self.client_folder());
        command
    }

    /// Runs a class at the client. Returns what it said.
    fn java(&self, class: &str) -> anyhow::Result<String> {
        said(self.client_command(class).stdin(Stdio::null())).with_context(|| class.to_owned())
    }

    fn client_folder(&self) -> PathBuf {
        self.nodes.client().folder().to_owned()
    }

    fn name_folder(&self) -> String {
        self.nodes.memory().join("name").display().to_string()
    }

    fn log(&self) -> PathBuf {
        self.client_folder().join("log/name-node.log")
    }

    fn data_folder(&self, node: usize, storage: NodeStorage) -> PathBuf {
        self.nodes.storage_folder(node, storage).join("hdfs")
    }

    fn data_folder_from_here(&self, node: usize, storage: NodeStorage) -> PathBuf {
        self.nodes.from_here(node, &self.data_folder(node, storage))
    }
}

/// Where a machine's Java and Hadoop put what they need for a while: what a killed one leaves there
/// goes with the machine's folder.
fn tmp_of(folder: &Path) -> String {
    folder.join("tmp").display().to_string()
}

/// The files of blocks below a folder, and their bytes. What goes meanwhile is left out.
fn blocks(folder: &Path) -> anyhow::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if metadata.is_dir() {
            found.extend(blocks(&path).unwrap_or_default());
        } else if name.starts_with("blk_") && !name.ends_with(".meta") {
            found.push((path, metadata.len()));
        }
    }
    Ok(found)
}

fn directory(storage: NodeStorage) -> String {
    format!("/{}", storage.name())
}

fn type_of(storage: NodeStorage) -> &'static str {
    match storage {
        NodeStorage::Disk => "DISK",
        NodeStorage::Journal => "ARCHIVE",
        NodeStorage::Mount => "SSD",
        NodeStorage::Memory => "NVDIMM",
        NodeStorage::JournalInMemory => "RAM_DISK",
    }
}

fn policy_of(storage: NodeStorage) -> &'static str {
    match storage {
        NodeStorage::Disk => "HOT",
        NodeStorage::Journal => "COLD",
        NodeStorage::Mount => "ALL_SSD",
        NodeStorage::Memory => "ALL_NVDIMM",
        NodeStorage::JournalInMemory => "LAZY_PERSIST",
    }
}
