//! stress-ng's stressors of files and names: each does one kind of call again and again, in ways
//! that are allowed and in ways that are not, and verifies what it reads.

use super::{Suite, Verdict};
use crate::artefacts::{MissingError, run};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const SUITE: Suite = Suite {
    name: "stress-ng",
    build: installed,
    scripts: |_| Ok::<_, io::Error>(STRESSORS.iter().map(|&name| name.to_owned()).collect()),
    command,
    case,
    known: &["fiemap: "],
};

/// Seconds of each.
const SECONDS: &str = "2";

const STRESSORS: [&str; 55] = [
    "access",
    "aio",
    "aiol",
    "chattr",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "dup",
    "fallocate",
    "fcntl",
    "fiemap",
    "file-ioctl",
    "filename",
    "flock",
    "fpunch",
    "fsize",
    "fstat",
    "getdent",
    "handle",
    "hdd",
    "inode-flags",
    "inotify",
    "io",
    "iomix",
    "lease",
    "link",
    "locka",
    "lockf",
    "lockofd",
    "mincore",
    "mknod",
    "mmap",
    "mmapaddr",
    "mmapfixed",
    "mmapfork",
    "mmapmany",
    "msync",
    "msyncmany",
    "open",
    "readahead",
    "rename",
    "seek",
    "sendfile",
    "splice",
    "symlink",
    "sync-file",
    "tee",
    "touch",
    "utime",
    "xattr",
];

fn installed() -> Result<PathBuf, MissingError> {
    run(Command::new("stress-ng").arg("--version"), "stress-ng")?;
    Ok(PathBuf::from("/usr/bin"))
}

fn command(_folder: &Path, stressor: &str, at: &Path) -> Command {
    let mut command = Command::new("stress-ng");
    command.args([&format!("--{stressor}"), "1", "--timeout", SECONDS, "--verify", "--temp-path"]).arg(at);
    // By default some of them fill a gigabyte.
    for file in ["--hdd-bytes", "--fallocate-bytes", "--readahead-bytes"] {
        command.args([file, "16M"]);
    }
    command.args(["--copy-file-bytes", "128M"]).current_dir(at);
    command
}

/// What a stressor finds wrong, without its process; or that it does not run here.
fn case(line: &str) -> Option<(String, Verdict)> {
    let said = line.strip_prefix("stress-ng: ")?.split_once("] ")?.1;
    if line.starts_with("stress-ng: fail:") {
        return Some((said.to_owned(), Verdict::Failed));
    }
    said.contains("skipping stressor").then(|| ("it runs".to_owned(), Verdict::Skipped))
}
