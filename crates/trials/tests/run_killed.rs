//! What was synced under `tidegate run-log` is there after the program, the supervisor or the power
//! is gone.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use tidegate_layout::kept::STRIP_BYTES;
use tidegate_trials::run::{APPENDER, Mounted, Testbed, empty_file_system, kill_all, wait_for_next_second};
use tidegate_trials::served::{program, until};

/// Lines that are synced before anything is killed: the first few syncs are the kernel's.
const LINES: u64 = 50;

fn line(number: u64) -> String {
    format!("line {number:010}\n")
}

/// What the file has if the first `lines` lines were synced, at least.
fn assert_has_lines(path: &Path, lines: u64) {
    let text = fs::read_to_string(path).unwrap();
    let expected: String = (0..lines).map(line).collect();
    assert!(text.starts_with(&expected), "synced {lines} lines, and there are {}", text.lines().count());
}

/// A run of the appender that has said that so many lines are synced; with `limit` it appends no
/// more than that.
fn appending(testbed: &Testbed, file: &Path, limit: bool) -> (Child, impl BufRead + use<>) {
    let mut run = testbed.run();
    run.arg(APPENDER.build().unwrap()).arg(file).args(limit.then(|| LINES.to_string()));
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut run = run.spawn().unwrap();
    let mut said = BufReader::new(run.stdout.take().unwrap());
    assert!(synced(&mut said, LINES) >= LINES);
    (run, said)
}

/// Reads numbers until one of at least `least`, or the end; returns how many lines are synced.
fn synced(said: &mut impl BufRead, least: u64) -> u64 {
    let mut synced = 0;
    let mut text = String::new();
    while synced < least && said.read_line(&mut text).unwrap() > 0 {
        if let Some(number) = text.strip_suffix('\n') {
            synced = number.parse::<u64>().unwrap() + 1;
        }
        text.clear();
    }
    synced
}

/// The appender below `run`.
fn program_of(run: &Child) -> rustix::process::Pid {
    let children = format!("/proc/{0}/task/{0}/children", run.id());
    let text = fs::read_to_string(children).unwrap();
    let pid = text.split_whitespace().next().expect("it runs a program").parse().unwrap();
    rustix::process::Pid::from_raw(pid).unwrap()
}

fn kill(pid: rustix::process::Pid) {
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// As if the power had failed while the pool was what it is: another boot, and a file that has no
/// more than its disk got first.
fn cut_the_power(testbed: &Testbed, file: &Path, durable: u64) {
    testbed.change_boot();
    fs::File::options().write(true).open(file).unwrap().set_len(durable).unwrap();
}

#[test]
fn a_killed_program_loses_nothing_and_its_end_is_told() {
    let testbed = Testbed::new();
    let file = testbed.root().join("log");
    let (mut run, mut said) = appending(&testbed, &file, false);
    kill(program_of(&run));
    let lines = synced(&mut said, u64::MAX).max(LINES);
    assert_eq!(run.wait().unwrap().code(), Some(128 + 9));
    assert_has_lines(&file, lines);
    assert!(!testbed.journal().exists(), "the run ended well");
}

/// More lines than a strip has room for.
const LINES_OF_A_STRIP: u64 = STRIP_BYTES / 32;

#[test]
fn a_program_goes_on_without_its_supervisor_by_the_kernel() {
    let testbed = Testbed::new();
    let file = testbed.root().join("log");
    let (mut run, mut said) = appending(&testbed, &file, false);
    let program = program_of(&run);
    run.kill().unwrap();
    run.wait().unwrap();
    // It notices when it has something to ask, at the latest when its strip is full, and goes on.
    // Of what it says, much may be from before: not so a line that the file does not have yet.
    let later = fs::metadata(&file).unwrap().len() / line(0).len() as u64 + LINES_OF_A_STRIP;
    assert_eq!(synced(&mut said, later), later);
    kill(program);
    let journal = fs::read_to_string(testbed.journal()).unwrap();
    assert!(journal.contains("\nvoid "), "what was kept is older than what the file has: {journal}");
    // Nothing of what was kept may come back over what the kernel synced since.
    cut_the_power(&testbed, &file, 13);
    testbed.leave_files_alone();
    assert!(testbed.run().arg("true").status().unwrap().success());
    assert_eq!(fs::metadata(&file).unwrap().len(), 13);
}

/// Looks in a row that find a program at rest when it waits for an answer.
const LOOKS: u32 = 200;

/// Waits until the program `pid` sleeps, and `file` does not grow any more.
fn wait_for_rest(pid: rustix::process::Pid, file: &Path) {
    let (mut size, mut looks) = (0, 0);
    until("the program to wait for its supervisor", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
        let sleeps = stat.rsplit(") ").next().is_some_and(|fields| fields.starts_with('S'));
        let size_now = fs::metadata(file).unwrap().len();
        looks = if sleeps && size_now == size { looks + 1 } else { 0 };
        size = size_now;
        looks == LOOKS
    });
}

