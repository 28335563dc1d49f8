//! Mounting and unmounting.
//!
//! Root mounts by `mount(2)`, for all users: the kernel checks permissions by the files' owners and
//! modes. Other users mount by `fusermount3`, which is set-user-ID root, for themselves alone.

use crate::device::{Device, Received, RequestBuffer};
use crate::fusermount;
use crate::mount_error::{MountAt, MountError, Unmount};
use crate::utab;
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::path::Path;
use tidegate_fuse::{Agreement, DATA_BYTES_MAX, Features, Operation, Request, Session};
use tidegate_host::files::mount_table::{self, MountedFileSystem};

/// The kind of our file systems, as `/proc/mounts` shows it.
pub const KIND: &str = "fuse.tidegate";

/// A file system that was just mounted. The kernel waits for its first answers.
#[derive(Debug)]
pub struct MountedDevice {
    /// Where requests come from.
    pub device: Device,
    /// What the kernel agreed on.
    pub session: Session,
}

/// Mounts, and agrees with the kernel on a session. `wanted` are the features that are used where
/// the kernel has them.
pub fn mount(at: &MountAt, wanted: Features) -> Result<MountedDevice, MountError> {
    check_mountpoint(at)?;
    let device = if is_root() { mount_as_root(at)? } else { fusermount::mount(at, &common_options())? };
    let session = agree(&device, wanted).inspect_err(|_| {
        // What is half mounted would block every program that looks at it.
        let _ = unmount(&at.mountpoint, Unmount::Lazily);
    })?;
    Ok(MountedDevice { device, session })
}

/// Takes away a mount of ours at a directory whose service died, and which only answers errors.
pub fn remove_dead(mountpoint: &Path) -> Result<(), MountError> {
    let is_dead = |error: std::io::Error| Errno::from_io_error(&error) == Some(Errno::NOTCONN);
    // A dead mount has no path of its own any more, but its folder has.
    let (Some(folder), Some(name)) = (mountpoint.parent(), mountpoint.file_name()) else { return Ok(()) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(folder) = folder.canonicalize() else { return Ok(()) };
    let mountpoint = folder.join(name);
    while std::fs::metadata(&mountpoint).is_err_and(is_dead)
        && mount_table::at(&mountpoint).is_some_and(|mounted| mounted.kind == KIND)
    {
        unmount(&mountpoint, Unmount::Lazily)?;
    }
    Ok(())
}

/// Unmounts what is mounted at a directory.
pub fn unmount(mountpoint: &Path, when: Unmount) -> Result<(), MountError> {
    if !is_root() {
        return fusermount::unmount(mountpoint, when);
    }
    let flags = match when {
        Unmount::Now => UnmountFlags::NOFOLLOW,
        Unmount::Lazily => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    let mountpoint = mountpoint.to_owned();
    rustix::mount::unmount(&mountpoint, flags).inspect(|()| utab::forget(&mountpoint)).map_err(|errno| match errno {
        Errno::BUSY => MountError::Busy { mountpoint },
        Errno::INVAL | Errno::NOENT => MountError::NotMounted { mountpoint },
        errno => MountError::UnmountRefused { mountpoint, errno },
    })
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Options that both ways to mount have in common.
fn common_options() -> String {
    format!("default_permissions,max_read={DATA_BYTES_MAX}")
}

/// Whether it makes sense to go on: the mountpoint is one, and the device can be opened.
pub fn check(at: &MountAt) -> Result<(), MountError> {
    check_mountpoint(at)?;
    Device::open().map(drop).map_err(MountError::NoDevice)
}

fn check_mountpoint(at: &MountAt) -> Result<(), MountError> {
    let mountpoint = || at.mountpoint.clone();
    match std::fs::metadata(&at.mountpoint) {
        Ok(metadata) if !metadata.is_dir() => return Err(MountError::NotDirectory { mountpoint: mountpoint() }),
        Ok(_) => {}
        Err(error) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            return Err(match errno {
                Errno::NOTCONN => MountError::DeadMount { mountpoint: mountpoint() },
                errno => MountError::Unreadable { mountpoint: mountpoint(), errno },
            });
        }
    }
    if let Some(MountedFileSystem { kind, source_name, .. }) = mount_table::at(&at.mountpoint)
        && kind == KIND
    {
        let source_name = source_name.to_string_lossy().into_owned();
        return Err(MountError::AlreadyMounted { mountpoint: mountpoint(), source_name });
    }
    let unreadable = |errno| MountError::Unreadable { mountpoint: mountpoint(), errno };
    let mut entries = std::fs::read_dir(&at.mountpoint)
        .map_err(|error| unreadable(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    match entries.next() {
        Some(_) if !at.covers_files => Err(MountError::NotEmpty { mountpoint: mountpoint() }),
        _ => Ok(()),
    }
}

fn mount_as_root(at: &MountAt) -> Result<Device, MountError> {
    let device = Device::open().map_err(MountError::NoDevice)?;
    let descriptor = rustix::fd::AsFd::as_fd(&device).as_raw_fd();
    let common = common_options();
    let options = format!("fd={descriptor},rootmode=40000,user_id=0,group_id=0,allow_other,{common}");
    let refused = |errno| MountError::Refused { mountpoint: at.mountpoint.clone(), errno };
    let options = CString::new(options).map_err(|_| refused(Errno::INVAL))?;
    rustix::mount::mount(&at.source, &at.mountpoint, KIND, MountFlags::empty(), options.as_c_str()).map_err(
        |errno| match errno {
            Errno::NODEV => MountError::NoDevice(errno),
            errno => refused(errno),
        },
    )?;
    Ok(device)
}

/// Answers the kernel's first requests.
fn agree(device: &Device, wanted: Features) -> Result<Session, MountError> {
    let mut buffer = RequestBuffer::new();
    loop {
        let Received::Request(message) = device.receive(&mut buffer)? else {
            return Err(MountError::Protocol("it unmounted instead".to_owned()));
        };
        let request = Request::parse(message, Features::NONE);
        let request = request.map_err(|malformed| MountError::Protocol(malformed.to_string()))?;
        let Operation::Init(init) = request.operation else {
            return Err(MountError::Protocol(format!("{:?}", request.operation)));
        };
        match Session::agree(&init, wanted)? {
            Agreement::AskAgain(reply) => device.reply(request.header.unique, reply)?,
            Agreement::Reached(session, reply) => {
                device.reply(request.header.unique, reply)?;
                return Ok(session);
            }
        }
    }
}
