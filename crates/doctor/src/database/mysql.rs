//! MariaDB and MySQL: settings of InnoDB and of the binary log.

use crate::database::settings::{FoundSettings, files_in};
use crate::finding::{DoctorFinding, Level};
use crate::machine_view::MachineView;
use crate::place::DirectoryPlace;
use std::path::{Path, PathBuf};
use tidegate_host::default_paths::is_same_file;

/// What a directory of either has in it.
pub(super) const MARK: &str = "ibdata1";

/// Where the servers look for settings first and last, of those that name a directory.
const OF_MACHINE: [&str; 3] = ["/etc/my.cnf", "/etc/mysql/my.cnf", "/etc/mysql/mariadb.cnf"];

/// The directory of both, unless a file says otherwise.
const USUAL: &str = "/var/lib/mysql";

/// Which of the two made a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flavour {
    MariaDb,
    MySql,
}

impl Flavour {
    fn of(directory: &Path) -> Flavour {
        if directory.join("mysql.ibd").exists() { Flavour::MySql } else { Flavour::MariaDb }
    }

    fn name(self) -> &'static str {
        match self {
            Flavour::MariaDb => "MariaDB",
            Flavour::MySql => "MySQL",
        }
    }
}

/// Everything about the databases in `directory`, which lies at `place`.
pub(super) fn findings(
    view: &MachineView,
    (directory, place): (&Path, &DirectoryPlace),
    named: Option<&Path>,
) -> Vec<DoctorFinding> {
    let flavour = Flavour::of(directory);
    let settings = settings(view, directory, named);
    let database = format!("databases of {}", flavour.name());
    let mut findings = vec![DoctorFinding::ok("database", database, "recognised by ibdata1")];
    findings.extend(super::of_files(&settings, "my.cnf, named by --settings FILE"));
    findings.push(doublewrite(&settings, place));
    findings.push(log_flush(&settings, place));
    findings.push(flush_method(&settings, place));
    findings.push(binary_log(&settings, flavour, place));
    findings
}

/// The settings that are for a server of `directory`.
fn settings(view: &MachineView, directory: &Path, named: Option<&Path>) -> FoundSettings {
    let beside = [directory.join("my.cnf"), directory.parent().unwrap_or(directory).join("my.cnf")];
    if let Some(main) = named.map(Path::to_owned).or_else(|| beside.into_iter().find(|file| file.is_file())) {
        let mut found = FoundSettings::default();
        read(&mut found, &main, 0);
        return found;
    }
    let mut found = FoundSettings::default();
    for file in OF_MACHINE.map(|file| view.at(file)).iter().filter(|file| file.is_file()) {
        read(&mut found, file, 0);
    }
    let of = found.value("datadir", USUAL);
    if is_same_file(Path::new(of), directory) { found } else { FoundSettings::default() }
}

fn read(found: &mut FoundSettings, path: &Path, depth: usize) {
    if found.files.iter().any(|file| file == path) {
        return;
    }
    let Some(text) = found.read(path, depth) else { return };
    let mut is_of_server = false;
    for (at, line) in text.lines().map(str::trim).enumerate() {
        if let Some(file) = line.strip_prefix("!includedir") {
            match files_in(Path::new(file.trim()), ".cnf") {
                Ok(files) => files.iter().for_each(|file| read(found, file, depth + 1)),
                Err(error) => found.gap(Path::new(file.trim()), &error),
            }
        } else if let Some(file) = line.strip_prefix("!include") {
            read(found, &PathBuf::from(file.trim()), depth + 1);
        } else if let Some(group) = line.strip_prefix('[') {
            is_of_server = is_for_server(group.split(']').next().unwrap_or_default());
        } else if is_of_server && let Some((name, value)) = parsed(line) {
            found.set(&name, &value, (path, at + 1));
        }
    }
}

/// Whether servers read this group: `mysqld`, `mariadb-10.11` and so on.
fn is_for_server(group: &str) -> bool {
    let name = group.split('-').next().unwrap_or_default();
    ["mysqld", "server", "mariadb", "mariadbd"].contains(&name)
}

/// A line `name = value`; dashes are underscores, and `skip-name` is `name = OFF`.
fn parsed(line: &str) -> Option<(String, String)> {
    if line.is_empty() || line.starts_with(['#', ';']) {
        return None;
    }
    let (name, value) = line.split_once('=').unwrap_or((line, "ON"));
    let value = value.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\'']);
    let name = name.trim().to_ascii_lowercase().replace('-', "_");
    let name = name.strip_prefix("loose_").map_or(name.clone(), str::to_owned);
    Some(match name.strip_prefix("skip_") {
        Some(skipped) => (skipped.to_owned(), "OFF".to_owned()),
        None => (name, value.to_owned()),
    })
}

