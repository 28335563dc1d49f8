//! Tidegate's own mounts and servers: dead, silent, or with data that waits for recovery.
//!
//! Servers and mounts are found as `tidegate list` finds them: by processes, and by what killed
//! ones left. Mounts are found in the kernel's table too, where a dead one stays.

use crate::answers::{PlaceAnswer, answer_of};
use crate::finding::{DoctorFinding, Level};
use crate::machine_view::MachineView;
use std::path::{Path, PathBuf};
use tidegate_file_service::{FoundMount, LeftMemory, LeftMountPool, left_memory, left_mount_pools, status_of};
use tidegate_host::processes::{self, Process};
use tidegate_host::shell::word;
use tidegate_host::units::Human;
use tidegate_mount_transport::KIND;
use tidegate_server::control::client;

/// What runs, and what was left.
#[derive(Debug, Default)]
pub(super) struct SeenServices {
    /// Mountpoints of Tidegate whose service is gone.
    dead: Vec<PathBuf>,
    /// Services that do not answer, each as a sentence begins about it.
    silent: Vec<String>,
    /// Mountpoints and services that answer.
    answering: usize,
    pools: Vec<LeftMountPool>,
    memory: Vec<LeftMemory>,
}

impl SeenServices {
    /// Looks at this machine, as this user may; root sees services of all users.
    pub(super) fn look() -> SeenServices {
        let mut seen = SeenServices { pools: left_mount_pools(), memory: left_memory(), ..SeenServices::default() };
        for (mountpoint, _) in MachineView::own().mounts().into_iter().filter(|(_, mounted)| mounted.kind == KIND) {
            match answer_of(&mountpoint) {
                PlaceAnswer::Given => seen.answering += 1,
                PlaceAnswer::Dead => seen.dead.push(mountpoint),
                PlaceAnswer::Silent => seen.silent.push(format!("the mount at {}", mountpoint.display())),
            }
        }
        let (mounts, others) = FoundMount::among(processes::of_this_user());
        let of_mounts = client::ask_each(&mounts, |mount: &FoundMount| {
            let silent = status_of(&mount.pool)
                .err()
                .map(|_| format!("the service of the pool {}, process {}", mount.pool.display(), mount.pid));
            Some(silent)
        });
        let of_servers = client::ask_each(&others, |process: &Process| {
            let silent = || format!("the server with the process {}", process.pid);
            (!process.sockets.is_empty()).then(|| client::ask_found(process).err().flatten().map(|_| silent()))
        });
        for answer in of_mounts.into_iter().chain(of_servers) {
            match answer {
                Some(silent) => seen.silent.push(silent),
                None => seen.answering += 1,
            }
        }
        seen
    }

    pub(super) fn findings(&self) -> Vec<DoctorFinding> {
        let mut findings: Vec<_> = self.dead.iter().map(|mountpoint| dead(mountpoint)).collect();
        findings.extend(self.silent.iter().map(|service| {
            let why = "programs that use it wait; it may be stopped, out of memory, or wait for a disk";
            let fix = "tidegate list names its process; look at its log, and end it with SIGTERM before SIGKILL: both leave what recovery needs";
            DoctorFinding::new((Level::Fault, "service"), format!("{service} does not answer"), why, fix)
        }));
        if findings.is_empty() {
            let why = "no mount is dead, and no service is silent";
            let found = match self.answering {
                0 => "no mount and no service of Tidegate is there".to_owned(),
                1 => "the one mountpoint or service answers".to_owned(),
                all => format!("all {all} mountpoints and services answer"),
            };
            findings.push(DoctorFinding::ok("services", found, why));
        }
        let before = findings.len();
        findings.extend(self.pools.iter().map(|LeftMountPool { pool, source }| {
            let why = "a service was killed, and files there lack synced data until it is recovered";
            let found =
                format!("the pool {} has data of {} that is not written back", pool.display(), source.display());
            let fix = format!("mount it again, or: tidegate recover {}", word(pool));
            DoctorFinding::new((Level::Fault, "pool"), found, why, fix)
        }));
        findings.extend(self.memory.iter().map(|LeftMemory { file, bytes }| {
            let found = format!("{} has {} of unsynced writes of a mount", file.display(), Human(*bytes));
            let why = "its service was killed: the next mount with its pool finds them there, and the memory is taken until then";
            let fix = format!("mount with that pool again; if the pool is gone: rm {}", word(file));
            DoctorFinding::new((Level::Warning, "memory"), found, why, fix)
        }));
        if findings.len() == before {
            let why = "no pool in this user's state folder waits for recovery; pools elsewhere are told by tidegate check POOL";
            findings.push(DoctorFinding::ok("leftovers", "killed services left nothing", why));
        }
        findings
    }
}

fn dead(mountpoint: &Path) -> DoctorFinding {
    DoctorFinding::new(
        (Level::Fault, "mount"),
        format!("the mount at {} is dead", mountpoint.display()),
        "its supervisor and its server were killed: programs there get ENOTCONN, and SOURCE may lack synced data",
        "mount SOURCE there again with its pool: tidegate mount removes the dead mount, and recovers",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::tests::level_of;

    #[test]
    fn services_that_are_well_are_one_finding() {
        let findings = SeenServices { answering: 3, ..SeenServices::default() }.findings();
        assert_eq!((level_of(&findings, "services"), level_of(&findings, "leftovers")), (Level::Ok, Level::Ok));
        assert!(findings[0].found.contains("all 3 "), "{findings:?}");
    }

    #[test]
    fn dead_silent_and_left_ones_have_each_a_finding() {
        let findings = SeenServices {
            dead: vec!["/srv/app".into()],
            silent: vec!["the mount at /srv/b".to_owned()],
            answering: 0,
            pools: vec![LeftMountPool { pool: "/s/a b.pool".into(), source: "/srv/c".into() }],
            memory: vec![LeftMemory { file: "/dev/shm/x".into(), bytes: 4096 }],
        };
        let findings = findings.findings();
        for (subject, level) in
            [("mount", Level::Fault), ("service", Level::Fault), ("pool", Level::Fault), ("memory", Level::Warning)]
        {
            assert_eq!(level_of(&findings, subject), level);
        }
        let fix =
            |subject: &str| findings.iter().find(|found| found.subject == subject).and_then(|found| found.fix.clone());
        assert!(fix("pool").is_some_and(|fix| fix.ends_with("tidegate recover '/s/a b.pool'")));
    }
}
