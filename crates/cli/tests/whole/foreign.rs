//! Files of other users where this program looks for its own: none is used, and each refusal says
//! whose it is.

use crate::program::{Ended, Folder, NOBODY, Server, ended, json, need_root, run, tidegate};
use rustix::process::Uid;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

fn assert_refused(ended: &Ended, file: &Path, words: &str) {
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    for words in [file.to_str().unwrap(), "is not used", words] {
        assert!(ended.stderr.contains(words), "{words:?}: {}", ended.stderr);
    }
}

fn give_to_nobody(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

#[test]
fn the_default_volume_is_not_made_where_another_user_can_link_it_to_anything() {
    need_root("play another user");
    let folder = Folder::new();
    let (state, victim) = (folder.path("state"), folder.path("victim"));
    fs::create_dir_all(state.join("tidegate")).unwrap();
    fs::write(&victim, "of root").unwrap();
    symlink(&victim, state.join("tidegate/default.pmem.unfinished")).unwrap();
    let refused = |words: &str| {
        let ended = ended(tidegate().arg("serve").env("XDG_STATE_HOME", &state));
        assert_refused(&ended, &state, words);
        assert_eq!(fs::read(&victim).unwrap(), b"of root");
    };
    fs::set_permissions(state.join("tidegate"), fs::Permissions::from_mode(0o777)).unwrap();
    refused("its mode 0777 lets other users write to it");
    give_to_nobody(&state.join("tidegate"));
    refused("it belongs to user 65534 (nobody)");
    fs::remove_dir_all(state.join("tidegate")).unwrap();
    give_to_nobody(&state);
    refused("it belongs to user 65534 (nobody)");
    assert!(!state.join("tidegate").exists());
}

#[test]
fn a_runtime_folder_of_another_user_is_not_used() {
    need_root("play another user");
    let folder = Folder::new();
    let (volume, runtime, state) = (folder.volume("v"), folder.path("runtime"), folder.path("state"));
    fs::create_dir(&runtime).unwrap();
    give_to_nobody(&runtime);
    let mut command = tidegate();
    command.args(["serve", "--pmem", &volume]).env("XDG_RUNTIME_DIR", &runtime).env("XDG_STATE_HOME", &state);
    let mut server = Server::spawn(&mut command);
    assert!(server.uris[0].contains(state.to_str().unwrap()), "{:?}", server.uris);
    assert!(server.stop().success());
    assert_eq!(fs::read_dir(&runtime).unwrap().count(), 0);
}

#[test]
fn a_disk_that_another_user_noted_is_opened_only_if_it_is_named() {
    need_root("play another user");
    let folder = Folder::new();
    let (region, disk) = (folder.text("region"), folder.text("disk"));
    fs::File::create(&disk).and_then(|file| file.set_len(8 << 20)).unwrap();
    assert_eq!(run(&["create", "--pmem", &region, "--size", "4M", "--disk", &disk]).code, 0);
    give_to_nobody(Path::new(&region));
    for command in [&["flush"][..], &["detach"], &["serve"], &["resize", "--size", "8M"], &["resize", "--to-disk"]] {
        let refused = run(&[command, &["--pmem", &region]].concat());
        assert_eq!(refused.code, 3, "{command:?}: {}", refused.stderr);
        for words in ["user 65534 (nobody) owns the region", &format!("--disk {disk}"), "sudo -u nobody"] {
            assert!(refused.stderr.contains(words), "{command:?}: {}", refused.stderr);
        }
    }
    let length = |bytes| fs::OpenOptions::new().write(true).open(&disk).and_then(|file| file.set_len(bytes)).unwrap();
    let tells_growth = || !json(&["info", "--pmem", &region])["disk_grown"].is_null();
    length(9 << 20);
    assert!(!tells_growth());
    chown(&region, Some(0), Some(0)).unwrap();
    assert!(tells_growth());
    length(8 << 20);
    give_to_nobody(Path::new(&region));
    assert_eq!(run(&["flush", "--pmem", &region, "--disk", &disk]).code, 0);
    chown(&region, Some(0), Some(0)).unwrap();
    assert_eq!(run(&["detach", "--pmem", &region]).code, 0);
}

#[test]
fn what_another_user_answers_beside_a_region_is_not_believed() {
    need_root("play another user");
    let folder = Folder::new();
    let (region, disk, control) = (folder.text("region"), folder.text("disk"), folder.path("region.control"));
    fs::File::create(&disk).and_then(|file| file.set_len(8 << 20)).unwrap();
    assert_eq!(run(&["create", "--pmem", &region, "--size", "4M", "--disk", &disk]).code, 0);
    fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let at = control.clone();
    // The thread is another user from here on, and the socket remembers who listened.
    let squat = thread::spawn(move || {
        let nobody = Uid::from_raw(NOBODY);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        UnixListener::bind(at).unwrap()
    });
    let squat = squat.join().unwrap();
    let asked = run(&["stat", "--pmem", &region]);
    assert!(asked.code == 5 && asked.stderr.contains("user 65534 (nobody) listens there"), "{}", asked.stderr);
    // There is no server: the commands do it themselves.
    assert_eq!(run(&["flush", "--pmem", &region, "--wait"]).code, 0);
    assert_eq!(run(&["detach", "--pmem", &region]).code, 0);
    drop(squat);
}

#[test]
fn manual_pages_are_written_through_no_link() {
    let folder = Folder::new();
    fs::write(folder.path("victim"), "of somebody").unwrap();
    symlink(folder.path("victim"), folder.path("tidegate.1")).unwrap();
    let refused = run(&["man", "--out", folder.0.path().to_str().unwrap()]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    assert_eq!(fs::read(folder.path("victim")).unwrap(), b"of somebody");
}
