//! `tidegate run`: its program's files, its ends, good and bad, and what it refuses.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount_change, mount_remount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use tidegate_measure::medium::remove_left_memory;
use tidegate_trials::direct::library;
use tidegate_trials::mount_folders::is_among_mounts;
use tidegate_trials::mounted::servers_of;
use tidegate_trials::served::{program, until};

const USAGE: i32 = 2;
const IN_USE: i32 = 4;
const ENVIRONMENT: i32 = 5;
const KILLED: i32 = 128 + 9;

/// A user who owns no files.
const NOBODY: u32 = 65534;

/// A root, and a pool in memory that outlives processes.
struct Bed {
    folder: tempfile::TempDir,
    memory: tempfile::TempDir,
    root: PathBuf,
}

impl Bed {
    fn new() -> Bed {
        Bed::with_root("root".as_ref())
    }

    fn with_root(name: &OsStr) -> Bed {
        assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join(name);
        fs::create_dir(&root).unwrap();
        fs::write(root.join("file"), "before\n").unwrap();
        Bed { folder, memory: tempfile::tempdir_in("/dev/shm").unwrap(), root }
    }

    fn pool(&self) -> PathBuf {
        self.memory.path().join("pool")
    }

    /// `tidegate run` with the root and more options, from a directory outside.
    fn asked(&self, options: &[&str]) -> Command {
        let mut run = Command::new(program());
        run.args(["run", "--try", "--no-direct", "--size", "64M", "--pool"]).arg(self.pool());
        run.arg("--root").arg(&self.root).args(options).arg("--").current_dir("/").stdin(Stdio::null());
        run
    }

    /// A run with a line of shell as its program, in the root.
    fn line(&self, line: &str) -> Command {
        let mut run = self.asked(&[]);
        run.args(["sh", "-ec", line]).current_dir(&self.root);
        run
    }

    /// Begins such a run, and waits until its line says a word.
    fn begin(&self, line: &str) -> (Child, BufReader<ChildStdout>) {
        self.begin_by(&mut self.line(line))
    }

    fn begin_by(&self, run: &mut Command) -> (Child, BufReader<ChildStdout>) {
        let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(run.stdout.take().unwrap());
        said.read_line(&mut String::new()).unwrap();
        (run, said)
    }

    /// The process that keeps a run's mount alive: the child of `run` that has children.
    fn supervisor(&self, run: u32) -> Pid {
        let is_mount = |pid: &Pid| {
            let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap();
            line.split(|byte| *byte == 0).any(|word| word == b"--background")
        };
        servers_of(run).into_iter().find(is_mount).unwrap()
    }

    fn is_mounted(&self) -> bool {
        is_among_mounts(&self.folder.path().canonicalize().unwrap())
    }

    fn file(&self) -> String {
        fs::read_to_string(self.root.join("file")).unwrap()
    }

    fn tidegate(&self, command: &str, path: &Path) -> Output {
        Command::new(program()).arg(command).arg(path).output().unwrap()
    }

