//! Our images in the real Linux driver, and Linux's images here.
//!
//! One guest attaches every image at once: it reads what was written here, then writes, and what it
//! wrote is read here.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tidegate_btt::{Btt, FormatSpec};
use tidegate_layout::btt::{FlogHalf, MapEntry, SECTOR_SIZES, Version, sector_data_bytes};
use tidegate_media::{BlockDevice, Lba};
use tidegate_trials::artefacts::sha256_of_file;
use tidegate_trials::golden::{Golden, V1_1, V2_0};
use tidegate_trials::guest::{Guest, Transcript};
use tidegate_trials::namespace::Namespace;
use tidegate_trials::sectors::{self, Dice, Model, sha256_of_device};
use tidegate_trials::surgery::Opened;

const MIB: u64 = 1 << 20;
/// The smallest namespace of BTT v1.1.
const SMALL_BYTES: u64 = 16 * MIB + 4096;
/// One arena of the largest size, and a second.
const TWO_ARENAS_BYTES: u64 = 512 * 1024 * MIB + 32 * MIB;
/// Writes that Linux makes to each image.
const LINUX_WRITES: u32 = 300;
/// Images larger than this are not read as a whole.
const WHOLE_BYTES_MAX: u64 = 1 << 30;

/// An image that is written here, then read and written by Linux.
struct Subject {
    name: String,
    image: PathBuf,
    label_bytes: u64,
    slot: usize,
    /// What the blocks that either side wrote have to hold in the end.
    model: Model,
    /// SHA-256 of all sectors as read here before the guest; `None` for giants.
    read_here: Option<String>,
}

impl Subject {
    fn btt(&self) -> Btt<Namespace> {
        Namespace::open(&self.image, self.label_bytes).into_btt()
    }
}

/// The guest, and what became of every image in it.
struct Exchange {
    subjects: Vec<Subject>,
    /// Raw images that Linux formatted: sector size, image, and ours of the same size.
    formatted: Vec<(u32, PathBuf, PathBuf)>,
    /// The image with interrupted writes that Linux attached, and its copy that was opened here.
    interrupted: (PathBuf, PathBuf),
    said: Transcript,
}

impl Exchange {
    fn run(folder: &Path) -> Exchange {
        let mut guest = Guest::new();
        // Labels are bound to the slot they were made in, which is the first.
        let mut subjects = vec![golden(&V2_0, folder), golden(&V1_1, folder)];
        for sector_size in SECTOR_SIZES {
            subjects.push(ours(sector_size, folder));
        }
        subjects.push(two_arenas(folder));
        for subject in &mut subjects {
            subject.slot = guest.dimm(&subject.image, subject.label_bytes);
            exchange_writes(&mut guest, subject);
        }
        let formatted = SECTOR_SIZES.map(|sector_size| format_in(&mut guest, sector_size, folder)).to_vec();
        let interrupted = interrupted(folder);
        guest.dimm(&interrupted.0, 0);
        let said = guest.run().unwrap_or_else(|error| panic!("{error}"));
        Exchange { subjects, formatted, interrupted, said }
    }

    fn subject(&self, name: &str) -> &Subject {
        self.subjects.iter().find(|subject| subject.name == name).unwrap()
    }

    /// Panics unless Linux read in `subject` what was read here, and what it wrote then is read
    /// here.
    fn assert_exchanged(&self, subject: &Subject) {
        let report = self.said.report(subject.slot).unwrap_or_else(|| panic!("Linux attached no {}", subject.name));
        let btt = subject.btt();
        let geometry = btt.geometry();
        assert_eq!(report.sector_size, geometry.block_size, "{}", subject.name);
        assert_eq!(report.bytes, geometry.bytes(), "{}", subject.name);
        if let Some(read_here) = &subject.read_here {
            assert_eq!(&report.sha256, read_here, "{}: sectors as Linux reads them", subject.name);
        }
        subject.model.assert_touched(&btt, &subject.name);
    }
}

/// The script for one subject: report, check every block ever touched, write, and check again.
fn exchange_writes(guest: &mut Guest, subject: &mut Subject) {
    let btt = subject.btt();
    let geometry = btt.geometry();
    let (slot, size) = (subject.slot, geometry.block_size);
    let report = match geometry.bytes() <= WHOLE_BYTES_MAX {
        true => "report",
        false => "measure",
    };
    guest.file(&format!("before-{slot}"), subject.model.lines());
    let plan = subject.model.plan(&mut Dice::new(slot as u64), LINUX_WRITES, geometry.blocks);
    guest.file(&format!("plan-{slot}"), plan);
    guest.file(&format!("after-{slot}"), subject.model.lines());
    guest.script(&format!(
        "echo '{name}'; {report} {slot}; d=$(device {slot}); sectors verify $d {size} </before-{slot}; \
         sectors write $d {size} </plan-{slot}; sectors verify $d {size} </after-{slot}",
        name = subject.name
    ));
}

