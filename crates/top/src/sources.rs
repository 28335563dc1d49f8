//! The servers and mounts of this user, for root of every user: how they are found, and asked.

use std::error::Error;
use std::path::PathBuf;
use tidegate_file_service::{FoundMount, MountStatus, ServiceFailure, status_of};
use tidegate_host::owned;
use tidegate_host::processes::{self, Process};
use tidegate_server::control::client;
use tidegate_server::failure::ControlFailure;
use tidegate_server::stats::snapshot::Snapshot;

/// A process, or two, that answer for volumes or for a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchedSource {
    /// A server of volumes.
    Server(ServerProcess),
    /// The service of a mount.
    Mount(FoundMount),
}

/// A server of volumes, as the kernel tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerProcess {
    /// Its number.
    pub(crate) pid: u32,
    /// Its user.
    pub(crate) user: u32,
    /// The regions and disks that it has locked.
    pub(crate) locked: Vec<PathBuf>,
}

/// What a source says of itself.
#[derive(Clone, Debug)]
pub(crate) enum SourceAnswer {
    /// A server.
    Server(Box<Snapshot>),
    /// The service of a mount.
    Mount(Box<MountStatus>),
}

/// Why a source says nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskFailure {
    /// A server.
    #[error(transparent)]
    Server(ControlFailure),
    /// The service of a mount.
    #[error(transparent)]
    Mount(ServiceFailure),
}

impl AskFailure {
    /// The cause alone, if there is one: the row says which source it is.
    pub(crate) fn cause(&self) -> String {
        self.source().map_or_else(|| self.to_string(), ToString::to_string)
    }
}

/// Where sources are found and asked. Tests have one of their own.
pub(crate) trait Sources: Send + Sync + 'static {
    /// Every source that there is now.
    fn find(&self) -> Vec<WatchedSource>;

    /// What `source` says now, or why it says nothing. It is given up after a while. None: it has
    /// ended.
    fn ask(&self, source: &WatchedSource) -> Result<Option<SourceAnswer>, AskFailure>;
}

impl WatchedSource {
    /// Whether both are one, whatever they have locked by now.
    pub(crate) fn is(&self, other: &WatchedSource) -> bool {
        match (self, other) {
            (WatchedSource::Server(one), WatchedSource::Server(other)) => one.pid == other.pid,
            (WatchedSource::Mount(one), WatchedSource::Mount(other)) => one.pool == other.pool,
            _ => false,
        }
    }
}

/// Those of this machine.
pub(crate) struct ThisMachine;

impl Sources for ThisMachine {
    fn find(&self) -> Vec<WatchedSource> {
        let (mounts, others) = FoundMount::among(processes::of_this_user());
        let servers = others.into_iter().filter(|process| !process.sockets.is_empty());
        let servers = servers.map(|Process { pid, user, locked, .. }| ServerProcess { pid, user, locked });
        servers.map(WatchedSource::Server).chain(mounts.into_iter().map(WatchedSource::Mount)).collect()
    }

    fn ask(&self, source: &WatchedSource) -> Result<Option<SourceAnswer>, AskFailure> {
        match source {
            WatchedSource::Server(server) => {
                // Its sockets may have come since it was found.
                let Some(process) = Process::at(server.pid) else { return Ok(None) };
                match client::ask_found(&process) {
                    Ok((_, snapshot)) => Ok(Some(SourceAnswer::Server(Box::new(snapshot)))),
                    Err(None) => Ok(None),
                    Err(Some(_)) if has_ended(server.pid) => Ok(None),
                    Err(Some(failure)) => Err(AskFailure::Server(failure)),
                }
            }
            WatchedSource::Mount(mount) => {
                let status = status_of(&mount.pool).map_err(AskFailure::Mount)?;
                Ok(status.map(|status| SourceAnswer::Mount(Box::new(status))))
            }
        }
    }
}

/// Whether the process is gone, or at its end: its sockets are closed.
fn has_ended(pid: u32) -> bool {
    Process::at(pid).is_none_or(|process| process.sockets.is_empty())
}

/// What is said where nothing runs.
pub(crate) fn nothing_runs() -> String {
    let whose = if owned::own() == 0 { "any user" } else { "this user" };
    let next = "start one: tidegate serve, or tidegate mount SOURCE MOUNTPOINT";
    format!("no server or mount of {whose} runs; {next}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A source that was given up.
    pub(crate) fn silent() -> AskFailure {
        let error = std::io::Error::other("no answer within 10 s");
        AskFailure::Mount(ServiceFailure::NoAnswer { pool: "/pm/pool".into(), error })
    }

    #[test]
    fn a_failure_says_its_cause_alone() {
        let path = PathBuf::from("/pm/v.control");
        let of_server = |error| AskFailure::Server(ControlFailure::Silent { path: path.clone(), error });
        assert_eq!(of_server(std::io::Error::other("no answer within 10 s")).cause(), silent().cause());
        let refused = ServiceFailure::Refused { pool: "/pm/pool".into(), why: "no".to_owned() };
        assert!(AskFailure::Mount(refused).cause().contains("refused: no"));
    }

    #[test]
    fn a_source_is_known_again_by_its_process_or_its_pool() {
        let server = |pid, locked: &[&str]| {
            WatchedSource::Server(ServerProcess { pid, user: 0, locked: locked.iter().map(PathBuf::from).collect() })
        };
        let mount = |pid, pool: &str| WatchedSource::Mount(FoundMount { pid, user: 0, pool: pool.into() });
        assert!(server(7, &[]).is(&server(7, &["/a/v"])) && !server(7, &[]).is(&server(8, &[])));
        assert!(mount(7, "/a").is(&mount(8, "/a")) && !mount(7, "/a").is(&mount(7, "/b")));
        assert!(!mount(7, "/a").is(&server(7, &[])));
    }

    #[test]
    fn a_process_that_is_gone_has_ended() {
        let gone = WatchedSource::Server(ServerProcess { pid: u32::MAX, user: 0, locked: Vec::new() });
        assert!(ThisMachine.ask(&gone).expect("that is no failure").is_none());
        let gone = WatchedSource::Mount(FoundMount { pid: u32::MAX, user: 0, pool: "/nowhere/pool".into() });
        assert!(ThisMachine.ask(&gone).expect("that is no failure").is_none());
    }
}
