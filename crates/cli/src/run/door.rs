//! The supervisor's socket: a connection for each process that has something to ask, and a thread for each connection.

use super::keeper::{Keeper, Status};
use super::near::Near;
use crate::failure::Failure;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tidegate_media::MappedRegion;
use tidegate_preload_wire::{PACKET_BYTES_MAX, Range, Request, STATUS_BYTES_MAX};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// An open door; it is closed when this is dropped.
pub(super) struct Door {
    listener: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Listens at `path`, and answers by `keeper`.
pub(super) fn open(path: &Path, keeper: Arc<Keeper<MappedRegion>>) -> Result<Door, Failure> {
    let listener =
        listen(path).map_err(|error| Failure::System { doing: "listening to programs", error: error.into() })?;
    let listener = Arc::new(listener);
    let its = Arc::clone(&listener);
    let thread = thread::Builder::new().name("door".to_owned()).spawn(move || accept(&its, &keeper));
    Ok(Door { listener, thread: Some(thread.map_err(Failure::system("starting a thread"))?) })
}

impl Drop for Door {
    fn drop(&mut self) {
        // Ends the thread's wait.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(path: &Path) -> Result<OwnedFd, Errno> {
    let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&listener, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

fn accept(listener: &OwnedFd, keeper: &Arc<Keeper<MappedRegion>>) {
    loop {
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(connection) => {
                let keeper = Arc::clone(keeper);
                let serve = move || serve(&connection, &keeper);
                // A program that is not answered does without.
                if let Err(error) = thread::Builder::new().name("program".to_owned()).spawn(serve) {
                    tracing::warn!("no thread for a program: {error}");
                }
            }
            Err(Errno::INTR | Errno::CONNABORTED | Errno::MFILE | Errno::NFILE) => thread::yield_now(),
            Err(_) => return,
        }
    }
}

/// Answers one process until it ends, or replaces itself by another program.
fn serve(connection: &OwnedFd, keeper: &Keeper<MappedRegion>) {
    let holder = keeper.number();
    let mut packet = vec![0; PACKET_BYTES_MAX];
    let (mut ranges, mut near) = (Vec::new(), Near::default());
    while let Ok((len, passed)) = receive(connection, &mut packet) {
        near.follow(Request::core_of(&packet[..len]));
        if len == 0 || !answer(connection, keeper, holder, &packet[..len], passed, &mut ranges) {
            break;
        }
    }
    keeper.release(holder);
}

fn answer(
    connection: &OwnedFd,
    keeper: &Keeper<MappedRegion>,
    holder: u64,
    packet: &[u8],
    passed: Option<OwnedFd>,
    ranges: &mut Vec<Range>,
) -> bool {
    let Ok(request) = Request::read(packet, ranges) else { return false };
    if request == Request::Status {
        let status = serde_json::to_vec(&keeper.status()).expect("a status is a struct of strings and numbers");
        return send(connection, &status);
    }
    send(connection, &keeper.answer(holder, &request, passed).bytes())
}

fn send(connection: &OwnedFd, packet: &[u8]) -> bool {
    rustix::io::retry_on_intr(|| rustix::net::send(connection, packet, SendFlags::NOSIGNAL)).is_ok()
}

/// What the supervisor behind the socket at `path` is doing.
pub(super) fn ask_status(path: &Path) -> io::Result<Status> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let mut packet = [0; PACKET_BYTES_MAX];
    rustix::net::send(
        &socket,
        Request::Status.write(rustix::thread::sched_getcpu() as u64, &mut packet),
        SendFlags::NOSIGNAL,
    )?;
    let mut status = vec![0; STATUS_BYTES_MAX];
    let (got, _) = rustix::io::retry_on_intr(|| rustix::net::recv(&socket, &mut *status, RecvFlags::empty()))?;
    serde_json::from_slice(&status[..got]).map_err(io::Error::other)
}

fn receive(connection: &OwnedFd, packet: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let got = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(connection, &mut [IoSliceMut::new(packet)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let passed = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((got.bytes, passed))
}