    /// Runs a line to its end, which is to be good. Returns what it said.
    fn done(&self, line: &str) -> String {
        let done = self.line(line).output().unwrap();
        assert!(done.status.success(), "{line}: {}", stderr(&done));
        String::from_utf8(done.stdout).unwrap()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        while unmount(&self.root, UnmountFlags::DETACH).is_ok() {}
        remove_left_memory(self.memory.path());
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words.iter().chain(&["why:", "next:"]) {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
}

fn kill(pid: Pid) {
    kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn the_program_has_a_mount_and_its_files_are_plain_ones_afterwards() {
    let bed = Bed::new();
    let said =
        bed.done("cat file; echo after > file; sync file; mkdir d; echo new > d/new; df --output=fstype . | tail -n 1");
    assert_eq!(said, "before\nfuse.tidegate\n");
    assert!(!bed.is_mounted());
    assert_eq!((bed.file().as_str(), &*fs::read(bed.root.join("d/new")).unwrap()), ("after\n", &b"new\n"[..]));
    assert!(!bed.memory.path().join("pool.mount").exists());
}

#[test]
fn the_current_directory_is_entered_anew() {
    let bed = Bed::new();
    fs::create_dir(bed.root.join("d")).unwrap();
    let mut run = bed.asked(&[]);
    let ended = run.args(["sh", "-ec", "df --output=fstype . | tail -n 1; pwd"]).current_dir(bed.root.join("d"));
    let ended = ended.output().unwrap();
    let expected = format!("fuse.tidegate\n{}\n", bed.root.join("d").display());
    assert_eq!(String::from_utf8_lossy(&ended.stdout), expected, "{}", stderr(&ended));
}

#[test]
fn the_root_is_the_current_directory_unless_another_is_named() {
    let bed = Bed::new();
    let mut run = Command::new(program());
    run.args(["run", "--try", "--no-direct", "--size", "64M", "--pool"]).arg(bed.pool());
    run.args(["--", "sh", "-ec", "echo after > file; sync file; df --output=fstype . | tail -n 1"]);
    let ended = run.current_dir(&bed.root).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "fuse.tidegate\n", "{}", stderr(&ended));
    assert_eq!(bed.file(), "after\n");
}

#[test]
fn the_exit_code_is_the_programs_or_128_and_its_signal() {
    let bed = Bed::new();
    for (line, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", KILLED), ("kill -15 $$", 128 + 15)] {
        assert_eq!(bed.line(line).status().unwrap().code(), Some(code), "{line}");
        assert!(!bed.is_mounted(), "{line}");
    }
    let absent = bed.asked(&[]).arg("/no/such/program").output().unwrap();
    assert_refused(&absent, ENVIRONMENT, &["/no/such/program cannot be started"]);
    assert!(!bed.is_mounted());
    assert_eq!(bed.file(), "before\n");
}

#[test]
fn signals_are_handed_on_to_the_program() {
    let bed = Bed::new();
    let (mut run, _said) =
        bed.begin("trap 'echo got > file; exit 3' TERM; echo ready; while :; do read -r line || :; done");
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(3));
    assert_eq!((bed.file().as_str(), bed.is_mounted()), ("got\n", false));
}

#[test]
fn roots_that_cannot_be_used_are_refused() {
    let bed = Bed::new();
    let refused = |root: &Path| {
        let mut run = Command::new(program());
        run.args(["run", "--try", "--no-direct", "--root"]).arg(root).args(["--pool"]).arg(bed.pool());
        run.args(["--", "touch"]).arg(bed.root.join("ran")).output().unwrap()
    };
    assert_refused(&refused(&bed.root.join("absent")), USAGE, &["absent is no root", "No such file", "--root DIR"]);
    assert_refused(&refused(&bed.root.join("file")), USAGE, &["is no directory"]);
    assert_refused(&refused(Path::new("/")), USAGE, &["/ is no root of a run"]);
    let in_root = bed.asked(&["--pool"]).args([bed.root.join("pool")]).output().unwrap();
    assert_eq!(in_root.status.code(), Some(USAGE), "an option may be given once, or the pool lies in the root");
    assert_refused(&refused(bed.memory.path()), USAGE, &["lies below the root", "--pool FILE"]);
    assert!(!bed.root.join("ran").exists() && !bed.pool().exists());
}

#[test]
fn one_pool_is_for_one_root() {
    let bed = Bed::new();
    let second = bed.folder.path().join("second");
    fs::create_dir(&second).unwrap();
    let refused = bed.asked(&["--root", second.to_str().unwrap()]).arg("true").output().unwrap();
    assert_refused(&refused, USAGE, &["there is no pool for", "second"]);
    assert!(!bed.is_mounted(), "the first one is unmounted again");
}

/// The library is put under the program by `run` itself.
#[test]
fn a_program_writes_its_files_by_leases() {
    let bed = Bed::new();
    library();
    let line = format!(
        "dd if=/dev/zero of=rows bs=4096 count=300 oflag=dsync 2>/dev/null\n\
         dd if=/dev/urandom of=rows bs=4096 count=300 conv=notrunc oflag=dsync 2>/dev/null\n\
         cp rows copy; {} status {} --json",
        program().display(),
        bed.pool().display()
    );
    let mut run = Command::new(program());
    run.args(["run", "--try", "--size", "64M", "--pool"]).arg(bed.pool()).arg("--root").arg(&bed.root);
    let done = run.args(["--", "sh", "-ec", &line]).current_dir(&bed.root).output().unwrap();
    assert!(done.status.success(), "{}", stderr(&done));
    let status: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(status["leases_granted"].as_u64().unwrap() >= 2, "{status}");
    assert!(status["adopted_bytes"].as_u64().unwrap() > 500 * 4096, "{status}");
    assert!(!bed.is_mounted());
    let [rows, copy] = ["rows", "copy"].map(|name| fs::read(bed.root.join(name)).unwrap());
    assert!(rows == copy && rows.len() == 300 * 4096 && rows.iter().any(|byte| *byte != 0));
}

#[test]
fn a_missing_library_is_named_with_the_way_around() {
    let bed = Bed::new();
    let alone = bed.folder.path().join("tidegate");
    fs::hard_link(program(), &alone).or_else(|_| fs::copy(program(), &alone).map(drop)).unwrap();
    let mut run = Command::new(&alone);
    run.args(["run", "--try", "--pool"]).arg(bed.pool()).arg("--root").arg(&bed.root);
    let refused = run.args(["--", "true"]).output().unwrap();
    assert_refused(&refused, ENVIRONMENT, &["libtidegate_direct.so", "--no-direct"]);
    assert!(!bed.pool().exists());
}

#[test]
fn files_that_others_write_keep_a_run_from_beginning() {
    let bed = Bed::new();
    let log = File::create(bed.root.join("log")).unwrap();
    let mut writer = Command::new("sleep").arg("1000").stdout(log).spawn().unwrap();
    let refused = bed.line("touch ran").output().unwrap();
    assert_refused(&refused, IN_USE, &[&format!("sleep ({})", writer.id()), "/log"]);
    assert!(!bed.root.join("ran").exists() && !bed.is_mounted());
    writer.kill().unwrap();
    writer.wait().unwrap();
    bed.done("touch ran");
}

#[test]
fn who_has_files_open_to_read_is_named_and_does_not_keep_a_run_from_ending() {
    let bed = Bed::new();
    let file = File::open(bed.root.join("file")).unwrap();
    let mut reader = Command::new("sleep").arg("1000").stdin(file).current_dir(&bed.root).spawn().unwrap();
    let ended = bed.line("echo after > file").output().unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));
    assert!(stderr(&ended).contains(&format!("sleep ({})", reader.id())), "{}", stderr(&ended));
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert_eq!(bed.file(), "after\n");
}

