//! A mount from the command to its end: the process that keeps it alive.
//!
//! This process begins the mount, and then holds what every server gets: SOURCE and the pool with
//! their locks, the control socket, and the memory with nodes and handles. So neither another mount
//! nor a recovery comes between two servers.

use crate::lifecycle::control::ControlSocket;
use crate::lifecycle::failure::{ServiceFailure, system};
use crate::lifecycle::mounted::{BegunMount, MountRequest, begin};
use crate::lifecycle::older_kernel::log_lacks;
use crate::lifecycle::recovered::RecoveredFile;
use crate::lifecycle::served_mount::ServedMount;
use crate::lifecycle::unmounted::end_on_demand;
use rustix::fd::OwnedFd;
use std::cell::Cell;
use std::path::Path;
use std::process::{Command, ExitStatus};
use tidegate_fuse::Features;
use tidegate_host::files::mount_table;
use tidegate_host::rlimits::raise_descriptors;
use tidegate_media::LockedFile;
use tidegate_mount_transport::{
    BelowDead, EndSignals, KeepAliveError, MemoryLog, MountAt, MountEnd, MountEvent, MountedDevice, ServersTask,
    UtabLine, check, cover, dead_at, keep_alive, mount, refuse_without_proc,
};

/// What a program hears of its mount.
pub trait Listener: Sync {
    /// The mount begins with what recovery did.
    fn recovered(&self, files: &[RecoveredFile]);
    /// Programs can use the mount: for the first time a server answers requests.
    fn mounted(&self, pool: &Path);
    /// A server died, and the next one is started.
    fn server_died(&self, status: ExitStatus);
    /// A server that took the place of a dead one answers requests.
    fn restarted(&self, restarts: u64);
    /// The mount is unmounted, and its server writes everything back.
    fn ending(&self);
    /// How far write-back at the end has come, or what keeps the mount from ending.
    fn progress(&self, line: &str);
    /// A second signal came: the process ends, and the pool keeps what the files lack.
    fn interrupted(&self) -> !;
}

/// Descriptors without which a mount does not begin: its server has one for each file that programs
/// have open, and a few dozen of its own.
const DESCRIPTORS_MIN: u64 = 256;

/// Mounts as `request` says, and keeps the mount alive until it ends: by `umount`, SIGTERM or
/// SIGINT. `server` gives the command that calls [`serve_mount`](crate::serve_mount). Returns how
/// the last server ended, which has told of its failure itself.
pub fn run(
    request: MountRequest,
    listener: &impl Listener,
    server: impl Fn() -> Command,
) -> Result<ExitStatus, ServiceFailure> {
    refuse_without_proc("a mount")?;
    let request = request.resolved()?;
    let at = MountAt {
        mountpoint: request.mountpoint.clone(),
        source: request.source.clone().into(),
        covers_files: request.source == request.mountpoint,
    };
    check(&at)?;
    let limit = raise_descriptors();
    if limit < DESCRIPTORS_MIN {
        return Err(ServiceFailure::FewDescriptors { limit, least: DESCRIPTORS_MIN });
    }
    let was_covered = dead_at(&at.mountpoint).is_some();
    let (begun, recovered) = begin(&request).inspect_err(|_| cover_again(&at, was_covered))?;
    listener.recovered(&recovered);
    let pool = begun.pool.path.clone();
    let socket = match ControlSocket::open(&pool) {
        Ok(socket) => socket,
        Err(error) => {
            begun.end()?;
            return Err(error);
        }
    };
    // From here on, a signal ends the mount in good order.
    let signals = EndSignals::caught().map_err(system("catching signals"))?;
    let device = match mount(&at, Features::FILE_SERVER.with(Features::RESEND)) {
        Ok(device) => device,
        Err(error) => {
            // Nothing was written through the mount: SOURCE is as it was.
            begun.end()?;
            return Err(error.into());
        }
    };
    let _utab = UtabLine::add(at.source.as_os_str(), &at.mountpoint);
    log_lacks(&device.session);
    let served = served_mount(&request, &pool);
    let (task, _retained) = task_of(begun, &served, &socket)?;
    match kept_alive(device, (&task, &signals), (&served, listener), server) {
        Ok(MountEnd::Server(status)) => Ok(status),
        Ok(MountEnd::GaveUp(status)) => {
            Err(ServiceFailure::ServersDied { source_directory: request.source, pool, status })
        }
        Err(KeepAliveError { doing, errno }) => Err(ServiceFailure::System { doing, error: errno.into() }),
    }
}

