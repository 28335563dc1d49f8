//! Twenty users of TPC-C over a database, each a shell of its own.

use super::tpc_c::{INCONSISTENCIES, ORDERS, Size, TABLES, User, rows};
use crate::files::testbed::{Storage, Talker, Testbed, missing};
use crate::mount::databases::{MariaDb, Postgres, Server};
use crate::target::Outcome;
use anyhow::Context;
use std::process::Command;
use std::thread::scope;
use std::time::Instant;
use tidegate_measure::Pairs;
use tidegate_measure::programs::built;
use tidegate_measure::workload::Effort;

/// Users at a time.
const USERS: u32 = 20;

/// Most transactions in a sample.
const TRANSACTIONS_MAX: u32 = 4000;

/// What every transaction ends with, so that its user knows.
const DONE: &str = "done";

/// A database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Database {
    /// SQLite with a write-ahead log, `synchronous=FULL`: all users are processes of their own.
    Sqlite,
    /// SQLite with a rollback journal, `synchronous=FULL`; in a mount with the VFS `tidegate`,
    /// which writes none.
    SqliteGroups,
    Postgres,
    MariaDb,
}

impl Database {
    /// What is missing to measure it.
    fn missing(self) -> Option<Outcome> {
        match self {
            Database::Sqlite | Database::SqliteGroups => missing(&["sqlite3"]),
            Database::Postgres => missing(&["psql"]).or_else(|| Postgres::find().is_none().then(Postgres::missing)),
            Database::MariaDb => missing(&["mariadbd", "mariadb"]),
        }
    }

    /// A transaction that is carried out as a whole, or not at all.
    fn whole(self, statements: &str) -> String {
        match self {
            Database::Sqlite | Database::SqliteGroups => {
                format!("begin immediate;\n{statements}commit;\nselect '{DONE}';\n")
            }
            Database::Postgres => format!("begin;\n{statements}commit;\nselect '{DONE}';\n"),
            // One statement: what follows a deadlock within it is not carried out by itself.
            Database::MariaDb => format!(
                "delimiter //\nbegin not atomic start transaction;\n{statements}commit;\nend//\ndelimiter ;\nselect '{DONE}';\n"
            ),
        }
    }
}

/// A database with tables, somewhere.
struct Filled {
    database: Database,
    place: Place,
    users: Vec<User>,
}

/// Where it is.
enum Place {
    /// Files of the shells themselves.
    Shells(Testbed),
    Served(Server),
}

impl Filled {
    fn new(database: Database, storage: Storage, size: Size) -> anyhow::Result<Filled> {
        let place = match database {
            Database::Sqlite | Database::SqliteGroups => Place::Shells(Testbed::new(storage)?),
            Database::Postgres => {
                let postgres = Postgres::find().context("no postgres")?;
                Place::Served(postgres.started_copy(&postgres.cluster()?, storage)?)
            }
            Database::MariaDb => Place::Served(MariaDb::start(storage)?),
        };
        let users = (0..USERS).map(|number| User::new(size, number.into())).collect();
        let filled = Filled { database, place, users };
        let mut shell = filled.shell()?;
        shell.ask_until(&filled.database.preparation(), DONE)?;
        shell.ask_until(&format!("{TABLES}begin;\n{}commit;\nselect '{DONE}';\n", rows(size)), DONE)?;
        if database == Database::SqliteGroups && filled.testbed().mount().is_some() {
            let told = shell.ask("pragma tidegate_status;\n")?;
            anyhow::ensure!(told.starts_with("on:"), "the VFS says {told}");
        }
        Ok(filled)
    }

    fn testbed(&self) -> &Testbed {
        match &self.place {
            Place::Shells(testbed) => testbed,
            Place::Served(server) => server.testbed(),
        }
    }

    /// A shell that answers a line with the lines of its results.
    fn shell(&self) -> anyhow::Result<Talker> {
        let mut command: Command = match (&self.place, self.database) {
            (Place::Shells(testbed), database) => {
                let mut shell = testbed.command("sqlite3");
                shell.args(["-batch", ":memory:"]);
                if database == Database::SqliteGroups && testbed.mount().is_some() {
                    let library = built(&["--package", "tidegate-sqlite-vfs"], "libtidegate_sqlite.so")?;
                    shell.arg("-cmd").arg(format!(".load {}", library.display()));
                    shell.args(["-cmd", ".open file:data.db?vfs=tidegate"]);
                } else {
                    shell.args(["-cmd", ".open data.db"]);
                }
                shell.args(["-cmd", ".timeout 60000", "-cmd", "pragma synchronous=full;"]);
                shell
            }
            (Place::Served(server), Database::Postgres) => Postgres::shell(server),
            (Place::Served(server), _) => MariaDb::shell(server),
        };
        Talker::start(&mut command)
    }

    /// A number that a query tells.
    fn number(&self, query: &str) -> anyhow::Result<u64> {
        let answer = self.shell()?.ask(&format!("{query}\nselect 'no number';\n"))?;
        answer.parse().with_context(|| format!("{query} answered {answer}"))
    }

