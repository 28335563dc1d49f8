//! `tidegate list`: the servers and runs of this user (for root, of every user), and what killed
//! ones left, with the command that removes or completes it.
//!
//! Nothing keeps a register. Servers and runs are found by what the kernel tells of processes
//! (`host`'s `processes`), and are asked; what was left is looked for where it lies by default:
//! caches in shared memory, pools in the state folder, folders of runs in the runtime folder.

use crate::errors::{Exit, Failure};
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_disk_cache::identify;
use tidegate_host::owned;
use tidegate_host::processes::{self, Process};
use tidegate_host::shell::word;
use tidegate_layout::kept::is_pool_disk;
use tidegate_media::Access;
use tidegate_run_log::{self as run, LeftFolder, LeftPool};
use tidegate_server::control::client;
use tidegate_server::stats::snapshot::{Snapshot, VolumeCounts};
use tidegate_server::volume::orphans::{self, Leftover};
use tidegate_server::volume::region::map_at_once;

/// What `list` answers.
#[derive(Serialize)]
struct Listing {
    servers: Vec<Server>,
    runs: Vec<UsedPool>,
    leftovers: Leftovers,
}

/// A server.
#[derive(Debug, Serialize)]
pub(crate) struct Server {
    /// Its process.
    pub(crate) pid: u32,
    user: String,
    /// The control socket on which it answered.
    #[serde(serialize_with = "tidegate_host::json_path::optional")]
    pub(crate) control: Option<PathBuf>,
    volumes: Vec<ListedVolume>,
    /// Files that it has locked: regions and disks.
    #[serde(serialize_with = "tidegate_host::json_path::each")]
    locked: Vec<PathBuf>,
}

/// A volume that is served.
#[derive(Debug, Serialize)]
struct ListedVolume {
    name: String,
    #[serde(with = "tidegate_host::json_path")]
    file: PathBuf,
    format: String,
    mode: String,
    uris: Vec<String>,
}

/// A pool that a run uses.
#[derive(Debug, Serialize)]
struct UsedPool {
    pid: u32,
    user: String,
    #[serde(with = "tidegate_host::json_path")]
    pool: PathBuf,
}

/// What killed servers and runs left.
#[derive(Serialize)]
struct Leftovers {
    caches: Vec<Leftover>,
    pools: Vec<LeftPool>,
    folders: Vec<LeftFolder>,
}

impl Leftovers {
    fn is_empty(&self) -> bool {
        self.caches.is_empty() && self.pools.is_empty() && self.folders.is_empty()
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> = self.servers.iter().flat_map(Server::lines).collect();
        let named = |name: &str, value: String| format!("{name:<10} {value}");
        lines.extend(self.runs.iter().map(|UsedPool { pid, user, pool }| {
            let ask = format!("tidegate status {}", word(pool));
            named("run", format!("process {pid} of {user} uses the pool {}; see {ask}", pool.display()))
        }));
        lines.extend(self.leftovers.caches.iter().map(|left| named("left", left.to_string())));
        lines.extend(self.leftovers.pools.iter().map(|left| named("left", left.to_string())));
        lines.extend(self.leftovers.folders.iter().map(|left| named("left", left.to_string())));
        if lines.is_empty() {
            let of = if owned::own() == 0 { "any user" } else { "this user" };
            lines.push(format!("no server or run of {of}, and nothing is left of one"));
        } else if self.leftovers.is_empty() {
            lines.push(named("left", "nothing".to_owned()));
        }
        f.write_str(&lines.join("\n"))
    }
}

impl Server {
    fn lines(&self) -> Vec<String> {
        let Server { pid, user, control, volumes, locked } = self;
        let control = match control {
            Some(control) => format!("asked on {}", control.display()),
            None => "which does not answer".to_owned(),
        };
        let server = format!("{:<10} process {pid} of {user}, {control}", "server");
        let volume = |ListedVolume { name, file, format, mode, uris }: &ListedVolume| {
            let (file, uris) = (file.display(), uris.join(" "));
            format!("  {:<8} {name} in {file}, {format}, {mode}, at {uris}", "volume")
        };
        let locked = locked.iter().filter(|_| volumes.is_empty());
        let locked = locked.map(|file| format!("  {:<8} {} is locked", "file", file.display()));
        std::iter::once(server).chain(volumes.iter().map(volume)).chain(locked).collect()
    }

    /// What `process` is, if it is a server.
    fn of(process: &Process) -> Option<Server> {
        if process.sockets.is_empty() || run::is_supervisor(process) {
            return None;
        }
        let answer = asked(process);
        let (control, snapshot) = answer.map_or((None, None), |(control, snapshot)| (Some(control), Some(snapshot)));
        let volumes = snapshot.map(|snapshot| snapshot.volumes).unwrap_or_default();
        Some(Server {
            pid: process.pid,
            user: owned::named(process.user),
            control,
            volumes: volumes.into_iter().map(ListedVolume::of).collect(),
            locked: process.locked.clone(),
        })
    }

    /// Whether it serves the volume in `pmem`.
    pub(crate) fn serves(&self, pmem: &Path) -> bool {
        self.volumes.iter().any(|volume| tidegate_host::default_paths::is_same_file(&volume.file, pmem))
    }
}

impl ListedVolume {
    fn of(volume: VolumeCounts) -> ListedVolume {
        let VolumeCounts { name, pmem: file, format, disk, read_only, uris, .. } = volume;
        let mode = match disk {
            Some(disk) if disk.attached => disk.mode,
            Some(_) => "detached".to_owned(),
            None if read_only => "read-only".to_owned(),
            None => "read-write".to_owned(),
        };
        ListedVolume { name, file, format, mode, uris }
    }
}

/// What the server `process` answers, and on which of its sockets.
fn asked(process: &Process) -> Option<(PathBuf, Snapshot)> {
    let is_control = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "control");
    let mut sockets: Vec<_> = process.sockets.iter().filter(is_control).collect();
    if sockets.is_empty() {
        sockets = process.sockets.iter().collect();
    }
    sockets.into_iter().find_map(|socket| Some((socket.clone(), client::ask_process(socket, process.pid).ok()?)))
}

/// Every server that this user may ask, each asked while the others are.
pub(crate) fn servers(processes: &[Process]) -> Vec<Server> {
    client::ask_each(processes, Server::of)
}

/// The pools that a run has locked.
fn used_pools(process: &Process) -> Vec<UsedPool> {
    let is_pool = |path: &&PathBuf| {
        let identity = map_at_once(path, Access::PrivateUnlocked).map(|region| identify(&region));
        identity.is_ok_and(|found| found.is_ok_and(|cache| cache.is_some_and(|cache| is_pool_disk(&cache.disk))))
    };
    let used = |pool: &PathBuf| UsedPool { pid: process.pid, user: owned::named(process.user), pool: pool.clone() };
    process.locked.iter().filter(is_pool).map(used).collect()
}

/// Runs `tidegate list`.
pub(crate) fn run(json: bool) -> Result<Exit, Failure> {
    let processes = processes::of_this_user();
    let runs = processes.iter().filter(|process| run::is_supervisor(process)).flat_map(used_pools).collect();
    let leftovers =
        Leftovers { caches: orphans::of_this_user(), pools: run::left_pools(), folders: run::left_folders() };
    output::give(&Listing { servers: servers(&processes), runs, leftovers }, json)?;
    Ok(Exit::Done)
}
