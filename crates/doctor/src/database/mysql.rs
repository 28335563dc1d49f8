//! MariaDB and MySQL: settings of InnoDB and of the binary log.

use crate::answers::is_there;
use crate::database::database_parts::{self, DatabasePart};
use crate::database::my_cnf::{self, is_off};
use crate::database::settings::FoundSettings;
use crate::finding::{DoctorFinding, Level};
use crate::machine_view::MachineView;
use crate::place::DirectoryPlace;
use std::path::{Path, PathBuf};

/// What a directory of either has in it.
pub(super) const MARK: &str = "ibdata1";

/// Which of the two made a directory, as far as its files tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flavour {
    MariaDb,
    /// MySQL 8.0 or newer.
    MySql,
    /// MySQL 5.7.7 or newer, which has the schema `sys`.
    MySql57,
    /// MySQL before that, or one that lacks the schema.
    OlderMySql,
    Unknown,
}

impl Flavour {
    fn of(directory: &Path) -> Flavour {
        let has = |name: &str| is_there(&directory.join(name));
        if has("mysql.ibd") {
            Flavour::MySql
        } else if has("aria_log_control") {
            Flavour::MariaDb
        } else if !has("auto.cnf") && !has("mysql/user.frm") {
            Flavour::Unknown
        } else if has("sys") {
            Flavour::MySql57
        } else {
            Flavour::OlderMySql
        }
    }

    fn name(self) -> &'static str {
        match self {
            Flavour::MariaDb => "MariaDB",
            Flavour::MySql => "MySQL",
            Flavour::MySql57 => "MySQL 5.7",
            Flavour::OlderMySql => "MySQL 5",
            Flavour::Unknown => "MariaDB or MySQL",
        }
    }

    /// What `sync_binlog` is unless it is set. `None`: it depends on the version.
    fn usual_sync_binlog(self) -> Option<&'static str> {
        match self {
            Flavour::MariaDb => Some("0"),
            Flavour::MySql | Flavour::MySql57 => Some("1"),
            Flavour::OlderMySql | Flavour::Unknown => None,
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
    let (settings, of_files) = settings((view, flavour), directory, named);
    let database = format!("databases of {}", flavour.name());
    let mut findings = vec![DoctorFinding::ok("database", database, "recognised by ibdata1")];
    findings.extend(of_files);
    findings.push(odd_doublewrite(&settings, place).unwrap_or_else(|| doublewrite(&settings, place)));
    findings.push(log_flush(&settings, place));
    findings.push(flush_method(&settings, place));
    findings.push(binary_log(&settings, flavour, place));
    for finding in findings.iter_mut().filter(|finding| my_cnf::is_persisted(&settings, finding.subject)) {
        let name = finding.subject;
        finding.fix = finding.fix.take().map(|fix| format!("mysql -e 'RESET PERSIST {name}', and {fix}"));
    }
    findings
}

/// All settings, and which files they were read from, as findings.
fn settings(
    (view, flavour): (&MachineView, Flavour),
    directory: &Path,
    named: Option<&Path>,
) -> (FoundSettings, Vec<DoctorFinding>) {
    let lacking = "my.cnf, named by --settings FILE";
    let mut settings = my_cnf::settings(view, directory, named);
    let is_read = |settings: &FoundSettings| !settings.files.is_empty() || !settings.gaps.is_empty();
    // What a server was told to remember is no my.cnf.
    let mut findings = if is_read(&settings) { Vec::new() } else { super::of_files(&settings, lacking) };
    if flavour != Flavour::MariaDb {
        my_cnf::add_persisted(&mut settings, directory);
    }
    if is_read(&settings) {
        findings.extend(super::of_files(&settings, lacking));
    }
    (settings, findings)
}

/// Settings that name a directory of the data.
const DATA_DIRECTORIES: [&str; 3] = ["innodb_undo_directory", "innodb_data_home_dir", "innodb_doublewrite_dir"];

