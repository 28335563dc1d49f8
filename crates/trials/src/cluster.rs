//! A GlusterFS volume of three replicas in network namespaces of this machine, its bricks on
//! mounts.
//!
//! Every node has processes, mounts and a network of its own, so that its services can be killed by
//! themselves. A client has the bridge between the nodes, and the volume's mount. All ends with the
//! value, whatever became of the test.

use crate::artefacts::{CProgram, MissingError, run};
use crate::mounted::remove_left_memory;
use crate::served::{program, until, until_succeeds};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::getxattr;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, kill_process, pidfd_open};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Nodes of the volume, each with one replica.
pub const NODES: usize = 3;

/// The volume's name.
const VOLUME: &str = "gv0";

/// Looks without a change after which healing is asked for again.
const LOOKS: u32 = 5;

/// The Debian package of the programs `glusterd` and `gluster`.
const PACKAGE: &str = "glusterfs-server";

/// `glusterd` wants more open files than a container allows to root, and ends without them. It
/// needs few.
const LIMITS: CProgram = CProgram {
    name: "limits.so",
    source: "#define _GNU_SOURCE
#include <sys/resource.h>
int setrlimit64(__rlimit_resource_t which, const struct rlimit64 *limit)
{ (void)which; (void)limit; return 0; }
",
    flags: &["-shared", "-fPIC"],
    packages: "gcc libc6-dev",
};

/// Processes, mounts and a network apart from those of this machine.
struct Machine {
    /// Holds the namespaces: they end with it.
    holder: Child,
    init: Pid,
    folder: PathBuf,
}

impl Machine {
    fn start(folder: PathBuf) -> Machine {
        for name in ["run", "state", "log", "mnt"] {
            fs::create_dir_all(folder.join(name)).expect("a new folder");
        }
        // The first process of a machine has its orphans' ends to take note of.
        let holder = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child"])
            .args(["--mount-proc", "env", "--ignore-signal=CHLD", "sleep", "infinity"])
            .spawn()
            .expect("util-linux is everywhere");
        let mut init = None;
        until("the namespaces", || {
            init = children_of(holder.id()).find(|pid| name_of(*pid).is_some_and(|name| name == "sleep"));
            init.is_some()
        });
        let machine = Machine { holder, init: init.expect("it was found"), folder };
        machine.tool("ip link set lo up");
        // What a cluster's services have where each machine has its own.
        for (own, usual) in [("run", "/run"), ("state", "/var/lib/glusterd"), ("log", "/var/log/glusterfs")] {
            machine.tool(&format!("mount --bind {} {usual}", machine.folder.join(own).display()));
        }
        machine
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.init.as_raw_nonzero().to_string());
        command.args(["--mount", "--net", "--uts", "--pid", "--"]).arg(program);
        command
    }

    /// Runs a line of words, which has to succeed.
    fn tool(&self, line: &str) {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().expect("a program"));
        run(command.args(words), "iproute2").unwrap_or_else(|error| panic!("{error}"));
    }

    /// Starts what goes on by itself.
    fn daemon(&self, line: &str) {
        let limits = LIMITS.build().unwrap_or_else(|error| panic!("{error}"));
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().expect("a program"));
        command.args(words).env("LD_PRELOAD", limits).stdout(Stdio::null()).stdin(Stdio::null());
        assert!(command.status().is_ok_and(|status| status.success()), "{line} failed: apt-get install {PACKAGE}");
    }

    /// Where its mount is for programs of this machine.
    fn mountpoint_from_here(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.init.as_raw_nonzero()));
        root.join(self.mountpoint().strip_prefix("/").expect("an absolute path"))
    }

    fn mountpoint(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// Its processes but the first whose program has this path; of every program: None.
    fn processes(&self, program: Option<&Path>) -> Vec<Pid> {
        let namespace = |pid: Pid| fs::read_link(format!("/proc/{}/ns/pid", pid.as_raw_nonzero())).ok();
        let own = namespace(self.init).expect("the first process lives");
        let runs = |pid: Pid, program: &Path| {
            fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).is_ok_and(|exe| exe == program)
        };
        let all = fs::read_dir("/proc").expect("the kernel tells").flatten();
        all.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .filter(|pid| *pid != self.init && namespace(*pid).as_ref() == Some(&own))
            .filter(|pid| program.is_none_or(|program| runs(*pid, program)))
            .collect()
    }

    /// Kills those processes, and what they start meanwhile.
    fn kill(&self, program: Option<&Path>) {
        until("the end of what was killed", || {
            let alive = self.processes(program);
            alive.iter().for_each(|pid| _ = kill_process(*pid, Signal::KILL));
            alive.is_empty()
        });
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let ended = pidfd_open(self.init, PidfdFlags::empty());
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        // Then no process has the machine's files open any more.
        let _ = ended.map(|ended| poll(&mut [PollFd::new(&ended, PollFlags::IN)], None).is_ok());
    }
}

fn children_of(pid: u32) -> impl Iterator<Item = Pid> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let pids: Vec<_> = children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
    pids.into_iter()
}

