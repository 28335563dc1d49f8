//! PostgreSQL and MariaDB that write no page twice, in a mount, and the power fails while they
//! work: the service is gone, the database, all that is in DRAM, and what SOURCE was not told to
//! keep; of pages that were not synced SOURCE has parts. After recovery every transaction is there
//! that a client was told of, and every page is whole. `TIDEGATE_CUTS` gives more power losses than
//! CI runs, `TIDEGATE_SEED` the first one's seed.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use tidegate_trials::artefacts::MissingError;
use tidegate_trials::databases::{Database, DatabaseKind, numbers_until_killed};
use tidegate_trials::mounted::MountTestbed;
use tidegate_trials::sectors::Dice;

/// Power losses that CI runs of each database.
const CUTS: u64 = 2;

/// Clients that commit.
const CLIENTS: u32 = 2;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a number"))
}

/// Recovers, and compares everything: what was told is there, tables and indexes agree, and so do
/// the checksums of all pages.
fn check(database: &Database, told: &[u32]) -> Result<Vec<u32>, MissingError> {
    let server = database.start()?;
    let found: Vec<u32> =
        server.ask("select n from last order by client")?.lines().map(|n| n.parse().unwrap()).collect();
    let torn = "select last.client from last left join entries on last.client = entries.client group by last.client, last.n having count(entries.n) <> last.n";
    assert_eq!(server.ask(torn)?, "");
    assert!(found.iter().zip(told).all(|(found, told)| found >= told), "{found:?} found, {told:?} told");
    server.verify()?;
    server.stop();
    database.verify_pages()?;
    Ok(found)
}

/// A database in a mount that loses its power again and again.
fn survives(kind: DatabaseKind) {
    let first = number("TIDEGATE_SEED").unwrap_or(1);
    let mut testbed = MountTestbed::on_own_disk();
    let database = Database::make(kind, &testbed.mountpoint(), CLIENTS).unwrap();
    for seed in first..first + number("TIDEGATE_CUTS").unwrap_or(CUTS) {
        let server = database.start().unwrap();
        server.ask("delete from entries; update last set n = 0").unwrap();
        let transactions = 200 + u32::try_from(Dice::new(seed).below(1500)).unwrap();
        let clients = (1..=CLIENTS).map(|client| server.commits(client).unwrap()).collect();
        let brings = server.brings().unwrap();
        let told = numbers_until_killed(clients, brings, transactions, || {
            testbed.kill_and_leave();
            server.kill();
        });
        testbed.lose_power_and_tear(seed);
        testbed.mount_again();
        let found = check(&database, &told).unwrap_or_else(|error| panic!("{kind:?}, seed {seed}: {error}"));
        println!("{kind:?}, seed {seed}: {told:?} were told, {found:?} were found, every page is whole");
    }
}

#[test]
fn postgresql_without_full_page_writes_survives_power_losses() {
    survives(DatabaseKind::PostgreSql);
}

#[test]
fn mariadb_without_doublewrite_survives_power_losses() {
    survives(DatabaseKind::MariaDb);
}
