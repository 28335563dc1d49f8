//! Files that this process opens by names which other users could have made too: those beside a
//! pool, and folders for salvaged files.
//!
//! Such a file is opened without following a symbolic link and looked at when it is open. It is
//! used only if it belongs to a trusted user and no other user can write to it. Otherwise another
//! user would choose which files a more privileged process reads and writes.

use nix::unistd::{Gid, Uid, User};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedFile {
    /// It is another user's.
    #[error("it belongs to {}, and this process runs as {}", named(*.0), named(own()))]
    Owner(u32),
    /// Users other than its owner may write to it.
    #[error("its mode {:04o} lets other users write to it", .0)]
    Writable(u32),
    /// It is a symbolic link that another user made.
    #[error("it is a symbolic link that {} made", named(*.0))]
    Link(u32),
    /// It is something else than expected.
    #[error("it is {0}")]
    Kind(&'static str),
}

impl From<UntrustedFile> for io::Error {
    fn from(distrust: UntrustedFile) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, distrust)
    }
}

impl UntrustedFile {
    /// The reason in `error`, if it came from here.
    pub fn in_error(error: &io::Error) -> Option<UntrustedFile> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// A file or folder that is not used.
#[derive(Debug, thiserror::Error)]
#[error("{} is not used: {distrust}", file.display())]
pub struct NotOwn {
    /// Which.
    pub file: PathBuf,
    /// Why.
    pub distrust: UntrustedFile,
    /// The command that its owner would give.
    pub command: &'static str,
    /// What to name in its place.
    pub instead: &'static str,
}

/// What is expected under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A regular file.
    File,
    /// A regular file, or a device that root administers.
    Memory,
}

/// The user that this process runs as.
pub fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// If this process is root's and the regular file at `path` belongs to another user, gives up
/// root's rights for those of that user, for good: user, group and supplementary groups. So a name
/// that the user chose leads to nothing that the user could not reach.
pub fn act_as_owner_of(path: &Path) -> io::Result<()> {
    let about = match path.symlink_metadata() {
        Ok(about) if own() == 0 && about.uid() != 0 && about.is_file() => about,
        // Whoever opens the file judges it.
        _ => return Ok(()),
    };
    let uid = Uid::from_raw(about.uid());
    match User::from_uid(uid)? {
        Some(user) => {
            let name = std::ffi::CString::new(user.name)?;
            nix::unistd::initgroups(&name, user.gid)?;
            nix::unistd::setgid(user.gid)?;
        }
        // The system does not know the user's groups.
        None => {
            nix::unistd::setgroups(&[])?;
            nix::unistd::setgid(Gid::from_raw(about.gid()))?;
        }
    }
    Ok(nix::unistd::setuid(uid)?)
}

/// A user's name and number.
pub fn named(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| format!("user {uid}"), |user| format!("user {uid} ({})", user.name))
}

/// The words with which `sudo` names a user.
pub fn for_sudo(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| format!("'#{uid}'"), |user| user.name)
}

/// The file that `path` leads to. A symbolic link has to be this user's or root's.
pub fn resolved(path: &Path) -> io::Result<PathBuf> {
    match path.symlink_metadata() {
        Ok(link) if link.is_symlink() => match link.uid() {
            uid if uid == own() || uid == 0 => path.canonicalize(),
            uid => Err(UntrustedFile::Link(uid).into()),
        },
        _ => Ok(path.to_owned()),
    }
}

/// Refuses the open `file` unless it is `what` is expected and this user's alone to write.
pub fn accept(file: impl AsFd, what: What) -> io::Result<()> {
    accept_of(file, what, &[own()])
}

/// Refuses the open `file` unless it is `what` is expected, and only one of `owners` can write to
/// it.
fn accept_of(file: impl AsFd, what: What, owners: &[u32]) -> io::Result<()> {
    distrust(&rustix::fs::fstat(file)?, what, owners).map_or(Ok(()), |distrust| Err(distrust.into()))
}

