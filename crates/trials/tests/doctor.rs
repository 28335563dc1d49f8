//! `tidegate doctor` over directories that real databases made, on a disk and in a mount, and over
//! mounts that are dead, silent, or left data behind.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tidegate_trials::artefacts::run;
use tidegate_trials::mount_folders::{MountFolders, shell};
use tidegate_trials::mounted::{kill_all, servers_of};
use tidegate_trials::postgres::make_cluster;
use tidegate_trials::served::{program, until};

const DONE: i32 = 0;
const REFUSED: i32 = 3;
const ENVIRONMENT: i32 = 5;

/// What `tidegate doctor` answers, and how it ends.
struct Examined {
    code: i32,
    findings: Vec<Value>,
}

impl Examined {
    fn of(mut doctor: Command) -> Examined {
        let Output { status, stdout, stderr } = doctor.stdin(Stdio::null()).output().unwrap();
        let json: Value = serde_json::from_slice(&stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&stderr)));
        Examined { code: status.code().unwrap(), findings: json["findings"].as_array().unwrap().clone() }
    }

    fn directory(directory: &Path, more: &[&str]) -> Examined {
        let mut doctor = Command::new(program());
        doctor.args(["doctor", "--json"]).arg(directory).args(more);
        Examined::of(doctor)
    }

    fn machine(state: &Path) -> Examined {
        let mut doctor = Command::new(program());
        doctor.args(["doctor", "--json"]).env("XDG_STATE_HOME", state);
        Examined::of(doctor)
    }

    /// The level of the finding about `subject` that names `path`.
    fn level(&self, subject: &str, path: &str) -> &str {
        let names = |key: &Value| key.as_str().is_some_and(|text| text.contains(path));
        let about =
            |finding: &&Value| finding["subject"] == subject && (names(&finding["found"]) || names(&finding["fix"]));
        let found: Vec<_> = self.findings.iter().filter(about).collect();
        let [finding] = found[..] else { panic!("{subject} {path}: {:#?}", self.findings) };
        finding["level"].as_str().unwrap()
    }
}

/// A mount, and a folder beside it on the disk below.
struct Places {
    folders: MountFolders,
    service: Child,
}

impl Places {
    fn new() -> Places {
        let folders = MountFolders::new();
        fs::set_permissions(folders.at(""), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folders.at("disk")).unwrap();
        let service = folders.mount();
        Places { folders, service }
    }

    /// An empty directory of this name in both places.
    fn directories(&self, name: &str) -> [PathBuf; 2] {
        ["disk", "mnt"].map(|place| {
            let directory = self.folders.at(place).join(name);
            fs::create_dir(&directory).unwrap();
            directory
        })
    }

    fn end(mut self) {
        let ended = self.folders.tidegate("umount", &self.folders.at("mnt"));
        assert!(ended.status.success(), "{ended:?}");
        self.service.wait().unwrap();
    }
}

#[test]
fn clusters_of_postgresql_are_examined_where_they_lie() {
    let places = Places::new();
    for directory in places.directories("pg") {
        make_cluster(&directory).unwrap();
        let in_mount = directory.starts_with(places.folders.at("mnt"));
        let examined = Examined::directory(&directory, &[]);
        for subject in ["fsync", "full_page_writes", "synchronous_commit", "wal_sync_method", "settings"] {
            assert_eq!(examined.level(subject, ""), "ok", "{subject}");
        }
        assert!(examined.level("database", "PostgreSQL 1") == "ok");
        // The pool lies in memory, which a power loss takes.
        assert_eq!(
            (examined.code, examined.level("place", "")),
            if in_mount { (REFUSED, "fault") } else { (DONE, place_on_disk(&examined)) }
        );
        let settings = directory.join("postgresql.conf");
        let mut file = fs::File::options().append(true).open(&settings).unwrap();
        writeln!(file, "fsync = off\nfull_page_writes = off\nsynchronous_commit = off\ncommit_delay = 50").unwrap();
        let examined = Examined::directory(&directory, &[]);
        assert_eq!((examined.code, examined.level("fsync", "postgresql.conf:")), (REFUSED, "fault"));
        assert_eq!(examined.level("full_page_writes", "= off"), "fault");
        assert_eq!(examined.level("synchronous_commit", "= off"), "warning");
        let delays = examined.findings.iter().any(|finding| finding["subject"] == "commit_delay");
        assert_eq!(delays, in_mount);
        // What ALTER SYSTEM writes is read last.
        fs::write(directory.join("postgresql.auto.conf"), "fsync = 'on'\n").unwrap();
        assert_eq!(Examined::directory(&directory, &[]).level("fsync", "postgresql.auto.conf:1"), "ok");
    }
    places.end();
}

/// The level of an ordinary disk's place: whether a virtual disk is a volume cannot be told.
fn place_on_disk(examined: &Examined) -> &'static str {
    match examined.level("place", "it lies on") {
        "ok" => "ok",
        "advice" => "advice",
        other => panic!("{other}: {:#?}", examined.findings),
    }
}

