//! systemd with Tidegate's units, the folder where a user's pools lie by default, and file systems
//! on attached volumes.

use crate::block_devices::DevicesBelow;
use crate::finding::{DoctorFinding, Level};
use crate::host::memory::is_in_memory;
use crate::machine_view::MachineView;
use rustix::fs::statvfs;
use std::path::{Path, PathBuf};
use tidegate_host::default_paths::default_pool;
use tidegate_host::files::folder_of;
use tidegate_host::shell::word;

/// Folders of units, and a unit that each package installs.
const UNIT_FOLDERS: [&str; 3] = ["/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
const UNIT: &str = "tidegate@.service";

/// How devices are named that may be volumes.
const OF_VOLUMES: [&str; 4] = ["nbd", "ublkb", "loop", "pmem"];

/// Bytes of the blocks of a file system that are whole on a volume.
const BLOCK_BYTES: u64 = 4096;

pub(super) fn findings(view: &MachineView) -> Vec<DoctorFinding> {
    let mut findings = vec![systemd(view), state_folder(view, &default_pool())];
    // The kernel's own file systems on block devices answer from memory.
    let block_bytes = |at: &Path| statvfs(at).ok().map(|about| about.f_frsize);
    findings.extend(small_blocks(view, block_bytes));
    findings
}

fn systemd(view: &MachineView) -> DoctorFinding {
    let subject = "systemd";
    if !view.exists("/run/systemd/system") {
        let why = "servers and mounts run without it; whoever starts them sees to it that they end in an orderly way (tidegate stop, umount)";
        return DoctorFinding::ok(subject, "the machine was not started by systemd", why);
    }
    match UNIT_FOLDERS.iter().find(|folder| view.exists(&format!("{folder}/{UNIT}"))) {
        Some(folder) => DoctorFinding::ok(
            subject,
            format!("Tidegate's units are in {folder}"),
            "servers and mounts can begin with the machine, and tell systemd when they are ready (Type=notify)",
        ),
        None => DoctorFinding::new(
            (Level::Advice, subject),
            "Tidegate's units are not installed",
            "servers and mounts do not begin with the machine, and systemd does not wait for their write-back",
            "install the package, or copy crates/cli/systemd/*.service to /etc/systemd/system and run systemctl daemon-reload",
        ),
    }
}

/// The folder of pools whose place nobody named.
fn state_folder(view: &MachineView, pool: &Path) -> DoctorFinding {
    let (subject, folder) = ("state-folder", folder_of(pool));
    let shown = folder.display();
    if is_in_memory(view, folder) {
        let why =
            "a restart of the machine takes default volumes and pools that are there, and what files lack with them";
        let fix = "name places on persistent memory: --pmem FILE, --pool FILE";
        return DoctorFinding::new((Level::Warning, subject), format!("{shown} lies in memory"), why, fix);
    }
    let kind =
        view.mount_of(folder).map(|(_, mounted)| mounted.kind).unwrap_or_else(|| "an unknown file system".to_owned());
    let why = "default volumes and pools lie there: unless that is a DAX file system, they are of the domain disk-file";
    DoctorFinding::ok(subject, format!("{shown} lies on {kind}"), why)
}

/// File systems with small blocks on devices that may be volumes.
fn small_blocks(view: &MachineView, block_bytes: impl Fn(&Path) -> Option<u64>) -> Vec<DoctorFinding> {
    let subject = "small-blocks";
    let found: Vec<_> = view.mounts().into_iter().filter_map(|(at, mounted)| {
        let device = PathBuf::from(&mounted.source_name);
        let name = device.file_name()?.to_str()?.to_owned();
        let bottom = DevicesBelow::of(view, &mounted.number).map_or_else(|| vec![name.clone()], |below| below.bottom);
        let may_be_volume = bottom.iter().any(|below| OF_VOLUMES.iter().any(|kind| below.starts_with(kind)));
        let is_small = may_be_volume && mounted.kind.starts_with("ext") && block_bytes(&at)? < BLOCK_BYTES;
        is_small.then_some((at, device, mounted.kind))
    }).map(|(at, device, kind)| {
        DoctorFinding::new(
            (Level::Warning, subject),
            format!("{kind} at {} has blocks of less than 4 KiB on {}", at.display(), device.display()),
            "if that is a volume of Tidegate, a page of a file may lie across two of its blocks, and a power loss or a kill may tear it",
            format!("save its files, and make it anew: mkfs.ext4 -b 4096 {}", word(&device)),
        )
    }).collect();
    if found.is_empty() {
        let why = "a page of a file is then within one block of a volume";
        return vec![DoctorFinding::ok(subject, "no ext4 on an attached device has blocks of less than 4 KiB", why)];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_devices::tests::add_device;
    use crate::finding::tests::level_of;
    use crate::machine_view::tests::MadeMachine;

    #[test]
    fn units_are_missed_where_systemd_is() {
        assert_eq!(systemd(&MadeMachine::new().view()).level, Level::Ok);
        let machine = MadeMachine::with(&[("/run/systemd/system/x", "")]);
        assert_eq!(systemd(&machine.view()).level, Level::Advice);
        machine.write("/usr/lib/systemd/system/tidegate@.service", "");
        assert_eq!(systemd(&machine.view()).level, Level::Ok);
    }

    #[test]
    fn a_state_folder_in_memory_does_not_last() {
        let machine = MadeMachine::with(&[(
            "/proc/self/mountinfo",
            "1 1 8:1 / / rw - ext4 a rw\n2 1 0:5 / /home/u rw - tmpfs b rw\n",
        )]);
        let of = |pool: &str| state_folder(&machine.view(), Path::new(pool));
        assert_eq!(of("/home/u/.local/state/tidegate/default.pool").level, Level::Warning);
        let on_disk = of("/root/.local/state/tidegate/default.pool");
        assert!(on_disk.level == Level::Ok && on_disk.found.ends_with("lies on ext4"), "{on_disk:?}");
    }

    #[test]
    fn small_blocks_on_attached_devices_are_told() {
        let machine = MadeMachine::with(&[(
            "/proc/self/mountinfo",
            "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 43:0 / /mnt/v rw - ext4 /dev/nbd0 rw\n3 1 7:0 / /mnt/w rw - xfs /dev/loop0 rw\n",
        )]);
        let of = |bytes: u64| level_of(&small_blocks(&machine.view(), |_| Some(bytes)), "small-blocks");
        assert_eq!((of(1024), of(4096)), (Level::Warning, Level::Ok));
        let machine = MadeMachine::with(&[(
            "/proc/self/mountinfo",
            "1 1 259:0 / /u rw - ext4 /dev/ublkb0 rw\n2 1 253:0 / /m rw - ext4 /dev/mapper/a-b rw\n3 1 253:1 / /n rw - ext4 /dev/mapper/c rw\n",
        )]);
        for (device, below) in
            [(("259:0", "ublkb0"), None), (("8:0", "sda"), None), (("253:0", "dm-0"), Some("ublkb0"))]
        {
            add_device(&machine, device, below.as_slice());
        }
        add_device(&machine, ("253:1", "dm-1"), &["sda"]);
        let found: Vec<_> =
            small_blocks(&machine.view(), |_| Some(1024)).into_iter().map(|found| found.found).collect();
        assert!(
            found.len() == 2 && found[0].ends_with("/dev/ublkb0") && found[1].ends_with("/dev/mapper/a-b"),
            "{found:?}"
        );
        let silent = small_blocks(&machine.view(), |_| None);
        assert_eq!(level_of(&silent, "small-blocks"), Level::Ok);
    }
}
