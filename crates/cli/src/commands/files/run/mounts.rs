//! The mounts of a run: begun before its program, ended after it.

use super::{RunConfig, no_root};
use crate::commands::files::background_mount::{Readiness, exit_of};
use crate::errors::{Exit, Failure, ProgramFailure};
use crate::grammar::ServeMount;
use crate::output;
use rustix::event::Timespec;
use rustix::fd::OwnedFd;
use rustix::fs::{Access, Mode, OFlags, access, open};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use tidegate_file_service::{self as file_service, ServiceFailure, Unmount};
use tidegate_host::files::users::{Use, users_of};
use tidegate_host::shell::word;

/// Between two looks whether programs still use a mount.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Which memory the pools of a run may be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Memory that keeps what is durable when the power fails.
    PersistentMemory,
    /// Any, for a trial.
    AnyMemory,
}

/// A mount that a run began.
struct OwnMount {
    root: PathBuf,
    pool: PathBuf,
    service: Child,
    /// Programs that had files or directories of the root open before the mount: they use the files
    /// below it, and do not keep it from ending.
    before: Vec<String>,
}

/// The mounts that a run begins and uses.
pub(super) struct RunMounts {
    said: ServeMount,
    own: Vec<OwnMount>,
    /// A descriptor of every root in its mount: nobody unmounts it meanwhile.
    roots: Vec<OwnedFd>,
    /// Where programs say their contexts to the mounts of the roots.
    pub(super) boards: Vec<PathBuf>,
}

impl RunMounts {
    /// None so far.
    pub(super) fn new(said: ServeMount) -> RunMounts {
        RunMounts { said, own: Vec::new(), roots: Vec::new(), boards: Vec::new() }
    }

    /// Mounts each of `roots`, the outer ones first, unless it is in a mount by then. Returns how a
    /// service ended that did not begin, which has told of its failure itself.
    pub(super) fn begin(
        &mut self,
        roots: &[PathBuf],
        asked: &RunConfig,
        allowed: Allowed,
    ) -> Result<Option<Exit>, Failure> {
        for root in roots {
            if file_service::mount_above(root).is_none_or(|above| file_service::dead_at(&above).is_some()) {
                let pool = self.pool_for(root, asked.pool.as_deref())?;
                if let Some(exit) = self.mount(root, pool, asked, allowed)? {
                    return Ok(Some(exit));
                }
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let held = open(root, flags, Mode::empty()).map_err(|errno| no_root(root, errno))?;
            self.roots.push(held);
            self.boards.extend(self.board_of(root).filter(|board| !self.boards.contains(board)));
        }
        Ok(None)
    }

    /// Where programs say their contexts to the mount that has `root`, if it has such a place.
    fn board_of(&self, root: &Path) -> Option<PathBuf> {
        let mountpoint = file_service::mount_above(root)?;
        let own = self.own.iter().find(|own| own.root == mountpoint).map(|own| own.pool.clone());
        let pool = own.unwrap_or_else(|| file_service::pool_of(&mountpoint));
        file_service::status_of(&pool).ok().flatten()?.contexts
    }

    /// The pool of a root that is to be mounted.
    fn pool_for(&self, root: &Path, named: Option<&Path>) -> Result<PathBuf, Failure> {
        if named.is_some() && !self.own.is_empty() {
            return Err(ProgramFailure::OnePool { root: root.to_owned() }.into());
        }
        let pool = named.map_or_else(|| file_service::default_pool(root), Path::to_owned);
        let pool = std::path::absolute(pool).map_err(Failure::system("finding the current directory"))?;
        let folder = pool.parent().and_then(|folder| folder.canonicalize().ok());
        if folder.is_some_and(|folder| folder.starts_with(root)) || pool.starts_with(root) {
            return Err(ProgramFailure::PoolInRoot { root: root.to_owned(), pool }.into());
        }
        Ok(pool)
    }

    fn mount(
        &mut self,
        root: &Path,
        pool: PathBuf,
        asked: &RunConfig,
        allowed: Allowed,
    ) -> Result<Option<Exit>, Failure> {
        // Before the pool is made and belongs to it. A dead mount says nothing of SOURCE.
        if file_service::dead_at(root).is_none() {
            access(root, Access::WRITE_OK).map_err(|errno| no_root(root, errno))?;
        }
        let before = users_of(root, Use::Any);
        let readiness = Readiness::expected()?;
        let mut service = Command::new("/proc/self/exe");
        service.args(self.said.json.then_some("--json")).args(std::iter::repeat_n("-v", self.said.verbose.into()));
        // A session of its own: signals of the terminal are the program's.
        service.args(["mount", "--background", "--pool"]).arg(&pool);
        service
            .args(asked.size.map(|size| format!("--pool-size={size}")))
            .args(asked.dram.map(|dram| format!("--dram={dram}")))
            .args(asked.pin_max.map(|most| format!("--pin-max={most}")))
            .args(asked.bypass.iter().map(|glob| format!("--bypass={glob}")))
            .args(asked.policy.map(|policy| format!("--policy={}", policy.name())))
            .args(asked.sandbox.map(|wish| format!("--sandbox={}", wish.name())))
            .args(asked.no_busy_poll.then_some("--no-busy-poll"))
            .args((allowed == Allowed::AnyMemory).then_some("--try"));
        service.arg("--").args([root, root]);
        service.env("NOTIFY_SOCKET", readiness.name()).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        let mut service = service.spawn().map_err(Failure::system("starting the service"))?;
        if let Some(status) = readiness.wait(&mut service)? {
            return Ok(Some(exit_of(status)));
        }
        if !before.is_empty() {
            let (root, before) = (root.display(), before.join(", "));
            tracing::warn!(
                "these programs had files or directories of {root} open before, and use the files below the mount until they enter {root} anew: {before}"
            );
        }
        self.own.push(OwnMount { root: root.to_owned(), pool, service, before });
        Ok(None)
    }

    /// What a process says that ends before its mounts do.
    pub(super) fn left_words(&self) -> String {
        let end = |mount: &OwnMount| format!("tidegate umount {}", word(&mount.root));
        let ends: Vec<_> = self.own.iter().map(end).collect();
        format!(
            "ended before all files were written back: the mounts that are left have them, and go on; end them: {}",
            ends.join("; ")
        )
    }

    /// Ends the mounts that this run began, the inner ones first: when no program uses them, and
    /// everything is written back. Returns what went wrong.
    pub(super) fn end(&mut self) -> Vec<Failure> {
        self.roots.clear();
        let tell = output::teller(self.said.json);
        std::mem::take(&mut self.own).into_iter().rev().filter_map(|mount| mount.end(tell).err()).collect()
    }
}

impl OwnMount {
    fn end(mut self, tell: output::Teller) -> Result<(), Failure> {
        let mut named = Vec::new();
        loop {
            if let Some(status) = self.ended()? {
                return self.judged(status);
            }
            if self.is_written_back(tell)? && self.is_unmounted(&mut named, tell)? {
                break;
            }
            // A service that ends is found out by the next look.
            let _ = rustix::event::poll(&mut [], Some(&LOOK_EVERY));
        }
        let status = self.service.wait().map_err(Failure::system("waiting for the service"))?;
        self.judged(status)
    }

