//! Processes, mounts and a network apart from those of this machine.

use crate::programs::said;
use crate::waiting::{comes_true, succeeds};
use anyhow::{Context, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Folders that each machine has for itself, and where its programs find them: what the services of
/// a cluster have where each machine has its own.
const OWN_FOLDERS: [(&str, &str); 3] = [("run", "/run"), ("state", "/var/lib/glusterd"), ("log", "/var/log/glusterfs")];

/// A machine. It ends with the value, and all of its processes with it.
pub(super) struct Machine {
    /// Holds the namespaces: they end with it.
    holder: Child,
    init: Pid,
    folder: PathBuf,
}

impl Machine {
    /// Starts one that has this new folder for itself.
    pub(super) fn start(folder: PathBuf) -> anyhow::Result<Machine> {
        for (name, _) in OWN_FOLDERS {
            fs::create_dir_all(folder.join(name)).with_context(|| format!("making {}", folder.display()))?;
        }
        // The first process of a machine has its orphans' ends to take note of.
        let holder = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child"])
            .args(["--mount-proc", "env", "--ignore-signal=CHLD", "sleep", "infinity"])
            .spawn()
            .context("starting setpriv and unshare of util-linux")?;
        let init = succeeds("the namespaces", || {
            let mut children = children_of(holder.id());
            children.find(|pid| name_of(*pid).is_some_and(|name| name == "sleep")).context("there are none")
        })?;
        let machine = Machine { holder, init, folder };
        machine.leave_mounts_of_others()?;
        machine.tool("ip link set lo up")?;
        for (own, usual) in OWN_FOLDERS {
            machine.tool(&format!("mount --bind {} {usual}", machine.folder.join(own).display()))?;
        }
        Ok(machine)
    }

    /// Takes away what was mounted meanwhile and has nothing to do with the machine: a file system
    /// that a test unmounts would live on here.
    fn leave_mounts_of_others(&self) -> anyhow::Result<()> {
        let mounts = fs::read_to_string(format!("/proc/{}/mounts", self.init()))?;
        // What lies in another mount first: it would go with that one.
        for mount in mounts.lines().rev() {
            let mut words = mount.split(' ');
            let (Some(source), Some(point), Some(kind)) = (words.next(), words.next(), words.next()) else { continue };
            let is_of_test = kind.starts_with("fuse") || source.starts_with("/dev/loop");
            if is_of_test && !self.folder.starts_with(point) {
                self.tool(&format!("umount --lazy --no-canonicalize {point}"))?;
            }
        }
        Ok(())
    }

    /// The machine's own folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The number by which programs of this machine name its namespaces.
    pub(super) fn init(&self) -> String {
        self.init.as_raw_nonzero().to_string()
    }

    /// A program that runs there.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(self.init());
        command.args(["--mount", "--net", "--uts", "--pid", "--"]).arg(program);
        command
    }

    /// Runs a line of words, which has to succeed.
    pub(super) fn tool(&self, line: &str) -> anyhow::Result<()> {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().context("a line has a program")?);
        said(command.args(words)).with_context(|| format!("running {line}")).map(drop)
    }

    /// Starts what goes on by itself, with the library `preloaded`.
    pub(super) fn daemon(&self, line: &str, preloaded: &Path) -> anyhow::Result<()> {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().context("a line has a program")?);
        command.args(words).env("LD_PRELOAD", preloaded).stdout(Stdio::null()).stdin(Stdio::null());
        let status = command.status().with_context(|| format!("running {line}"))?;
        ensure!(status.success(), "{line}: {status}");
        Ok(())
    }

    /// Starts a line of words that goes on until it is killed. It says what it has to say in `log`.
    pub(super) fn service(&self, line: &str, log: &Path) -> anyhow::Result<()> {
        let mut words = line.split_whitespace();
        let mut command = self.command(words.next().context("a line has a program")?);
        let said = File::create(log).with_context(|| format!("making {}", log.display()))?;
        command.args(words).current_dir(&self.folder).stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        let mut service = command.spawn().with_context(|| format!("running {line}"))?;
        // It ends with the machine, and its end has to be taken note of.
        std::thread::spawn(move || service.wait());
        Ok(())
    }

    /// Where a path of the machine is for programs of this machine: it may lie in a mount there.
    pub(super) fn path_here(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.init()));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Its processes but the first whose program has this path; of every program: None.
    fn processes(&self, program: Option<&Path>) -> Vec<Pid> {
        let namespace = |pid: Pid| fs::read_link(format!("/proc/{}/ns/pid", pid.as_raw_nonzero())).ok();
        let own = namespace(self.init);
        let runs = |pid: Pid, program: &Path| {
            fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).is_ok_and(|exe| exe == program)
        };
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        all.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .filter(|pid| *pid != self.init && own.is_some() && namespace(*pid) == own)
            .filter(|pid| program.is_none_or(|program| runs(*pid, program)))
            .collect()
    }

    /// Kills those processes, and what they start meanwhile. Returns whether all are gone.
    pub(super) fn kill(&self, program: Option<&Path>) -> bool {
        comes_true(|| {
            let alive = self.processes(program);
            alive.iter().for_each(|pid| _ = kill_process(*pid, Signal::KILL));
            alive.is_empty()
        })
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
