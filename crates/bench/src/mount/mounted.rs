//! A mount under measurement: `tidegate mount`, or the bare server.

use crate::served::server::{end, pause, program};
use anyhow::Context;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tidegate_measure::medium::MemoryPath;
use tidegate_measure::programs::{built, said};

/// What a mount may take to appear.
const PATIENCE: Duration = Duration::from_secs(20);

/// A mount and its server. It is unmounted when this is dropped.
pub(crate) struct Mounted {
    server: Child,
    mountpoint: PathBuf,
    /// The pool; the bare server has none.
    pool: Option<MemoryPath>,
}

impl Mounted {
    /// Mounts `source`, which is created, with a new pool of `pool_mib` MiB in memory.
    pub(crate) fn service(source: &Path, mountpoint: &Path, pool_mib: u32) -> anyhow::Result<Mounted> {
        std::fs::create_dir_all(source)?;
        let pool = MemoryPath::new();
        let mut command = Command::new(program()?);
        // The pool is ordinary memory.
        command.args(["mount", "--try", "--pool-size", &format!("{pool_mib}M"), "--pool"]).arg(pool.as_path());
        command.arg(source).arg(mountpoint);
        Mounted::start(command, mountpoint, Some(pool))
    }

    /// Mounts the bare server, which answers at once from its memory.
    pub(crate) fn bare(mountpoint: &Path) -> anyhow::Result<Mounted> {
        let mut command = Command::new(bare_program()?);
        command.arg(mountpoint);
        Mounted::start(command, mountpoint, None)
    }

    fn start(mut command: Command, mountpoint: &Path, pool: Option<MemoryPath>) -> anyhow::Result<Mounted> {
        let before = std::fs::metadata(mountpoint)?.dev();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let mut mounted = Mounted { server, mountpoint: mountpoint.to_owned(), pool };
        let deadline = Instant::now() + PATIENCE;
        while std::fs::metadata(mountpoint)?.dev() == before {
            if let Some(status) = mounted.server.try_wait()? {
                anyhow::bail!("{command:?} ended before it mounted: {status}");
            }
            anyhow::ensure!(Instant::now() < deadline, "{command:?} does not mount");
            pause();
        }
        Ok(mounted)
    }

    /// Has the service write everything back.
    pub(super) fn flush(&self) -> anyhow::Result<()> {
        said(Command::new(program()?).args(["flush", "--wait"]).arg(self.pool()?)).map(drop)
    }

    /// A number of the service's status.
    pub(super) fn status(&self, number: &str) -> anyhow::Result<u64> {
        let status = said(Command::new(program()?).arg("status").arg(self.pool()?).arg("--json"))?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        status[number].as_u64().with_context(|| format!("no {number} in {status}"))
    }

    fn pool(&self) -> anyhow::Result<&Path> {
        Ok(self.pool.as_ref().context("the bare server has no pool")?.as_path())
    }
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

/// The path of the bare server, see [`built`].
fn bare_program() -> anyhow::Result<&'static Path> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || built(&["--package", "tidegate-bare-mount", "--bin", "bare-mount"], "bare-mount");
    let program = PROGRAM.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    program.as_deref().map_err(|error| anyhow::anyhow!(error.clone()))
}
