//! Failures of the server library: each has its report in a file of its own beside this one.

use crate::{Exit, Report};
use tidegate_server::failure::{Failure, Refused};

impl From<&Failure> for Report {
    fn from(failure: &Failure) -> Report {
        match failure {
            Failure::Volume(volume) => volume.into(),
            Failure::Mirror(mirror) => mirror.into(),
            Failure::WriteCache(write_cache) => write_cache.into(),
            Failure::Create(create) => create.into(),
            Failure::Disk(disk) => disk.into(),
            Failure::Journal(journal) => journal.into(),
            Failure::Listen(listen) => listen.into(),
            Failure::BlockDevice(device) => device.into(),
            Failure::Control(control) => control.into(),
            Failure::NotOwn(not_own) => not_own.into(),
            Failure::IsPool { .. } => Report::new(
                ("no-volume", Exit::Refused),
                failure.to_string(),
                "it is a pool of the former `tidegate run-log`, with what programs synced to their files",
                "recover it with the version of Tidegate that wrote it",
            ),
            Failure::System { doing, error } => Report::of_system(doing, error),
        }
    }
}

/// What a server answers to whoever asked for what failed.
pub fn refusal(failure: Failure) -> Refused {
    let Report { what, why, next, exit, .. } = Report::from(&failure);
    Refused::Failed { why: format!("{what}: {why}"), next, exit: exit as u8 }
}
