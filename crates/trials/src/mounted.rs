//! A file service over a folder of this disk, with its pool in `/dev/shm`, and suites of others
//! that are run on it.

use crate::artefacts::{MissingError, built, cache, run};
use crate::served::{program, until};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use tempfile::TempDir;
use tidegate_measure::medium::remove_left_memory;
use tidegate_measure::programs::alone;

/// What the service says when programs can use the mount.
const MOUNTED: &str = "mounted";

/// Bytes of the usual pool: few enough for files to be written back while a trial goes on.
const POOL_SIZE: &[&str] = &["--pool-size", "128M"];

/// Bytes of a pool whose log of names is as short as one may be, with room for 4096 files.
const SMALL_POOL_SIZE: &[&str] = &["--pool-size", "16M"];

/// A mount with folders of its own. It ends with the value.
pub struct MountTestbed {
    disk: TempDir,
    memory: TempDir,
    service: Child,
    source_disk: SourceDisk,
    options: Options,
    /// The server of SOURCE's own file system, if a process serves that.
    below: Option<Child>,
}

/// A file system whose journal loses operations on names in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journaled {
    /// ext4 with a journal.
    Ext4,
    /// XFS.
    Xfs,
}

impl Journaled {
    /// Bytes of the disk that can lose its power. The service has plenty of room on one of them and
    /// counts what short files need; on the other one it reserves that.
    fn own_bytes(self) -> u64 {
        match self {
            Journaled::Ext4 => 2 << 30,
            // `mkfs.xfs` makes none that is smaller than 300 MiB.
            Journaled::Xfs => 320 << 20,
        }
    }

    /// Makes one of so many bytes: the image of `disk`.
    fn make(self, disk: &Path, bytes: u64) {
        let image = disk.join("image");
        File::create(&image).and_then(|image| image.set_len(bytes)).expect("room on the disk");
        let words: &[&str] = match self {
            Journaled::Ext4 => &["mkfs.ext4", "-q", "-F"],
            Journaled::Xfs => &["mkfs.xfs", "-q"],
        };
        tool(Command::new(words[0]).args(&words[1..]).arg(image));
    }
}

/// Options of `tidegate mount`.
type Options = &'static [&'static str];

/// The disk that SOURCE is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceDisk {
    /// This machine's.
    Shared,
    /// One for SOURCE alone, which can lose its power.
    Own(Journaled),
    /// One with room for SOURCE and a folder beside it.
    Large(Journaled),
    /// A file system in memory, which fails when it is told to.
    Failing,
}

/// Name of the file that says how the file system below fails.
const PLAN: &str = "plan";

/// Bytes of the disk of suites, of which few are ever written.
const LARGE_DISK_BYTES: u64 = 8 << 30;

/// Where that is mounted.
const LARGE: &str = "large";

/// Has the file system of the directory forget what its journal does not have yet:
/// `EXT4_IOC_SHUTDOWN` without a flush of the log, which is XFS's `XFS_IOC_GOINGDOWN` as well.
const SHUTDOWN: &str = "my $how = pack('L', 2); sysopen(D, $ARGV[0], 0) and ioctl(D, 0x8004587d, $how) or die $!";

/// Has the disk below get about every second page of 4 KiB of the files of a directory, synced or
/// not: `sync_file_range` of those that the seed chooses. What the power takes of a larger page of
/// a database that was not synced is then a part of it.
const TEAR: &str = "use File::Find; srand($ARGV[1]); my $call = $ARGV[2];
find(sub { return unless -f $_ && open(my $file, '<', $_); my $size = -s $file;
  for (my $at = 0; $at < $size; $at += 4096) { syscall($call, fileno($file), $at, 4096, 7) if rand() < 0.5 } },
  $ARGV[0]);";

/// `sync_file_range` of this machine.
const SYNC_FILE_RANGE: &str = if cfg!(target_arch = "aarch64") { "84" } else { "277" };

impl MountTestbed {
    /// Mounts an empty folder.
    pub fn new() -> MountTestbed {
        MountTestbed::begin(SourceDisk::Shared, POOL_SIZE)
    }

