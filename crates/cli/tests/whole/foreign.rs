//! Files of other users where this program looks for its own: none is used, and each refusal says
//! whose it is.

use crate::program::{Ended, Folder, NOBODY, Server, ended, json, need_root, run, tidegate};
use rustix::process::Uid;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

/// A folder with an empty pool, and the journal of a run that was cut short.
fn left_pool() -> (Folder, String) {
    need_root("play another user");
    let folder = Folder::new();
    let pool = folder.text("pool");
    fs::File::create(&pool).and_then(|file| file.set_len(16 << 20)).unwrap();
    fs::write(folder.path("pool.holds"), "1\nrun 0123456789 another-boot power-fail\n").unwrap();
    (folder, pool)
}

fn assert_refused(ended: &Ended, file: &Path, words: &str) {
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    for words in [file.to_str().unwrap(), "is not used", words] {
        assert!(ended.stderr.contains(words), "{words:?}: {}", ended.stderr);
    }
}

/// Refuses to recover the pool, and to run anything with it.
fn assert_all_refused(pool: &str, file: &Path, words: &str) {
    assert_refused(&run(&["recover", pool]), file, words);
    // Where there is no library nothing is run at all.
    let ended = run(&["run-log", "--try", "--pool", pool, "--root", "/tmp", "--", "true"]);
    if !ended.stderr.contains("no-library") && !ended.stderr.contains("nothing to load") {
        assert_refused(&ended, file, words);
    }
}

fn give_to_nobody(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

#[test]
fn a_pool_of_another_user_is_refused_with_the_way_out() {
    let (folder, pool) = left_pool();
    for name in ["pool", "pool.holds"] {
        let file = folder.path(name);
        give_to_nobody(&file);
        assert_all_refused(&pool, &file, "it belongs to user 65534 (nobody), and this process runs as user 0 (root)");
        assert!(run(&["recover", &pool]).stderr.contains("sudo -u nobody tidegate recover POOL"));
        chown(&file, Some(0), Some(0)).unwrap();
    }
    assert_eq!(run(&["recover", &pool]).code, 0);
}

#[test]
fn a_pool_that_other_users_can_write_is_refused_until_they_cannot() {
    let (folder, pool) = left_pool();
    for name in ["pool", "pool.holds"] {
        let file = folder.path(name);
        for mode in [0o620, 0o602] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_all_refused(&pool, &file, &format!("chmod go-w {}", file.display()));
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    assert_eq!(run(&["recover", &pool]).code, 0);
}

#[test]
fn links_of_another_user_are_not_followed() {
    let (folder, pool) = left_pool();
    let link = folder.path("link");
    symlink(&pool, &link).unwrap();
    lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
    assert_all_refused(link.to_str().unwrap(), &link, "a symbolic link that user 65534 (nobody) made");
    let journal = folder.path("pool.holds");
    fs::rename(&journal, folder.path("moved")).unwrap();
    symlink(folder.path("moved"), &journal).unwrap();
    assert_all_refused(&pool, &journal, "it is a symbolic link");
    fs::rename(folder.path("moved"), &journal).unwrap();
    lchown(&link, Some(0), Some(0)).unwrap();
    let ended = run(&["recover", link.to_str().unwrap()]);
    assert_eq!(ended.code, 0, "a link of one's own is followed: {}", ended.stderr);
}

#[test]
fn nothing_is_put_aside_where_another_user_can_reach_it() {
    let (folder, pool) = left_pool();
    let (beside, elsewhere) = (folder.path("pool.salvaged"), folder.path("elsewhere"));
    for aside in [&beside, &elsewhere] {
        let recover = || match aside == &beside {
            true => run(&["recover", &pool]),
            false => run(&["recover", &pool, "--to", aside.to_str().unwrap()]),
        };
        fs::create_dir(aside).unwrap();
        give_to_nobody(aside);
        assert_refused(&recover(), aside, "it belongs to user 65534 (nobody)");
        chown(aside, Some(0), Some(0)).unwrap();
        fs::set_permissions(aside, fs::Permissions::from_mode(0o777)).unwrap();
        assert_refused(&recover(), aside, "its mode 0777 lets other users write to it");
        fs::remove_dir(aside).unwrap();
        symlink("/", aside).unwrap();
        lchown(aside, Some(NOBODY), Some(NOBODY)).unwrap();
        assert_refused(&recover(), aside, "a symbolic link that user 65534 (nobody) made");
        fs::remove_file(aside).unwrap();
    }
    assert!(Path::new(&folder.path("pool.holds")).exists(), "nothing was recovered meanwhile");
    assert_eq!(run(&["recover", &pool]).code, 0);
}

#[test]
fn the_journal_of_a_pool_is_not_waited_for() {
    let (folder, pool) = left_pool();
    let journal = folder.path("pool.holds");
    fs::remove_file(&journal).unwrap();
    crate::program::peer("mkfifo", &[journal.to_str().unwrap()]);
    assert_refused(&run(&["recover", &pool]), &journal, "it is no regular file");
    assert_refused(&run(&["status", &pool]), &journal, "it is no regular file");
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
