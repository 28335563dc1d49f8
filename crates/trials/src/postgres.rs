//! PostgreSQL: a cluster on a file system of its own, and servers of it with and without
//! `tidegate run`.

use crate::artefacts::{MissingError, run};
use crate::direct::library;
use crate::mounted::mount_image;
use crate::served::{program, until};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tidegate_measure::medium::remove_left_memory;

/// Whom Debian's package makes: a server does not start as root.
const USER: &str = "postgres";

/// Bytes of the file system.
const IMAGE_BYTES: u64 = 256 << 20;

/// A root on a file system of its own, and a pool in memory. A copy of the file system's image is
/// the state of a disk when the power fails: nothing that only the kernel has.
#[derive(Debug)]
pub struct PostgresTestbed {
    folder: tempfile::TempDir,
    memory: tempfile::TempDir,
}

impl PostgresTestbed {
    /// With an empty ext4 whose image is `image`, or one from `template`.
    pub fn new(template: Option<&Path>) -> Result<PostgresTestbed, MissingError> {
        let folder = tempfile::tempdir().expect("room on the disk");
        let memory = tempfile::tempdir_in("/dev/shm").expect("room in memory");
        let testbed = PostgresTestbed { folder, memory };
        fs::create_dir(testbed.root()).map_err(MissingError::file(&testbed.root()))?;
        let image = testbed.image();
        match template {
            Some(template) => drop(fs::copy(template, &image).map_err(MissingError::file(template))?),
            None => {
                File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).map_err(MissingError::file(&image))?;
                run(Command::new("mkfs.ext4").arg("-q").arg(&image), "e2fsprogs")?;
            }
        }
        testbed.mount()?;
        Ok(testbed)
    }

    /// The image of the file system, which has everything after [`PostgresTestbed::unmount`].
    pub fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn mount(&self) -> Result<(), MissingError> {
        mount_image(&self.image(), &self.root())
    }

    /// Writes the file system to its image and unmounts it. Unmounting alone does not write while a
    /// program with mounts of its own, another test's for example, still has the file system.
    pub fn unmount(&self) {
        let root = File::open(self.root()).expect("the file system is there");
        rustix::fs::syncfs(&root).expect("a file system writes what it has");
        drop(root);
        until("the last user's end", || match unmount(self.root(), UnmountFlags::empty()) {
            Err(Errno::BUSY) => false,
            end => end.map(|()| true).expect("the file system is there and ours"),
        });
    }

    /// The power fails: what nobody serves any more is what the disk has, and so is the file system
    /// from now on. The pool is as it was.
    pub fn lose_power(&self) -> Result<(), MissingError> {
        let (image, disk) = (self.image(), self.folder.path().join("disk"));
        fs::copy(&image, &disk).map_err(MissingError::file(&image))?;
        self.unmount();
        remove_left_memory(self.memory.path());
        fs::rename(&disk, &image).map_err(MissingError::file(&disk))?;
        self.mount()
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn pool(&self) -> PathBuf {
        self.memory.path().join("pool")
    }
}

impl Drop for PostgresTestbed {
    fn drop(&mut self) {
        while unmount(self.root(), UnmountFlags::DETACH).is_ok() {}
        remove_left_memory(self.memory.path());
    }
}

/// A cluster in the root of a testbed, that nobody serves.
#[derive(Debug)]
pub struct Cluster<'s> {
    testbed: &'s PostgresTestbed,
    programs: PathBuf,
}

impl<'s> Cluster<'s> {
    /// In the testbed's root, where one may be already. The testbed belongs to the server's user
    /// from now on.
    pub fn new(testbed: &'s PostgresTestbed) -> Result<Cluster<'s>, MissingError> {
        let cluster = Cluster { testbed, programs: programs()? };
        let own = testbed.folder.path().join("bin");
        fs::create_dir_all(&own).map_err(MissingError::file(&own))?;
        for file in [program(), &library()] {
            let copy = own.join(file.file_name().expect("a program has a name"));
            fs::copy(file, &copy).map_err(MissingError::file(&copy))?;
        }
        let mut owned = Command::new("chown");
        owned.arg("-R").arg(format!("{USER}:{USER}")).args([testbed.folder.path(), testbed.memory.path()]);
        run(&mut owned, "coreutils")?;
        Ok(cluster)
    }

    /// Makes one with small files and everything verified, and in it what [`Server::commits`]
    /// commits to.
    pub fn fill(&self, clients: u32) -> Result<(), MissingError> {
        let mut made = self.own("initdb");
        made.args(["--auth=trust", "--data-checksums", "--wal-segsize=1", "--no-sync", "-U", USER]);
        run(made.arg("-D").arg(self.data()), "postgresql")?;
        let settings = "\nlisten_addresses = ''\nmax_wal_size = 8MB\nmin_wal_size = 2MB\nautovacuum_naptime = 1\ndynamic_shared_memory_type = mmap\n";
        let path = self.data().join("postgresql.conf");
        let before = fs::read_to_string(&path).map_err(MissingError::file(&path))?;
        fs::write(&path, before + settings).map_err(MissingError::file(&path))?;
        let server = self.start()?;
        server.ask("create table lines(client int, n int, filler text, primary key (client, n));")?;
        server
            .ask(&format!("create table last as select client, 0 as n from generate_series(1, {clients}) client;"))?;
        server.ask("create extension amcheck;")?;
        server.stop();
        Ok(())
    }

    /// A server by itself, which answers. No process of before is there any more.
    pub fn start(&self) -> Result<Server<'_>, MissingError> {
        // Numbers of processes that were killed are somebody's for a while, which they are not
        // after a power cut.
        let socket_lock = self.testbed.folder.path().join(".s.PGSQL.5432.lock");
        [self.data().join("postmaster.pid"), socket_lock].iter().for_each(|lock| _ = fs::remove_file(lock));
        self.started(self.own("postgres"))
    }

