//! `tidegate doctor` and `tidegate config check`: their answers, exit codes and JSON, and bad
//! input.

use crate::program::{Folder, as_nobody, ended, json, need_root, run};
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const ENVIRONMENT: i32 = 5;

/// A directory of PostgreSQL with these settings.
fn cluster(folder: &Folder, settings: &str) -> String {
    let path = folder.path("data");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("PG_VERSION"), "15\n").unwrap();
    fs::write(path.join("postgresql.conf"), settings).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn this_machine_is_examined_for_people_and_for_scripts() {
    let text = run(&["doctor"]);
    assert!([0, REFUSED].contains(&text.code), "{}{}", text.stdout, text.stderr);
    assert!(text.stdout.starts_with("examined   this machine, Linux "), "{}", text.stdout);
    let answer = run(&["doctor", "--json"]);
    let examined: Value = serde_json::from_str(&answer.stdout).unwrap();
    let findings = examined["findings"].as_array().unwrap();
    let levels = ["ok", "advice", "warning", "fault"];
    for finding in findings {
        let level = finding["level"].as_str().unwrap();
        assert!(levels.contains(&level) && finding["fix"].is_string() == (level != "ok"), "{finding}");
        let has_text = |key: &str| finding[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(["subject", "found", "why"].into_iter().all(has_text), "{finding}");
    }
    let counted: u64 = levels.iter().map(|level| examined["counts"][level].as_u64().unwrap()).sum();
    assert_eq!(counted, findings.len() as u64);
    assert_eq!(answer.code == REFUSED, examined["level"] == "fault", "{examined}");
}

#[test]
fn a_fault_decides_the_exit_code() {
    let folder = Folder::new();
    let good = cluster(&folder, "fsync = on\n");
    let examined = json(&["doctor", &good]);
    assert_ne!(examined["level"], "fault", "{examined}");
    cluster(&folder, "fsync = off\n");
    let bad = run(&["doctor", &good]);
    assert_eq!(bad.code, REFUSED, "{}", bad.stderr);
    let lines: Vec<_> = bad.stdout.lines().collect();
    assert!(
        lines[1].starts_with("fault      fsync: fsync = off (") && lines[1].ends_with("postgresql.conf:1)"),
        "{}",
        bad.stdout
    );
    assert!(lines[2].starts_with("  why: ") && lines[3].starts_with("  fix: psql"), "{}", bad.stdout);
}

#[test]
fn directories_that_cannot_be_examined_are_refused_in_words() {
    let folder = Folder::new();
    fs::write(folder.path("file"), "").unwrap();
    symlink(folder.path("loop"), folder.path("loop")).unwrap();
    fs::create_dir(folder.path("empty")).unwrap();
    for (name, code, words) in [
        ("none", ENVIRONMENT, "No such file"),
        ("file", USAGE, "is no directory"),
        ("loop", ENVIRONMENT, "ymbolic links"),
        ("empty", REFUSED, "RocksDB"),
    ] {
        let refused = run(&["doctor", &folder.text(name)]);
        assert!(refused.code == code && refused.stderr.contains(words), "{name}: {} {}", refused.code, refused.stderr);
        assert!(refused.stdout.is_empty() && refused.stderr.lines().count() == 3, "{name}: {}", refused.stderr);
    }
    let mixed = run(&["doctor", "--settings", "/etc/my.cnf"]);
    assert_eq!(mixed.code, USAGE, "{}", mixed.stderr);
}

#[test]
fn a_directory_that_this_user_may_not_read_is_refused() {
    need_root("make a directory that another user may not read");
    let folder = Folder::new();
    let data = cluster(&folder, "");
    let mut doctor = as_nobody(&folder);
    fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
    let refused = ended(doctor.args(["doctor", &data]));
    assert!(refused.code == ENVIRONMENT && refused.stderr.contains("Permission denied"), "{}", refused.stderr);
    assert!(refused.stderr.contains("sudo tidegate doctor"), "{}", refused.stderr);
}

#[test]
fn settings_that_are_long_or_no_text_are_refused_if_named_and_told_if_found() {
    let folder = Folder::new();
    let data = cluster(&folder, "");
    File::create(folder.path("long")).unwrap().set_len(100 << 20).unwrap();
    fs::write(folder.path("garbage"), [0xff, 0, 0x80].repeat(100)).unwrap();
    for (name, words) in
        [("long", "more than 1024 KiB"), ("garbage", "no text"), ("none", "No such file"), ("data", "no regular file")]
    {
        let refused = run(&["doctor", &data, "--settings", &folder.text(name)]);
        assert!(refused.code == USAGE && refused.stderr.contains(words), "{name}: {}", refused.stderr);
    }
    for name in ["long", "garbage"] {
        fs::copy(folder.path(name), folder.path("data/postgresql.conf")).unwrap();
        let examined = json(&["doctor", &data]);
        let gap = examined["findings"].as_array().unwrap().iter().find(|finding| finding["subject"] == "settings-gap");
        assert_eq!(gap.unwrap()["level"], "warning", "{examined}");
    }
}

#[test]
fn a_configuration_of_a_server_is_checked_with_its_files() {
    let folder = Folder::new();
    let config = folder.text("t.toml");
    let socket = folder.text("s");
    fs::write(&config, format!("listen = \"unix:{socket}\"\n[[volume]]\npmem = \"v\"\n")).unwrap();
    let absent = run(&["config", "check", &config]);
    assert!(absent.code == USAGE && absent.stderr.contains("tidegate create --pmem"), "{}", absent.stderr);
    let volume = folder.volume("v");
    let checked = run(&["config", "check", &config]);
    let expected =
        format!("ok         {config}, a configuration of serve\nvolume     v in {volume}\nlistener   unix:{socket}\n");
    assert_eq!((checked.code, checked.stdout), (0, expected), "{}", checked.stderr);
    let checked = json(&["config", "check", &config]);
    assert_eq!((&checked["of"], &checked["volumes"][0]["file"]), (&"serve".into(), &volume.as_str().into()));
    assert!(!folder.path("s").exists());
}

#[test]
fn every_mistake_of_a_configuration_is_told() {
    let folder = Folder::new();
    let config = folder.text("t.toml");
    fs::write(&config, "listne = 1\n[[volume]]\npmem = \"v\"\nread_only = 7\nemulat = \"pcm\"\n").unwrap();
    let refused = run(&["config", "check", &config]);
    assert_eq!(refused.code, USAGE);
    for words in [":1: unknown key `listne`", ":4: invalid type", ":5: unknown key `emulat`", "write `emulate`"] {
        assert!(refused.stderr.contains(words), "no {words:?} in {}", refused.stderr);
    }
    assert_eq!(refused.stderr.matches("tidegate: error: ").count(), 3, "{}", refused.stderr);
    let told = run(&["config", "check", &config, "--json"]);
    let kinds: Vec<_> =
        told.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["error"]["kind"].clone()).collect();
    assert_eq!(kinds, ["config-unknown-key", "config-invalid", "config-unknown-key"]);
    let served = run(&["serve", "--config", &config]);
    assert!(served.code == USAGE && refused.stderr.starts_with(&served.stderr), "{}", served.stderr);
    let text = "listen = [\"tcp:0.0.0.0:1\", \"unix:s\"]\ncontrol = \"s\"\n[[volume]]\npmem = \"v\"\n[[volume]]\npmem = \"v\"\n";
    fs::write(&config, text).unwrap();
    let refused = run(&["config", "check", &config]);
    for words in ["two volumes are named", "is named as a region twice", "--insecure", "is named twice"] {
        assert!(refused.code == USAGE && refused.stderr.contains(words), "no {words:?} in {}", refused.stderr);
    }
}

