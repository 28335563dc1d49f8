//! Settings of MariaDB and MySQL as the servers read them: `my.cnf` with what it includes, and the
//! `mysqld-auto.cnf` of `SET PERSIST`, which wins over it.

use crate::answers::{is_there, leads_to};
use crate::database::settings::{FoundSettings, files_in};
use crate::machine_view::MachineView;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where the servers look for settings first and last, of those that name a directory. On Debian
/// the second one leads to the files of MariaDB or MySQL.
const OF_MACHINE: [&str; 2] = ["/etc/my.cnf", "/etc/mysql/my.cnf"];

/// The directory of both, unless a file says otherwise.
const USUAL: &str = "/var/lib/mysql";

/// What MySQL writes beside its data for `SET PERSIST`.
const PERSISTED: &str = "mysqld-auto.cnf";

/// The settings of `my.cnf` that are for a server of `directory`.
pub(super) fn settings(view: &MachineView, directory: &Path, named: Option<&Path>) -> FoundSettings {
    let mut found = FoundSettings::default();
    let beside = [directory.join("my.cnf"), directory.parent().unwrap_or(directory).join("my.cnf")];
    if let Some(main) = named.map(Path::to_owned).or_else(|| beside.into_iter().find(|file| is_there(file))) {
        read(&mut found, &main, 0);
        return found;
    }
    for file in OF_MACHINE.map(|file| view.at(file)).iter().filter(|file| is_there(file)) {
        read(&mut found, file, 0);
    }
    let of = found.value("datadir", USUAL);
    if leads_to(Path::new(of), directory) { found } else { FoundSettings::default() }
}

/// Takes in what a server of MySQL was told to remember, unless it is told not to read that.
pub(super) fn add_persisted(found: &mut FoundSettings, directory: &Path) {
    let path = directory.join(PERSISTED);
    if is_off(found.value("persisted_globals_load", "ON")) || !is_there(&path) {
        return;
    }
    let Some(text) = found.read(&path, 0) else { return };
    match serde_json::from_str(&text) {
        Ok(all) => each_persisted(&all, &mut |name, value| {
            let quoted = format!("\"{name}\"");
            let line = 1 + text.lines().position(|line| line.contains(&quoted)).unwrap_or(0);
            found.set(&name.to_ascii_lowercase().replace('-', "_"), value, (&path, line));
        }),
        Err(error) => found.gap(&path, &error),
    }
}

/// Whether the value of `name` that counts is one that a server was told to remember.
pub(super) fn is_persisted(settings: &FoundSettings, name: &str) -> bool {
    settings.file_of(name).is_some_and(|file| file.ends_with(PERSISTED))
}

/// Tells `take` of each variable: an object with a `Value`, below sections of any name.
fn each_persisted(section: &Value, take: &mut impl FnMut(&str, &str)) {
    for (name, entry) in section.as_object().into_iter().flatten() {
        match entry.get("Value") {
            Some(Value::String(value)) => take(name, value),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => take(name, &value.to_string()),
            _ => each_persisted(entry, take),
        }
    }
}

fn read(found: &mut FoundSettings, path: &Path, depth: usize) {
    let Some(text) = found.read_once(path, depth) else { return };
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
    let (name, version) = group.split_once('-').unwrap_or((group, "0"));
    let is_version = version.starts_with(|letter: char| letter.is_ascii_digit());
    ["server", "client-server", "galera"].contains(&group)
        || is_version && ["mysqld", "mariadb", "mariadbd"].contains(&name)
}

/// A line `name = value`; dashes are underscores, and `skip-name` is `name = OFF`.
fn parsed(line: &str) -> Option<(String, String)> {
    if line.starts_with(['#', ';']) {
        return None;
    }
    let line = without_comment(line);
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name, Some(unquoted(value.trim()))),
        None => (line, None),
    };
    let name = name.trim().to_ascii_lowercase().replace('-', "_");
    if name.is_empty() {
        return None;
    }
    let name = name.strip_prefix("loose_").unwrap_or(&name);
    let is_zero = value.as_deref() == Some("0");
    let switched = |is_on: bool| if is_on { "ON" } else { "OFF" }.to_owned();
    let negated = name.strip_prefix("skip_").or_else(|| name.strip_prefix("disable_"));
    // The servers take `skip-name = 0` for `name = ON`.
    Some(match (negated, name.strip_prefix("enable_")) {
        (Some(name), _) => (name.to_owned(), switched(is_zero)),
        (None, Some(name)) => (name.to_owned(), switched(!is_zero)),
        (None, None) => (name.to_owned(), value.unwrap_or_else(|| switched(true))),
    })
}

/// `line` up to a `#` outside of quotes; a quote behind a backslash ends none.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut is_escaped) = (None, false);
    for (at, letter) in line.char_indices() {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (letter, Some(opened)) if letter == opened && !is_escaped => quote = None,
            ('#', None) => return line[..at].trim_end(),
            _ => {}
        }
        is_escaped = quote.is_some() && letter == '\\' && !is_escaped;
    }
    line
}