/// Fills both strips of a file, and has the power fail; how many records only the pool had then.
fn records_lost_of_both_strips() -> u64 {
    let testbed = Testbed::new();
    let file = testbed.root().join("log");
    let (mut run, mut said) = appending(&testbed, &file, false);
    let program = program_of(&run);
    // It absorbs nothing from now on: the program goes on with its other strip, until that is full
    // too.
    let supervisor = rustix::process::Pid::from_child(&run);
    rustix::process::kill_process(supervisor, rustix::process::Signal::STOP).unwrap();
    let reader = thread::spawn(move || synced(&mut said, u64::MAX));
    wait_for_rest(program, &file);
    kill(program);
    run.kill().unwrap();
    run.wait().unwrap();
    let lines = reader.join().unwrap().max(LINES);
    let lost = testbed.cut_the_power();
    let recovery = testbed.run().arg("true").output().unwrap();
    assert!(recovery.status.success(), "{}", String::from_utf8_lossy(&recovery.stderr));
    assert_has_lines(&file, lines);
    lost
}

#[test]
fn what_lies_on_both_strips_comes_back_after_a_power_cut() {
    // A supervisor that stops while it absorbs leaves one strip's records.
    let on_both = (0..ROUNDS).any(|_| records_lost_of_both_strips() > LINES_OF_A_STRIP);
    assert!(on_both, "one strip had room for what was lost in each of {ROUNDS} pools");
}

/// Removes the socket by which programs reach the supervisor that runs in `testbed`.
fn remove_socket(testbed: &Testbed) {
    let entries = fs::read_dir(testbed.folder()).unwrap().map(|entry| entry.unwrap().path());
    let folder = entries.into_iter().find(|path| path.to_string_lossy().contains("tidegate-run-"));
    fs::remove_file(folder.expect("a run has a folder").join("socket")).unwrap();
}

#[test]
fn a_supervisor_promises_nothing_more_when_a_program_cannot_reach_it() {
    let testbed = Testbed::new();
    let (file, appender) = (testbed.root().join("log"), APPENDER.build().unwrap());
    let mut run = testbed.run();
    run.arg(&appender).arg(&file).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let mut said = BufReader::new(run.stdout.take().unwrap());
    synced(&mut said, LINES);
    let program = program_of(&run);
    remove_socket(&testbed);
    let environment = fs::read(format!("/proc/{}/environ", program.as_raw_nonzero())).unwrap();
    let variables = String::from_utf8(environment).unwrap();
    let mut other = Command::new(&appender);
    other.arg(testbed.root().join("other")).arg(LINES.to_string());
    other.env_clear().envs(variables.split('\0').filter_map(|variable| variable.split_once('=')));
    let mut other = other.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    synced(&mut BufReader::new(other.stdout.take().unwrap()), LINES);
    other.kill().unwrap();
    other.wait().unwrap();
    let journal = fs::read_to_string(testbed.journal()).unwrap();
    let place = |what: &str| journal.find(what).expect("it stands in the journal");
    assert!(place("\nstop ") < place("\nvoid "), "{journal}");
    let later = fs::metadata(&file).unwrap().len() / line(0).len() as u64 + 1;
    synced(&mut said, later);
    kill(program);
    let lines = synced(&mut said, u64::MAX).max(later);
    let told = run.wait_with_output().unwrap();
    assert_has_lines(&file, lines);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("a program cannot reach this supervisor"), "{told}");
}

