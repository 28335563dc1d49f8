//! Redis and Valkey: the log of commands, and when it is synced.

use crate::answers::{is_there, leads_to};
use crate::database::database_parts::DatabasePart;
use crate::database::settings::FoundSettings;
use crate::finding::{DoctorFinding, Level};
use crate::machine_view::MachineView;
use crate::place::DirectoryPlace;
use std::path::{Path, PathBuf};

/// What a directory of either has in it: one of these.
pub(super) const MARKS: [&str; 5] = ["appendonlydir", "redis.conf", "valkey.conf", "dump.rdb", "appendonly.aof"];

/// Where packages put their settings.
const OF_MACHINE: [&str; 2] = ["/etc/redis/redis.conf", "/etc/valkey/valkey.conf"];

/// Everything about the data in `directory`, which lies at `place`.
pub(super) fn findings(
    view: &MachineView,
    (directory, place): (&Path, &DirectoryPlace),
    named: Option<&Path>,
) -> Vec<DoctorFinding> {
    let settings = settings(view, directory, named);
    let mark = MARKS.iter().find(|mark| is_there(&directory.join(mark))).unwrap_or(&MARKS[0]);
    let mut findings = vec![DoctorFinding::ok("database", "data of Redis or Valkey", format!("recognised by {mark}"))];
    findings.extend(super::of_files(&settings, "redis.conf, named by --settings FILE"));
    let has_log = LOGS.iter().any(|log| is_there(&directory.join(log)));
    findings.push(log(&settings, has_log));
    if is_logged(&settings, has_log) {
        findings.push(sync(&settings, place));
        findings.extend(rewrite(&settings));
    } else {
        let shown = settings.shown("appendfsync", "everysec");
        findings.push(DoctorFinding::ok("appendfsync", shown, "commands are not logged, so that nothing is synced"));
    }
    findings
}

/// The log of commands.
const LOGS: [&str; 2] = ["appendonlydir", "appendonly.aof"];

/// Parts of the data in `directory` that may lie elsewhere.
pub(super) fn parts(view: &MachineView, directory: &Path, named: Option<&Path>) -> Vec<DatabasePart> {
    let settings = settings(view, directory, named);
    let named = ["appenddirname", "appendfilename"].into_iter().filter_map(|name| Some(&*settings.get(name)?.value));
    LOGS.into_iter().chain(named).map(|name| DatabasePart::log(directory.join(name))).collect()
}

/// Whether commands are logged: as a setting says, or else by the log that is there.
fn is_logged(settings: &FoundSettings, has_log: bool) -> bool {
    settings.get("appendonly").map_or(has_log, |setting| setting.value.eq_ignore_ascii_case("yes"))
}

fn settings(view: &MachineView, directory: &Path, named: Option<&Path>) -> FoundSettings {
    let mut found = FoundSettings::default();
    let beside = ["redis.conf", "valkey.conf"].map(|name| directory.join(name)).into_iter().find(|file| is_there(file));
    if let Some(main) = named.map(Path::to_owned).or(beside) {
        read(&mut found, &main, 0);
        return found;
    }
    for file in OF_MACHINE.map(|file| view.at(file)).iter().filter(|file| is_there(file)) {
        let mut of_machine = FoundSettings::default();
        read(&mut of_machine, file, 0);
        if of_machine.get("dir").is_some_and(|dir| leads_to(Path::new(&dir.value), directory)) {
            return of_machine;
        }
    }
    found
}

fn read(found: &mut FoundSettings, path: &Path, depth: usize) {
    let Some(text) = found.read(path, depth) else { return };
    for (at, line) in text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let Some((name, value)) = line.split_once(char::is_whitespace) else { continue };
        let (name, value) = (name.to_ascii_lowercase(), value.trim().trim_matches(['"', '\'']));
        match name.as_str() {
            "include" => read(found, &PathBuf::from(value), depth + 1),
            _ => found.set(&name, value, (path, at + 1)),
        }
    }
}

/// How a setting is changed.
fn set(name: &str, value: &str) -> String {
    format!("redis-cli CONFIG SET {name} {value}, and redis-cli CONFIG REWRITE")
}

fn log(settings: &FoundSettings, has_log: bool) -> DoctorFinding {
    let (name, shown) = ("appendonly", settings.shown("appendonly", "no"));
    match settings.value(name, "no").to_ascii_lowercase().as_str() {
        "yes" => DoctorFinding::ok(name, shown, "each command is logged"),
        _ if has_log && settings.get(name).is_none() => DoctorFinding::ok(
            name,
            "there is a log of commands, which no file of settings asks for",
            "the server's command line, or CONFIG SET, did",
        ),
        _ => DoctorFinding::new(
            (Level::Warning, name),
            shown,
            "commands are not logged: any end of the server but an orderly one takes all since the last snapshot",
            set(name, "yes"),
        ),
    }
}

