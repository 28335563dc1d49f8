//! Who may use a unix socket: the server's own user, root, and whom the plan names. Asked of the kernel (SO_PEERCRED), which
//! remembers who connected; the file's mode alone does not tell a server whom it talks to. Which groups a user is in besides is asked of the
//! system's account of users, so being added to one takes effect with the next connection.

use nix::unistd::{Uid, User, getgrouplist};
use std::ffi::CString;
use std::io;
use std::os::unix::net::UnixStream;

/// Users and groups who may connect, beside the server's own user and root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peers {
    /// User numbers.
    pub(crate) uids: Vec<u32>,
    /// Group numbers: a process counts by its effective group and by those that its user is in.
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
        Ok((!self.admits(own, uid, gid) && !self.admits_member(uid, groups_of)?).then_some(Stranger { uid, gid, pid }))
    }

    fn admits(&self, own: u32, uid: u32, gid: u32) -> bool {
        uid == 0 || uid == own || self.uids.contains(&uid) || self.gids.contains(&gid)
    }

    /// Whether `groups_of` has user `uid` in one of the groups.
    fn admits_member(&self, uid: u32, groups_of: impl FnOnce(u32) -> io::Result<Vec<u32>>) -> io::Result<bool> {
        Ok(!self.gids.is_empty() && groups_of(uid)?.iter().any(|gid| self.gids.contains(gid)))
    }
}

/// The groups that a user is in. None for one that the system does not know.
fn groups_of(uid: u32) -> io::Result<Vec<u32>> {
    let Some(user) = User::from_uid(Uid::from_raw(uid))? else { return Ok(Vec::new()) };
    let groups = getgrouplist(&CString::new(user.name)?, user.gid)?;
    Ok(groups.into_iter().map(|gid| gid.as_raw()).collect())
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
    fn a_user_of_a_named_group_is_admitted_whatever_group_the_process_has() {
        let peers = Peers { uids: vec![], gids: vec![70] };
        assert!(peers.admits_member(8, |_| Ok(vec![8, 70])).expect("the groups are known"));
        assert!(!peers.admits_member(8, |_| Ok(vec![8, 71])).expect("the groups are known"));
        let nobody_is_asked = |_| -> io::Result<Vec<u32>> { unreachable!("no group is named") };
        assert!(!Peers::default().admits_member(8, nobody_is_asked).expect("nobody is asked"));
        assert!(groups_of(0).expect("the system knows root").contains(&0));
        assert!(groups_of(u32::MAX - 7).expect("nobody is no error").is_empty());
    }

    #[test]
    fn the_kernel_knows_this_process() {
        let (here, _there) = UnixStream::pair().expect("a pair of sockets");
        assert_eq!(Peers::default().stranger(&here).expect("a local socket"), None);
    }
}
