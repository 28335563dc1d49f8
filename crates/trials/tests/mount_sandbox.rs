//! The sandbox of a mount's servers: each of them has given up calls and capabilities before it
//! serves, and mounts end as ever.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use tidegate_trials::mount_folders::{MountFolders, shell};
use tidegate_trials::mounted::servers_of;
use tidegate_trials::served::{program, until};

/// CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SYS_ADMIN, SYS_RESOURCE, MKNOD, SETFCAP.
const RIGHTS: u64 = 0b1_1111 | 1 << 21 | 1 << 24 | 1 << 27 | 1 << 31;

fn server(mount: &Child) -> Pid {
    until("a server", || !servers_of(mount.id()).is_empty());
    servers_of(mount.id())[0]
}

/// What the kernel tells of each thread of a server.
fn threads(server: Pid) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.as_raw_nonzero())).unwrap();
    tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap()).collect()
}

fn word<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim()
}

fn rights(status: &str, name: &str) -> u64 {
    u64::from_str_radix(word(status, name), 16).unwrap()
}

fn assert_confined(server: Pid) {
    let (threads, own) = (threads(server), fs::read_to_string("/proc/self/status").unwrap());
    let kept = rights(&own, "CapEff:") & RIGHTS;
    assert_ne!(kept, rights(&own, "CapEff:"), "this test has few rights itself");
    assert!(threads.len() > 5, "those that answer and those in the background: {}", threads.len());
    for status in threads {
        assert_eq!((word(&status, "Seccomp:"), word(&status, "NoNewPrivs:")), ("2", "1"), "{status}");
        for name in ["CapEff:", "CapPrm:"] {
            assert_eq!(rights(&status, name), kept, "{status}");
        }
        assert_eq!(rights(&status, "CapInh:"), 0, "{status}");
    }
}

#[test]
fn each_server_of_a_mount_is_confined_before_it_serves() {
    let bed = MountFolders::new();
    let mut mount = bed.mount_with(&bed.pool(), &["--sandbox", "on"]);
    shell(&bed.at("mnt"), "echo one > file; sync file");
    let first = server(&mount);
    assert_confined(first);
    kill_process(first, Signal::KILL).unwrap();
    shell(&bed.at("mnt"), "echo two >> file; sync file; chown 1:1 file; chmod 4755 file; mknod null c 1 3");
    let next = server(&mount);
    assert_ne!(next, first);
    assert_confined(next);
    let supervisor = fs::read_to_string(format!("/proc/{}/status", mount.id())).unwrap();
    assert_eq!(word(&supervisor, "Seccomp:"), "0", "it mounts and unmounts");
    // A program has a file open: it is named, and waited for.
    let held = fs::File::open(bed.at("mnt").join("file")).unwrap();
    kill_process(Pid::from_child(&mount), Signal::TERM).unwrap();
    until("the end for new programs", || !bed.is_mounted());
    assert!(mount.try_wait().unwrap().is_none());
    drop(held);
    assert!(mount.wait().unwrap().success());
    assert_eq!(shell(&bed.at("source"), "cat file; stat -c %u:%g:%a file"), "one\ntwo\n1:1:4755");
}

#[test]
fn a_server_without_a_sandbox_keeps_what_it_has_and_another_word_is_refused() {
    let bed = MountFolders::new();
    let mut mount = bed.mount_with(&bed.pool(), &["--sandbox", "off"]);
    let own = fs::read_to_string("/proc/self/status").unwrap();
    shell(&bed.at("mnt"), "echo one > file; sync file");
    for status in threads(server(&mount)) {
        for name in ["Seccomp:", "NoNewPrivs:", "CapEff:"] {
            assert_eq!(word(&status, name), word(&own, name), "{status}");
        }
    }
    assert!(bed.tidegate("umount", &bed.at("mnt")).status.success());
    assert!(mount.wait().unwrap().success());
    let mut refused = Command::new(program());
    refused.args(["mount", "--sandbox", "yes"]).args([bed.at("source"), bed.at("mnt")]);
    let refused = refused.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("auto"), "{said}");
}

/// The servers of the mounts that a run began.
fn servers_of_run(run: &Child) -> Vec<Pid> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).unwrap();
    children.split_whitespace().flat_map(|child| servers_of(child.parse().unwrap())).collect()
}

#[test]
fn a_run_says_whether_the_servers_of_its_mounts_are_confined() {
    let bed = MountFolders::new();
    for (wish, seccomp) in [("on", "2"), ("off", "0")] {
        let mut run = Command::new(program());
        run.args(["run", "--try", "--no-direct", "--size", "64M", "--sandbox", wish, "--pool"]).arg(bed.pool());
        run.arg("--root").arg(bed.at("source")).args(["--", "sh", "-c", "echo begun; read line"]);
        let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "begun\n", "the program runs once a server answers");
        for status in threads(servers_of_run(&run)[0]) {
            assert_eq!(word(&status, "Seccomp:"), seccomp, "{status}");
        }
        drop(run.stdin.take());
        run.wait().unwrap();
    }
}

/// A server in the sandbox cannot unmount, and the process that can is gone.
#[test]
fn a_server_that_lost_its_supervisor_says_how_its_mount_is_ended() {
    let bed = MountFolders::new();
    let mut mount = Command::new(program());
    mount.arg("mount").args([bed.at("source"), bed.at("mnt")]).arg("--pool").arg(bed.pool());
    mount.args(["--pool-size", "64M", "--dram", "16M", "--try"]).stdout(Stdio::null());
    let log = fs::File::create(bed.at("log")).unwrap();
    let mut mount = mount.stderr(log).spawn().unwrap();
    until("the mount", || bed.is_mounted());
    shell(&bed.at("mnt"), "echo one > file; sync file");
    let server = server(&mount);
    mount.kill().unwrap();
    mount.wait().unwrap();
    kill_process(server, Signal::TERM).unwrap();
    let told = || fs::read_to_string(bed.at("log")).unwrap().contains("end the mount by: tidegate umount ");
    until("its words", told);
    shell(&bed.at("mnt"), "echo two >> file; sync file");
    assert!(bed.tidegate("umount", &bed.at("mnt")).status.success());
    assert_eq!(shell(&bed.at("source"), "cat file"), "one\ntwo");
}