#[test]
fn databases_of_sqlite_are_examined_where_they_lie() {
    let places = Places::new();
    for directory in places.directories("sqlite") {
        let sqlite = |file: &str, sql: &str| {
            run(Command::new("sqlite3").arg(directory.join(file)).arg(sql), "sqlite3").unwrap();
        };
        sqlite("rollback.db", "pragma page_size = 1024; create table t(x);");
        sqlite("wal.db", "pragma journal_mode = wal; create table t(x); insert into t values (1);");
        let examined = Examined::directory(&directory, &[]);
        let in_mount = directory.starts_with(places.folders.at("mnt"));
        let wasted = if in_mount { "advice" } else { "ok" };
        assert_eq!(examined.level("journal_mode", "rollback.db"), wasted);
        assert_eq!(examined.level("page_size", "rollback.db has pages of 1 KiB"), wasted);
        assert_eq!(examined.level("journal_mode", "wal.db has a write-ahead log"), "ok");
        assert_eq!(examined.level("page_size", "wal.db has pages of 4 KiB"), "ok");
    }
    places.end();
}

#[test]
fn data_of_redis_is_examined_where_it_lies() {
    let places = Places::new();
    for directory in places.directories("redis") {
        let (settings, socket) = (directory.join("redis.conf"), places.folders.at("redis.sock"));
        let text = format!(
            "dir {}\nport 0\nunixsocket {}\nappendonly yes\nappendfsync everysec\n",
            directory.display(),
            socket.display()
        );
        fs::write(&settings, text).unwrap();
        let mut server = Command::new("redis-server").arg(&settings).stdout(Stdio::null()).spawn().unwrap();
        let ask = |words: &[&str]| Command::new("redis-cli").arg("-s").arg(&socket).args(words).output().unwrap();
        until("a server", || ask(&["set", "a", "1"]).stdout.starts_with(b"OK"));
        ask(&["shutdown"]);
        server.wait().unwrap();
        let examined = Examined::directory(&directory, &[]);
        let in_mount = directory.starts_with(places.folders.at("mnt"));
        assert_eq!(examined.level("database", ""), "ok");
        assert_eq!(examined.level("appendonly", "redis.conf:4"), "ok");
        assert_eq!(examined.level("appendfsync", "= everysec"), if in_mount { "advice" } else { "ok" });
        fs::remove_file(&settings).unwrap();
        let unknown = Examined::directory(&directory, &[]);
        assert_eq!(
            (unknown.level("settings", "no file"), unknown.level("appendonly", "there is a log")),
            ("warning", "ok")
        );
    }
    places.end();
}

#[test]
fn databases_of_mariadb_are_examined_with_the_settings_that_are_named() {
    let places = Places::new();
    for directory in places.directories("mysql") {
        run(Command::new("chown").arg("mysql:mysql").arg(&directory), "coreutils").unwrap();
        let mut made = Command::new("mariadb-install-db");
        made.args(["--no-defaults", "--user=mysql", "--skip-test-db", "--innodb-log-file-size=4M"]);
        run(made.arg(format!("--datadir={}", directory.display())), "mariadb-server").unwrap();
        let settings = places.folders.at("my.cnf");
        fs::write(&settings, "[mysqld]\nskip-innodb-doublewrite\ninnodb_flush_method = O_DIRECT\nlog_bin\n").unwrap();
        let examined = Examined::directory(&directory, &["--settings", settings.to_str().unwrap()]);
        let in_mount = directory.starts_with(places.folders.at("mnt"));
        assert_eq!(examined.level("database", "MariaDB"), "ok");
        assert_eq!((examined.code, examined.level("innodb_doublewrite", "= OFF")), (REFUSED, "fault"));
        assert_eq!(examined.level("innodb_flush_method", "O_DIRECT"), if in_mount { "advice" } else { "ok" });
        assert_eq!(examined.level("innodb_flush_log_at_trx_commit", "the default"), "ok");
        assert_eq!(examined.level("sync_binlog", "= 0 (the default)"), "warning");
    }
    places.end();
}

#[test]
fn stores_of_rocksdb_are_examined_by_their_newest_options() {
    let places = Places::new();
    for directory in places.directories("rocks") {
        let mut made = Command::new("db_bench");
        made.args(["--benchmarks=fillseq", "--num=10", "--manual_wal_flush=true"]);
        run(made.arg(format!("--db={}", directory.display())), "rocksdb-tools").unwrap();
        let examined = Examined::directory(&directory, &[]);
        assert_eq!(examined.level("database", "RocksDB"), "ok");
        assert_eq!(examined.level("write-sync", "not known"), "ok");
        assert_eq!(examined.level("manual_wal_flush", "= true"), "warning");
    }
    places.end();
}

