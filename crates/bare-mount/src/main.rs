//! Mounts files in memory: `bare-mount MOUNTPOINT [--threads N] [--kept FOLDER] [--keep-alive]
//! [--no-resend] [--fail-as PLAN]`, or unmounts: `bare-mount MOUNTPOINT --unmount`.
//!
//! With `--keep-alive` a second process serves, which may be killed; its files are in FOLDER.
//! `--no-resend` does as on a kernel before Linux 6.9. With `--fail-as` the file PLAN says which
//! changes fail, as long as it is there.

#![forbid(unsafe_code)]

use anyhow::{Context as _, Result, bail};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate_bare_mount::{FailingFiles, Files};
use tidegate_fuse::Features;
use tidegate_mount_transport::{
    EndSignals, Handover, MountAt, MountEnd, MountEvent, MountedDevice, ServersTask, Serving, Unmount, keep_alive,
    mount, serve, unmount,
};

/// The command line.
#[derive(Debug)]
struct Arguments {
    mountpoint: PathBuf,
    threads: NonZeroUsize,
    kept: Option<PathBuf>,
    keeps_alive: bool,
    plan: Option<PathBuf>,
    wanted: Features,
    task: Task,
}

/// What this process does.
#[derive(Clone, Copy, Debug)]
enum Task {
    Mount,
    /// Serves a mount that another process keeps alive.
    Serve,
    Unmount,
}

fn main() -> Result<()> {
    let arguments = parse(env::args_os().skip(1))?;
    match arguments.task {
        Task::Mount => mount_here(&arguments),
        Task::Serve => serve_handover(&arguments),
        Task::Unmount => Ok(unmount(&arguments.mountpoint, Unmount::Now)?),
    }
}

fn mount_here(arguments: &Arguments) -> Result<()> {
    let source = OsString::from("bare-mount");
    let mountpoint = arguments.mountpoint.canonicalize()?;
    let mounted = mount(&MountAt { mountpoint, source, covers_files: false }, arguments.wanted)?;
    if arguments.keeps_alive { keep(&mounted, &arguments.mountpoint) } else { serve_here(arguments, &mounted) }
}

fn parse(mut words: impl Iterator<Item = OsString>) -> Result<Arguments> {
    let mountpoint = words.next().context("name a MOUNTPOINT")?.into();
    let mut arguments = Arguments {
        mountpoint,
        threads: NonZeroUsize::MIN,
        kept: None,
        keeps_alive: false,
        plan: None,
        wanted: Features::FILE_SERVER.with(Features::RESEND),
        task: Task::Mount,
    };
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--threads") => {
                let number = words.next().and_then(|number| number.to_str()?.parse().ok());
                arguments.threads = number.context("--threads takes a number")?;
            }
            Some("--kept") => arguments.kept = Some(words.next().context("--kept takes a FOLDER")?.into()),
            Some("--keep-alive") => arguments.keeps_alive = true,
            Some("--fail-as") => arguments.plan = Some(words.next().context("--fail-as takes a PLAN")?.into()),
            Some("--no-resend") => arguments.wanted = Features::FILE_SERVER,
            Some("--server") => arguments.task = Task::Serve,
            Some("--unmount") => arguments.task = Task::Unmount,
            _ => bail!("{word:?} is no option"),
        }
    }
    Ok(arguments)
}

fn keep(mounted: &MountedDevice, mountpoint: &Path) -> Result<()> {
    let words: Vec<_> = env::args_os().skip(1).collect();
    let server = || {
        let mut command = Command::new("/proc/self/exe");
        command.args(&words).arg("--server");
        command
    };
    let signals = EndSignals::caught()?;
    let tell = |event| {
        // In time: a lazy one waits for nobody.
        if event == MountEvent::EndDemanded {
            drop(unmount(mountpoint, Unmount::Lazily));
        }
    };
    match keep_alive(mounted, (&ServersTask::default(), &signals), server, tell)? {
        MountEnd::Server(status) if status.success() => Ok(()),
        MountEnd::Server(status) | MountEnd::GaveUp(status) => bail!("the server ended: {status}"),
    }
}

fn serve_here(arguments: &Arguments, mounted: &MountedDevice) -> Result<()> {
    let MountedDevice { device, session } = mounted;
    let serving = Serving { device, session: *session, replies: None, threads: arguments.threads, busy_poll: true };
    let files = files(arguments)?;
    match &arguments.plan {
        Some(plan) => Ok(serve(&serving, &FailingFiles::new(files, plan.clone()))?),
        None => Ok(serve(&serving, &files)?),
    }
}

fn serve_handover(arguments: &Arguments) -> Result<()> {
    let signals = EndSignals::caught()?;
    let Handover { device, session, replies, ends, .. } = Handover::receive()?;
    // Its files need no last care.
    std::thread::spawn(move || ends.for_each(&signals, |_| std::process::exit(1)));
    let files = files(arguments)?;
    if let Some(folder) = &arguments.kept {
        fs::write(folder.join("server.pid"), std::process::id().to_string())?;
    }
    let serving =
        Serving { device: &device, session, replies: Some(&replies), threads: arguments.threads, busy_poll: true };
    Ok(serve(&serving, &files)?)
}

fn files(arguments: &Arguments) -> Result<Files> {
    Ok(match &arguments.kept {
        Some(folder) => Files::kept_in(folder)?,
        None => Files::in_memory(),
    })
}
