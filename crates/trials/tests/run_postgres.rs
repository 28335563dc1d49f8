//! PostgreSQL under `tidegate run`, on a file system of its own. The server, its processes and the
//! service of the mount are killed at any instant, and the file system is what its disk had got by
//! then: nothing that only the kernel had. After recovery every transaction is there that a client
//! was told of, whole, and nothing is damaged. `TIDEGATE_CUTS` gives more power losses than CI
//! runs, `TIDEGATE_SEED` the first one's seed.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::Path;
use tidegate_trials::artefacts::MissingError;
use tidegate_trials::databases::numbers_until_killed;
use tidegate_trials::postgres::{Cluster, PostgresTestbed};
use tidegate_trials::sectors::Dice;

/// Power losses that CI runs.
const CUTS: u64 = 2;
/// Clients that commit.
const CLIENTS: u32 = 3;

/// The numbers that a server finds in the database, if it starts; and nothing of a transaction is
/// there without the rest of it.
fn numbers_found(cluster: &Cluster<'_>) -> Result<Vec<u32>, MissingError> {
    let server = cluster.start()?;
    let found = server.ask("select n from last order by client")?;
    let torn = "select last.client, last.n, count(*) from last left join lines using (client) group by 1, 2 having count(lines.n) <> last.n or max(lines.n) <> last.n";
    assert_eq!(server.ask(torn)?, "");
    server.verify()?;
    server.stop();
    Ok(found.lines().map(|number| number.parse().unwrap()).collect())
}

/// One life and its power loss; how many transactions recovery brought back.
fn cut(template: &Path, seed: u64) -> u32 {
    let mut dice = Dice::new(seed);
    let testbed = PostgresTestbed::new(Some(template)).unwrap();
    let cluster = Cluster::new(&testbed).unwrap();
    let server = cluster.start_under_run().unwrap();
    let clients = (1..=CLIENTS).map(|client| server.commits(client).unwrap()).collect();
    let brings = server.brings().unwrap();
    let transactions = 50 + u32::try_from(dice.below(700)).unwrap();
    let told = numbers_until_killed(clients, brings, transactions, || server.kill());
    testbed.lose_power().unwrap();
    // What only the disk has: a server may not even start.
    let disk = {
        let testbed = PostgresTestbed::new(Some(&testbed.image())).unwrap();
        numbers_found(&Cluster::new(&testbed).unwrap()).map_or(0, |numbers| numbers.iter().sum())
    };
    cluster.recover().unwrap();
    let found = numbers_found(&cluster).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    println!("seed {seed}: {told:?} were told, {found:?} were found, {disk} on the disk alone");
    assert!(found.iter().zip(&told).all(|(found, told)| found >= told), "seed {seed}: {found:?}, told {told:?}");
    told.iter().sum::<u32>().saturating_sub(disk)
}

#[test]
fn what_a_client_of_postgres_was_told_is_there_after_a_power_loss() {
    let number = |name: &str| std::env::var(name).ok().map(|number| number.parse::<u64>().expect("a number"));
    let first = number("TIDEGATE_SEED").unwrap_or(1);
    let cuts = number("TIDEGATE_CUTS").unwrap_or(CUTS);
    let template = PostgresTestbed::new(None).unwrap();
    Cluster::new(&template).unwrap().fill(CLIENTS).unwrap();
    template.unmount();
    let brought_back: u32 = (first..first + cuts).map(|seed| cut(&template.image(), seed)).sum();
    assert!(brought_back > 0, "no power loss took anything: nothing was recovered");
}
