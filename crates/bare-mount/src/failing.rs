//! A file system that fails on demand: what a plan in a file says is refused, or waits.

use crate::files::Files;
use rustix::io::Errno;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use tidegate_fuse::{Attempt, Operation, Reply, Request};
use tidegate_mount_transport::Answers;

/// Files whose changes fail as a plan says, which is a file beside the mount. It is read at each
/// change: whoever writes it decides. Without it, nothing fails.
///
/// Each line is a kind of change and the number of an error: `write`, `sync`, `cut` or `reserve`,
/// and then for example `5` (`EIO`) or `28` (`ENOSPC`). A sync that fails has made nothing durable.
/// `sync wait` has syncs wait until the plan is another one.
#[derive(Debug)]
pub struct FailingFiles {
    files: Files,
    plan: PathBuf,
}

/// Time between two looks at the plan of a sync that waits.
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl FailingFiles {
    /// `files`, with the plan at this path.
    pub fn new(files: Files, plan: PathBuf) -> FailingFiles {
        FailingFiles { files, plan }
    }

    fn planned(&self, operation: &Operation<'_>) -> Option<Errno> {
        let kind = match operation {
            Operation::Write(_) | Operation::CopyFileRange(_) => "write",
            Operation::FSync { .. } | Operation::SyncFs => "sync",
            Operation::SetAttr(change) if change.size.is_some() => "cut",
            Operation::Fallocate { .. } => "reserve",
            _ => return None,
        };
        loop {
            let plan = fs::read_to_string(&self.plan).ok()?;
            let planned = plan.lines().find_map(|line| line.strip_prefix(kind))?.trim();
            if planned != "wait" {
                return planned.parse().ok().map(Errno::from_raw_os_error);
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }
}

impl Answers for FailingFiles {
    fn answer<'b>(&self, request: &Request<'_>, attempt: Attempt, buffer: &'b mut [u8]) -> Reply<'b> {
        match self.planned(&request.operation) {
            Some(errno) => Reply::error(errno.raw_os_error()),
            None => self.files.answer(request, attempt, buffer),
        }
    }

    fn witness(&self, request: &Request<'_>) -> u64 {
        self.files.witness(request)
    }

    fn begin_fresh(&self) {
        self.files.begin_fresh();
    }

    fn answered(&self) {
        self.files.answered();
    }
}
