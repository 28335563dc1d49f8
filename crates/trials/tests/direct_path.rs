//! Unmodified programs with the direct path to their files: nothing is lost, nothing old is read,
//! and files are what they would be without it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tidegate_trials::artefacts::run;
use tidegate_trials::direct::{client, counted, with_direct_path};
use tidegate_trials::mounted::MountTestbed;

fn said(command: &mut Command) -> String {
    run(command, "it is built here").unwrap_or_else(|failure| panic!("{failure}"))
}

/// The numbers below `end`, each on a line.
fn lines(end: u32) -> String {
    (0..end).map(|number| format!("{number}\n")).collect()
}

fn contents(testbed: &MountTestbed, name: &str) -> String {
    fs::read_to_string(testbed.mountpoint().join(name)).expect("the file is there")
}

#[test]
fn synced_writes_need_no_request_and_are_there_for_everybody() {
    let testbed = MountTestbed::new();
    said(&mut client(&testbed, &["random", "file", "600"]));
    let before = counted(&testbed, "requests");
    said(&mut client(&testbed, &["random", "file", "20000"]));
    let requests = counted(&testbed, "requests") - before;
    // The file is filled and read by requests: 1,024, and more where the lease is extended.
    assert!(requests < 6000, "{requests} requests");
    assert!(counted(&testbed, "adopted_bytes") > 0);
    let through = fs::read(testbed.mountpoint().join("file")).expect("readable");
    let ended = testbed.end();
    assert!(ended.is_written_back() && ended.read("file") == through);
}

/// The file has 512 pages, and a lease ends seven times.
#[test]
fn what_is_read_again_needs_no_request_and_is_what_was_written_last() {
    let testbed = MountTestbed::new();
    said(&mut client(&testbed, &["reread", "file", "8000"]));
    let [kept, requests] = ["reads_kept", "requests"].map(|name| counted(&testbed, name));
    assert!(kept > 16_000 && requests < 8000, "{kept} of 24,000 reads were kept, {requests} requests");
    said(client(&testbed, &["reread", "file", "2000"]).env("TIDEGATE_READ_CACHE", "0"));
    // A program without DRAM keeps nothing, and reads from the pool.
    let [kept_then, requests_then] = ["reads_kept", "requests"].map(|name| counted(&testbed, name));
    let (read, asked) = (kept_then - kept, requests_then - requests);
    assert!(read > 400 && asked < 8000, "{read} of 6,000 reads took no request, {asked} requests");
    assert!(testbed.end().is_written_back());
}

#[test]
fn every_way_to_write_gives_the_file_that_it_gives_without() {
    let testbed = MountTestbed::new();
    said(&mut client(&testbed, &["append", "appended", "0", "3000"]));
    said(&mut client(&testbed, &["o_dsync", "o_dsync", "3000"]));
    said(&mut client(&testbed, &["fork", "forked", "400"]));
    said(&mut client(&testbed, &["position", "position", "400"]));
    for (name, end) in [("appended", 3000), ("o_dsync", 3000), ("forked", 400), ("position", 400)] {
        assert_eq!(contents(&testbed, name), lines(end), "{name}");
    }
    said(&mut client(&testbed, &["threads", "threads", "3000"]));
    let bytes = fs::read(testbed.mountpoint().join("threads")).expect("readable");
    for (block, bytes) in bytes.chunks(4096).enumerate() {
        let last = (0..3000_usize).rev().find(|round| round % 256 == block % 256).expect("each was written");
        assert!(bytes.iter().all(|byte| usize::from(*byte) == last % 200 + 1), "block {block}");
    }
    said(&mut client(&testbed, &["together", "together", "3000"]));
    let text = contents(&testbed, "together");
    for thread in ["a", "b"] {
        let of_thread = text.lines().filter_map(|line| line.strip_prefix(thread)?.trim().parse::<u32>().ok());
        assert!(of_thread.eq(0..3000), "lines of thread {thread}");
    }
    let handled: usize = said(&mut client(&testbed, &["signal", "signals", "3000"])).trim().parse().expect("a count");
    let text = contents(&testbed, "signals");
    let count = |of| text.lines().filter(|line| *line == of).count();
    assert_eq!((count("p"), count("t"), text.lines().count()), (3000, handled, 3000 + handled));
    said(&mut client(&testbed, &["numbers", "numbered", "other"]));
    assert_eq!(
        (contents(&testbed, "numbered"), contents(&testbed, "other")),
        ("one\ntwo\nthree\nfour\n".into(), "other\n".into())
    );
    assert!(counted(&testbed, "leases_granted") > 6);
    assert!(testbed.end().is_written_back());
}

