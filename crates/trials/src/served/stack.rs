//! Clients between a served volume and ordinary programs: nbdfuse makes it a file, a loop device a
//! disk, a mount a file system.

use super::program::until;
use crate::artefacts::run;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tidegate_measure::waiting::comes_true;

/// A served volume as a loop device. Dropped, it is detached, whether or not its server still
/// lives.
#[derive(Debug)]
pub struct Attached {
    fuse: Child,
    folder: PathBuf,
    device: Option<String>,
}

impl Attached {
    /// Attaches the volume behind `socket`, through a file in `folder`, which is made and must be
    /// new or empty.
    pub fn attach(socket: &Path, folder: &Path) -> Attached {
        fs::create_dir_all(folder).expect("a folder for the volume's file");
        let mut fuse = Command::new("nbdfuse");
        fuse.arg(folder).arg("--unix").arg(socket).stdin(Stdio::null());
        let fuse = fuse.spawn().unwrap_or_else(|error| panic!("nbdfuse (apt-get install libnbd-bin): {error}"));
        let mut attached = Attached { fuse, folder: folder.to_owned(), device: None };
        let file = folder.join("nbd");
        until("nbdfuse to mount", || {
            let ended = attached.fuse.try_wait().expect("nbdfuse is a child of this process");
            assert!(ended.is_none(), "nbdfuse ended: {ended:?}");
            file.exists()
        });
        let mut losetup = Command::new("losetup");
        let device = run(losetup.args(["--find", "--show"]).arg(&file), "mount").unwrap_or_else(|e| panic!("{e}"));
        attached.device = Some(device.trim().to_owned());
        attached
    }

    /// The loop device.
    pub fn device(&self) -> &str {
        self.device.as_deref().expect("an attached volume has a device")
    }

    /// Makes an empty ext4 on the device. Its blocks are as large as the volume's: below 512 MiB,
    /// `mkfs.ext4` makes blocks of 1 KiB by itself, a page of a file then lies anywhere between
    /// them, and a kill may tear it.
    pub fn make_ext4(&self) {
        let mut mkfs = Command::new("mkfs.ext4");
        run(mkfs.args(["-q", "-F", "-b", "4096", self.device()]), "e2fsprogs")
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// Checks the ext4 on the device, which may not be mounted, and panics unless it is clean.
    pub fn assert_ext4_clean(&self) {
        let mut fsck = Command::new("e2fsck");
        run(fsck.args(["-f", "-n", self.device()]), "e2fsprogs").unwrap_or_else(|error| panic!("{error}"));
    }

    /// Mounts the device's ext4 at `point`, which is made if need be.
    pub fn mount(self, point: &Path) -> Mounted {
        fs::create_dir_all(point).expect("a folder to mount at");
        let mut mount = Command::new("mount");
        run(mount.args(["-t", "ext4", self.device()]).arg(point), "mount").unwrap_or_else(|error| panic!("{error}"));
        Mounted { point: point.to_owned(), attached: Some(self) }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            quietly(Command::new("losetup").args(["--detach", device]));
            let backing = PathBuf::from(format!("/sys/block/{}/loop/backing_file", device.trim_start_matches("/dev/")));
            // A panic here would abort a test that already panics: what is still busy is left to
            // the lines below.
            comes_true(|| !backing.exists());
        }
        quietly(Command::new("fusermount3").args(["-u", "-z", "-q"]).arg(&self.folder));
        let _ = self.fuse.kill();
        let _ = self.fuse.wait();
    }
}

/// A mounted ext4 on a served volume. Dropped, it is unmounted and detached.
#[derive(Debug)]
pub struct Mounted {
    point: PathBuf,
    attached: Option<Attached>,
}

impl Mounted {
    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Unmounts in good order and returns the device, once no file system uses it: programs with
    /// mounts of their own may keep the file system for a while.
    pub fn unmount(mut self) -> Attached {
        let mut umount = Command::new("umount");
        run(umount.arg(&self.point), "mount").unwrap_or_else(|error| panic!("{error}"));
        let attached = self.attached.take().expect("a mounted volume is attached");
        let exclusive = OFlags::RDONLY | OFlags::EXCL;
        until("the file system's end", || rustix::fs::open(attached.device(), exclusive, Mode::empty()).is_ok());
        attached
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.attached.is_some() && !quietly(Command::new("umount").arg(&self.point)) {
            quietly(Command::new("umount").arg("--lazy").arg(&self.point));
        }
    }
}

/// Runs a step of undoing, which may fail when an earlier part is gone already: whether it did its
/// work.
fn quietly(command: &mut Command) -> bool {
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    ended.is_ok_and(|status| status.success())
}
