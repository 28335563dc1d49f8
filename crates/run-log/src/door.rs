//! The supervisor's socket: a connection for each process that has something to ask, and a thread
//! for each connection.

use super::keeper::{Keeper, Status};
use super::near::Near;
use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tidegate_host::owned::UntrustedFile;
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
    let thread =
        thread::Builder::new().name("door".to_owned()).spawn(move || accept(&its, &keeper, in_thread(&keeper)));
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

/// Accepts until the listener is shut. Each client gets a thread; those that none can be had for
/// are answered here, in turn: a client that is not answered would end the run for all.
fn accept(listener: &OwnedFd, keeper: &Arc<Keeper<MappedRegion>>, spawn: impl Fn(Waiting) -> io::Result<()>) {
    let mut here: Vec<Client> = Vec::new();
    loop {
        let (knocked, ready) = if here.is_empty() { (true, Vec::new()) } else { wait(listener, &here) };
        let mut ready = ready.into_iter();
        here.retain_mut(|client| !ready.next().unwrap_or(false) || client.is_answered(keeper));
        match knocked.then(|| rustix::net::accept_with(listener, SocketFlags::CLOEXEC)) {
            Some(Ok(connection)) => {
                let waiting = Arc::new(Mutex::new(Some(Client::new(connection, keeper.number()))));
                if let Err(error) = spawn(Arc::clone(&waiting)) {
                    tracing::warn!("no thread for a program: {error}");
                    here.extend(taken(&waiting));
                }
            }
            None | Some(Err(Errno::INTR | Errno::CONNABORTED)) => {}
            Some(Err(Errno::MFILE | Errno::NFILE)) => thread::sleep(SHORT_OF_NUMBERS),
            Some(Err(_)) => break,
        }
    }
    here.iter().for_each(|client| keeper.release(client.holder));
}

/// How long the door stays shut while there are no descriptors for more clients.
const SHORT_OF_NUMBERS: Duration = Duration::from_millis(10);

/// A client, until somebody answers it.
type Waiting = Arc<Mutex<Option<Client>>>;

fn taken(waiting: &Waiting) -> Option<Client> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Answers in a thread of its own.
fn in_thread(keeper: &Arc<Keeper<MappedRegion>>) -> impl Fn(Waiting) -> io::Result<()> {
    let keeper = Arc::clone(keeper);
    move |waiting| {
        let keeper = Arc::clone(&keeper);
        let serve = move || taken(&waiting).into_iter().for_each(|client| serve(client, &keeper));
        thread::Builder::new().name("program".to_owned()).spawn(serve).map(drop)
    }
}

/// Waits until somebody knocks, or one of `clients` asks: whether anybody knocked, and which of
/// them asked.
fn wait(listener: &OwnedFd, clients: &[Client]) -> (bool, Vec<bool>) {
    let connections = clients.iter().map(|client| &client.connection);
    let mut watched: Vec<_> =
        std::iter::once(listener).chain(connections).map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    if rustix::event::poll(&mut watched, None).is_err() {
        return (false, Vec::new());
    }
    let mut asked = watched.iter().map(|socket| !socket.revents().is_empty());
    (asked.next().unwrap_or(false), asked.collect())
}

/// One process, until it ends or replaces itself by another program.
struct Client {
    connection: OwnedFd,
    holder: u64,
    packet: Vec<u8>,
    ranges: Vec<Range>,
}

impl Client {
    fn new(connection: OwnedFd, holder: u64) -> Client {
        Client { connection, holder, packet: vec![0; PACKET_BYTES_MAX], ranges: Vec::new() }
    }

    /// The next request, and what was passed with it. None: the process has ended.
    fn request(&mut self) -> Option<(usize, Option<OwnedFd>)> {
        receive(&self.connection, &mut self.packet).ok().filter(|(len, _)| *len > 0)
    }

    /// Answers a request of `len` bytes. False: it is none, or nobody is there any more.
    fn answer(&mut self, keeper: &Keeper<MappedRegion>, len: usize, passed: Option<OwnedFd>) -> bool {
        let Ok(request) = Request::read(&self.packet[..len], &mut self.ranges) else { return false };
        if request == Request::Status {
            let status = serde_json::to_vec(&keeper.status()).expect("a status is a struct of strings and numbers");
            return send(&self.connection, &status);
        }
        send(&self.connection, &keeper.answer(self.holder, &request, passed).bytes())
    }

    /// Answers the next request. False: there is none, and what the process held is released.
    fn is_answered(&mut self, keeper: &Keeper<MappedRegion>) -> bool {
        let answered = self.request().is_some_and(|(len, passed)| self.answer(keeper, len, passed));
        if !answered {
            keeper.release(self.holder);
        }
        answered
    }
}

/// Answers one process to the end, on its own core where it waits for that.
fn serve(mut client: Client, keeper: &Keeper<MappedRegion>) {
    let mut near = Near::default();
    while let Some((len, passed)) = client.request() {
        near.follow(Request::place_of(&client.packet[..len]));
        if !client.answer(keeper, len, passed) {
            break;
        }
    }
    keeper.release(client.holder);
}

fn send(connection: &OwnedFd, packet: &[u8]) -> bool {
    rustix::io::retry_on_intr(|| rustix::net::send(connection, packet, SendFlags::NOSIGNAL)).is_ok()
}

/// What the supervisor behind the socket at `path` is doing, which has to be a process of user
/// `owner`.
pub(super) fn ask_status(path: &Path, owner: u32) -> io::Result<Status> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let peer = rustix::net::sockopt::socket_peercred(&socket)?.uid.as_raw();
    if peer != owner {
        return Err(UntrustedFile::Owner(peer).into());
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deny::Denied;
    use crate::journal::Journal;
    use crate::keeper::Scope;
    use crate::kept::Kept;
    use crate::table::Table;
    use tidegate_media::Domain;
    use tidegate_preload_wire::Answer;

    fn keeper(folder: &Path) -> Arc<Keeper<MappedRegion>> {
        let scope = Scope { roots: Vec::new(), denied: Denied::default() };
        let region = Arc::new(MappedRegion::anonymous(16 << 20).expect("memory"));
        let kept = Kept::fresh(Path::new("pool"), region).expect("a pool");
        let table = Table::create(&folder.join("table")).expect("a table");
        let journal = Journal::begin(&folder.join("pool.holds"), Domain::Volatile).expect("a journal");
        Arc::new(Keeper::new(scope, kept, table, journal))
    }

    fn connected(path: &Path) -> OwnedFd {
        let family = AddressFamily::UNIX;
        let socket =
            rustix::net::socket_with(family, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("somebody listens");
        socket
    }

    fn is_done(socket: &OwnedFd) -> bool {
        let mut packet = [0; PACKET_BYTES_MAX];
        assert!(send(socket, Request::SettleAll.write(0, &mut packet)));
        receive(socket, &mut packet).is_ok_and(|(len, _)| packet[..len] == Answer::Done.bytes())
    }

    #[test]
    fn clients_are_answered_in_turn_where_no_thread_can_be_had() {
        let folder = tempfile::tempdir().expect("a folder");
        let (keeper, path) = (keeper(folder.path()), folder.path().join("socket"));
        let listener = listen(&path).expect("it listens");
        thread::scope(|threads| {
            threads.spawn(|| accept(&listener, &keeper, |_| Err(io::ErrorKind::WouldBlock.into())));
            let clients = [connected(&path), connected(&path)];
            assert!(clients.iter().chain(&clients).all(is_done));
            drop(clients);
            assert!(is_done(&connected(&path)));
            rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).expect("it ends");
        });
    }
}
