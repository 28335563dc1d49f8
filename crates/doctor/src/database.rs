//! A database's directory: which database it is of, where it lies, and what its settings mean
//! there.

mod database_parts;
mod log_structured;
mod my_cnf;
mod mysql;
mod postgresql;
mod redis;
mod settings;
mod sqlite;

use crate::answers::{PlaceAnswer, answer_of, is_there};
use crate::failure::DoctorFailure;
use crate::finding::{DoctorFinding, Examination, Level};
use crate::machine_view::MachineView;
use crate::place::{DirectoryPlace, PoolOf};
use rustix::io::Errno;
use settings::FoundSettings;
use sqlite::SqliteFile;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tidegate_file_service::pool_of;

/// Files of a directory that are looked at for databases of SQLite.
const FILES_MAX: usize = 4096;

/// Databases of SQLite that are told of.
const SQLITE_FILES_MAX: usize = 16;

/// Examines the database in `directory`: where it lies, and what its settings mean there.
/// `settings` is its main file of settings, if that is not found beside the data.
pub fn examine_database(directory: &Path, settings: Option<&Path>) -> Result<Examination, DoctorFailure> {
    examine((&MachineView::own(), pool_of), directory, settings)
}

fn examine(
    (view, pool_of): (&MachineView, PoolOf),
    named: &Path,
    settings: Option<&Path>,
) -> Result<Examination, DoctorFailure> {
    let unreadable = |error| DoctorFailure::Unreadable { path: named.to_owned(), error };
    match answer_of(named) {
        PlaceAnswer::Given => {}
        PlaceAnswer::Dead => return Err(unreadable(Errno::NOTCONN.into())),
        PlaceAnswer::Silent => return Err(DoctorFailure::Silent { path: named.to_owned() }),
    }
    let directory = named.canonicalize().map_err(unreadable)?;
    let is_directory = directory.metadata().map_err(unreadable)?.is_dir();
    if !is_directory {
        return Err(DoctorFailure::NoDirectory { path: directory });
    }
    if let Some(path) = settings {
        settings::text_of(path)
            .map_err(|error| DoctorFailure::Settings { path: path.to_owned(), why: error.to_string() })?;
    }
    let found = Recognised::in_directory(&directory).map_err(unreadable)?;
    if found.is_nothing() {
        return Err(DoctorFailure::NotRecognised { path: directory, known: known() });
    }
    let Some(place) = DirectoryPlace::of(view, &directory, pool_of) else {
        return Err(unreadable(io::Error::other("the kernel does not tell what is mounted there")));
    };
    let at = (directory.as_path(), &place);
    let mut findings = vec![place.finding()];
    if found.postgresql {
        findings.extend(postgresql::findings((view, pool_of), at, settings));
    }
    if found.mysql {
        findings.extend(mysql::findings(view, at, settings));
        findings.extend(database_parts::findings((view, pool_of), at, &mysql::parts(view, &directory, settings)));
    }
    if found.redis {
        findings.extend(redis::findings(view, at, settings));
        findings.extend(database_parts::findings((view, pool_of), at, &redis::parts(view, &directory, settings)));
    }
    if found.log_structured {
        findings.extend(log_structured::findings(&directory, settings));
    }
    findings.extend(found.sqlite.iter().flat_map(|file| file.findings(&place)));
    findings.extend(found.left_out());
    Ok(Examination::new(directory.display().to_string(), findings))
}

/// Which databases a directory has files of.
#[derive(Debug, Default)]
struct Recognised {
    postgresql: bool,
    mysql: bool,
    redis: bool,
    log_structured: bool,
    sqlite: Vec<SqliteFile>,
    /// Files that were not looked at, and databases of SQLite that are not told of.
    more: usize,
}

impl Recognised {
    fn in_directory(directory: &Path) -> io::Result<Recognised> {
        let mut names =
            fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
        names.sort();
        let has = |name: &str| is_there(&directory.join(name));
        let (postgresql, mysql) = (has(postgresql::MARK), has(mysql::MARK));
        let mut found = Recognised {
            postgresql,
            mysql,
            log_structured: log_structured::is_store(directory),
            ..Recognised::default()
        };
        found.redis = redis::MARKS.iter().any(|mark| has(mark));
        // Servers' own directories have none, and many files.
        if !postgresql && !mysql {
            found.more = names.len().saturating_sub(FILES_MAX);
            let mut is_stuck = false;
            // One link that leads to a file system without an answer is enough to follow no other.
            let mut answers = |path: &PathBuf| {
                let is_link = path.is_symlink();
                is_stuck = is_stuck || is_link && answer_of(path) == PlaceAnswer::Silent;
                !is_link || !is_stuck
            };
            let (followed, left): (Vec<_>, Vec<_>) = names.iter().take(FILES_MAX).partition(|path| answers(path));
            found.more += left.len();
            let mut files: Vec<_> = followed.into_iter().filter_map(|path| SqliteFile::read(path)).collect();
            found.more += files.len().saturating_sub(SQLITE_FILES_MAX);
            files.truncate(SQLITE_FILES_MAX);
            found.sqlite = files;
        }
        Ok(found)
    }

    fn is_nothing(&self) -> bool {
        !self.postgresql && !self.mysql && !self.redis && !self.log_structured && self.sqlite.is_empty()
    }

    fn left_out(&self) -> Option<DoctorFinding> {
        let found = format!("{} more files are not told of", self.more);
        let why = format!(
            "at most {SQLITE_FILES_MAX} databases of SQLite among {FILES_MAX} files are, and none behind links that do not answer"
        );
        (self.more > 0).then(|| DoctorFinding::ok("left-out", found, why))
    }
}

