//! Database servers: PostgreSQL with pgbench, MariaDB with its load emulator.

use super::POOL_MIB;
use crate::files::testbed::{Running, Storage, Testbed, missing};
use crate::served::server::pause;
use crate::target::Outcome;
use anyhow::Context;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tidegate_measure::Pairs;
use tidegate_measure::medium::ScratchPath;
use tidegate_measure::programs::said;
use tidegate_measure::workload::Effort;

/// What a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Most transactions in a sample.
const TRANSACTIONS_MAX: u32 = 8000;

/// Transactions in a sample for which PostgreSQL's tables get ten times as many rows: with fewer
/// rows, clients wait for each other.
const TRANSACTIONS_OF_MANY_ROWS: u32 = 4000;

/// Whom Debian's package makes: PostgreSQL does not start as root.
const POSTGRES: &str = "postgres";

/// A server that answers.
pub(crate) struct Server {
    // Fields are dropped in order: the server ends before its files go.
    _running: Running,
    socket: SocketFolder,
    testbed: Testbed,
}

/// A folder in memory for a server's socket, which is removed with all that is in it.
struct SocketFolder(ScratchPath);

impl SocketFolder {
    fn new() -> anyhow::Result<SocketFolder> {
        let folder = ScratchPath::new();
        std::fs::create_dir(folder.as_path())?;
        Ok(SocketFolder(folder))
    }

    fn path(&self) -> &Path {
        self.0.as_path()
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        // What cannot be removed is in a folder for what is temporary.
        let _ = std::fs::remove_dir_all(self.path());
    }
}

impl Server {
    /// Where its files are.
    pub(crate) fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// Starts `command`, and waits until `asked` succeeds.
    fn start(
        mut command: Command,
        (testbed, socket): (Testbed, SocketFolder),
        mut asked: Command,
    ) -> anyhow::Result<Server> {
        let mut running = Running::start(&mut command)?;
        let began = Instant::now();
        while said(&mut asked).is_err() {
            anyhow::ensure!(
                running.runs() && began.elapsed() < PATIENCE,
                "{:?} does not answer",
                command.get_program()
            );
            pause();
        }
        Ok(Server { _running: running, socket, testbed })
    }
}

/// Transactions of pgbench per second by so many clients, in the mount over those in `under`.
pub(super) fn postgres(effort: Effort, clients: u32, under: Storage) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&["pgbench"]) {
        return Ok(missing);
    }
    let Some(postgres) = Postgres::find() else {
        return Ok(Postgres::missing());
    };
    let transactions = effort.steps.min(TRANSACTIONS_MAX);
    let scale = if transactions < TRANSACTIONS_OF_MANY_ROWS { 1 } else { 10 };
    let filled = postgres.filled_cluster(scale)?;
    let server = |storage| postgres.started_copy(&filled, storage);
    let (over, under) = (server(Storage::Mount(POOL_MIB))?, server(under)?);
    let rate = |server: &Server| {
        let mut pgbench = by_postgres("pgbench", server.socket.path());
        pgbench.args(["--no-vacuum", "--client", &clients.to_string(), "--jobs", "2"]);
        pgbench.args(["--transactions", &(transactions / clients).max(1).to_string(), "--host"]);
        parse_transactions(&said(pgbench.arg(server.socket.path()).arg(POSTGRES))?)
    };
    let pairs = Pairs::try_alternate(effort.pairs, || rate(&over), || rate(&under))?;
    Ok(Outcome::ratio(&pairs, "transactions/s"))
}

/// The folder with PostgreSQL's programs, which Debian's packages put where no path leads.
pub(crate) struct Postgres(PathBuf);

impl Postgres {
    /// What is said where there are none.
    pub(crate) fn missing() -> Outcome {
        Outcome::missing("postgres", "apt-get install postgresql")
    }

    /// The newest ones.
    pub(crate) fn find() -> Option<Postgres> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let folders = versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("postgres").exists());
        folders.max().map(Postgres)
    }

    /// An empty cluster in memory, which no server serves.
    pub(crate) fn cluster(&self) -> anyhow::Result<Testbed> {
        let testbed = Testbed::new(Storage::Memory)?;
        give_to_postgres(&testbed.root())?;
        let mut initdb = by_postgres(self.0.join("initdb"), &testbed.root());
        initdb.args(["--auth=trust", "--no-sync", "--wal-segsize=4", "-U", POSTGRES, "-D"]);
        said(initdb.arg(testbed.root().join("data")))?;
        Ok(testbed)
    }

    /// Such a cluster with the tables of pgbench.
    fn filled_cluster(&self, scale: u32) -> anyhow::Result<Testbed> {
        let server = self.serve(self.cluster()?)?;
        let mut filled = by_postgres("pgbench", server.socket.path());
        filled.args(["--initialize", "--quiet", "--scale", &scale.to_string(), "--host"]);
        said(filled.arg(server.socket.path()).arg(POSTGRES))?;
        Ok(server.testbed)
    }

    fn serve(&self, testbed: Testbed) -> anyhow::Result<Server> {
        let socket = SocketFolder::new()?;
        give_to_postgres(socket.path())?;
        let mut server = by_postgres(self.0.join("postgres"), socket.path());
        server.args(["-c", "listen_addresses=", "-D"]).arg(testbed.root().join("data")).arg("-k").arg(socket.path());
        let mut asked = by_postgres(self.0.join("pg_isready"), socket.path());
        asked.arg("--quiet").arg("--host").arg(socket.path());
        Server::start(server, (testbed, socket), asked)
    }

    /// A server of a copy of the cluster.
    pub(crate) fn started_copy(&self, cluster: &Testbed, storage: Storage) -> anyhow::Result<Server> {
        let testbed = Testbed::new(storage)?;
        said(Command::new("cp").arg("-a").arg(cluster.root().join("data")).arg(testbed.root()))?;
        self.serve(testbed)
    }

    /// A shell that prints values alone.
    pub(crate) fn shell(server: &Server) -> Command {
        let mut shell = by_postgres("psql", server.socket.path());
        shell.args(["-qAtX", "--host"]).arg(server.socket.path()).arg(POSTGRES);
        shell
    }
}