#[test]
fn other_processes_see_what_the_program_writes() {
    let bed = Bed::new();
    let (mut run, said) = bed.begin("echo during > file; echo ready; read -r line || :; cat file");
    assert_eq!(bed.file(), "during\n");
    fs::write(bed.root.join("file"), "outside\n").unwrap();
    drop(run.stdin.take());
    assert_eq!(said.lines().map_while(Result::ok).collect::<Vec<_>>(), ["outside"]);
    assert!(run.wait().unwrap().success());
    assert_eq!((bed.file().as_str(), bed.is_mounted()), ("outside\n", false));
}

#[test]
fn a_run_within_a_run_and_one_beside_it_use_its_mount() {
    let bed = Bed::new();
    let nested = format!("{} run --no-direct --root . -- sh -c 'echo inner > file; sync file'", program().display());
    assert_eq!(bed.done(&format!("{nested}; cat file; df --output=fstype . | tail -n 1")), "inner\nfuse.tidegate\n");
    let (mut first, _said) = bed.begin("echo ready; read -r line || :");
    let (mut second, _said) = bed.begin("echo ready; read -r line || :; echo second > file; sync file");
    drop(first.stdin.take());
    // The first one waits for the second: the mount is there until then.
    assert!(bed.is_mounted() && first.try_wait().unwrap().is_none());
    drop(second.stdin.take());
    assert!(second.wait().unwrap().success() && first.wait().unwrap().success());
    assert_eq!((bed.file().as_str(), bed.is_mounted()), ("second\n", false));
}

#[test]
fn a_mount_that_was_there_stays() {
    let bed = Bed::new();
    let mut mount = Command::new(program());
    mount.args(["mount", "--try", "--pool-size", "64M", "--pool"]).arg(bed.pool()).args([&bed.root, &bed.root]);
    let mut service = mount.stdout(Stdio::null()).spawn().unwrap();
    until("the mount", || bed.is_mounted());
    let beside = ["run", "--no-direct", "--root", bed.root.to_str().unwrap(), "--", "sh", "-c", "echo after > file"];
    assert!(Command::new(program()).args(beside).current_dir(&bed.root).status().unwrap().success());
    assert!(bed.is_mounted());
    assert!(bed.tidegate("umount", &bed.root).status.success() && service.wait().unwrap().success());
    assert_eq!(bed.file(), "after\n");
}

#[test]
fn a_program_that_stays_in_the_background_is_waited_for() {
    let bed = Bed::new();
    let mut run = bed.line("(read -r line < ../fifo; echo late > file) > /dev/null 2>&1 & echo $!");
    let fifo = bed.folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines().map_while(Result::ok);
    let named = lines.find(|line| line.contains("are waited for")).unwrap();
    assert!(named.contains("sh ("), "{named}");
    assert!(bed.is_mounted() && run.try_wait().unwrap().is_none());
    fs::write(&fifo, "go\n").unwrap();
    lines.for_each(drop);
    assert!(run.wait().unwrap().success());
    assert_eq!((bed.file().as_str(), bed.is_mounted()), ("late\n", false));
}