    /// Mounts a fresh ext4 with a journal, on a disk that can lose its power.
    pub fn on_own_disk() -> MountTestbed {
        MountTestbed::on(Journaled::Ext4)
    }

    /// Mounts a fresh file system, on a disk that can lose its power.
    pub fn on(journaled: Journaled) -> MountTestbed {
        MountTestbed::begin(SourceDisk::Own(journaled), POOL_SIZE)
    }

    /// Mounts a folder of a fresh file system that has room beside it.
    pub fn on_large_disk(journaled: Journaled) -> MountTestbed {
        MountTestbed::begin(SourceDisk::Large(journaled), POOL_SIZE)
    }

    /// Mounts a fresh ext4 on a disk that can lose its power, with a pool that is soon
    /// full.
    pub fn with_small_pool() -> MountTestbed {
        MountTestbed::begin(SourceDisk::Own(Journaled::Ext4), SMALL_POOL_SIZE)
    }

    /// Mounts as [`MountTestbed::with_small_pool`] does, with these options of `mount`.
    pub fn with_options(options: &'static [&'static str]) -> MountTestbed {
        MountTestbed::begin(SourceDisk::Own(Journaled::Ext4), options)
    }

    /// Mounts a file system that fails as [`MountTestbed::fail`] says.
    pub fn on_failing_disk() -> MountTestbed {
        MountTestbed::begin(SourceDisk::Failing, POOL_SIZE)
    }

    /// Mounts the same with these options of `mount`.
    pub fn on_failing_disk_with(options: &'static [&'static str]) -> MountTestbed {
        MountTestbed::begin(SourceDisk::Failing, options)
    }

    /// From now on the file system below refuses changes: lines of a kind, `write`, `sync`, `cut`
    /// or `reserve`, and the number of an error; or syncs wait, after `sync wait`. It works again
    /// after an empty text.
    pub fn fail(&self, plan: &str) {
        let fresh = self.disk.path().join("plan.new");
        fs::write(&fresh, plan)
            .and_then(|()| fs::rename(fresh, self.disk.path().join(PLAN)))
            .expect("room on the disk");
    }

    fn begin(source_disk: SourceDisk, options: Options) -> MountTestbed {
        let disk = tempfile::tempdir().expect("room on the disk");
        let memory = tempfile::tempdir_in("/dev/shm").expect("room in memory");
        for folder in ["source", "mount", "beside"] {
            fs::create_dir(disk.path().join(folder)).expect("a new folder");
        }
        match source_disk {
            SourceDisk::Own(journaled) => {
                journaled.make(disk.path(), journaled.own_bytes());
                mount_disk(disk.path(), "source");
            }
            SourceDisk::Large(journaled) => make_large(disk.path(), journaled),
            SourceDisk::Shared | SourceDisk::Failing => (),
        }
        let below = (source_disk == SourceDisk::Failing)
            .then(|| serve_failing(&disk.path().join("source"), &disk.path().join(PLAN)));
        let service = start(disk.path(), memory.path(), options, Stdio::inherit());
        MountTestbed { disk, memory, service, source_disk, options, below }
    }

    /// The directory that is mounted.
    pub fn source(&self) -> PathBuf {
        self.disk.path().join("source")
    }

    /// The pool.
    pub fn pool(&self) -> PathBuf {
        self.memory.path().join("pool")
    }

    /// The power of the machine fails: the service is gone, and what is in DRAM, and what the disk
    /// did not have. Persistent memory keeps all.
    pub fn lose_power(&mut self) {
        self.kill();
        self.lose_power_of_disk();
    }

    /// The power of the machine fails as in [`MountTestbed::lose_power`], and the disk of SOURCE
    /// has got parts of pages before that were never synced.
    pub fn lose_power_and_tear(&mut self, seed: u64) {
        self.kill();
        tool(Command::new("perl").args(["-e", TEAR]).arg(self.source()).args([&seed.to_string(), SYNC_FILE_RANGE]));
        self.lose_power_of_disk();
    }

    /// The disk of SOURCE forgets what it was not told to have, and everything in DRAM is gone.
    fn lose_power_of_disk(&self) {
        assert!(matches!(self.source_disk, SourceDisk::Own(_)), "only a disk of its own can lose its power");
        tool(Command::new("perl").args(["-e", SHUTDOWN]).arg(self.source()));
        remove_left_memory(self.memory.path());
        unmount_unused(&self.source());
        mount_disk(self.disk.path(), "source");
    }

    /// Runs the program on the pool.
    pub fn on_pool(&self, command: &str) -> Output {
        Command::new(program()).arg(command).arg(self.pool()).output().expect("the program starts")
    }

    /// What `tidegate status --json` says of the pool.
    pub fn status_json(&self) -> Output {
        Command::new(program()).arg("status").arg(self.pool()).arg("--json").output().expect("the program starts")
    }

    /// What `tidegate status --json` says of the pool, taken apart.
    pub fn status(&self) -> serde_json::Value {
        let told = self.status_json();
        serde_json::from_slice(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told:?}"))
    }

    /// A count of that status, by its key.
    pub fn status_count(&self, key: &str) -> u64 {
        self.status()[key].as_u64().unwrap_or_else(|| panic!("{key} is no count"))
    }

    /// Requests of the kernel until now.
    pub fn requests(&self) -> u64 {
        self.status_count("requests")
    }

    /// Where programs work.
    pub fn mountpoint(&self) -> PathBuf {
        self.disk.path().join("mount")
    }

    /// A folder outside the mount, on the file system of SOURCE unless that is SOURCE's own.
    pub fn beside(&self) -> PathBuf {
        self.disk.path().join("beside")
    }

    /// Kills the service with its supervisor, as `kill -9` does.
    pub fn kill(&mut self) {
        kill_all(&mut self.service);
        // Programs of the trial may still have files of the dead mount open.
        unmount(self.mountpoint(), UnmountFlags::DETACH).expect("the dead mount can be removed");
    }

    /// Kills the server, and waits until the supervisor has started the next one.
    pub fn kill_server(&mut self) {
        until("a server", || self.server().is_some());
        let former = servers_of(self.service.id());
        former.iter().for_each(|server| _ = kill_process(*server, Signal::KILL));
        self.await_server_after(&former);
    }

    fn await_server_after(&self, former: &[Pid]) {
        until("the next server", || servers_of(self.service.id()).iter().any(|server| !former.contains(server)));
    }

    /// Kills the server, and calls `change` before the supervisor starts the next one.
    pub fn kill_server_before(&mut self, change: impl FnOnce()) {
        until("a server", || self.server().is_some());
        let supervisor = Pid::from_child(&self.service);
        kill_process(supervisor, Signal::STOP).expect("the supervisor is this process' child");
        let former = servers_of(self.service.id());
        for server in &former {
            let gone = pidfd_open(*server, PidfdFlags::empty()).expect("nobody has waited for it");
            kill_process(*server, Signal::KILL).expect("it is there");
            poll(&mut [PollFd::new(&gone, PollFlags::IN)], None).expect("the kernel tells");
        }
        change();
        kill_process(supervisor, Signal::CONT).expect("the supervisor is this process' child");
        self.await_server_after(&former);
    }

    /// An error of the disk of SOURCE: its file system, ext4, can only be read until it is mounted
    /// anew.
    pub fn abort_disk(&self) {
        assert_eq!(self.source_disk, SourceDisk::Own(Journaled::Ext4), "only ext4 is aborted on demand");
        remount(&self.source(), "errors=remount-ro,abort");
    }

    /// The process of the server.
    pub fn server(&self) -> Option<Pid> {
        servers_of(self.service.id()).pop()
    }

    /// Kills every server as soon as it is there. Returns the exit code of the supervisor, which
    /// gives up.
    pub fn kill_every_server(&mut self) -> Option<i32> {
        let mut ended = None;
        until("the supervisor to give up", || {
            servers_of(self.service.id()).iter().for_each(|server| _ = kill_process(*server, Signal::KILL));
            ended = self.service.try_wait().expect("the supervisor is this process' child");
            ended.is_some()
        });
        ended?.code()
    }

    /// Kills the service with its supervisor, and leaves the dead mount where it is.
    pub fn kill_and_leave(&mut self) {
        kill_all(&mut self.service);
    }

    /// Unmounts, and waits until everything is written back.
    pub fn end(mut self) -> EndedMount {
        unmount_unused(&self.mountpoint());
        let ended = self.service.wait().expect("the supervisor is this process' child");
        EndedMount { ended, testbed: self }
    }

    /// Mounts again what was killed.
    pub fn mount_again(&mut self) {
        self.service = start(self.disk.path(), self.memory.path(), self.options, Stdio::inherit());
    }

    /// Mounts again what was killed, with a log that takes no line.
    pub fn mount_again_without_a_log(&mut self) {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device of every system");
        self.service = start(self.disk.path(), self.memory.path(), self.options, full.into());
    }
}