fn sync(settings: &FoundSettings, place: &DirectoryPlace) -> DoctorFinding {
    let (name, shown) = ("appendfsync", settings.shown("appendfsync", "everysec"));
    match settings.value(name, "everysec").to_ascii_lowercase().as_str() {
        "always" => DoctorFinding::ok(name, shown, "a command that was answered is synced"),
        "everysec" if place.is_mount() => DoctorFinding::new(
            (Level::Advice, name),
            shown,
            "a power loss takes the last second of commands, and most syncs of this mount wait for memory alone",
            set(name, "always"),
        ),
        "everysec" => {
            DoctorFinding::ok(name, shown, "a power loss takes the last second or two of commands, as Redis documents")
        }
        "no" => DoctorFinding::new(
            (Level::Warning, name),
            shown,
            "the log is not synced: a power loss takes half a minute of commands or more",
            set(name, if place.is_mount() { "always" } else { "everysec" }),
        ),
        _ => DoctorFinding::new(
            (Level::Warning, name),
            shown,
            "Redis does not know this value",
            "write always, everysec or no",
        ),
    }
}

fn rewrite(settings: &FoundSettings) -> Option<DoctorFinding> {
    let name = "no-appendfsync-on-rewrite";
    settings.value(name, "no").eq_ignore_ascii_case("yes").then(|| {
        let why = "while the log is rewritten nothing is synced, whatever appendfsync says";
        DoctorFinding::new((Level::Warning, name), settings.shown(name, "no"), why, set(name, "no"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::level_of;
    use crate::machine_view::tests::MadeMachine;
    use std::fs;

    fn found(settings: &str, place: &DirectoryPlace) -> Vec<DoctorFinding> {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("redis.conf"), settings).expect("written");
        findings(&MadeMachine::new().view(), (folder.path(), place), None)
    }

    #[test]
    fn each_setting_is_found_in_both_directions() {
        let disk = DirectoryPlace::Foreign { kind: "disk".to_owned() };
        let mount = DirectoryPlace::Mount { mountpoint: "/m".into(), pool: None, domain: None };
        for (settings, subject, on_disk, on_mount) in [
            ("", "appendonly", Level::Warning, Level::Warning),
            ("appendonly Yes", "appendonly", Level::Ok, Level::Ok),
            ("appendonly yes\nappendfsync ALWAYS", "appendfsync", Level::Ok, Level::Ok),
            ("appendonly yes\n# appendfsync no", "appendfsync", Level::Ok, Level::Advice),
            ("appendonly yes\nAPPENDFSYNC \"no\"", "appendfsync", Level::Warning, Level::Warning),
            ("appendonly yes\nappendfsync often", "appendfsync", Level::Warning, Level::Warning),
            ("appendonly no\nappendfsync no", "appendfsync", Level::Ok, Level::Ok),
            (
                "appendonly yes\nno-appendfsync-on-rewrite YES",
                "no-appendfsync-on-rewrite",
                Level::Warning,
                Level::Warning,
            ),
        ] {
            assert_eq!(level_of(&found(settings, &disk), subject), on_disk, "{settings}");
            assert_eq!(level_of(&found(settings, &mount), subject), on_mount, "{settings}");
        }
        for settings in ["appendonly yes", "appendonly no\nno-appendfsync-on-rewrite yes"] {
            let told = found(settings, &disk);
            assert!(!told.iter().any(|found| found.subject == "no-appendfsync-on-rewrite"), "{settings}");
        }
        assert!(!found("", &disk).iter().any(|found| found.subject == "no-appendfsync-on-rewrite"));
    }

    #[test]
    fn a_log_that_is_there_was_asked_for_elsewhere() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("appendonlydir")).expect("made");
        let place = DirectoryPlace::Foreign { kind: "disk".to_owned() };
        let findings = findings(&MadeMachine::new().view(), (folder.path(), &place), None);
        assert_eq!((level_of(&findings, "appendonly"), level_of(&findings, "settings")), (Level::Ok, Level::Warning));
        assert!(findings.iter().any(|found| found.subject == "appendfsync" && found.why.contains("the last second")));
    }

    #[test]
    fn the_machines_file_counts_for_the_directory_that_it_names() {
        let machine = MadeMachine::with(&[("/etc/redis/redis.conf", "dir /var/lib/redis\nappendonly yes\n")]);
        assert_eq!(settings(&machine.view(), Path::new("/var/lib/redis"), None).value("appendonly", "?"), "yes");
        assert_eq!(settings(&machine.view(), Path::new("/srv"), None).value("appendonly", "?"), "?");
    }

    #[test]
    fn files_that_include_each_other_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("redis.conf");
        fs::write(&file, format!("include {}\nappendonly yes\n", file.display())).expect("written");
        let settings = settings(&MadeMachine::new().view(), folder.path(), None);
        assert_eq!((settings.value("appendonly", "?"), settings.gaps.len()), ("yes", 1));
    }
}
