//! What a mount does with bad input: it refuses, says why, and leaves SOURCE as it was; or it
//! works.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::mount::{MountFlags, UnmountFlags, unmount};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tidegate_layout::disk_cache::SUPERBLOCK_COPIES_AT;
use tidegate_trials::mount_folders::{MountFolders, shell};
use tidegate_trials::served::{program, until};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const IN_USE: i32 = 4;
const ENVIRONMENT: i32 = 5;

/// A user who owns no files.
const NOBODY: u32 = 65534;

/// `tidegate mount`, which is to refuse.
fn mount(source: &Path, mountpoint: &Path, pool: &Path) -> Command {
    let mut mount = Command::new(program());
    mount.arg("mount").args([source, mountpoint]).args(["--try", "--dram", "16M", "--pool-size", "64M", "--pool"]);
    mount.arg(pool);
    mount
}

/// Checks that a command was refused with `code`, and said each of `words`.
fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words.iter().chain(&["next:"]) {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
}

/// Checks that `mount` is refused, and that SOURCE is as it was.
fn assert_mount_refused(bed: &MountFolders, mut mount: Command, code: i32, words: &[&str]) {
    let mode = fs::metadata(bed.at("source")).unwrap().permissions().mode();
    assert_refused(&mount.output().unwrap(), code, words);
    assert!(!bed.is_mounted());
    assert_eq!(fs::metadata(bed.at("source")).unwrap().permissions().mode(), mode);
}

fn end(bed: &MountFolders, mut service: std::process::Child) {
    let ended = bed.tidegate("umount", &bed.at("mnt"));
    assert!(ended.status.success(), "{ended:?}");
    assert!(service.wait().unwrap().success());
}

#[test]
fn files_of_source_that_a_program_writes_to_keep_a_mount_from_beginning() {
    let bed = MountFolders::new();
    let file = File::create(bed.at("source").join("log")).unwrap();
    let mut writer = Command::new("sleep").arg("1000").stdout(file).spawn().unwrap();
    let words = [&*format!("sleep ({})", writer.id()), "/log", "end these programs"];
    assert_mount_refused(&bed, mount(&bed.at("source"), &bed.at("mnt"), &bed.pool()), IN_USE, &words);
    writer.kill().unwrap();
    writer.wait().unwrap();
    let service = bed.mount();
    end(&bed, service);
}

#[test]
fn a_file_that_was_changed_behind_the_mount_is_not_overwritten() {
    let bed = MountFolders::new();
    let service = bed.mount();
    shell(&bed.at("mnt"), "echo mine > file; sync file; echo more >> file; sync file");
    bed.kill(service);
    shell(&bed.at("source"), "echo theirs >> file");
    let before = fs::read(bed.at("source").join("file")).unwrap();
    let recovered = bed.tidegate("recover", &bed.pool());
    assert_eq!(recovered.status.code(), Some(REFUSED), "{recovered:?}");
    assert!(String::from_utf8_lossy(&recovered.stdout).contains("retained   file"), "{recovered:?}");
    assert_eq!(fs::read(bed.at("source").join("file")).unwrap(), before);
}

/// A descriptor leads to the file still, and nobody reads what is written there.
#[test]
fn what_was_synced_to_a_file_that_others_removed_or_replaced_is_retained() {
    let bed = MountFolders::new();
    let mut service = bed.mount();
    let open = ["removed", "replaced"].map(|name| {
        let path = bed.at("mnt").join(name);
        fs::write(&path, "old").unwrap();
        File::options().write(true).open(path).unwrap()
    });
    assert!(bed.tidegate("flush", &bed.at("mnt")).status.success());
    shell(&bed.at("source"), "echo theirs > new; rm removed; mv new replaced");
    for mut file in open {
        file.write_all(b"acknowledged").unwrap();
        file.sync_all().unwrap();
    }
    let ended = bed.tidegate("umount", &bed.at("mnt"));
    assert!(!service.wait().unwrap().success());
    assert_eq!(ended.status.code(), Some(REFUSED), "{ended:?}");
    let recovered = bed.tidegate("recover", &bed.pool());
    let said = String::from_utf8_lossy(&recovered.stdout);
    assert!(said.contains("retained   removed") && said.contains("retained   replaced"), "{recovered:?}");
    assert_eq!(fs::read(bed.at("source").join("replaced")).unwrap(), b"theirs\n");
}