#[test]
fn a_signal_while_a_run_waits_ends_it_and_leaves_the_mount() {
    let bed = Bed::new();
    let mut run = bed.line("echo synced > file; sync file; sleep 1000 > /dev/null 2>&1 & echo $!");
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut background = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut background).unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("are waited for") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0);
    }
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(6));
    assert!(bed.is_mounted());
    kill(Pid::from_raw(background.trim().parse().unwrap()).unwrap());
    until("the end of the mount", || bed.tidegate("umount", &bed.root).status.success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("tidegate umount"), "{rest}");
    assert_eq!(bed.file(), "synced\n");
}

#[test]
fn a_run_that_is_killed_leaves_a_mount_that_the_next_one_uses() {
    let bed = Bed::new();
    let (mut run, _said) = bed.begin("echo synced > file; sync file; echo ready; read -r line || :");
    let service = bed.supervisor(run.id());
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(bed.is_mounted());
    assert_eq!(bed.done("cat file"), "synced\n");
    assert!(bed.is_mounted());
    drop(run.stdin.take());
    until("the end of the mount", || bed.tidegate("umount", &bed.root).status.success());
    assert!(!Path::new(&format!("/proc/{}", service.as_raw_nonzero())).exists() || !bed.is_mounted());
    assert_eq!(bed.file(), "synced\n");
}

#[test]
fn a_server_that_is_killed_is_replaced_within_a_run() {
    let bed = Bed::new();
    let (mut run, said) =
        bed.begin("echo synced > file; sync file; echo ready; read -r line || :; cat file; echo after > file");
    let supervisor = u32::try_from(bed.supervisor(run.id()).as_raw_nonzero().get()).unwrap();
    servers_of(supervisor).into_iter().for_each(kill);
    drop(run.stdin.take());
    assert_eq!(said.lines().map_while(Result::ok).collect::<Vec<_>>(), ["synced"]);
    assert!(run.wait().unwrap().success());
    assert_eq!((bed.file().as_str(), bed.is_mounted()), ("after\n", false));
}

#[test]
fn a_run_begins_though_its_first_server_is_killed_before_it_serves() {
    let bed = Bed::new();
    let mut run = bed.line("cat file").stdout(Stdio::piped()).spawn().unwrap();
    let mut first = None;
    until("the first server", || {
        let children = servers_of(run.id()).into_iter();
        first = children
            .filter_map(|child| servers_of(child.as_raw_nonzero().get().try_into().ok()?).first().copied())
            .next();
        first.is_some()
    });
    kill(first.unwrap());
    until("the end of the run", || run.try_wait().unwrap().is_some());
    let ended = run.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stdout).unwrap().as_str()), (Some(0), "before\n"));
}

#[test]
fn the_root_leads_to_the_status_of_its_mount() {
    let bed = Bed::new();
    let said = bed.done(&format!("echo new > file; sync file; {0} status .; {0} explain file", program().display()));
    assert!(said.contains(bed.pool().to_str().unwrap()) && said.contains("the pool has a record of it"), "{said}");
}

/// Has a run lose the whole service of its mount, and checks that it says so. The kernel knows no
/// attributes of the root then, as its names changed last.
fn lose_the_service(bed: &Bed) {
    let (mut run, _said) = bed.begin("echo synced > new; sync new; mv new file; sync .; echo ready; read -r line || :");
    let supervisor = bed.supervisor(run.id());
    let servers = servers_of(u32::try_from(supervisor.as_raw_nonzero().get()).unwrap());
    kill(supervisor);
    servers.into_iter().for_each(kill);
    drop(run.stdin.take());
    assert_eq!(run.wait().unwrap().code(), Some(ENVIRONMENT));
    assert!(bed.is_mounted(), "nobody is to take the old files for the current ones");
    assert!(fs::read(bed.root.join("file")).is_err());
}

#[test]
fn after_the_service_is_killed_the_next_run_has_everything() {
    let bed = Bed::new();
    lose_the_service(&bed);
    let mut run = bed.asked(&[]);
    let ended = run.args(["cat".as_ref(), bed.root.join("file").as_os_str()]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "synced\n", "{}", stderr(&ended));
    assert_eq!((bed.file().as_str(), bed.is_mounted()), ("synced\n", false));
}

#[test]
fn after_the_service_is_killed_recover_writes_the_files() {
    let bed = Bed::new();
    lose_the_service(&bed);
    let recovered = bed.tidegate("recover", &bed.pool());
    assert!(recovered.status.success(), "{}", stderr(&recovered));
    assert_eq!((bed.file().as_str(), bed.is_mounted()), ("synced\n", false));
}