#[test]
fn one_socket_in_two_spellings_is_no_configuration() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    fs::create_dir(folder.path("real")).unwrap();
    symlink("real", folder.path("link")).unwrap();
    let unix = |socket: &str| format!("unix:{socket}");
    let first = folder.text("real/s");
    let config = folder.text("t.toml");
    let listening =
        |second: &str| format!("listen = [{:?}, {:?}]\n[[volume]]\npmem = \"v\"\n", unix(&first), unix(second));
    for other in ["real/../real/s", "link/s"] {
        let second = folder.text(other);
        let told = format!("{second} is where {first} is: they are named as two sockets");
        let served = run(&["serve", "--pmem", &volume, "--listen", &unix(&first), "--listen", &unix(&second)]);
        assert!(served.code == USAGE && served.stderr.contains(&told), "{}", served.stderr);
        fs::write(&config, listening(&second)).unwrap();
        let checked = run(&["config", "check", &config]);
        assert!(checked.code == USAGE && checked.stderr.contains(&told), "{}", checked.stderr);
        assert_eq!(checked.stderr.matches("tidegate: error: ").count(), 1, "{}", checked.stderr);
    }
    fs::write(&config, listening(&folder.text("s"))).unwrap();
    let checked = run(&["config", "check", &config]);
    assert_eq!(checked.code, 0, "{}", checked.stderr);
}

#[test]
fn block_devices_that_the_kernel_cannot_make_are_refused_at_once() {
    for (words, told) in [
        (&["--ublk=1048576"][..], "from 0 to 1048575"),
        (&["--ublk=4294967295"], "there can be no /dev/ublkb4294967295"),
        (&["--ublk", "3"], "follows at once: --ublk=3"),
        (&["--ublk", "--ublk-queues", "4097"], "4096 queues at most"),
    ] {
        let refused = run(&[&["serve", "--pmem", "/nowhere/v"], words].concat());
        assert!(refused.code == USAGE && refused.stderr.contains(told), "{words:?}: {}", refused.stderr);
    }
}

