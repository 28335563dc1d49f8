//! Whole machines killed while the program serves a volume in them; `machine-killed --cuts N` does
//! the same for longer.

use tidegate_trials::artefacts::announce;
use tidegate_trials::killed_machine::{Medium, survive};

/// Cuts of each medium.
const CUTS: u32 = 12;

#[test]
fn a_device_keeps_what_a_killed_machine_acknowledged() {
    survives(Medium::Device);
}

#[test]
fn a_file_on_dax_keeps_what_a_killed_machine_acknowledged() {
    survives(Medium::File);
}

fn survives(medium: Medium) {
    let survived = survive(medium, CUTS);
    announce(&format!("machine: {survived}"));
    assert!(survived.cuts >= CUTS && survived.kills > 1 && survived.writes > 0, "{survived}");
}
