//! A whole machine killed while the program serves a volume in it: what its clients saw
//! acknowledged is read here, from the host file that was its NVDIMM.
//!
//! The guest runs Linux with the real drivers and the program itself, on a device-DAX device and on
//! a file of an ext4 mounted with DAX, mapped with MAP_SYNC. Its processors are frozen and the file
//! copied, or QEMU is killed. The guest has no processor cache, so this tests the kernel's DAX path
//! and mapping and the whole program, not the order of lines: that is the simulator's.
//!
//! Every tenth cut is a kill and a new boot. A lost or torn block panics, as every surprise does.

use crate::artefacts::run;
use crate::guest::writes::{WRITERS, Writes};
use crate::guest::{DATA_START, Guest, LIMIT, Running, dax_image};
use crate::namespace::Namespace;
use crate::sectors::{self, Dice};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate_btt::Repair;
use tidegate_media::BlockDevice;

/// One cut of so many is a kill.
const CUTS_PER_KILL: u32 = 6;
/// Acknowledgements between two cuts: at most so many.
const ACKS_MAX: u64 = 24;
/// Generations of one boot; it writes fewer blocks.
const BOOT_GENERATIONS: u32 = 400_000;
/// Boots of one image: a block names its generation by 6 hexadecimal digits.
const BOOTS_MAX: u32 = (1 << 24) / BOOT_GENERATIONS;
const IMAGE_BYTES: u64 = 40 << 20;

/// How the guest maps the host file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Medium {
    /// As the character device of device DAX.
    Device,
    /// By a file of an ext4 that lies on it.
    File,
}

/// The host file, and what its volume has to hold.
struct Machine {
    medium: Medium,
    folder: tempfile::TempDir,
    blocks: u64,
    /// What each block held when the guest booted.
    before: BTreeMap<u64, u32>,
    clients: Vec<Acknowledged>,
    /// Acknowledged writes of all boots.
    writes: u64,
}

/// What a client wrote and saw acknowledged since the guest booted.
struct Acknowledged {
    writes: Writes,
    base: u32,
    blocks: BTreeMap<u64, u32>,
}

/// What machines survived.
#[derive(Clone, Copy, Debug)]
pub struct Survived {
    /// How they mapped the host file.
    pub medium: Medium,
    /// Writes that clients saw acknowledged.
    pub writes: u64,
    /// Instants at which the host file was opened and compared.
    pub cuts: u32,
    /// Those of them at which the machine was killed.
    pub kills: u32,
    /// Blocks found newer than acknowledged: what was under way.
    pub newer: u64,
}

impl fmt::Display for Survived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Survived { medium, writes, cuts, kills, newer } = self;
        write!(
            f,
            "{}, {writes} acknowledged writes, cut {cuts} times, {kills} of them killed; none lost, none torn; {newer} blocks found \
             newer than acknowledged",
            medium.name()
        )
    }
}

/// Cuts machines on `medium` at `cuts` instants at least, and compares what is left each time.
///
/// # Panics
///
/// If anything is lost or torn, or a part of the guest is missing.
pub fn survive(medium: Medium, cuts: u32) -> Survived {
    let mut survived = Survived { medium, writes: 0, cuts: 0, kills: 0, newer: 0 };
    let mut dice = Dice::new(u64::from(cuts));
    while survived.cuts < cuts {
        let mut machine = Machine::new(medium);
        let boots = (cuts - survived.cuts).div_ceil(CUTS_PER_KILL).min(BOOTS_MAX);
        (0..boots).for_each(|boot| machine.live(boot, &mut dice, &mut survived));
        survived.writes += machine.writes;
    }
    survived
}