fn is_off(value: &str) -> bool {
    ["off", "0", "false"].contains(&&*value.to_ascii_lowercase())
}

fn set(name: &str, value: &str) -> String {
    format!("write {name} = {value} below [mysqld], and restart the server")
}

const CHEAP_HERE: &str = "most syncs of this mount wait for memory alone, so that little time is saved";

fn with_cost(why: &str, place: &DirectoryPlace) -> String {
    if place.is_mount() { format!("{why}; {CHEAP_HERE}") } else { why.to_owned() }
}

fn doublewrite(settings: &FoundSettings, place: &DirectoryPlace) -> DoctorFinding {
    let (name, shown) = ("innodb_doublewrite", settings.shown("innodb_doublewrite", "ON"));
    let (value, tear) = (settings.value(name, "ON").to_ascii_lowercase(), place.pages_may_tear());
    let fault = |why: String| DoctorFinding::new((Level::Fault, name), shown.clone(), why, set(name, "ON"));
    match value.as_str() {
        "detect_only" => fault(format!("torn pages of 16 KiB are found and not repaired; {tear}")),
        value if is_off(value) => {
            fault(format!("a page of 16 KiB that was torn cannot be repaired without it; {tear}"))
        }
        _ => DoctorFinding::ok(name, shown, format!("keep it on: {tear}")),
    }
}

fn log_flush(settings: &FoundSettings, place: &DirectoryPlace) -> DoctorFinding {
    let name = "innodb_flush_log_at_trx_commit";
    let shown = settings.shown(name, "1");
    let why = match settings.value(name, "1") {
        "1" | "3" => return DoctorFinding::ok(name, shown, "a commit returns when its log is synced"),
        "0" => "even a kill of the server takes the transactions of about the last second",
        "2" => "a power loss or a crash of the kernel takes the transactions of about the last second",
        _ => "the server does not know this value",
    };
    DoctorFinding::new((Level::Warning, name), shown, with_cost(why, place), set(name, "1"))
}

fn flush_method(settings: &FoundSettings, place: &DirectoryPlace) -> DoctorFinding {
    let name = "innodb_flush_method";
    let shown = match settings.get(name) {
        Some(_) => settings.shown(name, ""),
        None => format!("{name} is not set: its default depends on the version"),
    };
    match settings.value(name, "").to_ascii_lowercase().as_str() {
        "nosync" | "littlesync" => {
            let why = "data files are not synced: a power loss or a crash of the kernel may damage them";
            DoctorFinding::new((Level::Fault, name), shown, why, set(name, "fsync"))
        }
        "o_direct_no_fsync" if place.is_mount() => {
            let why =
                "written pages wait in DRAM of the mount for a sync that is left out, and a power loss takes them";
            DoctorFinding::new((Level::Fault, name), shown, why, set(name, "fsync"))
        }
        "o_direct_no_fsync" => {
            let why = "a disk with a volatile cache loses pages with the power, as they are never synced";
            DoctorFinding::new((Level::Warning, name), shown, why, set(name, "O_DIRECT"))
        }
        "o_direct" if place.is_mount() => {
            let why = "a direct write to bytes that the pool has not goes to SOURCE, and the next sync waits for it";
            DoctorFinding::new((Level::Advice, name), shown, why, set(name, "fsync"))
        }
        _ => DoctorFinding::ok(name, shown, "written pages are synced"),
    }
}

