//! The server of a mount killed while programs use the mount: they see a pause and no error, and
//! nothing is lost.
//!
//! | killed | programs see |
//! | --- | --- |
//! | the server, again and again | a pause |
//! | the server stopped, and then continued | a pause |
//! | every server at its start | after ten of them, `ENOTCONN` until the next mount |
//! | the server amid atomic groups of SQLite | a pause, and SQLite a group that has ended |
//! | server and supervisor | `ENOTCONN` until the next mount |
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::fd::OwnedFd;
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tidegate_measure::sqlite::shell_with_groups;
use tidegate_trials::artefacts::{cache, run};
use tidegate_trials::mounted::{FSX, MountTestbed, suites};
use tidegate_trials::served::{program, until};

/// Kills of a server under each program, unless `TIDEGATE_KILLS` says more.
const KILLS: u32 = 15;

/// Of so many servers, one lives for [`LIFE`]: a supervisor gives up after ten early deaths in a
/// row.
const SHORT_LIVES: u32 = 4;

/// A server that lived so long did not die early.
const LIFE: Duration = Duration::from_secs(1);

/// Kills of a server on the second of two grounds.
const KILLS_AGAIN: u32 = 5;

fn kills() -> u32 {
    kills_or(KILLS)
}

/// `kills`, unless the environment says more.
fn kills_or(kills: u32) -> u32 {
    std::env::var("TIDEGATE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(kills)
}

/// Kills the server again and again until `work` ends, each time when more of it was done. `work`
/// counts what it does, and goes on until it is told that there were enough kills.
fn killed_amid(testbed: &mut MountTestbed, kills: u32, work: impl Fn(&AtomicU64, &AtomicBool) + Sync) {
    let (done, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let working = scope.spawn(|| work(&done, &enough));
        for kill in 1..=kills {
            let begun = Instant::now();
            let may_die = || !kill.is_multiple_of(SHORT_LIVES) || begun.elapsed() >= LIFE;
            let before = done.load(Ordering::Relaxed);
            until("the programs' work", || may_die() && done.load(Ordering::Relaxed) > before || working.is_finished());
            testbed.kill_server();
        }
        enough.store(true, Ordering::Relaxed);
        working.join().unwrap();
    });
}

