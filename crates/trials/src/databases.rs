//! Servers of databases in a mount, without copies of their pages: PostgreSQL and MariaDB that have
//! to survive a power loss by their own logs and by whole pages alone.

use crate::artefacts::{MissingError, run};
use crate::postgres::{as_user, kill_tree, make_cluster, programs};
use crate::served::until;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// PostgreSQL, with `full_page_writes = off`.
    PostgreSql,
    /// MariaDB, with `innodb_doublewrite = OFF`.
    MariaDb,
}

/// Few pages of memory, so that pages leave it all the time, and a short log.
const POSTGRESQL: &str = "
listen_addresses = ''
fsync = on
full_page_writes = off
wal_log_hints = off
shared_buffers = 1MB
max_wal_size = 64MB
min_wal_size = 32MB
bgwriter_delay = 10ms
autovacuum_naptime = 1
dynamic_shared_memory_type = mmap
";

const MARIADB: &str = "
[mysqld]
skip-networking
innodb_doublewrite = OFF
innodb_flush_method = fsync
innodb_buffer_pool_size = 6M
innodb_log_file_size = 4M
innodb_max_dirty_pages_pct = 0
innodb_flush_log_at_trx_commit = 1
performance_schema = OFF
";

/// A transaction has a line of this table, and a counter says how many there are.
const TABLES: &str = "create table entries(client int, n int, filler varchar(900), primary key (client, n));
create table last(client int primary key, n int);
";

/// A database in a mount.
#[derive(Debug)]
pub struct Database {
    kind: DatabaseKind,
    /// What is not the mount's: the socket, the settings, the log.
    folder: tempfile::TempDir,
    data: PathBuf,
}

impl Database {
    /// Makes one in `directory`, with tables for so many clients.
    pub fn make(kind: DatabaseKind, directory: &Path, clients: u32) -> Result<Database, MissingError> {
        let folder = tempfile::tempdir().expect("room on the disk");
        let database = Database { kind, folder, data: directory.join("data") };
        for path in [database.folder.path(), directory] {
            open_to_all(path)?;
        }
        database.make_data()?;
        run(Command::new("chown").arg(database.user()).arg(database.folder.path()), "coreutils")?;
        let server = database.start()?;
        server.ask(TABLES)?;
        for client in 1..=clients {
            server.ask(&format!("insert into last values ({client}, 0)"))?;
        }
        if kind == DatabaseKind::PostgreSql {
            server.ask("create extension amcheck")?;
        }
        server.stop();
        // What makes an empty database does not sync it here.
        run(Command::new("find").arg(&database.data).args(["-exec", "sync", "{}", "+"]), "coreutils")?;
        Ok(database)
    }

