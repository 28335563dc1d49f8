//! `tidegate mount` under real programs: what they synced is there after the service was killed,
//! and the files are plain ones after it ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tidegate_trials::served::{program, until};

/// A SOURCE, a MOUNTPOINT, and a pool in memory that outlives processes.
struct Testbed {
    folder: tempfile::TempDir,
    memory: tempfile::TempDir,
}

impl Testbed {
    fn new() -> Testbed {
        assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
        assert!(Path::new("/dev/fuse").exists(), "this test mounts: it needs /dev/fuse (`modprobe fuse`)");
        let folder = tempfile::tempdir().expect("a folder for what is temporary");
        for name in ["source", "mnt"] {
            fs::create_dir(folder.path().join(name)).expect("made");
        }
        Testbed { folder, memory: tempfile::tempdir_in("/dev/shm").expect("a folder in memory") }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pool(&self) -> PathBuf {
        self.memory.path().join("pool")
    }

    fn mount(&self) -> Child {
        let mut command = Command::new(program());
        command.arg("mount").args([self.at("source"), self.at("mnt")]).arg("--pool").arg(self.pool());
        let child = command.args(["--pool-size", "64M", "--dram", "16M", "--try"]).stdout(Stdio::null()).spawn();
        let child = child.expect("the program starts");
        until("the mount", || self.is_mounted());
        child
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("the kernel tells");
        mounts.lines().any(|line| line.contains(&*self.at("mnt").to_string_lossy()))
    }

    fn tidegate(&self, command: &str, path: &Path) -> Output {
        Command::new(program()).arg(command).arg(path).output().expect("the program starts")
    }

    /// Ends the service without a last word, and takes the dead mount away.
    fn kill(&self, mut service: Child) {
        service.kill().expect("it runs");
        service.wait().expect("it was started here");
        rustix::mount::unmount(self.at("mnt"), rustix::mount::UnmountFlags::DETACH).expect("a dead mount");
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // A failed test leaves its mount.
        let _ = rustix::mount::unmount(self.at("mnt"), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Runs a line of shell in a folder.
fn shell(folder: &Path, line: &str) -> String {
    let done = Command::new("sh").args(["-ec", line]).current_dir(folder).output().expect("sh is everywhere");
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
}

#[test]
fn what_programs_synced_survives_a_kill_and_reaches_the_files_by_recovery() {
    let bed = Testbed::new();
    let service = bed.mount();
    let mnt = bed.at("mnt");
    shell(&mnt, "mkdir d; echo one > d/new; sync d/new; mv d/new d/name; ln d/name link; ln -s d/name symbolic");
    shell(&mnt, "dd if=/dev/urandom of=big bs=64k count=100 conv=fsync status=none; cp big copy; sync copy");
    let status = bed.tidegate("status", &bed.pool());
    assert!(String::from_utf8_lossy(&status.stdout).contains("in persistent memory"), "{status:?}");
    let sum = shell(&mnt, "cat big | cksum");
    bed.kill(service);
    let mode = |path: &Path| shell(path, "stat -c %a .");
    assert_eq!(mode(&bed.at("source")), "700", "nobody takes old files for new ones");
    let recovered = bed.tidegate("recover", &bed.pool());
    assert!(recovered.status.success(), "{recovered:?}");
    let source = bed.at("source");
    assert_eq!(mode(&source), "755");
    assert_eq!(shell(&source, "cat d/name link symbolic | sort -u"), "one");
    assert_eq!((shell(&source, "cat big | cksum"), shell(&source, "cat copy | cksum")), (sum.clone(), sum));
    let again = bed.tidegate("recover", &bed.pool());
    assert!(again.status.success(), "recovery can be repeated: {again:?}");
}

#[test]
fn a_mount_begins_where_a_killed_one_ended_and_leaves_plain_files() {
    let bed = Testbed::new();
    let service = bed.mount();
    let mnt = bed.at("mnt");
    shell(&mnt, "printf 'synced' > file; sync file; printf ' and not' >> file");
    bed.kill(service);
    let mut service = bed.mount();
    assert_eq!(shell(&mnt, "cat file"), "synced and not", "a killed service loses no write");
    shell(&mnt, "printf new > other");
    let flushed = bed.tidegate("flush", &bed.pool());
    assert!(flushed.status.success(), "{flushed:?}");
    assert_eq!(shell(&bed.at("source"), "cat file other"), "synced and notnew");
    shell(&mnt, "printf '!' >> file");
    let ended = bed.tidegate("umount", &mnt);
    assert!(ended.status.success(), "{ended:?}");
    assert!(service.wait().expect("it was started here").success());
    assert_eq!(shell(&bed.at("source"), "cat file"), "synced and not!");
    assert!(!bed.memory.path().join("pool.mount").exists(), "nothing of the pool is needed any more");
}

#[test]
fn a_pool_with_data_of_another_directory_is_refused_and_a_replaced_file_is_not_overwritten() {
    let bed = Testbed::new();
    let service = bed.mount();
    shell(&bed.at("mnt"), "echo mine > file; sync file; echo more >> file; sync file");
    bed.kill(service);
    fs::create_dir(bed.at("other")).expect("made");
    let mut other = Command::new(program());
    other.arg("mount").args([bed.at("other"), bed.at("mnt")]).arg("--pool").arg(bed.pool()).arg("--try");
    assert_eq!(other.status().expect("the program starts").code(), Some(3));
    shell(&bed.at("source"), "rm file; echo theirs > file");
    let recovered = bed.tidegate("recover", &bed.pool());
    assert_eq!(recovered.status.code(), Some(3), "{recovered:?}");
    assert_eq!(shell(&bed.at("source"), "cat file"), "theirs");
    let forced = Command::new(program()).arg("recover").arg(bed.pool()).arg("--force").output().expect("it starts");
    assert!(forced.status.success(), "{forced:?}");
    assert_eq!(shell(&bed.at("source"), "cat file"), "theirs");
    assert_eq!(shell(bed.memory.path(), "cat pool.salvaged/*-file"), "mine\nmore");
}
