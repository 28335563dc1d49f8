//! Places to listen: unix sockets and TCP ports, from the command line's text to a socket that
//! accepts.

use crate::failure::{Exposed, Exposure, Failure, ListenFailure, NoListenAddress};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Gid;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use tidegate_host::default_paths;

/// Bytes a unix socket's path may have on Linux, its closing zero left out.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The port registered for NBD, taken where a TCP place names none.
const NBD_PORT: u16 = 10809;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

/// The path of a unix socket that `written` means: with `unix:` before it, as [`ListenAddress`] has
/// it, or alone.
pub fn socket_path(written: PathBuf) -> PathBuf {
    let path = written.as_os_str().as_bytes().strip_prefix(b"unix:").map(|path| OsStr::from_bytes(path).into());
    path.unwrap_or(written)
}

impl ListenAddress {
    /// Reads `unix:PATH` or `tcp:ADDRESS[:PORT]`.
    pub fn parse(text: &str) -> Result<ListenAddress, NoListenAddress> {
        ListenAddress::as_written(text).map(|place| place.below(Path::new("")))
    }

    /// Reads `unix:PATH` or `tcp:ADDRESS[:PORT]`, and leaves a relative path as it is written.
    pub fn as_written(text: &str) -> Result<ListenAddress, NoListenAddress> {
        let bad = |why| NoListenAddress { text: text.to_owned(), why };
        match text.split_once(':') {
            Some(("unix", "")) => Err(bad("no path follows unix:")),
            Some(("unix", path)) => Ok(ListenAddress::Unix(path.into())),
            Some(("tcp", address)) => tcp_address(address)
                .map(ListenAddress::Tcp)
                .ok_or_else(|| bad("what follows tcp: is no address and port")),
            _ => Err(bad("it begins with neither unix: nor tcp:")),
        }
    }

    /// This place with an absolute path: a relative one starts at `folder`.
    pub fn below(self, folder: &Path) -> ListenAddress {
        match self {
            ListenAddress::Unix(path) => {
                let path = folder.join(path);
                // If the current folder is gone, listening fails, and says so.
                ListenAddress::Unix(std::path::absolute(&path).unwrap_or(path))
            }
            ListenAddress::Tcp(_) => self,
        }
    }

    /// Whether it means the same place each time.
    pub fn is_one(&self) -> bool {
        !matches!(self, ListenAddress::Tcp(address) if address.port() == 0)
    }

    /// The path of a unix socket.
    pub fn into_path(self) -> Option<PathBuf> {
        match self {
            ListenAddress::Unix(path) => Some(path),
            ListenAddress::Tcp(_) => None,
        }
    }

    /// Who reaches it without the server's permission. A unix socket has modes and peers.
    pub fn exposure(&self) -> Option<Exposure> {
        match self {
            ListenAddress::Unix(_) => None,
            ListenAddress::Tcp(address) if address.ip().to_canonical().is_loopback() => Some(Exposure::Users),
            ListenAddress::Tcp(_) => Some(Exposure::Machines),
        }
    }

    /// Refuses TCP ports, which know nothing of users, unless the plan says that they may be open.
    pub fn check_exposure(&self, may_be_exposed: bool) -> Result<(), Exposed> {
        match (self, self.exposure()) {
            (ListenAddress::Tcp(address), Some(to)) if !may_be_exposed => Err(Exposed { address: *address, to }),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Unix(path) => write!(f, "{}", path.display()),
            ListenAddress::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// An address, with or without a port; `localhost` is the one name that needs no resolver.
fn tcp_address(text: &str) -> Option<SocketAddr> {
    let text = match text.strip_prefix("localhost") {
        Some(rest) => format!("{}{rest}", Ipv4Addr::LOCALHOST),
        None => text.to_owned(),
    };
    let unbracketed = |text: &str| match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').map(str::to_owned),
        None => Some(text.to_owned()),
    };
    let bare = || unbracketed(&text)?.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, NBD_PORT));
    text.parse().ok().or_else(bare)
}

