//! `fusermount3`, by which users other than root mount and unmount.
//!
//! It mounts, and sends the descriptor of the device over the socket that `_FUSE_COMMFD` names.
//! That socket is its standard input, so that no other child of this process gets it as well.

use crate::device::Device;
use crate::mount_error::{MountAt, MountError, Unmount};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = "fusermount3";

/// Mounts for this user.
pub(crate) fn mount(at: &MountAt, common_options: &str) -> Result<Device, MountError> {
    // fusermount3 opens the device with this user's rights, and would tell the reason in its words.
    Device::open().map_err(MountError::NoDevice)?;
    let failed = |errno: rustix::io::Errno| MountError::Fusermount { said: errno.to_string() };
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(failed)?;
    {
        // Their end is closed with the command, so that a message that does not come is noticed.
        let mut command = Command::new(PROGRAM);
        command.arg("-o").arg(options(common_options, &at.source)).arg("--").arg(&at.mountpoint);
        run(command.env("_FUSE_COMMFD", "0").stdin(theirs))?;
    }
    let received = receive(&ours).map_err(failed)?;
    received
        .map(Device::from_descriptor)
        .ok_or_else(|| MountError::Fusermount { said: "no descriptor came".to_owned() })
}

/// Unmounts what this user mounted.
pub(crate) fn unmount(mountpoint: &Path, when: Unmount) -> Result<(), MountError> {
    let mut command = Command::new(PROGRAM);
    command.arg("-u");
    if when == Unmount::Lazily {
        command.arg("-z");
    }
    let mountpoint = mountpoint.to_owned();
    match run(command.arg("--").arg(&mountpoint).stdin(Stdio::null())) {
        Err(MountError::Fusermount { said }) if said.contains("busy") => Err(MountError::Busy { mountpoint }),
        Err(MountError::Fusermount { said }) if said.contains("not found in") => {
            Err(MountError::NotMounted { mountpoint })
        }
        done => done,
    }
}

fn run(command: &mut Command) -> Result<(), MountError> {
    let Output { status, stderr, .. } = command.env("LC_ALL", "C").output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => MountError::NoFusermount,
        _ => MountError::Fusermount { said: error.to_string() },
    })?;
    if status.success() {
        return Ok(());
    }
    Err(MountError::Fusermount { said: String::from_utf8_lossy(&stderr).trim().to_owned() })
}

fn options(common: &str, source: &OsStr) -> OsString {
    let mut options = format!("{common},subtype=tidegate,fsname=").into_bytes();
    for byte in source.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            options.push(b'\\');
        }
        options.push(*byte);
    }
    OsString::from_vec(options)
}

/// The descriptor in the message that waits at `socket`.
fn receive(socket: &OwnedFd) -> Result<Option<OwnedFd>, rustix::io::Errno> {
    let (mut space, mut byte) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))], [0]);
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = rights.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(descriptors.and_then(|mut descriptors| descriptors.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_with_a_comma_stays_one_option() {
        let options = options("max_read=1", OsStr::new(r"/srv/a,b\c"));
        assert_eq!(options.to_string_lossy(), r"max_read=1,subtype=tidegate,fsname=/srv/a\,b\\c");
    }
}