    /// A server under `run`, which answers.
    pub fn start_under_run(&self) -> Result<Server<'_>, MissingError> {
        let mut run = Command::new(program());
        run.args(["run", "--try", "--size", "64M", "--pool"]).arg(self.testbed.pool());
        run.arg("--root").arg(self.testbed.root()).arg("--").arg(self.programs.join("postgres"));
        // Debian lets every user open it; a container may not.
        let (fuse, mode) =
            (Path::new("/dev/fuse"), |mode| fs::set_permissions("/dev/fuse", Permissions::from_mode(mode)));
        let before = fs::metadata(fuse).map_err(MissingError::file(fuse))?.permissions().mode();
        mode(0o666).map_err(MissingError::file(fuse))?;
        let started = self.started(self.by_user(&run));
        mode(before).map_err(MissingError::file(fuse))?;
        started
    }

    /// Recovers the pool.
    pub fn recover(&self) -> Result<String, MissingError> {
        let mut recover = Command::new(program());
        recover.arg("recover").arg(self.testbed.pool());
        run(&mut self.by_user(&recover), "tidegate")
    }

    fn started(&self, mut command: Command) -> Result<Server<'_>, MissingError> {
        command
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.testbed.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let log = self.testbed.folder.path().join("log");
        command.stderr(File::create(&log).map_err(MissingError::file(&log))?);
        let child = command.spawn().map_err(MissingError::file(Path::new("setpriv")))?;
        let mut server = Server { cluster: self, child };
        until("a server", || server.has_ended() || server.ask("select 1").is_ok());
        if server.has_ended() {
            let output = fs::read_to_string(&log).map_err(MissingError::file(&log))?;
            return Err(MissingError::Command { command: "postgres".to_owned(), output });
        }
        Ok(server)
    }

    fn data(&self) -> PathBuf {
        self.testbed.root().join("data")
    }

    /// One of PostgreSQL's programs, as its user.
    fn own(&self, name: &str) -> Command {
        self.by_user(&Command::new(self.programs.join(name)))
    }

    /// The `command` as PostgreSQL's user, who may not find this one's programs.
    fn by_user(&self, command: &Command) -> Command {
        let mut by = as_user(USER);
        let is_ours = command.get_program() == program().as_os_str();
        let copy = self.testbed.folder.path().join("bin").join(program().file_name().expect("a program has a name"));
        by.arg(if is_ours { copy.as_os_str() } else { command.get_program() }).args(command.get_args());
        by.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        by.env("XDG_STATE_HOME", self.testbed.folder.path()).current_dir(self.testbed.folder.path());
        by
    }
}

/// The folder with the newest programs that Debian's packages have put where no path leads.
pub(crate) fn programs() -> Result<PathBuf, MissingError> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("postgres").exists());
    folders.max().ok_or_else(|| MissingError::Program { program: "postgres".to_owned(), package: "postgresql" })
}

/// A command to which the program is still to be added, and that runs it as `user`, who is in a
/// group of that name.
pub(crate) fn as_user(user: &str) -> Command {
    let mut by = Command::new("setpriv");
    by.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
    by
}

/// Makes an empty cluster in `data`, an empty directory that belongs to the server's user from now
/// on.
pub fn make_cluster(data: &Path) -> Result<(), MissingError> {
    run(Command::new("chown").arg(format!("{USER}:{USER}")).arg(data), "coreutils")?;
    let mut made = as_user(USER);
    made.current_dir("/");
    made.arg(programs()?.join("initdb")).args(["--auth=trust", "--no-sync", "-U", USER, "-D"]).arg(data);
    run(&mut made, "postgresql").map(drop)
}

