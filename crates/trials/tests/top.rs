//! `tidegate top` over real servers and mounts: its numbers are those of `stat` and `status`, a
//! service that does not answer is a line, or a metric, and the terminal is afterwards as it was.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use tidegate_media::Durability;
use tidegate_trials::mount_folders::{MountFolders, shell, tidegate};
use tidegate_trials::mounted::servers_of;
use tidegate_trials::scraped::{MetricsProgram, samples};
use tidegate_trials::served::{Volume, program, until};

const USAGE: i32 = 2;
const ENVIRONMENT: i32 = 5;
const BLOCK: usize = 4096;

/// The size of the screen at first, on which every column and many numbers have room.
const COLUMNS: u16 = 180;
const LINES: u16 = 60;

fn run(words: &[&str]) -> Output {
    Command::new(program()).args(words).stdin(Stdio::null()).output().unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// One look: the row of the region or pool `file`.
fn row(file: &Path) -> Value {
    let looked = json(&run(&["top", "--once", "--json"]));
    let rows = looked["rows"].as_array().unwrap().iter();
    let found: Vec<_> = rows.filter(|row| row["file"] == *file.to_string_lossy()).collect();
    assert_eq!(found.len(), 1, "{}: {looked}", file.display());
    found[0].clone()
}

fn stat(pmem: &Path) -> Value {
    let stat = json(&run(&["stat", "--json", "--pmem", &pmem.to_string_lossy()]));
    stat["volumes"][0].clone()
}

#[test]
fn a_volume_has_the_numbers_of_stat_and_rates_while_a_client_writes() {
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::create(folder.path(), "v", "32M");
    let server = volume.serve();
    let pmem = folder.path().join("v");
    let mut client = server.connect();
    for block in 0..10 {
        client.write(block * BLOCK as u64, &[7; BLOCK], Durability::Volatile).unwrap();
    }
    client.read(0, &mut [0; 2 * BLOCK]).unwrap();
    client.flush().unwrap();
    let (row, stat_before) = (row(&pmem), stat(&pmem));
    for (kind, of_requests, of_bytes) in [("read", "reads", "read_bytes"), ("write", "writes", "written_bytes")] {
        let requests = &stat_before["requests"][kind];
        assert_eq!(
            (&row["totals"][of_requests], &row["totals"][of_bytes]),
            (&requests["requests"], &requests["bytes"])
        );
    }
    assert_eq!((&row["totals"]["syncs"], &row["totals"]["errors"]), (&1.into(), &0.into()), "{row}");
    assert_eq!((&row["kind"], &row["state"], &row["name"]), (&"volume".into(), &"read-write".into(), &"v".into()));
    assert_eq!((&row["writes_per_second"], &row["p99_us"]), (&0.0.into(), &Value::Null), "{row}");
    let row = while_writing(&mut client, || self::row(&pmem));
    let stat_after = stat(&pmem);
    let writes = |stat: &Value| stat["requests"]["write"]["requests"].as_u64().unwrap();
    let seen = row["totals"]["writes"].as_u64().unwrap();
    assert!((writes(&stat_before)..=writes(&stat_after)).contains(&seen), "{row}");
    let [rate, bytes] = ["writes_per_second", "written_bytes_per_second"].map(|key| row[key].as_f64().unwrap());
    assert!(rate > 0.0 && (bytes / rate - BLOCK as f64).abs() < 1.0, "{row}");
    assert!(row["p50_us"].as_f64() <= row["p99_us"].as_f64() && row["p50_us"].is_f64(), "{row}");
    drop(client);
    server.stop();
}

/// What `look` gives while the client writes all the time.
fn while_writing(
    client: &mut tidegate_nbd_client::client::Client<std::os::unix::net::UnixStream>,
    look: impl FnOnce() -> Value + Send,
) -> Value {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let row = look();
            ended.store(true, Ordering::Relaxed);
            row
        });
        while !ended.load(Ordering::Relaxed) && !looking.is_finished() {
            client.write(0, &[8; BLOCK], Durability::Volatile).unwrap();
        }
        looking.join().unwrap()
    })
}