/// A program by PostgreSQL's user, if this is root's process.
fn by_postgres(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        let mut by = Command::new("setpriv");
        by.args([&format!("--reuid={POSTGRES}"), &format!("--regid={POSTGRES}"), "--clear-groups"]).arg(program);
        by
    } else {
        Command::new(program)
    };
    command.current_dir(folder);
    command
}

/// Gives a folder to PostgreSQL's user.
fn give_to_postgres(folder: &Path) -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        said(Command::new("chown").arg(format!("{POSTGRES}:")).arg(folder))?;
    }
    Ok(())
}

/// The line about transactions per second.
fn parse_transactions(said: &str) -> anyhow::Result<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("tps = ")).context("pgbench said no rate")?;
    Ok(line.split(' ').next().unwrap_or_default().parse()?)
}

/// Rows per second that 2 clients of MariaDB commit one by one, in the mount over those in `under`.
pub(super) fn mariadb(effort: Effort, under: Storage) -> anyhow::Result<Outcome> {
    if let Some(missing) = missing(&["mariadbd", "mariadb", "mariadb-slap"]) {
        return Ok(missing);
    }
    let server = |storage| {
        let server = MariaDb::start(storage)?;
        said(mariadb_client("mariadb", server.socket.path()).args(["--execute", TABLE]))?;
        anyhow::Ok(server)
    };
    let (over, under) = (server(Storage::Mount(POOL_MIB))?, server(under)?);
    let rows = effort.steps.min(TRANSACTIONS_MAX);
    let rate = |server: &Server| {
        let mut load = mariadb_client("mariadb-slap", server.socket.path());
        load.args(["--create-schema=bench", "--no-drop", "--concurrency=2"]);
        load.arg(format!("--number-of-queries={rows}")).args(["--delimiter=;", "--query", INSERT]);
        Ok(f64::from(rows) / parse_seconds(&said(&mut load)?)?)
    };
    let pairs = Pairs::try_alternate::<anyhow::Error>(effort.pairs, || rate(&over), || rate(&under))?;
    Ok(Outcome::ratio(&pairs, "rows/s"))
}

const INSERT: &str = "insert into entries(text) values('a row, and some text behind its number')";
const TABLE: &str = "
    create table bench.entries(number bigint auto_increment primary key, text varchar(100)) engine=innodb;";

/// MariaDB's server. Its folder has nothing but the tables of the storage engine: its users are
/// not asked who they are.
pub(crate) struct MariaDb;

impl MariaDb {
    /// Starts one with an empty database.
    pub(crate) fn start(storage: Storage) -> anyhow::Result<Server> {
        let (testbed, socket) = (Testbed::new(storage)?, SocketFolder::new()?);
        let mut server = testbed.command("mariadbd");
        server.args(["--no-defaults", "--skip-networking", "--skip-grant-tables", "--user=root"]);
        server.args(["--innodb-log-file-size=32M", "--innodb-buffer-pool-size=64M"]);
        server.arg("--innodb-flush-log-at-trx-commit=1");
        let option = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
        server.arg(option("datadir", testbed.root())).arg(option("pid-file", socket.path().join("pid")));
        server.arg(option("socket", socket.path().join("socket")));
        let mut asked = mariadb_client("mariadb", socket.path());
        asked.args(["--execute", "select 1"]);
        let server = Server::start(server, (testbed, socket), asked)?;
        said(mariadb_client("mariadb", server.socket.path()).args(["--execute", "create database bench"]))?;
        Ok(server)
    }

    /// A shell that prints values alone, at once, and goes on after an error.
    pub(crate) fn shell(server: &Server) -> Command {
        let mut shell = mariadb_client("mariadb", server.socket.path());
        shell.args(["--batch", "--skip-column-names", "--unbuffered", "--force", "--database=bench"]);
        shell
    }
}

fn mariadb_client(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--no-defaults").arg(format!("--socket={}", folder.join("socket").display()));
    command
}

/// The line about the mean seconds of all queries.
fn parse_seconds(said: &str) -> anyhow::Result<f64> {
    let after =
        |line: &str| Some(line.trim().strip_prefix("Average number of seconds to run all queries: ")?.to_owned());
    let line = said.lines().find_map(after).context("mariadb-slap said no time")?;
    let mean = line.split(' ').next().unwrap_or_default();
    let seconds: f64 = mean.parse()?;
    anyhow::ensure!(seconds > 0.0, "mariadb-slap took no time");
    Ok(seconds)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_are_read() {
        let said = "number of clients: 2\ntps = 1234.5 (without initial connection time)";
        assert_eq!(parse_transactions(said).unwrap(), 1234.5);
        assert!(parse_transactions("number of clients: 2").is_err());
        assert_eq!(
            parse_seconds("Benchmark\n\tAverage number of seconds to run all queries: 0.125 seconds").unwrap(),
            0.125
        );
        assert!(parse_seconds("Average number of seconds to run all queries: 0.000 seconds").is_err());
        assert!(parse_seconds("").is_err());
    }
}