/// The files of a mount that ended.
pub struct EndedMount {
    ended: ExitStatus,
    testbed: MountTestbed,
}

impl EndedMount {
    /// Whether the files have everything.
    pub fn is_written_back(&self) -> bool {
        let mode = fs::metadata(self.testbed.source()).expect("SOURCE is there").permissions().mode();
        self.ended.success() && mode & 0o777 != 0o700 && !self.testbed.memory.path().join("pool.mount").exists()
    }

    /// The contents of a file of SOURCE.
    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.testbed.source().join(name)).expect("the file is there")
    }
}

impl Default for MountTestbed {
    fn default() -> MountTestbed {
        MountTestbed::new()
    }
}

impl Drop for MountTestbed {
    fn drop(&mut self) {
        // A test that failed leaves files open, and the service would wait for them.
        if unmount(self.mountpoint(), UnmountFlags::empty()).is_err() {
            let _ = unmount(self.mountpoint(), UnmountFlags::DETACH);
            kill_all(&mut self.service);
        }
        let _ = self.service.wait();
        match self.source_disk {
            SourceDisk::Shared => (),
            SourceDisk::Large(_) => _ = unmount(self.disk.path().join(LARGE), UnmountFlags::DETACH),
            SourceDisk::Own(_) | SourceDisk::Failing => _ = unmount(self.source(), UnmountFlags::DETACH),
        }
        if let Some(below) = &mut self.below {
            let _ = below.kill();
            let _ = below.wait();
        }
        remove_left_memory(self.memory.path());
    }
}