    fn user(&self) -> &'static str {
        match self.kind {
            DatabaseKind::PostgreSql => "postgres",
            DatabaseKind::MariaDb => "mysql",
        }
    }

    fn package(&self) -> &'static str {
        match self.kind {
            DatabaseKind::PostgreSql => "postgresql",
            DatabaseKind::MariaDb => "mariadb-server",
        }
    }

    fn make_data(&self) -> Result<(), MissingError> {
        fs::create_dir(&self.data).map_err(MissingError::file(&self.data))?;
        let data = format!("--datadir={}", self.data.display());
        let (settings, text) = match self.kind {
            DatabaseKind::PostgreSql => {
                make_cluster(&self.data)?;
                let mut sums = self.own(&programs()?.join("pg_checksums"));
                run(sums.args(["--enable", "--no-sync", "-D"]).arg(&self.data), self.package())?;
                (self.data.join("postgresql.conf"), POSTGRESQL)
            }
            DatabaseKind::MariaDb => {
                run(Command::new("chown").arg("mysql:mysql").arg(&self.data), "coreutils")?;
                let mut made = Command::new("mariadb-install-db");
                made.args(["--no-defaults", "--user=mysql", "--skip-test-db", "--innodb-log-file-size=4M"]);
                made.args(["--auth-root-authentication-method=normal", &data]);
                run(&mut made, self.package())?;
                (self.folder.path().join("my.cnf"), MARIADB)
            }
        };
        fs::write(&settings, text).map_err(MissingError::file(&settings))
    }

    /// A command as the database's user.
    fn own(&self, program: &Path) -> Command {
        let mut by = as_user(self.user());
        by.arg(program).current_dir("/").stdin(Stdio::null());
        by
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Starts a server, which recovers what the last one left, and answers.
    pub fn start(&self) -> Result<DatabaseServer<'_>, MissingError> {
        let mut command = match self.kind {
            DatabaseKind::PostgreSql => {
                // The number of a killed process may be another one's by now.
                _ = fs::remove_file(self.data.join("postmaster.pid"));
                _ = fs::remove_file(self.folder.path().join(".s.PGSQL.5432.lock"));
                let mut server = self.own(&programs()?.join("postgres"));
                server.arg("-D").arg(&self.data).arg("-k").arg(self.folder.path());
                server
            }
            DatabaseKind::MariaDb => {
                let mut server = self.own(Path::new("mariadbd"));
                server.arg(format!("--defaults-file={}", self.folder.path().join("my.cnf").display()));
                server.arg(format!("--datadir={}", self.data.display()));
                server.arg(format!("--socket={}", self.socket().display()));
                server
            }
        };
        let log = self.folder.path().join("log");
        let log_file = File::create(&log).map_err(MissingError::file(&log))?;
        let child = command.stdout(Stdio::null()).stderr(log_file).spawn();
        let mut server = DatabaseServer { database: self, child: child.map_err(MissingError::file(&log))? };
        until("a server", || server.has_ended() || server.ask("select 1").is_ok());
        if server.has_ended() {
            let output = fs::read_to_string(&log).map_err(MissingError::file(&log))?;
            return Err(MissingError::Command { command: format!("{:?}", self.kind), output });
        }
        Ok(server)
    }

    /// Has every page of a database that no server has be read, and its checksum compared.
    pub fn verify_pages(&self) -> Result<(), MissingError> {
        match self.kind {
            DatabaseKind::PostgreSql => run(
                Command::new(programs()?.join("pg_checksums")).arg("--check").arg("-D").arg(&self.data),
                "postgresql",
            )
            .map(drop),
            DatabaseKind::MariaDb => {
                let tables = ["entries.ibd", "last.ibd"].map(|name| self.data.join("trial").join(name));
                let files = std::iter::once(self.data.join("ibdata1")).chain(tables);
                files
                    .into_iter()
                    .try_for_each(|file| run(Command::new("innochecksum").arg(file), "mariadb-server").map(drop))
            }
        }
    }
}

fn open_to_all(path: &Path) -> Result<(), MissingError> {
    // Whoever keeps folders of its own opens the way to them.
    for folder in path.ancestors().take_while(|folder| *folder != Path::new("/tmp")) {
        let mode = fs::metadata(folder).map_err(MissingError::file(folder))?.permissions().mode();
        fs::set_permissions(folder, fs::Permissions::from_mode(mode | 0o755)).map_err(MissingError::file(folder))?;
    }
    Ok(())
}

/// Waits until `clients` were told of so many transactions together, and calls `kill` then, which
/// ends their server. Returns the last number that each client was told.
///
/// # Panics
/// If a client prints something else than numbers.
pub fn numbers_until_killed(
    mut clients: Vec<Child>,
    mut brings: Child,
    transactions: u32,
    kill: impl FnOnce(),
) -> Vec<u32> {
    let all = AtomicU32::new(0);
    let told = thread::scope(|scope| {
        let read = |client: &mut Child| {
            let lines = BufReader::new(client.stdout.take().expect("it is read here alone")).lines();
            let all = &all;
            scope.spawn(move || {
                let numbers = lines.map(|line| line.expect("text").parse().expect("a number"));
                // Relaxed: it is a count.
                numbers.inspect(|_| _ = all.fetch_add(1, Ordering::Relaxed)).last().unwrap_or(0)
            })
        };
        let readers: Vec<_> = clients.iter_mut().map(read).collect();
        until("transactions", || all.load(Ordering::Relaxed) >= transactions);
        kill();
        readers.into_iter().map(|reader| reader.join().expect("every line is a number")).collect()
    });
    // Nobody answers them any more.
    clients.iter_mut().chain([&mut brings]).for_each(|client| {
        let _ = client.kill();
        client.wait().expect("it can be waited for");
    });
    told
}

/// A server that runs.
#[derive(Debug)]
pub struct DatabaseServer<'d> {
    database: &'d Database,
    child: Child,
}

