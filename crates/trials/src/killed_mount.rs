//! A whole machine killed with a mount on its NVDIMM: the promises of applications are judged in
//! the next boot, from what the NVDIMM and the disk kept.
//!
//! The guest runs Debian's kernel and the program itself. The pool is a file of an ext4 mounted
//! with DAX, on the NVDIMM; SOURCE is an ext4 on a disk. QEMU is killed: the disk has what the
//! guest's kernel wrote to it, and not what was in its page cache.

use crate::guest::{Guest, LIMIT, Running, dax_image, disk_image};
use crate::sectors::Dice;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

const NVDIMM_BYTES: u64 = 64 << 20;
const DISK_BYTES: u64 = 512 << 20;
/// Acts between two kills: at most so many. A guest does few a second, and goes on behind its last
/// ones after each kill.
const ACTS_MAX: u64 = 200;

/// What machines survived.
#[derive(Clone, Debug, Default)]
pub struct MountSurvived {
    /// Kills. After each, every promise was kept.
    pub kills: u32,
    /// Acts that returned.
    pub acts: u64,
    /// The guest's kernel.
    pub kernel: String,
}

impl fmt::Display for MountSurvived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MountSurvived { kills, acts, kernel } = self;
        write!(
            f,
            "a mount on an NVDIMM, killed with its machine {kills} times; {acts} acts, every promise kept; {kernel}"
        )
    }
}

/// Kills machines so many times, and judges what is left each time.
///
/// # Panics
/// If a promise is broken, or a part of the guest is missing.
pub fn survive_with_mount(kills: u32) -> MountSurvived {
    let machine = MachineWithMount::new();
    let mut survived = MountSurvived::default();
    let (mut done, mut dice) = (BTreeMap::new(), Dice::new(u64::from(kills)));
    for boot in 0..=kills {
        let mut running = machine.boot(boot, &done);
        survived.kernel = running.kernel().to_owned();
        if boot == kills {
            break;
        }
        let mut acks: Vec<_> = (0..1 + dice.below(ACTS_MAX)).map(|_| next_line(&mut running)).collect();
        acks.extend(running.arrived());
        drop(running);
        survived.kills += 1;
        survived.acts += acks.len() as u64;
        done.extend(acks.iter().filter_map(|line| line.strip_prefix("ack ")?.rsplit_once(' ')).map(owned));
    }
    survived
}

fn owned((process, act): (&str, &str)) -> (String, String) {
    (process.to_owned(), act.to_owned())
}

struct MachineWithMount {
    folder: tempfile::TempDir,
}

impl MachineWithMount {
    fn new() -> MachineWithMount {
        let machine = MachineWithMount { folder: tempfile::tempdir().expect("a temporary folder") };
        dax_image(&machine.nvdimm(), NVDIMM_BYTES);
        disk_image(&machine.disk(), DISK_BYTES);
        machine
    }

    fn nvdimm(&self) -> PathBuf {
        self.folder.path().join("nvdimm")
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// Boots the guest, and returns when the promises are judged and applications work. `done` says
    /// for each process how far it came.
    fn boot(&self, nth: u32, done: &BTreeMap<String, String>) -> Running {
        let mut guest = Guest::new();
        for program in ["tidegate-cli/tidegate", "tidegate-trials/guest-applications"] {
            guest.program(program).unwrap_or_else(|error| panic!("{error}"));
        }
        guest.dimm(&self.nvdimm(), 0);
        guest.disk(&self.disk());
        let lines: Vec<String> = done.iter().map(|(process, act)| format!("{process} {act}\n")).collect();
        guest.file("done", lines.concat());
        guest.script("mkdir -p /dev/shm /source /view; mount -t tmpfs tmpfs /dev/shm; mkfifo /said");
        guest.script("mount_dax 0; disks; load fuse; mount -t ext4 /dev/vda /source");
        guest.script("/tidegate mount /source /view --pool /mnt/pool --pool-size 24M >/said 2>&1 &");
        guest.script("exec 3</said; until [ \"$word\" = mounted ]; do read word rest <&3; echo $word $rest; done");
        guest.script("cat <&3 &");
        guest.script(if nth == 0 { "/guest-applications /view" } else { "/guest-applications /view /done" });
        let mut running = guest.boot(LIMIT).unwrap_or_else(|error| panic!("{error}"));
        while next_line(&mut running) != "ready" {}
        running
    }
}

fn next_line(running: &mut Running) -> String {
    let line = running.line().unwrap_or_else(|error| panic!("{error}")).expect("applications work for ever");
    assert!(!line.starts_with("broken"), "{line}");
    line
}
