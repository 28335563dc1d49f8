//! A mount under measurement: `tidegate mount`, or the bare server.

use super::{end, pause, program};
use crate::medium::MemoryPath;
use crate::programs::{built, said};
use anyhow::Context;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What a mount may take to appear.
const PATIENCE: Duration = Duration::from_secs(20);

/// A mount and its server. It is unmounted when this is dropped.
pub struct Mounted {
    server: Child,
    mountpoint: PathBuf,
    /// The pool; the bare server has none.
    pool: Option<MemoryPath>,
}

impl Mounted {
    /// Mounts `source`, which is created, with a new pool of `pool_mib` MiB in memory, and with so
    /// many MiB of DRAM for unsynced writes if that is said.
    pub fn service(source: &Path, mountpoint: &Path, pool_mib: u32, dram_mib: Option<u32>) -> anyhow::Result<Mounted> {
        std::fs::create_dir_all(source)?;
        let pool = MemoryPath::new();
        let mut command = Command::new(program()?);
        command.args(["mount", "--pool-size", &format!("{pool_mib}M")]);
        if let Some(mib) = dram_mib {
            command.args(["--dram", &format!("{mib}M")]);
        }
        let server = started(mount_command(command, source, mountpoint, pool.as_path()), mountpoint)?;
        Ok(Mounted { server, mountpoint: mountpoint.to_owned(), pool: Some(pool) })
    }

    /// Kills the supervisor and the server.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        let server = self.server_pid();
        self.server.kill()?;
        self.server.wait()?;
        // Without a server, the supervisor was all there was.
        if let Ok(server) = server {
            kill_process(server, Signal::KILL)?;
        }
        Ok(())
    }

    /// Mounts `source` once more, with the same pool, after [`Mounted::kill`].
    pub fn mount_again(&mut self, source: &Path) -> anyhow::Result<()> {
        let mut command = Command::new(program()?);
        command.arg("mount");
        // The dead mount has no device number of its own that could be told.
        unmount(&self.mountpoint, UnmountFlags::DETACH)?;
        let command = mount_command(command, source, &self.mountpoint, self.pool()?);
        self.server = started(command, &self.mountpoint)?;
        Ok(())
    }

    /// Memory of its own that the server keeps resident: heap, stacks and the like, not mapped
    /// files.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        let pid = self.server_pid()?.as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
        let kibibytes: u64 = line.trim_end_matches("kB").trim().parse()?;
        Ok(kibibytes << 10)
    }

    /// The process that answers requests: the supervisor's child.
    pub fn server_pid(&self) -> anyhow::Result<Pid> {
        let supervisor = self.server.id();
        let children = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"))?;
        let child = children.split_whitespace().next().context("the supervisor has no server")?;
        Pid::from_raw(child.parse()?).context("no process has this number")
    }

    /// Mounts the bare server, which answers at once from its memory.
    pub fn bare(mountpoint: &Path) -> anyhow::Result<Mounted> {
        let mut command = Command::new(bare_program()?);
        command.arg(mountpoint);
        Ok(Mounted { server: started(command, mountpoint)?, mountpoint: mountpoint.to_owned(), pool: None })
    }

    /// Has the service write everything back.
    pub fn flush(&self) -> anyhow::Result<()> {
        said(Command::new(program()?).args(["flush", "--wait"]).arg(self.pool()?)).map(drop)
    }

    /// A number of the service's status.
    pub fn status(&self, number: &str) -> anyhow::Result<u64> {
        number_in(&said(Command::new(program()?).arg("status").arg(self.pool()?).arg("--json"))?, number)
    }

    /// Where programs say their contexts.
    pub fn board(&self) -> anyhow::Result<String> {
        let status = said(Command::new(program()?).arg("status").arg(self.pool()?).arg("--json"))?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        Ok(status["contexts"].as_str().with_context(|| format!("no contexts in {status}"))?.to_owned())
    }

    /// The pool.
    pub fn pool(&self) -> anyhow::Result<&Path> {
        Ok(self.pool.as_ref().context("the bare server has no pool")?.as_path())
    }
}

/// A number of what `tidegate status --json` said.
pub fn number_in(status: &str, number: &str) -> anyhow::Result<u64> {
    let status: serde_json::Value = serde_json::from_str(status)?;
    status[number].as_u64().with_context(|| format!("no {number} in {status}"))
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.pool.is_none()
            && let Ok(bare) = bare_program()
        {
            // It ends with its mount. If this fails, it is ended below.
            let _ = Command::new(bare).arg(&self.mountpoint).arg("--unmount").status();
        }
        // The service writes everything back and unmounts when it is asked to end.
        end(&mut self.server);
    }
}

/// The rest of the command line of a mount whose pool is ordinary memory.
fn mount_command(mut command: Command, source: &Path, mountpoint: &Path, pool: &Path) -> Command {
    command.args(["--try", "--pool"]).arg(pool).arg(source).arg(mountpoint);
    command
}

/// Starts a server, and waits until it has mounted.
fn started(mut command: Command, mountpoint: &Path) -> anyhow::Result<Child> {
    let before = std::fs::metadata(mountpoint)?.dev();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let deadline = Instant::now() + PATIENCE;
    while std::fs::metadata(mountpoint)?.dev() == before {
        if let Some(status) = server.try_wait()? {
            anyhow::bail!("{command:?} ended before it mounted: {status}");
        }
        if Instant::now() >= deadline {
            end(&mut server);
            anyhow::bail!("{command:?} does not mount");
        }
        pause();
    }
    Ok(server)
}

/// The path of the bare server, see [`built`].
fn bare_program() -> anyhow::Result<&'static Path> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || built(&["--package", "tidegate-bare-mount", "--bin", "bare-mount"], "bare-mount");
    let program = PROGRAM.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    program.as_deref().map_err(|error| anyhow::anyhow!(error.clone()))
}
