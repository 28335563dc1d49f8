//! Limits of processes and of the kernel, where what Tidegate needs exceeds them.

use crate::finding::{DoctorFinding, Level};
use crate::host::kernel::kernel_of;
use crate::machine_view::MachineView;
use std::path::Path;
use tidegate_host::kernel_version::KernelVersion;
use tidegate_server::options::Plan;
use tidegate_server::sockets::capacity::{room_of_descriptors, room_of_mappings};

/// Threads of everything but clients of Tidegate: what a machine needs beside them.
const THREADS_RESERVED: u64 = 1024;

/// Locked memory of a queue of io_uring, which kernels before 5.12 count: 64 writes and their
/// answers take less.
const RING_BYTES: u64 = 64 << 10;

pub(super) fn findings(view: &MachineView) -> Vec<DoctorFinding> {
    let wanted = Plan::default().connections_max as u64;
    let mut findings = vec![open_files(view, wanted), mappings(view, wanted), threads(view, wanted)];
    findings.extend(locked_memory(view));
    findings
}

fn unknown(subject: &'static str, limit: &str) -> DoctorFinding {
    DoctorFinding::ok(subject, format!("{limit} is not known"), "the system does not tell it")
}

fn serves(room: u64, wanted: u64) -> String {
    format!(
        "a server can serve {room} connections at once, and its default limit is {wanted}; the others are turned away"
    )
}

fn open_files(view: &MachineView, wanted: u64) -> DoctorFinding {
    let subject = "open-files";
    let Some(limit) = view.hard_limit("Max open files") else { return unknown(subject, "the limit of open files") };
    let room = room_of_descriptors(limit, 0);
    let found = format!("processes of this session may open {limit} files");
    if room >= wanted {
        return DoctorFinding::ok(subject, found, format!("that is enough for {wanted} connections of a server"));
    }
    let fix = "ulimit -Hn 65536 as root, or LimitNOFILE=65536 in a unit, as tidegate@.service has it";
    DoctorFinding::new((Level::Advice, subject), found, serves(room, wanted), fix)
}

fn mappings(view: &MachineView, wanted: u64) -> DoctorFinding {
    let subject = "mappings";
    let Some(limit) = view.number("/proc/sys/vm/max_map_count") else { return unknown(subject, "vm.max_map_count") };
    let (room, found) = (room_of_mappings(limit, 0), format!("vm.max_map_count is {limit}"));
    if room >= wanted {
        return DoctorFinding::ok(subject, found, format!("that is enough for {wanted} connections of a server"));
    }
    DoctorFinding::new((Level::Advice, subject), found, serves(room, wanted), "sysctl vm.max_map_count=262144")
}

/// A connection has a thread.
fn threads(view: &MachineView, wanted: u64) -> DoctorFinding {
    let subject = "threads";
    let limits = ["/proc/sys/kernel/threads-max", "/proc/sys/kernel/pid_max"].map(|path| view.number(path));
    let of_user = view.hard_limit("Max processes").filter(|_| view.user() != Some(0));
    let Some(limit) = limits.into_iter().chain([of_user, of_control_group(view)]).flatten().min() else {
        return unknown(subject, "the limit of threads");
    };
    let found =
        format!("there may be {limit} threads (the least of kernel.threads-max, kernel.pid_max, ulimit -u, pids.max)");
    let room = limit.saturating_sub(THREADS_RESERVED);
    if room >= wanted {
        return DoctorFinding::ok(subject, found, format!("each of {wanted} connections of a server can have its own"));
    }
    let fix =
        "sysctl kernel.threads-max=65536 kernel.pid_max=65536; ulimit -Hu 65536 as root; TasksMax=65536 in a unit";
    DoctorFinding::new((Level::Advice, subject), found, serves(room, wanted), fix)
}

