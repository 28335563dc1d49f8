//! Volumes as block devices of this machine.

use crate::failure::{Doing, Failure, UblkFailure, VolumeFailure};
use crate::options::{MirrorPlan, Plan, UblkPlan, VolumePlan};
use crate::sockets::connections::Connections;
use crate::volume::compose::Volume;
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::raise;
use std::fs;
use std::io;
use std::num::NonZeroU16;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use tidegate_host::kernel_version::KernelVersion;
use tidegate_media::Access;
use tidegate_ublk::{ClaimedDevice, EndOutcome, Ended, Ender, Exclusivity, Mark, UblkVolume, Wanted, claim};
pub use tidegate_ublk::{LeftDevice, left_devices};

/// Queues of a device that is served on a machine with that many processors or more.
const QUEUES_MAX: usize = 4;

/// The devices that are served now. They end when this is dropped, if not before.
#[derive(Default)]
pub struct BlockDevices {
    served: Mutex<Vec<BlockDevice>>,
    /// The service of one failed, which ends the server.
    has_failed: Arc<AtomicBool>,
}

/// A device that is served now.
struct BlockDevice {
    volume: usize,
    path: PathBuf,
    ender: Ender,
    /// Set once, before the end: whether the device's thread expects it.
    is_ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

const HOLDER_PANICKED: &str = "nothing that holds this lock panics";

impl BlockDevices {
    /// Makes a device of each of `volumes` that is to have one, or takes over the one that it has
    /// from an earlier server, and serves it.
    pub fn begin(plan: &Plan, volumes: &[Volume], connections: &Arc<Connections>) -> Result<BlockDevices, Failure> {
        let devices = BlockDevices::default();
        for (number, (plan, volume)) in plan.volumes.iter().zip(volumes).enumerate() {
            if let Some(wish) = plan.ublk {
                let device = begin(number, (plan, wish), volume, (connections, &devices.has_failed))?;
                devices.served.lock().expect(HOLDER_PANICKED).push(device);
            }
        }
        Ok(devices)
    }

    /// The device of the volume of this number.
    pub fn path_of(&self, volume: usize) -> Option<PathBuf> {
        let devices = self.served.lock().expect(HOLDER_PANICKED);
        devices.iter().find(|device| device.volume == volume).map(|device| device.path.clone())
    }

    /// Fails if the service of a device did.
    pub(crate) fn well(&self) -> Result<(), Failure> {
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let waits = "the log says why; requests to it wait, and the next server takes it over";
        Err(Failure::system("serving a block device")(io::Error::other(waits)))
    }