fn binary_log(settings: &FoundSettings, flavour: Flavour, place: &DirectoryPlace) -> DoctorFinding {
    let (name, default) = ("sync_binlog", if flavour == Flavour::MariaDb { "0" } else { "1" });
    let is_absent = match settings.get("log_bin") {
        Some(setting) => is_off(&setting.value),
        None => flavour == Flavour::MariaDb,
    };
    if is_absent {
        return DoctorFinding::ok(name, "there is no binary log", "it would be synced as sync_binlog says");
    }
    let shown = settings.shown(name, default);
    if settings.value(name, default) == "1" {
        return DoctorFinding::ok(name, shown, "each commit syncs the binary log");
    }
    let why = with_cost("a power loss takes the last transactions from the binary log, so that replicas differ", place);
    DoctorFinding::new((Level::Warning, name), shown, why, set(name, "1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::level_of;
    use crate::machine_view::tests::MadeMachine;
    use std::fs;

    fn disk() -> DirectoryPlace {
        DirectoryPlace::Foreign { kind: "disk".to_owned() }
    }

    fn mount() -> DirectoryPlace {
        DirectoryPlace::Mount { mountpoint: "/m".into(), pool: None, domain: None }
    }

    fn found(settings: &str, place: &DirectoryPlace) -> Vec<DoctorFinding> {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("my.cnf"), settings).expect("written");
        findings(&MadeMachine::new().view(), (folder.path(), place), None)
    }

    #[test]
    fn each_setting_is_found_in_both_directions() {
        for (setting, subject, level) in [
            ("", "innodb_doublewrite", Level::Ok),
            ("innodb-doublewrite = 0", "innodb_doublewrite", Level::Fault),
            ("skip-innodb-doublewrite", "innodb_doublewrite", Level::Fault),
            ("innodb_doublewrite = DETECT_ONLY", "innodb_doublewrite", Level::Fault),
            ("loose_innodb_doublewrite = 1", "innodb_doublewrite", Level::Ok),
            ("", "innodb_flush_log_at_trx_commit", Level::Ok),
            ("innodb_flush_log_at_trx_commit = 2", "innodb_flush_log_at_trx_commit", Level::Warning),
            ("innodb_flush_log_at_trx_commit=0", "innodb_flush_log_at_trx_commit", Level::Warning),
            ("innodb_flush_method = nosync", "innodb_flush_method", Level::Fault),
            ("innodb_flush_method = fsync", "innodb_flush_method", Level::Ok),
            ("log-bin\nsync_binlog = 1", "sync_binlog", Level::Ok),
            ("log-bin", "sync_binlog", Level::Warning),
            ("sync_binlog = 0", "sync_binlog", Level::Ok),
        ] {
            for place in [disk(), mount()] {
                let findings = found(&format!("[mysqld]\n{setting}\n"), &place);
                assert_eq!(level_of(&findings, subject), level, "{setting} on {place:?}");
            }
        }
    }

    #[test]
    fn direct_writes_are_judged_by_the_place() {
        for (value, on_disk, on_mount) in
            [("O_DIRECT", Level::Ok, Level::Advice), ("O_DIRECT_NO_FSYNC", Level::Warning, Level::Fault)]
        {
            let of = |place| {
                level_of(&found(&format!("[mysqld]\ninnodb_flush_method={value}"), &place), "innodb_flush_method")
            };
            assert_eq!((of(disk()), of(mount())), (on_disk, on_mount), "{value}");
        }
    }

    #[test]
    fn only_groups_of_the_server_count_and_files_include_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("d")).expect("made");
        fs::write(at("d/1.cnf"), "[mariadb-10.11]\nsync-binlog=7 # x\n").expect("written");
        let text = format!(
            "sync_binlog=1\n[client]\nsync_binlog=2\n[mysqld]\na='b'\n!includedir {}\n!include {}\n",
            at("d").display(),
            at("main").display()
        );
        fs::write(at("main"), text).expect("written");
        let mut found = FoundSettings::default();
        read(&mut found, &at("main"), 0);
        assert_eq!((found.value("sync_binlog", "?"), found.value("a", "?")), ("7", "b"));
        assert_eq!((found.files.len(), found.gaps.len()), (2, 0));
        assert!(is_for_server("mysqld-8.0") && !is_for_server("mysqldump") && !is_for_server("client"));
    }

    #[test]
    fn mysql_syncs_its_binary_log_unless_told_otherwise() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("mysql.ibd"), "").expect("written");
        let findings = findings(&MadeMachine::new().view(), (folder.path(), &disk()), None);
        assert_eq!(level_of(&findings, "sync_binlog"), Level::Ok);
        assert_eq!(level_of(&findings, "settings"), Level::Warning);
    }

    #[test]
    fn the_machines_file_counts_for_the_directory_that_it_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().join("data");
        fs::create_dir(&directory).expect("made");
        let machine = MadeMachine::new();
        machine.write("/etc/my.cnf", &format!("[mysqld]\ndatadir = {}\nsync_binlog = 5\n", directory.display()));
        assert_eq!(settings(&machine.view(), &directory, None).value("sync_binlog", "?"), "5");
        assert_eq!(settings(&machine.view(), Path::new("/usr"), None).value("sync_binlog", "?"), "?");
    }
}
