//! Which data the pool keeps for reading, by `--policy`, and what commands tell of it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::fs::{Advice, fadvise};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use tidegate_access_trace::Trace;
use tidegate_policy::placement::IoKind;
use tidegate_trials::direct::library;
use tidegate_trials::mount_folders::{MountFolders, answer, tidegate};
use tidegate_trials::mounted::servers_of;
use tidegate_trials::programs::CONTEXTS;
use tidegate_trials::served::{program, until};

const BYTES: u64 = 4 << 20;
const READ: usize = 64 << 10;

/// Reads all of a file that is full of one byte, past the kernel's pages.
fn read_all(file: &File) {
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
    let mut out = vec![0; READ];
    for at in (0..BYTES).step_by(READ) {
        file.read_exact_at(&mut out, at).unwrap();
        assert!(out.iter().all(|byte| *byte == 5), "at {at}");
    }
}

/// A file of which the pool has a record: a program synced its end.
fn with_record(path: &Path) -> File {
    let file = File::options().read(true).write(true).open(path).unwrap();
    file.write_all_at(&[5], BYTES - 1).unwrap();
    file.sync_all().unwrap();
    file
}

fn clean(mnt: &Path) -> u64 {
    answer("status", mnt)["clean_bytes"].as_u64().unwrap()
}

#[test]
fn a_loop_comes_to_the_pool_and_its_pattern_is_told() {
    for policy in ["tidegate", "uhnvm"] {
        let bed = MountFolders::new();
        fs::write(bed.at("source").join("file"), vec![5; usize::try_from(BYTES).unwrap()]).unwrap();
        let mut service = bed.mount_with(&bed.pool(), &["--policy", policy]);
        let mnt = bed.at("mnt");
        let file = with_record(&mnt.join("file"));
        until("the loop is in the pool", || {
            read_all(&file);
            clean(&mnt) == BYTES
        });
        read_all(&file);
        let status = answer("status", &mnt);
        assert_eq!(status["policy"], policy);
        assert!(status["reads_by_pattern"]["looping"]["hit_bytes"].as_u64().unwrap() >= BYTES / 2, "{status}");
        assert_eq!(answer("explain", &mnt.join("file"))["pattern"], "looping", "{policy}");
        drop(file);
        assert_eq!(bed.tidegate("umount", &mnt).status.code(), Some(0));
        assert!(service.wait().unwrap().success());
    }
}

/// One thread reads one file, in a loop by one function, and at random by another. By their call
/// stacks they are two contexts: the pool has the loop, and nothing that is read at random. By
/// thread and file they are one, and both come to the pool.
#[test]
fn functions_of_one_thread_are_told_apart_by_their_call_stacks() {
    const LOOP: u64 = 1 << 20;
    library();
    let client = CONTEXTS.build().unwrap();
    for (options, is_direct) in [(&[][..], true), (&["--context-frames", "3"], true), (&["--no-direct"], false)] {
        let bed = MountFolders::new();
        fs::write(bed.at("source").join("file"), vec![5; 32 << 20]).unwrap();
        let mut service = bed.mount_with(&bed.pool(), &["--policy", "uhnvm"]);
        let mnt = bed.at("mnt");
        let read = || {
            let mut run = Command::new(program());
            run.arg("run").args(options).arg("--root").arg(&mnt).arg("--").arg(&client).arg(mnt.join("file")).arg("20");
            assert!(run.status().unwrap().success());
        };
        // What is read is admitted later, by a thread of the service.
        until("the loop is in the pool", || {
            read();
            if is_direct { clean(&mnt) >= LOOP } else { clean(&mnt) >= 2 * LOOP }
        });
        let status = answer("status", &mnt);
        let by_stack = status["placed_by_stack"].as_u64().unwrap();
        if is_direct {
            let reads = |pattern: &str, key: &str| status["reads_by_pattern"][pattern][key].as_u64().unwrap();
            let looped = reads("looping", "hit_bytes") + reads("looping", "missed_bytes");
            // The end of the file is there, as the program writes it.
            assert!(looped >= 15 * LOOP && reads("random", "missed_bytes") >= 15 * LOOP, "{status}");
            assert!(reads("random", "hit_bytes") <= 4096 && clean(&mnt) <= LOOP + 4096, "{status}");
            assert!(by_stack >= 15 * 512, "{status}");
            let told = String::from_utf8(tidegate("status", &mnt, &[]).stdout).unwrap();
            assert!(told.contains(&format!("contexts   {by_stack} requests by call stack")), "{told}");
        } else {
            assert_eq!(by_stack, 0, "{status}");
        }
        assert_eq!(bed.tidegate("umount", &mnt).status.code(), Some(0));
        assert!(service.wait().unwrap().success());
    }
}

