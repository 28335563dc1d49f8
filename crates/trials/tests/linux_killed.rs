//! Linux's driver killed while it writes our images, and what it acknowledged read here.
//!
//! The guest's stores are in the host file at once, so killing it leaves exactly the stores its processors
//! had made: interrupted writes on several lanes, committed or not.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_btt::{FormatSpec, Repair, Report};
use tidegate_layout::btt::Version;
use tidegate_media::BlockDevice;
use tidegate_trials::artefacts::announce;
use tidegate_trials::golden::V2_0;
use tidegate_trials::guest::{Guest, Running};
use tidegate_trials::namespace::Namespace;
use tidegate_trials::sectors::{self, Dice, Model, sha256_of_device};

const ROUNDS: u32 = 2;
const CPUS: u64 = 2;
/// Acknowledgements to wait for before the kill: at least so many, and up to as many more.
const ACKS_MIN: u64 = 2000;

/// An image under storm, what its blocks held before, and the generations that the storm acknowledged.
struct Target {
    image: PathBuf,
    label_bytes: u64,
    model: Model,
    acked: BTreeMap<u64, u32>,
}

#[test]
fn what_linux_acknowledged_before_its_death_is_read_here() {
    let folder = tempfile::tempdir().unwrap();
    // The labels of v2.0 belong to the first slot.
    let mut targets = [labelled(folder.path()), small_sectors(folder.path())];
    let mut dice = Dice::new(31);
    for round in 0..ROUNDS {
        let base = (round + 1) * 100_000;
        let mut running = boot(&mut targets, base);
        let acks = ACKS_MIN + dice.below(ACKS_MIN);
        (0..acks).for_each(|_| next_ack(&mut running, &mut targets));
        drop(running);
        let interrupted: u64 = targets.iter_mut().map(|target| target.assert_nothing_lost(base)).sum();
        announce(&format!(
            "guest: killed in round {round} after {acks} acknowledged writes, {interrupted} left half done; none lost, none torn"
        ));
    }
}

/// BTT v2.0 of ours in the labelled namespace of the golden image.
fn labelled(folder: &Path) -> Target {
    let image = folder.join("labelled");
    V2_0.unpack(&image).unwrap();
    let file = OpenOptions::new().write(true).open(&image).unwrap();
    let bytes = usize::try_from(V2_0.namespace_bytes()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; bytes], 0).unwrap();
    let spec =
        FormatSpec { version: Version::V2_0, sector_size: 4096, uuid: [0x2a; 16], parent_uuid: V2_0.parent_uuid };
    Target::of(Namespace::open(&image, V2_0.label_bytes), &spec, image, V2_0.label_bytes)
}

fn small_sectors(folder: &Path) -> Target {
    let image = folder.join("small-sectors");
    let namespace = Namespace::create(&image, 20 << 20);
    let spec = FormatSpec { version: Version::V1_1, sector_size: 512, uuid: [0x1a; 16], parent_uuid: [0; 16] };
    Target::of(namespace, &spec, image, 0)
}

impl Target {
    fn of(namespace: Namespace, spec: &FormatSpec, image: PathBuf, label_bytes: u64) -> Target {
        namespace.format(spec);
        let btt = namespace.into_btt();
        let (mut model, mut dice) = (Model::default(), Dice::new(7));
        for _ in 0..1000 {
            model.write(&btt, dice.below(btt.geometry().blocks));
        }
        Target { image, label_bytes, model, acked: BTreeMap::new() }
    }

    /// Opens the image after the kill, compares every block, checks it, and writes on. Returns how many writes the
    /// kill had left committed and missing in the map.
    fn assert_nothing_lost(&mut self, base: u32) -> u64 {
        let interrupted = self.assert_sound().counts.interrupted;
        let btt = Namespace::open(&self.image, self.label_bytes).into_btt();
        let geometry = btt.geometry();
        for block in 0..geometry.blocks {
            let found = sectors::read_generation(&btt, block);
            let acked = self.acked.get(&block).copied().unwrap_or(self.model.generation(block));
            // Acknowledgements may have been on their way when the guest died; a storm never repeats one.
            let storms = found > base && found >= acked;
            assert!(found == acked || storms, "{}: block {block} is {found}, {acked} was acked", self.image.display());
            self.model.set(block, found);
        }
        self.acked.clear();
        let mut dice = Dice::new(u64::from(base));
        for _ in 0..1000 {
            self.model.write(&btt, dice.below(geometry.blocks));
        }
        self.model.assert_all(&btt, "after the kill and more writes");
        drop(btt);
        self.assert_sound();
        interrupted
    }

    fn assert_sound(&self) -> Report {
        let report = tidegate_btt::check(&Namespace::open(&self.image, self.label_bytes), Repair::No).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        report
    }
}

/// Boots a guest that compares all sectors with ours, then writes on each image from each processor.
fn boot(targets: &mut [Target], base: u32) -> Running {
    let mut guest = Guest::new();
    let mut storms = String::new();
    for target in targets {
        let slot = guest.dimm(&target.image, target.label_bytes);
        let btt = Namespace::open(&target.image, target.label_bytes).into_btt();
        let (geometry, hash) = (btt.geometry(), sha256_of_device(&btt));
        guest.script(&format!("report {slot}; report {slot} | grep -q {hash}"));
        for cpu in 0..CPUS {
            storms += &format!(
                "sectors storm $(device {slot}) {} {slot} {cpu} {CPUS} {} {} {base} &\n",
                geometry.block_size,
                geometry.blocks,
                u64::from(base) + cpu * 77 + 1
            );
        }
    }
    guest.script(&format!("{storms}wait"));
    guest.boot(Duration::from_secs(300)).unwrap_or_else(|error| panic!("{error}"))
}

fn next_ack(running: &mut Running, targets: &mut [Target]) {
    loop {
        let line = running.line().unwrap_or_else(|error| panic!("{error}")).expect("a storm has no end");
        let Some(ack) = line.strip_prefix("ack ") else { continue };
        let words: Vec<&str> = ack.split(' ').collect();
        let [slot, block, generation] = words[..] else { panic!("an odd line: {line}") };
        let target = &mut targets[slot.parse::<usize>().unwrap()];
        target.acked.insert(block.parse().unwrap(), generation.parse().unwrap());
        return;
    }
}
