//! Whole machines killed while applications work in a mount, whose pool is on the NVDIMM of the
//! guest, with Linux 6.1 and 6.12 in turn. `TIDEGATE_MACHINE_KILLS` and `machine-killed
//! --mount-kills N` do the same for longer, with SOURCE on XFS too.

use tidegate_trials::artefacts::announce;
use tidegate_trials::killed_mount::{SourceFileSystem, survive_with_mount};

const KILLS: u32 = 2;

#[test]
fn every_promise_is_kept_by_a_mount_whose_machine_is_killed() {
    let long: Option<u32> =
        std::env::var("TIDEGATE_MACHINE_KILLS").ok().map(|kills| kills.parse().expect("a number of kills"));
    let sources = if long.is_some() { &SourceFileSystem::BOTH[..] } else { &[SourceFileSystem::Ext4] };
    let kills = long.map_or(KILLS, |kills| kills.div_ceil(2));
    for source in sources {
        let survived = survive_with_mount(*source, kills, u64::from(kills));
        announce(&format!("machine: {survived}"));
        assert!(survived.kills == kills && survived.acts > 0 && survived.servers > 0, "{survived}");
        let ran = |version: &str| survived.kernels.iter().any(|kernel| kernel.starts_with(version));
        assert!(ran("6.1.") && ran("6.12."), "{survived}");
    }
}
