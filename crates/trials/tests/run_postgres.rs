//! PostgreSQL under `tidegate run`, on a file system of its own. The server, its processes and the
//! service of the mount are killed at any instant, and the file system is what its disk had got by
//! then: nothing that only the kernel had. After recovery every transaction is there that a client
//! was told of, whole, and nothing is damaged. `TIDEGATE_CUTS` gives more power losses than CI
//! runs, `TIDEGATE_SEED` the first one's seed.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use tidegate_trials::artefacts::MissingError;
use tidegate_trials::postgres::{Cluster, PostgresTestbed, Server};
use tidegate_trials::sectors::Dice;
use tidegate_trials::served::until;

/// Power losses that CI runs.
const CUTS: u64 = 2;
/// Clients that commit.
const CLIENTS: u32 = 3;

/// The numbers that the clients were told, the last of each. Ends when the server was killed and
/// all is read.
fn numbers_until_killed(server: Server<'_>, transactions: u32) -> Vec<u32> {
    let mut clients: Vec<Child> = (1..=CLIENTS).map(|client| server.commits(client).unwrap()).collect();
    let mut brings = server.brings().unwrap();
    let all = AtomicU32::new(0);
    let told = std::thread::scope(|scope| {
        let read = |client: &mut Child| {
            let lines = BufReader::new(client.stdout.take().unwrap()).lines();
            let all = &all;
            scope.spawn(move || {
                lines
                    .map(|line| line.unwrap().parse().unwrap())
                    .inspect(|_| _ = all.fetch_add(1, Ordering::Relaxed))
                    .last()
                    .unwrap_or(0)
            })
        };
        let readers: Vec<_> = clients.iter_mut().map(read).collect();
        until("transactions", || all.load(Ordering::Relaxed) >= transactions);
        server.kill();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    // Nobody answers them any more.
    clients.iter_mut().chain([&mut brings]).for_each(|client| _ = client.wait().unwrap());
    told
}

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
    let told = numbers_until_killed(server, 50 + u32::try_from(dice.below(700)).unwrap());
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