/// What stands between quotes, with `\s`, `\n` and so on as what they mean.
fn unquoted(value: &str) -> String {
    let within = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    let (mut plain, mut letters) = (String::new(), within('"').or_else(|| within('\'')).unwrap_or(value).chars());
    while let Some(letter) = letters.next() {
        let escaped = if letter == '\\' { letters.next() } else { None };
        match escaped {
            None => plain.push(letter),
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            Some('r') => plain.push('\r'),
            Some('b') => plain.push('\u{8}'),
            Some('s') => plain.push(' '),
            Some(itself @ ('"' | '\'' | '\\')) => plain.push(itself),
            Some(other) => plain.extend(['\\', other]),
        }
    }
    plain
}

/// Whether a value turns a setting off.
pub(super) fn is_off(value: &str) -> bool {
    ["off", "0", "false"].contains(&&*value.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_view::tests::MadeMachine;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn lines_are_read_as_the_servers_read_them() {
        for (line, name, value) in [
            ("innodb_doublewrite = OFF\t# fast", "innodb_doublewrite", "OFF"),
            ("innodb_doublewrite=OFF# fast", "innodb_doublewrite", "OFF"),
            ("skip-innodb-doublewrite # fast", "innodb_doublewrite", "OFF"),
            ("a = \"x # y\" # z", "a", "x # y"),
            ("a = 'it\\'s # y'# z", "a", "it's # y"),
            ("a = \"b\\\\\" # z", "a", "b\\"),
            ("a = /b\\sc\\q", "a", "/b c\\q"),
            ("a = \"b", "a", "\"b"),
            ("a = \"", "a", "\""),
            ("a =", "a", ""),
            ("Log-Bin", "log_bin", "ON"),
            ("disable-log-bin", "log_bin", "OFF"),
            ("skip-log-bin = 0", "log_bin", "ON"),
            ("enable_a", "a", "ON"),
            ("enable-a = 0", "a", "OFF"),
            ("loose-disable-a", "a", "OFF"),
            ("loose_a = 7", "a", "7"),
        ] {
            assert_eq!(parsed(line), Some((name.to_owned(), value.to_owned())), "{line}");
        }
        for line in ["", "# a = 1", "; a = 1", "= 1"] {
            assert_eq!(parsed(line), None, "{line}");
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
        for group in ["mysqld", "mysqld-8.0", "server", "client-server", "mariadbd-11.4"] {
            assert!(is_for_server(group), "{group}");
        }
        for group in ["client", "mysqldump", "mysqld_safe", "mariadb-dump", "client-mariadb"] {
            assert!(!is_for_server(group), "{group}");
        }
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

    /// Debian's `my.cnf` is a link to `mariadb.cnf`, which sets defaults and includes the rest.
    #[test]
    fn what_debians_file_includes_wins_over_what_stands_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = MadeMachine::new();
        let at = |path: &str| machine.view().at(path);
        let text = format!(
            "[mysqld]\ndatadir = {}\nsync_binlog = 0\n!includedir {}\n",
            folder.path().display(),
            at("/etc/mysql/mariadb.conf.d").display()
        );
        machine.write("/etc/mysql/mariadb.cnf", &text);
        machine.write("/etc/mysql/mariadb.conf.d/50-server.cnf", "[mariadbd]\nsync_binlog = 1\n");
        symlink(at("/etc/mysql/mariadb.cnf"), at("/etc/mysql/my.cnf")).expect("linked");
        let found = settings(&machine.view(), folder.path(), None);
        assert_eq!((found.value("sync_binlog", "?"), found.files.len()), ("1", 2));
    }

    #[test]
    fn what_mysql_was_told_to_remember_wins_in_both_forms() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = |text: &str, before: &str| {
            fs::write(folder.path().join(PERSISTED), text).expect("written");
            fs::write(folder.path().join("my.cnf"), format!("[mysqld]\nsync_binlog = 1\n{before}\n")).expect("written");
            let mut found = settings(&MadeMachine::new().view(), folder.path(), None);
            add_persisted(&mut found, folder.path());
            found
        };
        let first = r#"{"Version": 1, "mysql_server": {"sync_binlog": {"Value": "0", "Metadata": {"User": "root"}},
            "mysql_server_static_options": {"innodb_doublewrite": {"Value": "OFF"}}}}"#;
        let second = r#"{"Version": 2, "mysql_dynamic_variables": {"sync_binlog": {"Value": "0"}},
            "mysql_static_variables": {"innodb_doublewrite": {"Value": "OFF", "Metadata": {"Timestamp": 1}}}}"#;
        for text in [first, second] {
            let found = found(text, "");
            assert_eq!((found.value("sync_binlog", "?"), found.value("innodb_doublewrite", "?")), ("0", "OFF"));
            assert!(found.shown("innodb_doublewrite", "ON").ends_with("mysqld-auto.cnf:2)"));
        }
        assert_eq!(found(first, "persisted-globals-load = OFF").value("sync_binlog", "?"), "1");
        let broken = found("{\"Version\"", "");
        assert_eq!((broken.value("sync_binlog", "?"), broken.gaps.len()), ("1", 1));
    }
}
