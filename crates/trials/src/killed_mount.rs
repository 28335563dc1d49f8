//! A whole machine killed with a mount on its NVDIMM: the promises of applications are judged in
//! the next boot, from what the NVDIMM and the disk kept.
//!
//! The guest runs Debian's kernel and the program itself. The pool is a file of an ext4 mounted
//! with DAX, on the NVDIMM; SOURCE is an ext4 or an XFS on a disk. QEMU is killed: the disk has
//! what the guest's kernel wrote to it, and not what was in its page cache.
//!
//! Boots have two kernels in turn. With the newer one, which sends requests of a dead server again,
//! the server of the mount is killed as well, and applications may see no error.

use crate::guest::{Guest, GuestKernel, LIMIT, Running, dax_image, disk_image, xfs_image};
use crate::sectors::Dice;
use clap::ValueEnum;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

const NVDIMM_BYTES: u64 = 64 << 20;
/// A disk with plenty of room: what short files need is counted.
const LARGE_DISK_BYTES: u64 = 2 << 30;
/// A disk on which all room is reserved.
const DISK_BYTES: u64 = 512 << 20;
/// Acts between two kills: at most so many. A guest does few a second, and goes on behind its last
/// ones after each kill.
const ACTS_MAX: u64 = 200;

/// Has the guest tell what applications say, and kill two servers of the mount meanwhile.
const SERVERS_DIE: &str = r#"
    { print; fflush() }
    /^ack/ && ++acts % 40 == 0 && acts <= 80 {
        while (system("kill -9 $(cat /proc/" mount "/task/" mount "/children) 2>/dev/null") != 0);
        print "killed a server"; fflush()
    }
"#;
/// How many that are, and what is told of each.
const SERVERS: u32 = 2;
const SERVER_KILLED: &str = "killed a server";

/// What the log of a mount says if the kernel does not send requests of a dead server again.
const LACKS_RESEND: &str = "use Linux 6.9 or later";

/// The file system of SOURCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SourceFileSystem {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
}

/// What machines survived.
#[derive(Clone, Debug)]
pub struct MountSurvived {
    /// What SOURCE was.
    pub source: SourceFileSystem,
    /// Kills. After each, every promise was kept.
    pub kills: u32,
    /// Servers that were killed before, amid the work of applications, none of which saw an error.
    pub servers: u32,
    /// Acts that returned.
    pub acts: u64,
    /// The guests' kernels.
    pub kernels: BTreeSet<String>,
}

impl fmt::Display for MountSurvived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MountSurvived { source, kills, servers, acts, kernels } = self;
        let kernels = kernels.iter().map(String::as_str).collect::<Vec<_>>().join(" and ");
        write!(
            f,
            "a mount of {source:?} on an NVDIMM, killed with its machine {kills} times, and {servers} servers before; \
             {acts} acts, every promise kept; Linux {kernels}"
        )
    }
}

/// Kills a machine so many times, at instants that `seed` says, and judges what is left each time.
/// Every second boot is of the newer kernel.
///
/// # Panics
/// If a promise is broken, or a part of the guest is missing.
pub fn survive_with_mount(source: SourceFileSystem, kills: u32, seed: u64) -> MountSurvived {
    let machine = MachineWithMount::new(source);
    let mut survived = MountSurvived { source, kills: 0, servers: 0, acts: 0, kernels: BTreeSet::new() };
    let (mut done, mut dice) = (BTreeMap::new(), Dice::new(seed));
    for boot in 0..=kills {
        let mut running = machine.boot(boot, &done);
        // The third word of `uname -a` is the release.
        survived.kernels.extend(running.kernel().split(' ').nth(2).map(str::to_owned));
        if boot == kills {
            break;
        }
        let mut lines = Vec::new();
        let servers = if kernel_of(boot) == GuestKernel::Newer { SERVERS } else { 0 };
        for _ in 0..servers {
            while lines.last().is_none_or(|line| line != SERVER_KILLED) {
                lines.push(next_line(&mut running));
            }
            survived.servers += 1;
            lines.push(next_line(&mut running));
        }
        lines.extend((0..1 + dice.below(ACTS_MAX)).map(|_| next_line(&mut running)));
        lines.extend(running.arrived());
        drop(running);
        survived.kills += 1;
        let acts = lines.iter().filter_map(|line| line.strip_prefix("ack ")?.rsplit_once(' ')).map(owned);
        acts.for_each(|(process, act)| {
            survived.acts += 1;
            done.insert(process, act);
        });
    }
    survived
}

