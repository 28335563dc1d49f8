//! Debian's SQLite with the VFS `tidegate` on a mount: transactions are whole and no journal lies
//! there, whoever is killed, also when the power fails, and beside programs without the VFS.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tidegate_trials::artefacts::{built, run};
use tidegate_trials::mounted::MountTestbed;

/// The extension, which is built if it is not there.
fn extension() -> PathBuf {
    let folder = built(&["--package", "tidegate-sqlite-vfs"]).unwrap_or_else(|missing| panic!("{missing}"));
    folder.join("libtidegate_sqlite.so")
}

/// SQLite's shell, which says a line as soon as it has it. It opens `database` by the VFS, and then
/// does what `script` says.
fn with_vfs(testbed: &MountTestbed, database: &Path, script: &str) -> Command {
    let open = format!(".load {}\n.open file:{}?vfs=tidegate\n", extension().display(), database.display());
    let name = database.file_name().unwrap().to_str().unwrap();
    let path = testbed.beside().join(format!("{name}.script"));
    fs::write(&path, format!("{open}.timeout 60000\n{script}\n")).unwrap();
    let mut shell = Command::new("stdbuf");
    shell.args(["-oL", "sqlite3", "-batch", "-bail"]).stdin(File::open(path).unwrap());
    shell
}

/// What a command says that ends well.
fn said(command: &mut Command) -> String {
    run(command, "sqlite3").unwrap_or_else(|failure| panic!("{failure}"))
}

/// What a script answers without the VFS.
fn plain(database: &Path, script: &str) -> String {
    let said = said(Command::new("sqlite3").args(["-cmd", ".timeout 60000"]).arg(database).arg(script));
    said.trim().to_owned()
}

fn is_sound(database: &Path, what: &str) {
    assert_eq!(plain(database, "pragma integrity_check"), "ok", "{what}");
}

/// `database` with this ending.
fn beside(database: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}{ending}", database.display()))
}

const TABLE: &str = "create table if not exists t(n integer primary key, v text);";

#[test]
fn every_journal_mode_commits_and_rolls_back() {
    let testbed = MountTestbed::new();
    for mode in ["delete", "truncate", "persist"] {
        let database = testbed.mountpoint().join(format!("{mode}.db"));
        let script = format!(
            "pragma journal_mode={mode}; pragma cache_size=10; {TABLE}
             insert into t(v) values('one');
             begin; insert into t(v) select hex(randomblob(500)) from generate_series(1, 2000); rollback;
             begin; insert into t(v) select hex(randomblob(500)) from generate_series(1, 2000); commit;
             begin; insert into t(v) values('two'); savepoint s; delete from t; rollback to s; commit;
             select count(*) from t;
             pragma tidegate_status;"
        );
        let answer = said(&mut with_vfs(&testbed, &database, &script));
        let lines: Vec<_> = answer.lines().collect();
        assert_eq!(lines[..2], [mode, "2002"], "{answer}");
        assert!(lines[2].starts_with("on: ") && lines[2].ends_with(" groups, 0 journals"), "{answer}");
        assert_eq!(plain(&database, "select count(*) from t"), "2002");
        is_sound(&database, mode);
        assert!(!beside(&database, "-journal").exists(), "{mode}");
    }
    assert!(testbed.end().is_written_back());
}

#[test]
fn a_page_of_a_transaction_takes_one_request() {
    const TRANSACTIONS: u64 = 100;
    let testbed = MountTestbed::new();
    let database = testbed.mountpoint().join("counted.db");
    let filled = format!(
        "{TABLE} insert into t(v) select hex(randomblob(1500)) from generate_series(1, 20); pragma tidegate_status;"
    );
    let answer = said(&mut with_vfs(&testbed, &database, &filled));
    assert!(answer.starts_with("on: "), "{answer}");
    // Of twenty leaves of the tree every other one, and the first page.
    let change = "update t set v = hex(randomblob(1500)) where n % 2 = 0;\n".repeat(TRANSACTIONS.try_into().unwrap());
    let before = testbed.requests();
    said(&mut with_vfs(&testbed, &database, &change));
    let each = (testbed.requests() - before) / TRANSACTIONS;
    assert!((11..=20).contains(&each), "{each} requests");
    assert!(testbed.end().is_written_back());
}

#[test]
fn a_database_outside_of_a_mount_is_as_without_the_vfs() {
    let testbed = MountTestbed::new();
    let database = testbed.beside().join("outside.db");
    let script = format!("{TABLE} insert into t(v) values('one'); select count(*) from t; pragma tidegate_status;");
    let answer = said(&mut with_vfs(&testbed, &database, &script));
    assert!(answer.starts_with("1\noff: "), "{answer}");
    is_sound(&database, "outside");
}

#[test]
fn a_transaction_of_more_than_memory_takes_commits_by_a_journal() {
    let testbed = MountTestbed::new();
    let database = testbed.mountpoint().join("large.db");
    // Pages that lie side by side are one run of bytes.
    let script = format!(
        "pragma journal_mode=delete; pragma cache_size=10; {TABLE}
         begin; insert into t(v) select hex(randomblob(4000)) from generate_series(1, 8000); commit;
         begin; update t set v = upper(v) || '.'; commit;
         select count(*), sum(length(v)) from t;"
    );
    let said = said(&mut with_vfs(&testbed, &database, &script));
    assert_eq!(said.lines().last(), Some("8000|64008000"), "{said}");
    is_sound(&database, "after two large transactions");
    assert!(testbed.end().is_written_back());
}

