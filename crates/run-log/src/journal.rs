//! The journal of holds: which file is which, durable before anything of it is kept.
//!
//! Lines of text. The first is a single digit, which programs look at behind each commit to a
//! strip: 0, or 1 if they may not commit any more. The second names the run, the boot of the
//! system, and what the pool's memory outlives; the others are
//!
//! - a hold as JSON;
//! - `stop RUN`: a program cannot reach the supervisor, and is bringing all files to their disks.
//!   From then on the supervisor promises nothing any more, so that the program may say `void`;
//! - `void RUN`: the files themselves have everything that this run kept. A program may append that
//!   line by itself, when the supervisor is gone or has to stop;
//! - `failed FAMILY`: what is kept there could not be brought to its file's disk, and others may
//!   write the file since: it is never written to it;
//! - `recovering BOOT FAMILY`: a recovery has begun to write that file;
//! - `recovered FAMILY WHAT`: it has brought that file or name, durably, or put aside what was kept
//!   of it: WHAT tells, as JSON. Others may use it from then on, so a recovery that is done again
//!   passes over it. A program that does not know the line brings it once more;
//! - `folder PATH`: where the supervisor can be asked while it lives.
//!
//! Each begins with the end of a line, so that one that was written in part spoils no other. JSON
//! that was written in part is none.

use super::file_system::FileSystem;
use super::ground::{Brought, Log};
use crate::failure::{Failure, RunFailure};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tidegate_host::Doing;
use tidegate_host::owned;
use tidegate_media::Domain;
use tidegate_preload_wire::{OPEN, RUN, SHUT, STOP, VOID};
use uuid::Uuid;

/// What a line begins with that names a family whose file failed.
const FAILED: &str = "failed ";
/// What a line begins with that names a family whose file is being recovered.
const RECOVERING: &str = "recovering ";
/// What a line begins with that names a family whose file was recovered, and tells what became of
/// it.
const RECOVERED: &str = "recovered ";
/// Digits of a family at the end of a line, so that a part of them is told from another family.
const FAMILY_DIGITS: usize = 10;
/// What a line begins with that names the folder of the run.
const FOLDER: &str = "folder ";
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
    /// The pair of strips that its program commits to, by the number of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) strip: Option<u32>,
    /// What is held.
    #[serde(default, skip_serializing_if = "Kind::is_file")]
    pub(super) kind: Kind,
    /// The second since 1970 at which what was durable of it when the hold began had been changed
    /// last, as its file system tells. What is found is older than that only if somebody changed it
    /// by a clock that was behind. None: nobody knows, or a recovery changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) changed: Option<i64>,
    /// Where it lies; None in journals of older programs, and where the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file_system: Option<FileSystem>,
}

/// What a hold is of.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) enum Kind {
    /// A file.
    #[default]
    File,
    /// A name, whichever file has it: the inode is that of its folder.
    Name,
}

impl Kind {
    /// Whether it is of a file. By reference, as serde asks so.
    fn is_file(&self) -> bool {
        *self == Kind::File
    }
}

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    log: Box<dyn Log>,
    session: String,
    /// Its lines were read as far as this byte.
    seen: u64,
    is_stopped: bool,
}

/// The journal's file.
#[derive(Debug)]
struct LogFile {
    file: File,
    path: PathBuf,
}

impl Log for LogFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_data()
    }

    fn since(&self, at: u64) -> io::Result<Vec<u8>> {
        let len = self.file.metadata()?.len().saturating_sub(at);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn remove(&mut self) -> io::Result<()> {
        std::fs::remove_file(&self.path)?;
        sync_folder_of(&self.path)
    }
}

