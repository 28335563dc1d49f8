//! Reasons why a file system is not mounted or unmounted.

use crate::{Exit, Report};
use tidegate_file_service::MountError;
use tidegate_host::shell::word;

const EMPTY: &str = "name a directory that is empty, or SOURCE itself, which the mount then covers";
const PROC_TELLS: &str = "what is mounted, the paths of open files and their users are read there";
const MOUNT_PROC: &str = "mount -t proc proc /proc; in a chroot or a container, have it set up with /proc";
const AGAIN: &str = "remove the cause, and try again";
const DEVICE: &str = "load the kernel's module: modprobe fuse; give the container this device; or let this user open it: chmod 666 /dev/fuse";

impl From<&MountError> for Report {
    fn from(error: &MountError) -> Report {
        let refused = |errno: &rustix::io::Errno| errno.to_string();
        let (kind, exit, what, why, next) = match error {
            MountError::NoDevice(errno) => (
                "no-fuse",
                Exit::Environment,
                "/dev/fuse cannot be opened".to_owned(),
                refused(errno),
                DEVICE.to_owned(),
            ),
            MountError::NoProc { doing } => {
                let what = format!("{doing} needs /proc, which is not mounted");
                ("no-proc", Exit::Environment, what, PROC_TELLS.to_owned(), MOUNT_PROC.to_owned())
            }
            MountError::NoFusermount => {
                let next = "install the package fuse3, or mount as root".to_owned();
                let why = "only root mounts without it".to_owned();
                ("no-fusermount", Exit::Environment, "fusermount3 is not installed".to_owned(), why, next)
            }
            MountError::NotDirectory { mountpoint } => {
                let what = format!("{} is not a directory", mountpoint.display());
                ("mountpoint", Exit::Usage, what, "files are shown below a directory".to_owned(), EMPTY.to_owned())
            }
            MountError::NotEmpty { mountpoint } => {
                let what = format!("{} is not empty", mountpoint.display());
                ("mountpoint", Exit::Usage, what, "the mount would hide its files".to_owned(), EMPTY.to_owned())
            }
            MountError::AlreadyMounted { mountpoint, source_name } => {
                let what = format!("{source_name} is mounted at {} already", mountpoint.display());
                let next = format!("unmount it first: tidegate umount {}", word(mountpoint));
                ("mountpoint-in-use", Exit::InUse, what, "one directory shows one SOURCE".to_owned(), next)
            }
            MountError::DeadMount { mountpoint } => {
                let what = format!("the file service of the mount at {} has ended", mountpoint.display());
                let next = format!("remove the dead mount: umount --lazy {}", word(mountpoint));
                ("dead-mount", Exit::Environment, what, "it was killed".to_owned(), next)
            }
            MountError::NotMounted { mountpoint } => {
                let what = format!("no mount of Tidegate is at {}", mountpoint.display());
                let next = "see which mounts there are: tidegate list".to_owned();
                ("not-mounted", Exit::Refused, what, "/proc/self/mountinfo names none".to_owned(), next)
            }
            MountError::OfAnotherUser { mountpoint } => {
                let what = format!("the mount at {} is another user's", mountpoint.display());
                let next = "unmount it as that user, or as root".to_owned();
                (
                    "mount-of-another-user",
                    Exit::Refused,
                    what,
                    "only root and the user who mounted it can unmount it".to_owned(),
                    next,
                )
            }
            other => ("mount", Exit::Environment, "the mount failed".to_owned(), other.to_string(), AGAIN.to_owned()),
        };
        Report { kind, what, why, next, exit }
    }
}
