//! RocksDB and LevelDB: stores of sorted files and a log, with few settings in files.

use crate::database::settings::{FoundSettings, text_of};
use crate::finding::{DoctorFinding, Level};
use std::path::{Path, PathBuf};

/// Whether `directory` has such a store: `CURRENT` names the list of its files.
pub(super) fn is_store(directory: &Path) -> bool {
    text_of(&directory.join("CURRENT")).is_ok_and(|text| text.starts_with("MANIFEST-"))
}

/// Everything that files tell about the store in `directory`.
pub(super) fn findings(directory: &Path, named: Option<&Path>) -> Vec<DoctorFinding> {
    let options = named.map(Path::to_owned).or_else(|| newest_options(directory));
    let name = if options.is_some() { "RocksDB" } else { "LevelDB, or of a RocksDB without OPTIONS" };
    let mut findings = vec![DoctorFinding::ok("database", format!("a store of {name}"), "recognised by CURRENT")];
    findings.push(DoctorFinding::ok(
        "write-sync",
        "whether writes are synced is not known",
        "each write says so (WriteOptions::sync), and no file tells it; without a sync a power loss takes the last writes, and the store stays whole",
    ));
    let Some(options) = options else { return findings };
    let settings = settings(&options);
    if !settings.gaps.is_empty() {
        findings.extend(super::of_files(&settings, "OPTIONS, named by --settings FILE"));
    }
    findings.extend(manual_wal_flush(&settings));
    findings
}

/// The file of options that was written last.
fn newest_options(directory: &Path) -> Option<PathBuf> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("OPTIONS-")?.parse::<u64>().ok();
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    entries.map(|entry| entry.path()).filter(|path| number(path).is_some()).max_by_key(number)
}

fn settings(path: &Path) -> FoundSettings {
    let mut found = FoundSettings::default();
    let text = found.read(path, 0).unwrap_or_default();
    for (at, line) in text.lines().enumerate() {
        if let Some((name, value)) = line.split_once('=').filter(|(name, _)| !name.trim().starts_with('#')) {
            found.set(name.trim(), value.trim(), (path, at + 1));
        }
    }
    found
}

fn is_set(settings: &FoundSettings, name: &str) -> bool {
    settings.value(name, "false") == "true"
}

fn manual_wal_flush(settings: &FoundSettings) -> Option<DoctorFinding> {
    let name = "manual_wal_flush";
    is_set(settings, name).then(|| {
        let why =
            "the log waits in the program's memory: even a kill of the program takes writes, unless it calls FlushWAL";
        DoctorFinding::new(
            (Level::Warning, name),
            settings.shown(name, "false"),
            why,
            "open the store with manual_wal_flush = false",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::level_of;
    use std::fs;

    fn store(options: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("CURRENT"), "MANIFEST-000004\n").expect("written");
        fs::write(folder.path().join("OPTIONS-000005"), "[DBOptions]\n  manual_wal_flush=true\n").expect("written");
        fs::write(folder.path().join("OPTIONS-000017"), options).expect("written");
        folder
    }

    #[test]
    fn options_of_the_newest_file_count() {
        let name = "manual_wal_flush";
        let on = store(&format!("# x\n[DBOptions]\n  {name}=true\n"));
        assert_eq!(level_of(&findings(on.path(), None), name), Level::Warning);
        for options in [format!("[DBOptions]\n  {name}=false\n"), format!("#{name}=true")] {
            let off = store(&options);
            assert!(!findings(off.path(), None).iter().any(|found| found.subject == name), "{options}");
        }
    }

    #[test]
    fn options_that_cannot_be_read_are_told() {
        let folder = store("\0");
        assert_eq!(level_of(&findings(folder.path(), None), "settings-gap"), Level::Warning);
    }

    #[test]
    fn stores_are_known_by_their_list_and_their_options() {
        let folder = store("");
        assert!(is_store(folder.path()) && !is_store(Path::new("/")));
        for name in ["OPTIONS-000005", "OPTIONS-000017"] {
            fs::remove_file(folder.path().join(name)).expect("removed");
        }
        assert!(findings(folder.path(), None)[0].found.contains("LevelDB"));
    }
}
