//! What mount(8) and umount(8) start for file systems of the type `fuse.tidegate`.
//!
//! `mount` returns when programs can use the mount, and leaves its service in the background.

use crate::commands::files::background_mount::{Readiness, exit_of};
use crate::commands::files::mount;
use crate::errors::{Exit, Failure, report};
use crate::grammar::{FstabMount, Pretence, Umount};
use rustix::fs::MemfdFlags;
use rustix::mount::mount_remount;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, ExitCode, Stdio};

/// Exit codes of mount(8).
const DONE: u8 = 0;
const USAGE: u8 = 1;
const FAILED: u8 = 32;

/// The exit code that mount(8) expects.
pub(crate) fn code_of(exit: Exit) -> ExitCode {
    ExitCode::from(match exit {
        Exit::Done => DONE,
        Exit::Usage => USAGE,
        _ => FAILED,
    })
}

/// Ends the service of a mount, as `umount` without a helper's words.
pub(crate) fn unmount(args: &Umount) -> ExitCode {
    let ended = mount::end(args, false).map(|_| Exit::Done);
    code_of(ended.unwrap_or_else(|failure| report(&failure, false)))
}

/// Mounts, and returns when programs can use the mount.
pub(crate) fn run(helper: &FstabMount) -> ExitCode {
    let mounted = match helper.pretence {
        Pretence::Fake => Ok(Exit::Done),
        Pretence::None => mount_in_background(helper),
    };
    code_of(mounted.unwrap_or_else(|failure| report(&failure, false)))
}

fn mount_in_background(helper: &FstabMount) -> Result<Exit, Failure> {
    let readiness = Readiness::expected()?;
    let log = Log::open().map_err(Failure::system("making memory for messages"))?;
    let absolute = |path| std::path::absolute(path).map_err(Failure::system("finding the current directory"));
    let mut service = Command::new("/proc/self/exe");
    service.args(["mount", "--background"]).args(&helper.options).arg("--");
    service.args([absolute(&helper.source)?, absolute(&helper.mountpoint)?]);
    service.env("NOTIFY_SOCKET", readiness.name()).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    let mut service = service.stderr(log.stderr()?).spawn().map_err(Failure::system("starting the service"))?;
    let ended = readiness.wait(&mut service);
    log.show();
    if let Some(status) = ended? {
        return Ok(exit_of(status));
    }
    if !helper.flags.is_empty() {
        let flags = helper.flags | rustix::mount::MountFlags::BIND;
        let restricted = mount_remount(&helper.mountpoint, flags, "").map_err(std::io::Error::from);
        restricted.map_err(Failure::system("restricting the mount as its options say"))?;
    }
    Ok(Exit::Done)
}

/// Where the service's messages go.
enum Log {
    /// The journal of systemd, which is this process' stderr too.
    Journal,
    /// Memory. Whoever reads this process' stderr waits for its end, and is not to wait for the
    /// mount's.
    Memory(File),
}

impl Log {
    fn open() -> std::io::Result<Log> {
        if std::env::var_os("JOURNAL_STREAM").is_some() {
            return Ok(Log::Journal);
        }
        let memory = rustix::fs::memfd_create("tidegate-mount-log", MemfdFlags::CLOEXEC)?;
        Ok(Log::Memory(memory.into()))
    }

    fn stderr(&self) -> Result<Stdio, Failure> {
        match self {
            Log::Journal => Ok(Stdio::inherit()),
            Log::Memory(memory) => Ok(memory.try_clone().map_err(Failure::system("copying a descriptor"))?.into()),
        }
    }

    /// Shows what the service has said so far.
    fn show(&self) {
        let Log::Memory(memory) = self else { return };
        let len = memory.metadata().map_or(0, |about| about.len());
        let mut said = vec![0; usize::try_from(len).unwrap_or(0)];
        // Read at an offset: the service writes on where the file's position is.
        if memory.read_exact_at(&mut said, 0).is_ok() && !said.is_empty() {
            crate::output::on_stderr(String::from_utf8_lossy(&said).trim_end());
        }
    }
}
