//! A file system on a subject: Ext4 on a loop device, on nbdfuse, on the subject that a child of
//! this program serves. Needs root.

use crate::caiti::stacks::Kind;
use anyhow::{Context, ensure};
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidegate_measure::medium::ScratchPath;
use tidegate_measure::programs::said;
use tidegate_measure::testbed::disk::ensure_unlimited;

/// How long a child may take until it is there.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// An Ext4 file system; taken down when this is dropped.
pub struct Mounted {
    // In the order in which they are taken down.
    mount: Option<PathBuf>,
    device: Option<String>,
    fuse: Option<Child>,
    server: Option<Child>,
    folder: ScratchPath,
}

impl Mounted {
    /// A fresh file system of `mib` MiB on `kind` over emulated Optane.
    pub fn over(kind: Kind, mib: u64) -> anyhow::Result<Mounted> {
        let subject = kind.to_possible_value().context("no subject is hidden")?;
        Mounted::over_served(mib, ["--subject", subject.get_name()])
    }

    /// One of `mib` MiB over memory as it is, whose requests are recorded in a new file at `path`.
    pub fn recorded(mib: u64, path: &Path) -> anyhow::Result<Mounted> {
        let path = path.to_str().context("a record's path is a text")?;
        Mounted::over_served(mib, ["--subject", "pmem", "--medium", "nvdimm", "--record", path])
    }

    fn over_served<'a>(mib: u64, options: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Mounted> {
        let folder = ScratchPath::new();
        std::fs::create_dir(folder.as_path())?;
        let mut mounted = Mounted { mount: None, device: None, fuse: None, server: None, folder };
        mounted.set_up(mib, options)?;
        Ok(mounted)
    }

    /// Where its files are.
    pub fn root(&self) -> &Path {
        self.mount.as_deref().expect("a file system is mounted when it is made")
    }

    fn set_up<'a>(&mut self, mib: u64, options: impl IntoIterator<Item = &'a str>) -> anyhow::Result<()> {
        let [socket, files, mount] = ["socket", "files", "mount"].map(|name| self.folder.as_path().join(name));
        let mut server = Command::new(std::env::current_exe()?);
        server.args(["serve", "--size", &mib.to_string()]).args(options).arg("--listen").arg(&socket);
        self.server = Some(server.stdout(Stdio::null()).spawn().context("serving the subject")?);
        until_there(&socket)?;
        std::fs::create_dir(&files)?;
        std::fs::create_dir(&mount)?;
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let mut fuse = Command::new("nbdfuse");
        self.fuse = Some(fuse.arg(files.join("disk")).arg(uri).spawn().context("apt-get install libnbd-bin fuse3")?);
        until_there(&files.join("disk"))?;
        // Otherwise a second page cache lies before the subject, and one request is under way.
        let mut attach = Command::new("losetup");
        let device = said(attach.args(["--find", "--show", "--direct-io=on"]).arg(files.join("disk")))?;
        self.device = Some(device.clone());
        ensure_unlimited(&device)?;
        said(Command::new("mkfs.ext4").args(["-q", "-E", "nodiscard", &device]))?;
        said(Command::new("mount").arg(&device).arg(&mount))?;
        self.mount = Some(mount);
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What cannot be taken down stays for the user to see; each step is tried whatever the
        // others did.
        if let Some(mount) = self.mount.take() {
            let _ = said(Command::new("umount").arg(mount));
        }
        if let Some(device) = self.device.take() {
            let _ = said(Command::new("losetup").args(["--detach", &device]));
        }
        if let Some(mut fuse) = self.fuse.take() {
            let _ = said(Command::new("fusermount3").arg("-u").arg(self.folder.as_path().join("files")));
            // It has ended by itself if the line above went well.
            let _ = fuse.kill();
            let _ = fuse.wait();
        }
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = std::fs::remove_dir_all(self.folder.as_path());
    }
}

/// Nothing tells when a child has made its socket or its mount: looks again and again, up to a
/// deadline.
fn until_there(path: &Path) -> anyhow::Result<()> {
    let begin = Instant::now();
    while !path.exists() {
        ensure!(begin.elapsed() < READY_WITHIN, "{} does not come", path.display());
        std::thread::park_timeout(Duration::from_millis(10));
    }
    Ok(())
}
