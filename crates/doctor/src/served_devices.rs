//! Volumes that are block devices of this machine: running servers say which.

use std::path::{Path, PathBuf};
use tidegate_file_service::FoundMount;
use tidegate_host::processes::{self, Process};
use tidegate_server::control::client;
use tidegate_server::stats::snapshot::VolumeCounts;

/// A volume that is a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedVolume {
    /// Its region.
    pub(crate) region: PathBuf,
    /// Which failures the region survives, as a server tells it: `power-fail` and so on.
    pub(crate) domain: String,
    /// Whether a disk lies behind it.
    pub(crate) has_disk: bool,
}

impl ServedVolume {
    /// The volume that is `device`, if a server that this user sees says so.
    pub(crate) fn at(device: &Path) -> Option<ServedVolume> {
        let (_, servers) = FoundMount::among(processes::of_this_user());
        let answers = client::ask_each(&servers, |server: &Process| client::ask_found(server).ok());
        answers.iter().find_map(|(_, snapshot)| ServedVolume::among(&snapshot.volumes, device))
    }

    fn among(volumes: &[VolumeCounts], device: &Path) -> Option<ServedVolume> {
        let is_device = |place: &String| Path::new(place) == device;
        let volume = volumes.iter().find(|volume| volume.uris.iter().any(is_device))?;
        let VolumeCounts { pmem: region, domain, disk, .. } = volume.clone();
        Some(ServedVolume { region, domain, has_disk: disk.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(region: &str, uris: &[&str]) -> VolumeCounts {
        let counts = serde_json::json!({
            "name": "v", "pmem": region, "domain": "process-crash", "requests": [], "readings": [], "uris": uris,
        });
        serde_json::from_value(counts).expect("an answer")
    }

    #[test]
    fn a_volume_is_found_by_the_device_that_its_server_names() {
        let volumes = [volume("/a", &["nbd+unix:///a?socket=/s"]), volume("/b", &["nbd://x/b", "/dev/ublkb1"])];
        let found = |device: &str| ServedVolume::among(&volumes, Path::new(device)).map(|volume| volume.region);
        assert_eq!(found("/dev/ublkb1"), Some(PathBuf::from("/b")));
        assert_eq!(found("/dev/ublkb11"), None);
        assert_eq!(ServedVolume::at(Path::new("/dev/no such device")), None);
    }
}
