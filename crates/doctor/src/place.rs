//! Where a directory lies, and what a sync there survives.

use crate::answers::{PlaceAnswer, answer_of};
use crate::block_devices::DevicesBelow;
use crate::finding::{DoctorFinding, Level};
use crate::machine_view::MachineView;
use crate::served_devices::ServedVolume;
use std::path::{Path, PathBuf};
use tidegate_host::files::mount_table::MountedFileSystem;
use tidegate_host::shell::word;
use tidegate_media::{Access, Domain, MappedRegion, memory_devices};
use tidegate_mount_transport::KIND;

/// What a directory lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DirectoryPlace {
    /// A mount of Tidegate. `None`: the pool, or its domain, is not known.
    Mount { mountpoint: PathBuf, pool: Option<PathBuf>, domain: Option<Domain> },
    /// A SOURCE whose files may lack what its pool has.
    Source { source: PathBuf, pool: PathBuf },
    /// A file system in memory, of this kind.
    Memory { kind: String },
    /// A file system of this kind on a block device.
    Device { kind: String, name: String, device: BlockDeviceKind, barriers: Barriers },
    /// Another file system: of a network, of another program, or made of others.
    Foreign { kind: String },
}

/// A block device, as far as its name and the kernel tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockDeviceKind {
    /// A client of an NBD server.
    Nbd,
    /// A device that a program serves. `None`: no running server of Tidegate names it.
    Ublk(Option<ServedVolume>),
    /// A loop device over a file.
    Loop { backing: String },
    /// A disk that a monitor gives to this guest.
    Virtio,
    /// Persistent memory, of which this survives; DRAM survives the end of processes alone.
    PersistentMemory(Domain),
    /// Anything else.
    Disk,
}

/// Whether the file system has its device flush what it wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barriers {
    On,
    /// By the mount option `nobarrier` or `barrier=0`.
    Off,
}

const MEMORY_KINDS: [&str; 3] = ["tmpfs", "ramfs", "hugetlbfs"];

/// Where this machine's pools are told of: the pool of a mountpoint or SOURCE, or else the path
/// itself.
pub(crate) type PoolOf = fn(&Path) -> PathBuf;

impl DirectoryPlace {
    /// Where `directory`, an absolute path without links, lies on the machine. `None`: the kernel
    /// does not tell.
    pub(crate) fn of(view: &MachineView, directory: &Path, pool_of: PoolOf) -> Option<DirectoryPlace> {
        let (mountpoint, mounted) = view.mount_of(directory)?;
        let marked = |place: &Path| Some(pool_of(place)).filter(|pool| pool != place);
        if mounted.kind == KIND {
            // Its mark is read from SOURCE.
            let answers = answer_of(Path::new(&mounted.source_name)) == PlaceAnswer::Given;
            let pool = marked(&mountpoint).filter(|_| answers);
            let domain = pool.as_ref().and_then(|pool| domain_of(pool));
            return Some(DirectoryPlace::Mount { mountpoint, pool, domain });
        }
        let above = directory.ancestors().take_while(|place| place.starts_with(&mountpoint));
        if let Some((source, pool)) = above.filter_map(|place| Some((place.to_owned(), marked(place)?))).next() {
            return Some(DirectoryPlace::Source { source, pool });
        }
        Some(DirectoryPlace::of_file_system(view, mounted))
    }

    fn of_file_system(view: &MachineView, mounted: MountedFileSystem) -> DirectoryPlace {
        let MountedFileSystem { number, kind, options, .. } = mounted;
        if MEMORY_KINDS.contains(&kind.as_str()) {
            return DirectoryPlace::Memory { kind };
        }
        let Some(DevicesBelow { name, bottom }) = DevicesBelow::of(view, &number) else {
            return DirectoryPlace::Foreign { kind };
        };
        let is_off = options.split(',').any(|option| option == "nobarrier" || option == "barrier=0");
        let barriers = if is_off { Barriers::Off } else { Barriers::On };
        let (device, name) = BlockDeviceKind::gravest(view, name, &bottom);
        DirectoryPlace::Device { kind, name, device, barriers }
    }

