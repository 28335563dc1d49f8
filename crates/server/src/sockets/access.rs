//! The users of a unix socket: the server's own user, root, and those that the plan names. The
//! kernel remembers which user connected (SO_PEERCRED); the file's mode alone does not tell a
//! server with which user it talks. Which groups a user is in besides is asked of the system's
//! account of users, so being added to one takes effect with the next connection.

use nix::unistd::{Group, Uid, User, getgrouplist};
use std::ffi::CString;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Users and groups who may connect, beside the server's own user and root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// User numbers.
    pub uids: Vec<u32>,
    /// Group numbers: a process counts by its effective group and by those that its user is in.
    pub gids: Vec<u32>,
}

/// Reads a user: a number, or a name that the system knows.
pub fn user(text: &str) -> Option<u32> {
    let named = || User::from_name(text).ok().flatten().map(|user| user.uid.as_raw());
    text.parse().ok().or_else(named)
}

/// Reads a group: a number, or a name that the system knows.
pub fn group(text: &str) -> Option<u32> {
    let named = || Group::from_name(text).ok().flatten().map(|group| group.gid.as_raw());
    text.parse().ok().or_else(named)
}

/// A process that was refused.
#[derive(Debug, PartialEq, Eq)]
pub struct RejectedPeer {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its number.
    pub pid: i32,
}

impl Peers {
    /// Who is at the other end of `stream`, if they may not be.
    pub fn stranger(&self, stream: &UnixStream) -> io::Result<Option<RejectedPeer>> {
        let peer = rustix::net::sockopt::socket_peercred(stream)?;
        let (uid, gid) = (peer.uid.as_raw(), peer.gid.as_raw());
        let pid = peer.pid.as_raw_nonzero().get();
        let own = rustix::process::geteuid().as_raw();
        Ok((!self.admits(own, uid, gid) && !self.admits_member(uid, groups_of)?).then_some(RejectedPeer {
            uid,
            gid,
            pid,
        }))
    }

    /// Who is allowed, and cannot reach the socket at `path` by the modes of the files that are
    /// returned with them.
    pub fn shut_out_of(&self, path: &Path) -> Vec<(String, PathBuf)> {
        let own = rustix::process::geteuid().as_raw();
        let users = self.uids.iter().filter(|uid| **uid != own).map(|uid| {
            let user = Somebody::User { uid: *uid, groups: groups_of(*uid).unwrap_or_default() };
            (format!("user {uid}"), user)
        });
        let groups = self.gids.iter().map(|gid| (format!("group {gid}"), Somebody::MemberOf(*gid)));
        users.chain(groups).filter_map(|(name, who)| Some((name, who.kept_out_by(path)?))).collect()
    }

    fn admits(&self, own: u32, uid: u32, gid: u32) -> bool {
        uid == 0 || uid == own || self.uids.contains(&uid) || self.gids.contains(&gid)
    }

    /// Whether `groups_of` has user `uid` in one of the groups.
    fn admits_member(&self, uid: u32, groups_of: impl FnOnce(u32) -> io::Result<Vec<u32>>) -> io::Result<bool> {
        Ok(!self.gids.is_empty() && groups_of(uid)?.iter().any(|gid| self.gids.contains(gid)))
    }
}

/// Somebody as the modes of files know them.
enum Somebody {
    User {
        uid: u32,
        groups: Vec<u32>,
    },
    /// Any member of the group, none of whose other groups is known.
    MemberOf(u32),
}

impl Somebody {
    /// Whether a file's mode grants them `bit`, which is one of `0o7`. Access lists are not looked
    /// at.
    fn may(&self, bit: u32, file: &Metadata) -> bool {
        let is_of_group = match self {
            Somebody::User { uid: 0, .. } => return true,
            Somebody::User { uid, .. } if *uid == file.uid() => return file.mode() & bit << 6 != 0,
            Somebody::User { groups, .. } => groups.contains(&file.gid()),
            Somebody::MemberOf(gid) => *gid == file.gid(),
        };
        file.mode() & if is_of_group { bit << 3 } else { bit } != 0
    }

    /// The file, the socket at `path` itself or a folder above it, that keeps them from it.
    fn kept_out_by(&self, path: &Path) -> Option<PathBuf> {
        let closed = |(file, bit): (&Path, u32)| file.metadata().is_ok_and(|there| !self.may(bit, &there));
        let folders = path.ancestors().skip(1).map(|folder| (folder, SEARCH));
        std::iter::once((path, WRITE)).chain(folders).find(|way| closed(*way)).map(|(file, _)| file.to_owned())
    }
}

/// To connect to a socket one has to be allowed to write to it, and to search the folders above it.
const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

/// The groups that a user is in. None for one that the system does not know.
fn groups_of(uid: u32) -> io::Result<Vec<u32>> {
    let Some(user) = User::from_uid(Uid::from_raw(uid))? else { return Ok(Vec::new()) };
    let groups = getgrouplist(&CString::new(user.name)?, user.gid)?;
    Ok(groups.into_iter().map(|gid| gid.as_raw()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

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
    fn the_one_who_cannot_open_the_socket_is_known_by_its_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s");
        fs::write(&socket, "").expect("a file");
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own");
        let peers =
            Peers { uids: vec![0, u32::MAX - 7], gids: vec![fs::metadata(&socket).expect("it is there").gid()] };
        let shut_out = || peers.shut_out_of(&socket).into_iter().collect::<Vec<_>>();
        let (user, group) = (format!("user {}", u32::MAX - 7), format!("group {}", peers.gids[0]));
        set(folder.path(), 0o711);
        for (mode, names) in
            [(0o600, vec![&user, &group]), (0o660, vec![&user]), (0o606, vec![&group]), (0o666, vec![])]
        {
            set(&socket, mode);
            assert_eq!(shut_out(), names.into_iter().map(|name| (name.clone(), socket.clone())).collect::<Vec<_>>());
        }
        set(folder.path(), 0o710);
        assert_eq!(shut_out(), [(user, folder.path().to_owned())]);
    }

    #[test]
    fn users_and_groups_have_names_and_numbers() {
        assert_eq!((user("root"), user("1234"), group("root")), (Some(0), Some(1234), Some(0)));
        for text in ["", "-1", "no such name"] {
            assert!(user(text).is_none() && group(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn the_kernel_knows_this_process() {
        let (here, _there) = UnixStream::pair().expect("a pair of sockets");
        assert_eq!(Peers::default().stranger(&here).expect("a local socket"), None);
    }
}
