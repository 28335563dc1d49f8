//! A server of a mount: it takes over what the one before had, and answers requests.
//!
//! | what | how it survives a server that was killed |
//! | --- | --- |
//! | synced data, unsynced data | in the pool, and in DRAM that belongs to no process |
//! | nodes, handles | in logs in memory that the supervisor holds |
//! | files without a name | the supervisor has their descriptors |
//! | requests under way | the kernel sends them again; replies are in the reply cache |
//! | counters, times of use | not at all: they begin anew |

use crate::lifecycle::control::{ControlReply, ControlSocket, Question};
use crate::lifecycle::failure::{ServiceFailure, system};
use crate::lifecycle::mounted::end;
use crate::lifecycle::opening::{lock_source, record_of};
use crate::lifecycle::recovered::{FormerNames, recover};
use crate::lifecycle::run::Listener;
use crate::lifecycle::served_mount::ServedMount;
use crate::lifecycle::status::state_of;
use crate::lifecycle::unmounted::end_on_demand;
use crate::pool::hidden::Hidden;
use crate::pool::record;
use crate::pool::refills::Refills;
use crate::pool::volatile::accepted;
use crate::pool::write_back::{self, Limits, write_back_all};
use crate::pool::{Pool, known_contexts, read_admission};
use crate::service::explained::explained;
use crate::service::lending::Lending;
use crate::service::nodes::handles::{Handles, Opening};
use crate::service::nodes::inodes::{Inodes, KeptFiles};
use crate::service::nodes::open_files::{Access, OpenFiles};
use crate::service::{FileService, REQUEST_THREADS, Survival};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::Mode;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tidegate_file_cache::FileIdentity;
use tidegate_fuse::Handle;
use tidegate_host::files::mount_table;
use tidegate_host::shell::word;
use tidegate_host::threads::{OnDemand, Periodic};
use tidegate_media::{LockedFile, Region};
use tidegate_mount_transport::{
    DescriptorStore, Device, EndDemand, EndSignals, Handover, HandoverError, Serving, serve,
};
use tidegate_policy::placement::{Bypass, NamedPlacement};
use tidegate_sandbox::{Confinement, OF_MOUNT, SandboxWish, Served, confine, give_up_capabilities};
use tidegate_source_files::name_log::NameLog;
use tidegate_source_files::nameless::KeptFile;
use tidegate_source_files::recovery::{KnownFiles, SourceFiles};
use tidegate_source_files::{SourceDirectory, about};

/// Time between two looks at the leases.
const LEASES_EVERY: Duration = Duration::from_secs(1);

/// Between two times that what is known of contexts is saved: a server that dies loses no more.
const CONTEXTS_EVERY: Duration = Duration::from_secs(60);

/// Those that begin again and again, and the one that is rung for.
type BackgroundThreads = ([Periodic; 5], OnDemand);

/// A service that answers requests, and what it has for itself.
struct MountServer {
    mount: ServedMount,
    service: Arc<FileService>,
    pool: Pool,
    /// Those in the background.
    threads: BackgroundThreads,
    _lock: LockedFile,
}

/// Serves the mount that another process keeps alive and hands over by standard input, until the
/// mount ends. Then everything is written back.
pub fn serve_mount(listener: &impl Listener) -> Result<(), ServiceFailure> {
    let signals = EndSignals::caught().map_err(system("catching signals"))?;
    tidegate_host::rlimits::raise_descriptors();
    let Handover { device, session, replies, restarts, task, store, ends, survived } = Handover::receive()?;
    let [source, pool, socket, nodes, handles] =
        <[OwnedFd; 5]>::try_from(task.descriptors).map_err(|_| HandoverError::Strange)?;
    let mount: ServedMount = serde_json::from_slice(&task.text).map_err(|_| HandoverError::Strange)?;
    let sandbox: SandboxWish = mount.sandbox.parse().unwrap_or_default();
    give_up_capabilities(sandbox, OF_MOUNT)?;
    // Permissions are those that programs ask for, by their own umask.
    rustix::process::umask(Mode::empty());
    let survived = Survived::of((nodes, handles), (store.clone(), survived));
    let server = MountServer::begin((mount, &device), source, pool, survived)?;
    serve_control(ControlSocket::of(socket), &server, restarts)?;
    let confinement = confine(sandbox, Served::Mount)?;
    tracing::info!("sandbox {confinement}");
    thread::scope(|scope| {
        let (mount, demands) = (server.mount.clone(), ends.clone());
        scope.spawn(move || demands.for_each(&signals, |demand| heed(demand, (&mount, &confinement), listener)));
        let (threads, busy_poll) = (REQUEST_THREADS, !server.mount.no_busy_poll);
        let serving = Serving { device: &device, session, replies: Some(&replies), threads, busy_poll };
        store.serve();
        let served = serve(&serving, &*server.service);
        listener.ending();
        let ended = server.end(|line| listener.progress(line));
        ends.stop();
        served?;
        ended
    })
}

/// What earlier servers left.
struct Survived {
    nodes: OwnedFd,
    handles: OwnedFd,
    store: DescriptorStore,
    kept: KeptFiles,
}