#[test]
fn one_pool_or_one_source_has_one_mount() {
    let bed = MountFolders::new();
    let service = bed.mount();
    for folder in ["other", "place"] {
        fs::create_dir(bed.at(folder)).unwrap();
    }
    let second_pool = bed.memory().join("second");
    let pool_again = mount(&bed.at("other"), &bed.at("place"), &bed.pool()).output().unwrap();
    assert_refused(&pool_again, IN_USE, &["is in use"]);
    let source_again = mount(&bed.at("source"), &bed.at("place"), &second_pool).output().unwrap();
    assert_refused(&source_again, IN_USE, &["mounted already"]);
    let place_again = mount(&bed.at("other"), &bed.at("mnt"), &second_pool).output().unwrap();
    assert_refused(&place_again, IN_USE, &["tidegate umount"]);
    assert!(!second_pool.exists());
    end(&bed, service);
}

#[test]
fn source_and_mountpoint_have_to_be_directories_apart() {
    let bed = MountFolders::new();
    let (source, mnt) = (bed.at("source"), bed.at("mnt"));
    assert_mount_refused(&bed, mount(&bed.at("absent"), &mnt, &bed.pool()), USAGE, &["No such file"]);
    fs::create_dir(source.join("inside")).unwrap();
    assert_mount_refused(&bed, mount(&source, &source.join("inside"), &bed.pool()), USAGE, &["lies in the other"]);
    assert_mount_refused(&bed, mount(&source.join("inside"), &source, &bed.pool()), USAGE, &["lies in the other"]);
    fs::write(mnt.join("file"), "").unwrap();
    assert_mount_refused(&bed, mount(&source, &mnt, &bed.pool()), USAGE, &["not empty"]);
    assert_mount_refused(&bed, mount(&source, &mnt.join("file"), &bed.pool()), USAGE, &["not a directory"]);
    assert!(!bed.pool().exists(), "a refused mount makes no pool");
}

#[test]
fn another_file_system_at_source_is_not_taken_for_the_last_one() {
    let bed = MountFolders::new();
    let service = bed.mount();
    shell(&bed.at("mnt"), "echo mine > file; sync file");
    bed.kill(service);
    let source = bed.at("source");
    rustix::mount::mount("none", &source, "tmpfs", MountFlags::empty(), None).unwrap();
    let mounted = mount(&source, &bed.at("mnt"), &bed.pool()).output().unwrap();
    let recovered = bed.tidegate("recover", &bed.pool());
    until("the last user's end", || unmount(&source, UnmountFlags::empty()).is_ok());
    assert_refused(&mounted, REFUSED, &["is not the directory", "former directory"]);
    assert_refused(&recovered, REFUSED, &["is not the directory"]);
    assert!(bed.tidegate("recover", &bed.pool()).status.success());
}

#[test]
fn pools_that_are_too_small_damaged_or_on_a_full_disk_are_refused() {
    let bed = MountFolders::new();
    let (source, mnt) = (bed.at("source"), bed.at("mnt"));
    File::create(bed.pool()).unwrap().set_len(1 << 16).unwrap();
    assert_mount_refused(&bed, mount(&source, &mnt, &bed.pool()), USAGE, &["--pool-size"]);
    fs::write(bed.pool(), vec![7; 1 << 20]).unwrap();
    assert_mount_refused(&bed, mount(&source, &mnt, &bed.pool()), REFUSED, &["no pool of a mount"]);
    fs::remove_file(bed.pool()).unwrap();
    let full = bed.at("full");
    fs::create_dir(&full).unwrap();
    rustix::mount::mount("none", &full, "tmpfs", MountFlags::empty(), c"size=1m").unwrap();
    let refused = mount(&source, &mnt, &full.join("pool")).output().unwrap();
    let left = fs::read_dir(&full).unwrap().count();
    until("the last user's end", || unmount(&full, UnmountFlags::empty()).is_ok());
    assert_refused(&refused, ENVIRONMENT, &["no space"]);
    assert_eq!(left, 0, "a pool that has no room is not left behind");
    damaged_pool_is_refused(&bed);
}

#[test]
fn sizes_of_dram_that_cannot_be_had_are_refused_and_leave_no_pool() {
    let bed = MountFolders::new();
    for (size, word) in [("1023K", "1 MiB"), ("100T", "/dev/shm")] {
        let mut mount = Command::new(program());
        mount.arg("mount").args([bed.at("source"), bed.at("mnt")]).args(["--try", "--dram", size, "--pool"]);
        mount.arg(bed.pool());
        assert_mount_refused(&bed, mount, USAGE, &[word, "--dram"]);
        assert!(!bed.pool().exists());
    }
}

