//! A user who is not root mounts by `fusermount3`. Wants root, `/dev/fuse` and the package fuse3.
//!
//! The test runs in a mount namespace of its own, in which the device is open to every user, as it
//! is on a machine with udev.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

/// The user and group `nobody`.
const NOBODY: u32 = 65534;

/// As root: opens the device to all, and goes on as another user with the second script.
const AS_ROOT: &str = r#"
    mknod "$1/fuse" c 10 229 && chmod 666 "$1/fuse" && mount --bind "$1/fuse" /dev/fuse || exit 2
    exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "$2" sh "$1"
"#;

/// As the user: each line of output is compared.
const AS_USER: &str = r#"
    cd "$1"
    ./bare-mount mnt &
    for wait in $(seq 1000); do grep -q " $1/mnt fuse.tidegate " /proc/mounts && break; sleep 0.01; done
    grep " $1/mnt " /proc/mounts | grep -o "nosuid,nodev.*user_id=65534.*default_permissions"
    echo hello > mnt/a && cat mnt/a
    ./bare-mount mnt 2>&1 | grep -o "is mounted at .* already"
    exec 3< mnt/a
    ./bare-mount mnt --unmount 2>&1 | grep -o "programs use files below mnt"
    exec 3<&-
    ./bare-mount "$1/mnt" --unmount && wait && echo unmounted
    ./bare-mount "$1/mnt" --unmount 2>&1 | grep -o "nothing is mounted"
"#;

fn run(folder: &Path) -> String {
    let unshare = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", AS_ROOT, "sh"])
        .arg(folder)
        .arg(AS_USER)
        .output()
        .unwrap();
    assert!(unshare.status.success(), "{unshare:?}");
    String::from_utf8(unshare.stdout).unwrap()
}

#[test]
fn an_ordinary_user_mounts_uses_and_unmounts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_bare-mount"), path.join("bare-mount")).unwrap();
    fs::create_dir(path.join("mnt")).unwrap();
    chown(path.join("mnt"), Some(NOBODY), Some(NOBODY)).unwrap();
    let already = format!("is mounted at {}/mnt already", path.display());
    let told = run(&path);
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines[0], "nosuid,nodev,relatime,user_id=65534,group_id=65534,default_permissions");
    let expected = ["hello", &already, "programs use files below mnt", "unmounted", "nothing is mounted"];
    assert_eq!(lines[1..], expected);
}
