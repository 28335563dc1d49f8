//! The kernel: its version, and the features of it that Tidegate uses.

use crate::finding::{DoctorFinding, Level};
use crate::machine_view::MachineView;
use rustix::fs::{Access, access};
use std::os::unix::fs::PermissionsExt;
use tidegate_host::kernel_version::KernelVersion;

/// The kernel of a machine, if it tells.
pub(super) fn kernel_of(view: &MachineView) -> Option<KernelVersion> {
    KernelVersion::of_release(&view.text("/proc/sys/kernel/osrelease")?)
}

/// Mounts need at least this.
const MOUNTS_MIN: KernelVersion = KernelVersion(5, 4);

/// What programs on a mount see on kernels before each of these.
const LACKING: [(KernelVersion, &str); 4] = [
    (KernelVersion(5, 11), "each write to a mount takes one more request"),
    (KernelVersion(6, 1), "O_TMPFILE fails in a mount"),
    (KernelVersion(6, 6), "files in a mount have no time of birth"),
    (KernelVersion(6, 9), "if a mount's server dies, requests under way fail with ECONNABORTED"),
];

pub(super) fn findings(view: &MachineView) -> Vec<DoctorFinding> {
    let mut findings = vec![version(view), fuse_device(view)];
    findings.extend(fusermount(view));
    findings.extend([
        io_uring(view),
        protection_keys(view),
        nbd_module(view),
        ublk_module(view),
        virtual_machines(view),
    ]);
    findings
}

fn version(view: &MachineView) -> DoctorFinding {
    let subject = "kernel";
    let Some(version) = kernel_of(view) else {
        return DoctorFinding::ok(subject, "its version is not known", "the system does not tell it");
    };
    let found = format!("Linux {}.{}", version.0, version.1);
    if version < MOUNTS_MIN {
        let fix = "Linux 6.9 or newer; volumes, tidegate serve, work as they are";
        return DoctorFinding::new(
            (Level::Warning, subject),
            found,
            "tidegate mount and run refuse kernels before 5.4",
            fix,
        );
    }
    let lacking: Vec<_> = LACKING.iter().filter(|(since, _)| version < *since).map(|(_, what)| *what).collect();
    if lacking.is_empty() {
        return DoctorFinding::ok(subject, found, "it has all that mounts use");
    }
    DoctorFinding::new((Level::Advice, subject), found, lacking.join("; "), "Linux 6.9 or newer")
}

fn fuse_device(view: &MachineView) -> DoctorFinding {
    let (subject, device) = ("fuse-device", view.at("/dev/fuse"));
    if !device.exists() {
        let why = "tidegate mount and run show files through it";
        return DoctorFinding::new(
            (Level::Warning, subject),
            "there is no /dev/fuse",
            why,
            "modprobe fuse; in a container: --device /dev/fuse",
        );
    }
    if access(&device, Access::READ_OK | Access::WRITE_OK).is_err() {
        let why = "this user cannot mount";
        return DoctorFinding::new(
            (Level::Warning, subject),
            "this user may not open /dev/fuse",
            why,
            "chmod 0666 /dev/fuse, as distributions have it",
        );
    }
    DoctorFinding::ok(subject, "/dev/fuse can be opened", "tidegate mount and run show files through it")
}

/// The program that mounts for users other than root. None: this user is root.
fn fusermount(view: &MachineView) -> Option<DoctorFinding> {
    let subject = "fusermount3";
    (view.user() != Some(0)).then_some(())?;
    let why = "users other than root mount by it";
    let install = "apt-get install fuse3";
    Some(match view.program(subject) {
        None => DoctorFinding::new((Level::Warning, subject), "there is no fusermount3", why, install),
        Some(path) if path.metadata().is_ok_and(|about| about.permissions().mode() & 0o4000 == 0) => {
            DoctorFinding::new(
                (Level::Warning, subject),
                format!("{} is not set-user-ID", path.display()),
                why,
                format!("chmod u+s {}, or {install}", path.display()),
            )
        }
        Some(path) => DoctorFinding::ok(subject, format!("{} is there", path.display()), why),
    })
}

fn io_uring(view: &MachineView) -> DoctorFinding {
    let subject = "io-uring";
    let why = "a disk cache writes to its disk by it, many writes at once, and serve --ublk takes requests by it";
    let otherwise = "without it a disk cache writes to its disk one write at a time, and serve --ublk is refused; no other part uses it";
    match view.number("/proc/sys/kernel/io_uring_disabled") {
        Some(2) => DoctorFinding::new(
            (Level::Advice, subject),
            "kernel.io_uring_disabled is 2: no process may use it",
            otherwise,
            "sysctl kernel.io_uring_disabled=0",
        ),
        Some(1) if view.user() != Some(0) => DoctorFinding::new(
            (Level::Advice, subject),
            "kernel.io_uring_disabled is 1: only a group of users may use it",
            otherwise,
            "add the server's user to the group of kernel.io_uring_group, or sysctl kernel.io_uring_disabled=0",
        ),
        Some(_) => DoctorFinding::ok(subject, "io_uring is allowed", why),
        // The setting came with Linux 6.6.
        None => DoctorFinding::ok(subject, "no setting forbids io_uring", why),
    }
}

