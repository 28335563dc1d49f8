//! What a mount shows no more, or may not open any more: another file system at its mountpoint, an
//! open file that lost its name or its owner's rights, room that closed files held.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, chown};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use tidegate_trials::mount_folders::MountFolders;
use tidegate_trials::mounted::{MountTestbed, kill_all, servers_of};
use tidegate_trials::served::{program, until};

const NOBODY: u32 = 65534;

/// Begins a shell's line that the user nobody carries out.
const AS_NOBODY: &str = "exec setpriv --reuid 65534 --regid 65534 --clear-groups";

#[test]
fn a_signal_leaves_what_is_mounted_where_the_mount_was() {
    let bed = MountFolders::new();
    let mut service = Command::new(program())
        .arg("mount")
        .args([bed.at("source"), bed.at("mnt")])
        .args(["--try", "--pool-size", "64M", "--dram", "16M", "--pool"])
        .arg(bed.pool())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(service.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("mounted")));
    let open = File::create(bed.at("mnt").join("file")).unwrap();
    unmount(bed.at("mnt"), UnmountFlags::DETACH).unwrap();
    mount("none", bed.at("mnt"), "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(bed.at("mnt").join("other"), "of another file system").unwrap();
    kill_process(Pid::from_child(&service), Signal::TERM).unwrap();
    let said = BufReader::new(service.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (tell, heard) = channel();
    let listener = std::thread::spawn(move || said.for_each(|line| _ = tell.send(line)));
    let other = || fs::read(bed.at("mnt").join("other"));
    let mut is_left = false;
    until("the service to heed the signal", || {
        is_left |= heard.try_iter().any(|line| line.contains("is left as it is"));
        is_left || other().is_err()
    });
    drop(open);
    service.wait().unwrap();
    listener.join().unwrap();
    let other = other();
    let _ = unmount(bed.at("mnt"), UnmountFlags::DETACH);
    assert!(is_left && other.is_ok(), "{other:?}");
}

/// A mount of nobody in a mount namespace of its own, where everybody may open `/dev/fuse`.
fn mount_of_nobody(bed: &MountFolders) -> Child {
    let (source, mnt) = (bed.at("source"), bed.at("mnt"));
    for folder in [source.parent().unwrap(), &source, &mnt] {
        chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let line = format!(
        "mount -t tmpfs none /dev; mknod -m 666 /dev/fuse c 10 229; mknod -m 666 /dev/null c 1 3; \
         mkdir -m 1777 /dev/shm; {AS_NOBODY} \"$@\""
    );
    let mut service = Command::new("unshare");
    service.args(["--mount", "sh", "-ec", &line, "sh"]).arg(program()).arg("mount").args([source, mnt]);
    service.args(["--pool", "/dev/shm/pool", "--pool-size", "64M", "--dram", "16M", "--try"]);
    let mut service = service.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(service.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("mounted")), "the service ended before it mounted");
    service
}

/// A shell of nobody that sees what the service sees.
fn beside(service: &Child, line: &str) -> Command {
    let mut shell = Command::new("nsenter");
    shell.args(["--mount", "--target", &service.id().to_string(), "sh", "-c"]);
    shell.args([&format!("{AS_NOBODY} sh -c \"$1\""), "sh", line]);
    shell
}

#[test]
fn a_file_that_its_owner_may_not_open_any_more_stays_open_when_the_server_dies() {
    let bed = MountFolders::new();
    let mut service = mount_of_nobody(&bed);
    let mnt = bed.at("mnt");
    let mnt = mnt.to_str().unwrap();
    let line = format!(
        "cd {mnt} && printf 'unsynced ' >pooled && printf 'other ' >read && exec 3<>pooled 4<read && \
         chmod 000 pooled read && echo ready && read go && cat <&4 && cat <&3 && printf more >&3 && \
         chmod 600 pooled && cat pooled"
    );
    let mut program = beside(&service, &line).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    let former = servers_of(service.id());
    former.iter().for_each(|server| kill_process(*server, Signal::KILL).unwrap());
    until("the next server", || servers_of(service.id()).iter().any(|server| !former.contains(server)));
    program.stdin.take().unwrap().write_all(b"\n").unwrap();
    let said: Vec<String> = lines.collect();
    program.wait().unwrap();
    let ended = beside(&service, &format!("exec fusermount3 -u {mnt}")).status();
    kill_all_unless_ended(&mut service, ended.is_ok_and(|ended| ended.success()));
    assert_eq!(said, ["other unsynced unsynced more"]);
}

fn kill_all_unless_ended(service: &mut Child, is_unmounted: bool) {
    if is_unmounted {
        service.wait().unwrap();
    } else {
        kill_all(service);
    }
}

/// A mount, and an open file that was synced and has lost its name.
fn with_a_file_without_a_name() -> (MountTestbed, File) {
    let testbed = MountTestbed::on_own_disk();
    let path = testbed.mountpoint().join("file");
    let file = File::create_new(&path).unwrap();
    file.write_all_at(b"synced", 0).unwrap();
    file.sync_all().unwrap();
    fs::remove_file(&path).unwrap();
    (testbed, file)
}

/// Syncs the file once more, and kills the service.
fn is_not_missed_after_a_kill(testbed: &mut MountTestbed, file: File) {
    file.write_all_at(b"synced again", 0).unwrap();
    file.sync_all().unwrap();
    testbed.kill();
    drop(file);
    testbed.mount_again();
    let status = testbed.status();
    assert_eq!(status["files"]["retained"], 0, "{status}");
}

/// Longer than the log of names keeps a removal for a file of which the pool has nothing.
#[test]
fn an_open_file_without_a_name_that_is_synced_again_is_not_missed_after_a_kill() {
    let (mut testbed, file) = with_a_file_without_a_name();
    File::open(testbed.mountpoint()).unwrap().sync_all().unwrap();
    until("the log to forget the removal", || {
        let status = testbed.status();
        status["names_bytes"] == 0 && status["out_of_sync_bytes"] == 0
    });
    is_not_missed_after_a_kill(&mut testbed, file);
}

/// The next server's log of names does not have the removal.
#[test]
fn an_open_file_without_a_name_that_is_written_to_after_a_server_is_not_missed_after_a_kill() {
    let (mut testbed, file) = with_a_file_without_a_name();
    testbed.kill_server();
    is_not_missed_after_a_kill(&mut testbed, file);
}

#[test]
fn recovery_names_files_as_they_are_named_now() {
    let mut testbed = MountTestbed::on_own_disk();
    let at = |name: &str| testbed.mountpoint().join(name);
    fs::create_dir(at("folder")).unwrap();
    let file = File::create_new(at(".file.new")).unwrap();
    file.write_all_at(b"synced", 0).unwrap();
    file.sync_all().unwrap();
    fs::rename(at(".file.new"), at("folder/file")).unwrap();
    let folder = File::open(at("folder")).unwrap();
    folder.sync_all().unwrap();
    drop((file, folder));
    testbed.kill();
    let recovered = testbed.on_pool("recover");
    let told = String::from_utf8(recovered.stdout).unwrap();
    assert!(recovered.status.success() && told.contains("folder/file") && !told.contains(".file.new"), "{told}");
    testbed.mount_again();
    assert_eq!(fs::read(testbed.mountpoint().join("folder/file")).unwrap(), b"synced");
}

/// The log of names has the whole path, and a record of the pool not all of it.
#[test]
fn a_file_of_a_long_path_that_was_renamed_is_there_after_a_kill() {
    let mut testbed = MountTestbed::on_own_disk();
    let path = |testbed: &MountTestbed, last: &str| testbed.mountpoint().join(["name"; 50].concat() + last);
    let file = File::create_new(path(&testbed, "-1")).unwrap();
    file.write_all_at(b"synced", 0).unwrap();
    file.sync_all().unwrap();
    fs::rename(path(&testbed, "-1"), path(&testbed, "-2")).unwrap();
    file.sync_all().unwrap();
    testbed.kill();
    drop(file);
    testbed.mount_again();
    assert_eq!(fs::read(path(&testbed, "-2")).unwrap(), b"synced");
}

/// Files of a little more than 1 MiB, for each of which almost another one is reserved.
#[test]
fn files_that_are_closed_give_their_room_back_before_a_write_finds_none() {
    const FILES: usize = 180;
    const BYTES: usize = (1 << 20) + 4096;
    let testbed = MountTestbed::on_own_disk();
    let bytes = vec![7; BYTES];
    for file in 0..FILES {
        fs::write(testbed.mountpoint().join(file.to_string()), &bytes).unwrap();
    }
    let ended = testbed.end();
    assert!(ended.is_written_back());
    assert!((0..FILES).all(|file| ended.read(&file.to_string()) == bytes));
}