impl Medium {
    fn name(self) -> &'static str {
        match self {
            Medium::Device => "device DAX",
            Medium::File => "a file on DAX",
        }
    }

    /// Lines for the guest that set `pmem` to the path of the volume's region, and at the first
    /// boot make the volume.
    fn script(self, first: bool) -> String {
        let (find, size) = match self {
            Medium::Device => ("pmem=$(dax_device 0)", ""),
            Medium::File => ("mount_dax 0; pmem=/mnt/volume", "--size 24M --sparse"),
        };
        let create = format!("/tidegate create --pmem $pmem {size}");
        format!("{find}\n{}", if first { create } else { String::new() })
    }

    /// Copies the volume's region out of `image`. Returns where it is now.
    fn extract(self, image: &Path) -> PathBuf {
        let (data, volume) = (image.with_extension("data"), image.with_extension("volume"));
        match self {
            Medium::Device => extract_data(image, b"NVDIMM_DAX_INFO\0", &volume),
            Medium::File => {
                extract_data(image, b"NVDIMM_PFN_INFO\0", &data);
                extract_file(&data, &volume);
            }
        }
        volume
    }
}

impl Machine {
    fn new(medium: Medium) -> Machine {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let machine = Machine { medium, folder, blocks: 0, before: BTreeMap::new(), clients: Vec::new(), writes: 0 };
        match medium {
            Medium::Device => {
                let image = File::create_new(machine.image()).expect("a new image");
                image.set_len(IMAGE_BYTES).expect("a sparse image");
            }
            Medium::File => dax_image(&machine.image(), IMAGE_BYTES),
        }
        machine
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("copy")
    }

    /// One boot: cut while it runs, and killed in the end.
    fn live(&mut self, boot: u32, dice: &mut Dice, survived: &mut Survived) {
        let mut running = self.boot(boot);
        for _ in 1..CUTS_PER_KILL {
            self.take_acks(&mut running, 1 + dice.below(ACKS_MAX));
            running.frozen(|| self.copy_image()).expect("a guest can be frozen");
            survived.newer += self.assert_nothing_lost().1;
        }
        self.take_acks(&mut running, 1 + dice.below(ACKS_MAX));
        drop(running);
        self.copy_image();
        let (found, newer) = self.assert_nothing_lost();
        self.before = found;
        survived.newer += newer;
        survived.cuts += CUTS_PER_KILL;
        survived.kills += 1;
    }

    fn copy_image(&self) {
        fs::copy(self.image(), self.copy()).expect("there is room for a copy");
    }

    /// Boots the guest and returns when its clients are about to write. Every second boot has a
    /// write cache.
    fn boot(&mut self, nth: u32) -> Running {
        let base = nth * BOOT_GENERATIONS;
        let mut guest = Guest::new();
        guest.programs().unwrap_or_else(|error| panic!("{error}"));
        guest.dimm(&self.image(), 0);
        guest.script("mkdir -p /dev/shm; mount -t tmpfs tmpfs /dev/shm; mkfifo /said");
        guest.script(&self.medium.script(nth == 0));
        guest.script("/tidegate check --pmem $pmem; /tidegate info --pmem $pmem | grep -w power-fail");
        let cache = if nth.is_multiple_of(2) { "off" } else { "2M" };
        guest
            .script(&format!("/tidegate serve --pmem $pmem --write-cache {cache} --listen unix:/volume.sock >/said &"));
        // The server prints `serving` last, when it listens.
        guest.script("exec 3</said; until [ \"$word\" = serving ]; do read word rest <&3; echo $word $rest; done");
        guest.script(&format!("/guest-writer /volume.sock {base}"));
        let mut running = guest.boot(LIMIT).unwrap_or_else(|error| panic!("{error}"));
        while !next_line(&mut running).starts_with("serving ") {}
        self.clients.clear();
        if nth == 0 {
            running.frozen(|| self.copy_image()).expect("a guest can be frozen");
            self.blocks = self.volume().into_btt().geometry().blocks;
        }
        let client =
            |writer| Acknowledged { writes: Writes::new(writer, self.blocks, base), base, blocks: BTreeMap::new() };
        self.clients = (0..WRITERS).map(client).collect();
        running
    }

    /// Waits for so many acknowledgements, and takes those that came besides.
    fn take_acks(&mut self, running: &mut Running, acks: u64) {
        let mut lines: Vec<String> = (0..acks).map(|_| next_line(running)).collect();
        lines.extend(running.arrived());
        for line in lines {
            let words: Vec<usize> = line.split(' ').skip(1).map_while(|word| word.parse().ok()).collect();
            let [client, writes] = words[..] else { panic!("an odd line: {line}") };
            self.writes += self.clients[client].acknowledge(u32::try_from(writes).expect("fewer than of a boot"));
        }
    }