impl DatabaseServer<'_> {
    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked for").is_some()
    }

    fn client(&self) -> Result<Command, MissingError> {
        let Database { kind, folder, .. } = self.database;
        Ok(match kind {
            DatabaseKind::PostgreSql => {
                // A line is to be seen when it is printed.
                let mut client = Command::new("stdbuf");
                client.arg("-oL").arg(programs()?.join("psql")).arg("-h").arg(folder.path());
                client.args(["-U", "postgres", "-d", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1"]);
                client
            }
            DatabaseKind::MariaDb => {
                let mut client = Command::new("mariadb");
                client.arg("--no-defaults").arg(format!("--socket={}", self.database.socket().display()));
                client.args(["-u", "root", "--skip-column-names", "--batch", "--unbuffered"]);
                client
            }
        })
    }

    /// What it answers, a line each row.
    pub fn ask(&self, what: &str) -> Result<String, MissingError> {
        let mut client = self.client()?;
        match self.database.kind {
            DatabaseKind::PostgreSql => client.arg("-c").arg(what),
            DatabaseKind::MariaDb => {
                client.arg("-e").arg(format!("create database if not exists trial; use trial; {what}"))
            }
        };
        run(&mut client, self.database.package())
    }

    /// A client that commits for ever, and prints the number of each transaction when it is told
    /// that it is committed. A transaction adds a line, somewhere in the table, and counts it.
    pub fn commits(&self, client: u32) -> Result<Child, MissingError> {
        let one = |n: u32| {
            let (filler, older) = (n * 37 % 900, n * 7919 % n.max(1));
            format!(
                "begin; insert into entries values ({client}, {n}, repeat('x', {filler})); update entries set filler = repeat('y', {filler}) where client = {client} and n = {older}; update last set n = {n} where client = {client}; commit; select {n};\n"
            )
        };
        let script: String = (1..30_000).map(one).collect();
        let begin = if self.database.kind == DatabaseKind::MariaDb { "use trial;\n" } else { "" };
        let path = self.database.folder.path().join(format!("client{client}"));
        fs::write(&path, format!("{begin}{script}")).map_err(MissingError::file(&path))?;
        let input = File::open(&path).map_err(MissingError::file(&path))?;
        let mut command = self.client()?;
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map_err(MissingError::file(&path))
    }

    /// A client that has all be written to the files, over and over.
    pub fn brings(&self) -> Result<Child, MissingError> {
        let line = match self.database.kind {
            DatabaseKind::PostgreSql => "checkpoint; vacuum last; select pg_sleep(0.1);\n",
            DatabaseKind::MariaDb => "flush tables trial.entries for export; unlock tables; select sleep(0.1);\n",
        };
        let path = self.database.folder.path().join("brings");
        fs::write(&path, line.repeat(2000)).map_err(MissingError::file(&path))?;
        let input = File::open(&path).map_err(MissingError::file(&path))?;
        let mut command = self.client()?;
        command.stdin(input).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map_err(MissingError::file(&path))
    }

    /// Has the server compare indexes, tables and pages.
    ///
    /// # Errors
    /// What it found.
    pub fn verify(&self) -> Result<(), MissingError> {
        match self.database.kind {
            DatabaseKind::PostgreSql => {
                let mut verified = Command::new(programs()?.join("pg_amcheck"));
                verified.args(["--heapallindexed", "--parent-check", "-U", "postgres", "-d", "postgres", "-h"]);
                run(verified.arg(self.database.folder.path()), "postgresql").map(drop)
            }
            DatabaseKind::MariaDb => {
                let said = self.ask("check table entries, last extended")?;
                let sound = said.lines().filter(|line| line.ends_with("status\tOK")).count() == 2;
                let command = "check table".to_owned();
                if sound { Ok(()) } else { Err(MissingError::Command { command, output: said }) }
            }
        }
    }

    /// Kills it with all its processes.
    pub fn kill(mut self) {
        kill_tree(&mut self.child);
    }

    /// Ends it as an administrator does.
    ///
    /// # Panics
    /// If it does not end well.
    pub fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let signal = match self.database.kind {
            DatabaseKind::PostgreSql => rustix::process::Signal::INT,
            DatabaseKind::MariaDb => rustix::process::Signal::TERM,
        };
        // `setpriv` has become the server.
        rustix::process::kill_process(pid, signal).expect("it is there");
        let end = self.child.wait().expect("it can be waited for");
        assert!(end.success(), "{end}");
    }
}

impl Drop for DatabaseServer<'_> {
    fn drop(&mut self) {
        if !self.has_ended() {
            kill_tree(&mut self.child);
        }
    }
}
