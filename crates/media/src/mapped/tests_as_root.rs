//! States that only a test with root's powers can bring about: a full file system, one that is
//! read-only, another user's file.
//!
//! Without those powers (no CAP_SYS_ADMIN) these tests pass without having tested;
//! `cargo xtask test` runs as root in CI.

use super::*;
use crate::tiny::{TINY_BYTES, Tiny};
use rustix::mount::{MountFlags, mount_remount};
use std::fs;

#[test]
fn a_sparse_file_on_a_full_file_system_seals_at_the_store_that_finds_no_room() {
    let Some(tiny) = Tiny::mounted() else { return };
    let region = MappedRegion::create(&tiny.file(), 4 * TINY_BYTES, Allocation::Sparse).expect("needs no room yet");
    let other = MappedRegion::anonymous(4096).expect("maps");
    let lost = (0..4 * TINY_BYTES).step_by(4096).find(|&at| {
        region.stream(at, &[7; 4096]);
        region.fence().is_err()
    });
    let lost = lost.expect("1 MiB holds no 4 MiB");
    assert_eq!(region.fence(), Err(Sealed::NoRoom { at: lost }));
    assert!((TINY_BYTES / 2..=TINY_BYTES).contains(&lost), "the first {lost} bytes found room");
    let mut out = [0; 4096];
    region.read(lost - 4096, &mut out).expect("what found room reads");
    assert_eq!(out, [7; 4096]);
    // tmpfs needs a page even to show a hole in a mapping, and has none.
    let mut across = [1; 8192];
    region.read(lost - 4096 - 8, &mut across).expect("a hole reads");
    assert!(across[..4104] == [7; 4104] && across[4104..] == [0; 4088]);
    assert_eq!(region.load_u64(2 * TINY_BYTES), Ok(0));
    region.file().expect("a file").set_len(3 * TINY_BYTES).expect("shorter");
    assert!(region.read(3 * TINY_BYTES, &mut out).is_err(), "what was cut off is no hole");
    mount_remount(tiny.0.path(), MountFlags::empty(), c"size=8M").expect("remounts");
    assert_eq!(region.fence(), Err(Sealed::NoRoom { at: lost }), "what was lost stays lost");
    other.fence().expect("no other region is concerned");
}

#[test]
fn a_full_file_system_refuses_a_full_file_at_its_creation() {
    let Some(tiny) = Tiny::mounted() else { return };
    let error = MappedRegion::create(&tiny.file(), 4 * TINY_BYTES, Allocation::Full).err().expect("refused");
    assert!(matches!(error, MapError::NoSpace { len, .. } if len == 4 * TINY_BYTES), "{error}");
    assert!(!tiny.file().exists(), "a failed creation removes its file");
}

#[test]
fn a_read_only_file_system_is_named_as_such() {
    let Some(tiny) = Tiny::mounted() else { return };
    drop(MappedRegion::create(&tiny.file(), 4096, Allocation::Full).expect("creates"));
    mount_remount(tiny.0.path(), MountFlags::RDONLY, c"").expect("remounts");
    let error = MappedRegion::open(&tiny.file(), Access::ReadWrite).err().expect("refused");
    assert!(matches!(error, MapError::ReadOnlyFile { .. }), "{error}");
    let error = MappedRegion::create(&tiny.0.path().join("new"), 4096, Allocation::Full).err().expect("refused");
    assert!(matches!(error, MapError::ReadOnlyFile { .. }), "{error}");
    MappedRegion::open(&tiny.file(), Access::Private).expect("a private copy needs no right to write");
}

#[test]
fn somebody_elses_file_is_refused_for_want_of_permission() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("region");
    drop(MappedRegion::create(&path, 4096, Allocation::Full).expect("creates"));
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("opens the folder");
    let errors = as_nobody(move || {
        let new = path.with_file_name("new");
        let open = [Access::ReadWrite, Access::Private].map(|access| MappedRegion::open(&path, access).err());
        open.into_iter().chain([MappedRegion::create(&new, 4096, Allocation::Full).err()]).collect::<Vec<_>>()
    });
    for error in errors.into_iter().flatten() {
        assert!(matches!(error, Some(MapError::Permission { .. })), "{error:?}");
    }
}

/// Runs `act` in a thread to which files look as they do to the user nobody; None without the power
/// to do so.
fn as_nobody<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    const NOBODY: libc::uid_t = 65534;
    let in_thread = move || {
        // SAFETY: changes the calling thread's identity towards file systems only, and that thread
        // ends here.
        let changed = unsafe {
            libc::setfsuid(NOBODY);
            libc::setfsuid(NOBODY) == NOBODY.cast_signed()
        };
        changed.then(act)
    };
    std::thread::spawn(in_thread).join().expect("the thread does not panic")
}
