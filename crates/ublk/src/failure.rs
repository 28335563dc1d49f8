//! Why a volume has no block device.

use crate::kernel::CommandError;
use std::io;
use std::path::PathBuf;

/// Why a device could not be had, or not be served.
#[derive(Debug, thiserror::Error)]
pub enum UblkFailure {
    /// The driver is not loaded, or not part of the kernel.
    #[error("the kernel has no ublk driver")]
    NoDriver,
    /// This user may not make devices.
    #[error("no permission to make block devices")]
    Denied,
    /// The kernel's driver cannot do enough.
    #[error("the kernel's ublk driver is too old")]
    TooOld,
    /// Another device has the number.
    #[error("the device number {number} is taken")]
    NumberTaken {
        /// Which.
        number: u32,
    },
    /// Another process serves the device of the volume.
    #[error("/dev/ublkb{number} has a server")]
    Served {
        /// Its number.
        number: u32,
        /// The server's process, as the kernel has it.
        pid: i32,
    },
    /// The device that waits for the volume was made for another form of it, and has users.
    #[error("/dev/ublkb{number} waits for the volume as it was")]
    Changed {
        /// Its number.
        number: u32,
        /// What differs.
        what: &'static str,
    },
    /// The driver refused a command.
    #[error("the ublk driver did not {what}")]
    Command {
        /// What it was asked to do.
        what: &'static str,
        /// What it answered.
        error: CommandError,
    },
    /// The system refused something else.
    #[error("no {what} for a block device")]
    System {
        /// What.
        what: &'static str,
        /// What it answered.
        error: io::Error,
    },
    /// A file of a device cannot be used.
    #[error("cannot use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system answered.
        error: io::Error,
    },
}
