//! Commands about devices: one function each.

use crate::driver::{
    ControlCommand, DeviceRecord, NO_QUEUE, ParameterRecord, command,
    feature::{self},
    parameter,
};
use crate::failure::UblkFailure;
use crate::kernel::{CommandError, ControlRing};
use rustix::io::Errno;
use std::fs::File;
use std::io::ErrorKind;
use std::process;
use zerocopy::{FromBytes, IntoBytes};

/// The file by which devices are made.
const CONTROL: &str = "/dev/ublk-control";

/// The driver, ready for commands.
pub(crate) struct Control(ControlRing);

impl Control {
    /// Opens the driver, if it can do what is needed.
    pub(crate) fn open() -> Result<Control, UblkFailure> {
        let control = File::options().read(true).write(true).open(CONTROL).map_err(|error| match error.kind() {
            ErrorKind::NotFound => UblkFailure::NoDriver,
            ErrorKind::PermissionDenied => UblkFailure::Denied,
            _ => UblkFailure::File { path: CONTROL.into(), error },
        })?;
        let ring = ControlRing::new(control).map_err(|error| UblkFailure::System { what: "io_uring", error })?;
        let mut control = Control(ring);
        if control.features()? & feature::NEEDED == feature::NEEDED { Ok(control) } else { Err(UblkFailure::TooOld) }
    }

    fn features(&mut self) -> Result<u64, UblkFailure> {
        let told = self.command(command::FEATURES, 0, 0, &[0; 8]);
        let told = told.map_err(|error| match error {
            // Drivers before Linux 6.5 do not know the question.
            CommandError::Refused(Errno::OPNOTSUPP | Errno::INVAL | Errno::NODEV) => UblkFailure::TooOld,
            CommandError::Refused(Errno::PERM | Errno::ACCESS) => UblkFailure::Denied,
            error => UblkFailure::Command { what: "tell its features", error },
        })?;
        Ok(u64::read_from_bytes(&told).unwrap_or_default())
    }

    /// What the driver knows of the device `number`. None: there is none, or it is of another
    /// program: of devices that users made for themselves the driver tells those who name its file.
    pub(crate) fn info(&mut self, number: u32) -> Result<Option<DeviceRecord>, UblkFailure> {
        match self.command(command::DEVICE_INFO, number, 0, DeviceRecord::default().as_bytes()) {
            Ok(told) => Ok(DeviceRecord::read_from_bytes(&told).ok()),
            Err(CommandError::Refused(Errno::NODEV | Errno::INVAL | Errno::PERM | Errno::ACCESS)) => Ok(None),
            Err(error) => Err(failed("tell of a device", error)),
        }
    }

    /// Whether the device `number` is there, and has this mark. Another program may have removed
    /// one and made its own.
    pub(crate) fn has_mark(&mut self, number: u32, mark: u64) -> Result<bool, UblkFailure> {
        Ok(self.info(number)?.is_some_and(|record| record.mark.get() == mark))
    }

    /// Makes the device that `wanted` describes. It as the driver made it.
    pub(crate) fn add(&mut self, wanted: &DeviceRecord) -> Result<DeviceRecord, UblkFailure> {
        let number = wanted.number.get();
        let made = self.command(command::ADD, number, 0, wanted.as_bytes()).map_err(|error| match error {
            CommandError::Refused(Errno::EXIST) => UblkFailure::NumberTaken { number },
            error => failed("make a device", error),
        })?;
        let broken = || failed("make a device", CommandError::Refused(Errno::PROTO));
        DeviceRecord::read_from_bytes(&made).map_err(|_| broken())
    }

    /// Sets the parameters of a device that has not started.
    pub(crate) fn set_parameters(&mut self, number: u32, wanted: &ParameterRecord) -> Result<(), UblkFailure> {
        let bytes = &wanted.as_bytes()[..parameter::BYTES as usize];
        self.done("take a device's parameters", command::SET_PARAMETERS, number, 0, bytes)
    }

    /// The parameters of a device.
    pub(crate) fn parameters(&mut self, number: u32) -> Result<ParameterRecord, UblkFailure> {
        let mut record = ParameterRecord { len: parameter::BYTES.into(), ..ParameterRecord::default() };
        let bytes = &record.as_bytes()[..parameter::BYTES as usize];
        let told = self.command(command::PARAMETERS, number, 0, bytes);
        let told = told.map_err(|error| failed("tell a device's parameters", error))?;
        record.as_mut_bytes()[..told.len()].copy_from_slice(&told);
        Ok(record)
    }

    /// Makes the block device, once all queues have asked for requests. The kernel reads its
    /// partitions meanwhile.
    pub(crate) fn start(&mut self, number: u32) -> Result<(), UblkFailure> {
        self.done("start a device", command::START, number, own_pid(), &[])
    }

    /// Takes the block device away, and ends its queues. Requests under way are answered first.
    pub(crate) fn stop(&mut self, number: u32) -> Result<(), UblkFailure> {
        self.done("stop a device", command::STOP, number, 0, &[])
    }

    /// Removes a device. It may be gone already.
    pub(crate) fn delete(&mut self, number: u32) -> Result<(), UblkFailure> {
        match self.command(command::DELETE, number, 0, &[]) {
            Ok(_) | Err(CommandError::Refused(Errno::NODEV)) => Ok(()),
            Err(error) => Err(failed("remove a device", error)),
        }
    }

    /// Begins to take over a device whose server is gone: its queues ask anew. False: that cannot
    /// be yet, as the kernel has still to end what the server left.
    pub(crate) fn start_recovery(&mut self, number: u32) -> Result<bool, UblkFailure> {
        match self.command(command::START_RECOVERY, number, 0, &[]) {
            // A server that began to take it over, and was killed then, has done this.
            Ok(_) | Err(CommandError::Refused(Errno::INVAL)) => Ok(true),
            Err(CommandError::Refused(Errno::BUSY)) => Ok(false),
            Err(error) => Err(failed("let a device be taken over", error)),
        }
    }

    /// Ends taking it over: requests come again.
    pub(crate) fn end_recovery(&mut self, number: u32) -> Result<(), UblkFailure> {
        self.done("go on with a device", command::END_RECOVERY, number, own_pid(), &[])
    }

    fn done(
        &mut self,
        what: &'static str,
        command: u32,
        number: u32,
        value: u64,
        record: &[u8],
    ) -> Result<(), UblkFailure> {
        self.command(command, number, value, record).map(|_| ()).map_err(|error| failed(what, error))
    }

    fn command(&mut self, command: u32, number: u32, value: u64, record: &[u8]) -> Result<Box<[u8]>, CommandError> {
        let words = ControlCommand {
            number: number.into(),
            queue: NO_QUEUE.into(),
            value: value.into(),
            ..ControlCommand::default()
        };
        self.0.call(command, words, record.into())
    }
}

fn own_pid() -> u64 {
    process::id().into()
}

/// The failure of a command, with what may be done about it.
fn failed(what: &'static str, error: CommandError) -> UblkFailure {
    match error {
        CommandError::Refused(Errno::PERM | Errno::ACCESS) => UblkFailure::Denied,
        error => UblkFailure::Command { what, error },
    }
}