    pub(crate) fn is_mount(&self) -> bool {
        matches!(self, DirectoryPlace::Mount { .. })
    }

    /// Why no page of a database is promised to be whole here after a power loss.
    pub(crate) fn pages_may_tear(&self) -> &'static str {
        match self {
            DirectoryPlace::Mount { .. } => {
                "each write request of a mount is whole after a power loss, but a page may still be torn: if server and supervisor are killed together amid its write, if it is written with O_DIRECT, or if the kernel sends it as several requests"
            }
            DirectoryPlace::Device {
                device:
                    BlockDeviceKind::Nbd | BlockDeviceKind::Ublk(_) | BlockDeviceKind::Loop { .. } | BlockDeviceKind::Virtio,
                ..
            } => {
                "that every page is whole here after a power loss is not proven: a volume of Tidegate promises whole blocks of its own, 4 KiB by default, and the file system above it may cut a page in two"
            }
            DirectoryPlace::Foreign { kind } if kind == "zfs" || kind == "btrfs" => {
                "this file system may write pages whole, but Tidegate has not proven it"
            }
            _ => "a power loss in the midst of a write may leave a page half old and half new",
        }
    }

    /// What the place survives, as a finding.
    pub(crate) fn finding(&self) -> DoctorFinding {
        match self {
            DirectoryPlace::Mount { mountpoint, pool, domain } => of_mount(mountpoint, pool.as_deref(), *domain),
            DirectoryPlace::Source { source, pool } => of_source(source, pool),
            DirectoryPlace::Memory { kind } => DoctorFinding::new(
                (Level::Fault, "place"),
                format!("it lies in memory ({kind})"),
                "a power loss, a crash of the kernel or a restart of the machine takes all of it, synced or not",
                "move it to a disk, or to a mount whose pool is persistent memory: tidegate mount SOURCE MOUNTPOINT --pool FILE",
            ),
            DirectoryPlace::Device { kind, name, barriers: Barriers::Off, .. } => DoctorFinding::new(
                (Level::Fault, "place"),
                format!("it lies on {kind} on {name}, mounted without barriers"),
                "a sync does not have the disk flush its cache: a power loss may take synced data, and damage the file system",
                "mount it without the options nobarrier and barrier=0",
            ),
            DirectoryPlace::Device { kind, name, device, .. } => device.finding(kind, name),
            DirectoryPlace::Foreign { kind } => DoctorFinding::new(
                (Level::Advice, "place"),
                format!("it lies on a file system of the kind {kind}"),
                "what a sync survives there is not known to Tidegate",
                "read what that file system promises about fsync",
            ),
        }
    }
}

/// What a pool survives, as it is probed without a lock. `None`: it cannot be looked at.
fn domain_of(pool: &Path) -> Option<Domain> {
    (answer_of(pool) == PlaceAnswer::Given).then_some(())?;
    MappedRegion::open(pool, Access::PrivateUnlocked).ok().map(|region| region.domain())
}

fn of_mount(mountpoint: &Path, pool: Option<&Path>, domain: Option<Domain>) -> DoctorFinding {
    let at = format!("it lies in the mount at {}", mountpoint.display());
    match (pool, domain) {
        (Some(pool), Some(domain @ Domain::PowerFail { .. })) => DoctorFinding::ok(
            "place",
            format!("{at}, whose pool {} is persistent memory ({domain})", pool.display()),
            "a sync returns when its bytes are in persistent memory, and a power loss does not take them",
        ),
        (Some(pool), Some(domain)) => DoctorFinding::new(
            (Level::Fault, "place"),
            format!("{at}, whose pool {} is no persistent memory ({domain})", pool.display()),
            "kills of programs and servers take nothing, but a power loss takes the last syncs; files in SOURCE are then of different moments, and the database may be damaged",
            "unmount, and mount with a pool in persistent memory: tidegate mount SOURCE MOUNTPOINT --pool FILE",
        ),
        _ => DoctorFinding::new(
            (Level::Warning, "place"),
            format!("{at}, whose pool cannot be looked at"),
            "whether a power loss takes synced data is not known",
            format!("ask as the owner of the mount, or as root: sudo tidegate status {}", word(mountpoint)),
        ),
    }
}

