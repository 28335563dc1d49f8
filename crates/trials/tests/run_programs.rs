//! Unchanged programs under `tidegate run-log`: their own accounts of their files, and that their
//! syncs ended in the pool.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use tidegate_trials::artefacts::run;
use tidegate_trials::run::{
    DELETER, MAPPED, MODES, OUTSIDE, Testbed, UNSEEN, held_files, kept_syncs, kernel_syncs, kill_all,
};
use tidegate_trials::served::{program, until};

/// Fails with the line that installs it if a program is missing.
fn demand(program: &str, package: &'static str) {
    run(Command::new(program).arg("--version"), package).unwrap();
}

/// What a shell script prints in the root of a run of its own, and what `run` says. At most two
/// minutes.
fn said_by(script: &str) -> (String, String) {
    let testbed = Testbed::new();
    let output = testbed.run().args(["timeout", "120", "sh", "-euc", script]).stdin(Stdio::null()).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    (out, err)
}

#[test]
fn sqlite_keeps_its_transactions_in_the_pool() {
    demand("sqlite3", "sqlite3");
    let script = r#"
        {
            echo "pragma journal_mode=MODE; pragma synchronous=full; create table t(a integer primary key, b);"
            for row in $(seq 50); do echo "insert into t(b) values('MODE $row');"; done
        } | sqlite3 data.db > mode
        sqlite3 data.db 'pragma integrity_check; select count(*) from t;'
    "#;
    // A transaction syncs the log; or the journal, its header, the database and the header again,
    // or their folder. A journal that is cut each time is the kernel's.
    for (mode, least) in [("wal", 40), ("delete", 150), ("truncate", 40), ("persist", 150)] {
        let (out, err) = said_by(&script.replace("MODE", mode));
        assert_eq!(out, "ok\n50\n", "{mode}");
        assert!(kept_syncs(&err) >= least, "{mode}: {err}");
    }
}

#[test]
fn a_pool_says_what_it_is_and_what_it_promises() {
    let testbed = Testbed::new();
    assert!(testbed.run().arg("true").status().unwrap().success());
    let output = testbed.info().output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in ["pool of files under run 5", "after sync, with O_SYNC", "kill -9 of the supervisor"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("whole"), "nothing is said of volumes: {said}");
    let output = testbed.info().arg("--json").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(r#""format":"run-pool""#), "{said}");
}

#[test]
fn programs_that_start_each_other_find_each_others_files() {
    demand("git", "git");
    demand("make", "make");
    let script = r#"
        git init --quiet --initial-branch main work
        cd work
        git config user.email nobody@example.invalid
        git config user.name nobody
        git config core.fsync all
        for file in 1 2 3 4 5; do
            echo "$file" > "file$file"
            git add .
            git commit --quiet --message "$file"
        done
        git gc --quiet
        git fsck --full 2> /dev/null
        git log --oneline | wc -l
        tar cf ../work.tar . && tar df ../work.tar
        printf 'all: a b c d\na b c d:\n\t@seq 1000 | sort -n | tail -n 1 > out.$@; sync out.$@\n' > Makefile
        make --silent --jobs 4
        cat out.a out.b out.c out.d | sort | uniq --count | tr -s ' '
    "#;
    assert_eq!(said_by(script).0, "5\n 4 1000\n");
}

#[test]
fn redis_finds_every_command_that_it_answered_after_it_was_killed() {
    demand("redis-server", "redis-server");
    demand("redis-benchmark", "redis-tools");
    let script = r#"
        start() {
            redis-server --port 0 --unixsocket "$PWD/socket" --dir "$PWD" --appendonly yes --appendfsync always --save '' \
                --logfile log &
            server=$!
            until redis-cli -s "$PWD/socket" ping 2> /dev/null | grep -q PONG; do kill -0 $server; done
        }
        start
        redis-benchmark -s "$PWD/socket" -t set -n 2000 -c 1 --csv > /dev/null
        redis-cli -s "$PWD/socket" bgrewriteaof > /dev/null
        for key in $(seq 100); do echo "set key$key $key"; done | redis-cli -s "$PWD/socket" > /dev/null
        redis-cli -s "$PWD/socket" dbsize
        kill -9 $server
        wait $server || true
        start
        redis-cli -s "$PWD/socket" dbsize
        redis-cli -s "$PWD/socket" shutdown || true
        wait
    "#;
    let (out, err) = said_by(script);
    assert_eq!(out, "101\n101\n");
    assert!(kept_syncs(&err) > 500, "{err}");
}

#[test]
fn the_end_of_a_program_is_told_and_signals_reach_it() {
    let testbed = Testbed::new();
    let code = |words: &[&str]| testbed.run().args(words).stdin(Stdio::null()).output().unwrap().status.code();
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -TERM $PPID; read -r nothing < /dev/zero"]), Some(128 + 15));
    assert_eq!(code(&["/there/is/no/such/program"]), Some(5));
    assert!(!testbed.journal().exists());
}

#[test]
fn what_is_no_pool_is_not_overwritten() {
    let testbed = Testbed::new();
    std::fs::write(testbed.pool(), vec![7; 16 << 20]).unwrap();
    let refused = testbed.run().arg("true").output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(std::fs::read(testbed.pool()).unwrap().iter().all(|byte| *byte == 7));
}

#[test]
fn a_pool_that_is_no_persistent_memory_is_refused_unless_it_is_for_trying() {
    let testbed = Testbed::new();
    let refused = || {
        let refused = testbed.run_in_earnest().arg("true").output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(3), "{said}");
        for word in ["not persistent memory", "power-fail", "--try", "tidegate recover"] {
            assert!(said.contains(word), "{word} is missing: {said}");
        }
    };
    refused();
    assert!(!testbed.pool().exists(), "it leaves no pool that it refuses");
    assert!(testbed.run().arg("true").status().unwrap().success());
    let pool = std::fs::read(testbed.pool()).unwrap();
    refused();
    assert!(std::fs::read(testbed.pool()).unwrap() == pool, "an older pool stays as it is");
    // What such a pool has can be brought back all the same.
    assert!(testbed.recover().status().unwrap().success());
}