/// Parts of the databases in `directory` that may lie elsewhere.
pub(super) fn parts(view: &MachineView, directory: &Path, named: Option<&Path>) -> Vec<DatabasePart> {
    let (settings, _) = settings((view, Flavour::of(directory)), directory, named);
    let shown = |name: &str| settings.shown(name, "");
    let named = |name: &str, part: fn(PathBuf) -> DatabasePart| {
        let path = settings.get(name).filter(|set| !set.value.is_empty())?;
        Some(part(directory.join(&path.value)).named_by(shown(name)))
    };
    let data = DATA_DIRECTORIES.iter().filter_map(|name| named(name, DatabasePart::data));
    let mut parts: Vec<_> = named("innodb_log_group_home_dir", DatabasePart::log).into_iter().chain(data).collect();
    let log = settings.get("log_bin").and_then(|log| Some(directory.join(&log.value).parent()?.to_owned()));
    parts.extend(log.map(|folder| DatabasePart::log(folder).named_by(shown("log_bin"))));
    let home = directory.join(settings.value("innodb_data_home_dir", ""));
    let files = settings.value("innodb_data_file_path", "").split(';').filter_map(|file| file.split(':').next());
    let files = files.filter(|file| !file.is_empty());
    let folders = files.filter_map(|file| Some(home.join(file).parent()?.to_owned()));
    parts.extend(folders.map(|folder| DatabasePart::data(folder).named_by(shown("innodb_data_file_path"))));
    parts.push(DatabasePart::log(directory.join("#innodb_redo")));
    parts.extend(
        database_parts::inside(view, directory).into_iter().filter(|path| !path.ends_with("#innodb_temp")).map(
            |path| {
                if path.ends_with("#innodb_redo") { DatabasePart::log(path) } else { DatabasePart::data(path) }
            },
        ),
    );
    parts
}

fn set(name: &str, value: &str) -> String {
    format!("write {name} = {value} below [mysqld], and restart the server")
}

const CHEAP_HERE: &str = "most syncs of this mount wait for memory alone, so that little time is saved";

fn with_cost(why: &str, place: &DirectoryPlace) -> String {
    if place.is_mount() { format!("{why}; {CHEAP_HERE}") } else { why.to_owned() }
}

/// What is found of `innodb_doublewrite` if it is neither on nor off.
fn odd_doublewrite(settings: &FoundSettings, place: &DirectoryPlace) -> Option<DoctorFinding> {
    let (name, shown) = ("innodb_doublewrite", settings.shown("innodb_doublewrite", "ON"));
    let value = settings.value(name, "ON").to_ascii_lowercase();
    if value == "fast" {
        return Some(unsynced((name, shown), place, set(name, "ON")));
    }
    let is_known = ["on", "1", "true", "detect_and_recover", "detect_only"].contains(&&*value) || is_off(&value);
    (!is_known).then(|| {
        let why = "the server may not know this value, and either does not start or takes another";
        DoctorFinding::new((Level::Warning, name), shown, why, set(name, "ON"))
    })
}

/// Pages are written, and their files not synced.
fn unsynced((name, shown): (&'static str, String), place: &DirectoryPlace, fix: String) -> DoctorFinding {
    if place.is_mount() {
        let why = "written pages wait in DRAM of the mount for a sync that is left out, and a power loss takes them";
        return DoctorFinding::new((Level::Fault, name), shown, why, fix);
    }
    let why = "a disk with a volatile cache loses pages with the power, as they are never synced";
    DoctorFinding::new((Level::Warning, name), shown, why, fix)
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
    let value = settings.value(name, "");
    if value.is_empty() {
        return DoctorFinding::ok(name, shown, "written pages are synced");
    }
    match flush_method_of(value) {
        Some("nosync" | "littlesync") => {
            let why = "data files are not synced: a power loss or a crash of the kernel may damage them";
            DoctorFinding::new((Level::Fault, name), shown, why, set(name, "fsync"))
        }
        Some("o_direct_no_fsync") => {
            let fix = set(name, if place.is_mount() { "fsync" } else { "O_DIRECT" });
            unsynced((name, shown), place, fix)
        }
        Some("o_direct" | "all_o_direct") if place.is_mount() => {
            let why = "a direct write to bytes that the pool has not goes to SOURCE, and the next sync waits for it";
            DoctorFinding::new((Level::Advice, name), shown, why, set(name, "fsync"))
        }
        Some(_) => DoctorFinding::ok(name, shown, "written pages are synced"),
        None => {
            let why = "the server does not know this value: it does not start, or whether it syncs pages is not known";
            DoctorFinding::new((Level::Warning, name), shown, why, set(name, "fsync"))
        }
    }
}

/// Methods in the order of their numbers, and then those of other versions.
const FLUSH_METHODS: [&str; 8] =
    ["fsync", "o_dsync", "littlesync", "nosync", "o_direct", "o_direct_no_fsync", "fdatasync", "all_o_direct"];

/// The method that a value means: its name, the beginning of one name alone, or its number.
fn flush_method_of(value: &str) -> Option<&'static str> {
    let value = value.to_ascii_lowercase();
    if let Ok(number) = value.parse::<usize>() {
        return FLUSH_METHODS[..6].get(number).copied();
    }
    let named = FLUSH_METHODS.iter().find(|method| **method == value);
    let mut begins = FLUSH_METHODS.iter().filter(|method| method.starts_with(&value));
    named.or_else(|| begins.next().filter(|_| begins.next().is_none())).copied()
}