#[test]
fn a_refused_mount_leaves_nothing_that_it_made() {
    let bed = MountFolders::new();
    let (source, mnt) = (bed.at("source"), bed.at("mnt"));
    let memory = || shell(Path::new("/dev/shm"), "find . -maxdepth 1 -name 'tidegate-*' -size 0 | sort");
    let before = memory();
    let sized = |program: &mut Command, pool: &str, dram: &str| {
        program.args(["mount", "--try", "--pool-size", pool, "--dram", dram, "--pool"]);
        program.arg(bed.pool()).args([&source, &mnt]);
    };
    let mut small = Command::new(program());
    sized(&mut small, "1M", "16M");
    assert_mount_refused(&bed, small, USAGE, &["--pool-size"]);
    assert!(!bed.pool().exists(), "the size");
    // The limit on a file's size is on the pool in the first case, and in the second on the memory
    // of a lane.
    for (limit, words) in [
        ("-f 100", ["may write to a file", "ulimit -f unlimited"]),
        ("-f 40000", ["may write to a file", "ulimit -f unlimited"]),
        ("-n 24", ["may open 24 files", "ulimit -n"]),
    ] {
        let line = format!("ulimit {limit}; exec \"$@\"");
        let mut limited = Command::new("sh");
        limited.args(["-c", &line, "sh"]).arg(program());
        sized(&mut limited, "8M", "128M");
        assert_mount_refused(&bed, limited, ENVIRONMENT, &words);
        assert!(!bed.pool().exists(), "{limit}");
        assert!(!bed.memory().join("pool.mount").exists(), "{limit}");
    }
    assert_eq!(memory(), before, "memory without a byte");
    let service = bed.mount();
    end(&bed, service);
}

fn damaged_pool_is_refused(bed: &MountFolders) {
    let service = bed.mount();
    shell(&bed.at("mnt"), "echo mine > file; sync file");
    bed.kill(service);
    let pool = File::options().read(true).write(true).open(bed.pool()).unwrap();
    let former = SUPERBLOCK_COPIES_AT.map(|at| {
        let mut bytes = [0; 64];
        pool.read_exact_at(&mut bytes, at).unwrap();
        pool.write_all_at(&[0xa5; 64], at).unwrap();
        bytes
    });
    assert_mount_refused(bed, mount(&bed.at("source"), &bed.at("mnt"), &bed.pool()), REFUSED, &["pool"]);
    for (at, bytes) in SUPERBLOCK_COPIES_AT.into_iter().zip(former) {
        pool.write_all_at(&bytes, at).unwrap();
    }
    drop(pool);
    assert!(bed.tidegate("recover", &bed.pool()).status.success());
}

#[test]
fn a_pool_of_another_user_is_refused() {
    let bed = MountFolders::new();
    File::create(bed.pool()).unwrap().set_len(64 << 20).unwrap();
    chown(bed.pool(), Some(NOBODY), Some(NOBODY)).unwrap();
    assert_mount_refused(
        &bed,
        mount(&bed.at("source"), &bed.at("mnt"), &bed.pool()),
        ENVIRONMENT,
        &["belongs to user"],
    );
}

#[test]
fn a_pool_that_other_users_can_write_is_refused_until_they_cannot() {
    let bed = MountFolders::new();
    let service = bed.mount();
    shell(&bed.at("mnt"), "echo mine > file; sync file");
    bed.kill(service);
    for mode in [0o620, 0o602] {
        fs::set_permissions(bed.pool(), fs::Permissions::from_mode(mode)).unwrap();
        let refused = bed.tidegate("recover", &bed.pool());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("lets other users write to it"), "{said}");
    }
    fs::set_permissions(bed.pool(), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(bed.tidegate("recover", &bed.pool()).status.success());
    assert_eq!(fs::read(bed.at("source").join("file")).unwrap(), b"mine\n");
}

/// `mount` in a mount namespace of its own, with an empty `/dev` that `line` fills first.
fn with_own_devices(line: &str, mount: &Command) -> Command {
    let mut own = Command::new("unshare");
    own.args(["--mount", "sh", "-ec", &format!("mount -t tmpfs none /dev; {line} \"$@\""), "sh"]);
    own.arg(mount.get_program()).args(mount.get_args());
    own
}

#[test]
fn without_the_device_the_reason_names_the_remedy() {
    let bed = MountFolders::new();
    let hidden = with_own_devices("exec", &mount(&bed.at("source"), &bed.at("mnt"), &bed.at("pool")));
    assert_mount_refused(&bed, hidden, ENVIRONMENT, &["/dev/fuse cannot be opened", "modprobe fuse"]);
}

