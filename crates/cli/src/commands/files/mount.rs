//! `tidegate mount` and `tidegate umount`: files whose syncs complete in persistent memory.

use crate::errors::{Exit, Failure};
use crate::grammar::{Mount, Umount};
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_file_service::{self as file_service, FormerPool, Listener, MountRequest, RecoveredFile, Unmount};
use tidegate_host::columns::line;

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

/// Tells of a mount in the foreground.
struct Teller {
    json: bool,
    mountpoint: PathBuf,
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
        // A closed stdout is no reason to end a mount.
        let _ = output::give(&Begun { did: "mounted", path: &self.mountpoint, pool }, self.json);
    }

    fn progress(&self, line: &str) {
        output::teller(self.json)(line);
    }

    fn interrupted(&self) -> ! {
        std::process::exit(Exit::Interrupted as i32)
    }
}

/// Runs `tidegate mount`, until the mount ends.
pub(crate) fn mount(args: &Mount, json: bool) -> Result<Exit, Failure> {
    let request = MountRequest {
        source: args.source.clone(),
        mountpoint: args.mountpoint.clone(),
        pool: args.pool.clone(),
        pool_bytes: args.pool_size,
        dram_bytes: args.dram,
        is_trial: args.is_trial,
        former_pool: if args.discard_former_pool { FormerPool::Discard } else { FormerPool::Retain },
    };
    file_service::run(request, &Teller { json, mountpoint: args.mountpoint.clone() })?;
    output::give(&MountReport { did: "unmounted", path: args.mountpoint.clone() }, json)?;
    Ok(Exit::Done)
}

/// Runs `tidegate umount`.
pub(crate) fn unmount(args: &Umount, json: bool) -> Result<Exit, Failure> {
    let when = if args.lazy { Unmount::Lazily } else { Unmount::Now };
    let source = file_service::end_mount(&args.mountpoint, when, output::teller(json))?;
    output::give(&MountReport { did: "written", path: source }, json)?;
    Ok(Exit::Done)
}