/// A volume of which a server says where it lies.
fn of_volume(at: &str, volume: &ServedVolume) -> DoctorFinding {
    let ServedVolume { region, domain, has_disk } = volume;
    let found = format!("{at}, the volume in {} ({domain})", region.display());
    let is_of = |known: Domain| *domain == known.to_string();
    if is_of(Domain::PowerFail { caches_included: false }) || is_of(Domain::DiskFile) {
        return DoctorFinding::ok(
            "place",
            found,
            "a sync waits for a flush of the volume, which a power loss does not take",
        );
    }
    let ask = format!("tidegate info {}", word(region));
    if *has_disk || !is_of(Domain::ProcessCrash) {
        let why = "what a power loss takes from a volume is up to its region, its disk and the mode of its cache";
        return DoctorFinding::new((Level::Warning, "place"), found, why, format!("read what it promises: {ask}"));
    }
    DoctorFinding::new(
        (Level::Fault, "place"),
        found,
        "the volume's region is in memory: a power loss takes all of it, synced or not",
        format!("move it to a volume in persistent memory, or in a file on a disk; {ask} tells what this one survives"),
    )
}

fn of_source(source: &Path, pool: &Path) -> DoctorFinding {
    DoctorFinding::new(
        (Level::Fault, "place"),
        format!("it lies in {}, which the pool {} may have newer bytes of", source.display(), pool.display()),
        "files there lack what is not written back; a program that opens them finds an older database, and spoils what recovery would bring",
        format!(
            "use the files at the mountpoint; if nothing is mounted, write the pool back: tidegate recover {}",
            word(pool)
        ),
    )
}

impl BlockDeviceKind {
    /// What the device `name` with these whole devices at its `bottom` is, and how it is named: by
    /// the one of them that survives least.
    fn gravest(view: &MachineView, name: String, bottom: &[String]) -> (BlockDeviceKind, String) {
        let kinds = bottom.iter().map(|below| (BlockDeviceKind::of(view, below), below));
        let gravest = kinds.max_by_key(|(device, _)| device.finding("", "").level);
        let Some((device, below)) = gravest else { return (BlockDeviceKind::Disk, name) };
        // A partition begins with the name of its device.
        let name = if name.starts_with(below) { name } else { format!("{name} over {below}") };
        (device, name)
    }

