//! Servers started from a configuration file.

use crate::program::{Folder, Server, peer, run, tidegate};
use std::fs;

#[test]
fn two_volumes_are_two_exports_under_their_names() {
    let folder = Folder::new();
    folder.volume("one.pmem");
    folder.volume("two.pmem");
    let config = folder.text("t.toml");
    let text = format!(
        "listen = [\"unix:{}\"]\n[[volume]]\nname = \"first disk\"\npmem = \"one.pmem\"\n\
         [[volume]]\npmem = \"two.pmem\"\nread_only = true\nemulate = \"nvdimm\"\ndescription = \"the second\"\n",
        folder.text("s")
    );
    fs::write(&config, text).unwrap();
    let mut server = Server::start_of_uris(2, &["--config", &config]);
    let [first, second] = &server.uris[..] else { panic!("{:?}", server.uris) };
    assert!(first.contains("/first%20disk?") && second.contains("/two?"), "{:?}", server.uris);
    let command = server.said.lines().find(|line| line.contains("nbd-client")).unwrap().to_owned();
    assert!(command.contains("-name 'first disk'"), "{command}");
    let listed = peer("nbdinfo", &["--list", &format!("nbd+unix:///?socket={}", folder.text("s"))]);
    for phrase in ["export=\"first disk\"", "export=\"two\"", "description: the second"] {
        assert!(listed.contains(phrase), "{listed}");
    }
    peer("qemu-io", &["-f", "raw", "-c", "write -P 0x5a 0 4096", first]);
    peer("qemu-io", &["-f", "raw", "-r", "-c", "read -P 0 0 4096", second]);
    assert!(peer("nbdinfo", &[second]).contains("is_read_only: true"));
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn flags_win_over_the_file_and_the_volumes_own_flags_do_not_mix_with_it() {
    let folder = Folder::new();
    folder.volume("one.pmem");
    let config = folder.text("t.toml");
    fs::write(&config, "listen = [\"tcp:0.0.0.0:1\"]\n[[volume]]\npmem = \"one.pmem\"\n").unwrap();
    let refused = run(&["serve", "--config", &config]);
    assert!(refused.code == 2 && refused.stderr.contains("--insecure"), "{}", refused.stderr);
    let mut server = Server::start(&["--config", &config, "--listen", &format!("unix:{}", folder.text("s"))]);
    assert!(server.uris[0].starts_with("nbd+unix:"), "{:?}", server.uris);
    assert_eq!(server.stop().code(), Some(0));
    let mixed = run(&["serve", "--config", &config, "--pmem", "/nowhere"]);
    assert!(mixed.code == 2 && mixed.stderr.contains("cannot be used with"), "{}", mixed.stderr);
}

#[test]
fn a_wrong_key_is_refused_with_file_line_and_nearest_key() {
    let folder = Folder::new();
    let config = folder.text("t.toml");
    fs::write(&config, "[[volume]]\npmem = \"one.pmem\"\nemulat = \"pcm\"\n").unwrap();
    let refused = run(&["serve", "--config", &config]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("{config}:3: unknown key `emulat`")), "{}", refused.stderr);
    assert!(refused.stderr.contains("write `emulate`"), "{}", refused.stderr);
    folder.volume("one.pmem");
    fs::write(&config, format!("[[volume]]\npmem = \"one.pmem\"\nname = \"{}\"\n", "x".repeat(5000))).unwrap();
    let refused = run(&["serve", "--config", &config]);
    assert!(refused.code == 2 && refused.stderr.contains("at most 4096 bytes"), "{}", refused.stderr);
    assert!(refused.stderr.len() < 1000, "{}", refused.stderr);
    fs::write(&config, b"\xff\xfe").unwrap();
    let refused = run(&["serve", "--config", &config]);
    assert!(refused.code == 2 && refused.stderr.contains("is no text"), "{}", refused.stderr);
    let absent = crate::program::ended(tidegate().args(["serve", "--config", "/nowhere.toml"]));
    assert!(absent.code == 5 && absent.stderr.contains("cannot read /nowhere.toml"), "{}", absent.stderr);
}
