//! The commands that `serve` prints attach the volumes that they are printed for, and go back.

use crate::program::{Ended, Folder, Server, ended, json, need_root, peer, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A printed mount, and the command that undoes it.
struct Printed {
    mount: String,
    undo: String,
}

impl Printed {
    /// Of each volume that `server` serves.
    fn by(server: &Server) -> Vec<Printed> {
        let line = |line: &str| line.trim().to_owned();
        let mounts = server.said.lines().filter(|said| said.contains("nbdfuse")).map(line);
        let undos = server.said.lines().filter(|said| said.contains("umount")).map(line);
        let printed: Vec<_> = mounts.zip(undos).map(|(mount, undo)| Printed { mount, undo }).collect();
        assert!(!printed.is_empty(), "{}", server.said);
        printed
    }

    /// Where its file system is.
    fn place(&self) -> PathBuf {
        Path::new(self.mount.split(' ').find(|word| word.ends_with("/mnt")).unwrap()).to_owned()
    }

    /// Runs the mount as root would, in a shell that ends; the answer is what it said, for nbdfuse
    /// goes on with its output.
    fn attach(&self, folder: &Folder) -> Ended {
        let (out, told) = (folder.path("out"), folder.path("told"));
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &self.mount])
            .stdout(fs::File::create(&out).unwrap())
            .stderr(fs::File::create(&told).unwrap());
        let code = shell.status().unwrap().code().unwrap_or(-1);
        let [stdout, stderr] = [out, told].map(|path| fs::read_to_string(path).unwrap());
        Ended { code, stdout, stderr }
    }

    fn mounted(&self, folder: &Folder) -> PathBuf {
        let attached = self.attach(folder);
        assert_eq!(attached.code, 0, "{}{}", attached.stdout, attached.stderr);
        self.place()
    }

    fn undone(&self) {
        let undo = ended(Command::new("sh").args(["-c", &self.undo]));
        assert_eq!(undo.code, 0, "{}: {}{}", self.undo, undo.stdout, undo.stderr);
        assert!(!self.place().parent().unwrap().exists());
    }
}

impl Drop for Printed {
    /// Whatever a failed test left.
    fn drop(&mut self) {
        let _ = Command::new("sh").args(["-c", &self.undo]).output();
    }
}

/// Serves volumes of one name by two servers, one of which has another volume too.
fn two_servers(folders: &[Folder; 2]) -> [Server; 2] {
    let config = |volumes: &str| format!("listen = [\"unix:s\"]\n{volumes}");
    let of = |name: &str| format!("[[volume]]\npmem = \"{name}\"\n");
    fs::write(folders[0].path("c"), config(&(of("v") + &of("w")))).unwrap();
    fs::write(folders[1].path("c"), config(&of("v"))).unwrap();
    let server = |folder: &Folder, uris| Server::start_of_uris(uris, &["--config", &folder.text("c")]);
    [server(&folders[0], 2), server(&folders[1], 1)]
}

#[test]
fn each_printed_mount_is_its_own_volume_and_makes_a_file_system_once() {
    need_root("set up loop devices");
    let folders = [Folder::new(), Folder::new()];
    folders[0].volume("w");
    folders[0].volume("v");
    // A copy: the same name and the same UUID.
    fs::copy(folders[0].path("v"), folders[1].path("v")).unwrap();
    let mut servers = two_servers(&folders);
    let printed: Vec<Printed> = servers.iter().flat_map(Printed::by).collect();
    assert_eq!(printed.len(), 3);
    for (nth, printed) in printed.iter().enumerate() {
        assert!(printed.mount.contains("mkfs"), "{}", printed.mount);
        let place = printed.mounted(&folders[0]);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "it is a new file system: lost+found");
        let block = peer("stat", &["-f", "-c", "%S", place.to_str().unwrap()]);
        assert_eq!(block, "4096\n", "a page of a file is one block of the volume");
        fs::write(place.join("number"), nth.to_string()).unwrap();
    }
    let numbers = || printed.iter().map(|printed| fs::read_to_string(printed.place().join("number")).unwrap());
    assert!(numbers().eq(["0", "1", "2"]), "{:?}", numbers().collect::<Vec<_>>());
    // What is attached already is left alone.
    let again = printed[0].attach(&folders[0]);
    assert!(again.code != 0 && again.stderr.contains("File exists"), "{}", again.stderr);
    printed.iter().for_each(Printed::undone);
    // The same lines, once more: what was made is found, and nothing is made anew.
    printed.iter().for_each(|printed| drop(printed.mounted(&folders[0])));
    assert!(numbers().eq(["0", "1", "2"]));
    printed.iter().for_each(Printed::undone);
    servers.iter_mut().for_each(|server| assert!(server.stop().success()));
    // A server that finds something says nothing of making a file system.
    let servers = two_servers(&folders);
    let printed: Vec<Printed> = servers.iter().flat_map(Printed::by).collect();
    for (nth, printed) in printed.iter().enumerate() {
        assert!(!printed.mount.contains("mkfs"), "{}", printed.mount);
        assert_eq!(fs::read_to_string(printed.mounted(&folders[0]).join("number")).unwrap(), nth.to_string());
        printed.undone();
    }
}

