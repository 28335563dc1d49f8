//! PostgreSQL: its settings as the server reads them, and what they mean where the cluster lies.
//!
//! The order is the server's: `postgresql.conf` with what it includes, `postgresql.auto.conf`, and
//! the command line of the last start (`postmaster.opts`). The last value of a name counts.

use crate::answers::{is_there, leads_to};
use crate::database::database_parts::{self, DatabasePart};
use crate::database::settings::{FoundSettings, files_in, text_of};
use crate::finding::{DoctorFinding, Level};
use crate::machine_view::MachineView;
use crate::place::{DirectoryPlace, PoolOf};
use std::fs;
use std::path::{Path, PathBuf};

/// What a directory of PostgreSQL has in it.
pub(super) const MARK: &str = "PG_VERSION";

/// Everything about the cluster in `directory`, which lies at `place`.
pub(super) fn findings(
    (view, pool_of): (&MachineView, PoolOf),
    (directory, place): (&Path, &DirectoryPlace),
    named: Option<&Path>,
) -> Vec<DoctorFinding> {
    let settings = settings(view, directory, named);
    let mut findings = vec![DoctorFinding::ok("database", name(directory), "recognised by PG_VERSION")];
    findings.extend(super::of_files(&settings, "postgresql.conf, named by --settings FILE"));
    findings.push(fsync(&settings, place));
    findings.push(full_page_writes(&settings, place));
    findings.push(synchronous_commit(&settings, place));
    findings.push(wal_sync_method(&settings));
    findings.extend(commit_delay(&settings, place));
    findings.extend(elsewhere((view, pool_of), directory, place));
    findings
}

fn name(directory: &Path) -> String {
    let version = text_of(&directory.join(MARK)).unwrap_or_default();
    format!("a cluster of PostgreSQL {}", version.trim())
}

/// The settings of the cluster.
fn settings(view: &MachineView, directory: &Path, named: Option<&Path>) -> FoundSettings {
    let mut found = FoundSettings::default();
    let words = words_of_last_start(directory);
    let of_start = options(&words).into_iter().rev().find(|(name, _)| name == "config_file").map(|(_, value)| value);
    let own = directory.join("postgresql.conf");
    let main =
        named.map(Path::to_owned).or(of_start.map(PathBuf::from)).or_else(|| Some(own).filter(|own| is_there(own)));
    if let Some(main) = main.or_else(|| of_debian(view, directory)) {
        read(&mut found, &main, 0);
    }
    let auto = directory.join("postgresql.auto.conf");
    if is_there(&auto) {
        read(&mut found, &auto, 0);
    }
    for (name, value) in options(&words) {
        found.set_by_command_line(&name, &value);
    }
    found
}

/// The file that Debian has for a cluster in `directory`.
fn of_debian(view: &MachineView, directory: &Path) -> Option<PathBuf> {
    let versions = view.names("/etc/postgresql").into_iter();
    let clusters = versions.flat_map(|version| {
        let names = view.names(&format!("/etc/postgresql/{version}")).into_iter();
        names.map(move |name| format!("/etc/postgresql/{version}/{name}/postgresql.conf"))
    });
    clusters.map(|file| view.at(&file)).find(|file| {
        let mut found = FoundSettings::default();
        read(&mut found, file, 0);
        found.get("data_directory").is_some_and(|of| leads_to(Path::new(&of.value), directory))
    })
}

/// Takes in the settings of a file, and of those that it includes.
fn read(found: &mut FoundSettings, path: &Path, depth: usize) {
    let Some(text) = found.read(path, depth) else { return };
    let folder = path.parent().unwrap_or(path);
    for (line, (name, value)) in text.lines().enumerate().filter_map(|(at, line)| Some((at + 1, parsed(line)?))) {
        match name.as_str() {
            "include" => read(found, &folder.join(value), depth + 1),
            "include_if_exists" => {
                let included = folder.join(value);
                if is_there(&included) {
                    read(found, &included, depth + 1);
                }
            }
            "include_dir" => match files_in(&folder.join(&value), ".conf") {
                Ok(files) => files.iter().for_each(|file| read(found, file, depth + 1)),
                Err(error) => found.gap(&folder.join(value), &error),
            },
            _ => found.set(&name, &value, (path, line)),
        }
    }
}

