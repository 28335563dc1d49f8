//! A machine's files as they are seen from a root folder: `/`, or a folder of a test.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use tidegate_host::files::mount_table::{self, MountedFileSystem};

/// Most bytes that are read of a file of the kernel.
const KERNEL_FILE_BYTES_MAX: u64 = 4 << 20;

/// The files of a machine.
#[derive(Clone, Debug)]
pub(crate) struct MachineView {
    root: PathBuf,
}

impl MachineView {
    /// The machine that this program runs on.
    pub(crate) fn own() -> MachineView {
        MachineView { root: PathBuf::from("/") }
    }

    /// Whether this is the machine that this program runs on, whose services can be asked.
    pub(crate) fn is_own(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where `path`, an absolute path of the machine, is for this process.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file, without white space at its ends. `None`: it is absent, or cannot be
    /// read.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.at(path)).ok()?.take(KERNEL_FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number that a file has.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Whether there is something at `path`.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// The names in a folder, in order.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Whether a program of this name is where programs are.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        let folders = ["usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"];
        folders.iter().map(|folder| self.root.join(folder).join(name)).find(|path| path.is_file())
    }

    /// The user that this process acts as, as the kernel tells.
    pub(crate) fn user(&self) -> Option<u32> {
        let status = self.text("/proc/self/status")?;
        status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?.parse().ok()
    }

    /// A limit of this process: the most that it may raise it to. `u64::MAX`: none.
    pub(crate) fn hard_limit(&self, name: &str) -> Option<u64> {
        let limits = self.text("/proc/self/limits")?;
        let hard = limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().nth(1)?;
        if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() }
    }

    /// Every mount of the machine, in the order in which they cover each other.
    pub(crate) fn mounts(&self) -> Vec<(PathBuf, MountedFileSystem)> {
        mount_table::parsed(&fs::read(self.at("/proc/self/mountinfo")).unwrap_or_default())
    }

    /// The mount that shows `path`, an absolute path without links.
    pub(crate) fn mount_of(&self, path: &Path) -> Option<(PathBuf, MountedFileSystem)> {
        let all = self.mounts().into_iter().filter(|(at, _)| path.starts_with(at));
        // The last one of the longest paths is on top.
        all.max_by_key(|(at, _)| at.components().count())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A machine of files, in a folder that is removed in the end.
    pub(crate) struct MadeMachine(tempfile::TempDir);

    impl MadeMachine {
        pub(crate) fn new() -> MadeMachine {
            MadeMachine(tempfile::tempdir().expect("a folder"))
        }

        pub(crate) fn with(files: &[(&str, &str)]) -> MadeMachine {
            let machine = MadeMachine::new();
            files.iter().for_each(|(path, text)| machine.write(path, text));
            machine
        }

        pub(crate) fn write(&self, path: &str, text: &str) {
            let path = self.view().at(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }

        pub(crate) fn view(&self) -> MachineView {
            MachineView { root: self.0.path().to_owned() }
        }
    }

    #[test]
    fn a_made_machine_is_read_as_a_real_one() {
        let machine = MadeMachine::with(&[
            ("/proc/self/status", "Name:\tx\nUid:\t7\t8\t7\t7\n"),
            ("/proc/self/limits", "Limit Soft Hard\nMax open files            1024                 4096 files\n"),
            (
                "/proc/self/mountinfo",
                "1 1 8:1 / / rw - ext4 a rw\n2 1 0:5 / /srv rw - xfs b rw\n3 2 0:6 / /srv rw - tmpfs c rw\n",
            ),
            ("/proc/sys/vm/max_map_count", "65530\n"),
            ("/usr/bin/fusermount3", ""),
        ]);
        let view = machine.view();
        assert_eq!((view.user(), view.hard_limit("Max open files")), (Some(8), Some(4096)));
        assert_eq!(view.number("/proc/sys/vm/max_map_count"), Some(65530));
        assert!(view.program("fusermount3").is_some() && view.program("qemu").is_none());
        let kind = |path: &str| view.mount_of(Path::new(path)).map(|(_, mounted)| mounted.kind);
        assert_eq!(kind("/srv/db").as_deref(), Some("tmpfs"));
        assert_eq!(kind("/srvx").as_deref(), Some("ext4"));
        assert_eq!((view.text("/none"), view.names("/none")), (None, Vec::new()));
    }

    #[test]
    fn this_machine_is_one() {
        let view = MachineView::own();
        assert!(view.is_own() && !MadeMachine::new().view().is_own());
        assert_eq!(view.user(), Some(tidegate_host::owned::own()));
        assert!(view.hard_limit("Max open files").is_some() && view.mount_of(Path::new("/proc/1")).is_some());
    }
}