/// A pool that was left with lines in it that the disk may not have, and what the next run says.
/// All lines lie in one block. None: the disk was brought up to date before the supervisor could be
/// killed, so nothing was lost.
fn recovered(testbed: &Testbed, file: &Path, meanwhile: impl FnOnce()) -> Option<String> {
    let (mut run, _said) = appending(testbed, file, true);
    let program = program_of(&run);
    run.kill().unwrap();
    run.wait().unwrap();
    kill(program);
    // Its first syncs were the kernel's; the disk may have no more.
    cut_the_power(testbed, file, line(0).len() as u64 * 6);
    meanwhile();
    let recovery = testbed.run().arg("true").output().unwrap();
    let said = String::from_utf8_lossy(&recovery.stderr).into_owned();
    assert!(recovery.status.success(), "{said}");
    said.contains("what was synced to").then_some(said)
}

/// How often it is tried to kill a supervisor before it has brought a block to its disk.
const ROUNDS: u32 = 50;

#[test]
fn what_a_power_cut_took_from_the_file_comes_back_from_the_pool() {
    let came_back = (0..ROUNDS).any(|_| {
        let testbed = Testbed::new();
        let file = testbed.root().join("log");
        let said = recovered(&testbed, &file, || testbed.leave_files_alone());
        if said.is_some() {
            assert_has_lines(&file, LINES);
        }
        said.is_some()
    });
    assert!(came_back, "nothing was left in any of {ROUNDS} pools");
}

#[test]
fn what_was_kept_of_a_file_that_is_another_one_is_put_aside() {
    let put_aside = (0..ROUNDS).any(|_| {
        let testbed = Testbed::new();
        let file = testbed.root().join("log");
        let replace = || {
            fs::remove_file(&file).unwrap();
            fs::write(&file, "another one").unwrap();
        };
        let Some(said) = recovered(&testbed, &file, replace) else { return false };
        assert_eq!(fs::read_to_string(&file).unwrap(), "another one");
        let salvaged: Vec<_> = fs::read_dir(testbed.folder().join("pool.salvaged")).unwrap().collect();
        assert_eq!(salvaged.len(), 1, "{said}");
        let text = fs::read_to_string(salvaged[0].as_ref().unwrap().path()).unwrap();
        assert!(text.ends_with(&line(LINES - 1)));
        true
    });
    assert!(put_aside, "nothing was left in any of {ROUNDS} pools");
}

#[test]
fn what_a_pool_on_a_disk_has_is_put_aside_after_a_power_cut() {
    let put_aside = (0..ROUNDS).any(|_| {
        let testbed = Testbed::new();
        let file = testbed.root().join("log");
        let durable = line(0).repeat(6);
        let Some(said) = recovered(&testbed, &file, || testbed.change_boot_of("disk-file")) else { return false };
        assert_eq!(fs::metadata(&file).unwrap().len(), durable.len() as u64, "the file may be newer than such a pool");
        assert!(said.contains("may be newer than what the pool has of it"), "{said}");
        assert_eq!(fs::read_dir(testbed.folder().join("pool.salvaged")).unwrap().count(), 1);
        true
    });
    assert!(put_aside, "nothing was left in any of {ROUNDS} pools");
}