/// What is recognised, and by which files.
fn known() -> String {
    let redis = redis::MARKS.join(", ");
    format!(
        "PostgreSQL ({}), MariaDB and MySQL ({}), SQLite (a file that begins with its header), Redis and Valkey ({redis}), RocksDB and LevelDB (CURRENT)",
        postgresql::MARK,
        mysql::MARK
    )
}

/// Which files of settings were read, as findings: `lacking` is what helps if there are none.
fn of_files(settings: &FoundSettings, lacking: &str) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let mut files: Vec<_> = settings.files.iter().map(|file| file.display().to_string()).collect();
    let mut seen = BTreeSet::new();
    files.retain(|file| seen.insert(file.clone()));
    if files.is_empty() && settings.gaps.is_empty() {
        findings.push(DoctorFinding::new(
            (Level::Warning, "settings"),
            "no file of settings was found",
            "the findings below hold for the defaults, and the server may have other settings",
            format!("give {lacking}"),
        ));
    } else if !files.is_empty() {
        let why = "what a server was told since it started, and by its environment, is not in files";
        findings.push(DoctorFinding::ok("settings", format!("read from {}", files.join(", ")), why));
    }
    findings.extend(settings.gaps.iter().map(|gap| {
        let why = "settings there are not known, and may be others than those below";
        DoctorFinding::new(
            (Level::Warning, "settings-gap"),
            gap.clone(),
            why,
            "run this as a user who may read the file, or correct the file",
        )
    }));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::level_of;
    use std::os::unix::fs::symlink;

    fn failure(path: &Path) -> DoctorFailure {
        examine_database(path, None).expect_err("nothing to examine")
    }

    #[test]
    fn paths_that_are_no_directories_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        assert!(matches!(failure(&at("none")), DoctorFailure::Unreadable { .. }));
        fs::write(at("file"), "").expect("written");
        assert!(matches!(failure(&at("file")), DoctorFailure::NoDirectory { .. }));
        symlink(at("two"), at("one")).and_then(|()| symlink(at("one"), at("two"))).expect("linked");
        assert!(matches!(failure(&at("one")), DoctorFailure::Unreadable { .. }));
        let DoctorFailure::NotRecognised { known, .. } = failure(folder.path()) else { panic!("it is recognised") };
        assert!(["PG_VERSION", "ibdata1", "SQLite", "dump.rdb", "CURRENT"].iter().all(|mark| known.contains(mark)));
    }

    #[test]
    fn a_named_file_of_settings_has_to_be_readable() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(postgresql::MARK), "15").expect("written");
        let refused = examine_database(folder.path(), Some(Path::new("/dev/zero"))).expect_err("no settings");
        assert!(matches!(refused, DoctorFailure::Settings { .. }));
        let settings = folder.path().join("settings");
        fs::write(&settings, "fsync = off").expect("written");
        assert!(examine_database(folder.path(), Some(&settings)).expect("examined").has_fault());
    }

    #[test]
    fn every_database_is_recognised() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("CURRENT"), "MANIFEST-1\n").expect("written");
        fs::write(at("dump.rdb"), "").expect("written");
        fs::write(at("a.db"), sqlite::tests::header(4096, [2, 2])).expect("written");
        let found = Recognised::in_directory(folder.path()).expect("readable");
        assert!(found.redis && found.log_structured && found.sqlite.len() == 1 && !found.postgresql && !found.mysql);
        assert_eq!(found.left_out(), None);
        (0..20)
            .for_each(|nth| fs::write(at(&format!("{nth}.db")), sqlite::tests::header(4096, [2, 2])).expect("written"));
        let found = Recognised::in_directory(folder.path()).expect("readable");
        assert!(
            found.sqlite.len() == SQLITE_FILES_MAX && found.left_out().is_some_and(|left| left.found.starts_with("5 "))
        );
        fs::write(at("PG_VERSION"), "15").and_then(|()| fs::write(at("ibdata1"), "")).expect("written");
        let found = Recognised::in_directory(folder.path()).expect("readable");
        assert!(found.postgresql && found.mysql && found.sqlite.is_empty());
    }

    #[test]
    fn the_reference_lists_every_subject() {
        let page = include_str!("../../../docs/reference/doctor.md");
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [("PG_VERSION", "15"), ("ibdata1", ""), ("dump.rdb", ""), ("CURRENT", "MANIFEST-1\n")] {
            fs::write(folder.path().join(name), text).expect("written");
        }
        let json = serde_json::to_value(examine_database(folder.path(), None).expect("examined")).expect("JSON");
        let found = json["findings"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|finding| finding["subject"].as_str().expect("text"));
        let others = [
            "journal_mode",
            "page_size",
            "journal-file",
            "commit_delay",
            "log-place",
            "tablespace-place",
            "settings-gap",
            "no-appendfsync-on-rewrite",
            "manual_wal_flush",
            "left-out",
        ];
        for subject in found.chain(others) {
            assert!(page.contains(&format!("| `{subject}`")), "no {subject} in the reference");
        }
    }

    #[test]
    fn settings_that_were_not_read_are_told() {
        let mut settings = FoundSettings::default();
        assert_eq!(level_of(&of_files(&settings, "x"), "settings"), Level::Warning);
        settings.gap(Path::new("/a"), &"no");
        assert_eq!(level_of(&of_files(&settings, "x"), "settings-gap"), Level::Warning);
        settings.files.extend(["/b".into(), "/b".into()]);
        assert_eq!(level_of(&of_files(&settings, "x"), "settings"), Level::Ok);
        assert!(of_files(&settings, "x").iter().any(|found| found.found == "read from /b"));
    }
}