#[test]
fn two_volumes_as_one_block_device_are_no_configuration() {
    let folder = Folder::new();
    let config = folder.text("t.toml");
    ["v", "w"].iter().for_each(|name| _ = folder.volume(name));
    let text = |one: &str, other: &str| {
        format!(
            "listen = \"unix:s\"\n[[volume]]\npmem = \"v\"\nublk = {one}\n[[volume]]\npmem = \"w\"\nublk = {other}\n"
        )
    };
    fs::write(&config, text("3", "3")).unwrap();
    let refused = run(&["config", "check", &config]);
    assert!(refused.code == USAGE && refused.stderr.contains("is to be /dev/ublkb3 too"), "{}", refused.stderr);
    assert_eq!(run(&["serve", "--config", &config]).stderr, refused.stderr, "before anything is opened");
    for (one, other) in [("3", "4"), ("true", "true"), ("3", "false")] {
        fs::write(&config, text(one, other)).unwrap();
        let checked = run(&["config", "check", &config]);
        assert_eq!(checked.code, 0, "{one} {other}: {}", checked.stderr);
    }
}

#[test]
fn a_mountpoint_in_its_source_is_refused_by_check_and_mount() {
    let folder = Folder::new();
    let config = folder.text("t.toml");
    fs::create_dir_all(folder.path("s/in")).unwrap();
    symlink(folder.path("s"), folder.path("link")).unwrap();
    let text = "[[mount]]\nsource = \"s\"\nmountpoint = \"link/in\"\npool = \"link/pool\"\n";
    fs::write(&config, text).unwrap();
    let refused = run(&["config", "check", &config]);
    for words in ["one lies in the other", "lies in the source"] {
        assert!(refused.code == USAGE && refused.stderr.contains(words), "no {words:?} in {}", refused.stderr);
    }
    let mounted = run(&["mount", "--config", &config]);
    assert!(mounted.code == USAGE && mounted.stderr.contains("one lies in the other"), "{}", mounted.stderr);
    assert!(!folder.path("s/pool").exists());
}

#[test]
fn a_log_that_leads_to_memory_and_words_in_any_case_are_examined() {
    let folder = Folder::new();
    let data = cluster(&folder, "wal_sync_method = FDATASYNC\n");
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    symlink(memory.path(), folder.path("data/pg_wal")).unwrap();
    let examined = examined(&data);
    let level = |subject: &str| level_of(&examined, subject);
    assert_eq!((level("log-place"), level("wal_sync_method")), ("fault".into(), "ok".into()), "{examined}");
}

#[test]
fn what_mysql_was_told_to_remember_is_examined() {
    let folder = Folder::new();
    fs::create_dir(folder.path("data")).unwrap();
    ["ibdata1", "mysql.ibd"].iter().for_each(|name| fs::write(folder.path("data").join(name), "").unwrap());
    fs::write(folder.path("data/my.cnf"), "[mysqld]\ninnodb_doublewrite = ON\t# safe\n").unwrap();
    let examined = || examined(&folder.text("data"));
    assert_eq!(level_of(&examined(), "innodb_doublewrite"), "ok");
    let persisted = r#"{"Version": 2, "mysql_static_variables": {"innodb_doublewrite": {"Value": "OFF"}}}"#;
    fs::write(folder.path("data/mysqld-auto.cnf"), persisted).unwrap();
    assert_eq!(level_of(&examined(), "innodb_doublewrite"), "fault");
}

/// What doctor says of a directory, with or without a fault.
fn examined(directory: &str) -> Value {
    serde_json::from_str(&run(&["doctor", "--json", directory]).stdout).unwrap()
}

/// The level of the only finding about `subject`.
fn level_of(examined: &Value, subject: &str) -> String {
    let findings = examined["findings"].as_array().unwrap();
    let found: Vec<_> = findings.iter().filter(|finding| finding["subject"] == subject).collect();
    assert_eq!(found.len(), 1, "{subject}: {examined:#}");
    found[0]["level"].as_str().unwrap().to_owned()
}

#[test]
fn configurations_of_mounts_and_runs_are_checked_too() {
    let folder = Folder::new();
    let config = folder.text("t.toml");
    ["s", "m"].iter().for_each(|name| fs::create_dir(folder.path(name)).unwrap());
    fs::write(&config, "[[mount]]\nsource = \"s\"\nmountpoint = \"m\"\npool = \"pool\"\n").unwrap();
    let checked = json(&["config", "check", &config]);
    assert_eq!((&checked["of"], &checked["mounts"][0]["name"]), (&"mount".into(), &"m".into()), "{checked}");
    fs::write(&config, "root = \"s\"\npool = \"pool\"\n").unwrap();
    let checked = json(&["config", "check", &config]);
    assert_eq!(
        (&checked["of"], &checked["mounts"][0]["mountpoint"]),
        (&"run".into(), &folder.text("s").into()),
        "{checked}"
    );
    let twice = "[[mount]]\nsource = \"s\"\nmountpoint = \"m\"\n[[mount]]\nsource = \"none\"\nmountpoint = \"m\"\n";
    fs::write(&config, twice).unwrap();
    let refused = run(&["config", "check", &config]);
    for words in ["two mounts are named", "have one mountpoint", "the source"] {
        assert!(refused.code == USAGE && refused.stderr.contains(words), "no {words:?} in {}", refused.stderr);
    }
    assert!(!folder.path("pool").exists());
    let unknown = run(&["config", "chekc", &config]);
    assert!(unknown.code == USAGE && unknown.stderr.contains("'check'"), "{}", unknown.stderr);
}