fn binary_log(settings: &FoundSettings, flavour: Flavour, place: &DirectoryPlace) -> DoctorFinding {
    let name = "sync_binlog";
    let is_absent = match settings.get("log_bin") {
        Some(setting) => is_off(&setting.value),
        None => flavour != Flavour::MySql,
    };
    if is_absent {
        return DoctorFinding::ok(name, "there is no binary log", "it would be synced as sync_binlog says");
    }
    let usual = flavour.usual_sync_binlog();
    let shown = match (settings.get(name), usual) {
        (None, None) => format!("{name} is not set: its default is 1 since MySQL 5.7.7, and 0 before and in MariaDB"),
        _ => settings.shown(name, usual.unwrap_or_default()),
    };
    if settings.value(name, usual.unwrap_or_default()) == "1" {
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
    fn mysql_syncs_its_binary_log_unless_told_otherwise() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("mysql.ibd"), "").expect("written");
        let findings = findings(&MadeMachine::new().view(), (folder.path(), &disk()), None);
        assert_eq!(level_of(&findings, "sync_binlog"), Level::Ok);
        assert_eq!(level_of(&findings, "settings"), Level::Warning);
    }

    #[test]
    fn values_that_no_server_knows_are_warned_of() {
        for (setting, subject, on_disk, on_mount) in [
            ("innodb_doublewrite = OFF\t# fast", "innodb_doublewrite", Level::Fault, Level::Fault),
            ("disable-innodb-doublewrite", "innodb_doublewrite", Level::Fault, Level::Fault),
            ("innodb_doublewrite = perhaps", "innodb_doublewrite", Level::Warning, Level::Warning),
            ("innodb_doublewrite = 2", "innodb_doublewrite", Level::Warning, Level::Warning),
            ("innodb_doublewrite = fast", "innodb_doublewrite", Level::Warning, Level::Fault),
            ("innodb_flush_method = 3", "innodb_flush_method", Level::Fault, Level::Fault),
            ("innodb_flush_method = nos", "innodb_flush_method", Level::Fault, Level::Fault),
            ("innodb_flush_method = 5", "innodb_flush_method", Level::Warning, Level::Fault),
            ("innodb_flush_method = 4", "innodb_flush_method", Level::Ok, Level::Advice),
            ("innodb_flush_method = 6", "innodb_flush_method", Level::Warning, Level::Warning),
            ("innodb_flush_method = unbuffered", "innodb_flush_method", Level::Warning, Level::Warning),
            ("innodb_flush_method = O_D", "innodb_flush_method", Level::Warning, Level::Warning),
        ] {
            let of = |place| level_of(&found(&format!("[mysqld]\n{setting}\n"), &place), subject);
            assert_eq!((of(disk()), of(mount())), (on_disk, on_mount), "{setting}");
        }
    }

    #[test]
    fn what_mysql_was_told_to_remember_is_judged() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(
            at("mysqld-auto.cnf"),
            r#"{"Version": 2, "mysql_static_variables": {"innodb_doublewrite": {"Value": "OFF"}}}"#,
        )
        .expect("written");
        let told = || findings(&MadeMachine::new().view(), (folder.path(), &disk()), None);
        assert_eq!(level_of(&told(), "innodb_doublewrite"), Level::Fault);
        let fix = told().into_iter().find(|found| found.level == Level::Fault).and_then(|found| found.fix);
        assert!(fix.is_some_and(|fix| fix.starts_with("mysql -e 'RESET PERSIST innodb_doublewrite', and write ")));
        let lacks = |found: &DoctorFinding| found.subject == "settings" && found.level == Level::Warning;
        assert!(told().iter().any(lacks), "there is no my.cnf");
        fs::write(at("my.cnf"), "[mysqld]\ninnodb_doublewrite = ON\n").expect("written");
        assert_eq!((level_of(&told(), "innodb_doublewrite"), level_of(&told(), "settings")), (Level::Fault, Level::Ok));
        fs::write(at("aria_log_control"), "").expect("written");
        assert_eq!(level_of(&told(), "innodb_doublewrite"), Level::Ok, "MariaDB does not read it");
    }

    #[test]
    fn the_default_of_the_binary_log_is_that_of_the_server_that_made_the_directory() {
        let told = |names: &[&str]| {
            let folder = tempfile::tempdir().expect("a folder");
            for name in names.iter().chain(&["my.cnf"]) {
                let path = folder.path().join(name);
                fs::create_dir_all(path.parent().expect("a folder")).expect("made");
                fs::write(path, "[mysqld]\nlog_bin\n").expect("written");
            }
            let findings = findings(&MadeMachine::new().view(), (folder.path(), &disk()), None);
            let binary_log = findings.iter().find(|found| found.subject == "sync_binlog").expect("it is told");
            (findings[0].found.clone(), binary_log.level, binary_log.found.clone())
        };
        for (names, server, level, words) in [
            (&["mysql.ibd", "auto.cnf"][..], "MySQL", Level::Ok, "= 1 (the default)"),
            (&["aria_log_control", "mysql/user.frm", "sys/db.opt"], "MariaDB", Level::Warning, "= 0 (the default)"),
            (&["auto.cnf", "mysql/user.frm", "sys/db.opt"], "MySQL 5.7", Level::Ok, "= 1 (the default)"),
            (&["auto.cnf", "mysql/user.frm"], "MySQL 5", Level::Warning, "since MySQL 5.7.7"),
            (&[], "MariaDB or MySQL", Level::Warning, "since MySQL 5.7.7"),
        ] {
            let (database, found, shown) = told(names);
            assert_eq!((database, found), (format!("databases of {server}"), level), "{names:?}");
            assert!(shown.contains(words), "{shown}");
        }
    }

    #[test]
    fn directories_that_settings_name_are_parts_of_the_database() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let text = "[mysqld]\ninnodb_log_group_home_dir = /log\ninnodb-undo-directory = undo\nlog-bin = /binlog/b\ninnodb_data_home_dir =\ninnodb_data_file_path = ibdata1:12M;/more/ibdata2:1G:autoextend\n";
        fs::write(at("my.cnf"), text).expect("written");
        std::os::unix::fs::symlink("/schema", at("schema")).expect("linked");
        let machine = MadeMachine::with(&[(
            "/proc/self/mountinfo",
            &["shop", "#innodb_temp"]
                .map(|name| format!("1 1 0:9 / {} rw - tmpfs t rw\n", at(name).display()))
                .concat(),
        )]);
        let nothing = tempfile::tempdir().expect("a folder");
        let redo = DatabasePart::log(nothing.path().join("#innodb_redo"));
        assert_eq!(parts(&MadeMachine::new().view(), nothing.path(), None), [redo]);
        let parts = format!("{:?}", parts(&machine.view(), folder.path(), None));
        for words in ["\"/log\"", "/undo\"", "\"/binlog\"", "\"/more\"", "/schema\"", "/shop\"", "#innodb_redo"] {
            assert!(parts.contains(words), "no {words} in {parts}");
        }
        assert!(!parts.contains("#innodb_temp"), "{parts}");
    }
}
