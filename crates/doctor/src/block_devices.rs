//! The block devices below a file system, as the kernel tells of them: a device mapper, a RAID or a
//! partition stands on others, and what a sync survives is up to those at the bottom.

use crate::machine_view::MachineView;
use std::fs;
use std::path::{Path, PathBuf};

/// Most devices of which each stands on the next; the kernel makes shorter chains.
const DEPTH_MAX: usize = 16;

/// A block device that a file system lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DevicesBelow {
    /// Its name, such as `dm-0` or `sda1`.
    pub(crate) name: String,
    /// The whole devices at the bottom of it, in order; of `sda1` it is `sda`.
    pub(crate) bottom: Vec<String>,
}

impl DevicesBelow {
    /// The device of this number, such as `8:1`. `None`: it is no block device.
    pub(crate) fn of(view: &MachineView, number: &str) -> Option<DevicesBelow> {
        let folder = fs::canonicalize(view.at(&format!("/sys/dev/block/{number}"))).ok()?;
        let mut bottom = Vec::new();
        descend(&folder, 0, &mut bottom);
        bottom.sort();
        bottom.dedup();
        Some(DevicesBelow { name: name_of(&folder)?, bottom })
    }
}

/// Adds the whole devices at the bottom of the one with this folder.
fn descend(folder: &Path, depth: usize, bottom: &mut Vec<String>) {
    let is_part = folder.join("partition").exists();
    let whole = folder.parent().filter(|_| is_part).unwrap_or(folder);
    let below: Vec<PathBuf> =
        fs::read_dir(whole.join("slaves")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    if below.is_empty() || depth >= DEPTH_MAX {
        bottom.extend(name_of(whole));
        return;
    }
    below.iter().filter_map(|link| link.canonicalize().ok()).for_each(|folder| descend(&folder, depth + 1, bottom));
}

fn name_of(folder: &Path) -> Option<String> {
    Some(folder.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::machine_view::tests::MadeMachine;
    use std::os::unix::fs::symlink;

    /// Gives `machine` a device of this number, which stands on `below`.
    pub(crate) fn add_device(machine: &MadeMachine, (number, name): (&str, &str), below: &[&str]) {
        let at = |path: &str| machine.view().at(path);
        let folder = at(&format!("/sys/block/{name}"));
        fs::create_dir_all(folder.join("slaves")).expect("made");
        for other in below {
            symlink(
                at(&format!("/sys/block/{other}")),
                folder.join("slaves").join(name_of(Path::new(other)).expect("a name")),
            )
            .expect("linked");
        }
        fs::create_dir_all(at("/sys/dev/block")).expect("made");
        symlink(folder, at(&format!("/sys/dev/block/{number}"))).expect("linked");
    }

    #[test]
    fn devices_are_followed_to_the_bottom() {
        let machine = MadeMachine::new();
        add_device(&machine, ("259:0", "ublkb0"), &[]);
        machine.write("/sys/block/nbd0/nbd0p1/partition", "1");
        add_device(&machine, ("254:0", "dm-0"), &["ublkb0", "nbd0/nbd0p1"]);
        add_device(&machine, ("254:1", "dm-1"), &["dm-0"]);
        add_device(&machine, ("9:0", "md0"), &["md0"]);
        symlink(machine.view().at("/sys/block/nbd0/nbd0p1"), machine.view().at("/sys/dev/block/43:1")).expect("linked");
        let of = |number| DevicesBelow::of(&machine.view(), number).map(|below| (below.name, below.bottom.join(" ")));
        let told = |name: &str, bottom: &str| Some((name.to_owned(), bottom.to_owned()));
        assert_eq!(of("259:0"), told("ublkb0", "ublkb0"));
        assert_eq!(of("43:1"), told("nbd0p1", "nbd0"));
        assert_eq!(of("254:1"), told("dm-1", "nbd0 ublkb0"));
        assert_eq!(of("9:0"), told("md0", "md0"), "a circle ends");
        assert_eq!(of("0:40"), None);
    }
}
