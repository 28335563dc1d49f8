//! The journal of holds, beside the pool: which file is which, durable before anything of it is kept.
//!
//! Lines of text. The first names the run and the boot of the system; the others are holds as JSON, or say that everything kept is void because
//! the files themselves have it. A program may append that line by itself, when the supervisor is gone.

use crate::failure::{Doing, Failure, VolumeFailure};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tidegate_preload_wire::VOID;
use uuid::Uuid;

/// What a line begins with that names the run.
const RUN: &str = "run ";
/// Where the kernel says which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A file that is held, however the kernel will number its device at the next boot.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Named {
    /// The family of slots that its contents are kept in.
    pub(super) family: u32,
    /// Where it is.
    pub(super) path: PathBuf,
    /// Its inode.
    pub(super) inode: u64,
    /// When that inode was made, in nanoseconds: inodes are used again.
    pub(super) born_ns: i128,
}

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    session: String,
}

/// Where the journal of `pool` is.
pub(super) fn beside(pool: &Path) -> PathBuf {
    let mut name = pool.as_os_str().to_owned();
    name.push(".holds");
    PathBuf::from(name)
}

/// The boot of the system that is running.
pub(super) fn this_boot() -> io::Result<String> {
    Ok(std::fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

impl Journal {
    /// Begins a new one in the place of any other.
    pub(super) fn begin(path: &Path) -> Result<Journal, Failure> {
        let session = Uuid::new_v4().simple().to_string();
        let begun = Journal::write_first(path, &session);
        begun.map_err(|error| VolumeFailure::of_io(path, Doing::Create, error).into())
    }

    fn write_first(path: &Path, session: &str) -> io::Result<Journal> {
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        let fresh = PathBuf::from(fresh);
        let mut file = File::create(&fresh)?;
        writeln!(file, "{RUN}{session} {}", this_boot()?)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)?;
        sync_folder_of(path)?;
        // Others append too.
        let file = File::options().append(true).open(path)?;
        Ok(Journal { file, path: path.to_owned(), session: session.to_owned() })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the run.
    pub(super) fn session(&self) -> &str {
        &self.session
    }

    /// Writes that `named` is held: durable on return.
    pub(super) fn add(&mut self, named: &Named) -> io::Result<()> {
        let line = format!("{}\n", serde_json::to_string(named)?);
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()
    }

    /// Writes that all files have everything themselves: durable on return.
    pub(super) fn make_void(&mut self) -> io::Result<()> {
        self.file.write_all(format!("\n{VOID}{}\n", self.session).as_bytes())?;
        self.file.sync_data()
    }

    /// The run ended well.
    pub(super) fn end(self) -> io::Result<()> {
        remove(&self.path)
    }
}

/// Removes a journal, durably.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    std::fs::remove_file(path)?;
    sync_folder_of(path)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// A journal that a run left behind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// The boot of the system under which it was written.
    pub(super) boot: String,
    /// The holds, in order.
    pub(super) holds: Vec<Named>,
    /// Whether the files themselves have everything.
    pub(super) is_void: bool,
}

impl Left {
    /// Reads it. None: the last run ended well.
    pub(super) fn read(path: &Path) -> io::Result<Option<Left>> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Left::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// None: it has no first line, so nothing was ever kept under it. A line that a power cut tore was not durable, so nothing was kept of its file.
    fn parse(text: &str) -> Option<Left> {
        let mut lines = text.lines();
        let (session, boot) = lines.next()?.strip_prefix(RUN)?.split_once(' ')?;
        let void = format!("{VOID}{session}");
        let (mut holds, mut is_void) = (Vec::new(), false);
        for line in lines {
            is_void |= line == void;
            holds.extend(serde_json::from_str::<Named>(line));
        }
        Some(Left { boot: boot.to_owned(), holds, is_void })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = beside(&folder.path().join("pool"));
        assert_eq!(Left::read(&path).expect("readable"), None);
        let mut journal = Journal::begin(&path).expect("begun");
        let named = Named { family: 3, path: "/a b/c".into(), inode: 7, born_ns: 1 << 70 };
        journal.add(&named).expect("added");
        let left = Left::read(&path).expect("readable").expect("left");
        assert_eq!((left.holds, left.is_void, left.boot), (vec![named], false, this_boot().expect("a boot")));
        journal.make_void().expect("void");
        assert!(Left::read(&path).expect("readable").expect("left").is_void);
        journal.end().expect("removed");
        assert_eq!(Left::read(&path).expect("readable"), None);
    }

    #[test]
    fn torn_lines_and_other_runs_count_for_nothing() {
        let left = Left::parse("run a b\n{\"family\":1,\"pa\n\nvoid c\n").expect("it has a first line");
        assert_eq!(left, Left { boot: "b".to_owned(), holds: Vec::new(), is_void: false });
        assert_eq!(Left::parse(""), None);
    }
}
