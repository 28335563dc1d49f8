//! `tidegate stop`: which server it ends, what it tells, and which it leaves alone.

use crate::program::{Folder, NOBODY, Server, as_nobody, ended, json, need_root, run, tidegate};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use tidegate_nbd_client::client::Operation;

fn listen(folder: &Folder) -> String {
    format!("unix:{}", folder.text("s"))
}

/// Asserts that the server has ended when `stop` says so, and gives what that said.
#[track_caller]
fn stopped(server: &mut Server, code: i32, words: &[&str]) -> String {
    let stop = run(&[&["stop"], words].concat());
    assert_eq!(stop.code, code, "{}{}", stop.stdout, stop.stderr);
    // Nothing is waited for: it has ended.
    assert!(!Path::new(&format!("/proc/{}/fd/0", server.pid())).exists(), "{}", stop.stdout);
    assert_eq!(server.wait().code(), Some(code), "{}", server.said);
    stop.stdout
}

#[test]
fn a_server_whose_log_takes_no_line_serves_and_is_stopped() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    // With all levels every client is logged.
    let mut serve = tidegate();
    serve.args(["-vvv", "serve", "--pmem", &volume, "--listen", &listen(&folder)]);
    let mut server = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(full).spawn().unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.starts_with("serving")), "it ended");
    let stop = run(&["stop", &volume]);
    let ended = server.wait().unwrap();
    assert_eq!((stop.code, ended.code()), (0, Some(0)), "{}{}", stop.stdout, stop.stderr);
}

#[test]
fn a_server_is_stopped_by_its_region_or_its_control_socket_and_its_end_is_told() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let control = folder.text("elsewhere");
    let link = folder.text("link");
    std::os::unix::fs::symlink(&volume, &link).unwrap();
    let beside: &[&str] = &[];
    for (serve, stop) in [
        (beside, &[volume.as_str()][..]),
        (beside, &["--pmem", &volume]),
        (beside, &["--control", &format!("{volume}.control")]),
        (&["--control", &control], &["--control", &control]),
        (&["--control", &control], &["--control", &control, &volume]),
        // Its control socket is found although it lies elsewhere.
        (&["--control", &control], &[&volume]),
        (beside, &[&link]),
    ] {
        let listen = listen(&folder);
        let mut server = Server::start(&[&["--pmem", &volume, "--listen", &listen], serve].concat());
        let client = Server::client(&folder.path("s"));
        let told = stopped(&mut server, 0, stop);
        drop(client);
        let farewell = server.said.lines().find_map(|line| line.strip_prefix("tidegate: ended: ")).unwrap();
        assert!(told.contains(farewell) && told.contains("1 client was cut off; flushed"), "{told}");
        assert!(told.contains(&format!("process {} ended with 0: done", server.pid())), "{told}");
    }
}

#[test]
fn scripts_get_the_same_as_json() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let mut server = Server::start(&["--pmem", &volume, "--listen", &listen(&folder)]);
    let told = json(&["stop", &volume]);
    assert!(server.wait().success());
    assert_eq!((&told["pid"], &told["server_exit"]), (&server.pid().into(), &0.into()), "{told}");
    assert_eq!((&told["ended"][0]["file"], &told["ended"][0]["flushed"]), (&volume.into(), &true.into()), "{told}");
}

#[test]
fn where_no_server_runs_nothing_is_stopped() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    // What a killed server leaves is no server.
    let mut killed = Server::start(&["--pmem", &volume, "--listen", &listen(&folder)]);
    killed.kill();
    let absent = folder.text("absent");
    for words in [&[volume.as_str()][..], &[&absent], &["--control", &absent], &["--control", &volume]] {
        let refused = run(&[&["stop"], words].concat());
        assert_eq!(refused.code, 3, "{words:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("no server runs at"), "{}", refused.stderr);
    }
}