/// The boot of the system that is running.
pub(super) fn this_boot() -> io::Result<String> {
    Ok(std::fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

/// The log of the journal at `path`, which is there.
pub(super) fn log_at(path: &Path) -> io::Result<Box<dyn Log>> {
    // Others append too.
    let file = owned::open(path, OFlags::RDWR | OFlags::APPEND)?;
    Ok(Box::new(LogFile { file, path: path.to_owned() }))
}

/// The first lines of a journal beside a pool in `domain`.
pub(super) fn first_lines(session: &str, boot: &str, domain: Domain) -> String {
    format!("{}\n{RUN}{session} {boot} {domain}\n", char::from(OPEN))
}

/// Tells programs of the run that left the journal at `path`, and live on, that they may not commit
/// to strips any more. Who finds out later takes his commit for none.
pub(super) fn shut_strips(path: &Path) -> io::Result<()> {
    owned::open(path, OFlags::WRONLY)?.write_all_at(&[SHUT], 0)
}

/// Whether what was fenced in memory of a domain with this name is there after a power cut.
fn outlives_power(domain: &str) -> bool {
    domain == Domain::PowerFail { caches_included: false }.to_string()
}

impl Journal {
    /// Begins a new one in the place of any other, for a pool in `domain`.
    pub(super) fn begin(path: &Path, domain: Domain) -> Result<Journal, Failure> {
        let session = Uuid::new_v4().simple().to_string();
        let begun = Journal::write_first(path, &session, domain);
        begun.map_err(|error| RunFailure::of_file(path, Doing::Create, error))
    }

    fn write_first(path: &Path, session: &str, domain: Domain) -> io::Result<Journal> {
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        let fresh = PathBuf::from(fresh);
        // One that was cut may have left it, and another user a link: neither is written to.
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // It tells which files a user's programs write.
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(first_lines(session, &this_boot()?, domain).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)?;
        sync_folder_of(path)?;
        Ok(Journal::of(log_at(path)?, session))
    }

    /// The journal of run `session`, which `log` has the first line of.
    pub(super) fn of(log: Box<dyn Log>, session: &str) -> Journal {
        Journal { log, session: session.to_owned(), seen: 0, is_stopped: false }
    }

    /// The number of the run.
    pub(super) fn session(&self) -> &str {
        &self.session
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.log.append(format!("\n{line}\n").as_bytes())
    }

    /// Writes that `named` is held: durable on return.
    pub(super) fn add(&mut self, named: &Named) -> io::Result<()> {
        self.line(&serde_json::to_string(named)?)
    }

    /// Writes that all files have everything themselves: durable on return.
    pub(super) fn make_void(&mut self) -> io::Result<()> {
        let line = format!("{VOID}{}", self.session);
        self.line(&line)
    }

    /// Whether a program out of reach has said that nothing is to be promised any more, or may
    /// have: what it says cannot be read.
    pub(super) fn is_stopped(&mut self) -> bool {
        self.is_stopped = self.is_stopped || self.finds_stop().unwrap_or(true);
        self.is_stopped
    }

    fn finds_stop(&mut self) -> io::Result<bool> {
        let fresh = self.log.since(self.seen)?;
        let whole = fresh.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.seen += whole as u64;
        let said = |line: &[u8]| [STOP, VOID].iter().any(|what| line == format!("{what}{}", self.session).as_bytes());
        Ok(fresh[..whole].split(|byte| *byte == b'\n').any(said))
    }

    /// Writes where the supervisor can be asked.
    pub(super) fn add_folder(&mut self, folder: &Path) -> io::Result<()> {
        self.line(&format!("{FOLDER}{}", folder.display()))
    }

    /// Writes that the file of `family` could not be brought to its disk: durable on return.
    pub(super) fn add_failed(&mut self, family: u32) -> io::Result<()> {
        self.line(&format!("{FAILED}{family:0FAMILY_DIGITS$}"))
    }

    /// Writes that the file of `family` is being written under the boot `boot`: durable on return.
    pub(super) fn add_recovering(&mut self, boot: &str, family: u32) -> io::Result<()> {
        self.line(&format!("{RECOVERING}{boot} {family:0FAMILY_DIGITS$}"))
    }

    /// Writes that `brought` has become of what was kept of `family`, and that nobody is to bring
    /// it any more: durable on return.
    pub(super) fn add_recovered(&mut self, family: u32, brought: &Brought) -> io::Result<()> {
        self.line(&format!("{RECOVERED}{family} {}", serde_json::to_string(brought)?))
    }

    /// Nothing of it is needed any more.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.log.remove()
    }
}

/// Makes durable what is in the folder of `path`.
pub(super) fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// The folder of the run that writes the journal at `path`, if that is a journal of one of
/// `owners`; and whose it is.
pub(super) fn folder_in(path: &Path, owners: &[u32]) -> io::Result<Option<(PathBuf, u32)>> {
    let file = owned::open_of(path, OFlags::RDONLY, owners)?;
    let owner = file.metadata()?.uid();
    let text = String::from_utf8_lossy(&whole(file)?).into_owned();
    let folder = text.lines().find_map(|line| line.strip_prefix(FOLDER));
    Ok(folder.map(|folder| (PathBuf::from(folder), owner)))
}

fn whole(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The family that `digits` name. Journals of older programs have as few as it takes, and no zero
/// before them.
fn family_of(digits: &str) -> Option<u32> {
    let is_whole = digits.len() == FAMILY_DIGITS || !digits.starts_with('0');
    digits.parse().ok().filter(|_| is_whole)
}

/// A journal that a run left behind.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// The number of the run.
    pub(super) session: String,
    /// The boot of the system under which it was written.
    pub(super) boot: String,
    /// Whether the pool was memory that a power cut leaves as it was fenced. A pool that was moved
    /// since is judged by what it was.
    pub(super) outlives_power: bool,
    /// The holds, in order.
    pub(super) holds: Vec<Named>,
    /// Whether the files themselves have everything, but for those that failed.
    pub(super) is_void: bool,
    /// The families whose files failed.
    pub(super) failed: BTreeSet<u32>,
    /// Boots and families of recoveries that began to write.
    recovering: BTreeSet<(String, u32)>,
    /// What recoveries have brought, and what became of it.
    pub(super) recovered: BTreeMap<u32, Brought>,
}

impl Left {
    /// Reads it. None: the last run ended well.
    pub(super) fn read(path: &Path) -> io::Result<Option<Left>> {
        match owned::open(path, OFlags::RDONLY).and_then(whole) {
            // It gets its name when its first lines are durable.
            Ok(bytes) => Left::parse(&bytes).map(Some).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "it is damaged: it does not begin as the journal of a run")
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// None: it does not begin as it should. A line that a power cut tore was not durable, so
    /// nothing was kept of its file.
    pub(super) fn parse(bytes: &[u8]) -> Option<Left> {
        let mut lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        let mut first = lines.nth(1)?.strip_prefix(RUN)?.split(' ');
        let (session, boot) = (first.next()?, first.next()?);
        let mut left = Left {
            session: session.to_owned(),
            boot: boot.to_owned(),
            outlives_power: first.next().is_some_and(outlives_power),
            holds: Vec::new(),
            is_void: false,
            failed: BTreeSet::new(),
            recovering: BTreeSet::new(),
            recovered: BTreeMap::new(),
        };
        lines.for_each(|line| left.add(line));
        let Left { holds, recovering, .. } = &mut left;
        let is_recovering = |named: &Named| recovering.iter().any(|(_, family)| *family == named.family);
        holds.iter_mut().filter(|named| is_recovering(named)).for_each(|named| named.changed = None);
        Some(left)
    }

    fn add(&mut self, line: &str) {
        self.is_void |= line.strip_prefix(VOID) == Some(&self.session);
        self.failed.extend(line.strip_prefix(FAILED).and_then(family_of));
        let recovering = line.strip_prefix(RECOVERING).and_then(|rest| rest.split_once(' '));
        let recovering = recovering.and_then(|(boot, family)| Some((boot.to_owned(), family_of(family)?)));
        self.recovering.extend(recovering);
        let recovered = line.strip_prefix(RECOVERED).and_then(|rest| rest.split_once(' '));
        let recovered =
            recovered.and_then(|(family, what)| Some((family_of(family)?, serde_json::from_str(what).ok()?)));
        self.recovered.extend(recovered);
        self.holds.extend(serde_json::from_str::<Named>(line));
    }

    /// Whether any recovery began to write there.
    pub(super) fn was_recovering(&self, family: u32) -> bool {
        self.recovering.iter().any(|(_, known)| *known == family)
    }

    /// Whether a recovery under `boot` began to write the file of `family`.
    pub(super) fn is_recovering(&self, boot: &str, family: u32) -> bool {
        self.recovering.contains(&(boot.to_owned(), family))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::Unlike;
    use tempfile::TempDir;

    /// A journal that was begun in a folder of its own.
    fn begun() -> (TempDir, PathBuf, Journal) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pool.holds");
        let journal = Journal::begin(&path, Domain::DiskFile).expect("begun");
        (folder, path, journal)
    }

    #[test]
    fn a_journal_is_its_users_alone() {
        let (_folder, path, _journal) = begun();
        assert_eq!(path.metadata().expect("it is there").mode() & 0o777, 0o600);
    }

    #[test]
    fn a_journal_is_begun_in_a_file_of_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("pool.holds"), folder.path().join("other"));
        std::fs::write(&other, "of somebody").expect("written");
        std::os::unix::fs::symlink(&other, folder.path().join("pool.holds.new")).expect("a link");
        Journal::begin(&path, Domain::DiskFile).expect("begun");
        assert_eq!(std::fs::read(&other).expect("readable"), b"of somebody");
        assert!(!path.is_symlink() && Left::read(&path).expect("readable").is_some());
    }

    #[test]
    fn a_journal_that_does_not_begin_as_one_is_damaged_and_not_taken_for_none() {
        let (_folder, path, _journal) = begun();
        let whole = std::fs::read(&path).expect("readable");
        for damaged in [&b""[..], b"0\n", &[whole[0], b'\n', 0xff]] {
            std::fs::write(&path, damaged).expect("written");
            assert_eq!(Left::read(&path).expect_err("damaged").kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pool.holds");
        assert_eq!(Left::read(&path).expect("readable"), None);
        let mut journal = Journal::begin(&path, Domain::DiskFile).expect("begun");
        let named = Named {
            family: 3,
            path: "/a b/c".into(),
            inode: 7,
            born_ns: 1 << 70,
            strip: Some(4),
            kind: Kind::Name,
            changed: Some(5),
            file_system: FileSystem::at(&path).expect("the system tells"),
        };
        assert!(named.file_system.is_some());
        journal.add(&named).expect("added");
        let left = Left::read(&path).expect("readable").expect("left");
        assert_eq!((left.holds, left.is_void, left.boot), (vec![named], false, this_boot().expect("a boot")));
        journal.add_failed(3).expect("failed");
        journal.add_recovering("boot", 3).expect("recovering");
        let aside = Brought::Aside { unlike: Unlike::Changed, to: "/a b/\n{c}".into() };
        journal.add_recovered(3, &aside).expect("recovered");
        journal.add_recovered(12, &Brought::Written).expect("recovered");
        journal.make_void().expect("void");
        shut_strips(&path).expect("shut");
        assert_eq!(std::fs::read(&path).expect("readable")[..2], [SHUT, b'\n']);
        let left = Left::read(&path).expect("readable").expect("left");
        assert!(left.is_void && left.failed.contains(&3));
        assert!(left.is_recovering("boot", 3) && !left.is_recovering("boot", 4) && !left.is_recovering("other", 3));
        assert!(left.was_recovering(3) && !left.was_recovering(4));
        assert_eq!(left.holds[0].changed, None, "a recovery may have changed it, by whatever clock");
        assert_eq!(left.recovered, BTreeMap::from([(3, aside), (12, Brought::Written)]));
        journal.end().expect("removed");
        assert_eq!(Left::read(&path).expect("readable"), None);
    }

    #[test]
    fn what_others_append_stops_the_run_that_it_names() {
        let (_folder, path, mut journal) = begun();
        let mut other = log_at(&path).expect("it is there");
        let line = format!("\n{STOP}{}\n", journal.session());
        let (first, rest) = line.split_at(9);
        other.append(b"\nstop another\n").expect("appended");
        assert!(!journal.is_stopped());
        other.append(first.as_bytes()).expect("appended");
        assert!(!journal.is_stopped(), "it is not whole yet");
        other.append(rest.as_bytes()).expect("appended");
        assert!(journal.is_stopped() && journal.is_stopped());
    }

    #[test]
    fn torn_lines_and_other_runs_count_for_nothing() {
        let left = Left::parse(b"1\nrun a b\n{\"family\":1,\"pa\xff\n\nvoid c\n").expect("it has first lines");
        assert_eq!((left.boot.as_str(), left.holds, left.is_void), ("b", Vec::new(), false));
        assert_eq!(Left::parse(b""), None);
    }

    #[test]
    fn a_part_of_a_number_is_no_other_number() {
        let (_folder, path, mut journal) = begun();
        let begun = std::fs::read(&path).expect("readable").len();
        journal.add_recovering("boot", 12).and_then(|()| journal.add_failed(12)).expect("there is room");
        let all = std::fs::read(&path).expect("readable");
        for len in begun..all.len() - 1 {
            let left = Left::parse(&[&all[..len], b"\n"].concat()).expect("it has first lines");
            let others = (0..12).filter(|family| left.failed.contains(family) || left.was_recovering(*family));
            assert_eq!(others.count(), 0, "{:?}", String::from_utf8_lossy(&all[begun..len]));
        }
        let older = Left::parse(b"1\nrun a b\nfailed 12\nrecovering boot 3\n").expect("it has first lines");
        assert!(older.failed.contains(&12) && older.was_recovering(3));
    }

    #[test]
    fn a_line_of_what_was_recovered_counts_whole_or_not_at_all() {
        let (_folder, path, mut journal) = begun();
        let begun = std::fs::read(&path).expect("readable").len();
        journal.add_recovered(12, &Brought::Removed("/aside/12".into())).expect("recovered");
        let all = std::fs::read(&path).expect("readable");
        for len in begun..all.len() - 1 {
            // Whatever is appended behind it.
            let torn = [&all[..len], b"\nfailed 7\n"].concat();
            for left in [&all[..len], &torn] {
                let left = Left::parse(left).expect("it has first lines");
                assert!(left.recovered.is_empty(), "{:?}", String::from_utf8_lossy(&all[begun..len]));
            }
        }
        assert_eq!(Left::parse(&all).expect("it has first lines").recovered.len(), 1);
    }

    #[test]
    fn only_a_first_line_that_says_so_is_of_memory_that_outlives_the_power() {
        let outlives = |line: &str| Left::parse(line.as_bytes()).expect("it has a first line").outlives_power;
        let domains = [false, true].map(|caches_included| Domain::PowerFail { caches_included });
        assert!(domains.iter().all(|domain| outlives(&first_lines("a", "b", *domain))));
        assert!(!outlives("0\nrun a b\n") && !outlives(&first_lines("a", "b", Domain::DiskFile)));
    }

    #[test]
    fn a_line_that_was_written_in_part_spoils_none_behind_it() {
        let (_folder, path, mut journal) = begun();
        journal.log.append(b"\n{\"family\":1,\"pa").expect("appended");
        let named = Named {
            family: 2,
            path: "/c".into(),
            inode: 7,
            born_ns: 1,
            strip: None,
            kind: Kind::File,
            changed: None,
            file_system: None,
        };
        journal.add(&named).expect("added");
        assert_eq!(Left::read(&path).expect("readable").expect("left").holds, [named]);
    }
}