    /// What the whole device `name` is.
    fn of(view: &MachineView, name: &str) -> BlockDeviceKind {
        if name.starts_with("nbd") {
            return BlockDeviceKind::Nbd;
        }
        if name.starts_with("ublkb") {
            let device = Path::new("/dev").join(name);
            return BlockDeviceKind::Ublk(view.is_own().then(|| ServedVolume::at(&device)).flatten());
        }
        if name.starts_with("ram") || name.starts_with("zram") {
            return BlockDeviceKind::PersistentMemory(Domain::ProcessCrash);
        }
        if name.starts_with("loop") {
            let backing = view.text(&format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
            return BlockDeviceKind::Loop { backing };
        }
        if name.starts_with("pmem") {
            let known = memory_devices(&view.at("/sys")).into_iter().find(|device| device.name == name);
            return BlockDeviceKind::PersistentMemory(known.map_or(Domain::ProcessCrash, |device| device.domain));
        }
        if name.starts_with("vd") { BlockDeviceKind::Virtio } else { BlockDeviceKind::Disk }
    }

    fn finding(&self, kind: &str, name: &str) -> DoctorFinding {
        let at = format!("it lies on {kind} on {name}");
        let unknown = |is: &str| {
            DoctorFinding::new(
                (Level::Advice, "place"),
                format!("{at}, {is}"),
                "whether that is a volume of Tidegate cannot be told from here, nor what it survives",
                "look at its server: tidegate list, and tidegate info FILE for what its region survives",
            )
        };
        match self {
            BlockDeviceKind::Nbd => unknown("a network block device"),
            BlockDeviceKind::Ublk(None) => unknown("a device that a program serves"),
            BlockDeviceKind::Ublk(Some(volume)) => of_volume(&at, volume),
            BlockDeviceKind::Virtio => unknown("a disk that this machine's monitor provides"),
            BlockDeviceKind::Loop { backing } => unknown(&format!("a loop device over {backing}")),
            BlockDeviceKind::PersistentMemory(domain @ Domain::PowerFail { .. }) => DoctorFinding::ok(
                "place",
                format!("{at}, persistent memory ({domain})"),
                "synced data survives a power loss, as the platform declares",
            ),
            BlockDeviceKind::PersistentMemory(_) => DoctorFinding::new(
                (Level::Fault, "place"),
                format!("{at}, memory that declares no persistence"),
                "a power loss takes all of it, synced or not",
                "move it to a disk, or to memory whose firmware declares a persistence domain",
            ),
            BlockDeviceKind::Disk => DoctorFinding::ok(
                "place",
                at,
                "a sync waits until the disk has confirmed a flush, and survives a power loss if the disk is honest; in a mount it would wait for persistent memory alone",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_devices::tests::add_device;
    use crate::machine_view::tests::MadeMachine;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A machine with file systems of every kind, and the devices below them.
    fn machine() -> MadeMachine {
        let line = |number: &str, at: &str, kind: &str, options: &str| {
            format!("1 1 {number} / {at} rw - {kind} src {options}\n")
        };
        let table = [
            line("8:1", "/", "ext4", "rw"),
            line("0:30", "/mem", "tmpfs", "rw"),
            line("0:31", "/tide", KIND, "rw"),
            line("43:0", "/nbd", "ext4", "rw"),
            line("7:0", "/loop", "xfs", "rw"),
            line("254:0", "/virtio", "ext4", "rw"),
            line("259:0", "/dax", "ext4", "rw"),
            line("8:2", "/bare", "ext4", "rw,nobarrier"),
            line("0:44", "/net", "nfs4", "rw"),
            line("0:45", "/zfs", "zfs", "rw"),
            line("259:7", "/ublk", "ext4", "rw"),
            line("253:0", "/lvm", "ext4", "rw"),
            line("253:1", "/plain", "ext4", "rw"),
            line("252:0", "/zram", "ext4", "rw"),
        ];
        let machine = MadeMachine::with(&[
            ("/proc/self/mountinfo", &table.concat()),
            ("/sys/block/loop0/loop/backing_file", "/img\n"),
            ("/sys/devices/region0/persistence_domain", "memory_controller\n"),
            ("/sys/devices/region0/block/pmem0/size", "1"),
        ]);
        let devices = [("8:1", "sda1"), ("8:2", "sda2"), ("43:0", "nbd0"), ("7:0", "loop0"), ("254:0", "vda")];
        devices.into_iter().for_each(|device| add_device(&machine, device, &[]));
        add_device(&machine, ("259:7", "ublkb0"), &[]);
        add_device(&machine, ("253:0", "dm-0"), &["sda1", "ublkb0"]);
        add_device(&machine, ("253:1", "dm-1"), &["sda1"]);
        add_device(&machine, ("252:0", "zram0"), &[]);
        let pmem = machine.view().at("/sys/devices/region0/block/pmem0");
        symlink(&pmem, machine.view().at("/sys/block/pmem0")).expect("linked");
        symlink(pmem, machine.view().at("/sys/dev/block/259:0")).expect("linked");
        machine
    }

    fn place(path: &str) -> DirectoryPlace {
        DirectoryPlace::of(&machine().view(), Path::new(path), Path::to_owned).expect("the table has it")
    }

    #[test]
    fn every_kind_of_place_is_told_with_its_level() {
        for (path, level, words) in [
            ("/srv/db", Level::Ok, "ext4 on sda1"),
            ("/mem/db", Level::Fault, "memory (tmpfs)"),
            ("/tide/db", Level::Warning, "cannot be looked at"),
            ("/nbd/db", Level::Advice, "a network block device"),
            ("/loop/db", Level::Advice, "a loop device over /img"),
            ("/virtio/db", Level::Advice, "monitor"),
            ("/dax/db", Level::Ok, "persistent memory (power-fail)"),
            ("/bare/db", Level::Fault, "without barriers"),
            ("/net/db", Level::Advice, "nfs4"),
            ("/ublk/db", Level::Advice, "ext4 on ublkb0, a device that a program serves"),
            ("/lvm/db", Level::Advice, "ext4 on dm-0 over ublkb0, a device"),
            ("/plain/db", Level::Ok, "ext4 on dm-1 over sda1"),
            ("/zram/db", Level::Fault, "declares no persistence"),
        ] {
            let finding = place(path).finding();
            assert!(finding.level == level && finding.found.contains(words), "{path}: {finding:?}");
            assert_eq!(finding.fix.is_some(), level != Level::Ok, "{path}: {finding:?}");
        }
    }

    #[test]
    fn memory_that_declares_nothing_is_not_persistent() {
        let machine = machine();
        machine.write("/sys/devices/region0/persistence_domain", "\n");
        let place = DirectoryPlace::of(&machine.view(), Path::new("/dax/db"), Path::to_owned).expect("it is there");
        assert_eq!(place.finding().level, Level::Fault);
    }

    #[test]
    fn a_source_that_is_marked_is_no_place_for_a_program() {
        let pool_of = |path: &Path| if path == Path::new("/srv/app") { "/pm/pool".into() } else { path.to_owned() };
        let place = |path: &str| DirectoryPlace::of(&machine().view(), Path::new(path), pool_of).expect("a place");
        assert!(matches!(place("/srv/app/db"), DirectoryPlace::Source { pool, .. } if pool == Path::new("/pm/pool")));
        assert_eq!(place("/srv/app/db").finding().level, Level::Fault);
        assert!(matches!(place("/srv/other"), DirectoryPlace::Device { .. }));
    }

    #[test]
    fn a_server_that_names_its_device_tells_what_the_volume_survives() {
        let of = |domain: &str, has_disk| {
            let volume = ServedVolume { region: "/dev/shm/v".into(), domain: domain.to_owned(), has_disk };
            let finding = BlockDeviceKind::Ublk(Some(volume)).finding("ext4", "ublkb0");
            assert!(finding.found.contains("ublkb0, the volume in /dev/shm/v"), "{finding:?}");
            finding.level
        };
        assert_eq!([of("power-fail", false), of("disk-file", false)], [Level::Ok; 2]);
        assert_eq!(of("process-crash", false), Level::Fault);
        assert_eq!([of("process-crash", true), of("", false)], [Level::Warning; 2]);
    }

    #[test]
    fn a_pool_decides_what_a_mount_survives() {
        let of = |domain| of_mount(Path::new("/m"), Some(Path::new("/pool")), domain).level;
        assert_eq!(of(Some(Domain::PowerFail { caches_included: false })), Level::Ok);
        assert_eq!([Domain::ProcessCrash, Domain::DiskFile].map(|domain| of(Some(domain))), [Level::Fault; 2]);
        assert_eq!(of(None), Level::Warning);
        let folder = tempfile::tempdir_in("/dev/shm").expect("room in memory");
        fs::write(folder.path().join("pool"), [0; 4096]).expect("written");
        assert_eq!(domain_of(&folder.path().join("pool")), Some(Domain::ProcessCrash));
        assert_eq!(domain_of(folder.path()), None);
    }

    #[test]
    fn no_place_promises_whole_pages() {
        for path in ["/ublk", "/lvm", "/nbd"] {
            assert!(place(path).pages_may_tear().contains("a volume of Tidegate"), "{path}");
        }
        for path in ["/srv", "/tide", "/nbd", "/dax", "/mem"] {
            let why = place(path).pages_may_tear();
            assert!(
                ["may still be torn", "not proven", "half old"].iter().any(|words| why.contains(words)),
                "{path}: {why}"
            );
        }
        assert!(place("/zfs").pages_may_tear().contains("has not proven"));
    }
}
