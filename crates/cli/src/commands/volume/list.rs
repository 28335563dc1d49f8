//! `tidegate list`: the servers and mounts of this user (for root, of every user), and what
//! killed ones left, with the command that removes or completes it.
//!
//! Nothing keeps a register. Servers and mounts are found by what the kernel tells of processes
//! (`host`'s `processes`), and are asked; what was left is looked for where it lies by default:
//! caches and unsynced writes in shared memory, pools in the state folder. Block devices that wait
//! for their server are asked of the kernel's driver.

use crate::errors::{Exit, Failure, Report};
use crate::output;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use tidegate_file_service::{self as file_service, FoundMount, LeftMemory, LeftMountPool, MountStatus};
use tidegate_host::owned;
use tidegate_host::processes::{self, Process};
use tidegate_host::shell::{Ends, shown, word};
use tidegate_host::units::Human;
use tidegate_server::control::client;
use tidegate_server::fronts::ublk::{LeftDevice, left_devices};
use tidegate_server::stats::snapshot::VolumeCounts;
use tidegate_server::volume::orphans::{self, Leftover};

/// What `list` answers.
#[derive(Serialize)]
struct Listing {
    servers: Vec<Server>,
    mounts: Vec<Mounted>,
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
    /// Sides of its mirror that have every write.
    #[serde(skip_serializing_if = "Option::is_none")]
    mirror_sides: Option<u64>,
    uris: Vec<String>,
}

/// A mount.
#[derive(Debug, Serialize)]
struct Mounted {
    pid: u32,
    user: String,
    #[serde(with = "tidegate_host::json_path")]
    pool: PathBuf,
    #[serde(serialize_with = "tidegate_host::json_path::optional")]
    source: Option<PathBuf>,
    #[serde(serialize_with = "tidegate_host::json_path::optional")]
    mountpoint: Option<PathBuf>,
    /// Bytes that SOURCE lacks.
    waiting_bytes: Option<u64>,
    /// Why its service does not answer, which leaves only what its pool's record tells.
    silent: Option<String>,
}

/// What killed servers and mounts left.
#[derive(Serialize)]
struct Leftovers {
    caches: Vec<Leftover>,
    mount_pools: Vec<LeftMountPool>,
    memory: Vec<LeftMemory>,
    devices: Vec<LeftDevice>,
}

impl Leftovers {
    fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.caches.iter().map(ToString::to_string).collect();
        lines.extend(self.mount_pools.iter().map(|LeftMountPool { pool, source }| {
            let recover = format!("tidegate recover {}", word(pool));
            format!("the pool {} has data of {}; recover it: {recover}", pool.display(), source.display())
        }));
        lines.extend(self.memory.iter().map(|LeftMemory { file, bytes }| {
            let (size, remove) = (Human(*bytes), format!("rm {}", word(file)));
            format!("{size} of unsynced writes of a mount; mount again, or if its pool is gone: {remove}")
        }));
        lines.extend(self.devices.iter().map(|LeftDevice { path, server_pid }| {
            let path = path.display();
            format!("{path}, whose requests wait: process {server_pid} served it; serve its volume again with --ublk")
        }));
        lines
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> = self.servers.iter().flat_map(Server::lines).collect();
        let named = |name: &str, value: String| format!("{name:<10} {value}");
        lines.extend(self.mounts.iter().map(Mounted::line));
        lines.extend(self.leftovers.lines().into_iter().map(|left| named("left", left)));
        if lines.is_empty() {
            let of = if owned::own() == 0 { "any user" } else { "this user" };
            lines.push(format!("no server or mount of {of}, and nothing is left of one"));
        } else if self.leftovers.is_empty() {
            lines.push(named("left", "nothing".to_owned()));
        }
        // A path begins no line of its own.
        let lines: Vec<String> = lines.iter().map(|line| shown(line, Ends::OfNothing)).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl Mounted {
    fn line(&self) -> String {
        let Mounted { pid, user, pool, source, mountpoint, waiting_bytes, silent } = self;
        let shown = |path: &Option<PathBuf>| path.as_ref().map_or("?".to_owned(), |path| path.display().to_string());
        let begin = format!("{:<10} process {pid} of {user}", "mount");
        if let Some(silent) = silent {
            let (source, pool) = (shown(source), pool.display());
            return format!("{begin} shows {source} with the pool {pool}, and does not answer: {silent}");
        }
        let waiting = Human(waiting_bytes.unwrap_or_default());
        let ask = format!("tidegate status {}", word(pool));
        format!("{begin} shows {} at {}, {waiting} to write back; see {ask}", shown(source), shown(mountpoint))
    }

    /// What the service of `mount` says, or why it says nothing. None: it has ended meanwhile.
    fn of(mount: &FoundMount) -> Option<Mounted> {
        let (answer, silent) = match file_service::status_of(&mount.pool) {
            Ok(status) => (Some(status?), None),
            Err(failure) => (None, Some(Report::from(&failure).why)),
        };
        let waiting_bytes = answer.as_ref().map(|status| status.dirty_bytes + status.out_of_sync_bytes);
        let (source, mountpoint) = match answer {
            Some(MountStatus { source, mountpoint, .. }) => (Some(source), Some(mountpoint)),
            None => (mount.recorded_source(), None),
        };
        let FoundMount { pid, user, pool } = mount.clone();
        Some(Mounted { pid, user: owned::named(user), pool, source, mountpoint, waiting_bytes, silent })
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
        let volume = |ListedVolume { name, file, format, mode, mirror_sides, uris }: &ListedVolume| {
            let (file, uris) = (file.display(), uris.join(" "));
            let mirror = match mirror_sides {
                Some(2) => ", mirrored",
                Some(_) => ", one side of a mirror alone",
                None => "",
            };
            format!("  {:<8} {name} in {file}, {format}{mirror}, {mode}, at {uris}", "volume")
        };
        let locked = locked.iter().filter(|_| volumes.is_empty());
        let locked = locked.map(|file| format!("  {:<8} {} is locked", "file", file.display()));
        std::iter::once(server).chain(volumes.iter().map(volume)).chain(locked).collect()
    }

    /// What `process` is, if it is a server.
    fn of(process: &Process) -> Option<Server> {
        if process.sockets.is_empty() {
            return None;
        }
        let answer = client::ask_found(process).ok();
        let (control, snapshot) = answer.unzip();
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
        let mode = volume.mode().to_owned();
        let mirror_sides = volume.reading("mirror_sides");
        let VolumeCounts { name, pmem: file, format, uris, .. } = volume;
        ListedVolume { name, file, format, mode, mirror_sides, uris }
    }
}

/// Every server that this user may ask, each asked while the others are.
pub(crate) fn servers(processes: &[Process]) -> Vec<Server> {
    client::ask_each(processes, Server::of)
}

/// Runs `tidegate list`.
pub(crate) fn run(json: bool) -> Result<Exit, Failure> {
    let (found, processes) = FoundMount::among(processes::of_this_user());
    let mounts = client::ask_each(&found, Mounted::of);
    let leftovers = Leftovers {
        caches: orphans::of_this_user(),
        mount_pools: file_service::left_mount_pools(),
        memory: file_service::left_memory(),
        devices: left_devices(),
    };
    output::give(&Listing { servers: servers(&processes), mounts, leftovers }, json)?;
    Ok(Exit::Done)
}
