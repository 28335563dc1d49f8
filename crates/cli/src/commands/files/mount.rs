//! `tidegate mount` and `tidegate umount`: files whose syncs complete in persistent memory.

use crate::commands::files::mount_config;
use crate::errors::{Exit, Failure, UsageFailure};
use crate::grammar::{Mount, ServeMount, Umount};
use crate::output;
use serde::Serialize;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use tidegate_file_service::{self as file_service, FormerPool, Listener, MountRequest, RecoveredFile, Unmount};
use tidegate_host::columns::line;
use tidegate_host::sd_notify::SystemdNotify;
use tidegate_host::shell::word;
use tidegate_policy::placement::Bypass;

/// What `mount` and `umount` answer in the end.
#[derive(Serialize)]
struct MountReport {
    did: &'static str,
    #[serde(with = "tidegate_host::json_path")]
    path: PathBuf,
}

impl fmt::Display for MountReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {}", self.did, self.path.display())
    }
}

/// What `mount` answers when programs can use the mount.
#[derive(Serialize)]
struct Begun<'a> {
    did: &'static str,
    #[serde(with = "tidegate_host::json_path")]
    path: &'a Path,
    #[serde(with = "tidegate_host::json_path")]
    pool: &'a Path,
}

impl fmt::Display for Begun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, self.did, self.path.display())?;
        write!(f, "{:<10} {}", "pool", self.pool.display())
    }
}

/// Tells of a mount: whoever reads its output, and systemd.
struct Teller {
    json: bool,
    mountpoint: PathBuf,
    /// Known once programs can use the mount.
    pool: OnceLock<PathBuf>,
    systemd: SystemdNotify,
}

impl Teller {
    fn new(json: bool, mountpoint: &Path) -> Teller {
        let systemd = SystemdNotify::from_environment();
        Teller { json, mountpoint: mountpoint.to_owned(), pool: OnceLock::new(), systemd }
    }
}

impl Listener for Teller {
    fn recovered(&self, files: &[RecoveredFile]) {
        for RecoveredFile { file, bytes, .. } in files.iter().filter(|file| file.is_retained()) {
            tracing::warn!(
                "{} is missing or was changed by others: the pool retains {bytes} bytes of it",
                file.display()
            );
        }
    }

    fn mounted(&self, pool: &Path) {
        let _ = self.pool.set(pool.to_owned());
        // A closed stdout is no reason to end a mount.
        let _ = output::give(&Begun { did: "mounted", path: &self.mountpoint, pool }, self.json);
        self.systemd.ready(&format!("files are at {}, the pool is {}", self.mountpoint.display(), pool.display()));
    }

    fn server_died(&self, status: ExitStatus) {
        self.systemd.status(&format!("the server died ({status}), and the next one begins"));
    }

    fn restarted(&self, restarts: u64) {
        let mountpoint = self.mountpoint.display();
        self.systemd.status(&format!("files are at {mountpoint}; servers that died and were replaced: {restarts}"));
    }

    fn ending(&self) {
        self.systemd.stopping();
    }

    fn progress(&self, line: &str) {
        self.systemd.status(line);
        output::teller(self.json)(line);
    }

    fn interrupted(&self) -> ! {
        if let Some(pool) = self.pool.get() {
            let recover = format!("tidegate recover {}", word(pool));
            let left = "ended by a second signal: files below may lack what was synced, which the pool has";
            output::teller(self.json)(&format!("{left}; mount again, or: {recover}"));
        }
        std::process::exit(Exit::Interrupted as i32)
    }
}

/// Runs `tidegate mount`, until the mount ends.
pub(crate) fn mount(args: &Mount, said: ServeMount) -> Result<Exit, Failure> {
    if args.background {
        rustix::process::setsid().map_err(|errno| Failure::system("leaving the terminal")(errno.into()))?;
    }
    let is_awaited = args.background;
    let args = mount_config::completed(args)?;
    let mountpoint = args.mountpoint.clone().unwrap_or_default();
    let request = MountRequest {
        source: args.source.clone().unwrap_or_default(),
        mountpoint: mountpoint.clone(),
        pool: args.pool.clone(),
        pool_bytes: args.pool_size,
        dram_bytes: args.dram,
        pinned_bytes_max: args.pin_max,
        policy: args.policy.unwrap_or_default(),
        bypass: Bypass::new(args.bypass).map_err(UsageFailure::from)?,
        is_trial: args.is_trial,
        sandbox: args.sandbox.unwrap_or_default(),
        no_busy_poll: args.no_busy_poll,
        former_pool: if args.discard_former_pool { FormerPool::Discard } else { FormerPool::Retain },
    };
    let server = || {
        // The program itself, whatever is at its path by now.
        let mut server = Command::new("/proc/self/exe");
        server.args(said.words());
        if is_awaited {
            // Whoever started this process waits for the beginning only, and listens no more.
            server.env_remove("NOTIFY_SOCKET");
        }
        // A signal of the terminal comes to this process alone, which hands it on.
        server.process_group(0);
        server
    };
    let teller = Teller::new(said.json, &mountpoint);
    let ended = file_service::run(request, &teller, server)?;
    if !ended.success() {
        // The server has told why, or a signal ended it.
        let known = |code| Exit::of_code(u8::try_from(code).ok()?).map(|(exit, _)| exit);
        return Ok(ended.code().map_or(Exit::Interrupted, |code| known(code).unwrap_or(Exit::Unexpected)));
    }
    output::give(&MountReport { did: "unmounted", path: mountpoint }, said.json)?;
    Ok(Exit::Done)
}

/// Runs `tidegate mount-server`, which `tidegate mount` starts.
pub(crate) fn serve(json: bool) -> Result<Exit, Failure> {
    file_service::serve_mount(&Teller::new(json, Path::new("")))?;
    Ok(Exit::Done)
}

/// Ends a mount. Returns SOURCE, which has everything.
pub(crate) fn end(args: &Umount, json: bool) -> Result<PathBuf, Failure> {
    let when = if args.lazy { Unmount::Lazily } else { Unmount::Now };
    Ok(file_service::end_mount(&args.mountpoint, when, output::teller(json))?)
}

/// Runs `tidegate umount`.
pub(crate) fn unmount(args: &Umount, json: bool) -> Result<Exit, Failure> {
    let source = end(args, json)?;
    output::give(&MountReport { did: "written", path: source }, json)?;
    Ok(Exit::Done)
}
