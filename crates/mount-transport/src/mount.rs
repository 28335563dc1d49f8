//! Mounting and unmounting.
//!
//! Root mounts by `mount(2)`, for all users: the kernel checks permissions by the files' owners and
//! modes. Other users mount by `fusermount3`, which is set-user-ID root, for themselves alone.

use crate::dead::{BelowDead, dead_at, leave_one, remove_dead, take_topmost_away};
use crate::device::{Device, Received, RequestBuffer};
use crate::fusermount;
use crate::mount_error::{KIND, MountAt, MountError, Unmount};
use crate::utab;
use rustix::fd::AsRawFd;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};
use std::ffi::{CStr, CString};
use std::path::Path;
use tidegate_fuse::{Agreement, DATA_BYTES_MAX, Features, Operation, Request, Session};
use tidegate_host::files::mount_table::{self, MountedFileSystem};

/// A file system that was just mounted. The kernel waits for its first answers.
#[derive(Debug)]
pub struct MountedDevice {
    /// Where requests come from.
    pub device: Device,
    /// What the kernel agreed on.
    pub session: Session,
}

/// Mounts, and agrees with the kernel on a session. `wanted` are the features that are used where
/// the kernel has them. A dead mount of ours that is there is replaced.
pub fn mount(at: &MountAt, wanted: Features) -> Result<MountedDevice, MountError> {
    let replaces = dead_at(&at.mountpoint).is_some();
    if !replaces {
        check_mountpoint(at)?;
    }
    let device = mount_raw(at)?;
    let session = agree(&device, wanted).inspect_err(|_| {
        // What is half mounted would block every program that looks at it. In place of a dead mount
        // it becomes one, which covers what that covered.
        if !replaces {
            let _ = unmount(&at.mountpoint, Unmount::Lazily);
        }
    })?;
    Ok(MountedDevice { device, session })
}

/// Covers a mountpoint again from which a dead mount was taken away: with a dead one.
pub fn cover(at: &MountAt) -> Result<(), MountError> {
    mount_raw(at).map(drop)
}

fn mount_raw(at: &MountAt) -> Result<Device, MountError> {
    if is_root() {
        return mount_as_root(at);
    }
    // Whatever can refuse comes before a dead mount is taken away.
    Device::open().map_err(MountError::NoDevice)?;
    remove_dead(&at.mountpoint)?;
    fusermount::mount(at, &joined(&common_options()))
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

/// An option of a mount, and its value if it has one.
type MountOption = (&'static str, Option<String>);

/// Options that all ways to mount have in common.
fn common_options() -> Vec<MountOption> {
    vec![("default_permissions", None), ("max_read", Some(DATA_BYTES_MAX.to_string()))]
}

/// All options of a mount by root, whose device has this descriptor.
fn options_of_root(descriptor: i32) -> Vec<MountOption> {
    let own = [("fd", descriptor.to_string()), ("rootmode", "40000".to_owned())];
    let owner = ["user_id", "group_id"].map(|name| (name, Some("0".to_owned())));
    let own = own.map(|(name, value)| (name, Some(value))).into_iter().chain(owner);
    own.chain([("allow_other", None)]).chain(common_options()).collect()
}

/// Options as mount(8) and mount(2) take them.
fn joined(options: &[MountOption]) -> String {
    let word = |(name, value): &MountOption| match value {
        Some(value) => format!("{name}={value}"),
        None => (*name).to_owned(),
    };
    options.iter().map(word).collect::<Vec<_>>().join(",")
}

/// Whether it makes sense to go on: the mountpoint is one, and the device can be opened.
pub fn check(at: &MountAt) -> Result<(), MountError> {
    match dead_at(&at.mountpoint) {
        Some(mountpoint) => check_below(at, &mountpoint)?,
        None => check_mountpoint(at)?,
    }
    Device::open().map(drop).map_err(MountError::NoDevice)
}

/// Checks the directory below a dead mount as far as this user sees it.
fn check_below(at: &MountAt, mountpoint: &Path) -> Result<(), MountError> {
    let below = if at.covers_files { None } else { BelowDead::open(mountpoint).ok() };
    let entries = below.and_then(|below| rustix::fs::Dir::read_from(&below.directory).ok());
    let is_entry = |name: &CStr| name != c"." && name != c"..";
    match entries.into_iter().flatten().flatten().any(|entry| is_entry(entry.file_name())) {
        true => Err(MountError::NotEmpty { mountpoint: at.mountpoint.clone() }),
        false => Ok(()),
    }
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
    if dead_at(&at.mountpoint).is_some() && mount_below_dead(at, descriptor).is_ok() {
        return Ok(device);
    }
    let refused = |errno| MountError::Refused { mountpoint: at.mountpoint.clone(), errno };
    let options = CString::new(joined(&options_of_root(descriptor))).map_err(|_| refused(Errno::INVAL))?;
    remove_dead(&at.mountpoint)?;
    rustix::mount::mount(&at.source, &at.mountpoint, KIND, MountFlags::empty(), options.as_c_str()).map_err(
        |errno| match errno {
            Errno::NODEV => MountError::NoDevice(errno),
            errno => refused(errno),
        },
    )?;
    Ok(device)
}

/// Mounts below a dead mount, and then takes that away: at no moment does a program reach what both
/// cover. Linux has that since 6.5.
fn mount_below_dead(at: &MountAt, descriptor: i32) -> rustix::io::Result<()> {
    let (kind, subtype) = KIND.split_once('.').unwrap_or((KIND, ""));
    let fresh = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fresh, "source", &at.source)?;
    fsconfig_set_string(&fresh, "subtype", subtype)?;
    for (name, value) in options_of_root(descriptor) {
        match value {
            Some(value) => fsconfig_set_string(&fresh, name, value)?,
            None => fsconfig_set_flag(&fresh, name)?,
        }
    }
    fsconfig_create(&fresh)?;
    let mounted = fsmount(&fresh, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    utab::forget(&at.mountpoint);
    leave_one(&at.mountpoint)?;
    let below = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_BENEATH;
    move_mount(&mounted, "", CWD, &at.mountpoint, below)?;
    // Nothing but the dead mount is asked to go: the fresh one does not answer yet.
    take_topmost_away(&at.mountpoint)
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
