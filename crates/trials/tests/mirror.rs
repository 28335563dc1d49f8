//! A mirrored volume and a mirrored disk cache, whose server is killed under load and whose sides
//! are deleted one after the other: no acknowledged write is lost with either side.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tidegate_trials::artefacts::{announce, run};
use tidegate_trials::sectors::Dice;
use tidegate_trials::served::{Volume, Writer, kill_under_load, program};

const WRITERS: u64 = 2;
/// Acknowledged requests before a kill: at most so many.
const ACKS_MAX: u64 = 500;
/// Bytes of the page at the end of a side.
const PAGE_BYTES: usize = 8192;

/// Two regions of one volume, and its writers.
struct Mirrored {
    sides: [PathBuf; 2],
    writers: Vec<Writer>,
    dice: Dice,
    kills: u32,
}

impl Mirrored {
    fn create(folder: &Path, size: &str, arguments: &[&str]) -> Mirrored {
        let sides = ["one", "other"].map(|name| folder.join(name));
        let twin = ["--mirror", sides[1].to_str().unwrap()];
        let volume = Volume::create_with(folder, "one", size, &[&twin, arguments].concat());
        let bytes = volume.serve_with(&twin).connect().bytes();
        Mirrored { sides, writers: Writer::sharing(bytes, WRITERS), dice: Dice::new(7), kills: 0 }
    }

    /// Serves the side of that number with `arguments`, reads everything, and kills the server
    /// while the writers write.
    fn read_all_and_kill(&mut self, side: usize, arguments: &[&str]) {
        let mut server = Volume::at(&self.sides[side]).serve_with(arguments);
        self.writers.iter_mut().for_each(|writer| writer.assert_possible(&mut server.connect()));
        kill_under_load(&mut server, &mut self.writers, 1 + self.dice.below(ACKS_MAX));
        self.kills += 1;
        Volume::at(&self.sides[side]).assert_clean();
    }

    fn read_all_and_kill_both(&mut self, first_named: usize) {
        let twin = self.sides[1 - first_named].clone();
        self.read_all_and_kill(first_named, &["--mirror", twin.to_str().unwrap()]);
    }

    /// What `tidegate` answers to `arguments` about both sides, the one of that number first.
    fn of_both(&self, command: &str, first_named: usize, arguments: &[&str]) -> Output {
        let [pmem, twin] = [&self.sides[first_named], &self.sides[1 - first_named]];
        let mut tidegate = Command::new(program());
        tidegate.arg(command).arg("--pmem").arg(pmem).arg("--mirror").arg(twin).args(arguments).output().unwrap()
    }