/// Whom the system lets open a unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// The permissions of its file.
    pub mode: Mode,
    /// The group of its file; None: the server's own.
    pub group: Option<u32>,
}

impl SocketAccess {
    /// For the server's own user and root.
    pub const OWN: SocketAccess = SocketAccess { mode: Mode::from_raw_mode(0o600), group: None };
}

/// A socket that accepts connections. A unix socket's file goes when it is dropped.
pub enum Listener {
    /// On a unix socket.
    Unix(UnixListener, SocketFile),
    /// On a unix socket that somebody else opened and will remove, and its path.
    InheritedUnix(UnixListener, PathBuf),
    /// On a TCP port, and the address it really has.
    Tcp(TcpListener, SocketAddr),
}

impl Listener {
    /// Opens the socket: nonblocking, and for unix sockets with the permissions and the group of
    /// `access`.
    pub fn bind(place: &ListenAddress, access: SocketAccess) -> Result<Listener, Failure> {
        match place {
            ListenAddress::Unix(path) => bind_unix(path, access),
            ListenAddress::Tcp(address) => Ok(bind_tcp(*address)?),
        }
    }

    /// A unix socket that was open when this process started.
    pub fn inherited_unix(listener: UnixListener) -> io::Result<Listener> {
        listener.set_nonblocking(true)?;
        let path = listener.local_addr()?.as_pathname().map(Path::to_owned);
        Ok(Listener::InheritedUnix(listener, path.unwrap_or_default()))
    }

    /// A TCP port that is open.
    pub fn of_tcp(listener: TcpListener) -> io::Result<Listener> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Listener::Tcp(listener, address))
    }

    /// Takes a waiting connection; `WouldBlock` if there is none.
    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Unix(listener, _) | Listener::InheritedUnix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Stream::Unix(stream))
            }
            Listener::Tcp(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// Lets those whom `access` means open the file of a unix socket. Sockets that others opened
    /// keep their files as they are.
    ///
    /// # Errors
    /// The system refuses it, or another file is in the place of the socket's.
    pub fn share(&self, access: SocketAccess) -> Result<(), ListenFailure> {
        match self {
            Listener::Unix(_, file) => file.share(access),
            Listener::InheritedUnix(..) | Listener::Tcp(..) => Ok(()),
        }
    }

    /// Where clients find it.
    pub fn place(&self) -> ListenAddress {
        match self {
            Listener::Unix(_, file) => ListenAddress::Unix(file.path.clone()),
            Listener::InheritedUnix(_, path) => ListenAddress::Unix(path.clone()),
            Listener::Tcp(_, address) => ListenAddress::Tcp(*address),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener, _) | Listener::InheritedUnix(listener, _) => listener.as_fd(),
            Listener::Tcp(listener, _) => listener.as_fd(),
        }
    }
}

fn bind_tcp(address: SocketAddr) -> Result<Listener, ListenFailure> {
    let opened = TcpListener::bind(address).and_then(Listener::of_tcp);
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ListenFailure::PortInUse { address: address.to_string() },
        io::ErrorKind::PermissionDenied => ListenFailure::Denied { place: address.to_string() },
        _ => ListenFailure::Refused { place: address.to_string(), error },
    })
}

fn bind_unix(path: &Path, access: SocketAccess) -> Result<Listener, Failure> {
    if path.as_os_str().as_bytes().len() > SOCKET_PATH_BYTES_MAX {
        return Err(ListenFailure::PathTooLong { path: path.to_owned() }.into());
    }
    default_paths::make_folder_of(path)?;
    clear_the_way(path)?;
    let opened = bound(path, access.mode).and_then(|listener| {
        let file = SocketFile::new(path)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Unix(listener, file))
    });
    let listener = opened.map_err(|error| refused_unix(path, error))?;
    if let Some(group) = access.group {
        // Not of what a link leads to that somebody put in the socket's place.
        let given = rustix::fs::chownat(CWD, path, None, Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW);
        given.map_err(|errno| not_given(path, group, errno))?;
    }
    Ok(listener)
}

