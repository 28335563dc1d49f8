//! Machines of their own for packages: Debian 12 in a folder, entered by chroot.
//!
//! debootstrap makes the system once, from the mirror that apt has here, and it stays in the cache
//! folder; each trial has a copy. Commands run in namespaces of their own: mounts and processes end
//! with the command that made them.

use crate::artefacts::{MissingError, cache, run};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

const SUITE: &str = "bookworm";
/// Where packages come from if apt has no mirror of that release here.
const MIRROR: &str = "http://deb.debian.org/debian";
/// What users of the packages have, beside the smallest system: shells, man, SQLite, clients.
const TOOLS: &str = "systemd zsh fish man-db sqlite3 fuse3 libnbd-bin";

/// Held while a system is made: the tests of one process ask for the same one at once.
static MAKER: Mutex<()> = Mutex::new(());

/// A system that copies are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Only what Debian calls essential, and apt.
    Smallest,
    /// Beside it the programs that users of the packages have.
    WithTools,
}

impl System {
    fn name(self) -> &'static str {
        match self {
            System::Smallest => "debian-12-smallest",
            System::WithTools => "debian-12-tools",
        }
    }

    /// The folder with the system, made now unless it was made before.
    fn folder(self) -> Result<PathBuf, MissingError> {
        let _alone = MAKER.lock().unwrap_or_else(PoisonError::into_inner);
        self.folder_alone()
    }

    fn folder_alone(self) -> Result<PathBuf, MissingError> {
        let folder = cache()?.join(self.name());
        if folder.exists() {
            return Ok(folder);
        }
        let fresh = folder.with_extension(std::process::id().to_string());
        let made = match self {
            System::Smallest => bootstrap(&fresh),
            System::WithTools => System::Smallest.folder_alone().and_then(|smallest| {
                copy(&smallest, &fresh)?;
                let install =
                    format!("apt-get update && apt-get install --yes --no-install-recommends {TOOLS} && apt-get clean");
                run(&mut inside(&fresh, &install), "util-linux").map(drop)
            }),
        };
        match made {
            Ok(()) => fs::rename(&fresh, &folder).map_err(MissingError::file(&folder)).map(|()| folder),
            Err(missing) => {
                let _ = fs::remove_dir_all(&fresh);
                Err(missing)
            }
        }
    }
}

/// Makes the smallest system in `folder`, with lists of all packages.
fn bootstrap(folder: &Path) -> Result<(), MissingError> {
    let mut ask = Command::new("apt-get");
    ask.args(["indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"]);
    let said = run(&mut ask, "apt")?;
    let mirror = said.lines().find_map(|line| line.strip_prefix(SUITE)?.strip_prefix(' ')).unwrap_or(MIRROR);
    // In a namespace of its own: what it mounts is gone when it ends.
    let mut bootstrap = Command::new("unshare");
    bootstrap.args(["--mount", "debootstrap", "--variant=minbase", SUITE]).arg(folder).arg(mirror);
    run(&mut bootstrap, "debootstrap")?;
    run(&mut inside(folder, "apt-get update && apt-get clean"), "util-linux").map(drop)
}

fn copy(from: &Path, to: &Path) -> Result<(), MissingError> {
    run(Command::new("cp").args(["--archive", "--reflink=auto"]).args([from, to]), "coreutils").map(drop)
}

/// Mounts `/proc` in the folder `$1` and then calls chroot with the remaining arguments. `/dev` is
/// the folder's own, with the device of FUSE beside what debootstrap made.
const ENTER: &str = r#"
    mkdir -p "$1/proc" "$1/dev"
    mount -t proc proc "$1/proc"
    [ -e "$1/dev/fuse" ] || [ ! -e /dev/fuse ] || cp --archive /dev/fuse "$1/dev/fuse"
    shift
    exec /usr/sbin/chroot "$@"
"#;

/// `script` for the shell in `folder`, as root, with nobody of it left afterwards.
fn inside(folder: &Path, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", ENTER, "sh"]).args([folder, folder]);
    clean_environment(&mut command);
    command.args(["sh", "-euc", script]).stdin(Stdio::null());
    command
}

fn clean_environment(command: &mut Command) {
    let proxies = ["http_proxy", "https_proxy", "no_proxy"].map(|name| (name, std::env::var_os(name)));
    command.env_clear().envs(proxies.into_iter().filter_map(|(name, value)| Some((name, value?))));
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8").env("HOME", "/root");
}

/// A copy of a system, removed when dropped.
pub struct Chroot {
    folder: TempDir,
}

impl Chroot {
    /// A fresh copy of `system`.
    pub fn new(system: System) -> Chroot {
        assert!(rustix::process::geteuid().is_root(), "this test enters systems by chroot: run it as root");
        let made = system.folder().and_then(|from| {
            let chroot = Chroot::empty();
            copy(&from.join("."), chroot.root())?;
            Ok(chroot)
        });
        made.unwrap_or_else(|missing| panic!("{missing}"))
    }

    /// A folder without any file.
    pub fn empty() -> Chroot {
        let folder = tempfile::tempdir().expect("a folder for a system");
        let open = fs::set_permissions(folder.path(), Permissions::from_mode(0o755));
        open.expect("the folder is this user's");
        Chroot { folder }
    }

    /// The folder that is `/` inside.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// The place of an absolute path of the inside.
    pub fn at(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    /// What `script` prints, which must end well; the shell stops at its first failure.
    pub fn run(&self, script: &str) -> String {
        run(&mut inside(self.root(), script), "util-linux").unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// A command of `words` that becomes a process of the inside: signals to it reach the program.
    pub fn command<'w>(&self, words: impl IntoIterator<Item = &'w str>) -> Command {
        self.command_as("0:0", words)
    }

    /// A command as [`command`](Self::command) gives it, of a user and a group, by number.
    pub fn command_as<'w>(&self, user: &str, words: impl IntoIterator<Item = &'w str>) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-euc", ENTER, "sh"]).arg(self.root());
        command.arg(format!("--userspec={user}")).arg(self.root());
        clean_environment(&mut command);
        command.args(words).stdin(Stdio::null());
        command
    }

    /// Every file of the inside in a line: its path, kind, permissions, owner, size, and where it
    /// points if it is a link. Folders have no size.
    pub fn listing(&self) -> Vec<String> {
        let format = "%p %y %m %U:%G %s %l\n";
        let list = format!(
            "find / -xdev \\( -path /proc -o -path /dev \\) -prune -o -type d -printf '%p %y %m %U:%G\n' -o -printf '{format}' | sort"
        );
        self.run(&list).lines().map(str::to_owned).collect()
    }
}