fn distrust(stat: &Stat, what: What, owners: &[u32]) -> Option<UntrustedFile> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    match (what, kind) {
        (What::File | What::Memory, FileType::RegularFile) | (What::Memory, FileType::CharacterDevice) => {}
        _ => return Some(UntrustedFile::Kind("no regular file")),
    }
    // The administrator of the system decides who gets a device.
    let is_device = kind == FileType::CharacterDevice;
    let (mode, others) = (stat.st_mode & 0o7777, if is_device { 0o002 } else { 0o022 });
    let is_trusted = owners.contains(&stat.st_uid) || is_device && stat.st_uid == 0;
    if !is_trusted {
        return Some(UntrustedFile::Owner(stat.st_uid));
    }
    (mode & others != 0).then_some(UntrustedFile::Writable(mode))
}

/// Opens this user's regular file at `path`, which is no link.
pub fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    open_of(path, flags, &[own()])
}

/// Opens the regular file of one of `owners` at `path`, which is no link.
pub fn open_of(path: &Path, flags: OFlags, owners: &[u32]) -> io::Result<File> {
    let file = unfollowed(path, flags)?;
    accept_of(&file, What::File, owners)?;
    Ok(file)
}

fn unfollowed(path: &Path, flags: OFlags) -> io::Result<File> {
    // A FIFO would make a plain open wait for its other end.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::LOOP) => Err(UntrustedFile::Kind("a symbolic link").into()),
        opened => Ok(File::from(opened?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Why the file at `path` is not opened.
    fn refused(path: &Path) -> Option<UntrustedFile> {
        open(path, OFlags::RDONLY).err().map(|error| UntrustedFile::in_error(&error).expect("it was looked at"))
    }

    #[test]
    fn only_files_that_nobody_else_can_write_are_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "").expect("a file");
        for (mode, distrust) in [
            (0o644, None),
            (0o664, Some(UntrustedFile::Writable(0o664))),
            (0o602, Some(UntrustedFile::Writable(0o602))),
        ] {
            fs::set_permissions(at("file"), fs::Permissions::from_mode(mode)).expect("its owner may");
            assert_eq!(refused(&at("file")), distrust);
        }
        symlink(at("file"), at("link")).expect("a link");
        assert_eq!(refused(&at("link")), Some(UntrustedFile::Kind("a symbolic link")));
        assert_eq!(refused(folder.path()), Some(UntrustedFile::Kind("no regular file")));
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        assert_eq!(
            refused(&at("pipe")),
            Some(UntrustedFile::Kind("no regular file")),
            "nobody waits for its other end"
        );
    }

    #[test]
    fn devices_are_the_administrators_to_give() {
        let file = File::open("/dev/null").expect("a device");
        let mut stat = rustix::fs::fstat(&file).expect("it is open");
        stat.st_uid = 0;
        stat.st_mode = stat.st_mode & !0o7777 | 0o660;
        assert_eq!(distrust(&stat, What::Memory, &[1000]), None);
        assert_eq!(distrust(&stat, What::File, &[1000]), Some(UntrustedFile::Kind("no regular file")));
        stat.st_uid = 1001;
        assert_eq!(distrust(&stat, What::Memory, &[1000]), Some(UntrustedFile::Owner(1001)));
    }

    #[test]
    fn links_of_ones_own_are_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("it is there");
        fs::write(folder.join("file"), "").expect("a file");
        symlink(folder.join("file"), folder.join("link")).expect("a link");
        assert_eq!(resolved(&folder.join("link")).expect("it leads there"), folder.join("file"));
        assert_eq!(resolved(&folder.join("absent")).expect("it is no link"), folder.join("absent"));
        if own() == 0 {
            std::os::unix::fs::lchown(folder.join("link"), Some(65534), None).expect("root gives files away");
            let refused = resolved(&folder.join("link")).expect_err("it is another user's");
            assert_eq!(UntrustedFile::in_error(&refused), Some(UntrustedFile::Link(65534)));
        }
    }
}