#[test]
fn a_server_of_another_volume_is_left_alone() {
    let folder = Folder::new();
    let (volume, another) = (folder.volume("v"), folder.volume("another"));
    let control = folder.text("control");
    let mut server = Server::start(&["--pmem", &volume, "--listen", &listen(&folder), "--control", &control]);
    let refused = run(&["stop", &another, "--control", &control]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("it serves {volume}")), "{}", refused.stderr);
    // Somebody else's socket beside the region does not make that a server of it.
    fs::hard_link(&control, format!("{another}.control")).unwrap();
    assert_eq!(run(&["stop", &another]).code, 3);
    assert!(run(&["stat", "--control", &control]).code == 0, "it goes on");
    assert!(server.stop().success());
}

#[test]
fn a_region_that_another_program_has_is_in_use() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let held = fs::File::open(&volume).unwrap();
    held.lock().unwrap();
    let refused = run(&["stop", &volume]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("process {}", std::process::id())), "{}", refused.stderr);
}

#[test]
fn a_process_that_is_no_server_is_not_signalled() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    // This process listens there: it would end by SIGTERM.
    let listener = UnixListener::bind(format!("{volume}.control")).unwrap();
    let rude = std::thread::spawn(move || drop(listener.accept()));
    let refused = run(&["stop", &volume]);
    assert_eq!(refused.code, 5, "{}", refused.stderr);
    rude.join().unwrap();
}

#[test]
fn another_users_server_is_stopped_by_root_alone() {
    need_root("run servers of two users");
    let folder = Folder::new();
    let mut nobody = as_nobody(&folder);
    let volume = folder.volume("v");
    let control = format!("{volume}.control");
    let mut server = Server::start(&["--pmem", &volume, "--listen", &listen(&folder)]);
    let denied = ended(nobody.args(["stop", &volume]));
    assert_eq!(denied.code, 5, "{}", denied.stderr);
    // A socket that lets everybody in changes nothing.
    fs::set_permissions(&control, fs::Permissions::from_mode(0o666)).unwrap();
    let denied = ended(as_nobody(&folder).args(["stop", "--control", &control]));
    assert_eq!(denied.code, 5, "{}", denied.stderr);
    assert!(denied.stderr.contains("belongs to user 0 (root)"), "{}", denied.stderr);
    assert!(server.stop().success());
    chown(&volume, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::create_dir(folder.path("own")).unwrap();
    chown(folder.path("own"), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::rename(&volume, folder.path("own/v")).unwrap();
    let volume = folder.text("own/v");
    let listen = format!("unix:{}", folder.text("own/s"));
    let mut theirs = Server::spawn(as_nobody(&folder).args(["serve", "--pmem", &volume, "--listen", &listen]));
    stopped(&mut theirs, 0, &[&volume]);
}

#[test]
fn a_server_that_ends_without_a_word_is_told_of_with_6() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let by_second_signal: fn(&mut Server) = |server| server.signal(rustix::process::Signal::TERM);
    for end in [Server::kill, by_second_signal] {
        let mut server = Server::start(&["-v", "--pmem", &volume, "--listen", &listen(&folder)]);
        let mut client = Server::client(&folder.path("s"));
        // Replies that nobody reads keep the first signal from ending it.
        for _ in 0..16 {
            client.submit(Operation::Read { offset: 0, len: 8 << 20 }).unwrap();
        }
        let mut raw = client.stream();
        std::io::Read::read_exact(&mut raw, &mut [0; 16]).unwrap();
        let mut stop = tidegate();
        let stop = stop.args(["stop", "--json", &volume]).stdout(Stdio::piped()).spawn().unwrap();
        server.hear("ending: 1 connections");
        end(&mut server);
        let stop = stop.wait_with_output().unwrap();
        let told: Value = serde_json::from_slice(&stop.stdout).unwrap();
        assert_eq!((stop.status.code(), &told["server_exit"]), (Some(6), &Value::Null), "{told}");
    }
}
