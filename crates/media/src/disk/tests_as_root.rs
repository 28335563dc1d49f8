//! Disks that only root can make: loop devices, full file systems.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use crate::disk::users::quiet_user_of_device;
use crate::error::Error;
use crate::tiny::Tiny;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

/// What to do about a failure to mount or attach.
const AS_ROOT: &str = "run this test as root: `cargo xtask test` says how";

/// A loop device over a file, detached at the end.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &Path) -> Loop {
        let made = Command::new("losetup").args(["--find", "--show", "--partscan"]).arg(file).output();
        let made = made.expect("losetup is there: apt-get install mount");
        assert!(made.status.success(), "{AS_ROOT}: {made:?}");
        Loop(String::from_utf8(made.stdout).unwrap().trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // What stays attached is detached with its last user.
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn a_block_device_is_a_disk() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let device = Loop::over(&file);
    let disk = FileDisk::open(&device.0, DiskAccess::ReadWrite, 4096).unwrap();
    assert_eq!((disk.geometry().blocks, disk.way()), (256, IoMethod::DirectMany));
    assert!(disk.identity().is_known());
    assert!(matches!(FileDisk::open(&device.0, DiskAccess::ReadWrite, 4096), Err(MapError::InUse { .. })));
    let data = aligned_copy(&[9; 3 * 4096]);
    let runs = [4, 100].map(|at| Run { at: Lba(at), data: &data });
    assert_eq!(disk.write_runs(&runs), [Ok(()), Ok(())]);
    disk.write_zeroes(LbaRange { first: Lba(5), blocks: 1 }, Durability::Fua).unwrap();
    disk.discard(LbaRange { first: Lba(100), blocks: 3 }).unwrap();
    disk.flush().unwrap();
    let mut out = vec![1; 3 * 4096];
    disk.read(Lba(4), &mut out).unwrap();
    assert!(
        out[..4096].iter().chain(&out[8192..]).all(|byte| *byte == 9) && out[4096..8192].iter().all(|byte| *byte == 0)
    );
    drop(disk);
    let held = std::fs::read(&file).unwrap();
    assert!(held[4 * 4096..7 * 4096] == out[..], "the file below holds something else");
}

#[test]
fn bad_sectors_are_answered_with_their_bytes_and_the_rest_works() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let device = Loop::over(&file);
    let disk = FileDisk::open(&device.0, DiskAccess::ReadWrite, 4096).unwrap();
    // A loop device answers EIO for what its file does not have any more.
    File::options().write(true).open(&file).unwrap().set_len(1 << 19).unwrap();
    let mut out = vec![0; 4096];
    assert_eq!(disk.read(Lba(200), &mut out), Err(Error::Media(Poison { at: 200 * 4096, len: 4096 })));
    assert_eq!(disk.last_refusal().unwrap().errno, Errno::IO.raw_os_error());
    assert_eq!(disk.read(Lba(100), &mut out), Ok(()));
}

#[test]
fn a_full_file_system_is_answered_with_the_bytes_that_found_no_room() {
    let tiny = Tiny::mounted().expect(AS_ROOT);
    let path = tiny.file();
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let disk = FileDisk::open(&path, DiskAccess::ReadWrite, 4096).unwrap();
    let data = aligned_copy(&vec![3; 64 * 4096]);
    let runs: Vec<_> = (0..8).map(|nth| Run { at: Lba(nth * 64), data: &data }).collect();
    let answers = disk.write_runs(&runs);
    let good = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!((1..=4).contains(&good), "1 MiB has room for four of these: {answers:?}");
    let refused = answers.iter().zip(&runs).filter(|(answer, _)| answer.is_err());
    for (answer, run) in refused {
        let Err(Error::NoRoom(NoRoom { at, len })) = answer else { panic!("{answer:?}") };
        let end = (run.at.0 + 64) * 4096;
        assert!((run.at.0 * 4096..end).contains(at) && at + len == end, "{at} {len}");
    }
    assert_eq!(disk.last_refusal().unwrap().errno, Errno::NOSPC.raw_os_error());
    assert!(disk.last_refusal().unwrap().to_string().contains("No space left"), "{:?}", disk.last_refusal());
    assert_eq!(disk.refusals(), Refusals { writes: 8 - good as u64, ..Refusals::default() });
}