    /// Has everything written back before the mount ends, so that nobody finds older files at its
    /// place. Files that their disk refuses keep the mount. False: no server answers now.
    fn is_written_back(&self, tell: output::Teller) -> Result<bool, Failure> {
        let flushed = file_service::flush(&self.pool, tell);
        if flushed.as_ref().is_err_and(ServiceFailure::is_refusal) {
            return Ok(flushed?);
        }
        Ok(flushed.unwrap_or(false))
    }

    /// Unmounts, unless programs use the mount: they are named.
    fn is_unmounted(&self, named: &mut Vec<String>, tell: output::Teller) -> Result<bool, Failure> {
        let ended = file_service::end_mount(&self.root, Unmount::Now, tell);
        if let Some(users) = ended.as_ref().err().and_then(ServiceFailure::users) {
            let mut users = users.to_vec();
            users.retain(|user| !self.before.contains(user) && !self.is_service(user));
            self.tell_of(&users, named, tell);
            return Ok(false);
        }
        // Somebody else may have unmounted it.
        if !ended.as_ref().is_err_and(ServiceFailure::is_not_mounted) {
            ended?;
        }
        Ok(true)
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.service.try_wait().map_err(Failure::system("waiting for the service"))
    }

    /// Whether a program that is named is the mount's own supervisor or server, which have SOURCE
    /// open at the same path.
    fn is_service(&self, user: &str) -> bool {
        let supervisor = self.service.id();
        let servers = std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
        let servers = servers.unwrap_or_default();
        let mut pids = servers.split_whitespace().map(str::to_owned).chain([supervisor.to_string()]);
        pids.any(|pid| user.contains(&format!(" ({pid}) ")))
    }

    /// Names programs that are waited for, once.
    fn tell_of(&self, users: &[String], named: &mut Vec<String>, tell: output::Teller) {
        if !users.is_empty() && users != named {
            let root = self.root.display();
            tell(&format!("programs use files of the mount at {root}, and are waited for: {}", users.join(", ")));
            users.clone_into(named);
        }
    }

    fn judged(self, status: ExitStatus) -> Result<(), Failure> {
        match status.success() {
            true => Ok(()),
            false => Err(ProgramFailure::MountDied { root: self.root, pool: self.pool, status }.into()),
        }
    }
}