fn name_of(pid: Pid) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).ok()?.trim_end().to_owned())
}

/// The nodes, and a client that has mounted their volume.
pub struct Cluster {
    client: Machine,
    nodes: Vec<Machine>,
    /// Memory that outlives processes, one folder a node.
    memory: TempDir,
    _folder: TempDir,
}

impl Cluster {
    /// Mounts each node's files, makes a volume of them, and mounts that at the client.
    pub fn start() -> Cluster {
        assert!(geteuid().is_root(), "this test makes namespaces and mounts: run it as root");
        let folder = tempfile::tempdir().expect("room on the disk");
        let memory = tempfile::tempdir_in("/dev/shm").expect("room in memory");
        let client = Machine::start(folder.path().join("client"));
        client.tool("ip link add bridge type bridge");
        client.tool("ip addr add 10.7.0.254/24 dev bridge");
        client.tool("ip link set bridge up");
        let nodes = (0..NODES).map(|node| Machine::start(folder.path().join(format!("node{node}")))).collect();
        let cluster = Cluster { client, nodes, memory, _folder: folder };
        for node in 0..NODES {
            cluster.connect(node);
            fs::create_dir(cluster.memory_of(node)).expect("a new folder");
            fs::create_dir(cluster.source(node)).expect("a new folder");
            cluster.mount(node);
            fs::create_dir(cluster.brick_from_here(node)).expect("a new folder");
            cluster.nodes[node].daemon("glusterd --log-level WARNING");
        }
        cluster.make_volume();
        let volume = cluster.client.mountpoint();
        let servers: String = (0..NODES).map(|node| format!(" --volfile-server={}", address(node))).collect();
        cluster.client.daemon(&format!("glusterfs{servers} --volfile-id={VOLUME} {}", volume.display()));
        cluster
    }

    fn connect(&self, node: usize) {
        let init = self.nodes[node].init.as_raw_nonzero();
        // The other end is put into the namespace of a process by its number on this machine.
        let mut link = Command::new("nsenter");
        link.arg("--target").arg(self.client.init.as_raw_nonzero().to_string()).args(["--net", "ip", "link", "add"]);
        link.arg(format!("node{node}")).args(["type", "veth", "peer", "name", "eth0", "netns", &init.to_string()]);
        run(&mut link, "iproute2").unwrap_or_else(|error| panic!("{error}"));
        self.client.tool(&format!("ip link set node{node} master bridge up"));
        self.nodes[node].tool(&format!("ip addr add {}/24 dev eth0", address(node)));
        self.nodes[node].tool("ip link set eth0 up");
    }

    fn make_volume(&self) {
        for node in 1..NODES {
            self.gluster_until(&format!("peer probe {}", address(node)), |_| true);
        }
        let known = |said: &str| said.matches("Peer in Cluster (Connected)").count() == NODES - 1;
        self.gluster_until("peer status", known);
        let bricks: String = (0..NODES).map(|node| format!(" {}", self.brick(node))).collect();
        // The nodes are in no hurry to know each other.
        self.gluster_until(&format!("volume create {VOLUME} replica {NODES}{bricks} force"), |_| true);
        self.gluster_until(&format!("volume start {VOLUME}"), |_| true);
        self.gluster_until(&format!("volume status {VOLUME}"), |said| online(said) == NODES);
    }

    /// The volume at the client, for programs of this machine.
    pub fn volume(&self) -> PathBuf {
        self.client.mountpoint_from_here()
    }

    /// A node's replica, for programs of this machine.
    pub fn brick_from_here(&self, node: usize) -> PathBuf {
        self.nodes[node].mountpoint_from_here().join("brick")
    }

    /// Kills server and supervisor of a node's mount, and leaves the dead mount under its brick.
    pub fn kill_mount(&self, node: usize) {
        self.nodes[node].kill(Some(program()));
    }

    /// Kills every process of a node.
    pub fn kill_node(&self, node: usize) {
        self.nodes[node].kill(None);
    }

    /// Mounts a node's files again after their service was killed, and has the cluster's own
    /// services begin anew on them.
    pub fn restart_mount(&self, node: usize) {
        // What still runs has files of the dead mount open, and would take the next one for it.
        self.nodes[node].kill(Some(&gluster_program()));
        self.restart_node(node);
    }

    /// Starts everything on a node whose processes were all killed.
    pub fn restart_node(&self, node: usize) {
        self.unmount(node);
        self.mount(node);
        self.remove_files_without_identity(node);
        self.nodes[node].daemon("glusterd --log-level WARNING");
        self.await_bricks();
    }