#[test]
fn a_run_says_once_that_it_is_experimental() {
    let said = Testbed::new().run().arg("true").output().unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let lines: Vec<_> = said.lines().filter(|line| line.contains("experimental")).collect();
    assert!(lines.len() == 1 && lines[0].contains("WARN") && said.starts_with(lines[0]), "{said}");
    let help = Command::new(program()).args(["run-log", "--help"]).output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains("experimental"));
}

#[test]
fn a_pool_is_no_volume() {
    let testbed = Testbed::new();
    assert!(testbed.run().arg("true").status().unwrap().success());
    for command in ["flush", "scrub", "detach", "serve"] {
        let refused = Command::new(program()).args([command, "--pmem"]).arg(testbed.pool()).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(3), "{command}: {said}");
        assert!(said.contains("a pool of `tidegate run-log`"), "{command}: {said}");
    }
}

#[test]
fn a_pool_that_is_in_use_says_who_can_be_asked() {
    let testbed = Testbed::new();
    let mut run = testbed.run().arg("cat").stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("a run", || testbed.status().output().unwrap().status.success());
    let mut second = testbed.run();
    second.arg("true");
    for mut other in [testbed.recover(), second] {
        let refused = other.output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(4), "{said}");
        assert!(said.contains("tidegate status"), "{said}");
    }
    drop(run.stdin.take());
    assert!(run.wait().unwrap().success());
}

#[test]
fn why_nothing_was_held_is_told() {
    let told = |script: &str| said_by(script).1;
    let streams = told("echo 1 > file; sync file");
    assert!(
        streams.contains("files that were not accelerated: 1 anywhere that were written through streams"),
        "{streams}"
    );
    let nothing = told("true");
    assert!(nothing.contains("no file was accelerated"), "{nothing}");
}

#[test]
fn the_folder_of_a_supervisor_that_was_killed_goes_with_recovery() {
    let testbed = Testbed::new();
    let mut run = testbed.run().arg("cat").stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("a run", || testbed.status().output().unwrap().status.success());
    kill_all(&mut run);
    let folder = folder_of_run(&testbed);
    assert!(folder.is_dir());
    let recovered = testbed.recover().output().unwrap();
    let said = String::from_utf8_lossy(&recovered.stdout).into_owned();
    assert!(recovered.status.success() && said.contains("have everything that was synced to them"), "{said}");
    assert!(!folder.exists());
}

/// The folder that a run's journal names.
fn folder_of_run(testbed: &Testbed) -> PathBuf {
    let journal = std::fs::read_to_string(testbed.journal()).unwrap();
    journal.lines().find_map(|line| line.strip_prefix("folder ")).map(PathBuf::from).expect("the journal names it")
}