    /// Takes the devices away. One with a user stays, and waits for the next server.
    pub fn end(&self) {
        let devices = std::mem::take(&mut *self.served.lock().expect(HOLDER_PANICKED));
        for device in devices {
            let path = device.path.display();
            device.is_ending.store(true, Ordering::Release);
            match device.ender.end() {
                Ok(EndOutcome::Removed) => tracing::info!("{path} is removed"),
                Ok(EndOutcome::Waiting { user }) => tracing::warn!(
                    "{path} is in use: {user}. It waits, and so do requests to it, until `tidegate serve --ublk` \
                     serves the volume again"
                ),
                Err(failure) => tracing::warn!("{path} waits for the next server of its volume: {failure}"),
            }
            if device.thread.join().is_err() {
                tracing::error!("the server of {path} failed in a way that nobody expected");
            }
        }
    }
}

impl Drop for BlockDevices {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves the volume `number` as a device, which answers when this returns.
fn begin(
    number: usize,
    (plan, wish): (&VolumePlan, UblkPlan),
    volume: &Volume,
    (connections, has_failed): (&Arc<Connections>, &Arc<AtomicBool>),
) -> Result<BlockDevice, Failure> {
    let export = connections.exports().nth(number).expect("each volume has an export");
    let wanted = Wanted {
        export,
        mark: mark_of(plan, volume)?,
        exclusivity: match volume.access {
            Access::ReadWrite => Exclusivity::Sole,
            Access::Private | Access::PrivateUnlocked => Exclusivity::Shared,
        },
        number: wish.number,
        queues: wish.queues.map_or_else(usual_queues, NonZeroU16::get),
    };
    let claimed = claim(&wanted)?;
    let (path, ender, was_left) = (claimed.path(), claimed.ender(), claimed.was_left());
    if wanted.queues > 1 && needs_whole_takeovers() {
        tracing::warn!(
            "{} has {} queues: before Linux 6.16, a kill of this server while it starts can make the kernel fail at the \
             next start; one queue has no such moment",
            path.display(),
            wanted.queues
        );
    }
    let is_ending = Arc::new(AtomicBool::new(false));
    let (ready, begun) = channel();
    let (connections, shown) = (Arc::clone(connections), path.clone());
    let end = DeviceEnd { is_ending: Arc::clone(&is_ending), has_failed: Arc::clone(has_failed) };
    let work = move || serve(claimed, number, &connections, &ready, &end, &shown.display().to_string());
    let spawned = thread::Builder::new().name(format!("device {}", path.display())).spawn(work);
    let thread = spawned.map_err(Failure::system("starting a thread"))?;
    let Ok(begun) = begun.recv() else {
        let unexpected = "the server of the block device failed in a way that nobody expected";
        return Err(Failure::system("starting a block device")(io::Error::other(unexpected)));
    };
    begun?;
    if was_left {
        tracing::info!("took over {} from the server before", path.display());
    }
    Ok(BlockDevice { volume: number, path, ender, is_ending, thread })
}

/// By which the device of `volume` is known again. A mirror is known by its UUID alone: it is the
/// same volume whichever side is named first, and while it is served without the other one.
fn mark_of(plan: &VolumePlan, volume: &Volume) -> Result<Mark, Failure> {
    let uuid = volume.facts.uuid.into_bytes();
    if plan.mirror != MirrorPlan::Absent {
        return Ok(Mark::of(uuid, 0, 0));
    }
    let file = fs::metadata(&plan.pmem).map_err(|error| VolumeFailure::of_io(&plan.pmem, Doing::Read, error))?;
    Ok(Mark::of(uuid, file.dev(), file.ino()))
}

/// What the end of a device's service means to the server.
struct DeviceEnd {
    /// It is expected.
    is_ending: Arc<AtomicBool>,
    /// It is not: the server ends with a failure, so that the next one takes over the device.
    has_failed: Arc<AtomicBool>,
}

impl DeviceEnd {
    fn is_expected(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
        // The server ends as by any signal: its clients' requests are finished.
        if let Err(error) = raise(SIGTERM) {
            tracing::error!("the server cannot end itself, so end it: {error}");
        }
    }
}

/// A panic of an engine leaves no one who answers the kernel.
impl Drop for DeviceEnd {
    fn drop(&mut self) {
        if thread::panicking() {
            self.fail();
        }
    }
}

/// Serves a device to its end. Tells `ready` that it has begun, or why not.
fn serve(
    claimed: ClaimedDevice,
    volume: usize,
    connections: &Connections,
    ready: &Sender<Result<(), UblkFailure>>,
    end: &DeviceEnd,
    path: &str,
) {
    let export = connections.exports().nth(volume).expect("each volume has an export");
    let has_begun = AtomicBool::new(false);
    let tell_ready = || {
        has_begun.store(true, Ordering::Release);
        // Whoever began it may have given up.
        let _ = ready.send(Ok(()));
    };
    let ended = claimed.serve(&UblkVolume { export, poll_budget: connections.poll_budget() }, tell_ready);
    let name = export.name();
    match ended {
        Ok(_) if end.is_expected() => {}
        Ok(Ended::Removed) => tracing::warn!(
            "another program removed {path}: the volume {name:?} has no block device until it is served anew"
        ),
        Ok(Ended::Waiting) => {
            tracing::error!("the queues of {path} ended: the server ends, and the next one takes over the device");
            end.fail();
        }
        Err(failure) if has_begun.load(Ordering::Acquire) => {
            tracing::error!("{path} waits for the next server of its volume, and this one ends: {failure}");
            end.fail();
        }
        Err(failure) => {
            let _ = ready.send(Err(failure));
        }
    }
}

/// The first kernel that begins a takeover anew whichever of the device's queues had asked for
/// requests. Older ones fail in the kernel if the server was killed when some had and others had
/// not.
const TAKEOVERS_OF_PARTS: KernelVersion = KernelVersion(6, 16);

/// Whether a device of several queues cannot be handed over at every moment.
fn needs_whole_takeovers() -> bool {
    KernelVersion::running() < Some(TAKEOVERS_OF_PARTS)
}

/// One queue for each processor, up to a few; one where a device of several cannot be handed over
/// at every moment.
fn usual_queues() -> u16 {
    if needs_whole_takeovers() {
        return 1;
    }
    let processors = thread::available_parallelism().map_or(1, usize::from);
    u16::try_from(processors.min(QUEUES_MAX)).expect("a few")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::compose::open;
    use crate::volume::compose::tests::mirrored;

    #[test]
    fn a_mirror_has_one_mark_whichever_sides_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let sides = mirrored(folder.path());
        let mark = |first: usize, mirror| {
            let plan = VolumePlan { mirror, ..VolumePlan::of(sides[first].clone(), Access::ReadWrite) };
            mark_of(&plan, &open(&plan).expect("a mirror")).expect("a mark")
        };
        let both = |first: usize| mark(first, MirrorPlan::With(sides[1 - first].clone()));
        let [first, second] = [both(0), both(1)];
        assert_eq!([second, mark(1, MirrorPlan::Degraded)], [first, first]);
    }
}
