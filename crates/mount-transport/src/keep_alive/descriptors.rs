//! Descriptors that survive the server: of files without a name, which nothing else reaches.
//!
//! The server sends them over its standard input to the process that keeps the mount alive. What
//! was sent is safe from then on, even if the server is killed before the message is read. The next
//! server gets all of them with its [handover](crate::Handover).

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most descriptors of one message.
pub(crate) const DESCRIPTORS_MAX: usize = 32;
/// Bytes of a descriptor's number.
const KEY_BYTES: usize = 8;

/// What the server asks for, or says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    /// That this descriptor survives.
    Retain = 1,
    /// That it is closed.
    Close = 2,
    /// That it be known: this server answers requests now.
    Serve = 3,
}

/// The server's side.
#[derive(Clone, Debug)]
pub struct DescriptorStore {
    socket: Arc<OwnedFd>,
    /// Relaxed: only that numbers differ matters.
    next_key: Arc<AtomicU64>,
}

impl DescriptorStore {
    /// A store over `socket` that gives numbers from `next_key` on.
    pub fn new(socket: OwnedFd, next_key: u64) -> DescriptorStore {
        DescriptorStore { socket: Arc::new(socket), next_key: Arc::new(next_key.into()) }
    }

    /// Has a descriptor survive this process. Returns its number; None: it does not survive.
    pub fn retain(&self, descriptor: BorrowedFd<'_>) -> Option<u64> {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let (bytes, descriptors) = (message(Demand::Retain, key), [descriptor]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&descriptors));
        let sent = rustix::net::sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut rights, SendFlags::NOSIGNAL);
        sent.is_ok().then_some(key)
    }

    /// Says that this server answers requests now.
    pub fn serve(&self) {
        // If the other process is gone, no one asks.
        let _ = rustix::net::send(&self.socket, &message(Demand::Serve, 0), SendFlags::NOSIGNAL);
    }

    /// The socket, over which the other process says that the mount is to end.
    pub fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket)
    }

    /// Has a descriptor closed.
    pub fn close(&self, key: u64) {
        // If the other process is gone, so is the descriptor.
        let _ = rustix::net::send(&self.socket, &message(Demand::Close, key), SendFlags::NOSIGNAL);
    }
}

fn message(demand: Demand, key: u64) -> [u8; 1 + KEY_BYTES] {
    let mut bytes = [demand as u8; 1 + KEY_BYTES];
    bytes[1..].copy_from_slice(&key.to_le_bytes());
    bytes
}

/// The descriptors that a process holds for its servers.
#[derive(Debug, Default)]
pub(crate) struct HeldDescriptors(HashMap<u64, OwnedFd>);

/// What a server said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerState {
    /// It begins, or has said before that it serves.
    Unsaid,
    /// It answers requests from now on.
    Serves,
}

impl HeldDescriptors {
    /// Does what a server's messages ask for, until there are no more at the moment.
    pub(crate) fn receive_all(&mut self, socket: BorrowedFd<'_>) -> ServerState {
        let mut state = ServerState::Unsaid;
        while let Ok(Some(said)) = self.receive(socket) {
            if said == ServerState::Serves {
                state = said;
            }
        }
        state
    }

    /// None: the server's end is closed.
    fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Option<ServerState>, Errno> {
        let mut bytes = [0; 1 + KEY_BYTES];
        let (len, mut descriptors) = receive(socket, &mut bytes, RecvFlags::DONTWAIT)?;
        let Some((&demand, key)) = bytes.split_first().filter(|_| len == bytes.len()) else { return Ok(None) };
        let key = u64::from_le_bytes(key.try_into().unwrap_or_default());
        match descriptors.pop() {
            Some(descriptor) if demand == Demand::Retain as u8 => drop(self.0.insert(key, descriptor)),
            None if demand == Demand::Close as u8 => drop(self.0.remove(&key)),
            None if demand == Demand::Serve as u8 => return Ok(Some(ServerState::Serves)),
            // The limit on descriptors is reached: the file ends with its server.
            _ => tracing::warn!("a file without a name will not survive the server: too many are open"),
        }
        Ok(Some(ServerState::Unsaid))
    }

    /// Hands all of them over.
    pub(crate) fn send_all(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let all: Vec<_> = self.0.iter().collect();
        for some in all.chunks(DESCRIPTORS_MAX) {
            let keys: Vec<u8> = some.iter().flat_map(|(key, _)| key.to_le_bytes()).collect();
            let descriptors: Vec<_> = some.iter().map(|(_, descriptor)| descriptor.as_fd()).collect();
            send(socket, &keys, &descriptors)?;
        }
        Ok(())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Receives `count` descriptors that [`HeldDescriptors::send_all`] sent.
pub(crate) fn receive_held(socket: BorrowedFd<'_>, count: usize) -> Result<HashMap<u64, OwnedFd>, Errno> {
    let (mut held, mut sent) = (HashMap::new(), 0);
    while sent < count {
        let mut bytes = [0; KEY_BYTES * DESCRIPTORS_MAX];
        let (len, descriptors) = receive(socket, &mut bytes, RecvFlags::empty())?;
        let keys =
            bytes[..len].chunks_exact(KEY_BYTES).map(|key| u64::from_le_bytes(key.try_into().unwrap_or_default()));
        if len == 0 {
            return Err(Errno::PIPE);
        }
        sent += len / KEY_BYTES;
        held.extend(keys.zip(descriptors));
    }
    Ok(held)
}

/// Sends bytes and descriptors as one message.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(descriptors));
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut rights, SendFlags::NOSIGNAL).map(drop)
}

/// Receives a message: how many bytes it has, and its descriptors.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(bytes)];
    let received = rustix::net::recvmsg(socket, parts, &mut rights, flags | RecvFlags::CMSG_CLOEXEC)?;
    let of_message = |message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    };
    Ok((received.bytes, rights.drain().filter_map(of_message).flatten().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    fn sockets() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("sockets")
    }

    #[test]
    fn what_a_server_sent_is_held_after_its_death_and_handed_to_the_next_one() {
        let (ours, theirs) = sockets();
        let store = DescriptorStore::new(theirs, 1);
        let files: Vec<_> = (0..100).map(|_| tempfile::tempfile().expect("a file")).collect();
        let keys: Vec<_> = files.iter().filter_map(|file| store.retain(file.as_fd())).collect();
        assert_eq!(keys.len(), 100);
        let mut held = HeldDescriptors::default();
        assert_eq!(held.receive_all(ours.as_fd()), ServerState::Unsaid);
        store.close(keys[0]);
        store.serve();
        drop(store);
        assert_eq!(held.receive_all(ours.as_fd()), ServerState::Serves);
        assert_eq!(held.len(), 99);
        let (to, from) = sockets();
        held.send_all(to.as_fd()).expect("sent");
        let received = receive_held(from.as_fd(), 99).expect("received");
        let inode = |file: File| file.metadata().expect("readable").ino();
        for (key, file) in keys.into_iter().zip(files).skip(1) {
            let survived = received[&key].try_clone().expect("a second descriptor");
            assert_eq!(inode(survived.into()), inode(file));
        }
    }

    #[test]
    fn a_store_whose_keeper_is_gone_refuses_and_does_not_fail() {
        let (ours, theirs) = sockets();
        drop(ours);
        let store = DescriptorStore::new(theirs, 1);
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(store.retain(file.as_fd()), None);
        store.close(1);
    }
}