/// The next mount knows the loop by its context as soon as it is read.
#[test]
fn what_is_known_of_contexts_holds_for_the_next_mount() {
    library();
    let client = CONTEXTS.build().unwrap();
    let bed = MountFolders::new();
    fs::write(bed.at("source").join("file"), vec![5; 8 << 20]).unwrap();
    let mnt = bed.at("mnt");
    let reads = |rounds: &str| {
        let mut run = Command::new(program());
        run.arg("run").arg("--root").arg(&mnt).arg("--").arg(&client).arg(mnt.join("file")).arg(rounds);
        assert!(run.status().unwrap().success());
        let status = answer("status", &mnt);
        let read = |pattern: &str, key: &str| status["reads_by_pattern"][pattern][key].as_u64().unwrap();
        [read("looping", "hit_bytes") + read("looping", "missed_bytes"), read("sequential", "missed_bytes")]
    };
    let mount = |then: &dyn Fn() -> [u64; 2]| {
        let mut service = bed.mount_with(&bed.pool(), &["--policy", "uhnvm"]);
        let read = then();
        assert_eq!(bed.tidegate("umount", &mnt).status.code(), Some(0));
        assert!(service.wait().unwrap().success());
        read
    };
    let first = mount(&|| reads("4"));
    assert!(first[1] > 0, "it was sequential before it was a loop: {first:?}");
    let second = mount(&|| reads("1"));
    assert!(second[0] >= (1 << 20) - (64 << 10), "only its first read has no call stack: {second:?}");
    fs::write(bed.pool().with_extension("contexts"), "{").unwrap();
    let third = mount(&|| reads("1"));
    assert!(third[0] < 1 << 19, "without the file it is learnt anew: {third:?}");
}