/// Does `round` until it was told that there were enough kills.
fn rounds(done: &AtomicU64, enough: &AtomicBool, mut round: impl FnMut(u64)) {
    for number in 0.. {
        if enough.load(Ordering::Relaxed) && number > 0 {
            return;
        }
        round(number);
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// A mount on this machine's disk, whatever that is, and one on ext4 with a journal, where the pool
/// logs names; and how often the server is killed on each.
fn testbeds() -> [(MountTestbed, u32); 2] {
    [(MountTestbed::new(), kills()), (MountTestbed::on_own_disk(), kills_or(KILLS_AGAIN))]
}

#[test]
fn what_was_open_or_not_synced_is_as_before() {
    testbeds().into_iter().for_each(|(testbed, _)| find_as_before(testbed));
}

fn find_as_before(mut testbed: MountTestbed) {
    let root = testbed.mountpoint();
    fs::create_dir_all(root.join("d/e")).unwrap();
    let open = |name: &str| OpenOptions::new().read(true).write(true).create(true).truncate(true).open(root.join(name));
    let mut named = open("d/named").unwrap();
    named.write_all(b"not synced").unwrap();
    let mut unlinked = open("d/unlinked").unwrap();
    unlinked.write_all(b"without ").unwrap();
    unlinked.sync_all().unwrap();
    fs::remove_file(root.join("d/unlinked")).unwrap();
    unlinked.write_all(b"a name").unwrap();
    unlinked.sync_all().unwrap();
    let replaced = open("d/replaced").unwrap();
    replaced.write_all_at(b"old", 0).unwrap();
    fs::write(root.join("d/fresh"), b"new").unwrap();
    fs::rename(root.join("d/fresh"), root.join("d/replaced")).unwrap();
    let mut moved = open("d/e/moved").unwrap();
    fs::rename(root.join("d/e"), root.join("elsewhere")).unwrap();
    let gone = File::open(root.join("d"))
        .and_then(|_| fs::create_dir(root.join("gone")))
        .and_then(|()| File::open(root.join("gone")))
        .unwrap();
    fs::remove_dir(root.join("gone")).unwrap();
    let inode = named.metadata().unwrap().ino();
    for round in 0..3 {
        testbed.kill_server();
        moved.write_all(b"moved ").unwrap();
        assert_eq!(named.metadata().unwrap().ino(), inode);
        for (file, expected) in [(&mut named, &b"not synced"[..]), (&mut unlinked, b"without a name")] {
            let mut contents = Vec::new();
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_to_end(&mut contents).unwrap();
            assert_eq!(contents, expected, "round {round}");
        }
        let mut old = [0; 3];
        replaced.read_exact_at(&mut old, 0).unwrap();
        assert_eq!((&old, fs::read(root.join("d/replaced")).unwrap()), (b"old", b"new".to_vec()));
        assert!(gone.metadata().unwrap().is_dir());
        assert_eq!(unlinked.metadata().unwrap().nlink(), 0);
    }
    drop((named, unlinked, replaced, moved, gone));
    let status = Command::new(program()).args(["status", "--json"]).arg(testbed.pool()).output().unwrap();
    assert!(String::from_utf8_lossy(&status.stdout).contains("\"restarts\":3"), "{status:?}");
    let (source, root) = (testbed.source(), root.clone());
    assert!(!root.join("d/unlinked").exists());
    let left = testbed.end();
    assert_eq!(left.read("d/named"), b"not synced");
    assert_eq!(left.read("elsewhere/moved"), b"moved moved moved ");
    assert!(!source.join("d/fresh").exists());
}

#[test]
fn a_directory_is_listed_on_where_it_was() {
    let mut testbed = MountTestbed::new();
    let root = testbed.mountpoint();
    let names: BTreeSet<_> = (0..2000).map(|number| format!("file {number:05}")).collect();
    names.iter().for_each(|name| fs::write(root.join(name), name).unwrap());
    let mut listing = fs::read_dir(&root).unwrap();
    let mut listed: Vec<_> = listing.by_ref().take(100).map(|entry| entry.unwrap().file_name()).collect();
    testbed.kill_server();
    listed.extend(listing.map(|entry| entry.unwrap().file_name()));
    assert_eq!(listed.len(), names.len());
    assert_eq!(listed.into_iter().map(|name| name.into_string().unwrap()).collect::<BTreeSet<_>>(), names);
}

#[test]
fn changes_of_names_are_made_once() {
    testbeds().into_iter().for_each(|(testbed, kills)| make_changes_once(testbed, kills));
}

fn make_changes_once(mut testbed: MountTestbed, kills: u32) {
    let root = testbed.mountpoint();
    killed_amid(&mut testbed, kills, |done, enough| {
        let threads = 3;
        thread::scope(|scope| {
            for number in 0..threads {
                let folder = root.join(format!("c{number}"));
                scope.spawn(move || {
                    fs::create_dir(&folder).unwrap();
                    rounds(done, enough, |round| names_round(&folder, round));
                });
            }
        });
    });
    assert!(testbed.end().is_written_back());
}

/// Every step demands that it is carried out once.
fn names_round(folder: &Path, round: u64) {
    let at = |name: &str| folder.join(name);
    let mut file = OpenOptions::new().create_new(true).write(true).open(at("a")).unwrap();
    file.write_all(&round.to_le_bytes().repeat(1000)).unwrap();
    fs::hard_link(at("a"), at("b")).unwrap();
    fs::rename(at("a"), at("c")).unwrap();
    std::os::unix::fs::symlink("c", at("s")).unwrap();
    fs::create_dir(at("d")).unwrap();
    fs::rename(at("c"), at("d/c")).unwrap();
    fs::remove_file(at("b")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    fs::remove_file(at("d/c")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all(b"more").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8004);
    fs::remove_dir(at("d")).unwrap();
    fs::remove_file(at("s")).unwrap();
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn fsx_finds_every_byte_that_it_wrote() {
    let (suites, mut testbed) = (suites().unwrap(), MountTestbed::new());
    let config = testbed.beside().join("fsx.toml");
    fs::write(&config, FSX).unwrap();
    let (beside, root) = (testbed.beside(), testbed.mountpoint());
    killed_amid(&mut testbed, kills(), |done, enough| {
        rounds(done, enough, |seed| {
            let mut fsx = Command::new(suites.join("fsx"));
            fsx.args(["-N", "200", "-S", &seed.to_string(), "-f"]).arg(&config).arg("-P").arg(&beside);
            run(fsx.arg(root.join("file")), "cargo").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        });
    });
    assert!(testbed.end().is_written_back());
}

#[test]
fn sqlite_keeps_its_transactions() {
    testbeds().into_iter().for_each(|(testbed, kills)| keep_transactions(testbed, kills));
}

fn keep_transactions(mut testbed: MountTestbed, kills: u32) {
    let root = testbed.mountpoint();
    let sqlite = |database: &str, script: &str| {
        let mut sqlite = Command::new("sqlite3");
        run(sqlite.arg("-bail").arg(root.join(database)).arg(script), "sqlite3")
            .unwrap_or_else(|error| panic!("{error}"))
    };
    for mode in ["wal", "delete"] {
        sqlite(mode, &format!("pragma journal_mode={mode}; create table t(a integer primary key, b);"));
    }
    let inserted = AtomicU64::new(0);
    killed_amid(&mut testbed, kills, |done, enough| {
        rounds(done, enough, |round| {
            for mode in ["wal", "delete"] {
                sqlite(mode, &format!("pragma synchronous=full; insert into t(b) values('{round}');").repeat(5));
            }
            inserted.fetch_add(5, Ordering::Relaxed);
        });
    });
    let expected = format!("ok\n{}\n", inserted.load(Ordering::Relaxed));
    for mode in ["wal", "delete"] {
        assert_eq!(sqlite(mode, "pragma integrity_check; select count(*) from t;"), expected);
    }
    assert!(testbed.end().is_written_back());
}

#[test]
fn sqlite_keeps_transactions_in_atomic_groups_almost_without_a_journal() {
    let mut testbed = MountTestbed::new();
    let root = testbed.mountpoint();
    let shell = shell_with_groups(&cache().unwrap()).unwrap();
    let sqlite = |script: &str| {
        let mut sqlite = Command::new(&shell);
        run(sqlite.arg(root.join("base")).arg(script), "gcc").unwrap_or_else(|error| panic!("{error}"))
    };
    sqlite("create table t(a integer primary key, b);");
    let journals = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&journals, &root, inotify::WatchFlags::CREATE).unwrap();
    let inserted = AtomicU64::new(0);
    killed_amid(&mut testbed, kills(), |done, enough| {
        rounds(done, enough, |round| {
            sqlite(&format!("pragma synchronous=full; insert into t(b) values('{round}');").repeat(100));
            inserted.fetch_add(100, Ordering::Relaxed);
        });
    });
    let expected = format!("ok\n{}\n", inserted.load(Ordering::Relaxed));
    assert_eq!(sqlite("pragma integrity_check; select count(*) from t;"), expected);
    let made = names_of_new_files(&journals);
    // A server that dies takes its groups along: SQLite does these again, with a journal.
    assert!(made.len() <= kills() as usize && made.iter().all(|name| name == "base-journal"), "{made:?}");
    sqlite("insert into t(b) values('last');");
    let status = String::from_utf8(testbed.status_json().stdout).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert!(status["groups"].as_u64() > Some(0), "{status}");
    assert!(testbed.end().is_written_back());
}

/// The names that an inotify descriptor has seen.
fn names_of_new_files(seen: &OwnedFd) -> Vec<String> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let (mut events, mut names) = (inotify::Reader::new(seen, &mut buffer), Vec::new());
    loop {
        match events.next() {
            Ok(event) => names.extend(event.file_name().map(|name| name.to_string_lossy().into_owned())),
            Err(Errno::AGAIN) => return names,
            Err(errno) => panic!("{errno}"),
        }
    }
}

/// A Redis server, until this is dropped.
struct Redis(Child);

impl Redis {
    fn start(folder: &Path, socket: &Path) -> Redis {
        let mut redis = Command::new("redis-server");
        redis.args(["--port", "0", "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--unixsocket"]);
        redis.arg(socket).arg("--dir").arg(folder).stdout(Stdio::null());
        let redis = Redis(redis.spawn().expect("redis-server is installed: apt-get install redis-server"));
        until("Redis", || socket.exists());
        redis
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn redis_keeps_its_log() {
    let mut testbed = MountTestbed::new();
    let (root, socket) = (testbed.mountpoint(), testbed.beside().join("redis"));
    let ask = |words: &[&str]| {
        let mut client = Command::new("redis-cli");
        run(client.arg("-s").arg(&socket).args(words), "redis-tools").unwrap_or_else(|error| panic!("{error}"))
    };
    let redis = Redis::start(&root, &socket);
    let counted = AtomicU64::new(0);
    killed_amid(&mut testbed, kills(), |done, enough| {
        rounds(done, enough, |round| {
            assert_eq!(ask(&["incr", "counter"]).trim(), (round + 1).to_string());
            counted.store(round + 1, Ordering::Relaxed);
        });
    });
    drop(redis);
    let _ = fs::remove_file(&socket);
    let redis = Redis::start(&root, &socket);
    until("the log", || ask(&["ping"]).trim() == "PONG");
    assert_eq!(ask(&["get", "counter"]).trim(), counted.load(Ordering::Relaxed).to_string());
    drop(redis);
    assert!(testbed.end().is_written_back());
}

#[test]
fn a_server_that_is_stopped_keeps_programs_waiting_and_no_longer() {
    let testbed = MountTestbed::new();
    until("the server", || testbed.server().is_some());
    let server = testbed.server().unwrap();
    let path = testbed.mountpoint().join("file");
    kill_process(server, Signal::STOP).unwrap();
    let writer = thread::spawn(move || fs::write(path, b"late"));
    thread::park_timeout(Duration::from_millis(300));
    assert!(!writer.is_finished());
    kill_process(server, Signal::CONT).unwrap();
    writer.join().unwrap().unwrap();
    assert!(testbed.end().is_written_back());
}

#[test]
fn a_mount_whose_servers_die_at_their_start_answers_errors_and_is_mounted_again() {
    let mut testbed = MountTestbed::new();
    let path = testbed.mountpoint().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(testbed.kill_every_server(), Some(1));
    assert_eq!(fs::read(&path).unwrap_err().raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
    testbed.mount_again();
    assert_eq!(fs::read(&path).unwrap(), b"synced");
    assert!(testbed.end().is_written_back());
}

#[test]
fn a_killed_server_is_started_again_when_no_line_of_the_log_can_be_written() {
    let mut testbed = MountTestbed::new();
    testbed.kill();
    testbed.mount_again_without_a_log();
    let path = testbed.mountpoint().join("file");
    fs::write(&path, b"before").unwrap();
    // Each time the supervisor has something to log.
    for _ in 0..2 {
        testbed.kill_server();
        assert_eq!(fs::read(&path).unwrap(), b"before");
    }
    assert!(testbed.end().is_written_back());
}

#[test]
fn a_mount_whose_supervisor_died_too_is_mounted_again() {
    let mut testbed = MountTestbed::new();
    let path = testbed.mountpoint().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    testbed.kill_and_leave();
    assert_eq!(fs::read(&path).unwrap_err().raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
    testbed.mount_again();
    assert_eq!(fs::read(&path).unwrap(), b"synced");
    drop(file);
    assert!(testbed.end().is_written_back());
}
