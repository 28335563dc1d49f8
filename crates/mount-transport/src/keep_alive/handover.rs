//! What a server gets when it starts: the device of a mount that stands, what the kernel agreed on,
//! the memory in which replies survive, and what an earlier server had survive.
//!
//! It comes over a socket that is the server's standard input: one message with numbers, the task's
//! text and descriptors, and then the descriptors that [survived](DescriptorStore). The server
//! keeps the socket for those that are to survive it.

use crate::device::Device;
use crate::keep_alive::descriptors::{
    DESCRIPTORS_MAX, DescriptorStore, HeldDescriptors, receive, receive_held, send as send_message,
};
use crate::keep_alive::ending::EndDemands;
use crate::keep_alive::reply_cache::ReplyCache;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::collections::HashMap;
use tidegate_fuse::Session;

/// The numbers of the first message: two of the session, restarts, and descriptors to come.
const NUMBERS: usize = 4;
/// Their bytes.
const NUMBERS_BYTES: usize = NUMBERS * 8;
/// Longest text of a task.
const TASK_BYTES_MAX: usize = 32 << 10;

/// What a server gets when it starts.
#[derive(Debug)]
pub struct Handover {
    /// Where requests come from.
    pub device: Device,
    /// What the kernel agreed on.
    pub session: Session,
    /// Where replies survive the server.
    pub replies: ReplyCache,
    /// How many servers of this mount died.
    pub restarts: u64,
    /// What every server of the mount gets.
    pub task: ServersTask,
    /// Where descriptors survive the server.
    pub store: DescriptorStore,
    /// When the mount is to end.
    pub ends: EndDemands,
    /// Those that survived, by their numbers.
    pub survived: HashMap<u64, OwnedFd>,
}

/// What every server of a mount gets alike.
#[derive(Debug, Default)]
pub struct ServersTask {
    /// A text of the servers' own, at most 32 KiB.
    pub text: Vec<u8>,
    /// Descriptors of the servers' own, at most 30.
    pub descriptors: Vec<OwnedFd>,
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

/// What one server is to be sent.
pub(crate) struct Sending<'a> {
    pub(crate) device: &'a Device,
    pub(crate) session: &'a Session,
    pub(crate) replies: BorrowedFd<'a>,
    pub(crate) restarts: u64,
    pub(crate) task: &'a ServersTask,
    pub(crate) held: &'a HeldDescriptors,
}

/// Two ends of a socket: ours, and that which becomes the server's standard input.
pub fn sockets() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

impl Sending<'_> {
    /// Sends the handover. The server has to read meanwhile if many descriptors survived.
    pub(crate) fn send(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let [first, second] = self.session.to_words();
        let numbers = [first, second, self.restarts, self.held.len() as u64];
        let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend(&self.task.text);
        let own = self.task.descriptors.iter().map(AsFd::as_fd);
        let descriptors: Vec<_> = [self.device.as_fd(), self.replies].into_iter().chain(own).collect();
        if bytes.len() > NUMBERS_BYTES + TASK_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
            return Err(Errno::MSGSIZE);
        }
        send_message(socket, &bytes, &descriptors)?;
        self.held.send_all(socket)
    }
}

impl Handover {
    /// Receives the mount that this process is to serve.
    pub fn receive() -> Result<Handover, HandoverError> {
        Handover::receive_from(std::io::stdin().as_fd())
    }

    fn receive_from(socket: BorrowedFd<'_>) -> Result<Handover, HandoverError> {
        let mut bytes = vec![0; NUMBERS_BYTES + TASK_BYTES_MAX];
        let (len, descriptors) = receive(socket, &mut bytes, RecvFlags::empty()).map_err(HandoverError::Socket)?;
        bytes.truncate(len);
        let (numbers, text) = bytes.split_at_checked(NUMBERS_BYTES).ok_or(HandoverError::Strange)?;
        let mut numbers = numbers.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let mut next = || numbers.next().unwrap_or_default();
        let (session, restarts, count) = (Session::from_words([next(), next()]), next(), next());
        let mut descriptors = descriptors.into_iter();
        let (Some(session), Some(device), Some(replies)) = (session, descriptors.next(), descriptors.next()) else {
            return Err(HandoverError::Strange);
        };
        let count = usize::try_from(count).map_err(|_| HandoverError::Strange)?;
        let survived = receive_held(socket, count).map_err(HandoverError::Socket)?;
        let next_key = survived.keys().max().map_or(1, |key| key + 1);
        let own_end = socket.try_clone_to_owned();
        let own_end =
            own_end.map_err(|error| HandoverError::Socket(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let store = DescriptorStore::new(own_end, next_key);
        Ok(Handover {
            device: Device::from_descriptor(device),
            session,
            replies: ReplyCache::open(replies).map_err(|_| HandoverError::Strange)?,
            restarts,
            task: ServersTask { text: text.to_vec(), descriptors: descriptors.collect() },
            ends: EndDemands::new(store.socket()).map_err(HandoverError::Socket)?,
            store,
            survived,
        })
    }
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
        let (ours, theirs) = sockets().expect("sockets");
        let own = File::open("/dev/zero").expect("a device").into();
        let task = ServersTask { text: b"the task".to_vec(), descriptors: vec![own] };
        let held = HeldDescriptors::default();
        let sending = Sending {
            device: &device,
            session: &session,
            replies: memory.as_fd(),
            restarts: 3,
            task: &task,
            held: &held,
        };
        sending.send(ours.as_fd()).expect("sent");
        let handover = Handover::receive_from(theirs.as_fd()).expect("received");
        assert_eq!((handover.session, handover.restarts), (session, 3));
        let name = |of: BorrowedFd<'_>| rustix::fs::fstat(of).map(|stat| stat.st_rdev);
        assert_eq!(name(handover.device.as_fd()), name(device.as_fd()));
        assert_eq!((handover.task.text, handover.task.descriptors.len()), (b"the task".to_vec(), 1));
        assert_eq!(name(handover.task.descriptors[0].as_fd()), name(task.descriptors[0].as_fd()));
        // The message is there once.
        drop(ours);
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