#[test]
fn a_disk_cache_has_its_dirty_bytes_and_its_hits() {
    let folder = tempfile::tempdir().unwrap();
    let [pmem, disk, socket] = ["v", "disk", "s"].map(|name| folder.path().join(name));
    File::create(&disk).and_then(|disk| disk.set_len(32 << 20)).unwrap();
    let [pmem_word, disk_word] = [&pmem, &disk].map(|path| path.to_string_lossy().into_owned());
    let created = run(&["create", "--pmem", &pmem_word, "--size", "16M", "--disk", &disk_word]);
    assert!(created.status.success(), "{created:?}");
    let server = Volume::at(&pmem).serve_with(&["--accept-volatile", "--disk", &disk_word]);
    let mut client = server.connect();
    client.write(0, &vec![7; 8 * BLOCK], Durability::Volatile).unwrap();
    client.read(0, &mut [0; 2 * BLOCK]).unwrap();
    client.read(16 << 20, &mut [0; BLOCK]).unwrap();
    let flushed = run(&["flush", "--wait", "--pmem", &pmem_word]);
    assert!(flushed.status.success(), "{flushed:?}");
    let (row, stat) = (row(&pmem), stat(&pmem));
    assert_eq!((&row["kind"], &row["state"]), (&"disk-cache".into(), &"write-back".into()), "{row}");
    assert_eq!(row["below"], *disk.to_string_lossy());
    assert_eq!((&row["dirty_bytes"], &row["eta_seconds"]), (&0.into(), &0.0.into()), "{row}");
    assert_eq!(row["totals"]["written_back_bytes"], 8 * BLOCK, "{row}");
    for (tier, counter) in [("cache", "disk_cache_read_hits"), ("disk", "disk_cache_read_misses")] {
        assert_eq!(row["hits"][tier]["total"].as_f64(), stat["counters"][counter].as_f64(), "{row} {stat}");
    }
    drop((client, socket));
    server.stop();
}

#[test]
fn a_mount_has_the_numbers_of_status() {
    let bed = MountFolders::new();
    let mut service = bed.mount();
    let mnt = bed.at("mnt");
    shell(&mnt, "echo one > file; sync file; echo two >> file; sync file");
    assert!(bed.tidegate("flush", &bed.pool()).status.success());
    let (row, status) = (row(&bed.pool()), json(&tidegate("status", &bed.pool(), &["--json"])));
    assert_eq!((&row["kind"], &row["state"]), (&"mount".into(), &"mounted".into()), "{row}");
    assert_eq!((&row["name"], &row["below"]), (&status["mountpoint"], &status["source"]));
    assert_eq!(row["totals"]["syncs"], status["syncs"].as_u64().unwrap() + status["syncs_below"].as_u64().unwrap());
    assert_eq!(row["totals"]["syncs"], 2, "{row}");
    for (key, of_status) in [("written_bytes", "synced_bytes"), ("written_back_bytes", "written_back_bytes")] {
        assert_eq!(row["totals"][key], status[of_status], "{row} {status}");
    }
    assert_eq!(row["dirty_bytes"], 0, "{row}");
    for (tier, of_status) in [("dram", "read_dram_bytes"), ("pool", "read_pool_bytes"), ("below", "read_below_bytes")] {
        assert_eq!(row["hits"][tier]["total"], status[of_status], "{row} {status}");
    }
    let text = String::from_utf8(run(&["top", "--once"]).stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with(&*mnt.to_string_lossy()));
    assert!(line.is_some_and(|line| line.contains(" mount  ") || line.contains(" mount ")), "{text}");
    assert_eq!(bed.tidegate("umount", &mnt).status.code(), Some(0));
    assert!(service.wait().unwrap().success());
}

/// A service that stands still: its socket takes connections, and nothing answers them.
struct Stopped(Vec<Pid>);

impl Stopped {
    fn service(supervisor: &Child) -> Stopped {
        until("a server", || !servers_of(supervisor.id()).is_empty());
        let mut all = vec![Pid::from_child(supervisor)];
        kill_process(all[0], Signal::STOP).unwrap();
        all.extend(servers_of(supervisor.id()));
        all[1..].iter().for_each(|server| kill_process(*server, Signal::STOP).unwrap());
        Stopped(all)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.iter().for_each(|process| _ = kill_process(*process, Signal::CONT));
    }
}

