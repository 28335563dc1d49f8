//! Linux's driver cut off while it writes our images, and its acknowledged writes read here.
//!
//! The guest's stores are in the host file at once. Freezing its processors and copying the image,
//! or killing the guest, leaves exactly the stores that they had made: writes half done on several
//! lanes, committed or not.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use tidegate_btt::{CheckReport, FormatSpec, Repair};
use tidegate_layout::btt::Version;
use tidegate_media::BlockDevice;
use tidegate_trials::artefacts::announce;
use tidegate_trials::golden::V2_0;
use tidegate_trials::guest::writes::{WRITERS, Writes};
use tidegate_trials::guest::{Guest, LIMIT, Running};
use tidegate_trials::namespace::Namespace;
use tidegate_trials::sectors::{self, Dice, Model, sha256_of_device};

/// Guests, each killed in the end and booted anew on what it left.
const ROUNDS: u32 = 2;
const CPUS: u64 = WRITERS;
/// Copies taken of a running guest's images.
const CUTS: u32 = 16;
/// Acknowledgements, of 32 writes each, between two cuts: at most so many.
const ACKS_MAX: u64 = 20;
/// Generations of one round; a storm writes fewer blocks.
const ROUND_GENERATIONS: u32 = 4_000_000;

/// An image under storm, what its blocks held before, and the generations that the storms
/// acknowledged.
struct Target {
    image: PathBuf,
    label_bytes: u64,
    model: Model,
    /// The storm of each processor, replayed as far as it was acknowledged.
    storms: Vec<Writes>,
    acked: BTreeMap<u64, u32>,
}

#[test]
fn what_linux_acknowledged_before_a_cut_is_read_here() {
    let folder = tempfile::tempdir().unwrap();
    // The labels of v2.0 belong to the first slot.
    let mut targets = [labelled(folder.path()), small_sectors(folder.path())];
    let mut dice = Dice::new(31);
    for round in 0..ROUNDS {
        let mut running = boot(&mut targets, (round + 1) * ROUND_GENERATIONS);
        let mut interrupted = 0;
        for _ in 0..CUTS {
            (0..=dice.below(ACKS_MAX)).for_each(|_| next_ack(&mut running, &mut targets));
            let copies: Vec<PathBuf> = running.frozen(|| targets.iter().map(Target::copy).collect()).unwrap();
            interrupted +=
                targets.iter().zip(&copies).map(|(target, copy)| target.assert_nothing_lost(copy)).sum::<u64>();
        }
        drop(running);
        interrupted += targets.iter_mut().map(Target::write_on).sum::<u64>();
        let writes: u32 = targets.iter().flat_map(|target| &target.storms).map(Writes::done).sum();
        announce(&format!(
            "guest: {writes} acknowledged writes, cut {} times, {interrupted} writes found half done; none lost, none torn",
            CUTS + 1
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
        Target { image, label_bytes, model, storms: Vec::new(), acked: BTreeMap::new() }
    }

    /// A copy of the image as it is now.
    fn copy(&self) -> PathBuf {
        let copy = self.image.with_extension("cut");
        std::fs::copy(&self.image, &copy).unwrap();
        copy
    }

    /// Opens the image, or a copy of it, and compares every block. Returns how many writes were
    /// committed and missing in the map.
    fn assert_nothing_lost(&self, image: &Path) -> u64 {
        let interrupted = self.assert_sound(image).counts.interrupted;
        let btt = Namespace::open(image, self.label_bytes).into_btt();
        for block in 0..btt.geometry().blocks {
            let found = sectors::read_generation(&btt, block);
            let acked = self.acked.get(&block).copied().unwrap_or(self.model.generation(block));
            // Acknowledgements may be on their way.
            let newer = found > acked && found > self.storms[0].base();
            assert!(found == acked || newer, "{}: block {block} is {found}, {acked} was acked", self.image.display());
        }
        drop(btt);
        self.assert_sound(image);
        interrupted
    }

    /// Takes over what the killed guest left, writes on, and compares again.
    fn write_on(&mut self) -> u64 {
        let interrupted = self.assert_nothing_lost(&self.image);
        let btt = Namespace::open(&self.image, self.label_bytes).into_btt();
        let blocks = btt.geometry().blocks;
        (0..blocks).for_each(|block| self.model.set(block, sectors::read_generation(&btt, block)));
        let mut dice = Dice::new(u64::from(self.storms[0].base()));
        for _ in 0..1000 {
            self.model.write(&btt, dice.below(blocks));
        }
        self.model.assert_all(&btt, "after the kill and more writes");
        drop(btt);
        self.assert_sound(&self.image);
        interrupted
    }

    fn assert_sound(&self, image: &Path) -> CheckReport {
        let report = tidegate_btt::check(&Namespace::open(image, self.label_bytes), Repair::No).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        report
    }
}

/// A storm has done so many `writes` in all: records the blocks of those that are new.
fn acknowledge(storm: &mut Writes, writes: u32, acked: &mut BTreeMap<u64, u32>) {
    while storm.done() < writes {
        let (block, generation) = storm.advance();
        acked.insert(block, generation);
    }
}

/// Boots a guest that compares all sectors with ours, then writes on each image from each
/// processor.
fn boot(targets: &mut [Target], base: u32) -> Running {
    let mut guest = Guest::new();
    let mut storms = String::new();
    for target in targets {
        let slot = guest.dimm(&target.image, target.label_bytes);
        let btt = Namespace::open(&target.image, target.label_bytes).into_btt();
        let (geometry, hash) = (btt.geometry(), sha256_of_device(&btt));
        guest.script(&format!("report {slot}; report {slot} | grep -q {hash}"));
        target.acked.clear();
        target.storms.clear();
        for cpu in 0..CPUS {
            let (seed, blocks, size) = (u64::from(base) + cpu * 77 + 1, geometry.blocks, geometry.block_size);
            target.storms.push(Writes::seeded(seed, cpu, blocks, base));
            storms += &format!("sectors storm $(device {slot}) {size} {slot} {cpu} {CPUS} {blocks} {seed} {base} &\n");
        }
    }
    guest.script(&format!("{storms}wait"));
    guest.boot(LIMIT).unwrap_or_else(|error| panic!("{error}"))
}

fn next_ack(running: &mut Running, targets: &mut [Target]) {
    loop {
        let line = running.line().unwrap_or_else(|error| panic!("{error}")).expect("a storm has no end");
        let Some(ack) = line.strip_prefix("ack ") else { continue };
        let words: Vec<usize> = ack.split(' ').map(|word| word.parse().unwrap()).collect();
        let [slot, cpu, writes] = words[..] else { panic!("an odd line: {line}") };
        let Target { storms, acked, .. } = &mut targets[slot];
        acknowledge(&mut storms[cpu], writes as u32, acked);
        return;
    }
}