    /// Starts a node that has lost its persistent memory: its brick begins anew.
    pub fn replace_memory(&self, node: usize) {
        self.unmount(node);
        remove_left_memory(&self.memory_of(node));
        fs::remove_dir_all(self.memory_of(node)).expect("the pool can be lost");
        fs::remove_dir_all(self.source(node)).expect("the files are the node's alone");
        fs::create_dir(self.memory_of(node)).expect("a new folder");
        fs::create_dir(self.source(node)).expect("a new folder");
        self.mount(node);
        fs::create_dir(self.brick_from_here(node)).expect("a new folder");
        self.nodes[node].daemon("glusterd --log-level WARNING");
        let brick = self.brick(node);
        self.gluster_until("peer status", |said| said.matches("Peer in Cluster (Connected)").count() == NODES - 1);
        self.gluster_until(&format!("volume reset-brick {VOLUME} {brick} start"), |_| true);
        self.gluster_until(&format!("volume reset-brick {VOLUME} {brick} {brick} commit force"), |_| true);
        self.await_bricks();
    }

    /// Waits until no replica lacks what another has.
    pub fn heal(&self) {
        let healed = |said: &str| said.lines().filter(|line| *line == "Number of entries: 0").count() == NODES;
        let (mut last, mut looks) = (String::new(), 0);
        until_succeeds("the replicas to heal", || {
            // Counting takes no locks. `info` locks the files that it names, and keeps them from
            // healing.
            let counted = self.gluster(&format!("volume heal {VOLUME} statistics heal-count"));
            let said = counted.map_err(|error| error.to_string())?;
            if healed(&said) {
                return Ok(());
            }
            // What it could not heal at once it tries again when told: it looks at all each time.
            let is_first = last.is_empty();
            looks = if said == last { looks + 1 } else { 1 };
            last.clone_from(&said);
            let is_due = is_first || looks % LOOKS == 0;
            let told = is_due.then(|| self.gluster(&format!("volume heal {VOLUME}")));
            Err(format!("{told:?}\n{said}"))
        });
    }

    /// Removes the files of a brick that were made and not yet given their identity when it was
    /// killed. GlusterFS never heals a folder with one (gluster/glusterfs#848).
    fn remove_files_without_identity(&self, node: usize) {
        let entries = |folder: &Path| {
            let entries = fs::read_dir(folder).expect("the brick is mounted");
            entries.map(|entry| entry.expect("the brick is mounted").path()).collect::<Vec<_>>()
        };
        let brick = entries(&self.brick_from_here(node)).into_iter();
        let folders = brick.filter(|path| !path.ends_with(".glusterfs") && path.is_dir());
        for file in folders.flat_map(|folder| entries(&folder)) {
            match getxattr(&file, "trusted.gfid", &mut [0; 16]) {
                Err(Errno::NODATA) => {
                    let bytes = file.metadata().expect("nobody else removes it").len();
                    assert_eq!(bytes, 0, "{} had contents before its identity", file.display());
                    fs::remove_file(&file).expect("the brick is mounted");
                }
                identity => _ = identity.expect("the brick is mounted"),
            }
        }
    }

    fn await_bricks(&self) {
        self.gluster_until(&format!("volume status {VOLUME}"), |said| online(said) == NODES);
    }

    fn unmount(&self, node: usize) {
        self.nodes[node].tool(&format!("umount --lazy {}", self.nodes[node].mountpoint().display()));
    }

    fn mount(&self, node: usize) {
        let machine = &self.nodes[node];
        let mut service = machine.command(program());
        service.arg("mount").args([self.source(node), machine.mountpoint()]).arg("--pool");
        service.arg(self.memory_of(node).join("pool")).args(["--pool-size", "64M", "--dram", "16M", "--try"]);
        let mut service = service.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the service starts");
        let said = BufReader::new(service.stdout.take().expect("standard output is a pipe"));
        let mut lines = said.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with("mounted")), "the service ended before it mounted");
        // It ends with the node, and what it says then has to go somewhere.
        std::thread::spawn(move || {
            lines.for_each(drop);
            service.wait()
        });
    }

    /// Runs a command of the cluster until it succeeds and says what is wanted: nodes refuse one
    /// while they still carry out another.
    fn gluster_until(&self, line: &str, wanted: impl Fn(&str) -> bool) {
        until_succeeds(line, || {
            let said = self.gluster(line).map_err(|error| error.to_string())?;
            if wanted(&said) { Ok(()) } else { Err(said) }
        });
    }

    fn gluster(&self, line: &str) -> Result<String, MissingError> {
        let mut gluster = self.nodes[0].command("gluster");
        gluster.arg("--mode=script").args(line.split_whitespace()).stdin(Stdio::null());
        run(&mut gluster, PACKAGE)
    }

    fn source(&self, node: usize) -> PathBuf {
        self.nodes[node].folder.join("source")
    }

    fn memory_of(&self, node: usize) -> PathBuf {
        self.memory.path().join(node.to_string())
    }

    fn brick(&self, node: usize) -> String {
        format!("{}:{}/brick", address(node), self.nodes[node].mountpoint().display())
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

fn address(node: usize) -> String {
    format!("10.7.0.{}", node + 1)
}

/// The program of bricks, which goes by the names of other services too.
fn gluster_program() -> PathBuf {
    fs::canonicalize("/usr/sbin/glusterfsd").unwrap_or_else(|_| panic!("apt-get install {PACKAGE}"))
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
