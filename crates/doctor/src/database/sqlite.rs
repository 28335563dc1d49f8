//! SQLite: what the first bytes of a database tell, and the files beside it.

use crate::finding::{DoctorFinding, Level};
use crate::place::DirectoryPlace;
use std::io::Read;
use std::path::{Path, PathBuf};
use tidegate_host::files::regular;
use tidegate_host::units::Human;

/// What every database begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Bytes of a database's header.
const HEADER_BYTES: usize = 100;

/// Bytes of a mount's blocks.
const BLOCK_BYTES: u32 = 4096;

/// What a header tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SqliteFile {
    path: PathBuf,
    page_bytes: u32,
    journal: SqliteJournal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SqliteJournal {
    Rollback,
    WriteAhead,
    /// Versions of the format that SQLite does not have yet, or damage.
    Unknown,
}

impl SqliteFile {
    /// The database in the file at `path`, if it is one.
    pub(super) fn read(path: &Path) -> Option<SqliteFile> {
        let mut file = regular::open(path).ok()?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header).ok()?;
        SqliteFile::of_header(path, &header)
    }

    fn of_header(path: &Path, header: &[u8; HEADER_BYTES]) -> Option<SqliteFile> {
        header.starts_with(MAGIC).then_some(())?;
        let page_bytes = match u16::from_be_bytes([header[16], header[17]]) {
            1 => 65536,
            bytes => u32::from(bytes),
        };
        let journal = match (header[18], header[19]) {
            (1, 1) => SqliteJournal::Rollback,
            (2, 2) => SqliteJournal::WriteAhead,
            _ => SqliteJournal::Unknown,
        };
        Some(SqliteFile { path: path.to_owned(), page_bytes, journal })
    }

    /// Everything about the database, which lies at `place`.
    pub(super) fn findings(&self, place: &DirectoryPlace) -> Vec<DoctorFinding> {
        let found = format!("{} is a database of SQLite", self.path.display());
        let why = "recognised by its header; PRAGMA synchronous is each program's own, and no file tells it";
        let mut findings = vec![DoctorFinding::ok("database", found, why), self.journal(place), self.pages(place)];
        findings.extend(self.beside());
        findings
    }

    fn journal(&self, place: &DirectoryPlace) -> DoctorFinding {
        let (subject, path) = ("journal_mode", self.path.display());
        match self.journal {
            SqliteJournal::WriteAhead => DoctorFinding::ok(
                subject,
                format!("{path} has a write-ahead log"),
                "with PRAGMA synchronous = FULL each commit is one sync of the log; with NORMAL a power loss takes the last commits, and the database stays whole",
            ),
            SqliteJournal::Rollback if place.is_mount() => DoctorFinding::new(
                (Level::Advice, subject),
                format!("{path} has a rollback journal"),
                "pages are written twice, and a commit takes several syncs; in a mount the VFS of Tidegate commits them as one atomic group, without a journal in a file",
                "load /usr/lib/tidegate/libtidegate_sqlite.so and open the database as file:NAME?vfs=tidegate; or PRAGMA journal_mode = WAL",
            ),
            SqliteJournal::Rollback => DoctorFinding::ok(
                subject,
                format!("{path} has a rollback journal"),
                "a commit is safe unless a program sets journal_mode to MEMORY or OFF, which the file does not tell",
            ),
            SqliteJournal::Unknown => DoctorFinding::new(
                (Level::Fault, subject),
                format!("{path} has a header that SQLite 3 does not write"),
                "its versions for reading and writing are not known: it is newer, or damaged",
                "check a copy of it: sqlite3 COPY \"PRAGMA integrity_check\"",
            ),
        }
    }

    fn pages(&self, place: &DirectoryPlace) -> DoctorFinding {
        let (subject, bytes) = ("page_size", self.page_bytes);
        let found = format!("{} has pages of {}", self.path.display(), Human(bytes.into()));
        if !bytes.is_power_of_two() || bytes < 512 {
            let why = "SQLite has pages of 512 bytes to 64 KiB: the header is damaged";
            return DoctorFinding::new(
                (Level::Fault, subject),
                found,
                why,
                "check a copy of it: sqlite3 COPY \"PRAGMA integrity_check\"",
            );
        }
        if bytes < BLOCK_BYTES && place.is_mount() {
            let why = "a mount has blocks of 4 KiB: each change of a smaller page reads and writes a whole block";
            let fix = "PRAGMA page_size = 4096, and VACUUM while the journal is no write-ahead log";
            return DoctorFinding::new((Level::Advice, subject), found, why, fix);
        }
        DoctorFinding::ok(subject, found, "the journal or log protects pages that a power loss tears")
    }

    /// A journal or a log that belongs to the database.
    fn beside(&self) -> Option<DoctorFinding> {
        let bytes = |suffix: &str| {
            let mut name = self.path.clone().into_os_string();
            name.push(suffix);
            Some((suffix.to_owned(), PathBuf::from(name).metadata().ok()?.len()))
        };
        let (suffix, bytes) = ["-journal", "-wal"].into_iter().filter_map(bytes).find(|(_, bytes)| *bytes > 0)?;
        let found = format!("{}{suffix} has {}", self.path.display(), Human(bytes));
        Some(DoctorFinding::ok(
            "journal-file",
            found,
            "it belongs to the database: copy, move and back up both together",
        ))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::finding::tests::level_of;

    /// A header with these pages and versions.
    pub(crate) fn header(page: u16, versions: [u8; 2]) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..16].copy_from_slice(MAGIC);
        header[16..18].copy_from_slice(&page.to_be_bytes());
        header[18..20].copy_from_slice(&versions);
        header
    }

    fn levels(page: u16, versions: [u8; 2], place: &DirectoryPlace) -> (Level, Level) {
        let file = SqliteFile::of_header(Path::new("/a.db"), &header(page, versions)).expect("a database");
        let findings = file.findings(place);
        (level_of(&findings, "journal_mode"), level_of(&findings, "page_size"))
    }

    #[test]
    fn journals_and_pages_are_judged_by_the_place() {
        let disk = DirectoryPlace::Foreign { kind: "disk".to_owned() };
        let mount = DirectoryPlace::Mount { mountpoint: "/m".into(), pool: None, domain: None };
        for (page, versions, on_disk, on_mount) in [
            (4096, [2, 2], (Level::Ok, Level::Ok), (Level::Ok, Level::Ok)),
            (4096, [1, 1], (Level::Ok, Level::Ok), (Level::Advice, Level::Ok)),
            (1024, [2, 2], (Level::Ok, Level::Ok), (Level::Ok, Level::Advice)),
            (1, [2, 2], (Level::Ok, Level::Ok), (Level::Ok, Level::Ok)),
            (1000, [3, 1], (Level::Fault, Level::Fault), (Level::Fault, Level::Fault)),
        ] {
            assert_eq!(levels(page, versions, &disk), on_disk, "{page} {versions:?}");
            assert_eq!(levels(page, versions, &mount), on_mount, "{page} {versions:?}");
        }
    }

    #[test]
    fn only_databases_are_recognised_and_their_journals_with_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a.db"), header(4096, [1, 1])).expect("written");
        std::fs::write(at("short"), MAGIC).expect("written");
        std::fs::write(at("text"), [b'x'; 200]).expect("written");
        let file = SqliteFile::read(&at("a.db")).expect("a database");
        assert_eq!(["short", "text", "none"].map(|name| SqliteFile::read(&at(name))), [None, None, None]);
        assert_eq!((SqliteFile::read(folder.path()), file.beside()), (None, None));
        std::fs::write(at("a.db-journal"), "x").expect("written");
        assert!(file.beside().is_some_and(|found| found.found.contains("a.db-journal")));
    }
}
