//! `tidegate mount` under real programs: what they synced is there after the service was killed,
//! and the files are plain ones after it ended.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tidegate_trials::mount_folders::{MountFolders, shell, tidegate};
use tidegate_trials::mounted::{kill_all, send_kill};
use tidegate_trials::served::{program, until};

/// The names of a directory's extended attributes of users.
fn attributes(directory: &Path) -> Vec<u8> {
    let mut names = vec![0; 1 << 10];
    let len = rustix::fs::listxattr(directory, &mut names).expect("the file system has attributes");
    let names = names[..len].split_inclusive(|byte| *byte == 0);
    names.filter(|name| name.starts_with(b"user.")).flatten().copied().collect()
}

#[test]
fn what_programs_synced_survives_a_kill_and_reaches_the_files_by_recovery() {
    let bed = MountFolders::new();
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
fn a_directory_whose_pool_has_data_is_not_mounted_with_another_pool() {
    let bed = MountFolders::new();
    let service = bed.mount();
    let mnt = bed.at("mnt");
    shell(&mnt, "echo new > file; sync file; chmod 751 .");
    assert_eq!(attributes(&mnt), b"", "programs do not see the mark");
    bed.kill(service);
    assert_eq!(attributes(&bed.at("source")), b"user.tidegate.pool\0");
    let other = bed.memory().join("other");
    let refused = |pool: &Path| {
        let mut mount = Command::new(program());
        mount
            .arg("mount")
            .args([bed.at("source"), mnt.clone()])
            .args(["--try", "--pool-size", "64M", "--pool"])
            .arg(pool);
        let refused = mount.output().expect("the program starts");
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        String::from_utf8_lossy(&refused.stderr).into_owned()
    };
    let said = refused(&other);
    assert!(said.contains(&*bed.pool().to_string_lossy()) && said.contains("tidegate recover"), "{said}");
    assert!(!other.exists(), "a pool that is refused is not made");
    let moved = bed.memory().join("moved");
    fs::rename(bed.pool(), &moved).expect("moved");
    fs::File::create(bed.pool()).and_then(|pool| pool.set_len(64 << 20)).expect("a fresh file of the same name");
    assert!(refused(&bed.pool()).contains("--discard-former-pool"));
    assert_eq!(shell(&bed.at("source"), "stat -c %a ."), "700", "it stays hidden");
    fs::rename(&moved, bed.pool()).expect("put back");
    let recovered = bed.tidegate("recover", &bed.pool());
    assert!(recovered.status.success(), "{recovered:?}");
    assert_eq!(shell(&bed.at("source"), "cat file; stat -c %a ."), "new\n751");
    assert_eq!(attributes(&bed.at("source")), b"", "no mark is left");
}

#[test]
fn a_former_pool_is_given_up_only_if_the_user_says_so_and_then_for_good() {
    let bed = MountFolders::new();
    let service = bed.mount();
    let mnt = bed.at("mnt");
    shell(&mnt, "echo lost > file; sync file");
    bed.kill(service);
    let other = bed.memory().join("other");
    let mut service = bed.mount_with(&other, &["--discard-former-pool"]);
    shell(&mnt, "echo now > file; sync file");
    assert_eq!(bed.tidegate("umount", &mnt).status.code(), Some(0));
    assert!(service.wait().expect("it was started here").success());
    assert_eq!(shell(&bed.at("source"), "cat file; stat -c %a ."), "now\n755");
    let recovered = bed.tidegate("recover", &bed.pool());
    assert_eq!(recovered.status.code(), Some(3), "it belongs to no directory any more: {recovered:?}");
    assert_eq!(shell(&bed.at("source"), "cat file"), "now");
}

#[test]
fn a_copy_of_a_directory_whose_pool_has_data_is_a_directory_of_its_own() {
    let bed = MountFolders::new();
    let (service, mnt) = (bed.mount(), bed.at("mnt"));
    shell(&mnt, "printf synced > file; sync file; printf ' and not' >> file");
    bed.kill(service);
    shell(&bed.memory().join(".."), &format!("cp -a {} {}", bed.at("source").display(), bed.at("copy").display()));
    let other = bed.memory().join("other");
    let mut service = bed.mount_directory("copy", &other, &["--discard-former-pool"]);
    assert_eq!(bed.tidegate("umount", &mnt).status.code(), Some(0));
    assert!(service.wait().expect("it was started here").success());
    let service = bed.mount();
    assert_eq!(shell(&mnt, "cat file"), "synced and not", "the copy's mount took nothing of the original's");
    bed.kill(service);
}

#[test]
fn a_mount_begins_where_a_killed_one_ended_and_leaves_plain_files() {
    let bed = MountFolders::new();
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
    assert!(!bed.memory().join("pool.mount").exists(), "nothing of the pool is needed any more");
}

/// A count of `tidegate status`.
fn counted(bed: &MountFolders, key: &str) -> u64 {
    let status = tidegate("status", &bed.pool(), &["--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("it is JSON");
    status[key].as_u64().unwrap_or_else(|| panic!("{key}: {status}"))
}

#[test]
fn written_back_pages_are_read_from_the_pool_after_the_next_mount_unless_the_file_was_changed() {
    const BYTES: u64 = 1 << 20;
    let bed = MountFolders::new();
    let mut service = bed.mount();
    shell(&bed.at("mnt"), "for name in left changed; do seq 200000 | head -c 1M > $name; sync $name; done");
    assert!(bed.tidegate("umount", &bed.at("mnt")).status.success() && service.wait().expect("started here").success());
    shell(&bed.at("source"), "printf X | dd of=changed bs=1 seek=4096 conv=notrunc status=none");
    let mut service = bed.mount();
    assert_eq!(counted(&bed, "clean_bytes"), 2 * BYTES);
    let read = |name: &str| shell(&bed.at("mnt"), &format!("cksum < {name}"));
    assert_eq!(read("left"), shell(&bed.at("source"), "seq 200000 | head -c 1M | cksum"));
    assert_eq!((counted(&bed, "read_pool_bytes"), counted(&bed, "read_below_bytes")), (BYTES, 0));
    assert_eq!(read("changed"), shell(&bed.at("source"), "cksum < changed"));
    assert_eq!((counted(&bed, "read_pool_bytes"), counted(&bed, "read_below_bytes")), (BYTES, BYTES));
    assert!(bed.tidegate("umount", &bed.at("mnt")).status.success() && service.wait().expect("started here").success());
}

#[test]
fn a_pool_is_used_again_after_a_clean_end_whatever_was_cut_last() {
    let bed = MountFolders::new();
    for _ in 0..2 {
        let mut service = bed.mount();
        let line = "echo some > cut; sync cut; : > cut; echo some > shorter; sync shorter; truncate -s 2 shorter";
        shell(&bed.at("mnt"), line);
        assert_eq!(bed.tidegate("umount", &bed.at("mnt")).status.code(), Some(0));
        assert!(service.wait().expect("it was started here").success());
    }
    let recovered = bed.tidegate("recover", &bed.pool());
    assert!(recovered.status.success(), "nothing is left in the pool: {recovered:?}");
    assert_eq!(shell(&bed.at("source"), "cat cut shorter"), "so");
}

#[test]
fn a_mount_waits_for_a_service_that_was_killed_and_is_not_gone_yet() {
    let bed = MountFolders::new();
    let mut service = bed.mount();
    for _ in 0..4 {
        // Memory in use takes the kernel a while to take back.
        shell(&bed.at("mnt"), "dd if=/dev/zero of=file bs=1M count=12 status=none");
        send_kill(&mut service);
        rustix::mount::unmount(bed.at("mnt"), rustix::mount::UnmountFlags::DETACH).expect("a dead mount");
        let next = bed.mount();
        service.wait().expect("it was started here");
        service = next;
    }
    bed.kill(service);
}

/// Whether a mount is there that has lost its service.
fn is_dead(mountpoint: &Path) -> bool {
    rustix::fs::statfs(mountpoint).err() == Some(rustix::io::Errno::NOTCONN)
}

/// A service as [`MountFolders::mount_directory`] starts it, while a dead mount may be there.
fn mount_again(bed: &MountFolders, source: &str, pool: &Path) -> Child {
    let mut command = Command::new(program());
    command.arg("mount").args([bed.at(source), bed.at("mnt")]).arg("--pool").arg(pool);
    command.args(["--pool-size", "64M", "--dram", "16M", "--try"]).stdout(Stdio::null()).spawn().expect("it starts")
}

#[test]
fn a_refused_mount_leaves_the_dead_one_over_what_it_covers() {
    for source in ["mnt", "source"] {
        let bed = MountFolders::new();
        let (mnt, other) = (bed.at("mnt"), bed.memory().join("other"));
        let mut service = bed.mount_directory(source, &bed.pool(), &[]);
        shell(&mnt, "echo mine > file; sync file");
        kill_all(&mut service);
        let refused = mount_again(&bed, source, &other).wait().expect("it was started here");
        assert_eq!(refused.code(), Some(3), "{source}: SOURCE belongs to another pool");
        assert!(is_dead(&mnt), "{source}: programs reach what the mount covers");
        let mut service = mount_again(&bed, source, &bed.pool());
        until("the mount", || fs::read(mnt.join("file")).is_ok());
        assert_eq!(shell(&mnt, "cat file"), "mine", "{source}");
        assert!(bed.tidegate("umount", &mnt).status.success());
        assert!(service.wait().expect("it was started here").success());
        assert!(!bed.is_mounted(), "{source}: nothing of the dead mount is left");
        assert_eq!(shell(&bed.at(source), "cat file"), "mine", "{source}");
    }
}

#[test]
fn recovery_below_a_dead_mount_over_source_writes_to_the_files_and_takes_it_away() {
    let bed = MountFolders::new();
    let mnt = bed.at("mnt");
    let mut service = bed.mount_directory("mnt", &bed.pool(), &[]);
    shell(&mnt, "echo mine > file; sync file");
    kill_all(&mut service);
    let recovered = bed.tidegate("recover", &bed.pool());
    assert!(recovered.status.success(), "{recovered:?}");
    assert!(!bed.is_mounted());
    assert_eq!(shell(&mnt, "cat file"), "mine");
}

#[test]
fn at_no_moment_does_a_program_reach_what_lies_below_while_a_mount_takes_a_dead_ones_place() {
    let bed = MountFolders::new();
    let mnt = bed.at("mnt");
    let mut service = bed.mount();
    for round in 0..4 {
        kill_all(&mut service);
        let mut next = mount_again(&bed, "source", &bed.pool());
        // As a program does that tries again until it can.
        while fs::File::create(mnt.join(format!("file{round}"))).is_err() {
            assert_eq!(next.try_wait().expect("it was started here"), None, "round {round}: it was refused");
        }
        service = next;
    }
    assert!(bed.tidegate("umount", &mnt).status.success());
    assert!(service.wait().expect("it was started here").success());
    assert_eq!(shell(&mnt, "ls"), "", "files below the mount");
    assert_eq!(shell(&bed.at("source"), "ls"), "file0\nfile1\nfile2\nfile3");
}

#[test]
fn a_mount_takes_the_place_of_one_that_was_killed_and_is_not_gone_yet() {
    let bed = MountFolders::new();
    let mnt = bed.at("mnt");
    let mut service = bed.mount();
    for round in 0..8 {
        shell(&mnt, "dd if=/dev/zero of=file bs=1M count=12 status=none; stat . > /dev/null");
        send_kill(&mut service);
        let next = mount_again(&bed, "source", &bed.pool());
        service.wait().expect("it was started here");
        service = next;
        let mut ended = None;
        until("the next mount", || {
            ended = service.try_wait().expect("it was started here");
            // The kernel remembers no answer to this.
            ended.is_some() || rustix::fs::statfs(&mnt).is_ok()
        });
        assert_eq!(ended, None, "round {round}: it was refused");
    }
    assert!(bed.tidegate("umount", &mnt).status.success());
    assert!(service.wait().expect("it was started here").success());
}

#[test]
fn a_pool_with_data_of_another_directory_is_refused_and_a_replaced_file_is_not_overwritten() {
    let bed = MountFolders::new();
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
    assert_eq!(shell(bed.memory(), "cat pool.salvaged/*-file"), "mine\nmore");
}
