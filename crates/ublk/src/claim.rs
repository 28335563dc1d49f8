//! Which device a server gets: the one that an earlier server of its volume left, or a new one.
//!
//! The driver keeps a word for servers with each device: here the **device mark**, which tells the
//! volume and its file. It lives as long as the device, so that nothing has to be written down and
//! nothing goes stale. A device is taken over only if its mark is the volume's, no process has its
//! file open, and the kernel says that it waits. Others are left alone.

use crate::control::Control;
use crate::driver::{ANY_NUMBER, DeviceRecord, DeviceState, ParameterRecord, feature};
use crate::failure::UblkFailure;
use crate::node::{file_of, unused};
use crate::parameters::{REQUEST_BYTES_MAX, difference, parameters};
use crate::repeat::repeat;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::process;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block_export::Export;

/// Requests that a queue has at a time.
const QUEUE_DEPTH: u16 = 64;

/// How long the kernel may take to end what a killed server left. Where all requests of a queue
/// were under way, kernels before 6.16 look after 30 s.
const LEAVING_MAX: Duration = Duration::from_secs(90);

/// How long the system may take to make the file of a new device.
const FILE_MAX: Duration = Duration::from_secs(5);

/// By which the device of a volume is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub(crate) u64);

/// Other servers keep small numbers there, or none.
const MARK_BIT: u64 = 1 << 63;

impl Mark {
    /// The mark of a volume with this UUID in the file with these device and inode numbers: a copy
    /// of a volume has another mark.
    pub fn of(uuid: [u8; 16], device: u64, inode: u64) -> Mark {
        let half = |from: usize| u64::from_be_bytes(std::array::from_fn(|at| uuid[from + at]));
        let words = [half(0), half(8), device, inode];
        Mark(words.into_iter().fold(0, |mark, word| mixed(mark ^ word)) | MARK_BIT)
    }

    /// Whether the word of a device is such a mark.
    pub(crate) fn is_one(word: u64) -> bool {
        word & MARK_BIT != 0
    }
}

/// A word in which each bit depends on all bits of `word` (the finalizer of SplitMix64).
fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Whether others may serve the volume at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusivity {
    /// This server has the volume for itself: a device with the volume's mark is its own.
    Sole,
    /// Other servers may read it too, and have devices of their own.
    Shared,
}

/// The device that a volume is to have.
pub struct Wanted<'w> {
    /// The volume.
    pub export: &'w Export,
    /// By which its device is known again.
    pub mark: Mark,
    /// Whether others may serve it.
    pub exclusivity: Exclusivity,
    /// The device's number; None: the kernel chooses.
    pub number: Option<u32>,
    /// Queues, each with a thread here.
    pub queues: u16,
}

/// Where a device comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was made, and has not started.
    Made,
    /// An earlier server left it.
    TakenOver,
}

/// A device that this server is about to serve.
pub struct ClaimedDevice {
    pub(crate) control: Control,
    /// By which it is served, until it is to be removed.
    pub(crate) file: Option<File>,
    pub(crate) record: DeviceRecord,
    pub(crate) origin: Origin,
    /// The block device answers, or did: from then on the device may have users.
    pub(crate) has_begun: bool,
    /// Becomes readable when the queues are to end.
    pub(crate) stop: Arc<OwnedFd>,
}

/// Takes over the device that an earlier server of the volume left, or makes one.
///
/// # Errors
/// There is no driver, no permission, the number is taken, or the device that waits for the volume
/// is in use and was made for another form of it.
pub fn claim(wanted: &Wanted<'_>) -> Result<ClaimedDevice, UblkFailure> {
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let stop = stop.map_err(|errno| UblkFailure::System { what: "eventfd", error: errno.into() })?;
    let mut control = Control::open()?;
    let volume = parameters(wanted.export);
    for number in numbers() {
        let Some(record) = left_behind(&mut control, number, wanted)? else { continue };
        match fits(&mut control, &record, wanted, &volume)? {
            Fit::AsItIs => return take_over((control, stop), record),
            Fit::Replaced { alone } => {
                control.stop(number)?;
                drop(alone);
                control.delete(number)?;
            }
        }
    }
    make((control, stop), wanted, &volume)
}

impl ClaimedDevice {
    /// The number of the device.
    pub fn number(&self) -> u32 {
        self.record.number.get()
    }

    /// Whether an earlier server left it.
    pub fn was_left(&self) -> bool {
        self.origin == Origin::TakenOver
    }

    /// A device that this process may serve from now on. One that was made is removed if not.
    fn new(
        (control, stop): (Control, OwnedFd),
        record: DeviceRecord,
        origin: Origin,
    ) -> Result<ClaimedDevice, UblkFailure> {
        let has_begun = origin == Origin::TakenOver;
        let mut claimed = ClaimedDevice { control, file: None, record, origin, has_begun, stop: Arc::new(stop) };
        let path = file_of(claimed.number());
        let opened = repeat(FILE_MAX, || match File::options().read(true).write(true).open(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ResourceBusy) => None,
            opened => Some(opened),
        });
        let file = opened.unwrap_or_else(|| Err(Errno::NOENT.into()));
        claimed.file = Some(file.map_err(|error| UblkFailure::File { path, error })?);
        Ok(claimed)
    }
}

/// Removes a device that was made and never began.
impl Drop for ClaimedDevice {
    fn drop(&mut self) {
        if !self.has_begun {
            // The driver waits for its file to be closed.
            self.file = None;
            // Why it did not begin is what is told.
            let _ = self.control.delete(self.record.number.get());
        }
    }
}

