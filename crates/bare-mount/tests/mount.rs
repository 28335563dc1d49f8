//! A mount as programs see it. Wants root and `/dev/fuse`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::thread;
use tidegate_bare_mount::Files;
use tidegate_fuse::Features;
use tidegate_mount_transport::{MountAt, MountError, Serving, Unmount, mount, serve, unmount};

const WANTED: Features = Features::ASYNC_READ.with(Features::ATOMIC_O_TRUNC).with(Features::READDIRPLUS);

fn at(mountpoint: &Path) -> MountAt {
    MountAt { mountpoint: mountpoint.to_owned(), source: "bare, for tests".into(), covers_files: false }
}

/// Runs `test` below a mount that `threads` threads serve.
fn with_mount(threads: usize, test: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let mountpoint = folder.path().canonicalize().unwrap();
    let mounted = mount(&at(&mountpoint), WANTED).unwrap();
    let threads = NonZeroUsize::new(threads).unwrap();
    let files = Files::in_memory();
    thread::scope(|scope| {
        let serving =
            Serving { device: &mounted.device, session: mounted.session, replies: None, threads, busy_poll: true };
        let server = scope.spawn(move || serve(&serving, &files));
        let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&mountpoint)));
        // What another test forks has this test's files open until it runs its own program.
        while let Err(error) = unmount(&mountpoint, if tested.is_ok() { Unmount::Now } else { Unmount::Lazily }) {
            assert!(matches!(error, MountError::Busy { .. }), "{error}");
            thread::yield_now();
        }
        assert_eq!(server.join().unwrap(), Ok(()));
        tested.unwrap();
    });
    assert!(fs::read_dir(&mountpoint).unwrap().next().is_none());
}

#[test]
fn programs_make_read_rename_and_remove_files() {
    with_mount(1, |root| {
        fs::create_dir(root.join("d")).unwrap();
        let data: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
        fs::write(root.join("d/a"), &data).unwrap();
        assert_eq!(fs::read(root.join("d/a")).unwrap(), data);
        fs::rename(root.join("d/a"), root.join("b")).unwrap();
        assert_eq!(fs::metadata(root.join("b")).unwrap().len(), 3_000_000);
        assert_eq!(fs::metadata(root.join("d/a")).unwrap_err().kind(), ErrorKind::NotFound);
        fs::set_permissions(root.join("b"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(root.join("b")).unwrap().permissions().mode(), 0o100_640);
        assert_eq!(fs::remove_dir(root).unwrap_err().kind(), ErrorKind::ResourceBusy);
        fs::remove_file(root.join("b")).unwrap();
        fs::remove_dir(root.join("d")).unwrap();
        assert!(fs::read_dir(root).unwrap().next().is_none());
    });
}

#[test]
fn a_directory_of_many_entries_is_listed_whole() {
    with_mount(2, |root| {
        let name = |number| format!("{number:0200}");
        (0..1000).for_each(|number| fs::write(root.join(name(number)), b"x").unwrap());
        let mut listed: Vec<_> =
            fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        listed.sort();
        assert_eq!(listed, (0..1000).map(name).collect::<Vec<_>>());
    });
}

#[test]
fn several_programs_are_served_at_once() {
    with_mount(4, |root| {
        thread::scope(|scope| {
            for client in 0..8_u8 {
                scope.spawn(move || {
                    let path = root.join(format!("f{client}"));
                    fs::write(&path, [client; 10_000]).unwrap();
                    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                    for at in 0..100 {
                        file.write_all_at(&[client + 1; 100], at * 100).unwrap();
                        file.sync_data().unwrap();
                    }
                    assert_eq!(fs::read(&path).unwrap(), [client + 1; 10_000]);
                });
            }
        });
    });
}

#[test]
fn a_mountpoint_that_does_not_fit_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let told = |path: &Path| mount(&at(path), WANTED).unwrap_err();
    let missing = folder.path().join("missing");
    assert!(matches!(told(&missing), MountError::Unreadable { .. }));
    fs::write(folder.path().join("file"), b"").unwrap();
    assert!(matches!(told(&folder.path().join("file")), MountError::NotDirectory { .. }));
    assert!(matches!(told(folder.path()), MountError::NotEmpty { .. }));
    assert!(matches!(unmount(&missing, Unmount::Now).unwrap_err(), MountError::NotMounted { .. }));
}

#[test]
fn a_mountpoint_of_ours_is_not_mounted_twice_and_a_busy_one_stays() {
    with_mount(1, |root| {
        let told = mount(&at(root), WANTED).unwrap_err();
        assert!(matches!(&told, MountError::AlreadyMounted { source_name, .. } if source_name == "bare, for tests"));
        let open = fs::File::create(root.join("a")).unwrap();
        assert!(matches!(unmount(root, Unmount::Now).unwrap_err(), MountError::Busy { .. }));
        drop(open);
    });
}

#[test]
fn a_mount_without_its_server_is_replaced_and_nothing_of_it_is_left() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        drop(mount(&at(folder.path()), WANTED).unwrap());
        let answer = fs::metadata(folder.path()).unwrap_err();
        assert_eq!(answer.kind(), ErrorKind::NotConnected);
    }
    unmount(folder.path(), Unmount::Lazily).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
