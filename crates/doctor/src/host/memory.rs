//! Persistent memory, the instructions that make stores durable, and memory of tmpfs.

use crate::finding::{DoctorFinding, Level};
use crate::machine_view::MachineView;
use rustix::fs::statvfs;
use std::path::{Path, PathBuf};
use tidegate_host::units::Human;
use tidegate_media::{Domain, MemoryDevice, memory_devices};

/// Bytes of DRAM that a mount takes for unsynced writes, unless it is told otherwise.
const DRAM_BYTES_USUAL: u64 = 256 << 20;

/// The usual place of memory that outlives processes.
const SHARED_MEMORY: &str = "/dev/shm";

pub(super) fn findings(view: &MachineView) -> Vec<DoctorFinding> {
    let mut findings = persistent(&memory_devices(&view.at("/sys")));
    findings.push(flush_instructions(view));
    findings.push(shared_memory(
        statvfs(view.at(SHARED_MEMORY)).ok().map(|about| RoomInMemory {
            bytes: about.f_blocks * about.f_frsize,
            free: about.f_bavail * about.f_frsize,
        }),
    ));
    findings.extend(huge_pages(view));
    findings
}

fn persistent(devices: &[MemoryDevice]) -> Vec<DoctorFinding> {
    let subject = "persistent-memory";
    if devices.is_empty() {
        return vec![DoctorFinding::new(
            (Level::Warning, subject),
            "there is none",
            "volumes and pools on tmpfs survive the end of processes, and no power loss; volumes in ordinary files survive it after a flush, at a disk's speed",
            "for durable syncs at memory's speed, give the machine an NVDIMM or CXL memory; try the rest with tidegate mount --try",
        )];
    }
    devices.iter().map(|MemoryDevice { name, domain }| match domain {
        Domain::PowerFail { caches_included } => DoctorFinding::ok(
            subject,
            format!("/dev/{name} is of the domain {domain}"),
            if *caches_included {
                "its firmware declares that memory and processor caches survive a power loss (cpu_cache)"
            } else {
                "its firmware declares that what was flushed survives a power loss (memory_controller)"
            },
        ),
        _ => DoctorFinding::new(
            (Level::Warning, subject),
            format!("/dev/{name} declares no persistence domain, so it is taken for {domain}"),
            "regions there survive the end of processes, and no power loss; DRAM that the kernel takes for persistent (memmap=) looks like that",
            "cat /sys/bus/nd/devices/region*/persistence_domain; if the hardware is persistent, enable it in the firmware",
        ),
    }).collect()
}

fn flush_instructions(view: &MachineView) -> DoctorFinding {
    let subject = "flush-instructions";
    let processor = view.text("/proc/cpuinfo").unwrap_or_default();
    let is_flags = |line: &&str| line.starts_with("flags") || line.starts_with("Features");
    let flags = processor.lines().find(is_flags).and_then(|line| line.split_once(':')).map_or("", |(_, flags)| flags);
    let best = ["clwb", "clflushopt", "dcpop", "clflush"]
        .into_iter()
        .find(|known| flags.split_whitespace().any(|flag| flag == *known));
    match best {
        Some("clflush") => DoctorFinding::new(
            (Level::Advice, subject),
            "the processor flushes lines by clflush alone",
            "each flush waits for the one before, and throws the line out of the cache: syncs are durable, and slower",
            "a processor with clwb or clflushopt",
        ),
        Some(name) => DoctorFinding::ok(
            subject,
            format!("the processor has {name}"),
            "flushes of lines overlap, and one fence waits for all of them",
        ),
        None => DoctorFinding::new(
            (Level::Advice, subject),
            "which instructions the processor has is not known",
            "a virtual machine may hide them, and Tidegate uses the best that it finds",
            "grep -m1 -E 'flags|Features' /proc/cpuinfo",
        ),
    }
}

/// Bytes of a file system in memory.
#[derive(Clone, Copy, Debug)]
struct RoomInMemory {
    bytes: u64,
    free: u64,
}

fn shared_memory(room: Option<RoomInMemory>) -> DoctorFinding {
    let subject = "shared-memory";
    let enlarge = format!("mount -o remount,size=1G {SHARED_MEMORY}, or less DRAM for a mount: --dram 64M");
    match room {
        None => DoctorFinding::new(
            (Level::Fault, subject),
            format!("{SHARED_MEMORY} cannot be looked at"),
            "unsynced writes of mounts and write caches lie there, to outlive a server that is killed",
            format!("mount -t tmpfs tmpfs {SHARED_MEMORY}"),
        ),
        Some(RoomInMemory { bytes, free }) if free < DRAM_BYTES_USUAL => DoctorFinding::new(
            (Level::Warning, subject),
            format!("{SHARED_MEMORY} has {} free of {}", Human(free), Human(bytes)),
            format!(
                "a mount takes up to {} there for unsynced writes, at most half of it, and is refused if less is free than it asks for",
                Human(DRAM_BYTES_USUAL)
            ),
            enlarge,
        ),
        Some(RoomInMemory { bytes, free }) => DoctorFinding::ok(
            subject,
            format!("{SHARED_MEMORY} has {} free of {}", Human(free), Human(bytes)),
            "unsynced writes of mounts and write caches have room there",
        ),
    }
}