    /// Has all users make so many transactions together. New orders per second.
    fn rate(&mut self, transactions: u32) -> anyhow::Result<f64> {
        let mut shells = (0..USERS).map(|_| self.shell()).collect::<anyhow::Result<Vec<_>>>()?;
        let (database, each, before) = (self.database, (transactions / USERS).max(1), self.number(ORDERS)?);
        let began = Instant::now();
        scope(|scope| {
            let work = |(user, shell): (&mut User, &mut Talker)| {
                (0..each).try_for_each(|_| shell.ask_until(&database.whole(&user.transaction()), DONE))
            };
            let pairs = self.users.iter_mut().zip(&mut shells);
            let running: Vec<_> = pairs.map(|pair| scope.spawn(move || work(pair))).collect();
            running.into_iter().try_for_each(|user| user.join().expect("a user does not panic"))
        })?;
        let seconds = began.elapsed().as_secs_f64();
        anyhow::ensure!(self.number(INCONSISTENCIES)? == 0, "{database:?} has transactions that were done in part");
        Ok((self.number(ORDERS)? - before) as f64 / seconds)
    }

    /// Blocks of 4 KiB that the disk writes for a new order, with all that follows later.
    fn blocks(&mut self, transactions: u32) -> anyhow::Result<f64> {
        let settle = |filled: &Filled| match filled.testbed().mount() {
            Some(mount) => mount.flush(),
            None => Ok(rustix::fs::syncfs(std::fs::File::open(filled.testbed().root())?)?),
        };
        settle(self)?;
        let (orders, written) = (self.number(ORDERS)?, self.written()?);
        self.rate(transactions)?;
        settle(self)?;
        let made = self.number(ORDERS)? - orders;
        anyhow::ensure!(made > 0, "no order was made");
        Ok((self.written()? - written) as f64 / made as f64)
    }

    fn written(&self) -> anyhow::Result<u64> {
        self.testbed().disk().context("files on no disk")?.blocks_written()
    }
}

impl Database {
    fn preparation(self) -> String {
        let words = match self {
            Database::Sqlite => "pragma journal_mode=wal;\n",
            Database::SqliteGroups | Database::Postgres | Database::MariaDb => "",
        };
        format!("{words}select '{DONE}';\n")
    }
}

/// New orders per second in the mount over those in `under`.
pub(super) fn rates(effort: Effort, database: Database, under: Storage) -> anyhow::Result<Outcome> {
    rates_of(effort, database, [super::MOUNT, under])
}

/// New orders per second in the first storage over those in the second.
pub(super) fn rates_of(effort: Effort, database: Database, storages: [Storage; 2]) -> anyhow::Result<Outcome> {
    let compared = |over: &mut Filled, under: &mut Filled, transactions| {
        let pairs = Pairs::try_alternate(effort.pairs, || over.rate(transactions), || under.rate(transactions))?;
        Ok(Outcome::ratio(&pairs, "new orders/s"))
    };
    compare(effort, database, storages, compared)
}

/// Blocks that the disk writes for a new order in the mount, over those on the disk's own file
/// system.
pub(super) fn blocks(effort: Effort, database: Database) -> anyhow::Result<Outcome> {
    let compared = |over: &mut Filled, under: &mut Filled, transactions| {
        let pairs = Pairs::try_alternate(effort.pairs, || over.blocks(transactions), || under.blocks(transactions))?;
        Ok(Outcome::ratio(&pairs, "blocks"))
    };
    compare(effort, database, [super::MOUNT, Storage::Disk], compared)
}

fn compare(
    effort: Effort,
    database: Database,
    [over, under]: [Storage; 2],
    compared: impl Fn(&mut Filled, &mut Filled, u32) -> anyhow::Result<Outcome>,
) -> anyhow::Result<Outcome> {
    if let Some(missing) = database.missing() {
        return Ok(missing);
    }
    let transactions = effort.steps.min(TRANSACTIONS_MAX);
    let size = Size::for_transactions(transactions);
    let mut over = Filled::new(database, over, size)?;
    let mut under = Filled::new(database, under, size)?;
    compared(&mut over, &mut under, transactions)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn users_of_sqlite_leave_consistent_tables_and_parts_are_noticed() {
        let size = Size::for_transactions(100);
        let mut filled = Filled::new(Database::Sqlite, Storage::Memory, size).unwrap();
        assert_eq!(filled.number(INCONSISTENCIES).unwrap(), 0);
        assert_eq!(filled.number(ORDERS).unwrap(), 100);
        assert!(filled.rate(200).unwrap() > 0.0);
        assert!(filled.number(ORDERS).unwrap() > 130);
        let mut shell = filled.shell().unwrap();
        shell
            .ask_until("update district set d_next_o_id = d_next_o_id + 1 where d_id = 3;\nselect 'done';\n", DONE)
            .unwrap();
        assert_eq!(filled.number(INCONSISTENCIES).unwrap(), size.warehouses);
    }
}