/// A line `name = value # comment`; the sign may be left out, and the value may be quoted.
fn parsed(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_.$".contains(letter);
    let (name, rest) = line.split_at(line.find(|letter| !is_name(letter)).unwrap_or(line.len()));
    if name.is_empty() {
        return None;
    }
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    let value = match rest.strip_prefix('\'') {
        Some(quoted) => unquoted(quoted),
        None => rest.split([' ', '\t', '#']).next().unwrap_or_default().to_owned(),
    };
    Some((name.to_ascii_lowercase(), value))
}

/// What stands before the closing quote; two quotes, or one behind a backslash, are one.
fn unquoted(quoted: &str) -> String {
    let (mut value, mut letters) = (String::new(), quoted.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => value.extend(letters.next()),
            '\'' if letters.next_if_eq(&'\'').is_some() => value.push('\''),
            '\'' => break,
            letter => value.push(letter),
        }
    }
    value
}

/// The words of the command line by which the server started last, as it wrote them down.
fn words_of_last_start(directory: &Path) -> Vec<String> {
    let text = text_of(&directory.join("postmaster.opts")).unwrap_or_default();
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The settings among these words: `-c name=value`, `--name=value` and `-F`.
fn options(words: &[String]) -> Vec<(String, String)> {
    let (mut found, mut words) = (Vec::new(), words.iter().map(String::as_str));
    while let Some(word) = words.next() {
        let setting = match word {
            "-F" => Some("fsync=off"),
            "-c" => words.next(),
            "-D" | "-p" | "-k" | "-h" | "-N" | "-B" => {
                words.next();
                None
            }
            word => word.strip_prefix("--").or_else(|| word.strip_prefix("-c")),
        };
        let pair = setting.and_then(|setting| setting.split_once('='));
        found.extend(pair.map(|(name, value)| (name.to_ascii_lowercase().replace('-', "_"), value.to_owned())));
    }
    found
}

/// A truth value as PostgreSQL reads it: any beginning of a word that is not ambiguous.
fn truth(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    match value.as_str() {
        "1" => Some(true),
        "0" => Some(false),
        _ if begins("on", 2) || begins("true", 1) || begins("yes", 1) => Some(true),
        _ if begins("off", 2) || begins("false", 1) || begins("no", 1) => Some(false),
        _ => None,
    }
}

/// How a setting is changed in a running cluster.
fn set(name: &str, value: &str) -> String {
    format!(
        "psql -c \"ALTER SYSTEM SET {name} = {value}\" -c \"SELECT pg_reload_conf()\"; remove it from a command line that sets it"
    )
}

const CHEAP_HERE: &str = "most syncs of this mount wait for memory alone, so that little time is saved";

/// A value that PostgreSQL does not take.
fn unknown(subject: &'static str, shown: String, known: &str) -> DoctorFinding {
    DoctorFinding::new(
        (Level::Warning, subject),
        shown,
        "PostgreSQL does not know this value, and may not start",
        format!("write one of {known}"),
    )
}

fn fsync(settings: &FoundSettings, place: &DirectoryPlace) -> DoctorFinding {
    let (name, shown) = ("fsync", settings.shown("fsync", "on"));
    match truth(settings.value(name, "on")) {
        Some(true) => DoctorFinding::ok(name, shown, "committed transactions are synced"),
        Some(false) => {
            let why =
                "the server syncs nothing: a power loss or a crash of the kernel may damage the database beyond repair";
            let why = if place.is_mount() { format!("{why}; {CHEAP_HERE}") } else { why.to_owned() };
            DoctorFinding::new((Level::Fault, name), shown, why, set(name, "on"))
        }
        None => unknown(name, shown, "on, off"),
    }
}

fn full_page_writes(settings: &FoundSettings, place: &DirectoryPlace) -> DoctorFinding {
    let (name, shown) = ("full_page_writes", settings.shown("full_page_writes", "on"));
    let tear = place.pages_may_tear();
    let is_zfs = matches!(place, DirectoryPlace::Foreign { kind } if kind == "zfs");
    match truth(settings.value(name, "on")) {
        Some(true) => DoctorFinding::ok(name, shown, format!("keep it on: {tear}")),
        Some(false) => {
            let level = if is_zfs { Level::Warning } else { Level::Fault };
            let why = format!("a page of 8 KiB that was torn cannot be repaired without it; {tear}");
            DoctorFinding::new((level, name), shown, why, set(name, "on"))
        }
        None => unknown(name, shown, "on, off"),
    }
}

fn synchronous_commit(settings: &FoundSettings, place: &DirectoryPlace) -> DoctorFinding {
    let (name, shown) = ("synchronous_commit", settings.shown("synchronous_commit", "on"));
    let value = settings.value(name, "on").to_ascii_lowercase();
    if ["local", "remote_write", "remote_apply"].contains(&&*value) || truth(&value) == Some(true) {
        return DoctorFinding::ok(
            name,
            shown,
            "a commit returns when its log is synced; a role, database or session may set it otherwise",
        );
    }
    if truth(&value) == Some(false) {
        let why = "a crash takes the last transactions that clients were told of; the database stays consistent";
        let why = if place.is_mount() { format!("{why}; {CHEAP_HERE}") } else { why.to_owned() };
        return DoctorFinding::new((Level::Warning, name), shown, why, set(name, "on"));
    }
    unknown(name, shown, "on, off, local, remote_write, remote_apply")
}

fn wal_sync_method(settings: &FoundSettings) -> DoctorFinding {
    let (name, shown) = ("wal_sync_method", settings.shown("wal_sync_method", "fdatasync"));
    match settings.value(name, "fdatasync").to_ascii_lowercase().as_str() {
        "fdatasync" | "fsync" => DoctorFinding::ok(name, shown, "each commit syncs the log, on a disk and in a mount"),
        "open_datasync" | "open_sync" => {
            DoctorFinding::ok(name, shown, "each write of the log is a synced one, on a disk and in a mount")
        }
        _ => unknown(name, shown, "fdatasync, fsync, open_datasync, open_sync"),
    }
}

/// A delay that waits for other commits to share a sync with.
fn commit_delay(settings: &FoundSettings, place: &DirectoryPlace) -> Option<DoctorFinding> {
    let name = "commit_delay";
    let waits = settings.value(name, "0").parse::<u64>().is_ok_and(|microseconds| microseconds > 0);
    (waits && place.is_mount()).then(|| {
        let why = "commits wait to share a sync, and most syncs of this mount take less time than that";
        DoctorFinding::new((Level::Advice, name), settings.shown(name, "0"), why, set(name, "0"))
    })
}

/// The log and tablespaces that lie somewhere else than the cluster.
fn elsewhere((view, pool_of): (&MachineView, PoolOf), directory: &Path, place: &DirectoryPlace) -> Vec<DoctorFinding> {
    let logs = LOGS.iter().map(|name| DatabasePart::log(directory.join(name)));
    let data = DATA.iter().map(|name| DatabasePart::data(directory.join(name)));
    let spaces = directory.join("pg_tblspc");
    let entries = is_there(&spaces).then(|| fs::read_dir(&spaces).into_iter().flatten().flatten());
    let spaces = entries.into_iter().flatten().map(|entry| DatabasePart::data(entry.path()));
    let all: Vec<_> = logs.chain(data).chain(spaces).collect();
    database_parts::findings((view, pool_of), (directory, place), &all)
}

/// Directories of a cluster that have its log, and its data. The server makes others anew.
const LOGS: [&str; 2] = ["pg_wal", "pg_xlog"];
const DATA: [&str; 8] =
    ["base", "global", "pg_xact", "pg_clog", "pg_multixact", "pg_twophase", "pg_commit_ts", "pg_tblspc"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::level_of;
    use crate::machine_view::tests::MadeMachine;
    use crate::place::{Barriers, BlockDeviceKind};
    use std::os::unix::fs::symlink;

    fn disk() -> DirectoryPlace {
        let (kind, name) = ("ext4".to_owned(), "sda1".to_owned());
        DirectoryPlace::Device { kind, name, device: BlockDeviceKind::Disk, barriers: Barriers::On }
    }

    fn mount() -> DirectoryPlace {
        DirectoryPlace::Mount { mountpoint: "/m".into(), pool: None, domain: None }
    }

    fn cluster(settings: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(MARK), "15\n").expect("written");
        fs::write(folder.path().join("postgresql.conf"), settings).expect("written");
        folder
    }

    fn found(settings: &str, place: &DirectoryPlace) -> Vec<DoctorFinding> {
        let folder = cluster(settings);
        findings((&MadeMachine::new().view(), Path::to_owned), (folder.path(), place), None)
    }

    #[test]
    fn each_setting_is_found_in_both_directions() {
        for (setting, subject, level) in [
            ("", "fsync", Level::Ok),
            ("fsync = off", "fsync", Level::Fault),
            ("fsync no", "fsync", Level::Fault),
            ("fsync = perhaps", "fsync", Level::Warning),
            ("", "full_page_writes", Level::Ok),
            ("Full_Page_Writes = 'false' # quick", "full_page_writes", Level::Fault),
            ("synchronous_commit = off", "synchronous_commit", Level::Warning),
            ("synchronous_commit = local", "synchronous_commit", Level::Ok),
            ("synchronous_commit = never", "synchronous_commit", Level::Warning),
            ("wal_sync_method = open_datasync", "wal_sync_method", Level::Ok),
            ("wal_sync_method = FDATASYNC", "wal_sync_method", Level::Ok),
            ("wal_sync_method = fsync_writethrough", "wal_sync_method", Level::Warning),
        ] {
            for place in [disk(), mount()] {
                assert_eq!(level_of(&found(setting, &place), subject), level, "{setting} on {place:?}");
            }
        }
        let delays = |place: &DirectoryPlace| {
            found("commit_delay = 100", place).iter().any(|found| found.subject == "commit_delay")
        };
        assert!(delays(&mount()) && !delays(&disk()));
        let zfs = DirectoryPlace::Foreign { kind: "zfs".to_owned() };
        assert_eq!(level_of(&found("full_page_writes = off", &zfs), "full_page_writes"), Level::Warning);
    }

    #[test]
    fn pages_are_never_said_to_be_whole() {
        for place in [disk(), mount()] {
            let findings = found("", &place);
            let pages = findings.iter().find(|found| found.subject == "full_page_writes").expect("it is told");
            assert!(pages.why.starts_with("keep it on"), "{pages:?}");
        }
    }

    #[test]
    fn the_last_setting_of_all_files_and_the_command_line_wins() {
        let folder = cluster("fsync = off\ninclude_dir 'conf.d'\ninclude_if_exists 'none'\n");
        let at = |name: &str| folder.path().join(name);
        let value = || settings(&MadeMachine::new().view(), folder.path(), None).value("fsync", "?").to_owned();
        assert_eq!(value(), "off");
        fs::create_dir(at("conf.d")).expect("made");
        fs::write(at("conf.d/1.conf"), "fsync = on").expect("written");
        assert_eq!(value(), "on");
        fs::write(at("postgresql.auto.conf"), "fsync = 'off'").expect("written");
        assert_eq!(value(), "off");
        fs::write(at("postmaster.opts"), "/bin/postgres \"-D\" \"/d\" \"-c\" \"fsync=on\"\n").expect("written");
        assert_eq!(value(), "on");
        fs::write(at("postmaster.opts"), "/bin/postgres \"-F\"").expect("written");
        assert_eq!(value(), "off");
        fs::write(at("other"), "fsync = on").expect("written");
        fs::write(at("postmaster.opts"), format!("postgres \"--config-file={}\"", at("other").display()))
            .expect("written");
        fs::remove_file(at("postgresql.auto.conf")).expect("removed");
        assert_eq!(value(), "on");
    }

    #[test]
    fn debians_file_is_found_by_the_directory_that_it_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = MadeMachine::new();
        let text = format!("data_directory = '{}'\nfsync = off\n", folder.path().display());
        machine.write("/etc/postgresql/15/main/postgresql.conf", &text);
        machine.write("/etc/postgresql/15/other/postgresql.conf", "data_directory = '/other'\n");
        assert_eq!(settings(&machine.view(), folder.path(), None).value("fsync", "on"), "off");
    }

    #[test]
    fn files_that_include_each_other_end() {
        let folder = cluster("include 'postgresql.conf'\nfsync = off\n");
        let found = settings(&MadeMachine::new().view(), folder.path(), None);
        assert_eq!((found.value("fsync", "on"), found.gaps.len()), ("off", 1));
    }

    #[test]
    fn lines_are_read_as_the_server_reads_them() {
        let pair = |line| parsed(line).expect("a setting");
        assert_eq!(pair("  a.b=1#c"), ("a.b".to_owned(), "1".to_owned()));
        assert_eq!(pair("A 'it''s \\'x\\'' # c"), ("a".to_owned(), "it's 'x'".to_owned()));
        assert_eq!(parsed("# fsync = off"), None);
        assert_eq!(["of", "o", "t", "NO", "1"].map(truth), [Some(false), None, Some(true), Some(false), Some(true)]);
    }

    #[test]
    fn a_log_elsewhere_is_told() {
        let folder = cluster("");
        let log = tempfile::tempdir_in("/dev/shm").expect("room in memory");
        let (view, place) = (MachineView::own(), mount());
        let told = || elsewhere((&view, Path::to_owned), folder.path(), &place);
        assert_eq!(told(), []);
        symlink(log.path(), folder.path().join("pg_wal")).expect("linked");
        assert_eq!(level_of(&told(), "log-place"), Level::Fault);
        fs::remove_file(folder.path().join("pg_wal")).expect("removed");
        symlink("/nowhere", folder.path().join("pg_wal")).expect("linked");
        assert_eq!(level_of(&told(), "log-place"), Level::Fault);
    }

    #[test]
    fn a_log_and_tablespaces_on_mounts_of_their_own_are_told() {
        let folder = cluster("");
        let directory = folder.path().canonicalize().expect("it is there");
        ["pg_wal", "pg_tblspc/1", "pg_stat_tmp"]
            .iter()
            .for_each(|name| fs::create_dir_all(directory.join(name)).expect("made"));
        let told = |mounted: &str| {
            let at = directory.join(mounted);
            let table = format!("1 1 0:77 / / rw - disk d rw\n2 1 0:30 / {} rw - tmpfs t rw\n", at.display());
            let machine = MadeMachine::with(&[("/proc/self/mountinfo", &table)]);
            elsewhere((&machine.view(), Path::to_owned), &directory, &disk())
        };
        assert_eq!(level_of(&told("pg_wal"), "log-place"), Level::Fault);
        assert_eq!(level_of(&told("pg_tblspc/1"), "tablespace-place"), Level::Fault);
        assert_eq!(told("pg_stat_tmp"), [], "it is made anew at each start");
    }
}