/// `command` in a mount namespace of its own, with an empty `/proc`.
fn without_proc(command: &Command) -> Command {
    let mut own = Command::new("unshare");
    own.args(["--mount", "sh", "-ec", "mount -t tmpfs none /proc; exec \"$@\"", "sh"]);
    own.arg(command.get_program()).args(command.get_args());
    own
}

#[test]
fn without_proc_the_reason_names_it() {
    let bed = MountFolders::new();
    let blind = without_proc(&mount(&bed.at("source"), &bed.at("mnt"), &bed.at("pool")));
    assert_mount_refused(&bed, blind, ENVIRONMENT, &["a mount needs /proc", "mount -t proc proc /proc"]);
    let mut service = bed.mount();
    for (command, doing) in [("umount", "unmounting needs /proc"), ("recover", "recovery needs /proc")] {
        let mut asked = Command::new(program());
        asked.arg(command).arg(if command == "umount" { bed.at("mnt") } else { bed.pool() });
        let refused = without_proc(&asked).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(ENVIRONMENT) && said.contains(doing), "{said}");
    }
    assert!(bed.tidegate("umount", &bed.at("mnt")).status.success());
    assert!(service.wait().unwrap().success());
}

#[test]
fn without_fusermount3_only_root_mounts() {
    let bed = MountFolders::new();
    let (source, mnt) = (bed.at("source"), bed.at("mnt"));
    for folder in [source.parent().unwrap(), &source, &mnt] {
        chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let line = format!(
        "mknod -m 666 /dev/fuse c 10 229; mkdir -m 1777 /dev/shm; \
         exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups env PATH=/nowhere"
    );
    let alone = with_own_devices(&line, &mount(&source, &mnt, &bed.at("pool")));
    assert_mount_refused(&bed, alone, ENVIRONMENT, &["fusermount3 is not installed", "package fuse3"]);
}

/// A name of 255 bytes that has every value a name may have from `first` on.
fn name_from(first: u8) -> Vec<u8> {
    (0..=254u8)
        .map(|step| first.wrapping_add(step))
        .map(|byte| if matches!(byte, 0 | b'/') { b'_' } else { byte })
        .collect()
}

#[test]
fn names_of_255_bytes_of_any_value_work_and_survive_a_kill() {
    let bed = MountFolders::new();
    let service = bed.mount();
    let names = [1, 77, 200].map(name_from);
    for name in &names {
        let path = bed.at("mnt").join(OsStr::from_bytes(name));
        fs::write(&path, name).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
    }
    let too_long = fs::write(bed.at("mnt").join("n".repeat(256)), "");
    assert_eq!(too_long.unwrap_err().raw_os_error(), Some(rustix::io::Errno::NAMETOOLONG.raw_os_error()));
    bed.kill(service);
    assert!(bed.tidegate("recover", &bed.pool()).status.success());
    for name in &names {
        assert_eq!(&fs::read(bed.at("source").join(OsStr::from_bytes(name))).unwrap(), name);
    }
}

#[test]
fn ten_thousand_files_may_be_open_and_a_directory_may_have_as_many() {
    const FILES: u64 = 10_000;
    let bed = MountFolders::new();
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let service = bed.mount();
    let path = |number: u64| bed.at("mnt").join(format!("file-{number}"));
    let open: Vec<_> = (0..FILES).map(|number| File::create_new(path(number)).unwrap()).collect();
    for (number, file) in (0..).zip(&open).step_by(97) {
        file.write_all_at(&u64::to_le_bytes(number), 0).unwrap();
        file.sync_all().unwrap();
    }
    assert_eq!(fs::read_dir(bed.at("mnt")).unwrap().count() as u64, FILES);
    drop(open);
    end(&bed, service);
    assert_eq!(fs::read(bed.at("source").join("file-97")).unwrap(), 97u64.to_le_bytes());
}

#[test]
fn a_thousand_processes_may_write_and_sync_at_once() {
    let bed = MountFolders::new();
    let service = bed.mount();
    let line = "for i in $(seq 1000); do (echo $i > f$i && sync f$i) & done; wait; cat f* | wc -l";
    let mut shell = Command::new("sh");
    let counted = shell.args(["-c", line]).current_dir(bed.at("mnt")).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&counted.stdout).trim(), "1000", "{counted:?}");
    end(&bed, service);
    assert_eq!(fs::read_dir(bed.at("source")).unwrap().count(), 1000);
}