#[test]
fn a_mount_that_stands_still_is_a_line_beside_live_ones_and_hangs_no_command() {
    let bed = MountFolders::new();
    let mut service = bed.mount();
    let folder = tempfile::tempdir().unwrap();
    let server = Volume::create(folder.path(), "v", "32M").serve();
    server.connect().write(0, &[7; BLOCK], Durability::Volatile).unwrap();
    let port = MetricsProgram::begin(&["top", "--metrics", "tcp:127.0.0.1:0"]);
    let mount = format!("mount=\"{}\",pool=\"{}\"", bed.at("mnt").display(), bed.pool().display());
    let is_up = || samples(&port.metrics()).get(&format!("tidegate_mount_up{{{mount}}}")).copied();
    assert_eq!(is_up(), Some(1.0));
    let stopped = Stopped::service(&service);
    assert_eq!(is_up(), Some(0.0));
    assert_eq!(port.metrics().matches(&mount).count(), 1, "it has no numbers");
    let looked = json(&run(&["top", "--once", "--json"]));
    let row = |file: &Path| {
        let mut rows = looked["rows"].as_array().unwrap().iter();
        rows.find(|row| row["file"] == *file.to_string_lossy()).unwrap_or_else(|| panic!("{looked}"))
    };
    let (silent, live) = (row(&bed.pool()), row(&folder.path().join("v")));
    assert_eq!((&silent["state"], &silent["kind"]), (&"no answer".into(), &"mount".into()), "{silent}");
    assert!(silent["silent"].as_str().unwrap().contains("no answer within 10 s"), "{silent}");
    assert_eq!(silent["below"], *bed.at("source").to_string_lossy());
    assert_eq!((&live["silent"], &live["totals"]["writes"]), (&Value::Null, &1.into()), "{live}");
    let list = json(&run(&["list", "--json"]));
    let mounts = list["mounts"].as_array().unwrap();
    let listed = mounts.iter().find(|mount| mount["pool"] == *bed.pool().to_string_lossy()).unwrap();
    assert_eq!(listed["silent"], "no answer within 10 s", "{list}");
    let servers = list["servers"].as_array().unwrap();
    assert!(servers.iter().any(|of| of["volumes"][0]["file"] == live["file"]), "{list}");
    assert!(servers.iter().all(|of| of["pid"] != port.pid().as_raw_pid()), "{list}");
    for path in [bed.pool(), bed.at("mnt"), bed.at("source")] {
        let refused = tidegate("status", &path, &["--json"]);
        assert_eq!(refused.status.code(), Some(ENVIRONMENT), "{refused:?}");
        let error: Value = serde_json::from_slice(&refused.stderr).unwrap();
        assert_eq!(error["error"]["kind"], "no-answer", "{error}");
        assert_eq!(error["error"]["why"], "no answer within 10 s", "{error}");
    }
    drop(stopped);
    until("the mount to answer again", || is_up() == Some(1.0));
    port.end();
    assert_eq!(self::row(&bed.pool())["state"], "mounted");
    server.stop();
    assert_eq!(bed.tidegate("umount", &bed.at("mnt")).status.code(), Some(0));
    assert!(service.wait().unwrap().success());
}

#[test]
fn without_a_terminal_the_error_names_the_way_to_look_once() {
    for (words, why) in [(&["top"][..], "a file or a pipe"), (&["top", "--json"], "JSON has no screen")] {
        let refused = run(words);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(USAGE), "{refused:?}");
        assert!(said.contains(why) && said.contains("tidegate top --once") && refused.stdout.is_empty(), "{said}");
    }
}

/// `tidegate top` on a terminal of its own.
struct Screen {
    program: Child,
    keys: File,
    reader: JoinHandle<()>,
    is_left: Arc<AtomicBool>,
    terminal: OwnedFd,
    before: Termios,
    shown: Arc<Mutex<String>>,
}