/// The client reads 256 pages in a loop and as many at random, in each round.
#[test]
fn a_trace_has_every_access_with_its_context_and_the_names_of_files() {
    library();
    let client = CONTEXTS.build().unwrap();
    let bed = MountFolders::new();
    fs::write(bed.at("source").join("file"), vec![5; 8 << 20]).unwrap();
    let mut service = bed.mount();
    let (mnt, path) = (bed.at("mnt"), bed.at("trace"));
    let run_to = |path: &Path, line: &str| {
        let mut run = Command::new(program());
        run.arg("run").arg("--root").arg(&mnt).arg("--trace").arg(path).args(["--", "sh", "-ec", line, "sh"]);
        run.arg(&client).arg(mnt.join("file")).output().unwrap()
    };
    let run = |line: &str| run_to(&path, line);
    let inside = String::from_utf8(run_to(&mnt.join("trace"), "true").stderr).unwrap();
    assert!(inside.contains("it would be in the root"), "{inside}");
    let ran = run(r#""$1" "$2" 3; printf 123 > "$2.new"; rm "$2.new"; "$1" "$2" 2"#);
    assert!(ran.status.success(), "{ran:?}");
    let text = fs::read_to_string(&path).unwrap();
    let name = format!("# file 1: {}\n", mnt.join("file").display());
    assert!(text.starts_with(&format!("tidegate-trace 1\n{name}# file 2: removed since (inode ")), "{}", &text[..200]);
    let trace = Trace::parse(&text).unwrap().requests;
    let of = |kind: IoKind| trace.iter().filter(move |request| request.kind == kind);
    assert_eq!([of(IoKind::Read).count(), of(IoKind::SyncWrite).count()], [5 * 512, 2], "the end was synced twice");
    let loops: HashSet<u64> = of(IoKind::Read).filter(|read| read.offset < 1 << 20).map(|read| read.context).collect();
    let others: HashSet<u64> =
        of(IoKind::Read).filter(|read| read.offset >= 1 << 20).map(|read| read.context).collect();
    assert_eq!((loops.len(), others.len(), loops.is_disjoint(&others)), (1, 1, true), "in two processes the same");
    let refused = run("true");
    assert_eq!(refused.status.code(), Some(5), "{refused:?}");
    assert!(String::from_utf8(refused.stderr).unwrap().contains("File exists"));
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "it is as it was");
    // With a limit of file sizes nothing is recorded, and nothing ends.
    let limited = bed.at("limited");
    let ran = run_to(&limited, r#"ulimit -f 20000; "$1" "$2" 1"#);
    assert!(ran.status.success(), "{ran:?}");
    let text = fs::read_to_string(&limited).unwrap();
    assert!(text.starts_with("tidegate-trace 1\n# 514 accesses could not be recorded\n"), "{text}");
    assert!(!limited.with_extension("records").exists());
    assert_eq!(bed.tidegate("umount", &mnt).status.code(), Some(0));
    assert!(service.wait().unwrap().success());
}

#[test]
fn extents_are_hot_and_a_server_that_is_killed_is_followed_by_one_with_its_policy() {
    let bed = MountFolders::new();
    fs::write(bed.at("source").join("file"), vec![5; usize::try_from(BYTES).unwrap()]).unwrap();
    let mut service = bed.mount_with(&bed.pool(), &["--policy", "cheetah-normalised"]);
    let mnt = bed.at("mnt");
    let file = with_record(&mnt.join("file"));
    until("the file is in the pool", || {
        read_all(&file);
        clean(&mnt) == BYTES
    });
    read_all(&file);
    let told = answer("explain", &mnt.join("file"));
    let temperatures = told["temperatures"].as_array().unwrap();
    assert_eq!(temperatures.len(), 4, "{told}");
    assert!(temperatures.iter().all(|extent| extent["temperature"].as_f64().unwrap() > 0.0), "{told}");
    assert_eq!(told["pattern"], Value::Null, "this policy does not ask");
    let text = tidegate("explain", &mnt.join("file"), &[]);
    assert!(String::from_utf8(text.stdout).unwrap().contains("\nextent     1 MiB from "));
    for server in servers_of(service.id()) {
        kill_process(server, Signal::KILL).unwrap();
    }
    until("the next server", || answer("status", &mnt)["restarts"] == 1);
    assert_eq!(answer("status", &mnt)["policy"], "cheetah-normalised");
    read_all(&file);
    drop(file);
    assert_eq!(bed.tidegate("umount", &mnt).status.code(), Some(0));
    assert!(service.wait().unwrap().success());
}

#[test]
fn a_policy_that_does_not_exist_is_refused() {
    let bed = MountFolders::new();
    let refused = tidegate("mount", &bed.at("source"), &[&*bed.at("mnt").to_string_lossy(), "--policy", "unhvm"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("uhnvm") && !bed.is_mounted(), "{said}");
    let config = bed.at("mounts.toml");
    fs::write(&config, "[[mount]]\nsource = \"source\"\nmountpoint = \"mnt\"\npolicy = \"best\"\n").unwrap();
    let refused = tidegate("mount", Path::new("--config"), &[&config.to_string_lossy()]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("no policy has this name: there are tidegate, "), "{said}");
}