fn protection_keys(view: &MachineView) -> DoctorFinding {
    let subject = "protection-keys";
    let processor = view.text("/proc/cpuinfo").unwrap_or_default();
    let flags = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    if flags.split_whitespace().any(|flag| flag == "ospke") {
        return DoctorFinding::ok(
            subject,
            "the processor has protection keys",
            "stray stores of a program with the direct path do not reach the pool",
        );
    }
    DoctorFinding::ok(
        subject,
        "the processor or the kernel has no protection keys",
        "stray stores of a program with the direct path may spoil blocks that it has a lease of; tidegate run --no-direct maps none",
    )
}

/// Whether the running kernel has the module `name` in its folder, loaded or not.
fn has_module(view: &MachineView, name: &str) -> bool {
    let release = view.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let modules = view.text(&format!("/lib/modules/{release}/modules.dep")).unwrap_or_default();
    let file = format!("/{name}.ko");
    modules.lines().any(|line| line.split(':').next().is_some_and(|path| path.contains(&file)))
}

fn nbd_module(view: &MachineView) -> DoctorFinding {
    let subject = "nbd-module";
    if view.exists("/sys/module/nbd") || view.exists("/sys/block/nbd0") {
        return DoctorFinding::ok(
            subject,
            "the kernel has the module nbd",
            "nbd-client can attach volumes as /dev/nbdN",
        );
    }
    if has_module(view, "nbd") {
        return DoctorFinding::new(
            (Level::Advice, subject),
            "the module nbd is not loaded",
            "nbd-client needs it to attach a volume; nbdfuse and QEMU do not",
            "modprobe nbd",
        );
    }
    DoctorFinding::ok(
        subject,
        "this kernel has no module nbd",
        "nbd-client cannot attach volumes; nbdfuse with a loop device, and virtual machines, can",
    )
}

/// The first kernel whose driver hands a device over to the next server.
const UBLK_MIN: KernelVersion = KernelVersion(6, 5);

fn ublk_module(view: &MachineView) -> DoctorFinding {
    let subject = "ublk-module";
    let (has_driver, is_there) = (view.exists("/dev/ublk-control"), has_module(view, "ublk_drv"));
    if (has_driver || is_there) && kernel_of(view).is_some_and(|version| version < UBLK_MIN) {
        let why = "serve --ublk refuses drivers before that of Linux 6.5, as they cannot hand a device over from a killed server to the next one; a distribution may have taken the newer driver over";
        let found = "the kernel's driver ublk_drv is older than Linux 6.5";
        return DoctorFinding::new((Level::Advice, subject), found, why, "boot Linux 6.5 or newer");
    }
    if has_driver && view.number("/proc/sys/kernel/io_uring_disabled") == Some(2) {
        let why = "serve --ublk takes requests by io_uring, which no process may use here";
        let found = "the kernel has the driver ublk_drv, and forbids io_uring";
        return DoctorFinding::new((Level::Advice, subject), found, why, "sysctl kernel.io_uring_disabled=0");
    }
    if has_driver {
        return DoctorFinding::ok(
            subject,
            "the kernel has the driver ublk_drv",
            "serve --ublk can make volumes block devices of this machine",
        );
    }
    if is_there {
        return DoctorFinding::new(
            (Level::Advice, subject),
            "the module ublk_drv is not loaded",
            "serve --ublk needs it; the other fronts do not",
            "modprobe ublk_drv",
        );
    }
    DoctorFinding::ok(
        subject,
        "this kernel has no module ublk_drv",
        "serve --ublk cannot make block devices; NBD serves the volumes, and vhost-user-blk virtual machines",
    )
}