    /// The volume in the copy.
    fn volume(&self) -> Namespace {
        Namespace::open(&self.medium.extract(&self.copy()), 0)
    }

    /// Opens the volume in the copy and compares every block. Returns what they hold, and how many
    /// blocks hold what was written and not acknowledged.
    fn assert_nothing_lost(&self) -> (BTreeMap<u64, u32>, u64) {
        let volume = self.volume();
        assert_sound(&volume);
        let btt = volume.into_btt();
        let ahead: Vec<_> = self.clients.iter().map(Acknowledged::ahead).collect();
        let (mut found, mut newer) = (BTreeMap::new(), 0);
        for block in 0..self.blocks {
            let generation = sectors::read_generation(&btt, block);
            let writer = usize::try_from(block % WRITERS).expect("few writers");
            let before = self.before.get(&block).copied().unwrap_or(0);
            let acked = self.clients[writer].blocks.get(&block).copied().unwrap_or(before);
            if generation != acked {
                assert_eq!(
                    ahead[writer].get(&generation),
                    Some(&block),
                    "block {block} is of generation {generation}, {acked} was acknowledged"
                );
                newer += 1;
            }
            found.insert(block, generation);
        }
        drop(btt);
        (found, newer)
    }
}

impl Acknowledged {
    /// The first `writes` writes are durable: records their blocks. Returns how many more these
    /// are.
    fn acknowledge(&mut self, writes: u32) -> u64 {
        let before = self.writes.done();
        while self.writes.done() < writes {
            let (block, generation) = self.writes.advance();
            self.blocks.insert(block, generation);
        }
        u64::from(writes - before)
    }

    /// The writes that may be done and not acknowledged yet, by their generations. Acknowledgements
    /// wait in the serial line and in this process.
    fn ahead(&self) -> BTreeMap<u32, u64> {
        let mut writes = self.writes.clone();
        let left = BOOT_GENERATIONS - (writes.done() + self.base) % BOOT_GENERATIONS;
        (1..left.min(50_000)).map(|_| writes.advance()).map(|(block, generation)| (generation, block)).collect()
    }
}

fn next_line(running: &mut Running) -> String {
    running.line().unwrap_or_else(|error| panic!("{error}")).expect("the clients write for ever")
}

fn assert_sound(volume: &Namespace) {
    let report = tidegate_btt::check(volume, Repair::No).expect("the volume can be checked");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// Copies out the data of a namespace for DAX. Linux keeps a record of where they begin.
fn extract_data(image: &Path, signature: &[u8; 16], data: &Path) {
    const RECORD: u64 = 4096;
    const START: u64 = RECORD + 56;
    let image = File::open(image).expect("the image is there");
    let (mut found, mut start) = ([0; 16], [0; 8]);
    image.read_exact_at(&mut found, RECORD).expect("the image has a record");
    image.read_exact_at(&mut start, START).expect("the image has a record");
    assert_eq!((&found, u64::from_le_bytes(start)), (signature, DATA_START));
    let mut bytes = vec![0; usize::try_from(IMAGE_BYTES - DATA_START).expect("a small image")];
    image.read_exact_at(&mut bytes, DATA_START).expect("the image is as long as it was made");
    fs::write(data, bytes).expect("there is room for a copy");
}

/// Copies the volume out of an ext4. Its journal is replayed as at the next mount, and then nothing
/// may be wrong but counts that the journal does not keep.
fn extract_file(file_system: &Path, volume: &Path) {
    const SOUND: i32 = 0;
    const SOUND_AGAIN: i32 = 1;
    let check = Command::new("e2fsck").arg("-fp").arg(file_system).output().expect("apt-get install e2fsprogs");
    assert!(matches!(check.status.code(), Some(SOUND | SOUND_AGAIN)), "{check:?}");
    let dump = format!("dump /volume {}", volume.display());
    run(Command::new("debugfs").args(["-R", &dump]).arg(file_system), "e2fsprogs")
        .unwrap_or_else(|error| panic!("{error}"));
}
