//! `/dev/fuse`: where the kernel's requests are read and replies are written.
//!
//! Any number of threads read from one descriptor; each request goes to one of them. The kernel
//! remembers for each *open file* of the device which requests were read through it: they stay
//! unanswered as long as any process has that open file, and end with an error when none has.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::IoSlice;
use tidegate_fuse::{DATA_BYTES_MAX, Notification, Reply, Unique};
use tidegate_media::{ALIGNMENT_BYTES, AlignedBytes, join_fuse_mount};

/// Where the device is.
pub(crate) const PATH: &str = "/dev/fuse";
/// Bytes of a request before the data of a write.
const WRITE_HEAD_LEN: usize = 80;
/// Where a request begins in its buffer, so that the data of a write begin at a page.
const START: usize = ALIGNMENT_BYTES - WRITE_HEAD_LEN;
/// Longest data of a request or a reply.
const DATA_BYTES: usize = DATA_BYTES_MAX as usize;

/// The device of one mount.
#[derive(Debug)]
pub struct Device {
    descriptor: OwnedFd,
}

/// The kernel refused to hand out requests, or to take a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Reading a request failed.
    #[error("reading a request from /dev/fuse failed: {0}")]
    Read(Errno),
    /// Writing a reply or a notification failed.
    #[error("writing to /dev/fuse failed: {0}")]
    Write(Errno),
    /// The memory with the replies failed.
    #[error("the memory with the replies failed: {0}")]
    Records(Errno),
}

impl DeviceError {
    pub(crate) fn of_records(error: std::io::Error) -> DeviceError {
        DeviceError::Records(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

/// What a read from the device gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received<'b> {
    /// A request.
    Request(&'b [u8]),
    /// The file system is unmounted, or its connection was aborted.
    End,
}

/// A thread's buffer for one request.
#[derive(Debug)]
pub(crate) struct RequestBuffer(AlignedBytes);

/// A thread's buffer for the data of one reply.
#[derive(Debug)]
pub(crate) struct ReplyBuffer(AlignedBytes);

impl RequestBuffer {
    pub(crate) fn new() -> RequestBuffer {
        RequestBuffer(AlignedBytes::zeroed(ALIGNMENT_BYTES + DATA_BYTES + ALIGNMENT_BYTES))
    }
}

impl ReplyBuffer {
    pub(crate) fn new() -> ReplyBuffer {
        ReplyBuffer(AlignedBytes::zeroed(DATA_BYTES))
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Device {
    /// Opens the device anew, for a mount to come.
    pub(crate) fn open() -> Result<Device, Errno> {
        let descriptor = rustix::fs::open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Device { descriptor })
    }

    /// Takes the device of a mount over from whoever mounted it.
    pub fn from_descriptor(descriptor: OwnedFd) -> Device {
        Device { descriptor }
    }

    /// Opens the device once more for the same mount. Requests that are read there end with an
    /// error when that open file is closed.
    pub(crate) fn cloned(&self) -> Result<Device, Errno> {
        let fresh = Device::open()?;
        join_fuse_mount(fresh.as_fd(), self.as_fd())?;
        Ok(fresh)
    }

    /// Waits for a request.
    pub(crate) fn receive<'b>(&self, buffer: &'b mut RequestBuffer) -> Result<Received<'b>, DeviceError> {
        let len = loop {
            match rustix::io::read(&self.descriptor, &mut buffer.0[START..]) {
                // The device never gives an empty request; a socket in its place ends like this.
                Ok(0) => return Ok(Received::End),
                Ok(len) => break len,
                // A signal; or a program ended before its request could be handed out.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::End),
                Err(errno) => return Err(DeviceError::Read(errno)),
            }
        };
        Ok(Received::Request(&buffer.0[START..START + len]))
    }

    /// Returns whether a request waits, or the file system is unmounted.
    pub(crate) fn is_readable(&self) -> Result<bool, DeviceError> {
        let mut polled = [PollFd::new(self, PollFlags::IN)];
        let now = Timespec::default();
        loop {
            match rustix::event::poll(&mut polled, Some(&now)) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(DeviceError::Read(errno)),
            }
        }
    }

    /// Answers a request.
    pub(crate) fn reply(&self, unique: Unique, mut reply: Reply<'_>) -> Result<(), DeviceError> {
        match reply.frame(unique).map(|frame| self.send(frame)) {
            // No one waits for it: the program ended, or the file system is unmounted.
            None | Some(Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED)) => Ok(()),
            Some(Err(errno)) => Err(DeviceError::Write(errno)),
        }
    }

    /// Sends a notification. Returns whether the kernel knows what it is about.
    pub fn notify(&self, notification: &Notification<'_>) -> Result<bool, DeviceError> {
        match self.send(notification.frame()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(DeviceError::Write(errno)),
        }
    }

    fn send(&self, [head, data]: [&[u8]; 2]) -> Result<(), Errno> {
        let parts = [IoSlice::new(head), IoSlice::new(data)];
        let parts = if data.is_empty() { &parts[..1] } else { &parts };
        loop {
            match rustix::io::writev(&self.descriptor, parts) {
                Err(Errno::INTR) => {}
                sent => return sent.map(drop),
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