#[test]
fn a_mount_that_was_killed_is_a_fault_until_it_is_recovered() {
    let (folders, state) = (MountFolders::new(), tempfile::tempdir().unwrap());
    let mut mount = Command::new(program());
    mount.arg("mount").args([folders.at("source"), folders.at("mnt")]).env("XDG_STATE_HOME", state.path());
    mount.args(["--pool-size", "64M", "--dram", "16M", "--try"]).stdout(Stdio::null());
    let mut service = mount.spawn().unwrap();
    until("the mount", || folders.is_mounted());
    shell(&folders.at("mnt"), "sqlite3 a.db 'pragma journal_mode = wal; create table t(x); insert into t values (1)'");
    let mnt = folders.at("mnt").display().to_string();
    let well = Examined::machine(state.path());
    assert!(
        !well.findings.iter().any(|finding| finding["found"].as_str().unwrap().contains(&mnt)),
        "{:#?}",
        well.findings
    );
    kill_all(&mut service);
    let examined = Examined::machine(state.path());
    let refused = Command::new(program()).args(["doctor", &mnt]).output().unwrap();
    assert!(refused.status.code() == Some(ENVIRONMENT) && !refused.stderr.is_empty(), "{refused:?}");
    assert_eq!((examined.code, examined.level("mount", &format!("at {mnt} is dead"))), (REFUSED, "fault"));
    let source = folders.at("source").display().to_string();
    assert_eq!(examined.level("pool", &format!("has data of {source}")), "fault");
    rustix::mount::unmount(folders.at("mnt"), rustix::mount::UnmountFlags::DETACH).unwrap();
    // The files in SOURCE lack what the pool has.
    shell(&folders.at("source"), "sqlite3 b.db 'create table t(x)'");
    let examined = Examined::directory(&folders.at("source"), &[]);
    assert_eq!((examined.code, examined.level("place", "tidegate recover")), (REFUSED, "fault"));
    let mut recover = Command::new(program());
    recover.arg("recover").arg(pool_in(state.path())).env("XDG_STATE_HOME", state.path());
    run(&mut recover, "tidegate").unwrap();
    let examined = Examined::machine(state.path());
    let tells = |finding: &Value| finding["subject"] == "pool" && finding["found"].as_str().unwrap().contains(&source);
    assert!(!examined.findings.iter().any(tells), "{:#?}", examined.findings);
    place_on_disk(&Examined::directory(&folders.at("source"), &[]));
}

/// The only pool in a state folder.
fn pool_in(state: &Path) -> PathBuf {
    let mut entries = fs::read_dir(state.join("tidegate")).unwrap().map(|entry| entry.unwrap().path());
    entries.find(|path| path.extension().is_some_and(|extension| extension == "pool")).unwrap()
}

#[test]
fn a_service_that_hangs_is_told_and_keeps_nobody_waiting() {
    let folders = MountFolders::new();
    let mut service = folders.mount();
    until("its answer", || folders.tidegate("status", &folders.pool()).status.success());
    let all: Vec<Pid> = servers_of(service.id()).into_iter().chain([Pid::from_child(&service)]).collect();
    let send = |signal: Signal| all.iter().for_each(|pid| kill_process(*pid, signal).unwrap());
    send(Signal::STOP);
    let mnt = folders.at("mnt").display().to_string();
    let examined = Examined::machine(folders.memory());
    let refused = Command::new(program()).args(["doctor", "--json", &mnt]).output().unwrap();
    // A database elsewhere, of which parts and settings lie in the mount.
    let cluster = tempfile::tempdir().unwrap();
    fs::create_dir(cluster.path().join("pg_tblspc")).unwrap();
    let settings = format!("include '{mnt}/more.conf'\n");
    for (name, text) in [("PG_VERSION", "15\n"), ("postgresql.conf", &settings), ("dump.rdb", "")] {
        fs::write(cluster.path().join(name), text).unwrap();
    }
    for name in ["pg_wal", "pg_tblspc/1", "appendonlydir"] {
        std::os::unix::fs::symlink(folders.at("mnt").join("x"), cluster.path().join(name)).unwrap();
    }
    let mut patient = Command::new("timeout");
    patient.args(["-s", "KILL", "120"]).arg(program()).args(["doctor", "--json"]).arg(cluster.path());
    let elsewhere = Examined::of(patient);
    send(Signal::CONT);
    assert_eq!(elsewhere.level("log-place", "pg_wal does not answer"), "fault");
    assert_eq!(elsewhere.level("log-place", "appendonlydir does not answer"), "fault");
    assert_eq!(elsewhere.level("tablespace-place", "pg_tblspc/1 does not answer"), "fault");
    assert_eq!(elsewhere.level("settings-gap", "more.conf"), "warning");
    assert_eq!((examined.code, examined.level("service", &mnt)), (REFUSED, "fault"));
    let pool = folders.pool().display().to_string();
    assert_eq!(examined.level("service", &pool), "fault");
    let told: Value = serde_json::from_slice(&refused.stderr).unwrap();
    assert_eq!((refused.status.code(), &told["error"]["kind"]), (Some(ENVIRONMENT), &"doctor-silent".into()));
    // The question that doctor gave up still uses the mount for a moment.
    until("the end", || folders.tidegate("umount", &folders.at("mnt")).status.success());
    service.wait().unwrap();
}