/// Kills the processes of a mount, and waits until they are gone.
pub fn kill_all(supervisor: &mut Child) {
    for server in send_kill(supervisor) {
        poll(&mut [PollFd::new(&server, PollFlags::IN)], None).expect("the kernel tells");
    }
    supervisor.wait().expect("the supervisor is this process' child");
}

/// Has the processes of a mount killed: first the supervisor, which would start the next server.
/// Returns descriptors that say when its servers are gone.
pub fn send_kill(supervisor: &mut Child) -> Vec<OwnedFd> {
    // Right after the mount there is none yet.
    until("a server", || !servers_of(supervisor.id()).is_empty() || has_ended(supervisor));
    let servers = servers_of(supervisor.id());
    let gone: Vec<_> = servers.iter().filter_map(|server| pidfd_open(*server, PidfdFlags::empty()).ok()).collect();
    // What ended by itself needs no signal.
    let _ = supervisor.kill();
    servers.into_iter().for_each(|server| _ = kill_process(server, Signal::KILL));
    gone
}

fn has_ended(supervisor: &mut Child) -> bool {
    supervisor.try_wait().is_ok_and(|ended| ended.is_some())
}

/// The servers that a supervisor has now: one, or none for a moment.
pub fn servers_of(supervisor: u32) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Unmounts what no program uses. What another test forks has this test's files open until it runs
/// its own program.
fn unmount_unused(mountpoint: &Path) {
    until("the last user's end", || unmount(mountpoint, UnmountFlags::empty()).is_ok());
}

/// Mounts files in memory at a directory, by a process that fails as the file `plan` says; see
/// [`MountTestbed::fail`].
pub fn serve_failing(mountpoint: &Path, plan: &Path) -> Child {
    let folder = built(&["--package", "tidegate-bare-mount", "--bin", "bare-mount"]);
    let program = folder.unwrap_or_else(|error| panic!("{error}")).join("bare-mount");
    let device = |path: &Path| fs::metadata(path).map(|about| about.dev()).ok();
    let before = device(mountpoint);
    let server = Command::new(program)
        .arg(mountpoint)
        .args(["--threads", "8", "--fail-as"])
        .arg(plan)
        .spawn()
        .expect("it starts");
    until("the file system below", || device(mountpoint) != before);
    server
}