fn golden(golden: &Golden, folder: &Path) -> Subject {
    let name = format!("golden-{}", golden.version);
    let image = folder.join(&name);
    golden.unpack(&image).unwrap();
    let mut subject = subject(name, image, golden.label_bytes);
    let btt = subject.btt();
    let mut dice = Dice::new(golden.sectors);
    for _ in 0..500 {
        subject.model.write(&btt, dice.below(golden.sectors));
    }
    subject.model.write_zeroes(&btt, 4, 3);
    subject.read_here = Some(sha256_of_device(&btt));
    subject
}

fn subject(name: String, image: PathBuf, label_bytes: u64) -> Subject {
    Subject { name, image, label_bytes, slot: 0, model: Model::default(), read_here: None }
}

/// An image of ours, written by several threads, so that many lanes are in use; some blocks zeroed,
/// some discarded.
fn ours(sector_size: u32, folder: &Path) -> Subject {
    let name = format!("ours-{sector_size}");
    let mut subject = subject(name.clone(), folder.join(&name), 0);
    let namespace = Namespace::create(&subject.image, SMALL_BYTES);
    namespace.format(&spec(sector_size, 0x0a_0000 + u128::from(sector_size)));
    let btt = namespace.into_btt();
    write_from_threads(&btt, &mut subject.model, u64::from(sector_size));
    subject.model.write_zeroes(&btt, 100, 50);
    subject.model.discard(&btt, 200, 50);
    subject.model.assert_all(&btt, &name);
    subject.read_here = Some(sha256_of_device(&btt));
    subject
}