#[test]
fn a_private_run_has_the_mount_for_itself() {
    let bed = Bed::new();
    let mut run = bed.asked(&["--private"]);
    run.args(["sh", "-ec", "echo more >> file; sync file; echo ready; read -r line || :; cat file"]);
    run.current_dir(&bed.root).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let mut said = BufReader::new(run.stdout.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    assert!(!bed.is_mounted());
    drop(run.stdin.take());
    assert_eq!(said.lines().map_while(Result::ok).collect::<Vec<_>>(), ["before", "more"]);
    let ended = run.wait_with_output().unwrap();
    assert!(
        ended.status.success() && stderr(&ended).contains("others find files there that may be older"),
        "{ended:?}"
    );
    assert_eq!(bed.file(), "before\nmore\n");
}

#[test]
fn a_private_run_keeps_no_disk_from_being_unmounted() {
    let bed = Bed::new();
    let (shared, disk) = (bed.folder.path().join("shared"), bed.folder.path().join("shared/disk"));
    let in_memory = |at: &Path| {
        fs::create_dir(at).unwrap();
        rustix::mount::mount("none", at, "tmpfs", MountFlags::empty(), None).unwrap();
    };
    in_memory(&shared);
    mount_change(&shared, MountPropagationFlags::SHARED).unwrap();
    in_memory(&disk);
    let mut run = bed.asked(&["--private"]);
    run.args(["sh", "-ec", "echo ready; read -r line || :; grep -c shared/disk /proc/self/mountinfo || :"]);
    let (mut run, said) = bed.begin_by(run.stdout(Stdio::piped()));
    let unmounted = unmount(&disk, UnmountFlags::empty());
    drop(run.stdin.take());
    let mounts = said.lines().map_while(Result::ok).collect::<Vec<_>>();
    let ended = run.wait().unwrap();
    unmount(&shared, UnmountFlags::DETACH).unwrap();
    assert!(unmounted.is_ok() && ended.success(), "{unmounted:?}, {ended}");
    assert_eq!(mounts, ["0"]);
}

#[test]
fn only_root_has_private_runs() {
    let bed = Bed::new();
    let mut run = Command::new("setpriv");
    run.args(["--reuid", &NOBODY.to_string(), "--regid", &NOBODY.to_string(), "--clear-groups"]);
    let refused = run.arg(program()).args(["run", "--private", "--no-direct", "--", "true"]).current_dir("/");
    assert_refused(&refused.output().unwrap(), ENVIRONMENT, &["only root", "--private"]);
    assert!(!bed.is_mounted());
}

#[test]
fn another_user_runs_by_fusermount3() {
    let bed = Bed::new();
    let folder = bed.folder.path().canonicalize().unwrap();
    for path in [&folder, &bed.root, &bed.root.join("file"), bed.memory.path()] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // Other users may not reach the folder of the build.
    let own = folder.join("tidegate");
    fs::copy(program(), &own).unwrap();
    let line = format!(
        "mount -t tmpfs none /dev; mknod -m 666 /dev/fuse c 10 229; mknod -m 666 /dev/null c 1 3; mkdir -m 1777 /dev/shm; \
         cd {root}; \
         exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups {own} run --try --no-direct --size 64M \
         --pool /dev/shm/pool --root {root} -- sh -ec 'cat file; echo after > file; sync file; exit 3'",
        root = bed.root.display(),
        own = own.display(),
    );
    let ended = Command::new("unshare").args(["--mount", "sh", "-ec", &line]).output().unwrap();
    assert_eq!(ended.status.code(), Some(3), "{}", stderr(&ended));
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "before\n");
    assert_eq!(bed.file(), "after\n");
}

#[test]
fn a_root_that_may_not_be_written_is_refused() {
    let bed = Bed::new();
    rustix::mount::mount_bind(&bed.root, &bed.root).unwrap();
    mount_remount(&bed.root, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
    let refused = bed.line("true").output().unwrap();
    assert_refused(&refused, USAGE, &["is no root of a run", "Read-only file system"]);
    assert_eq!(bed.file(), "before\n");
    assert!(!bed.pool().exists());
}

#[test]
fn a_root_of_any_name_works() {
    let bed = Bed::with_root(OsStr::from_bytes(b"r\xff t\n\\040"));
    bed.done("echo after > file; sync file");
    assert_eq!((bed.file().as_str(), bed.is_mounted()), ("after\n", false));
}
