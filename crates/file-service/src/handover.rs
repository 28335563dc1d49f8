//! What a server gets when it starts: the device of a mount that stands, what the kernel agreed on,
//! and the memory in which replies survive.
//!
//! It comes in one message over a socket that is the server's standard input: two numbers, and two
//! descriptors.

use crate::device::Device;
use crate::reply_cache::ReplyCache;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use tidegate_fuse::Session;

/// Bytes of a session's two numbers.
const SESSION_BYTES: usize = 16;

/// What a server gets when it starts.
#[derive(Debug)]
pub struct Handover {
    /// Where requests come from.
    pub device: Device,
    /// What the kernel agreed on.
    pub session: Session,
    /// Where replies survive the server.
    pub replies: ReplyCache,
}

/// Standard input is not from a process that keeps a mount alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverError {
    /// No message came.
    #[error("no mount came over standard input: {0}")]
    Socket(Errno),
    /// Another message came.
    #[error("what came over standard input is no mount: another version of Tidegate may have started this server")]
    Strange,
}

/// The socket with the message in it, which becomes the server's standard input.
pub(crate) fn send(device: &Device, session: &Session, replies: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let descriptors = [device.as_fd(), replies];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&descriptors));
    let bytes = bytes_of(session);
    rustix::net::sendmsg(&ours, &[IoSlice::new(&bytes)], &mut rights, SendFlags::NOSIGNAL)?;
    Ok(theirs)
}

impl Handover {
    /// Receives the mount that this process is to serve.
    pub fn receive() -> Result<Handover, HandoverError> {
        Handover::receive_from(std::io::stdin().as_fd())
    }

    fn receive_from(socket: BorrowedFd<'_>) -> Result<Handover, HandoverError> {
        let (mut bytes, mut space) = ([0; SESSION_BYTES], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))]);
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut bytes)];
        let received = rustix::net::recvmsg(socket, parts, &mut rights, RecvFlags::CMSG_CLOEXEC);
        let received = received.map_err(HandoverError::Socket)?;
        let descriptors = rights.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let mut descriptors = descriptors.into_iter().flatten();
        let (Some(device), Some(replies)) = (descriptors.next(), descriptors.next()) else {
            return Err(HandoverError::Strange);
        };
        let session = session_of(&bytes).filter(|_| received.bytes == SESSION_BYTES);
        Ok(Handover {
            device: Device::from_descriptor(device),
            session: session.ok_or(HandoverError::Strange)?,
            replies: ReplyCache::open(replies).map_err(|_| HandoverError::Strange)?,
        })
    }
}

fn bytes_of(session: &Session) -> [u8; SESSION_BYTES] {
    let mut bytes = [0; SESSION_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(session.to_words()) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn session_of(bytes: &[u8; SESSION_BYTES]) -> Option<Session> {
    let (first, second) = bytes.split_first_chunk()?;
    Session::from_words([u64::from_le_bytes(*first), u64::from_le_bytes(second.try_into().ok()?)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_server_gets_what_was_sent() {
        // A device is no more than its descriptor here.
        let device = Device::from_descriptor(File::open("/dev/null").expect("a device").into());
        let session = Session::from_words([45, 1 << 39 | 7]).expect("a session");
        let memory = ReplyCache::memory().expect("memory");
        let theirs = send(&device, &session, memory.as_fd()).expect("sent");
        let handover = Handover::receive_from(theirs.as_fd()).expect("received");
        assert_eq!(handover.session, session);
        let name = |of: &Device| rustix::fs::fstat(of).map(|stat| stat.st_rdev);
        assert_eq!(name(&handover.device), name(&device));
        // The message is there once.
        assert!(Handover::receive_from(theirs.as_fd()).is_err());
    }

    #[test]
    fn other_input_is_told() {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        std::io::Write::write_all(&mut &ours, &[0; 16]).expect("sent");
        assert_eq!(Handover::receive_from(theirs.as_fd()).map(drop), Err(HandoverError::Strange));
        let file = File::open("/dev/null").expect("a device");
        let told = Handover::receive_from(file.as_fd()).map(drop);
        assert_eq!(told, Err(HandoverError::Socket(Errno::NOTSOCK)));
    }
}