fn mount_disk(disk: &Path, at: &str) {
    mount_image(&disk.join("image"), &disk.join(at)).unwrap_or_else(|error| panic!("{error}"));
}

/// Mounts the file system at `at` with other options.
pub fn remount(at: &Path, options: &str) {
    tool(Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(at));
}

/// Mounts the file system in `image` at `at`, through a loop device that goes when it is unmounted.
///
/// Not by `mount -o loop`: that takes a loop device which still shows the image, and the device may
/// show the image of another test by the time it is mounted.
///
/// Waits until no other device shows the image: programs with mounts of their own may keep a file
/// system that was unmounted for a while.
///
/// # Errors
/// What `losetup` or `mount` said.
pub fn mount_image(image: &Path, at: &Path) -> Result<(), MissingError> {
    let shown = || run(Command::new("losetup").arg("--noheadings").arg("--associated").arg(image), "mount");
    until("the end of the image's file system", || shown().is_ok_and(|devices| devices.trim().is_empty()));
    let device = run(Command::new("losetup").args(["--find", "--show"]).arg(image), "mount")?;
    let mounted = run(Command::new("mount").arg(device.trim()).arg(at), "mount");
    // Detached while it is in use, it goes at its last user's end.
    run(Command::new("losetup").args(["--detach", device.trim()]), "mount")?;
    mounted.map(drop)
}

/// Moves the folders `source` and `beside` to a disk of their own.
fn make_large(disk: &Path, journaled: Journaled) {
    journaled.make(disk, LARGE_DISK_BYTES);
    fs::create_dir(disk.join(LARGE)).expect("a new folder");
    mount_disk(disk, LARGE);
    for name in ["source", "beside"] {
        let moved = disk.join(LARGE).join(name);
        fs::create_dir(&moved)
            .and_then(|()| fs::remove_dir(disk.join(name)))
            .and_then(|()| std::os::unix::fs::symlink(&moved, disk.join(name)))
            .expect("a fresh disk");
    }
}

/// Runs a program of the system, which has to succeed.
fn tool(command: &mut Command) {
    let done = command.output().expect("the program is everywhere");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn start(disk: &Path, memory: &Path, options: Options, errors: Stdio) -> Child {
    let mut service = Command::new(program())
        .arg("mount")
        .args([disk.join("source"), disk.join("mount")])
        .args(options)
        .args(["--try", "--pool"])
        .arg(memory.join("pool"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .expect("the service starts");
    let said = BufReader::new(service.stdout.take().expect("standard output is a pipe"));
    let mut lines = said.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with(MOUNTED)), "the service ended before it mounted");
    // What it says at its end has to go somewhere.
    std::thread::spawn(move || lines.for_each(drop));
    service
}

/// Sizes and frequencies of what `fsx` does. Further lines give weights to more operations.
pub const FSX: &str = "
    flen = 262144
    [opsize]
    max = 65536
    [weights]
    close_open = 1
    read = 10
    write = 10
    mapread = 10
    mapwrite = 10
    truncate = 5
    fsync = 1
    fdatasync = 1
    posix_fallocate = 2
    punch_hole = 3
    copy_file_range = 4
";

/// The folder with the programs `fsx` and `pjdfstest`, installed now from the package registry
/// unless they were before.
pub fn suites() -> Result<PathBuf, MissingError> {
    let root = cache()?.join("suites");
    let _alone = alone(&root).map_err(MissingError::file(&root))?;
    let programs = root.join("bin");
    if !["fsx", "pjdfstest"].iter().all(|program| programs.join(program).exists()) {
        let mut install = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        install.args(["install", "--quiet", "--debug", "--locked", "fsx@0.3.2", "pjdfstest@0.2.2", "--root"]);
        install.arg(&root).arg("--target-dir").arg(root.join("build")).env("CARGO_PROFILE_DEV_DEBUG", "0");
        run(&mut install, "cargo")?;
    }
    Ok(programs)
}
