//! The line of a mount in `/run/mount/utab`, where libmount keeps what the kernel does not know.
//!
//! Root's `umount` of an absolute path asks the kernel alone what is mounted there, and hears only
//! that it is FUSE: it would not start `umount.fuse.tidegate`, which waits until SOURCE has
//! everything. A line about the path has it look at the whole table of mounts.

use rustix::fs::{FlockOperation, flock};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tidegate_host::files::mount_table::escape;

/// The table of libmount.
const TABLE: &str = "/run/mount/utab";

/// A line of the table, for as long as this exists.
#[derive(Debug)]
pub struct UtabLine {
    mountpoint: PathBuf,
}

impl UtabLine {
    /// Adds a line about the mount of `source` at `mountpoint`, an absolute path. Without the
    /// right to do so there is none.
    pub fn add(source: &OsStr, mountpoint: &Path) -> UtabLine {
        note(change(Path::new(TABLE), mountpoint, Some(source)));
        UtabLine { mountpoint: mountpoint.to_owned() }
    }
}

impl Drop for UtabLine {
    fn drop(&mut self) {
        forget(&self.mountpoint);
    }
}

/// Removes the lines about `mountpoint`, which a killed process left.
pub(crate) fn forget(mountpoint: &Path) {
    note(change(Path::new(TABLE), mountpoint, None));
}

fn note(changed: io::Result<()>) {
    if let Err(error) = changed {
        tracing::debug!("{TABLE} is not changed: {error}");
    }
}

/// Replaces all lines about `mountpoint` by one about a mount of `source`, if there is one now.
/// Readers see the old table or the new one.
fn change(table: &Path, mountpoint: &Path, source: Option<&OsStr>) -> io::Result<()> {
    match (table.parent(), source) {
        (Some(folder), Some(_)) => fs::create_dir_all(folder)?,
        _ if !table.exists() => return Ok(()),
        _ => {}
    }
    // As libmount has it: the lock is a file of its own.
    let lock = File::options().create(true).truncate(false).write(true).open(table.with_extension("lock"))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let old = match fs::read(table) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let lines = changed(&old, mountpoint, source);
    if lines == old {
        return Ok(());
    }
    let new = table.with_extension("tidegate");
    fs::write(&new, lines)?;
    // All users' `umount` reads it, whatever this process hides of its files.
    fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
    fs::rename(&new, table)
}

fn changed(old: &[u8], mountpoint: &Path, source: Option<&OsStr>) -> Vec<u8> {
    let target = [b"TARGET=", &escape(mountpoint.as_os_str())[..]].concat();
    let is_about = |line: &&[u8]| line.split(u8::is_ascii_whitespace).any(|field| field == target);
    let others = old.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_about(line));
    let mut new = others.collect::<Vec<_>>().concat();
    if let Some(source) = source {
        new.extend([b"SRC=", &escape(source)[..], b" ", &target[..], b" ROOT=/\n"].concat());
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_and_goes_and_all_others_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let table = folder.path().join("mount/utab");
        let [one, two] = ["/srv/one", "/srv/a b"].map(Path::new);
        change(&table, one, Some(OsStr::new("/s\\"))).expect("written");
        let others = "ID=7 SRC=/dev/x TARGET=/srv/o ROOT=/ OPTS=_netdev\n";
        let first = "SRC=/s\\134 TARGET=/srv/one ROOT=/\n";
        let read = || fs::read_to_string(&table).expect("a table");
        assert_eq!(read(), first);
        fs::write(&table, [others, first].concat()).expect("written");
        change(&table, two, Some(OsStr::new("/t"))).expect("written");
        change(&table, two, Some(OsStr::new("/u"))).expect("written");
        assert_eq!(read(), [others, first, "SRC=/u TARGET=/srv/a\\040b ROOT=/\n"].concat());
        change(&table, two, None).expect("written");
        change(&table, one, None).expect("written");
        assert_eq!(read(), others);
    }
}