/// What a refusal says of who uses the disk.
fn used_by(path: &Path) -> String {
    match FileDisk::open(path, DiskAccess::ReadWrite, 4096) {
        Err(MapError::InUse { holder, .. }) => holder.to_string(),
        other => panic!("{:?}", other.map(|disk| disk.geometry())),
    }
}

#[test]
fn a_file_that_a_loop_device_shows_is_no_disk_under_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let [file, moved, linked] = ["image", "moved", "linked"].map(|name| folder.path().join(name));
    File::create(&file).unwrap().set_len(1 << 20).unwrap();
    std::fs::hard_link(&file, &linked).unwrap();
    let device = Loop::over(&file);
    let name = device.0.to_str().unwrap().to_owned();
    for path in [&file, &linked] {
        assert_eq!(used_by(path), format!("the loop device {name} shows it"));
    }
    std::fs::rename(&file, &moved).unwrap();
    assert_eq!(used_by(&moved), format!("the loop device {name} shows it"));
    // Who only reads does no harm.
    FileDisk::open(&moved, DiskAccess::ReadOnly, 4096).unwrap();
    drop(device);
    FileDisk::open(&moved, DiskAccess::ReadWrite, 4096).unwrap();
}

#[test]
fn a_mounted_disk_is_told_with_where_it_is_mounted_as_a_file_and_as_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let (file, at) = (folder.path().join("image"), folder.path().join("mounted here"));
    File::create(&file).unwrap().set_len(8 << 20).unwrap();
    std::fs::create_dir(&at).unwrap();
    let device = Loop::over(&file);
    let run = |program: &str, paths: &[&Path]| {
        let ended = Command::new(program).args(paths).output().unwrap();
        assert!(ended.status.success(), "{AS_ROOT}: {program} {ended:?}");
    };
    run("mke2fs", &[Path::new("-q"), &device.0]);
    run("mount", &[&device.0, &at]);
    let told = [&file, &device.0].map(|path| used_by(path));
    run("umount", &[&at]);
    let name = device.0.display();
    let mounted = format!("is mounted at {}", at.display());
    assert_eq!(told, [format!("the loop device {name} shows it, and {name} {mounted}"), format!("it {mounted}")]);
    FileDisk::open(&device.0, DiskAccess::ReadWrite, 4096).unwrap();
}

#[test]
fn users_of_a_device_that_keep_no_one_off_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let device = Loop::over(&file);
    // Programs that look at new devices, as udev does, come in between.
    let until_used_by = |user: Option<String>| {
        while quiet_user_of_device(&device.0).unwrap() != user {
            std::thread::yield_now();
        }
    };
    until_used_by(None);
    {
        let upper = Loop::over(&device.0);
        until_used_by(Some(format!("the loop device {} shows it", upper.0.display())));
    }
    let part = Command::new("addpart").arg(&device.0).args(["1", "8", "64"]).status().unwrap();
    assert!(part.success(), "{AS_ROOT}");
    let named = PathBuf::from(format!("{}p1", device.0.display()));
    // Under another name, as containers have it.
    let other = folder.path().join("disk");
    let number = std::fs::metadata(&named).unwrap().rdev();
    mknodat(CWD, &other, FileType::BlockDevice, Mode::RUSR, number).expect(AS_ROOT);
    for name in [&device.0, &named, &other] {
        let mut program = Command::new("sleep").arg("600").stdin(File::open(name).unwrap()).spawn().unwrap();
        until_used_by(Some(format!("process {} (sleep) has it open", program.id())));
        program.kill().unwrap();
        program.wait().unwrap();
    }
    until_used_by(None);
}