fn virtual_machines(view: &MachineView) -> DoctorFinding {
    let subject = "virtual-machines";
    match view.program("qemu-system-x86_64").or_else(|| view.program("qemu-system-aarch64")) {
        Some(path) => DoctorFinding::ok(
            subject,
            format!("{} is there", path.display()),
            "for serve --vhost-user it has to share the guest's memory: -object memory-backend-memfd,id=ram,size=1G,share=on -machine memory-backend=ram",
        ),
        None => DoctorFinding::ok(
            subject,
            "QEMU is not installed",
            "another monitor with vhost-user-blk and shared memory can attach volumes too",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_view::tests::MadeMachine;

    fn with(files: &[(&str, &str)]) -> MadeMachine {
        MadeMachine::with(files)
    }

    #[test]
    fn old_kernels_are_told_what_they_lack() {
        for (release, level, words) in [
            ("6.18.1", Level::Ok, "all that mounts use"),
            ("6.8.0-45", Level::Advice, "ECONNABORTED"),
            ("5.10.0", Level::Advice, "one more request"),
            ("4.19.0", Level::Warning, "before 5.4"),
            ("strange", Level::Ok, "does not tell"),
        ] {
            let found = version(&with(&[("/proc/sys/kernel/osrelease", release)]).view());
            assert!(found.level == level && found.why.contains(words), "{release}: {found:?}");
        }
    }

    #[test]
    fn mounts_need_the_device_and_other_users_fusermount() {
        assert_eq!(fuse_device(&with(&[]).view()).level, Level::Warning);
        assert_eq!(fuse_device(&with(&[("/dev/fuse", "")]).view()).level, Level::Ok);
        let (root, user) = (("/proc/self/status", "Uid:\t0\t0\t0\t0"), ("/proc/self/status", "Uid:\t9\t9\t9\t9"));
        assert_eq!(fusermount(&with(&[root]).view()), None);
        assert_eq!(fusermount(&with(&[user]).view()).map(|found| found.level), Some(Level::Warning));
        let machine = with(&[user, ("/usr/bin/fusermount3", "")]);
        let view = machine.view();
        assert!(fusermount(&view).is_some_and(|found| found.found.contains("set-user-ID")));
        let mode = std::fs::Permissions::from_mode(0o4755);
        std::fs::set_permissions(view.at("/usr/bin/fusermount3"), mode).expect("its own file");
        assert_eq!(fusermount(&view).map(|found| found.level), Some(Level::Ok));
    }

    #[test]
    fn io_uring_is_forbidden_to_some_or_to_all() {
        let of = |setting: &str, uid: &str| {
            io_uring(
                &with(&[
                    ("/proc/sys/kernel/io_uring_disabled", setting),
                    ("/proc/self/status", &format!("Uid:\t{uid}\t{uid}")),
                ])
                .view(),
            )
            .level
        };
        assert_eq!([of("0", "9"), of("1", "9"), of("2", "9")], [Level::Ok, Level::Advice, Level::Advice]);
        assert_eq!([of("1", "0"), of("2", "0")], [Level::Ok, Level::Advice]);
        assert_eq!(io_uring(&with(&[]).view()).level, Level::Ok);
    }

    #[test]
    fn keys_modules_and_monitors_are_told() {
        assert!(
            protection_keys(&with(&[("/proc/cpuinfo", "flags : pku ospke")]).view())
                .found
                .contains("has protection keys")
        );
        assert!(
            protection_keys(&with(&[("/proc/cpuinfo", "flags : pku")]).view()).found.contains("has no protection keys")
        );
        let release = ("/proc/sys/kernel/osrelease", "6.1.0");
        let modules = ("/lib/modules/6.1.0/modules.dep", "kernel/drivers/block/nbd.ko.xz:\n");
        assert_eq!(nbd_module(&with(&[release, modules]).view()).level, Level::Advice);
        assert_eq!(nbd_module(&with(&[release]).view()).level, Level::Ok);
        assert!(nbd_module(&with(&[("/sys/module/nbd/x", "")]).view()).found.contains("has the module"));
        assert!(virtual_machines(&with(&[("/usr/bin/qemu-system-x86_64", "")]).view()).why.contains("share=on"));
        assert!(virtual_machines(&with(&[]).view()).found.contains("not installed"));
    }

    #[test]
    fn a_driver_of_ublk_counts_if_the_server_would_use_it() {
        let control = ("/dev/ublk-control", "");
        let modules =
            |release: &str| (format!("/lib/modules/{release}/modules.dep"), "kernel/drivers/block/ublk_drv.ko:\n");
        for (release, has_driver, has_module, forbidden, level, words) in [
            ("6.12.0", true, true, "0", Level::Ok, "has the driver"),
            ("6.5.0", true, true, "1", Level::Ok, "has the driver"),
            ("6.12.0", false, true, "0", Level::Advice, "is not loaded"),
            ("6.12.0", false, false, "2", Level::Ok, "no module"),
            ("6.4.9", true, true, "0", Level::Advice, "older than Linux 6.5"),
            ("6.1.0", false, true, "0", Level::Advice, "older than Linux 6.5"),
            ("6.12.0", true, true, "2", Level::Advice, "forbids io_uring"),
        ] {
            let machine =
                with(&[("/proc/sys/kernel/osrelease", release), ("/proc/sys/kernel/io_uring_disabled", forbidden)]);
            if has_driver {
                machine.write(control.0, control.1);
            }
            if has_module {
                let (path, text) = modules(release);
                machine.write(&path, text);
            }
            let found = ublk_module(&machine.view());
            assert!(found.level == level && found.found.contains(words), "{release}: {found:?}");
        }
    }

    #[test]
    fn io_uring_is_said_to_be_used_by_block_devices_too() {
        let of = |setting| io_uring(&with(&[("/proc/sys/kernel/io_uring_disabled", setting)]).view()).why;
        assert!(["0", "2"].into_iter().all(|setting| of(setting).contains("serve --ublk")));
    }
}
