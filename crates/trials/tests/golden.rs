//! Images that Linux formatted and wrote, opened here.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use sha2::{Digest, Sha256};
use std::path::Path;
use tidegate_layout::btt::Version;
use tidegate_media::{BlockDevice, Lba};
use tidegate_trials::artefacts::{hex, sha256_of_file};
use tidegate_trials::golden::{Golden, V1_1, V2_0};
use tidegate_trials::namespace::Namespace;
use tidegate_trials::sectors::sha256_of_device;

const GOLDEN: [(Golden, Version); 2] = [(V1_1, Version::V1_1), (V2_0, Version::V2_0)];

fn unpacked(golden: &Golden, folder: &Path) -> std::path::PathBuf {
    let image = folder.join(golden.version);
    golden.unpack(&image).unwrap();
    image
}

#[test]
fn the_stored_images_are_those_linux_made() {
    for (golden, _) in GOLDEN {
        let image = golden.image();
        assert_eq!(image.len() as u64, golden.image_bytes);
        assert_eq!(hex(&Sha256::digest(&image)), golden.image_sha256);
    }
}

#[test]
fn they_open_with_the_geometry_linux_gave_them() {
    let folder = tempfile::tempdir().unwrap();
    for (golden, version) in GOLDEN {
        let btt = Namespace::open(&unpacked(&golden, folder.path()), golden.label_bytes).into_btt();
        let geometry = btt.geometry();
        assert_eq!((geometry.block_size, geometry.blocks), (4096, golden.sectors));
        let summary = btt.summary();
        assert_eq!(summary.version, version);
        assert_eq!((summary.uuid, summary.parent_uuid), (golden.uuid, golden.parent_uuid));
    }
}

#[test]
fn every_sector_reads_as_linux_read_it() {
    let folder = tempfile::tempdir().unwrap();
    for (golden, _) in GOLDEN {
        let btt = Namespace::open(&unpacked(&golden, folder.path()), golden.label_bytes).into_btt();
        assert_eq!(sha256_of_device(&btt), golden.device_sha256, "{}", golden.version);
        let mut sector = vec![0; 4096];
        for number in 0..golden.sectors {
            btt.read(Lba(number), &mut sector).unwrap();
            let record = golden.record(number).unwrap_or_else(|| "\0".repeat(16));
            assert!(sector.chunks(16).all(|piece| piece == record.as_bytes()), "sector {number}");
        }
    }
}

#[test]
fn opening_and_reading_changes_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    for (golden, _) in GOLDEN {
        let image = unpacked(&golden, folder.path());
        sha256_of_device(&Namespace::open(&image, golden.label_bytes).into_btt());
        assert_eq!(sha256_of_file(&image).unwrap(), golden.image_sha256, "{}", golden.version);
    }
}
