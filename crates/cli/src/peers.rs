//! Who may use a unix socket: the server's own user, root, and whom the plan names. Asked of the kernel (SO_PEERCRED), which
//! remembers who connected; the file's mode alone does not tell a server whom it talks to.

use std::io;
use std::os::unix::net::UnixStream;

/// Users and groups who may connect, beside the server's own user and root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peers {
    /// User numbers.
    pub(crate) uids: Vec<u32>,
    /// Group numbers: a process counts by its effective group, not by its supplementary ones.
    pub(crate) gids: Vec<u32>,
}

/// A process that was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stranger {
    /// Its user.
    pub(crate) uid: u32,
    /// Its group.
    pub(crate) gid: u32,
    /// Its number.
    pub(crate) pid: i32,
}

impl Peers {
    /// Who is at the other end of `stream`, if they may not be.
    pub(crate) fn stranger(&self, stream: &UnixStream) -> io::Result<Option<Stranger>> {
        let peer = rustix::net::sockopt::socket_peercred(stream)?;
        let (uid, gid) = (peer.uid.as_raw(), peer.gid.as_raw());
        let pid = peer.pid.as_raw_nonzero().get();
        let own = rustix::process::geteuid().as_raw();
        Ok((!self.admits(own, uid, gid)).then_some(Stranger { uid, gid, pid }))
    }

    fn admits(&self, own: u32, uid: u32, gid: u32) -> bool {
        uid == 0 || uid == own || self.uids.contains(&uid) || self.gids.contains(&gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_root_and_the_named_are_admitted() {
        let peers = Peers { uids: vec![7], gids: vec![70] };
        for (uid, gid, admitted) in
            [(0, 5, true), (1000, 5, true), (7, 5, true), (8, 70, true), (8, 7, false), (70, 8, false)]
        {
            assert_eq!(peers.admits(1000, uid, gid), admitted, "{uid}:{gid}");
        }
        assert!(!Peers::default().admits(1000, 1001, 0), "the group of root is not root");
    }

    #[test]
    fn the_kernel_knows_this_process() {
        let (here, _there) = UnixStream::pair().expect("a pair of sockets");
        assert_eq!(Peers::default().stranger(&here).expect("a local socket"), None);
    }
}