/// The most tasks of the control groups that this process is in.
fn of_control_group(view: &MachineView) -> Option<u64> {
    let groups = view.text("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
    let above = Path::new(&own).ancestors();
    above.filter_map(|group| view.number(&format!("/sys/fs/cgroup{}/pids.max", group.display()))).min()
}

/// What kernels before 5.12 count for io_uring. Newer ones do not.
fn locked_memory(view: &MachineView) -> Option<DoctorFinding> {
    let subject = "locked-memory";
    let is_counted = kernel_of(view).is_some_and(|version| version < KernelVersion(5, 12));
    let limit = view.hard_limit("Max locked memory").filter(|_| is_counted && view.user() != Some(0))?;
    let found = format!("processes of this session may lock {limit} bytes of memory");
    Some(if limit >= RING_BYTES {
        DoctorFinding::ok(subject, found, "this kernel counts queues of io_uring, and they have room")
    } else {
        let why =
            "this kernel counts queues of io_uring: without room, a disk cache writes to its disk one write at a time";
        DoctorFinding::new(
            (Level::Advice, subject),
            found,
            why,
            "ulimit -Hl 1024 as root, or LimitMEMLOCK=1M in a unit",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::level_of;
    use crate::machine_view::tests::MadeMachine;

    /// Limits of a user's processes: open files, processes and locked memory.
    fn machine(files: &str, processes: &str, locked: &str) -> MadeMachine {
        let limits = format!(
            "Limit\nMax open files   1024   {files}   files\nMax processes   100   {processes}   processes\nMax locked memory   65536   {locked}   bytes\n"
        );
        MadeMachine::with(&[
            ("/proc/self/limits", &limits),
            ("/proc/self/status", "Uid:\t1\t1\t1\t1\n"),
            ("/proc/sys/vm/max_map_count", "262144\n"),
            ("/proc/sys/kernel/threads-max", "100000\n"),
            ("/proc/sys/kernel/pid_max", "4194304\n"),
            ("/proc/sys/kernel/osrelease", "6.1.0-9-amd64\n"),
        ])
    }

    #[test]
    fn limits_are_enough_or_name_how_many_connections_they_allow() {
        let good = findings(&machine("1048576", "unlimited", "8192").view());
        for subject in ["open-files", "mappings", "threads"] {
            assert_eq!(level_of(&good, subject), Level::Ok);
        }
        let low = machine("4096", "2000", "8192");
        low.write("/proc/sys/vm/max_map_count", "65530");
        let low = findings(&low.view());
        for subject in ["open-files", "mappings", "threads"] {
            assert_eq!(level_of(&low, subject), Level::Advice);
        }
        let words = |subject: &str| low.iter().find(|found| found.subject == subject).expect("it is told").why.clone();
        assert!(words("open-files").starts_with("a server can serve 3968 connections"), "{}", words("open-files"));
        assert!(words("threads").starts_with("a server can serve 976 connections"), "{}", words("threads"));
    }

    #[test]
    fn a_control_group_limits_threads_and_so_do_those_above_it() {
        let machine = machine("1048576", "unlimited", "8192");
        machine.write("/proc/self/cgroup", "0::/user.slice/a.scope\n");
        machine.write("/sys/fs/cgroup/user.slice/a.scope/pids.max", "max\n");
        assert_eq!(of_control_group(&machine.view()), None);
        machine.write("/sys/fs/cgroup/user.slice/pids.max", "500\n");
        assert_eq!(of_control_group(&machine.view()), Some(500));
        assert_eq!(level_of(&findings(&machine.view()), "threads"), Level::Advice);
    }

    #[test]
    fn locked_memory_counts_on_old_kernels_alone() {
        let told = |release: &str, locked: &str| {
            let machine = machine("1", "1", locked);
            machine.write("/proc/sys/kernel/osrelease", release);
            locked_memory(&machine.view()).map(|found| found.level)
        };
        assert_eq!(told("6.1.0", "8192"), None);
        assert_eq!(told("5.10.0", "8192"), Some(Level::Advice));
        assert_eq!(told("5.10.0", "unlimited"), Some(Level::Ok));
    }
}
