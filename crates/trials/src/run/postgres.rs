//! PostgreSQL: a cluster in the root of a testbed, servers of it with and without `tidegate
//! run-log`, and the queries they get.

use crate::artefacts::{MissingError, run};
use crate::run::{Testbed, kill_all, library};
use crate::served::{program, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Whom Debian's package makes: a server does not start as root.
const USER: &str = "postgres";

/// A cluster in the root of a testbed, that nobody serves.
#[derive(Debug)]
pub struct Cluster<'s> {
    testbed: &'s Testbed,
    programs: PathBuf,
}

impl<'s> Cluster<'s> {
    /// In the testbed's root, where one may be already. The stand belongs to the server's user from
    /// now on.
    pub fn new(testbed: &'s Testbed) -> Result<Cluster<'s>, MissingError> {
        let cluster = Cluster { testbed, programs: programs()? };
        let own = testbed.folder().join("bin");
        fs::create_dir_all(&own).map_err(MissingError::file(&own))?;
        for file in [program(), library()] {
            let copy = own.join(file.file_name().expect("a program has a name"));
            fs::copy(file, &copy).map_err(MissingError::file(&copy))?;
        }
        run(Command::new("chown").arg("-R").arg(format!("{USER}:{USER}")).arg(testbed.folder()), "coreutils")?;
        Ok(cluster)
    }

    /// Makes one with small files and everything verified, and in it what [`Server::commits`]
    /// commits to.
    pub fn fill(&self, clients: u32) -> Result<(), MissingError> {
        let mut made = self.own("initdb");
        made.args(["--auth=trust", "--data-checksums", "--wal-segsize=1", "--no-sync", "-U", USER]);
        run(made.arg("-D").arg(self.data()), "postgresql")?;
        let settings = "\nlisten_addresses = ''\nmax_wal_size = 8MB\nmin_wal_size = 2MB\nautovacuum_naptime = 1\n";
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
        let socket_lock = self.testbed.folder().join(".s.PGSQL.5432.lock");
        [self.data().join("postmaster.pid"), socket_lock].iter().for_each(|lock| _ = fs::remove_file(lock));
        self.started(self.own("postgres"))
    }

    /// A server under `run`, which answers.
    pub fn start_under_run(&self) -> Result<Server<'_>, MissingError> {
        let mut command = self.by_user(&self.testbed.run());
        command.arg(self.programs.join("postgres"));
        self.started(command)
    }

    /// `tidegate recover` of the pool.
    pub fn recover(&self) -> Command {
        self.by_user(&self.testbed.recover())
    }

    fn started(&self, mut command: Command) -> Result<Server<'_>, MissingError> {
        command
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.testbed.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let log = self.testbed.folder().join("log");
        command.stderr(fs::File::create(&log).map_err(MissingError::file(&log))?);
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
        let mut by = Command::new("setpriv");
        by.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
        let is_ours = command.get_program() == program().as_os_str();
        let copy = self.testbed.folder().join("bin").join(program().file_name().expect("a program has a name"));
        by.arg(if is_ours { copy.as_os_str() } else { command.get_program() }).args(command.get_args());
        by.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        by.env("XDG_STATE_HOME", self.testbed.folder()).current_dir(self.testbed.folder());
        by
    }
}

/// The folder with the newest programs that Debian's packages have put where no path leads.
fn programs() -> Result<PathBuf, MissingError> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("postgres").exists());
    folders.max().ok_or_else(|| MissingError::Program { program: "postgres".to_owned(), package: "postgresql" })
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
        client.arg("-h").arg(self.cluster.testbed.folder()).args(["-U", USER]);
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
        let path = self.cluster.testbed.folder().join(name);
        fs::write(&path, script).map_err(MissingError::file(&path))?;
        let mut client = self.client("psql");
        client.args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-d", USER, "-f"]).arg(&path);
        client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        client.spawn().map_err(MissingError::file(Path::new("setpriv")))
    }

    /// Kills it, all its processes and the supervisor at once.
    pub fn kill(self) {
        drop(self);
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
            kill_all(&mut self.child);
        }
    }
}