#[test]
fn several_databases_change_together_by_journals() {
    let testbed = MountTestbed::new();
    let [first, second] = ["first.db", "second.db"].map(|name| testbed.mountpoint().join(name));
    let script = format!(
        "{TABLE} attach 'file:{}?vfs=tidegate' as other; create table other.t(n integer primary key, v text);
         begin; insert into main.t(v) values('a'); insert into other.t(v) values('b'); commit;
         begin; insert into main.t(v) values('c'); insert into other.t(v) values('d'); rollback;",
        second.display()
    );
    said(&mut with_vfs(&testbed, &first, &script));
    assert_eq!((plain(&first, "select v from t"), plain(&second, "select v from t")), ("a".into(), "b".into()));
    for database in [&first, &second] {
        is_sound(database, "attached");
        assert!(!beside(database, "-journal").exists());
    }
}

/// Processes with and without the VFS count in one database, each so often.
#[test]
fn processes_with_and_without_the_vfs_change_one_database() {
    const EACH: usize = 150;
    let testbed = MountTestbed::new();
    let database = testbed.mountpoint().join("shared.db");
    plain(&database, "create table c(n); insert into c values(0)");
    let script = "update c set n = n + 1;\n".repeat(EACH);
    let path = testbed.beside().join("plain.script");
    fs::write(&path, format!(".timeout 60000\n{script}")).unwrap();
    let mut without = Command::new("sqlite3");
    without.args(["-batch", "-bail"]).arg(&database).stdin(File::open(&path).unwrap());
    let mut children: Vec<Child> =
        [with_vfs(&testbed, &database, &script), without].iter_mut().map(|command| command.spawn().unwrap()).collect();
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!(plain(&database, "select n from c"), (2 * EACH).to_string());
    is_sound(&database, "shared");
}

/// A journal that a killed program without the VFS left is rolled back by one with it.
#[test]
fn a_hot_journal_of_before_is_rolled_back() {
    let testbed = MountTestbed::new();
    let database = testbed.mountpoint().join("hot.db");
    let mut rows = format!("{TABLE} insert into t(v) select 'before' from generate_series(1, 3000);");
    plain(&database, &rows);
    rows = "pragma cache_size=5; begin; update t set v = hex(randomblob(200)); select 'spilt';".to_owned();
    let mut shell = Command::new("stdbuf");
    shell.args(["-oL", "sqlite3", "-batch"]).arg(&database).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut killed = shell.spawn().unwrap();
    std::io::Write::write_all(killed.stdin.as_mut().unwrap(), format!("{rows}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(killed.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(beside(&database, "-journal").exists(), "nothing was spilt");
    let script = "select count(*) from t where v = 'before'; insert into t(v) values('after'); pragma tidegate_status;";
    let answer = said(&mut with_vfs(&testbed, &database, script));
    assert!(answer.starts_with("3000\non: "), "{answer}");
    assert!(!beside(&database, "-journal").exists());
    is_sound(&database, "hot");
}

/// Who is killed amid transactions.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Client,
    ServerAndClient,
    Service,
    Power,
}

const VICTIMS: [Victim; 4] = [Victim::Client, Victim::ServerAndClient, Victim::Service, Victim::Power];

#[test]
fn what_was_committed_is_there_as_a_whole_whoever_is_killed() {
    let rounds = std::env::var("TIDEGATE_KILLS").map_or(8, |rounds| rounds.parse().expect("a number of rounds"));
    let mut testbed = MountTestbed::on_own_disk();
    let database = testbed.mountpoint().join("killed.db");
    plain(&database, &format!("{TABLE} create table sums(n integer primary key, rows integer);"));
    let mut last = 0;
    for round in 0..rounds {
        // A transaction writes so many rows, and their number in another table.
        let transaction = |number: u64| {
            let rows = 1 + number * 7 % 40;
            format!(
                "begin; insert into t(v) select '{number}' from generate_series(1, {rows}); \
                 insert into sums values({number}, {rows}); commit; select {number};\n"
            )
        };
        let script: String = (last + 1..last + 100_000).map(transaction).take(20_000).collect();
        let mut shell = with_vfs(&testbed, &database, &script);
        let mut child = shell.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        for _ in 0..20 + round * 13 % 60 {
            line.clear();
            output.read_line(&mut line).unwrap();
            last = line.trim().parse().unwrap_or_else(|_| panic!("round {round}: {line:?} after {last}"));
        }
        let victim = VICTIMS[round % VICTIMS.len()];
        match victim {
            Victim::Client => {}
            Victim::ServerAndClient => testbed.kill_server(),
            Victim::Service => testbed.kill(),
            Victim::Power => testbed.lose_power(),
        }
        child.kill().unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        child.wait().unwrap();
        let whole = rest.rsplit_once('\n').map_or("", |(whole, _)| whole);
        last = whole.lines().filter_map(|line| line.parse().ok()).fold(last, u64::max);
        if matches!(victim, Victim::Service | Victim::Power) {
            testbed.mount_again();
        }
        is_sound(&database, &format!("round {round}, {victim:?} killed"));
        let found: u64 = plain(&database, "select max(n) from sums").parse().unwrap();
        assert!((last..=last + 1).contains(&found), "round {round}, {victim:?}: {found} found, {last} committed");
        let torn = "select count(*) from sums where rows <> (select count(*) from t where v = sums.n)";
        assert_eq!(plain(&database, &format!("{torn} and n > {}", last.saturating_sub(50))), "0", "round {round}");
        assert!(!beside(&database, "-journal").exists(), "round {round}");
        last = found;
    }
    assert!(testbed.end().is_written_back());
}
