//! The guest itself: its drivers read Linux's own images as Linux recorded them.

use tidegate_trials::golden::{V1_1, V2_0};
use tidegate_trials::guest::Guest;

#[test]
fn a_guest_reads_the_images_linux_made() {
    let folder = tempfile::tempdir().unwrap();
    let mut guest = Guest::new();
    // The labels of v2.0 are bound to the first slot.
    let slots = [V2_0, V1_1].map(|golden| {
        let image = folder.path().join(golden.version);
        golden.unpack(&image).unwrap();
        let slot = guest.dimm(&image, golden.label_bytes);
        guest.script(&format!("report {slot}"));
        (slot, golden)
    });
    let said = guest.run().unwrap_or_else(|error| panic!("{error}"));
    for (slot, golden) in slots {
        let report = said.report(slot).expect("Linux attaches its own image");
        assert_eq!((report.bytes, report.sector_size), (golden.sectors * 4096, 4096));
        assert_eq!(report.sha256, golden.device_sha256);
    }
}