/// Binds a socket whose file has exactly this mode from its first moment on: on a thread with a
/// mask of its own, as other threads create files by that of the process.
fn bound(path: &Path, mode: Mode) -> io::Result<UnixListener> {
    let bind = || {
        unshare(CloneFlags::CLONE_FS)?;
        rustix::process::umask(mode.complement());
        UnixListener::bind(path)
    };
    thread::scope(|scope| {
        let binding = thread::Builder::new().name("bind".to_owned()).spawn_scoped(scope, bind)?;
        binding.join().unwrap_or_else(|_| Err(io::Error::other("the thread that binds it failed")))
    })
}

fn not_given(path: &Path, group: u32, errno: Errno) -> ListenFailure {
    ListenFailure::Group { path: path.to_owned(), group, error: errno.into() }
}

fn refused_unix(path: &Path, error: io::Error) -> ListenFailure {
    match error.kind() {
        io::ErrorKind::AddrInUse => ListenFailure::SocketInUse { path: path.to_owned(), pid: None },
        io::ErrorKind::PermissionDenied => ListenFailure::Denied { place: path.display().to_string() },
        _ => ListenFailure::Refused { place: path.display().to_string(), error },
    }
}

/// Removes a socket that nobody answers on: what a killed server leaves.
fn clear_the_way(path: &Path) -> Result<(), ListenFailure> {
    let Ok(there) = path.symlink_metadata() else { return Ok(()) };
    if !there.file_type().is_socket() {
        return Err(ListenFailure::NotASocket { path: path.to_owned() });
    }
    match knocking(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!("removing socket {}: nobody answers on it", path.display());
            std::fs::remove_file(path).map_err(|error| refused_unix(path, error))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(ListenFailure::Denied { place: path.display().to_string() })
        }
        answer => {
            let peer = answer.ok().and_then(|stream| rustix::net::sockopt::socket_peercred(stream).ok());
            let pid = peer.and_then(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()).ok());
            Err(ListenFailure::SocketInUse { path: path.to_owned(), pid })
        }
    }
}

/// A connection with whoever listens on the socket at `path`. One who takes none is not waited for.
fn knocking(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// The file of a unix socket we opened; removed when dropped, if it is still ours.
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<SocketFile> {
        let there = path.symlink_metadata()?;
        Ok(SocketFile { path: path.to_owned(), device: there.dev(), inode: there.ino() })
    }

    /// Changes the group, then the mode, of this very file.
    fn share(&self, access: SocketAccess) -> Result<(), ListenFailure> {
        let refused = |error: io::Error| refused_unix(&self.path, error);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(|errno| refused(errno.into()))?;
        let about = rustix::fs::fstat(&file).map_err(|errno| refused(errno.into()))?;
        if (about.st_dev, about.st_ino) != (self.device, self.inode) {
            return Err(refused(io::Error::other("another file is in the place of the server's socket")));
        }
        let group = access.group.unwrap_or_else(|| rustix::process::getegid().as_raw());
        if about.st_gid != group {
            let given = rustix::fs::chownat(&file, "", None, Some(Gid::from_raw(group)), AtFlags::EMPTY_PATH);
            given.map_err(|errno| not_given(&self.path, group, errno))?;
        }
        // A descriptor of a path alone has its file's mode changed by this name of it only.
        let by_descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::chmod(by_descriptor, access.mode).map_err(|errno| refused(errno.into()))
    }

    fn is_still_ours(&self) -> bool {
        self.path.symlink_metadata().is_ok_and(|there| (there.dev(), there.ino()) == (self.device, self.inode))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_still_ours()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!("socket {} is left behind: {error}", self.path.display());
        }
    }
}

/// A connection with a client.
pub enum Stream {
    /// Over a unix socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
}