#[test]
fn a_file_that_was_written_since_the_power_came_back_is_left_alone() {
    let put_aside = (0..ROUNDS).any(|_| {
        let testbed = Testbed::new();
        let file = testbed.root().join("log");
        // In place: the same inode, with a new time.
        let Some(said) = recovered(&testbed, &file, || fs::write(&file, "begun anew").unwrap()) else { return false };
        assert_eq!(fs::read_to_string(&file).unwrap(), "begun anew");
        assert!(said.contains("was written since the power came back"), "{said}");
        assert_eq!(fs::read_dir(testbed.folder().join("pool.salvaged")).unwrap().count(), 1);
        true
    });
    assert!(put_aside, "nothing was left in any of {ROUNDS} pools");
}

/// A testbed in which `files` below the root were appended to, and the power cut took lines from
/// all of them that only the pool has; in one of [`ROUNDS`]. With it, the value that `prepare`
/// made.
fn lost_lines<T>(files: &[&str], prepare: impl Fn(&Testbed) -> T) -> (Testbed, T) {
    let appender = APPENDER.build().unwrap();
    let cut = || {
        let testbed = Testbed::new();
        let prepared = prepare(&testbed);
        let mut run = testbed.run();
        run.args(["sh", "-c", r#"for file; do "$0" "$file" "$LINES" & done; wait"#]).arg(&appender).args(files);
        run.env("LINES", LINES.to_string()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut run = run.spawn().unwrap();
        let last = (LINES - 1).to_string();
        let said = BufReader::new(run.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(said.filter(|line| *line == last).take(files.len()).count(), files.len());
        kill_all(&mut run);
        testbed.cut_the_power();
        let is_lost = |file: &&str| fs::read(testbed.root().join(file)).unwrap().contains(&0xee);
        files.iter().all(is_lost).then_some((testbed, prepared))
    };
    (0..ROUNDS).find_map(|_| cut()).expect("nothing was left in any pool")
}

/// Runs `command` to its end, with this exit code; what it said.
fn said(command: &mut Command, code: i32) -> String {
    let ended = command.output().unwrap();
    let said = [ended.stdout, ended.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    assert_eq!(ended.status.code(), Some(code), "{said}");
    said
}

/// A recovery, and a run, both of which are refused with these words.
fn assert_refused(testbed: &Testbed, words: &str) {
    let mut run = testbed.run();
    run.args(["sh", "-c", "echo it was run"]);
    for mut command in [testbed.recover(), run] {
        let said = said(&mut command, 3);
        assert!(said.contains(words) && !said.contains("it was run"), "{said}");
    }
}

#[test]
fn root_writes_to_no_file_that_another_user_names() {
    const NOBODY: u32 = 65534;
    let (testbed, ()) = lost_lines(&["log"], |_| ());
    let file = testbed.root().join("log");
    let before = fs::read(&file).unwrap();
    for given in [testbed.pool(), testbed.journal()] {
        chown(&given, Some(NOBODY), None).unwrap();
        assert_refused(&testbed, "it belongs to user 65534");
        assert_eq!(fs::read(&file).unwrap(), before);
        chown(&given, Some(0), None).unwrap();
    }
    said(&mut testbed.recover(), 0);
    assert_has_lines(&file, LINES);
}

/// Bytes of a small file system.
const IMAGE_BYTES: u64 = 32 << 20;

#[test]
fn what_was_synced_to_a_file_system_that_is_not_mounted_stays_in_the_pool_until_it_is() {
    let image = |testbed: &Testbed| testbed.folder().join("image");
    let (testbed, mounted) = lost_lines(&["log", "disk/log"], |testbed| {
        empty_file_system(&image(testbed), IMAGE_BYTES);
        fs::create_dir(testbed.root().join("disk")).unwrap();
        Mounted::new(&image(testbed), &testbed.root().join("disk"))
    });
    let (disk, file) = (testbed.root().join("disk"), testbed.root().join("disk/log"));
    let salvaged = testbed.folder().join("pool.salvaged");
    mounted.unmount();
    let missing = format!("ext4 file system that was mounted at {} is not there", disk.display());
    for beneath in [None, Some("another one")] {
        beneath.iter().for_each(|text| fs::write(&file, text).unwrap());
        assert_refused(&testbed, &missing);
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), beneath);
        assert_has_lines(&testbed.root().join("log"), LINES);
    }
    let other = testbed.folder().join("other");
    empty_file_system(&other, IMAGE_BYTES);
    let other = Mounted::new(&other, &disk);
    assert_refused(&testbed, &missing);
    other.unmount();
    assert!(!salvaged.exists() && testbed.journal().exists());
    let (pool, journal) = (testbed.folder().join("gone"), testbed.folder().join("gone.holds"));
    fs::copy(testbed.pool(), &pool).unwrap();
    fs::copy(testbed.journal(), &journal).unwrap();
    said(Command::new(program()).arg("recover").arg(&pool).arg("--force"), 3);
    assert_eq!(fs::read_dir(testbed.folder().join("gone.salvaged")).unwrap().count(), 1);
    assert!(!journal.exists(), "nothing is left in that pool");
    fs::remove_file(&file).unwrap();
    let _mounted = Mounted::new(&image(&testbed), &disk);
    // What somebody makes of the file that was brought is his.
    fs::write(testbed.root().join("log"), "begun anew").unwrap();
    said(&mut testbed.recover(), 0);
    assert_has_lines(&file, LINES);
    assert_eq!(fs::read_to_string(testbed.root().join("log")).unwrap(), "begun anew");
    assert!(!salvaged.exists() && !testbed.journal().exists());
}

#[test]
fn a_file_that_a_clock_that_was_behind_has_changed_is_doubtful_and_left_alone() {
    for runs in [false, true] {
        let put_aside = (0..ROUNDS).any(|_| {
            let testbed = Testbed::new();
            let file = testbed.root().join("log");
            let (mut run, _said) = appending(&testbed, &file, true);
            let program = program_of(&run);
            run.kill().unwrap();
            run.wait().unwrap();
            kill(program);
            fs::write(&file, "written since the power came back").unwrap();
            testbed.change_boot();
            testbed.set_back_the_clock();
            wait_for_next_second();
            let mut recovery = if runs { testbed.run_after_boot("true") } else { testbed.recover_after_boot() };
            let recovery = recovery.output().unwrap();
            let said = [recovery.stdout, recovery.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
            assert_eq!(fs::read_to_string(&file).unwrap(), "written since the power came back");
            let Ok(mut salvaged) = fs::read_dir(testbed.folder().join("pool.salvaged")) else { return false };
            assert_eq!(recovery.status.code(), Some(3), "{said:?}");
            assert!(said.concat().contains("is doubtful: it was last changed before it was held"), "{said:?}");
            let kept = fs::read_to_string(salvaged.next().unwrap().unwrap().path()).unwrap();
            assert!(kept.ends_with(&line(LINES - 1)), "{kept}");
            assert!(testbed.run().arg("true").status().unwrap().success(), "the next run goes on");
            true
        });
        assert!(put_aside, "nothing was left in any of {ROUNDS} pools");
    }
}

#[test]
fn a_run_tells_what_it_is_doing() {
    let testbed = Testbed::new();
    let nobody = testbed.status().output().unwrap();
    assert_eq!(nobody.status.code(), Some(3));
    let file = testbed.root().join("log");
    let (mut run, _said) = appending(&testbed, &file, true);
    let status = testbed.status().output().unwrap();
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    kill(program_of(&run));
    run.wait().unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let kept = said.split("\"kept\":").nth(1).and_then(|rest| rest.split(',').next());
    assert!(kept.is_some_and(|kept| kept.parse::<u64>().unwrap() > LINES / 2), "{said}");
    assert!(said.contains(file.to_str().unwrap()) && said.contains("\"strip_bytes\":"), "{said}");
    let after = testbed.status().output().unwrap();
    assert!(String::from_utf8_lossy(&after.stderr).contains("no-run"));
}
