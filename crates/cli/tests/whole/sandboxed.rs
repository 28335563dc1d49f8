//! A server that has given up system calls, in all of its threads.

use crate::program::{Folder, Server, json, run};
use std::fs;
use std::fs::File;
use tidegate_media::Durability;
use tidegate_nbd_client::client::Operation;

/// What the kernel tells of each thread of the server.
fn threads(server: &Server) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap()).collect()
}

fn is_confined(status: &str) -> bool {
    status.contains("\nSeccomp:\t2\n") && status.contains("\nNoNewPrivs:\t1\n")
}

#[test]
fn every_thread_of_a_server_is_confined_and_it_serves_all_the_same() {
    let folder = Folder::new();
    let (region, disk) = (folder.text("cached"), folder.text("disk"));
    File::create(&disk).unwrap().set_len(32 << 20).unwrap();
    json(&["create", "--pmem", &region, "--disk", &disk, "--size", "8M", "--accept-volatile"]);
    let plain = folder.volume("plain");
    let config = folder.text("c.toml");
    let text = format!(
        "listen = \"unix:{}\"\nsandbox = \"on\"\n[[volume]]\npmem = {plain:?}\nwrite_cache = \"1M\"\n\
         [[volume]]\npmem = {region:?}\naccept_volatile = true\n",
        folder.text("s")
    );
    fs::write(&config, text).unwrap();
    let mut server = Server::start_of_uris(2, &["--config", &config]);
    server.hear_or_heard("sandbox    on: ");
    let mut client = Server::client(&folder.path("s"));
    client.write(0, &[7; 4096], Durability::Fua).unwrap();
    client.submit(Operation::Flush).unwrap();
    client.complete().unwrap();
    let threads = threads(&server);
    assert!(threads.len() > 4, "those of the caches and of the client: {}", threads.len());
    threads.iter().for_each(|status| assert!(is_confined(status), "{status}"));
    let flushed = run(&["flush", "--pmem", &region, "--wait"]);
    assert_eq!(flushed.code, 0, "{}", flushed.stderr);
    assert!(server.stop().success(), "{}", server.said);
    assert!(!folder.path("s").exists(), "its socket is removed");
}

#[test]
fn a_server_without_a_sandbox_says_so_and_another_word_is_refused() {
    let folder = Folder::new();
    let volume = folder.volume("v");
    let listen = format!("unix:{}", folder.text("s"));
    for (arguments, confined) in [(&["--sandbox", "off"][..], false), (&["--sandbox", "auto"], true), (&[], true)] {
        let mut server = Server::start(&[&["--pmem", &volume, "--listen", &listen], arguments].concat());
        server.hear_or_heard(if confined { "sandbox    on: " } else { "sandbox    off, as asked for" });
        // A filter from outside this test would be there too.
        let outside = fs::read_to_string("/proc/self/status").unwrap().contains("\nSeccomp:\t0\n");
        assert!(outside, "the tests run in a sandbox themselves");
        assert!(threads(&server).iter().all(|status| is_confined(status) == confined), "{arguments:?}");
        assert!(server.stop().success());
    }
    let refused = run(&["serve", "--pmem", &volume, "--sandbox", "yes"]);
    assert!(refused.code == 2 && refused.stderr.contains("auto"), "{}", refused.stderr);
}