impl Stream {
    /// Ends one direction or both. A connection that has already ended needs no ending.
    pub fn shut_down(&self, direction: Shutdown) {
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(direction),
            Stream::Tcp(stream) => stream.shutdown(direction),
        };
    }

    /// Who is at its other end, in words.
    pub fn peer(&self) -> String {
        match self {
            Stream::Unix(stream) => match rustix::net::sockopt::socket_peercred(stream) {
                Ok(peer) => {
                    format!("process {} of user {} on a unix socket", peer.pid.as_raw_nonzero(), peer.uid.as_raw())
                }
                Err(errno) => format!("a process that the system does not name: {errno}"),
            },
            Stream::Tcp(stream) => match stream.peer_addr() {
                Ok(address) => format!("{address} over TCP"),
                Err(error) => format!("an address that the system does not tell: {error}"),
            },
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl tidegate_nbd::Stream for Stream {
    fn receive(&self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.receive(out),
            Stream::Tcp(stream) => stream.receive(out),
        }
    }

    fn receive_now(&self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.receive_now(out),
            Stream::Tcp(stream) => stream.receive_now(out),
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.send(bytes),
            Stream::Tcp(stream) => stream.send(bytes),
        }
    }

    fn limit_waiting(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.limit_waiting(limit),
            Stream::Tcp(stream) => stream.limit_waiting(limit),
        }
    }

    fn limit_sending(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.limit_sending(limit),
            Stream::Tcp(stream) => stream.limit_sending(limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_may_be_written_as_a_place() {
        let read = |path: &str| socket_path(path.into());
        assert_eq!(["/a:b", "unix:/a", "unix:a", "unixa"].map(read), ["/a:b", "/a", "a", "unixa"].map(PathBuf::from));
    }

    #[test]
    fn places_are_read() {
        let tcp = |text: &str| ListenAddress::Tcp(text.parse().expect(text));
        for (text, place) in [
            ("unix:/run/a b.sock", ListenAddress::Unix("/run/a b.sock".into())),
            ("tcp:127.0.0.1:0", tcp("127.0.0.1:0")),
            ("tcp:127.0.0.1", tcp("127.0.0.1:10809")),
            ("tcp:localhost:7", tcp("127.0.0.1:7")),
            ("tcp:[::1]:7", tcp("[::1]:7")),
            ("tcp:[::1]", tcp("[::1]:10809")),
        ] {
            assert_eq!(ListenAddress::parse(text).expect(text), place);
        }
    }

    #[test]
    fn other_texts_name_no_place() {
        for text in [
            "",
            "unix:",
            "tcp:",
            "tcp:elsewhere:1",
            "tcp:[::1",
            "tcp:::1]",
            "tcp:127.0.0.1:99999",
            "/run/a.sock",
            "udp:1.2.3.4:5",
        ] {
            assert!(ListenAddress::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_socket_whose_owner_takes_no_connections_is_in_use_and_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let _deaf = UnixListener::bind(&path).expect("a socket");
        let mut waiting = Vec::new();
        // As many as the system lets wait.
        while let Ok(connection) = knocking(&path) {
            waiting.push(connection);
        }
        let refused = Listener::bind(&ListenAddress::Unix(path.clone()), SocketAccess::OWN).err();
        assert!(matches!(refused, Some(Failure::Listen(ListenFailure::SocketInUse { .. }))), "{refused:?}");
    }

    #[test]
    fn every_tcp_port_needs_consent_and_no_unix_socket_does() {
        let (users, machines) = (Some(Exposure::Users), Some(Exposure::Machines));
        for (text, exposure) in [
            ("tcp:127.0.0.1", users),
            ("tcp:127.9.9.9:1", users),
            ("tcp:localhost", users),
            ("tcp:[::1]", users),
            ("tcp:[::ffff:127.0.0.1]:1", users),
            ("tcp:0.0.0.0", machines),
            ("tcp:[::]", machines),
            ("tcp:192.0.2.1:1", machines),
            ("unix:/run/s", None),
        ] {
            let place = ListenAddress::parse(text).expect(text);
            assert_eq!(place.exposure(), exposure, "{text}");
            assert_eq!(place.check_exposure(false).is_err(), exposure.is_some(), "{text}");
            assert!(place.check_exposure(true).is_ok());
        }
    }
}
