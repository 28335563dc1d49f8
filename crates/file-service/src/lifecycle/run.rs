//! A mount in the foreground: from the command to the end of the mount.

use crate::lifecycle::control::{ControlReply, ControlSocket, Question};
use crate::lifecycle::failure::ServiceFailure;
use crate::lifecycle::mounted::{MountRequest, Mounted, begin};
use crate::lifecycle::recovered::RecoveredFile;
use crate::lifecycle::status::MountStatus;
use crate::mount::{mount, unmount};
use crate::mount_error::{MountAt, MountError, Unmount};
use crate::pool::write_back::write_back_all;
use crate::source::users::{Use, users_of};
use crate::workers::{Serving, serve};
use rustix::fs::Mode;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use tidegate_fuse::Features;

/// Threads that answer requests: one that waits for a disk does not keep the others waiting.
const THREADS: NonZeroUsize = NonZeroUsize::new(4).expect("not 0");

/// What a program hears of its mount.
pub trait Listener: Sync {
    /// The mount begins with what recovery did.
    fn recovered(&self, files: &[RecoveredFile]);
    /// Programs can use the mount.
    fn mounted(&self, pool: &Path);
    /// How far write-back at the end has come, or what keeps the mount from ending.
    fn progress(&self, line: &str);
    /// A second signal came: the process ends, and the pool keeps what the files lack.
    fn interrupted(&self) -> !;
}

/// Mounts as `request` says, and answers requests until the mount ends: by `umount`, SIGTERM or
/// SIGINT. Then everything is written back.
pub fn run(request: MountRequest, listener: &impl Listener) -> Result<(), ServiceFailure> {
    let request = request.resolved()?;
    tidegate_host::rlimits::raise_descriptors();
    let (mounted, recovered) = begin(&request)?;
    listener.recovered(&recovered);
    let socket = ControlSocket::open(mounted.pool())?;
    serve_control(&socket, &mounted, &request)?;
    let at = MountAt {
        mountpoint: request.mountpoint.clone(),
        source: request.source.clone().into(),
        covers_files: request.source == request.mountpoint,
    };
    let device = match mount(&at, Features::FILE_SERVER) {
        Ok(device) => device,
        Err(error) => {
            // Nothing was written through the mount: SOURCE is as it was.
            mounted.end(|_| {})?;
            return Err(error.into());
        }
    };
    // Permissions are those that programs ask for: the kernel applied their umask.
    rustix::process::umask(Mode::empty());
    listener.mounted(mounted.pool());
    thread::scope(|scope| {
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(of_system("waiting for signals"))?;
        let handle = signals.handle();
        scope.spawn(move || end_by_signals(&mut signals, &request.mountpoint, listener));
        let serving = Serving { device: &device.device, session: device.session, replies: None, threads: THREADS };
        let served = serve(&serving, &*mounted.service);
        let ended = mounted.end(|line| listener.progress(line));
        handle.close();
        served?;
        ended
    })
}

fn of_system(doing: &'static str) -> impl FnOnce(std::io::Error) -> ServiceFailure {
    move |error| ServiceFailure::System { doing, error }
}

/// Ends the mount at the first signal, and the process at the second one.
fn end_by_signals(signals: &mut Signals, mountpoint: &Path, listener: &impl Listener) {
    for (number, _) in signals.forever().enumerate() {
        if number > 0 {
            listener.interrupted();
        }
        let ended = match unmount(mountpoint, Unmount::Now) {
            Err(MountError::Busy { .. }) => {
                let users = users_of(mountpoint, Use::Any).join(", ");
                listener.progress(&format!("programs use files of the mount, and are waited for: {users}"));
                unmount(mountpoint, Unmount::Lazily)
            }
            ended => ended,
        };
        if let Err(error) = ended {
            listener.progress(&error.to_string());
        }
    }
}

/// Answers the control socket on a thread of its own.
fn serve_control(socket: &ControlSocket, mounted: &Mounted, request: &MountRequest) -> Result<(), ServiceFailure> {
    let socket = socket.try_clone().map_err(of_system("cloning a socket"))?;
    let service = Arc::clone(&mounted.service);
    let pool: PathBuf = mounted.pool().to_owned();
    let (source, mountpoint) = (request.source.clone(), request.mountpoint.clone());
    let answer = move |question, say: &mut dyn FnMut(&ControlReply)| match question {
        Question::Status => {
            let shown = (&*source, &*mountpoint);
            say(&ControlReply::Status(Box::new(MountStatus::of(&service.open_files, &service.source, shown))));
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
