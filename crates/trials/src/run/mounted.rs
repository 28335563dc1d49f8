//! A file system of a trial's own: a copy of its image is the state of a disk when the power fails.

use crate::artefacts::run;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes an empty ext4 of so many bytes in the file `image`.
pub fn empty_file_system(image: &Path, bytes: u64) {
    File::create(image).and_then(|file| file.set_len(bytes)).expect("an image can be made");
    run(Command::new("mkfs.ext4").arg("-q").arg(image), "e2fsprogs").unwrap_or_else(|error| panic!("{error}"));
}

/// A file system in a file, mounted. Dropping it unmounts it, as soon as nobody uses it.
#[derive(Debug)]
pub struct Mounted {
    point: PathBuf,
}

impl Mounted {
    /// Mounts `image` at the folder `point`.
    pub fn new(image: &Path, point: &Path) -> Mounted {
        let mut mount = Command::new("mount");
        run(mount.args(["-o", "loop"]).args([image, point]), "mount").unwrap_or_else(|error| panic!("{error}"));
        Mounted { point: point.to_owned() }
    }

    /// Unmounts it: the image has everything then.
    pub fn unmount(self) {
        run(Command::new("umount").arg(&self.point), "mount").unwrap_or_else(|error| panic!("{error}"));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Whoever was killed may not be quite gone.
        let _ = Command::new("umount").args(["--lazy", "--quiet"]).arg(&self.point).status();
    }
}
