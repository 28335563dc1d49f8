//! Failures of the server library: each has its report in a file of its own beside this one.

use super::{Exit, Failure, Report};
use tidegate_host::default_paths::FolderError;
use tidegate_server::failure::{
    self as of_server, ControlFailure, CreateFailure, DiskFailure, JournalFailure, ListenFailure, Refused,
    VolumeFailure, WriteCacheFailure,
};

impl From<&of_server::Failure> for Report {
    fn from(failure: &of_server::Failure) -> Report {
        match failure {
            of_server::Failure::Volume(volume) => volume.into(),
            of_server::Failure::Mirror(mirror) => mirror.into(),
            of_server::Failure::WriteCache(write_cache) => write_cache.into(),
            of_server::Failure::Create(create) => create.into(),
            of_server::Failure::Disk(disk) => disk.into(),
            of_server::Failure::Journal(journal) => journal.into(),
            of_server::Failure::Listen(listen) => listen.into(),
            of_server::Failure::BlockDevice(device) => device.into(),
            of_server::Failure::Control(control) => control.into(),
            of_server::Failure::NotOwn(not_own) => not_own.into(),
            of_server::Failure::IsPool { .. } => Report::new(
                ("no-volume", Exit::Refused),
                failure.to_string(),
                "it is a pool of the former `tidegate run-log`, with what programs synced to their files",
                "recover it with the version of Tidegate that wrote it",
            ),
            of_server::Failure::System { doing, error } => Report::of_system(doing, error),
        }
    }
}

/// What a server answers to whoever asked for what failed.
pub(crate) fn refusal(failure: of_server::Failure) -> Refused {
    let Report { what, why, next, exit, .. } = Report::from(&failure);
    Refused::Failed { why: format!("{what}: {why}"), next, exit: exit as u8 }
}

/// A command fails if what it asks of the library does.
macro_rules! failures_of_server {
    ($($failure:ty),*) => {
        $(impl From<$failure> for Failure {
            fn from(failure: $failure) -> Failure {
                Failure::Server(failure.into())
            }
        })*
    };
}

failures_of_server!(
    of_server::Failure,
    ControlFailure,
    CreateFailure,
    DiskFailure,
    FolderError,
    JournalFailure,
    ListenFailure,
    VolumeFailure,
    WriteCacheFailure
);
