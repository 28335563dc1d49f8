//! `tidegate list`: servers, runs, and what killed ones left, each with the command that goes on.

use crate::program::{Folder, NOBODY, Server, as_nobody, ended, json, need_root, run};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// What `list` answers as JSON.
fn listed() -> Value {
    json(&["list"])
}

/// Those of `list` whose `key` is `path`.
fn with<'a>(list: &'a Value, key: &str, path: &str) -> Vec<&'a Value> {
    list.as_array().unwrap().iter().filter(|of| of[key] == path).collect()
}

/// The server `pid` in what `list` answers.
fn server_of(list: &Value, pid: u32) -> Option<&Value> {
    list["servers"].as_array().unwrap().iter().find(|server| server["pid"] == pid)
}

/// What `program` lists for a user who owns nothing else.
fn listed_for_nobody(program: &Path) -> Value {
    let list = ended(Command::new(program).uid(NOBODY).gid(NOBODY).args(["list", "--json"]));
    assert_eq!(list.code, 0, "{}", list.stderr);
    serde_json::from_str(&list.stdout).unwrap()
}

#[test]
fn servers_are_listed_with_their_volumes_wherever_they_are_asked() {
    let folder = Folder::new();
    let (one, two) = (folder.volume("one"), folder.volume("two"));
    let config = folder.text("c.toml");
    let control = folder.text("elsewhere");
    let volumes = format!("[[volume]]\npmem = \"{one}\"\n[[volume]]\npmem = \"{two}\"\nread_only = true\n");
    fs::write(&config, format!("listen = [\"unix:s\", \"unix:t\"]\ncontrol = \"{control}\"\n{volumes}")).unwrap();
    let mut server = Server::start_of_uris(4, &["--config", &config]);
    let list = listed();
    let told = server_of(&list, server.pid()).unwrap_or_else(|| panic!("{list}"));
    assert_eq!(told["control"], control.as_str(), "{told}");
    for (file, name, mode) in [(&one, "one", "read-write"), (&two, "two", "read-only")] {
        let volume = with(&told["volumes"], "file", file)[0];
        assert_eq!((&volume["name"], &volume["mode"]), (&name.into(), &mode.into()), "{volume}");
        assert!(volume["format"].as_str().unwrap().contains("btt"), "{volume}");
        let uris: Vec<_> = volume["uris"].as_array().unwrap().iter().map(|uri| uri.as_str().unwrap()).collect();
        let expected = |socket| format!("nbd+unix:///{name}?socket={}", folder.text(socket));
        assert_eq!(uris, [expected("s"), expected("t")]);
    }
    let text = run(&["list"]).stdout;
    assert!(text.contains(&format!("process {} of user", server.pid())) && text.contains(&one), "{text}");
    assert!(server.stop().success());
    assert_eq!(server_of(&listed(), server.pid()), None);
}

#[test]
fn a_server_that_does_not_answer_is_listed_with_what_it_has_locked() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let mut server = Server::start(&["--pmem", &volume, "--listen", &format!("unix:{}", folder.text("s"))]);
    server.signal(rustix::process::Signal::STOP);
    let list = listed();
    server.signal(rustix::process::Signal::CONT);
    let told = server_of(&list, server.pid()).unwrap();
    assert_eq!((&told["control"], &told["volumes"]), (&Value::Null, &Value::Array(Vec::new())), "{told}");
    let locked = told["locked"].as_array().unwrap();
    assert!(locked.iter().any(|file| *file == volume.as_str()), "{told}");
    assert!(server.stop().success());
}

#[test]
fn caches_that_killed_servers_left_are_listed_with_the_command_that_ends_them() {
    let folder = Folder::new();
    let (volume, another) = (&folder.volume("v"), &folder.volume("another"));
    let listen = &format!("unix:{}", folder.text("s"));
    let left = || -> Vec<Value> {
        let list = listed();
        with(&list["leftovers"]["caches"], "volume", volume).into_iter().cloned().collect()
    };
    let leftovers_of = |file: &str| json(&["info", "--pmem", file])["leftovers"].clone();
    let mut server = Server::start(&["--pmem", volume, "--listen", listen, "--write-cache", "1M"]);
    assert_eq!(left(), [0; 0], "it is in use");
    server.kill();
    let unfinished = left();
    assert_eq!(unfinished.len(), 1);
    let completes = format!("tidegate serve --pmem {volume}");
    assert_eq!((&unfinished[0]["state"], &unfinished[0]["command"]), (&"unfinished".into(), &completes.into()));
    assert_eq!(leftovers_of(volume).as_array().unwrap(), &unfinished, "info tells of its own volume's");
    assert_eq!(leftovers_of(another), Value::Array(Vec::new()), "and of no other's");
    fs::remove_file(volume).unwrap();
    let gone = left();
    let cache = gone[0]["cache"].as_str().unwrap();
    assert_eq!((&gone[0]["state"], &gone[0]["command"]), (&"volume_gone".into(), &format!("rm {cache}").into()));
    let elsewhere = &format!("unix:{}", folder.text("t"));
    let mut server = Server::start(&["--pmem", another, "--listen", elsewhere, "--write-cache", "off"]);
    assert_eq!(server.stop().code(), Some(0));
    assert!(!server.said.contains(cache), "{}", server.said);
    let info = run(&["info", "--pmem", another]).stdout;
    assert!(!info.contains(cache), "{info}");
    let list = run(&["list"]).stdout;
    assert!(list.contains(&format!("rm {cache}")), "{list}");
    assert!(Path::new(cache).exists(), "nothing removes it");
}

#[test]
fn a_user_sees_their_own_and_root_sees_all() {
    need_root("run servers of two users");
    let folder = Folder::new();
    let mut command = as_nobody(&folder);
    let (roots, theirs) = (folder.volume("roots"), folder.volume("theirs"));
    let listen = |name: &str| format!("unix:{}", folder.text(name));
    fs::create_dir(folder.path("own")).unwrap();
    chown(folder.path("own"), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::rename(&theirs, folder.path("own/v")).unwrap();
    chown(folder.path("own/v"), Some(NOBODY), Some(NOBODY)).unwrap();
    let theirs = folder.text("own/v");
    let mut server = Server::start(&["--pmem", &roots, "--listen", &listen("s"), "--write-cache", "1M"]);
    let mut nobodys = Server::spawn(command.args(["serve", "--pmem", &theirs, "--listen", &listen("own/s")]));
    let (all, own) = (listed(), listed_for_nobody(&folder.path("tidegate")));
    assert!(server_of(&all, server.pid()).is_some() && server_of(&all, nobodys.pid()).is_some(), "{all}");
    assert!(server_of(&own, server.pid()).is_none() && server_of(&own, nobodys.pid()).is_some(), "{own}");
    server.kill();
    assert_eq!(with(&listed()["leftovers"]["caches"], "volume", &roots).len(), 1);
    let own = listed_for_nobody(&folder.path("tidegate"));
    assert_eq!(with(&own["leftovers"]["caches"], "volume", &roots), [0; 0], "it is root's");
    assert!(nobodys.stop().success());
}