impl Survived {
    fn of(
        (nodes, handles): (OwnedFd, OwnedFd),
        (store, survived): (DescriptorStore, HashMap<u64, OwnedFd>),
    ) -> Survived {
        let kept = |(key, descriptor)| (key, Arc::new(KeptFile::survived(descriptor, &store, key)));
        let kept = survived.into_iter().map(kept).collect();
        Survived { nodes, handles, store, kept }
    }
}

impl MountServer {
    fn begin(
        (mount, device): (ServedMount, &Device),
        source: OwnedFd,
        pool: OwnedFd,
        survived: Survived,
    ) -> Result<MountServer, ServiceFailure> {
        let source = Arc::new(SourceDirectory::of(source).map_err(system("looking at SOURCE"))?);
        let lock = lock_source(&source, &mount.source, LockedFile::in_common)?;
        let lending = Lending::new(device, (pool.as_fd(), &mount.pool), mount.pinned_bytes_max);
        let pool = Pool::of_file(mount.pool.clone(), pool.into())?;
        let no_record =
            || ServiceFailure::of_file("read", &record::path_of(&pool.path))(io::ErrorKind::NotFound.into());
        let record = record_of(&pool.path, &mount.source, &source)?.ok_or_else(no_record)?;
        let hidden = Hidden::resume((pool.path.clone(), pool.id()?.unwrap_or_default()), record);
        let root = source.identity(&about(source.root()).map_err(system("looking at SOURCE"))?);
        let Survived { nodes, handles, store, kept } = survived;
        let inodes = Inodes::replay(root, nodes, &kept).map_err(of_system("reading the nodes of the last server"))?;
        let (handles, openings) =
            Handles::replay(handles).map_err(of_system("reading the last server's open files"))?;
        let route = |identity| inodes.route(inodes.of_identity(identity)?);
        let known = KnownFiles { route: &route, kept: by_identity(&source, kept.values()) };
        note_nameless(&hidden, &known.kept).map_err(of_system("noting which open files have no name"))?;
        let recovery =
            recover(&pool, accepted(mount.dram_bytes)?, SourceFiles::known(&source, &known), FormerNames::Done)?;
        let names = NameLog::resume(&pool.region, &source);
        let names = Arc::new(names.map_err(|error| ServiceFailure::Names { pool: pool.path.clone(), error })?);
        if names.is_kept() {
            hidden.prepare_notes()?;
        }
        let (mut files, _) = recovery.into_open_files(&pool, Arc::clone(&names))?;
        let bypass = Bypass::new(mount.bypass.clone()).map_err(io::Error::other);
        files.bypass = bypass.map_err(of_system("reading which files bypass the pool"))?;
        let forgotten = known.kept.keys().copied().filter(|identity| inodes.of_identity(*identity).is_none());
        files.nobody_reaches(&forgotten.collect::<Vec<_>>());
        for (identity, kept) in known.kept {
            files.get(identity).inspect(|file| file.keep(kept));
        }
        let of_nodes = inodes.kept_keys();
        let spare = by_identity(&source, kept.values().filter(|kept| !of_nodes.contains(&kept.key())));
        drop(kept);
        files.pool.begin_by(policy_of(&mount));
        files.pool.take_over_contexts(&known_contexts::read(&pool.path));
        begin_board(&files, &pool, &mount);
        files.find_mapped();
        let files = Arc::new(files);
        let survival = Survival { store, spare: Mutex::new(spare) };
        let service = FileService::new((source, hidden), (inodes, Arc::clone(&files)), (handles, survival));
        openings.into_iter().for_each(|opening| reopen(&service, opening));
        let write_back = write_back::start(Arc::clone(&files), Limits::of(pool.region.len()));
        match lending {
            Ok(lending) => service.begin_lending(lending),
            Err(errno) => tracing::warn!("programs cannot write files without asking: {errno}"),
        }
        let service = Arc::new(service);
        let threads = threads_of(&service, &pool, write_back, names).map_err(of_system("starting a thread"))?;
        Ok(MountServer { mount, service, pool, threads, _lock: lock })
    }

    /// Ends the mount: no request comes any more.
    fn end(self, mut tell: impl FnMut(&str)) -> Result<(), ServiceFailure> {
        let MountServer { service, pool, threads, _lock, .. } = self;
        drop(threads);
        // A program that has ended lately has nothing mapped.
        service.lending.get().inspect(|lending| service.open_files.end_mappings(lending.pool()));
        known_contexts::write(&pool.path, &service.open_files.pool.known_contexts());
        end(&service.open_files, &service.source, &service.hidden, &pool, &mut tell)
    }
}

/// Notes open files without a name: the log of names is about to forget that they lost it, and they
/// may be written to still.
fn note_nameless(hidden: &Hidden, kept: &HashMap<FileIdentity, Arc<KeptFile>>) -> io::Result<()> {
    for (identity, kept) in kept {
        if about(kept)?.stx_nlink == 0 {
            hidden.note_gone(*identity)?;
        }
    }
    Ok(())
}