/// A program that appends what it is told.
struct Talker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Talker {
    fn start(testbed: &MountTestbed, name: &str) -> Talker {
        let mut command = client(testbed, &["talk", name]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Talker { child, input, output: BufReader::new(output) }
    }

    /// Has it append and sync a line.
    fn append(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).expect("it listens");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("it answers");
        assert_eq!(answer, text);
    }
}

/// Another process reads, asks for the length, appends by the kernel, cuts: at any time, and finds
/// what was written.
#[test]
fn whoever_else_uses_the_file_finds_every_write_at_once() {
    let testbed = MountTestbed::new();
    let path = testbed.mountpoint().join("file");
    let (mut talker, mut expected) = (Talker::start(&testbed, "file"), String::new());
    let mut ended = counted(&testbed, "leases_ended");
    for round in 0..60_u32 {
        for number in 0..=round * 3 {
            let line = format!("{round} {number}\n");
            talker.append(&line);
            expected += &line;
            if number % 5 == 0 {
                assert_eq!(fs::metadata(&path).expect("there").len(), expected.len() as u64);
            }
        }
        match round % 4 {
            0 => assert_eq!(fs::read_to_string(&path).expect("readable"), expected),
            1 => {
                let mut file = fs::File::options().append(true).open(&path).expect("writable");
                file.write_all(b"by the kernel\n").expect("written");
                expected += "by the kernel\n";
            }
            2 => {
                let half = expected.len() / 2;
                fs::File::options().write(true).open(&path).expect("writable").set_len(half as u64).expect("cut");
                expected.truncate(half);
            }
            _ => {
                let said = said(Command::new("tail").args(["-c", "10"]).arg(&path));
                assert_eq!(said, expected[expected.len().saturating_sub(10)..]);
            }
        }
    }
    assert_eq!(fs::read_to_string(&path).expect("readable"), expected);
    ended = counted(&testbed, "leases_ended") - ended;
    assert!(ended > 3, "{ended} leases ended");
    drop(talker.input);
    assert!(talker.child.wait().expect("it ends").success());
    let bed = testbed.end();
    assert!(bed.is_written_back() && bed.read("file") == expected.as_bytes());
}

/// The last line that a client said.
fn last_said(mut child: Child, at_least: u32, kill: impl FnOnce(&mut Child)) -> u32 {
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    // In the end it may say what its file system said.
    let mut lines = output.lines().map_while(|line| line.expect("text").parse::<u32>().ok());
    let reached = lines.by_ref().find(|line| *line >= at_least).expect("it goes on");
    kill(&mut child);
    let last = lines.last().unwrap_or(reached);
    child.wait().expect("it ends");
    last
}

/// What is there has every line up to the last one that was said, in their order.
fn assert_kept(text: &str, last: u32) {
    let whole = text.lines().count();
    let numbers: Vec<u32> = text.lines().take(whole).map(|line| line.parse().expect("a whole line")).collect();
    assert!(numbers.iter().copied().eq(0..u32::try_from(numbers.len()).expect("few")), "lines in order");
    assert!(numbers.len() > last as usize, "{} lines, {last} was said", numbers.len());
}

#[test]
fn what_was_synced_survives_the_death_of_the_program_the_server_and_the_supervisor() {
    let mut testbed = MountTestbed::new();
    let start = |testbed: &MountTestbed, from: u32| {
        let words = ["append", "file", &from.to_string(), "1000000"].map(str::to_owned);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        client(testbed, &words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts")
    };
    let next = |testbed: &MountTestbed| u32::try_from(contents(testbed, "file").lines().count()).expect("few");
    let last = last_said(start(&testbed, 0), 3000, |child| child.kill().expect("it runs"));
    assert_kept(&contents(&testbed, "file"), last);
    for _ in 0..3 {
        let from = next(&testbed);
        let last = last_said(start(&testbed, from), from + 3000, |child| {
            testbed.kill_server();
            child.kill().expect("it runs on");
        });
        assert_kept(&contents(&testbed, "file"), last);
    }
    let from = next(&testbed);
    let last = last_said(start(&testbed, from), from + 3000, |_| testbed.kill());
    testbed.mount_again();
    assert_kept(&contents(&testbed, "file"), last);
    assert!(testbed.end().is_written_back());
}

/// Root's writes leave them, on every file system: the kernel alone knows whose do not.
#[test]
fn a_file_that_root_writes_to_keeps_its_set_user_id() {
    let testbed = MountTestbed::new();
    let path = testbed.mountpoint().join("file");
    fs::write(&path, "").expect("made");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("its owner is root");
    let ended = client(&testbed, &["append", "file", "0", "100"]).stdout(Stdio::null()).status().expect("it starts");
    assert!(ended.success() && contents(&testbed, "file").lines().count() == 100);
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o4755);
}