/// Keeps the mount alive, and unmounts at a signal.
fn kept_alive(
    device: MountedDevice,
    (task, signals): (&ServersTask, &EndSignals),
    (mount, listener): (&ServedMount, &impl Listener),
    server: impl Fn() -> Command,
) -> Result<MountEnd, KeepAliveError> {
    // The first one that serves need not be the first one that was started.
    let has_served = Cell::new(false);
    std::thread::scope(|scope| {
        let tell = |event| match event {
            MountEvent::Serves { .. } if !has_served.replace(true) => listener.mounted(&mount.pool),
            MountEvent::Serves { restarts } => listener.restarted(restarts),
            MountEvent::Died { status } => listener.server_died(status),
            MountEvent::EndDemanded => drop(scope.spawn(|| end_on_demand(mount, &|line| listener.progress(line)))),
        };
        let kept = keep_alive(&device, (task, signals), server, tell);
        // If no server answers any more, an unmounting that is under way ends with the device.
        drop(device);
        kept
    })
}

/// What this process has for itself until the mount ends. The lock of the pool goes before that of
/// SOURCE, for which `umount` waits: whoever comes next finds both free.
type Retained = ([LockedFile; 2], Option<BelowDead>);

/// Covers SOURCE as before where a mount was refused that had to take a dead one away.
fn cover_again(at: &MountAt, was_covered: bool) {
    if was_covered
        && dead_at(&at.mountpoint).is_none()
        && let Err(error) = cover(at)
    {
        tracing::warn!("{} shows the files below the mount now: {error}", at.mountpoint.display());
    }
}

fn served_mount(request: &MountRequest, pool: &Path) -> ServedMount {
    ServedMount {
        source: request.source.clone(),
        mountpoint: request.mountpoint.clone(),
        number: mount_table::at(&request.mountpoint).map(|mounted| mounted.number),
        pool: pool.to_owned(),
        dram_bytes: request.dram_bytes,
        pinned_bytes_max: request.pinned_bytes_max,
        policy: request.policy.to_string(),
        bypass: request.bypass.globs().to_vec(),
        sandbox: request.sandbox.name().to_owned(),
        no_busy_poll: request.no_busy_poll,
    }
}

/// What every server gets, and what outlives the servers: locks, and SOURCE below a dead mount.
fn task_of(
    begun: BegunMount,
    served: &ServedMount,
    socket: &ControlSocket,
) -> Result<(ServersTask, Retained), ServiceFailure> {
    let BegunMount { source, lock, below, pool, hidden: _, files } = begun;
    drop(files);
    let in_use =
        || ServiceFailure::System { doing: "unmapping the pool", error: std::io::ErrorKind::ResourceBusy.into() };
    let pool = pool.into_locked_file().ok_or_else(in_use)?;
    let copy = |copied: std::io::Result<OwnedFd>| {
        copied.map_err(|error| ServiceFailure::System { doing: "copying a descriptor", error })
    };
    let memory = |name| MemoryLog::memory(name).map_err(system("making memory for nodes"));
    let descriptors = vec![
        copy(source.root().try_clone_to_owned())?,
        copy(pool.try_clone().map(OwnedFd::from))?,
        copy(socket.try_clone())?,
        memory("tidegate-nodes")?,
        memory("tidegate-handles")?,
    ];
    Ok((ServersTask { text: served.to_text(), descriptors }, ([pool, lock], below)))
}