/// The numbers of all devices, whether this process has files of them or not.
pub(crate) fn numbers() -> Vec<u32> {
    let entries = fs::read_dir("/sys/class/ublk-char").into_iter().flatten().flatten();
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("ublkc")?.parse().ok();
    entries.filter_map(|entry| number(entry.file_name())).collect()
}

/// The device `number`, if it is the volume's and no process serves it any more.
fn left_behind(control: &mut Control, number: u32, wanted: &Wanted<'_>) -> Result<Option<DeviceRecord>, UblkFailure> {
    let is_ours = |record: &DeviceRecord| record.mark.get() == wanted.mark.0;
    let Some(first) = control.info(number)?.filter(is_ours) else { return Ok(None) };
    if wanted.exclusivity == Exclusivity::Shared && is_served(number)? {
        return Ok(None);
    }
    let settled = repeat(LEAVING_MAX, || {
        let look = |control: &mut Control| match control.info(number)?.filter(is_ours) {
            Some(record) if record.state() == DeviceState::Live || is_served(number)? => Ok(None),
            settled => Ok(Some(settled)),
        };
        look(control).transpose()
    });
    settled.unwrap_or(Err(UblkFailure::Served { number, pid: first.server_pid.get() }))
}

/// Whether a process has the file of the device open, which one may.
fn is_served(number: u32) -> Result<bool, UblkFailure> {
    let path = file_of(number);
    match File::open(&path) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(UblkFailure::File { path, error }),
    }
}

/// What becomes of a device that an earlier server left.
enum Fit {
    /// It is taken over.
    AsItIs,
    /// It has another form, and no users: it is removed.
    Replaced {
        /// Its block device, open for this process alone: no one mounts it before it is stopped.
        alone: Option<File>,
    },
}

/// Whether the device that `record` describes can be taken over as it is. One that cannot, and has
/// users, is a failure.
fn fits(
    control: &mut Control,
    record: &DeviceRecord,
    wanted: &Wanted<'_>,
    volume: &ParameterRecord,
) -> Result<Fit, UblkFailure> {
    let number = record.number.get();
    if record.state() == DeviceState::Dead {
        return Ok(Fit::Replaced { alone: None });
    }
    let other_number = wanted.number.is_some_and(|wanted| wanted != number).then_some("its number");
    let cannot = (record.features.get() & feature::RECOVERY == 0).then_some("its server");
    let differs = difference(&control.parameters(number)?, volume).or(other_number).or(cannot);
    let Some(what) = differs else { return Ok(Fit::AsItIs) };
    unused(number).map(|alone| Fit::Replaced { alone }).map_err(|_| UblkFailure::Changed { number, what })
}

fn take_over((mut control, stop): (Control, OwnedFd), record: DeviceRecord) -> Result<ClaimedDevice, UblkFailure> {
    let number = record.number.get();
    let begun = repeat(LEAVING_MAX, || match control.start_recovery(number) {
        Ok(false) => None,
        Ok(true) => Some(Ok(())),
        Err(error) => Some(Err(error)),
    });
    begun.unwrap_or(Err(UblkFailure::Served { number, pid: record.server_pid.get() }))?;
    ClaimedDevice::new((control, stop), record, Origin::TakenOver)
}

fn make(
    (mut control, stop): (Control, OwnedFd),
    wanted: &Wanted<'_>,
    volume: &ParameterRecord,
) -> Result<ClaimedDevice, UblkFailure> {
    let record = control.add(&DeviceRecord {
        queues: wanted.queues.into(),
        queue_depth: QUEUE_DEPTH.into(),
        buffer_bytes: REQUEST_BYTES_MAX.into(),
        number: wanted.number.unwrap_or(ANY_NUMBER).into(),
        server_pid: i32::try_from(process::id()).unwrap_or(i32::MAX).into(),
        features: feature::NEEDED.into(),
        mark: wanted.mark.0.into(),
        ..DeviceRecord::default()
    })?;
    let number = record.number.get();
    let made = control.set_parameters(number, volume).and_then(|()| {
        if record.features.get() & feature::NEEDED == feature::NEEDED { Ok(()) } else { Err(UblkFailure::TooOld) }
    });
    if let Err(failure) = made {
        // The first failure is the one to tell.
        let _ = control.delete(number);
        return Err(failure);
    }
    ClaimedDevice::new((control, stop), record, Origin::Made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_mark_tells_a_volume_from_others_and_from_its_copy() {
        let uuid = *b"0123456789abcdef";
        let mut marks = vec![Mark::of(uuid, 1, 2), Mark::of(uuid, 2, 1), Mark::of(uuid, 1, 3), Mark::of([0; 16], 0, 0)];
        marks.extend((0..16).map(|at| {
            let mut other = uuid;
            other[at] ^= 1;
            Mark::of(other, 1, 2)
        }));
        let different: BTreeSet<u64> = marks.iter().map(|mark| mark.0).collect();
        assert_eq!(different.len(), marks.len(), "{marks:?}");
        assert_eq!(Mark::of(uuid, 1, 2), Mark::of(uuid, 1, 2));
        assert!(different.iter().all(|mark| *mark > u64::from(u32::MAX)), "no small number");
    }

    #[test]
    fn a_mark_is_the_one_that_servers_before_this_one_made() {
        assert_eq!(Mark::of([0; 16], 0, 0).0, 0xa130_748a_aac8_0268);
    }
}