/// The kernel of a boot, counted from 0.
fn kernel_of(boot: u32) -> GuestKernel {
    if boot.is_multiple_of(2) { GuestKernel::Stable } else { GuestKernel::Newer }
}

fn owned((process, act): (&str, &str)) -> (String, String) {
    (process.to_owned(), act.to_owned())
}

impl SourceFileSystem {
    /// All that there are.
    pub const BOTH: [SourceFileSystem; 2] = [SourceFileSystem::Ext4, SourceFileSystem::Xfs];

    /// Makes an empty one.
    fn make(self, image: &Path) {
        match self {
            SourceFileSystem::Ext4 => disk_image(image, LARGE_DISK_BYTES),
            SourceFileSystem::Xfs => xfs_image(image, DISK_BYTES),
        }
    }

    /// Has the guest mount the one on its disk.
    fn script(self) -> &'static str {
        match self {
            SourceFileSystem::Ext4 => "mount -t ext4 /dev/vda /source",
            SourceFileSystem::Xfs => "load libcrc32c xfs; mount -t xfs /dev/vda /source",
        }
    }
}

struct MachineWithMount {
    folder: tempfile::TempDir,
    source: SourceFileSystem,
}

impl MachineWithMount {
    fn new(source: SourceFileSystem) -> MachineWithMount {
        let machine = MachineWithMount { folder: tempfile::tempdir().expect("a temporary folder"), source };
        dax_image(&machine.nvdimm(), NVDIMM_BYTES);
        source.make(&machine.disk());
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
        let (mut guest, kernel) = (Guest::new(), kernel_of(nth));
        guest.kernel(kernel);
        for program in ["tidegate-cli/tidegate", "tidegate-trials/guest-applications"] {
            guest.program(program).unwrap_or_else(|error| panic!("{error}"));
        }
        guest.dimm(&self.nvdimm(), 0);
        guest.disk(&self.disk());
        let lines: Vec<String> = done.iter().map(|(process, act)| format!("{process} {act}\n")).collect();
        guest.file("done", lines.concat());
        guest.script("mkdir -p /dev/shm /source /view; mount -t tmpfs tmpfs /dev/shm; mkfifo /said");
        guest.script("mount_dax 0; disks; load fuse");
        guest.script(self.source.script());
        guest.script("/tidegate mount /source /view --pool /mnt/pool --pool-size 24M >/said 2>&1 & mount=$!");
        guest.script("exec 3</said; until [ \"$word\" = mounted ]; do read word rest <&3; echo $word $rest; done");
        guest.script("cat <&3 &");
        let applications = if nth == 0 { "/guest-applications /view" } else { "/guest-applications /view /done" };
        guest.script(&match kernel {
            GuestKernel::Stable => applications.to_owned(),
            GuestKernel::Newer => format!("{applications} | awk -v mount=$mount '{SERVERS_DIE}'"),
        });
        let mut running = guest.boot(LIMIT).unwrap_or_else(|error| panic!("{error}"));
        let begun: Vec<_> =
            std::iter::repeat_with(|| next_line(&mut running)).take_while(|line| line != "ready").collect();
        let lacks_resend = begun.iter().any(|line| line.contains(LACKS_RESEND));
        assert_eq!(lacks_resend, kernel == GuestKernel::Stable, "{begun:?}");
        running
    }
}

fn next_line(running: &mut Running) -> String {
    let line = running.line().unwrap_or_else(|error| panic!("{error}")).expect("applications work for ever");
    assert!(!line.starts_with("broken"), "{line}");
    line
}
