//! What the commands beside a mount say of it: `status`, `umount`, `check`, `list`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use tidegate_layout::disk_cache::SUPERBLOCK_COPIES_AT;
use tidegate_trials::mount_folders::{MountFolders, shell, tidegate};
use tidegate_trials::mounted::kill_all;
use tidegate_trials::served::program;

const REFUSED: i32 = 3;
const IN_USE: i32 = 4;
const ENVIRONMENT: i32 = 5;

/// The only line of JSON on stdout.
fn answer(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn status(path: &Path) -> Value {
    answer(&tidegate("status", path, &["--json"]))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn status_counts_files_by_state_syncs_with_what_they_save_and_reads_by_tier() {
    let bed = MountFolders::new();
    fs::write(bed.at("source").join("below"), [1; 4096]).unwrap();
    let mut service = bed.mount();
    let mnt = bed.at("mnt");
    shell(&mnt, "cat below > /dev/null; echo one > file; sync file; echo two >> file; sync file; mkdir d");
    let open = File::open(mnt.join("below")).unwrap();
    let by_pool = status(&bed.pool());
    assert_eq!(by_pool["files"]["open"], 1);
    assert_eq!(by_pool["files"]["retained"], 0);
    assert_eq!((&by_pool["syncs"], &by_pool["synced_bytes"]), (&2.into(), &8.into()));
    assert_eq!(by_pool["read_below_bytes"], 4096);
    assert!(by_pool["saved_us_per_sync"].is_f64() && by_pool["per_second"]["syncs"].is_f64(), "{by_pool}");
    assert_eq!(by_pool["obstacle"], Value::Null);
    open.sync_all().unwrap();
    let requests = |status: &Value| status["requests"].as_u64().unwrap();
    assert!(requests(&by_pool) > 0 && requests(&status(&bed.pool())) > requests(&by_pool), "a sync is a request");
    for directory in [&mnt, &bed.at("source")] {
        assert_eq!(status(directory)["pool"], *bed.pool().to_string_lossy(), "{}", directory.display());
    }
    drop(open);
    assert_eq!(bed.tidegate("umount", &mnt).status.code(), Some(0));
    assert!(service.wait().unwrap().success());
    let gone = bed.tidegate("status", &bed.pool());
    assert!(!gone.status.success() && said(&gone).contains("no file service has the pool"), "{gone:?}");
}

/// A script runs the next command as soon as `umount` has ended, which waits for SOURCE.
#[test]
fn who_finds_source_free_after_a_mount_finds_its_pool_free() {
    let bed = MountFolders::new();
    let is_free = |path: &Path| flock(File::open(path).unwrap(), FlockOperation::NonBlockingLockExclusive).is_ok();
    for round in 0..3 {
        let mut service = bed.mount();
        let mnt = bed.at("mnt");
        shell(&mnt, "head -c 8M /dev/zero > file; sync file");
        thread::scope(|scope| {
            let umount = scope.spawn(|| bed.tidegate("umount", &mnt));
            while !is_free(&bed.at("source")) {
                thread::yield_now();
            }
            assert!(is_free(&bed.pool()), "round {round}");
            assert_eq!(umount.join().unwrap().status.code(), Some(0));
        });
        assert!(service.wait().unwrap().success());
    }
}

#[test]
fn umount_names_other_places_where_the_mount_is_and_waits_for_them() {
    let bed = MountFolders::new();
    let mut service = bed.mount();
    let (mnt, place) = (bed.at("mnt"), bed.at("place"));
    fs::create_dir(&place).unwrap();
    shell(&mnt, "mkdir inside; echo one > inside/file; sync inside/file");
    rustix::mount::mount_bind(mnt.join("inside"), &place).unwrap();
    let mut umount = Command::new(program());
    let mut umount = umount.arg("umount").arg(&mnt).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(umount.stderr.take().unwrap()).lines().map(Result::unwrap);
    let told = lines.find(|line| line.contains("mounted elsewhere too")).unwrap();
    assert!(told.contains(&*place.to_string_lossy()), "{told}");
    assert_eq!(fs::read(place.join("file")).unwrap(), b"one\n");
    rustix::mount::unmount(&place, rustix::mount::UnmountFlags::empty()).unwrap();
    lines.for_each(drop);
    assert!(umount.wait().unwrap().success() && service.wait().unwrap().success());
}

#[test]
fn another_user_is_told_that_the_mount_is_not_theirs() {
    const NOBODY: u32 = 65534;
    let bed = MountFolders::new();
    let mut service = bed.mount();
    let mnt = bed.at("mnt");
    shell(&mnt, "echo one > file; chmod 755 .");
    fs::set_permissions(mnt.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    // A copy where that user may run it.
    let copy = bed.at("tidegate");
    shell(Path::new("/"), &format!("cp {} {}", program().display(), copy.display()));
    for (command, path) in [("status", mnt.clone()), ("explain", mnt.join("file"))] {
        let asked = Command::new(&copy).arg(command).arg(&path).uid(NOBODY).gid(NOBODY).output().unwrap();
        assert!(said(&asked).contains("ask as the user who mounted it, or as root"), "{command}: {asked:?}");
        assert_eq!(asked.status.code(), Some(5), "{command}");
    }
    assert_eq!(bed.tidegate("umount", &mnt).status.code(), Some(0));
    assert!(service.wait().unwrap().success());
}

#[test]
fn explain_tells_where_bytes_lie_and_what_moves_them() {
    let bed = MountFolders::new();
    fs::write(bed.at("source").join("below"), [1; 4096]).unwrap();
    let mut service = bed.mount();
    let mnt = bed.at("mnt");
    let ranges = |file: &Path, options: &[&str]| -> Vec<(u64, u64, String)> {
        let told = answer(&tidegate("explain", file, &[&["--json"], options].concat()));
        let range = |told: &Value| {
            let [from, until] = ["from", "until"].map(|end| told[end].as_u64().unwrap());
            (from, until, told["tier"].as_str().unwrap().to_owned())
        };
        told["ranges"].as_array().unwrap().iter().map(range).collect()
    };
    assert_eq!(ranges(&mnt.join("below"), &[]), [(0, 4096, "source".to_owned())]);
    fs::write(mnt.join("file"), [1; 8192]).unwrap();
    assert_eq!(ranges(&mnt.join("file"), &[]), [(0, 8192, "dram".to_owned())]);
    shell(&mnt, "sync file");
    assert!(ranges(&mnt.join("file"), &[]).iter().all(|(.., tier)| tier.starts_with("pool")));
    assert!(bed.tidegate("flush", &bed.pool()).status.success());
    File::options().write(true).open(mnt.join("file")).unwrap().write_all_at(&[2; 100], 50).unwrap();
    for file in [mnt.join("file"), bed.at("source").join("file")] {
        let written = ranges(&file, &["--range", "0..1K"]);
        let clean = |from, until| (from, until, "pool-clean".to_owned());
        assert_eq!(written, [clean(0, 50), (50, 150, "dram".to_owned()), clean(150, 1024)], "{}", file.display());
    }
    // A bind mount of a folder shows other files at the same paths.
    shell(&mnt, "mkdir bound; printf 12345 >bound/file; sync bound/file");
    let place = bed.at("place");
    fs::create_dir(&place).unwrap();
    rustix::mount::mount_bind(mnt.join("bound"), &place).unwrap();
    assert_eq!(answer(&tidegate("explain", &place.join("file"), &["--json"]))["size"], 5);
    rustix::mount::unmount(&place, rustix::mount::UnmountFlags::empty()).unwrap();
    let text = tidegate("explain", &mnt.join("file"), &[]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("range      50..150 dram") && text.contains("a sync brings it to the pool"), "{text}");
    for (file, options, reason) in [
        (mnt.join("none"), &[][..], "No such file"),
        (mnt.clone(), &[], "no file of a mount"),
        (Path::new("/etc/hostname").to_owned(), &[], "no file of a mount"),
        (mnt.join("file"), &["--range", "5..5"], "no range of bytes"),
        (mnt.join("file"), &["--range", "all"], "no range of bytes"),
    ] {
        let refused = tidegate("explain", &file, options);
        assert!(!refused.status.success() && said(&refused).contains(reason), "{refused:?}");
    }
    shell(&mnt, "mkdir folder");
    assert!(said(&tidegate("explain", &mnt.join("folder"), &[])).contains("is no regular file"));
    assert_eq!(bed.tidegate("umount", &mnt).status.code(), Some(0));
    assert!(service.wait().unwrap().success());
}

#[test]
fn a_file_that_others_changed_meanwhile_is_not_written_over_and_umount_says_so() {
    let bed = MountFolders::new();
    let mut service = bed.mount();
    let mnt = bed.at("mnt");
    // Write-back may be faster than the change: then another file is tried.
    let changed_first = |number: &u32| {
        let name = format!("file{number}");
        shell(&mnt, &format!("echo first > {name}; sync {name}"));
        assert!(bed.tidegate("flush", &bed.pool()).status.success());
        // The file is closed by now; to write it again, room is reserved below.
        shell(&mnt, &format!("printf SYNCED | dd of={name} conv=notrunc,fsync status=none"));
        shell(&bed.at("source"), &format!("echo by others >> {name}; sync {name}"));
        fs::read(bed.at("source").join(name)).unwrap() == b"first\nby others\n"
    };
    let name = format!("file{}", (0..).find(changed_first).unwrap());
    let below = bed.at("source").join(&name);
    let changed = fs::read(&below).unwrap();
    assert_eq!(fs::read(mnt.join(&name)).unwrap(), b"SYNCED");
    let refused = bed.tidegate("umount", &mnt);
    assert_eq!(refused.status.code(), Some(REFUSED), "{refused:?}");
    assert!(said(&refused).contains("may keep data that files in SOURCE lack"), "{refused:?}");
    assert!(!service.wait().unwrap().success());
    let recovered = bed.tidegate("recover", &bed.pool());
    assert_eq!(recovered.status.code(), Some(REFUSED), "{recovered:?}");
    assert_eq!(fs::read(&below).unwrap(), changed);
    assert!(tidegate("recover", &bed.pool(), &["--force"]).status.success());
    assert_eq!(fs::read(&below).unwrap(), changed);
}

#[test]
fn a_watched_status_tells_what_was_added() {
    let bed = MountFolders::new();
    let mut service = bed.mount();
    shell(&bed.at("mnt"), "echo one > file; sync file");
    let mut watch = Command::new(program());
    watch.arg("status").arg(bed.pool()).args(["--watch", "--json"]);
    let mut watch = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert_eq!((&first["since"], &first["syncs"]), (&"start".into(), &1.into()));
    shell(&bed.at("mnt"), "echo two > file; sync file; echo three > file; sync file");
    let mut added = 0;
    while added < 2 {
        let answer = next();
        assert_eq!(answer["since"], "last");
        added += answer["syncs"].as_u64().unwrap();
    }
    assert_eq!(added, 2);
    assert_eq!(bed.tidegate("umount", &bed.at("mnt")).status.code(), Some(0));
    assert!(service.wait().unwrap().success());
    assert!(!watch.wait().unwrap().success(), "it ends with the mount");
}

#[test]
fn umount_names_the_program_that_uses_the_mount_and_lazily_waits_for_it() {
    let bed = MountFolders::new();
    let mut service = bed.mount();
    let mnt = bed.at("mnt");
    fs::write(mnt.join("used"), "").unwrap();
    let used = File::open(mnt.join("used")).unwrap();
    let mut user = Command::new("sleep").arg("1000").stdin(used).spawn().unwrap();
    let refused = bed.tidegate("umount", &mnt);
    assert_eq!(refused.status.code(), Some(IN_USE), "{refused:?}");
    let named = format!("sleep ({}) {}", user.id(), mnt.join("used").display());
    assert!(said(&refused).contains(&named), "{refused:?}");
    let mut lazy = Command::new(program());
    let mut lazy = lazy.args(["umount", "--lazy"]).arg(&mnt).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(lazy.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains(&named));
    assert_eq!(lazy.try_wait().unwrap(), None);
    user.kill().unwrap();
    user.wait().unwrap();
    assert!(lazy.wait().unwrap().success() && service.wait().unwrap().success());
}

#[test]
fn umount_finds_a_mount_by_any_path_to_it_dead_or_not() {
    let bed = MountFolders::new();
    let mnt = bed.at("mnt");
    std::os::unix::fs::symlink("mnt", bed.at("link")).unwrap();
    let absolute = format!("/{}", mnt.display());
    let mut is_dead = false;
    for path in ["mnt/", "./mnt/", &absolute, "source/../mnt", "link", "link/"] {
        let mut service = bed.mount();
        if is_dead {
            kill_all(&mut service);
        }
        let umount = Command::new(program()).arg("umount").arg(path).current_dir(bed.at(".")).output().unwrap();
        // Nobody knows what a killed service left in the pool.
        assert_eq!(umount.status.code(), Some(if is_dead { REFUSED } else { 0 }), "{path}: {umount:?}");
        assert!(!bed.is_mounted(), "{path}");
        assert!(is_dead || service.wait().unwrap().success());
        is_dead = !is_dead;
    }
}

#[test]
fn the_mount_of_another_user_is_named_as_such() {
    let bed = MountFolders::new();
    let service = bed.mount();
    let umount = "exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    fs::set_permissions(bed.at("."), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", umount, "sh"]).arg(program()).arg("umount").arg(bed.at("mnt"));
    let refused = command.env("HOME", "/").output().unwrap();
    fs::set_permissions(bed.memory(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", umount, "sh"]).arg(program()).arg("status").arg(bed.pool());
    let unanswered = command.env("HOME", "/").output().unwrap();
    bed.kill(service);
    assert_eq!(unanswered.status.code(), Some(ENVIRONMENT), "{unanswered:?}");
    assert!(said(&unanswered).contains("another user's") && said(&unanswered).contains("as root"), "{unanswered:?}");
    assert_eq!(refused.status.code(), Some(REFUSED), "{refused:?}");
    assert!(said(&refused).contains("another user's"), "{refused:?}");
}

#[test]
fn check_and_recover_of_a_pool_in_use_name_no_option_that_they_lack() {
    let bed = MountFolders::new();
    let service = bed.mount();
    for command in ["check", "recover"] {
        let refused = bed.tidegate(command, &bed.pool());
        assert_eq!(refused.status.code(), Some(IN_USE), "{refused:?}");
        let next = said(&refused);
        assert!(next.contains("tidegate status") && !next.contains("--pool"), "{next}");
    }
    bed.kill(service);
}

#[test]
fn status_of_what_is_no_mount_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = tidegate("status", &folder.path().join("absent"), &[]);
    assert_eq!(refused.status.code(), Some(REFUSED), "{refused:?}");
}

/// Overwrites bytes of a file, and returns those of before.
fn damage(path: &Path, at: u64) -> [u8; 64] {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut before = [0; 64];
    file.read_exact_at(&mut before, at).unwrap();
    file.write_all_at(&[0xa5; 64], at).unwrap();
    before
}

fn check(pool: &Path) -> (Option<i32>, Value) {
    let checked = tidegate("check", pool, &["--json"]);
    (checked.status.code(), serde_json::from_slice(&checked.stdout).unwrap_or(Value::Null))
}

#[test]
fn check_counts_what_a_pool_has_and_names_each_broken_rule() {
    let bed = MountFolders::new();
    let service = bed.mount();
    shell(&bed.at("mnt"), "echo one > file; sync file; echo two > other; sync other");
    let busy = bed.tidegate("check", &bed.pool());
    assert_eq!(busy.status.code(), Some(IN_USE), "{busy:?}");
    bed.kill(service);
    let (code, sound) = check(&bed.pool());
    assert_eq!((code, &sound["sound"], &sound["source"]), (Some(0), &true.into(), &json(&bed.at("source"))), "{sound}");
    assert!(sound["files"].as_u64() <= Some(2) && sound["entries"].as_u64() <= Some(2), "{sound}");
    let former = damage(&bed.pool(), SUPERBLOCK_COPIES_AT[0]);
    let (code, damaged) = check(&bed.pool());
    assert_eq!((code, damaged["findings"].as_array().unwrap().len()), (Some(REFUSED), 1), "{damaged}");
    assert_eq!(damaged["findings"][0]["offset"].as_u64().unwrap() / 4096, SUPERBLOCK_COPIES_AT[0] / 4096);
    damage(&bed.pool(), SUPERBLOCK_COPIES_AT[1]);
    let refused = bed.tidegate("check", &bed.pool());
    assert_eq!(refused.status.code(), Some(REFUSED), "{refused:?}");
    assert!(said(&refused).contains("keep a copy of the pool"), "{refused:?}");
    let pool = File::options().write(true).open(bed.pool()).unwrap();
    pool.write_all_at(&former, SUPERBLOCK_COPIES_AT[0]).unwrap();
    assert!(bed.tidegate("recover", &bed.pool()).status.success(), "one superblock is enough");
}

fn json(path: &Path) -> Value {
    path.to_string_lossy().into()
}

#[test]
fn list_shows_mounts_and_what_killed_ones_left() {
    let bed = MountFolders::new();
    let listed = || {
        answer(&Command::new(program()).env("XDG_STATE_HOME", bed.memory()).args(["list", "--json"]).output().unwrap())
    };
    let has =
        |list: &Value, key: &str, value: &Path| list.as_array().unwrap().iter().any(|item| item[key] == json(value));
    fs::create_dir(bed.memory().join("tidegate")).unwrap();
    let pool = bed.memory().join("tidegate/mount.pool");
    let service = bed.mount_with(&pool, &[]);
    shell(&bed.at("mnt"), "echo one > file; sync file");
    let now = listed();
    assert!(has(&now["mounts"], "pool", &pool) && has(&now["mounts"], "mountpoint", &bed.at("mnt")), "{now}");
    assert!(!has(&now["leftovers"]["mount_pools"], "pool", &pool), "{now}");
    bed.kill(service);
    let later = listed();
    assert!(!has(&later["mounts"], "pool", &pool), "{later}");
    assert!(has(&later["leftovers"]["mount_pools"], "source", &bed.at("source")), "{later}");
    assert!(!later["leftovers"]["memory"].as_array().unwrap().is_empty(), "{later}");
    assert!(bed.tidegate("recover", &pool).status.success());
    assert!(!has(&listed()["leftovers"]["mount_pools"], "pool", &pool));
}