/// A process and all that it started, and that those started.
fn tree(of: Pid) -> Vec<Pid> {
    let pid = of.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
    std::iter::once(of).chain(children.flat_map(tree)).collect()
}

/// Stops a process and all that it started. One that begins while they are looked for is found the
/// next time: its parent stands still by then.
fn stop_tree(of: Pid) -> Vec<Pid> {
    let mut stopped = Vec::new();
    loop {
        let fresh: Vec<Pid> = tree(of).into_iter().filter(|pid| !stopped.contains(pid)).collect();
        if fresh.is_empty() {
            return stopped;
        }
        fresh.iter().for_each(|pid| _ = kill_process(*pid, Signal::STOP));
        // On a busy machine that takes a while, in which a thread could still do something.
        until("all to stand still", || fresh.iter().all(|pid| stands_still(*pid)));
        stopped.extend(fresh);
    }
}

/// Whether no thread of a process does anything: it is stopped, waits for a file system, or is
/// gone.
fn stands_still(pid: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).into_iter().flatten().flatten();
    let state = |thread: &Path| Some(fs::read_to_string(thread.join("stat")).ok()?.rsplit_once(") ")?.1.chars().next());
    threads.filter_map(|thread| state(&thread.path())?).all(|state| "TDZX".contains(state))
}

/// Stops all of them, so that none sees another one's end, and kills them then.
pub(crate) fn kill_tree(child: &mut Child) {
    let all = stop_tree(Pid::from_child(child));
    // Children first: the kernel lets a stopped one go on whose parent has died.
    all.iter().rev().for_each(|pid| _ = kill_process(*pid, Signal::KILL));
    child.wait().expect("it can be waited for");
    let is_gone = |pid: &Pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        stat.map_or(true, |stat| stat.contains(") Z"))
    };
    until("all to be gone", || all.iter().all(is_gone));
}

/// A server that runs.
#[derive(Debug)]
pub struct Server<'c> {
    cluster: &'c Cluster<'c>,
    child: Child,
}

impl Server<'_> {
    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked for").is_some()
    }

    fn client(&self, name: &str) -> Command {
        // A line is to be seen when it is printed.
        let mut client = Command::new("stdbuf");
        client.arg("-oL").arg(self.cluster.programs.join(name));
        client.arg("-h").arg(self.cluster.testbed.folder.path()).args(["-U", USER]);
        self.cluster.by_user(&client)
    }

    /// What it answers, a line each row, with bars between.
    pub fn ask(&self, what: &str) -> Result<String, MissingError> {
        let mut asked = self.client("psql");
        run(asked.args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-d", USER, "-c", what]), "postgresql")
    }

    /// Whether all indexes and tables are as they have to be.
    pub fn verify(&self) -> Result<String, MissingError> {
        run(self.client("pg_amcheck").args(["--heapallindexed", "--parent-check", "-d", USER]), "postgresql")
    }

    /// A client that commits for ever, and prints the number of each transaction when it is told
    /// that it is committed. A transaction adds a line and counts it.
    pub fn commits(&self, client: u32) -> Result<Child, MissingError> {
        let line = |n: u32| {
            let filler = n * 37 % 900;
            format!(
                "with added as (insert into lines values ({client}, {n}, repeat('x', {filler}))) update last set n = {n} where client = {client} returning n;\n"
            )
        };
        self.says(&format!("client{client}"), (1..30_000).map(line).collect())
    }

    /// A client that has all be written to the files, over and over, and what is dead be removed.
    pub fn brings(&self) -> Result<Child, MissingError> {
        self.says("checkpoints", "checkpoint; vacuum last; select pg_sleep(0.1);\n".repeat(2000))
    }

    fn says(&self, name: &str, script: String) -> Result<Child, MissingError> {
        let path = self.cluster.testbed.folder.path().join(name);
        fs::write(&path, script).map_err(MissingError::file(&path))?;
        let mut client = self.client("psql");
        client.args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-d", USER, "-f"]).arg(&path);
        client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        client.spawn().map_err(MissingError::file(Path::new("setpriv")))
    }

    /// Kills it, all its processes and the service of the mount at once.
    ///
    /// # Panics
    /// If it had ended by itself.
    pub fn kill(mut self) {
        assert!(!self.has_ended(), "it ended by itself: {}", self.cluster.testbed.folder.path().join("log").display());
        let root = self.cluster.testbed.root();
        drop(self);
        // The dead mount over the root; without `run` there is none.
        let _ = unmount(&root, UnmountFlags::DETACH);
    }

    /// Ends it as an administrator does.
    pub fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it is there");
        let end = self.child.wait().expect("it can be waited for");
        assert!(end.success(), "{end}");
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if !self.has_ended() {
            kill_tree(&mut self.child);
        }
    }
}