fn write_from_threads(btt: &Btt<Namespace>, model: &mut Model, seed: u64) {
    const THREADS: u64 = 4;
    let blocks = btt.geometry().blocks;
    let models = std::thread::scope(|scope| {
        let write = |thread: u64| {
            let (mut model, mut dice) = (Model::default(), Dice::new(seed * THREADS + thread));
            for _ in 0..400 {
                model.write(btt, dice.below(blocks / THREADS) * THREADS + thread);
            }
            model
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || write(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    models.iter().for_each(|other| model.absorb(other));
}

/// A sparse image of two arenas, written around the border between them and at both ends.
fn two_arenas(folder: &Path) -> Subject {
    let mut subject = subject("two-arenas".to_owned(), folder.join("two-arenas"), 0);
    let namespace = Namespace::create(&subject.image, TWO_ARENAS_BYTES);
    namespace.format(&FormatSpec { uuid: [0x11; 16], ..spec(4096, 0) });
    let btt = namespace.into_btt();
    assert_eq!(btt.geometry().blocks, 134_086_520 + 7920);
    for block in (134_086_500..134_086_540).chain([0, 1, 2, 134_086_520 + 7919]) {
        subject.model.write(&btt, block);
    }
    subject
}

fn spec(sector_size: u32, uuid: u128) -> FormatSpec {
    FormatSpec { version: Version::V1_1, sector_size, uuid: uuid.to_be_bytes(), parent_uuid: [0; 16] }
}

/// An empty image that Linux will format, and ours with the same uuid.
fn format_in(guest: &mut Guest, sector_size: u32, folder: &Path) -> (u32, PathBuf, PathBuf) {
    let uuid = 0x5ec7_0400_0002_4b77_a111_0000_0000_0000_u128 + u128::from(sector_size);
    let ours = folder.join(format!("our-format-{sector_size}"));
    Namespace::create(&ours, SMALL_BYTES).format(&spec(sector_size, uuid));
    let linuxs = folder.join(format!("linuxs-format-{sector_size}"));
    std::fs::File::create_new(&linuxs).unwrap().set_len(SMALL_BYTES).unwrap();
    let slot = guest.dimm(&linuxs, 0);
    let hex = format!("{uuid:032x}");
    let dashed = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    guest.script(&format!("format {slot} {sector_size} {dashed}"));
    (sector_size, linuxs, ours)
}

/// An image with writes that stopped after their commit, in many lanes; and a copy of it, opened
/// here.
fn interrupted(folder: &Path) -> (PathBuf, PathBuf) {
    let (image, copy) = (folder.join("interrupted"), folder.join("interrupted-copy"));
    let namespace = Namespace::create(&image, SMALL_BYTES);
    namespace.format(&spec(4096, 0x0b));
    let btt = namespace.into_btt();
    let mut model = Model::default();
    (0..600).for_each(|block| model.write(&btt, block % 300));
    drop(btt);
    interrupt_writes(&Opened::first_arena(&image, Version::V1_1));
    std::fs::copy(&image, &copy).unwrap();
    drop(Namespace::open(&copy, 0).into_btt());
    (image, copy)
}

fn interrupt_writes(opened: &Opened) {
    let mut data = vec![0; 4096];
    // Blocks written before, blocks never written, first and last lanes.
    for (lane, lba) in [(0, 7), (1, 3000), (2, 299), (100, 0), (255, 3828)] {
        sectors::fill(&mut data, u64::from(lba), INTERRUPTED_GENERATION);
        opened.interrupt_write(lane, lba, &data);
    }
    // As PMDK leaves it: whole map entries in the flog.
    sectors::fill(&mut data, 9, INTERRUPTED_GENERATION);
    let write = opened.interrupt_write(3, 9, &data);
    let slot = opened.flog(3).slots.iter().position(|half| half.new.get() == write.new).unwrap();
    let seq = opened.flog(3).slots[slot].seq.get();
    let flagged = [write.old, write.new].map(|block| MapEntry::normal(block).raw());
    opened.set_slot(3, slot, FlogHalf::new(9, flagged[0], flagged[1], seq));
    // Complete, and of a block that was rewritten since: both stay as they are.
    sectors::fill(&mut data, 11, INTERRUPTED_GENERATION);
    let complete = opened.interrupt_write(4, 11, &data);
    opened.set_map(11, MapEntry::normal(complete.new));
    let rewritten = opened.interrupt_write(5, 13, &data);
    opened.set_map(13, MapEntry::normal(rewritten.new));
    sectors::fill(&mut data, 13, INTERRUPTED_GENERATION);
    let newest = opened.interrupt_write(6, 13, &data);
    opened.set_map(13, MapEntry::normal(newest.new));
}

const INTERRUPTED_GENERATION: u32 = 0xABCDE;

#[test]
fn linux_and_we_read_what_the_other_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let exchange = Exchange::run(folder.path());
    linuxs_own_images_go_through_our_hands_and_back(&exchange);
    every_sector_size_is_read_and_written_by_linux(&exchange);
    exchange.assert_exchanged(exchange.subject("two-arenas"));
    our_format_is_linuxs_format_byte_for_byte(&exchange);
    interrupted_writes_are_completed_by_linux_as_by_us(&exchange);
}

fn linuxs_own_images_go_through_our_hands_and_back(exchange: &Exchange) {
    for golden in [V1_1, V2_0] {
        let subject = exchange.subject(&format!("golden-{}", golden.version));
        exchange.assert_exchanged(subject);
        let btt = subject.btt();
        let mut sector = vec![0; 4096];
        let touched: BTreeMap<u64, u32> = subject.model.touched().collect();
        for number in (0..golden.sectors).filter(|number| !touched.contains_key(number)) {
            btt.read(Lba(number), &mut sector).unwrap();
            let record = golden.record(number).unwrap_or_else(|| "\0".repeat(16));
            assert!(sector.chunks(16).all(|piece| piece == record.as_bytes()), "sector {number}");
        }
    }
}

fn every_sector_size_is_read_and_written_by_linux(exchange: &Exchange) {
    for sector_size in SECTOR_SIZES {
        let subject = exchange.subject(&format!("ours-{sector_size}"));
        exchange.assert_exchanged(subject);
        let btt = subject.btt();
        assert_eq!(btt.geometry().block_size, sector_data_bytes(sector_size));
        subject.model.assert_all(&btt, &subject.name);
    }
}

fn our_format_is_linuxs_format_byte_for_byte(exchange: &Exchange) {
    for (sector_size, linuxs, ours) in &exchange.formatted {
        assert_eq!(sha256_of_file(linuxs).unwrap(), sha256_of_file(ours).unwrap(), "sector size {sector_size}");
    }
}

fn interrupted_writes_are_completed_by_linux_as_by_us(exchange: &Exchange) {
    let (linuxs, ours) = &exchange.interrupted;
    assert_eq!(sha256_of_file(linuxs).unwrap(), sha256_of_file(ours).unwrap());
    let btt = Namespace::open(linuxs, 0).into_btt();
    for block in [7, 3000, 299, 0, 3828, 9, 11, 13] {
        assert_eq!(sectors::read_generation(&btt, block), INTERRUPTED_GENERATION, "block {block}");
    }
}