    /// Both sides are refused together, with the command that makes the side `bad` anew.
    fn assert_refused(&self, bad: usize) {
        let output = self.of_both("serve", 0, &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        let [bad, good] = [&self.sides[bad], &self.sides[1 - bad]];
        let next = format!("tidegate rebuild --pmem {} --mirror {}", good.display(), bad.display());
        assert!(output.status.code() == Some(3) && said.contains(&next), "{}: {said}", output.status);
    }

    /// Deletes the side `lost` after a kill, goes on with the other one, and makes it anew.
    fn lose(&mut self, lost: usize) {
        fs::remove_file(&self.sides[lost]).unwrap();
        self.assert_refused(lost);
        self.read_all_and_kill(1 - lost, &["--degraded"]);
        let rebuilt = self.of_both("rebuild", 1 - lost, &[]);
        assert!(rebuilt.status.success(), "{}", String::from_utf8_lossy(&rebuilt.stderr));
        self.read_all_and_kill_both(lost);
    }

    /// Asks for a server of either side alone that is refused: a port that it is to listen at is
    /// taken, a file is where the folder of its socket is to be. Each side still has every write
    /// then.
    fn refused_alone_stays_whole(&mut self) {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let metrics = format!("tcp:{}", taken.local_addr().unwrap());
        let below_a_file = format!("unix:{}/socket", self.sides[0].display());
        for side in [0, 1] {
            for place in [["--metrics", &metrics], ["--listen", &below_a_file]] {
                let mut serve = Command::new(program());
                serve.arg("serve").arg("--pmem").arg(&self.sides[side]).arg("--degraded").args(place);
                let refused = serve.output().unwrap();
                assert!(!refused.status.success(), "{place:?}");
            }
            self.read_all_and_kill_both(side);
        }
    }

    /// Puts the former file of the side `lost` back after the other one went on alone: it is stale.
    fn lose_and_return(&mut self, lost: usize) {
        let away = self.sides[lost].with_extension("away");
        fs::rename(&self.sides[lost], &away).unwrap();
        self.read_all_and_kill(1 - lost, &["--degraded"]);
        fs::rename(&away, &self.sides[lost]).unwrap();
        self.assert_refused(lost);
        let rebuilt = self.of_both("rebuild", 1 - lost, &[]);
        assert!(rebuilt.status.success(), "{}", String::from_utf8_lossy(&rebuilt.stderr));
    }

    /// Serves the side of that number with `arguments`, reads everything, brings it to the disk,
    /// and ends the server in good order: how the disk was left is noted at each side that it has.
    fn read_all_flush_and_stop(&mut self, side: usize, arguments: &[&str]) {
        let server = Volume::at(&self.sides[side]).serve_with(arguments);
        self.writers.iter_mut().for_each(|writer| writer.assert_possible(&mut server.connect()));
        run(Command::new(program()).args(["flush", "--wait", "--pmem"]).arg(&self.sides[side]), "tidegate").unwrap();
        server.stop();
    }

    /// Lets the side `lost` be away between two good ends of servers. Its own note of the disk is
    /// old when it is back.
    fn lose_and_return_after_a_stop(&mut self, lost: usize) {
        let twin = self.sides[1].clone();
        self.read_all_and_kill_both(0);
        self.read_all_flush_and_stop(0, &["--mirror", twin.to_str().unwrap()]);
        let away = self.sides[lost].with_extension("away");
        fs::rename(&self.sides[lost], &away).unwrap();
        self.read_all_and_kill(1 - lost, &["--degraded"]);
        self.read_all_flush_and_stop(1 - lost, &["--degraded"]);
        self.read_all_and_kill(1 - lost, &["--degraded"]);
        fs::rename(&away, &self.sides[lost]).unwrap();
        let rebuilt = self.of_both("rebuild", 1 - lost, &[]);
        assert!(rebuilt.status.success(), "{}", String::from_utf8_lossy(&rebuilt.stderr));
        self.read_all_and_kill_both(lost);
    }

    /// Ends a server of both sides in good order. They hold the same bytes then, but for their
    /// pages.
    fn assert_equal(&self) {
        let server = Volume::at(&self.sides[0]).serve_with(&["--mirror", self.sides[1].to_str().unwrap()]);
        server.stop();
        let [one, other] = self.sides.each_ref().map(|side| fs::read(side).unwrap());
        let volume = ..one.len() - PAGE_BYTES;
        assert!(one.len() == other.len() && one[volume] == other[volume], "the sides differ");
    }
}

fn nothing_is_lost(mut mirrored: Mirrored, what: &str) {
    mirrored.read_all_and_kill_both(0);
    mirrored.refused_alone_stays_whole();
    for lost in [0, 1] {
        mirrored.lose(lost);
    }
    for lost in [1, 0] {
        mirrored.lose_and_return(lost);
    }
    mirrored.read_all_and_kill_both(1);
    mirrored.assert_equal();
    announce(&format!(
        "{what}: killed {} servers, each side lost twice; nothing acknowledged was lost",
        mirrored.kills
    ));
}

#[test]
fn a_volume_loses_nothing_with_either_side() {
    let folder = tempfile::tempdir().unwrap();
    nothing_is_lost(Mirrored::create(folder.path(), "24M", &[]), "a mirrored volume");
}

#[test]
fn a_disk_cache_loses_nothing_with_either_side() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    run(Command::new("truncate").args(["--size", "16M"]).arg(&disk), "coreutils").unwrap();
    let disk = ["--disk", disk.to_str().unwrap()];
    nothing_is_lost(Mirrored::create(folder.path(), "6M", &disk), "a mirrored disk cache");
}

#[test]
fn a_side_that_comes_back_after_a_stop_does_not_say_that_the_disk_was_changed() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    run(Command::new("truncate").args(["--size", "16M"]).arg(&disk), "coreutils").unwrap();
    let mut mirrored = Mirrored::create(folder.path(), "6M", &["--disk", disk.to_str().unwrap()]);
    for lost in [0, 1] {
        mirrored.lose_and_return_after_a_stop(lost);
    }
    let twin = mirrored.sides[1].clone();
    mirrored.read_all_flush_and_stop(0, &["--mirror", twin.to_str().unwrap()]);
    let touched = fs::File::options().write(true).open(&disk).unwrap();
    touched.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    drop(touched);
    let flushed = mirrored.of_both("flush", 1, &["--force"]);
    assert!(flushed.status.success(), "{}", String::from_utf8_lossy(&flushed.stderr));
    mirrored.read_all_and_kill_both(0);
}

#[test]
fn a_mirrored_volume_has_no_write_cache() {
    let folder = tempfile::tempdir().unwrap();
    let mirrored = Mirrored::create(folder.path(), "24M", &[]);
    let refused = mirrored.of_both("serve", 0, &["--write-cache", "1M"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("--write-cache off"), "{}: {said}", refused.status);
    let mut degraded = Command::new(program());
    degraded.arg("serve").arg("--pmem").arg(&mirrored.sides[0]).args(["--degraded", "--write-cache", "1M"]);
    let refused = degraded.output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
    let twin = mirrored.sides[1].to_str().unwrap();
    let server = Volume::at(&mirrored.sides[0]).serve_with(&["--mirror", twin, "--write-cache", "auto"]);
    let listed = run(Command::new(program()).arg("list"), "tidegate").unwrap();
    let side = mirrored.sides[0].to_str().unwrap();
    assert!(listed.lines().any(|line| line.contains(side) && line.contains(", mirrored, ")), "{listed}");
    server.stop();
}
