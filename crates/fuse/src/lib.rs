//! The FUSE protocol between Linux and a file system in user space, as functions over bytes.
//!
//! | item | what it is |
//! | --- | --- |
//! | [`Session`] | what both sides agreed on in the kernel's first request |
//! | [`Request`], [`Operation`] | a message of the kernel; names and data stay in its buffer |
//! | [`Reply`], [`Directory`] | the bytes of an answer; data stay in the caller's buffer |
//! | [`Notification`] | a message that the server sends unasked |
//! | [`ReplyRecord`], [`Attempt`] | requests that a server which died did not answer |
//!
//! The crate opens no file and starts no thread, and allocates nothing for a request. It checks all
//! that comes from the kernel: a message whose lengths disagree is [`Malformed`], a number that it
//! does not know is [`Operation::Unknown`]. Kernels from Linux 5.4 (FUSE 7.31) on are accepted.

#![forbid(unsafe_code)]

mod attributes;
mod directory;
mod features;
mod groups;
mod ids;
mod notification;
mod operation;
mod parse;
mod reply;
mod request;
mod resend;
mod session;
mod wire;

pub use attributes::{Attributes, Entry, ExtendedAttributes, Statistics, Time};
pub use directory::{Directory, DirectoryEntry};
pub use features::Features;
pub use groups::{DroppedPages, GroupCommand};
pub use ids::{Handle, NodeId, Unique};
pub use notification::Notification;
pub use operation::{
    CopyFileRange, Forgets, Init, Ioctl, LockRequest, Operation, RangeLock, SetAttributes, SetTime, SetXattr, Write,
};
pub use reply::{OpenFlags, Reply};
pub use request::{Header, Malformed, Request};
pub use resend::{Attempt, Former, RECORD_BYTES, RecordStore, ReplyRecord};
pub use session::{Agreement, DATA_BYTES_MAX, Session, TooOld};
