//! A mount in the foreground, for the trials to kill.
//!
//! `mount-source SOURCE MOUNTPOINT POOL` prints `mounted` when programs can use the mount, and ends
//! with it.

#![forbid(unsafe_code)]

use std::path::Path;
use tidegate_file_service::{Listener, MountRequest, RecoveredFile, run};

/// Bytes of a pool that is made: few enough for files to be written back while a trial goes on.
const POOL_BYTES: u64 = 128 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let mut argument = || arguments.next().ok_or("mount-source SOURCE MOUNTPOINT POOL");
    let request = MountRequest {
        source: argument()?.into(),
        mountpoint: argument()?.into(),
        pool: Some(argument()?.into()),
        pool_bytes: Some(POOL_BYTES),
        dram_bytes: None,
        is_trial: true,
    };
    Ok(run(request, &Printed)?)
}

/// Says what happens on standard output, where the trial reads it.
struct Printed;

impl Listener for Printed {
    fn recovered(&self, files: &[RecoveredFile]) {
        files.iter().for_each(|file| println!("{}: {:?}", file.file.display(), file.outcome));
    }

    fn mounted(&self, _pool: &Path) {
        println!("{}", tidegate_trials::mounted::MOUNTED);
    }

    fn progress(&self, line: &str) {
        println!("{line}");
    }

    fn interrupted(&self) -> ! {
        std::process::exit(1)
    }
}