#[test]
fn files_that_may_be_written_past_the_library_are_the_kernels() {
    let program = UNSEEN.build().unwrap();
    let kept = |how: &str| {
        let output = Testbed::new().run().arg(&program).arg(how).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{how}: {}\n{said}", output.status);
        kept_syncs(&said)
    };
    for how in ["plain", "reused", "flagged"] {
        assert!(kept(how) > 10, "{how}");
    }
    for how in ["number", "copied", "renamed", "queue"] {
        assert_eq!(kept(how), 0, "{how}");
    }
}

#[test]
fn a_sync_of_a_file_that_somebody_else_appended_to_is_the_kernels() {
    let program = OUTSIDE.build().unwrap();
    let syncs = |how: &str| {
        let output = Testbed::new().run().arg(&program).arg(how).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{how}: {}\n{said}", output.status);
        [kept_syncs(&said), kernel_syncs(&said)]
    };
    let [kept, by_kernel] = syncs("own");
    assert!(kept > 20 && by_kernel < 5, "those of its own appends end in the pool: {kept}, {by_kernel}");
    let [kept, by_kernel] = syncs("program");
    assert!(kept < 10 && by_kernel >= 20, "another program's appends: {kept}, {by_kernel}");
    let [kept, _] = syncs("old-stream");
    assert!(kept < 10, "a stream's appends: {kept}");
}

#[test]
fn a_file_that_is_mapped_for_reading_is_held_until_the_mapping_is_made_writable() {
    let program = MAPPED.build().unwrap();
    let kept = |how: &str| {
        let output = Testbed::new().run().arg(&program).arg(how).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{how}: {}\n{said}", output.status);
        kept_syncs(&said)
    };
    // Twenty syncs before, as many behind, and in some cases as many between. A machine that is
    // busy leaves some of them to the kernel.
    // Where the kernel places a mapping is its own choice: memory that lies beside one that counts
    // may become writable by chance, in any case. So each is tried until it is as it should be.
    let once = |how, range: std::ops::RangeInclusive<u64>| (0..40).any(|_| range.contains(&kept(how)));
    for how in ["nothing", "mapped", "replaced"] {
        assert!(once(how, 21..=60), "{how}");
    }
    for how in ["written", "keyed", "child", "fixed", "crowded"] {
        assert!(once(how, 1..=20), "{how}");
    }
    for how in ["grown", "placed"] {
        assert!(once(how, 21..=40), "{how}");
    }
}

#[test]
fn a_sync_of_contents_alone_leaves_a_new_mode_to_the_next_whole_one() {
    let program = MODES.build().unwrap();
    let by_kernel = |turns: u64| {
        let output = Testbed::new().run().arg(&program).arg(turns.to_string()).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        kernel_syncs(&String::from_utf8_lossy(&output.stderr))
    };
    assert_eq!(by_kernel(9) - by_kernel(4), 10, "of each turn both syncs are the kernel's");
}

#[test]
fn files_that_were_removed_are_let_go_of() {
    let output = Testbed::new().run().arg(DELETER.build().unwrap()).stdin(Stdio::null()).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{}\n{err}", output.status);
    assert_eq!(out, "0\n", "nobody has them open any more");
    assert_eq!(held_files(&err), 600, "there is always room for the next: {err}");
}

#[test]
fn the_supervisor_has_room_for_many_programs_and_the_program_has_its_own_limit() {
    let testbed = Testbed::new();
    let run = testbed.run();
    let script = r#"
        until [ "$(awk '/open files/ {print $4}' "/proc/$PPID/limits")" != 300 ]; do :; done
        ulimit -Sn
    "#;
    let mut limited = Command::new("sh");
    limited.args(["-c", r#"ulimit -Sn 300; exec "$@""#, "sh"]).arg(run.get_program()).args(run.get_args());
    limited.args([
        "timeout",
        "--foreground",
        "60",
        "sh",
        "-c",
        &script.replace("$PPID", "$(awk '/PPid/ {print $2}' /proc/$PPID/status)"),
    ]);
    let output = limited.current_dir(testbed.root()).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "300\n", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn denied_files_are_the_kernels() {
    let testbed = Testbed::new();
    let script = "for row in $(seq 20); do echo \"insert into t values($row);\"; done | sqlite3 data.db";
    let mut denying = testbed.run();
    // The options stand before the words of the program.
    let words: Vec<_> = denying.get_args().map(ToOwned::to_owned).collect();
    denying = Command::new(denying.get_program());
    denying.args(&words[..words.len() - 1]).args(["--deny", "data.db*", "--", "sh", "-euc"]);
    let script = format!("sqlite3 data.db 'pragma journal_mode=wal; create table t(a);' > mode; {script}");
    let output = denying.arg(script).current_dir(testbed.root()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && kept_syncs(&said) == 0, "{said}");
}