#[test]
fn a_database_with_the_direct_path_has_every_row() {
    let testbed = MountTestbed::new();
    for (mode, rows) in [("wal", 2000), ("delete", 400)] {
        let mut script = format!("pragma journal_mode={mode}; pragma synchronous=full; create table t(a);\n");
        (0..rows).for_each(|row| script += &format!("insert into t values('{row} of a table');\n"));
        fs::write(testbed.beside().join("script"), script).expect("room");
        let script = fs::File::open(testbed.beside().join("script")).expect("there");
        said(with_direct_path(&testbed, "sqlite3").arg(format!("{mode}.db")).stdin(script));
        let asked = "select count(*) from t; pragma integrity_check;";
        let answer = said(Command::new("sqlite3").arg(testbed.mountpoint().join(format!("{mode}.db"))).arg(asked));
        assert_eq!(answer, format!("{rows}\nok\n"), "{mode}");
    }
    assert!(counted(&testbed, "leases_granted") > 0);
    assert!(testbed.end().is_written_back());
}

/// A process that has a database open for reading alone, and says `whole` each time that no row of
/// a process is missing before its last one.
fn start_reader(testbed: &MountTestbed) -> Child {
    let mut shell = with_direct_path(testbed, "sqlite3");
    let shell = shell.args(["-readonly", "-cmd", ".timeout 60000", "common.db"]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut input = shell.stdin.take().expect("asked for");
    const TORN: &str = "(select count(*) rows, max(row) last from t group by process) where rows <> last + 1";
    let query = format!("select case count(*) when 0 then 'whole' else 'torn' end from {TORN};\n");
    std::thread::spawn(move || while input.write_all(query.as_bytes()).is_ok() {});
    shell
}

/// Processes that write one database in turn share the leases of its files. Some are killed at any
/// time, perhaps in a write. Another one reads it, by descriptors that may not be written to.
#[test]
fn processes_with_one_database_share_leases_and_lose_no_row() {
    const PROCESSES: u32 = 4;
    const ROWS: u32 = 600;
    let testbed = MountTestbed::new();
    let pragmas = "pragma journal_mode=wal; pragma synchronous=full;";
    said(with_direct_path(&testbed, "sqlite3").args(["common.db", pragmas, "create table t(process, row);"]));
    let start = |process: u32| {
        let mut shell = with_direct_path(&testbed, "sqlite3");
        let shell = shell.args(["-cmd", ".timeout 60000", "-cmd", "pragma synchronous=full;", "common.db"]);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut input = shell.stdin.take().expect("asked for");
        // A thread of its own: the shell says what it did, and waits until that is read.
        std::thread::spawn(move || {
            for row in 0..ROWS {
                let insert = format!("insert into t values({process}, {row}); select 'done {row}';\n");
                if input.write_all(insert.as_bytes()).is_err() {
                    break;
                }
            }
        });
        shell
    };
    let mut reader = start_reader(&testbed);
    let answers = BufReader::new(reader.stdout.take().expect("asked for")).lines();
    let read = std::thread::spawn(move || answers.map_while(Result::ok).collect::<Vec<_>>());
    let mut shells: Vec<Child> = (0..PROCESSES).map(start).collect();
    // How many rows each has done when it is killed; all of them: it ends by itself.
    const KILLED_AT: [u32; PROCESSES as usize] = [ROWS, 250, ROWS, 450];
    let done: Vec<u32> = std::thread::scope(|scope| {
        let watch = |(process, shell): (usize, &mut Child)| {
            let lines = BufReader::new(shell.stdout.take().expect("asked for")).lines();
            let mut done = 0;
            for line in lines {
                done += u32::from(line.expect("text").starts_with("done"));
                if done == KILLED_AT[process] {
                    shell.kill().expect("it is a child");
                    break;
                }
            }
            shell.wait().expect("a child");
            done
        };
        let watched: Vec<_> = shells.iter_mut().enumerate().map(|of| scope.spawn(move || watch(of))).collect();
        watched.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    reader.kill().expect("it is a child");
    reader.wait().expect("a child");
    let answers = read.join().expect("no thread panics");
    // The last line may have been cut by the kill.
    assert!(!answers.is_empty() && answers.iter().all(|answer| "whole".starts_with(answer)), "{answers:?}");
    let asked = "select count(*) from t where process = ";
    for (process, done) in done.iter().enumerate() {
        let query = format!("{asked}{process}; pragma integrity_check;");
        let told = said(Command::new("sqlite3").arg(testbed.mountpoint().join("common.db")).arg(query));
        let rows: u32 = told.lines().next().and_then(|rows| rows.parse().ok()).expect("a number");
        // A row may be there whose process did not live to say so.
        assert!(rows >= *done && rows <= ROWS && told.ends_with("\nok\n"), "process {process}: {done} done, {told}");
    }
    assert!(counted(&testbed, "leases_joined") > 0);
    assert!(testbed.end().is_written_back());
}