/// Starts the threads in the background, but for that of write-back, which is there.
fn threads_of(
    service: &Arc<FileService>,
    pool: &Pool,
    write_back: io::Result<Periodic>,
    names: Arc<NameLog>,
) -> io::Result<BackgroundThreads> {
    let of = || Arc::clone(service);
    let (named, lent, saved, path) = (of(), of(), of(), pool.path.clone());
    let (files, refilled) = (Arc::clone(&service.open_files), Arc::clone(&service.open_files));
    let (bell, mut refills) = (files.leases.refills.clone(), Refills::default());
    let refill = OnDemand::start("refills", bell, move || refills.look(&refilled));
    let threads = [
        read_admission::start(move || files.place_waiting())?,
        write_back?,
        Periodic::start("leases", LEASES_EVERY, move || lent.look_at_leases())?,
        names.start(move || named.sync_source())?,
        Periodic::start("contexts", CONTEXTS_EVERY, move || {
            known_contexts::write(&path, &saved.open_files.pool.known_contexts());
        })?,
    ];
    Ok((threads, refill?))
}

fn policy_of(mount: &ServedMount) -> NamedPlacement {
    mount.policy.parse().unwrap_or_default()
}

/// Has programs say their contexts. Without that a context is no more than thread and file.
fn begin_board(files: &OpenFiles, pool: &Pool, mount: &ServedMount) {
    let device = mount_table::at(&mount.mountpoint).and_then(|mounted| mounted.device());
    match device.map(|device| pool.board(device, policy_of(mount))) {
        // It is the first one.
        Some(Ok(board)) => drop(files.board.set(board)),
        Some(Err(error)) => tracing::warn!("programs cannot say their contexts: {error}"),
        None => tracing::warn!("programs cannot say their contexts: the mount is not in the list of mounts"),
    }
}

/// Files without a name, by their identities.
fn by_identity<'k>(
    source: &SourceDirectory,
    kept: impl Iterator<Item = &'k Arc<KeptFile>>,
) -> HashMap<FileIdentity, Arc<KeptFile>> {
    let identify = |kept: &Arc<KeptFile>| Some((source.identity(&about(&**kept).ok()?), Arc::clone(kept)));
    kept.filter_map(identify).collect()
}

/// Opens a node again that programs have open.
fn reopen(service: &FileService, (handle, Opening { node, access, .. }): (Handle, Opening)) {
    let again = if access == Access::Read { access } else { Access::WriteAgain };
    let opened = service.open_node(node, again).or_else(|errno| service.open_survived(node, access).ok_or(errno));
    let opened = opened.map(|file| {
        service.keep_open(node, &file);
        if service.handles.has_group(handle) {
            file.groups.was_lost(handle);
        }
        service.handles.reopened(handle, file);
    });
    if let Err(errno) = opened {
        tracing::warn!("a file that is open cannot be opened again: {errno}; its program gets EBADF");
    }
}

fn of_system(doing: &'static str) -> impl FnOnce(io::Error) -> ServiceFailure {
    move |error| ServiceFailure::System { doing, error }
}

/// Does what is demanded at a signal. Without its supervisor a server in a sandbox cannot unmount.
fn heed(demand: EndDemand, (mount, confinement): (&ServedMount, &Confinement), listener: &impl Listener) {
    match (demand, confinement) {
        (EndDemand::AtOnce, _) => listener.interrupted(),
        (EndDemand::OfOrphan, Confinement::Unwanted | Confinement::Impossible(_)) => {
            end_on_demand(mount, &|line| listener.progress(line))
        }
        (EndDemand::OfOrphan, Confinement::Entered) => {
            let umount = format!("tidegate umount {}", word(&mount.mountpoint));
            listener.progress(&format!("the process that keeps the mount alive is gone; end the mount by: {umount}"));
        }
    }
}

/// Answers the control socket on a thread of its own.
fn serve_control(socket: ControlSocket, server: &MountServer, restarts: u64) -> Result<(), ServiceFailure> {
    let service = Arc::clone(&server.service);
    let pool: PathBuf = server.pool.path.clone();
    let ServedMount { source, mountpoint, policy, .. } = server.mount.clone();
    let answer = move |question, say: &mut dyn FnMut(&ControlReply)| match question {
        Question::Status => {
            let status = state_of(&service, (&source, &mountpoint, &policy), restarts);
            say(&ControlReply::Status(Box::new(status)));
        }
        Question::Explain { path, from, until } => {
            let told = explained(&service, &path, from..until);
            say(&told.map_or_else(|error| ControlReply::Refused(error.to_string()), ControlReply::Explained));
        }
        Question::Flush => {
            let mut tell = |line: &str| say(&ControlReply::Progress(line.to_owned()));
            let flushed = write_back_all(&service.open_files, &service.source, &pool, &mut tell);
            say(&flushed.map_or_else(|error| ControlReply::Refused(error.to_string()), |()| ControlReply::Flushed));
        }
    };
    let thread = thread::Builder::new().name("control".to_owned()).spawn(move || socket.serve(answer));
    thread.map(drop).map_err(of_system("starting a thread"))
}