/// Whether files in memory get huge pages. Said of a tmpfs only.
fn huge_pages(view: &MachineView) -> Option<DoctorFinding> {
    let (_, mounted) = view.mounts().into_iter().rev().find(|(at, _)| at == &PathBuf::from(SHARED_MEMORY))?;
    let own = mounted.options.split(',').find_map(|option| option.strip_prefix("huge=")).unwrap_or("never");
    let for_all = view.text("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    let forced = chosen(&for_all).filter(|word| ["force", "deny"].contains(word));
    let subject = "huge-pages";
    let found = format!(
        "{SHARED_MEMORY} is mounted with huge={own}, and shmem_enabled is {}",
        chosen(&for_all).unwrap_or("not known")
    );
    let is_on = forced == Some("force") || forced.is_none() && ["always", "within_size"].contains(&own);
    Some(if is_on {
        DoctorFinding::ok(subject, found, "files there get pages of 2 MiB, and need fewer entries of page tables")
    } else {
        DoctorFinding::new(
            (Level::Advice, subject),
            found,
            "files there get pages of 4 KiB; huge ones may make large pools and write caches there faster to map, which Tidegate has not measured, and take more memory for small files",
            format!("mount -o remount,huge=within_size {SHARED_MEMORY}, and measure your own load"),
        )
    })
}

/// The word in brackets: `always [never] force`.
fn chosen(words: &str) -> Option<&str> {
    Some(words.split_once('[')?.1.split_once(']')?.0)
}

/// Where files of `folder` lie: in memory, or not.
pub(super) fn is_in_memory(view: &MachineView, folder: &Path) -> bool {
    view.mount_of(folder).is_some_and(|(_, mounted)| ["tmpfs", "ramfs"].contains(&mounted.kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::level_of;
    use crate::machine_view::tests::MadeMachine;

    #[test]
    fn memory_is_as_persistent_as_it_declares() {
        let of = |domain| persistent(&[MemoryDevice { name: "pmem0".to_owned(), domain }]);
        for caches_included in [true, false] {
            assert_eq!(level_of(&of(Domain::PowerFail { caches_included }), "persistent-memory"), Level::Ok);
        }
        assert_eq!(level_of(&of(Domain::ProcessCrash), "persistent-memory"), Level::Warning);
        let none = persistent(&[]);
        assert!(none[0].level == Level::Warning && none[0].why.contains("no power loss"), "{none:?}");
    }

    #[test]
    fn the_best_instruction_is_named() {
        for (flags, level, word) in [
            ("flags\t\t: fpu clflush clflushopt clwb", Level::Ok, "clwb"),
            ("flags : clflush clflushopt", Level::Ok, "clflushopt"),
            ("flags : fpu clflush", Level::Advice, "clflush alone"),
            ("Features : fp dcpop", Level::Ok, "dcpop"),
            ("processor : 0", Level::Advice, "not known"),
        ] {
            let found = flush_instructions(&MadeMachine::with(&[("/proc/cpuinfo", flags)]).view());
            assert!(found.level == level && found.found.contains(word), "{flags}: {found:?}");
        }
    }

    #[test]
    fn shared_memory_needs_room() {
        let of = |free| shared_memory(Some(RoomInMemory { bytes: 1 << 30, free })).level;
        assert_eq!((of(DRAM_BYTES_USUAL), of(DRAM_BYTES_USUAL - 1)), (Level::Ok, Level::Warning));
        assert_eq!(shared_memory(None).level, Level::Fault);
    }

    #[test]
    fn huge_pages_are_those_of_the_mount_unless_all_are_forced() {
        for (option, for_all, level) in [
            ("rw", "always within_size advise [never] deny force", Level::Advice),
            ("rw,huge=always", "always within_size advise [never] deny force", Level::Ok),
            ("rw,huge=within_size", "[deny]", Level::Advice),
            ("rw", "never [force]", Level::Ok),
            ("rw,huge=advise", "", Level::Advice),
        ] {
            let machine = MadeMachine::with(&[
                ("/proc/self/mountinfo", &format!("1 1 0:5 / /dev/shm rw - tmpfs tmpfs {option}\n")),
                ("/sys/kernel/mm/transparent_hugepage/shmem_enabled", for_all),
            ]);
            let found = huge_pages(&machine.view()).expect("it is a mount");
            assert_eq!(found.level, level, "{option} {for_all}");
            assert!(is_in_memory(&machine.view(), Path::new("/dev/shm/x")));
        }
        assert_eq!(huge_pages(&MadeMachine::new().view()), None);
    }
}
