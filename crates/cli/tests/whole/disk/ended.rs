//! The last line about each volume: who was cut off, what is dirty, and whether the disk alone is
//! current.

use super::refusing::Full;
use super::*;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use tidegate_nbd_client::client::Dialect;

/// The last line about a volume that an ended server said.
#[track_caller]
fn farewell(server: &Server) -> String {
    let mut lines = server.said.lines().filter(|line| line.starts_with("tidegate: ended: "));
    let line = lines.next().unwrap_or_else(|| panic!("no last line: {}", server.said)).to_owned();
    assert_eq!(lines.next(), None);
    line
}

#[test]
fn what_the_disk_lacks_is_told_at_the_end_to_the_byte() {
    need_root("mount a file system without room");
    let full = Full::new();
    let pair = &full.pair;
    let mut server = pair.serve(&[]);
    let mut client = pair.client();
    (0..1000).for_each(|block| write(&mut client, block, 4));
    server.hear("refuses block");
    assert_eq!(server.stop().code(), Some(0));
    let (told, dirty) = (farewell(&server), pair.dirty_bytes());
    assert!(dirty >= 700 * BLOCK, "{dirty}");
    for phrase in ["v in ", "1 client was cut off; flushed", &format!("({dirty} bytes) are dirty"), &pair.disk] {
        assert!(told.contains(phrase), "no {phrase:?} in {told}");
    }
    assert!(told.ends_with(&format!("alone is out of date until `tidegate flush --pmem {}`", pair.pmem)), "{told}");
    full.give_room();
    assert_eq!(run(&["flush", "--pmem", &pair.pmem]).code, 0);
    let mut server = pair.serve(&[]);
    assert_eq!(server.stop().code(), Some(0));
    let told = farewell(&server);
    assert!(told.contains("no client was connected; flushed; nothing is dirty"), "{told}");
    assert!(told.ends_with(&format!("the disk {} alone is current", pair.disk)), "{told}");
    let mut server = pair.serve(&[]);
    json(&["detach", "--pmem", &pair.pmem]);
    assert_eq!(server.stop().code(), Some(0));
    assert!(farewell(&server).ends_with("alone is current"), "{}", server.said);
}

#[test]
fn scripts_get_the_end_of_each_volume_as_json() {
    let pair = Pair::new();
    let table = pair.folder.volume("table");
    let config = pair.folder.text("c");
    let text = format!("listen = [\"unix:s\"]\n[[volume]]\npmem = \"{}\"\n[[volume]]\npmem = \"{table}\"\n", pair.pmem);
    fs::write(&config, text).unwrap();
    let mut command = tidegate();
    command.args(["serve", "--json", "--config", &config]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut answer = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    let connect =
        |export| Client::connect(UnixStream::connect(pair.folder.path("s")).unwrap(), export, Dialect::Simple);
    let clients = ["table", "table", "v"].map(|export| connect(export).unwrap());
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM).unwrap();
    let output = server.wait_with_output().unwrap();
    drop(clients);
    assert!(output.status.success());
    let told = String::from_utf8(output.stderr).unwrap();
    let ends: Vec<Value> = told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |name: &str| ends.iter().map(|end: &Value| &end["ended"]).find(|end| end["name"] == name).unwrap().clone();
    let (disk, table_end) = (of("v"), of("table"));
    assert_eq!((&disk["clients_cut"], &table_end["clients_cut"]), (&1.into(), &2.into()), "{told}");
    assert_eq!(
        (&disk["flushed"], &disk["dirty_bytes"], &disk["disk_current"]),
        (&true.into(), &0.into(), &true.into())
    );
    assert_eq!((disk["disk"].as_str(), table_end.get("disk")), (Some(pair.disk.as_str()), None));
    assert_eq!(table_end["file"], table.as_str());
}

#[test]
fn a_server_that_is_ended_at_once_tells_what_its_disk_lacks() {
    need_root("mount a file system without room");
    let full = Full::new();
    let pair = &full.pair;
    let mut server = pair.serve(&["-v"]);
    let mut client = pair.client();
    (0..1000).for_each(|block| write(&mut client, block, 4));
    server.hear("refuses block");
    // Replies that nobody reads keep the first signal from ending it.
    for _ in 0..16 {
        client.submit(Operation::Read { offset: 0, len: 8 << 20 }).unwrap();
    }
    let mut raw = client.stream();
    std::io::Read::read_exact(&mut raw, &mut [0; 16]).unwrap();
    server.signal(rustix::process::Signal::TERM);
    server.hear("ending: 1 connections");
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.wait().code(), Some(6), "{}", server.said);
    let line = server.said.lines().find(|line| line.contains("are dirty, which the disk")).unwrap();
    assert!(line.contains("ended by a second signal") && line.contains(&pair.disk), "{line}");
}