impl Screen {
    fn begin(words: &[&str], no_color: &str) -> Screen {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = open(ptsname(&master, Vec::new()).unwrap(), flags, Mode::empty()).unwrap();
        resize(&terminal, COLUMNS, LINES);
        let before = tcgetattr(&terminal).unwrap();
        let side = || Stdio::from(terminal.try_clone().unwrap());
        // In a session of its own the program has no other terminal than this one.
        let mut command = Command::new("setsid");
        command.arg(program()).arg("top").args(words).env("TERM", "xterm").env("NO_COLOR", no_color);
        let program = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let (keys, mut output) = (File::from(master.try_clone().unwrap()), File::from(master));
        let shown = Arc::new(Mutex::new(String::new()));
        let is_left = Arc::new(AtomicBool::new(false));
        let (of_thread, left) = (Arc::clone(&shown), Arc::clone(&is_left));
        let reader = thread::spawn(move || {
            let mut piece = [0; 4096];
            while !left.load(Ordering::Relaxed) {
                let soon = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                if poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&soon)).unwrap() == 0 {
                    continue;
                }
                // The end is an error where the other side is closed.
                let Ok(len @ 1..) = output.read(&mut piece) else { break };
                of_thread.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..len]));
            }
        });
        Screen { program, keys, reader, is_left, terminal, before, shown }
    }

    /// Closes the terminal, as a connection does that breaks. Returns the exit code.
    fn hang_up(self) -> Option<i32> {
        let Screen { mut program, keys, reader, is_left, .. } = self;
        is_left.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        drop(keys);
        program.wait().unwrap().code()
    }

    /// Everything that the program wrote, with what moves the cursor.
    fn written(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits until the screen shows a text.
    fn awaits(&mut self, text: &str) {
        until(text, || {
            let ended = self.program.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", self.written());
            drawn(&self.written()).iter().any(|line| line.contains(text))
        });
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    /// Waits for the end, after which the terminal is as it was.
    fn ends(mut self) {
        let ended = self.program.wait().unwrap();
        assert_eq!(ended.code(), Some(0), "{}", self.written());
        let last = |text: &str| self.written().rfind(text);
        until("the end of the screen", || last("\x1b[?1049l") > last("\x1b[?1049h"));
        until("the cursor", || last("\x1b[?25h") > last("\x1b[?25l"));
        let modes = |of: &Termios| (of.input_modes, of.output_modes, of.control_modes, of.local_modes);
        assert_eq!(modes(&tcgetattr(&self.terminal).unwrap()), modes(&self.before));
    }
}

/// The lines of a screen on which `written` was written: the cursor is moved by `ESC [ row ; column
/// H`, and `ESC [ 2 J` clears all.
fn drawn(written: &str) -> Vec<String> {
    let mut lines = vec![vec![' '; COLUMNS.into()]; LINES.into()];
    let (mut line, mut column, mut rest) = (0, 0, written.chars());
    while let Some(next) = rest.next() {
        if next != '\x1b' {
            if let Some(cell) = lines.get_mut(line).and_then(|line| line.get_mut(column)).filter(|_| next >= ' ') {
                *cell = next;
            }
            column += 1;
            continue;
        }
        let mut words = String::new();
        let act = rest.by_ref().skip(1).find(|next| {
            words.push(*next);
            next.is_ascii_alphabetic()
        });
        match act {
            Some('H') => {
                let mut at = words.trim_end_matches('H').split(';').map(|at| at.parse().unwrap_or(1).max(1) - 1);
                (line, column) = (at.next().unwrap_or(0), at.next().unwrap_or(0));
            }
            Some('J') => lines.iter_mut().for_each(|line| line.fill(' ')),
            _ => {}
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect()).collect()
}

fn resize(terminal: &OwnedFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

#[test]
fn the_screen_follows_keys_and_sizes_and_leaves_the_terminal_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    // The first of all names, whatever else runs here.
    let server = Volume::create(folder.path(), "!first", "32M").serve();
    let mut screen = Screen::begin(&[], "");
    screen.awaits("!first");
    assert!(tcgetattr(&screen.terminal).unwrap().local_modes != screen.before.local_modes, "keys come at once");
    assert!(screen.written().contains("\x1b[38;"), "a terminal has colours");
    screen.press(b"\r");
    screen.awaits("region_fences");
    screen.press(b"?");
    screen.awaits("all numbers of the chosen line");
    screen.press(b"\x1b");
    screen.awaits("!first");
    screen.press(b"s");
    screen.awaits("s sort: kind");
    for (columns, rows) in [(40, 10), (1, 1), (80, 24)] {
        let before = screen.written().len();
        resize(&screen.terminal, columns, rows);
        until("a drawing of the new size", || screen.written().len() > before);
    }
    screen.awaits("columns hidden)");
    screen.press(b"q");
    screen.ends();
    server.stop();
}

#[test]
fn signals_and_control_c_leave_the_terminal_as_it_was() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut screen = Screen::begin(&["--interval", "3600"], "1");
        screen.awaits("tidegate top");
        kill_process(Pid::from_child(&screen.program), signal).unwrap();
        screen.ends();
    }
    let mut screen = Screen::begin(&["--interval", "3600"], "1");
    screen.awaits("tidegate top");
    assert!(!screen.written().contains("\x1b[38;"), "NO_COLOR is set: {}", screen.written());
    screen.press(b"\x03");
    screen.ends();
}

#[test]
fn a_terminal_that_goes_away_ends_the_screen() {
    let mut screen = Screen::begin(&[], "");
    screen.awaits("tidegate top");
    assert_eq!(screen.hang_up(), Some(ENVIRONMENT));
}
