//! A disk that fails below a file whose writes are syncs: its program is told, and what was synced
//! before is not lost.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use tidegate_trials::artefacts::run;
use tidegate_trials::run::{FAILING, Testbed};

/// What the disk is large while it works, and while writes to most of the file fail.
const WHOLE: u64 = 64 << 20;
const SHORT: u64 = 16 << 20;
/// The file, and where in it places begin that lie behind what a short disk has.
const FILE_BYTES: u64 = 48 << 20;
const BEGIN: u64 = 30 << 20;
const PLACES: usize = 8;
const PLACE_BYTES: usize = 4096;
const EIO: i64 = 5;
/// How often the disk is made shorter before it stays so.
const RESIZES_MAX: u32 = 200;
/// Writes that may go well before the failure is seen: under a run the disk is only asked once a
/// second.
const TRIES_MAX: usize = 20_000_000;
/// Writes that are made before the disk fails, and after it was mended.
const WRITES: usize = 200;

fn as_root(program: &str, arguments: &[&str]) -> String {
    run(Command::new(program).args(arguments), "mount e2fsprogs")
        .unwrap_or_else(|error| panic!("run this test as root: {error}"))
}

/// A file system on a loop device over a file.
struct Disk {
    image: PathBuf,
    device: String,
    point: PathBuf,
}

impl Disk {
    /// With one file, all of whose blocks are allocated.
    fn made(image: PathBuf, point: &Path) -> Disk {
        File::create(&image).unwrap().set_len(WHOLE).unwrap();
        as_root(
            "mkfs.ext4",
            &["-q", "-O", "^has_journal", "-E", "nodiscard,lazy_itable_init=0", image.to_str().unwrap()],
        );
        let disk = Disk::mounted(image, point);
        let file = File::create(point.join("file")).unwrap();
        // Written once, so that no write needs to change anything but the places themselves.
        file.write_all_at(&vec![0; usize::try_from(FILE_BYTES).unwrap()], 0).unwrap();
        file.sync_all().unwrap();
        disk
    }

    fn mounted(image: PathBuf, point: &Path) -> Disk {
        let device = as_root("losetup", &["--find", "--show", image.to_str().unwrap()]).trim().to_owned();
        as_root("mount", &[&device, point.to_str().unwrap()]);
        Disk { image, device, point: point.to_owned() }
    }

    fn resize(&self, bytes: u64) {
        let name = self.device.trim_start_matches("/dev/");
        let size = PathBuf::from(format!("/sys/block/{name}/size"));
        let has_it = || fs::read_to_string(&size).unwrap().trim() == (bytes / 512).to_string();
        // A write that comes in between makes the image longer again.
        let resized = (0..RESIZES_MAX).any(|_| {
            File::options().write(true).open(&self.image).unwrap().set_len(bytes).unwrap();
            as_root("losetup", &["--set-capacity", &self.device]);
            has_it()
        });
        assert!(resized, "the loop device has another size");
    }

    /// The disk as a power cut leaves it: without what the kernel has not written.
    fn after_power_cut(self) -> Disk {
        let (image, point) = (self.image.with_extension("cut"), self.point.clone());
        fs::copy(&self.image, &image).unwrap();
        File::options().write(true).open(&image).unwrap().set_len(WHOLE).unwrap();
        drop(self);
        Disk::mounted(image, &point)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.point).status();
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

/// What the program said of its writes.
struct Said {
    lines: Lines<BufReader<ChildStdout>>,
    /// The last write of each place that has returned, and the last one that returned well.
    tried: [u64; PLACES],
    synced: [u64; PLACES],
}

impl Said {
    fn by(program: &mut Child) -> Said {
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        Said { lines, tried: [0; PLACES], synced: [0; PLACES] }
    }