#[test]
fn what_lies_amid_a_volume_keeps_the_printed_line_from_making_a_file_system() {
    need_root("set up loop devices");
    let folder = Folder::new();
    let pmem = &folder.volume("v");
    let server = Server::start(&["--pmem", pmem, "--listen", &format!("unix:{}", folder.text("s"))]);
    let printed = &Printed::by(&server)[0];
    assert!(printed.mount.contains("mkfs"), "both ends are zero");
    let mut client = Server::client(&folder.path("s"));
    client.write(16 << 20, &[7; 4096], tidegate_media::Durability::Fua).unwrap();
    let attached = printed.attach(&folder);
    assert_ne!(attached.code, 0, "there is nothing to mount");
    let mut bytes = [0; 4096];
    client.read(16 << 20, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 4096]);
    client.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 4096], "no superblock was written");
    printed.undone();
}

#[test]
fn a_disk_that_holds_something_is_mounted_and_a_read_only_one_only_read() {
    need_root("set up loop devices");
    let folder = Folder::new();
    let (pmem, disk) = (&folder.text("v"), &folder.text("disk"));
    fs::File::create(disk).unwrap().set_len(32 << 20).unwrap();
    json(&["create", "--pmem", pmem, "--disk", disk, "--size", "8M"]);
    let listen = &format!("unix:{}", folder.text("s"));
    let mut server = Server::start(&["--pmem", pmem, "--listen", listen]);
    assert!(Printed::by(&server)[0].mount.contains("mkfs"), "{}", server.said);
    assert!(server.stop().success());
    assert_eq!(run(&["detach", "--pmem", pmem]).code, 0);
    peer("mkfs.ext4", &["-q", disk]);
    assert_eq!(run(&["attach", "--pmem", pmem, "--disk", disk]).code, 0);
    let mut server = Server::start(&["--pmem", pmem, "--listen", listen]);
    let printed = &Printed::by(&server)[0];
    assert!(!printed.mount.contains("mkfs"), "{}", printed.mount);
    fs::write(printed.mounted(&folder).join("file"), "here").unwrap();
    printed.undone();
    assert!(server.stop().success());
    let server = Server::start(&["--pmem", pmem, "--listen", listen, "--read-only"]);
    let printed = &Printed::by(&server)[0];
    let place = printed.mounted(&folder);
    assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "here");
    assert!(fs::write(place.join("file"), "there").is_err());
    printed.undone();
}

#[test]
fn a_printed_mount_ends_where_no_server_answers() {
    need_root("set up loop devices");
    let folder = Folder::new();
    let pmem = &folder.volume("v");
    let mut server = Server::start(&["--pmem", pmem, "--listen", &format!("unix:{}", folder.text("s"))]);
    let printed = &Printed::by(&server)[0];
    assert!(server.stop().success());
    assert_ne!(printed.attach(&folder).code, 0, "it does not wait for a disk that never comes");
}

#[test]
fn a_socket_for_machines_that_cannot_be_made_is_told_with_its_option() {
    let folder = Folder::new();
    let (volume, listen) = (folder.volume("v"), format!("unix:{}", folder.text("listen")));
    let file = folder.text("file");
    fs::write(&file, "").unwrap();
    // With and without unix: before it, as places to listen have.
    let [prefixed, long] = [format!("unix:{file}"), folder.text(&"s".repeat(120))];
    for (place, code, words) in [
        (&file, 5, ["no socket", "choose another place: --vhost-user"]),
        (&prefixed, 5, ["no socket", "choose another place: --vhost-user"]),
        (&long, 5, ["107 bytes", "choose another place: --vhost-user"]),
        (&listen, 2, ["named twice", "name another place"]),
    ] {
        let refused = run(&["serve", "--pmem", &volume, "--listen", &listen, "--vhost-user", place]);
        assert_eq!(refused.code, code, "{}", refused.stderr);
        words.iter().for_each(|words| assert!(refused.stderr.contains(words), "{words:?}: {}", refused.stderr));
    }
}