    /// What the next write returned; None: there is none.
    fn next(&mut self) -> Option<i64> {
        let line = self.lines.next()?.unwrap();
        let (number, answer) = line.split_once(' ')?;
        let (number, answer): (u64, i64) = (number.parse().unwrap(), answer.parse().unwrap());
        let place = usize::try_from(number).unwrap() % PLACES;
        self.tried[place] = number;
        if answer > 0 {
            self.synced[place] = number;
        }
        Some(answer)
    }

    fn many_well(&mut self) {
        assert!((0..WRITES).all(|_| self.next() == Some(PLACE_BYTES as i64)), "the disk works");
    }

    fn until_failure(&mut self) -> i64 {
        let answers = std::iter::from_fn(|| self.next());
        -answers.take(TRIES_MAX).find(|answer| *answer < 0).expect("the disk has failed")
    }
}

fn program() -> Command {
    let mut command = Command::new(FAILING.build().unwrap());
    command.arg("file").arg(BEGIN.to_string());
    command
}

fn started(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

#[test]
fn the_disk_of_this_test_fails() {
    let testbed = Testbed::new();
    let disk = Disk::made(testbed.folder().join("image"), &testbed.root());
    let mut child = started(program().current_dir(testbed.root()));
    let mut said = Said::by(&mut child);
    said.many_well();
    disk.resize(SHORT);
    assert_eq!(said.until_failure(), EIO);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The numbers at the places of a file.
fn numbers(path: &Path) -> Vec<Option<u64>> {
    let file = File::open(path).unwrap();
    let each = |place: usize| {
        let mut bytes = [0; PLACE_BYTES];
        file.read_exact_at(&mut bytes, BEGIN + (place * PLACE_BYTES) as u64).ok()?;
        let words = bytes.as_chunks::<8>().0;
        words.iter().all(|word| *word == words[0]).then(|| u64::from_le_bytes(words[0]))
    };
    (0..PLACES).map(each).collect()
}

/// Has the disk fail, and be mended if so, and then the power.
fn failed(is_mended: bool) {
    let testbed = Testbed::new();
    let mut disk = Disk::made(testbed.folder().join("image"), &testbed.root());
    let mut command = testbed.run();
    let alone = program();
    command.arg(alone.get_program()).args(alone.get_args());
    let mut run = started(&mut command);
    let mut said = Said::by(&mut run);
    said.many_well();
    disk.resize(SHORT);
    assert_eq!(said.until_failure(), EIO, "the program is told");
    if is_mended {
        disk.resize(WHOLE);
        while said.next().expect("it goes on") < 0 {}
        said.many_well();
    }
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).unwrap();
    let program = rustix::process::Pid::from_raw(children.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(program, rustix::process::Signal::STOP).unwrap();
    run.kill().unwrap();
    rustix::process::kill_process(program, rustix::process::Signal::KILL).unwrap();
    run.wait().unwrap();
    while said.next().is_some() {}
    disk = disk.after_power_cut();
    testbed.change_boot();
    testbed.leave_files_alone();
    let recovered = testbed.recover().output().unwrap();
    let told = String::from_utf8_lossy(&recovered.stderr).into_owned();
    let salvaged =
        fs::read_dir(testbed.folder().join("pool.salvaged")).into_iter().flatten().map(|file| file.unwrap().path());
    let found: Vec<_> = salvaged.chain([testbed.root().join("file")]).map(|path| numbers(&path)).collect();
    println!("mended: {is_mended}; synced {:?}, tried {:?}, found {found:?}", said.synced, said.tried);
    for place in 0..PLACES {
        let allowed = said.synced[place]..=said.tried[place] + PLACES as u64;
        let is_there = found.iter().any(|numbers| numbers[place].is_some_and(|number| allowed.contains(&number)));
        assert!(is_there, "place {place}: {allowed:?} was synced, found {found:?}; {told}");
    }
    drop(disk);
}

#[test]
fn what_was_synced_before_a_disk_failed_is_in_the_file_or_put_aside() {
    failed(false);
}

#[test]
fn what_is_synced_after_a_disk_was_mended_is_in_the_file_or_put_aside() {
    failed(true);
}
