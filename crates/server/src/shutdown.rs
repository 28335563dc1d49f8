//! The end of a server: requests in progress finish, what is on its way arrives, the volumes are
//! flushed.

mod farewell;

pub use farewell::Farewell;

use crate::cached_disk::online::{DiskEnd, OnlineDisk};
use crate::failure::{Failure, VolumeFailure, WriteCacheFailure};
use crate::fronts::ublk::BlockDevices;
use crate::signals::Signals;
use crate::sockets::connections::{Connections, FINISHING_MAX};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tidegate_host::progress::{Drain, drain};
use tidegate_host::sd_notify::SystemdNotify;
use tidegate_host::units::Human;
use tidegate_media::BlockDevice;

/// How long the last words of a server that is ended at once may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Everything that has to come to its end.
pub struct Ending {
    /// The clients.
    pub connections: Arc<Connections>,
    /// The block devices of the volumes.
    pub devices: BlockDevices,
    /// The volumes.
    pub volumes: Vec<ServedVolume>,
    /// What started it.
    pub systemd: SystemdNotify,
    /// Shows how far the drain of a write cache is.
    pub show_progress: fn(&str),
    /// Tells a line about what is left if the end does not wait.
    pub tell: fn(&str),
    /// The exit code then.
    pub interrupted: i32,
}

/// How a server ended.
pub struct Ended {
    /// Its volumes, whose disks are still to be looked at.
    pub farewells: Vec<Farewell>,
    /// Connections that were cut before their requests were finished.
    pub unfinished: usize,
    /// What kept a volume from its end.
    pub settled: Result<(), Failure>,
}

/// A volume that was served.
pub struct ServedVolume {
    /// The export's name.
    pub name: String,
    /// The region.
    pub pmem: PathBuf,
    /// Its blocks.
    pub device: Arc<dyn BlockDevice>,
    /// Its layer that holds blocks back, if it has one.
    pub drain: Option<Arc<dyn Drain>>,
    /// The disk behind it, if it caches one.
    pub disk: Option<Arc<OnlineDisk>>,
}

impl ServedVolume {
    /// Why `error` keeps it from its end.
    fn not_settled(&self, error: &tidegate_media::Error) -> Failure {
        let (path, why) = (self.pmem.clone(), error.to_string());
        let layer = self.drain.as_ref().map(|layer| (layer.bytes_left(), layer.kept_in()));
        match layer {
            Some((bytes, cache)) if bytes > 0 => {
                WriteCacheFailure::NotDrained { path, cache: cache.to_owned(), bytes, why }.into()
            }
            _ => VolumeFailure::NotDurable { path, why }.into(),
        }
    }
}

impl Ending {
    /// Ends in good order; a second signal from `signals` ends at once.
    pub fn carry_out(self, signals: Signals) -> Result<Ended, Failure> {
        let ending = Arc::new(self);
        let abandoned = Arc::clone(&ending);
        signals.on_the_next(move || abandoned.abandon()).map_err(Failure::system("waiting for a second signal"))?;
        ending.systemd.stopping();
        ending.devices.end();
        let open = ending.connections.counts().open;
        tracing::info!("ending: {open} connections");
        let clients: Vec<u64> = ending.connections.exports().map(|export| export.counters().connections_open).collect();
        let unfinished = ending.connections.end(FINISHING_MAX);
        // One volume's failure leaves the others their end.
        let settled: Vec<_> = ending.volumes.iter().map(|volume| ending.settle(volume)).collect();
        let farewell = |((volume, clients_cut), settled): ((&ServedVolume, u64), &Result<(), Failure>)| Farewell {
            name: volume.name.clone(),
            file: volume.pmem.clone(),
            clients_cut,
            flushed: settled.is_ok(),
            quiet: unfinished == 0,
            disk: None,
        };
        let farewells = ending.volumes.iter().zip(clients).zip(&settled).map(farewell).collect();
        let settled = settled.into_iter().collect::<Result<(), _>>().and(ending.devices.well());
        Ok(Ended { farewells, unfinished, settled })
    }

    fn settle(&self, volume: &ServedVolume) -> Result<(), Failure> {
        let drained = match &volume.drain {
            Some(layer) => drain(&**layer, |line| self.tell_progress(line)),
            None => Ok(()),
        };
        let flushed = drained.and_then(|()| volume.device.flush());
        flushed.map_err(|error| volume.not_settled(&error))?;
        let closed = volume.drain.as_ref().map_or(Ok(()), |layer| layer.close());
        closed.map_err(Failure::system("removing what is kept for the next server"))
    }

    fn tell_progress(&self, line: &str) {
        self.systemd.status(line);
        (self.show_progress)(line);
    }

    /// Ends now, and tells what was left; a reader of stderr that does not read holds it up no
    /// longer than a moment.
    fn abandon(&self) {
        let left = self.left();
        let (told, ended) = mpsc::channel();
        let tell = self.tell;
        let telling = thread::Builder::new().spawn(move || {
            left.iter().for_each(|line| tell(&format!("ended by a second signal: {line}")));
            let _ = told.send(());
        });
        if telling.is_ok() {
            let _ = ended.recv_timeout(LAST_WORDS);
        }
        std::process::exit(self.interrupted);
    }

    /// What a server leaves that ends now: always at least one line.
    fn left(&self) -> Vec<String> {
        let open = self.connections.counts().open;
        let clients = format!("{open} connections, whose unanswered requests may or may not have been carried out");
        let undrained = |volume: &ServedVolume| {
            let bytes = volume.drain.as_ref().map_or(0, |layer| layer.bytes_left());
            let path = volume.pmem.display();
            // A change under way has the disk for itself, and nobody waits for that now.
            if let Some(DiskEnd { disk, dirty_bytes, .. }) = volume.disk.as_ref().and_then(|disk| disk.end_at_once()) {
                let (disk, bytes) = (disk.display(), Human(dirty_bytes));
                return format!(
                    "{path}: {bytes} ({dirty_bytes} bytes) are dirty, which the disk {disk} lacks; it was not flushed"
                );
            }
            match bytes {
                0 => format!("{path}: nothing was left to drain; it was not flushed"),
                _ => {
                    format!("{path}: {} ({bytes} bytes) were not drained; the next serve completes them", Human(bytes))
                }
            }
        };
        std::iter::once(clients).chain(self.volumes.iter().map(undrained)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sockets::access::Peers;
    use crate::sockets::connections::{Services, Terms};
    use std::io;
    use std::path::Path;
    use tidegate_block_export::Export;
    use tidegate_media::Result;
    use tidegate_nbd::{Encryption, Exports, Service};
    use tidegate_nbd_client::ram::Ram;

    /// Holds back this many bytes, for ever.
    struct Stuck(u64);

    impl Drain for Stuck {
        fn bytes_left(&self) -> u64 {
            self.0
        }

        fn finish(&self, _: &mut dyn FnMut(u64)) -> Result<()> {
            Ok(())
        }

        fn kept_in(&self) -> &Path {
            Path::new("/dev/shm/kept")
        }

        fn close(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_left_is_told_for_each_volume() {
        let device: Arc<dyn BlockDevice> = Arc::new(Ram::new(4096, 8));
        let exports = Exports::new(vec![Export::new("", "", Arc::clone(&device))]).expect("one export");
        let unix = Service::plain(exports);
        let tcp = unix.with(Encryption::Off);
        let volume = |pmem: &str, drain: Option<u64>| ServedVolume {
            name: pmem.to_owned(),
            disk: None,
            pmem: pmem.into(),
            device: Arc::clone(&device),
            drain: drain.map(|bytes| Arc::new(Stuck(bytes)) as Arc<dyn Drain>),
        };
        let ending = Ending {
            connections: Connections::new(Terms {
                services: Services { unix, tcp },
                peers: Peers::default(),
                connections_max: 1,
                busy_poll: true,
            }),
            devices: BlockDevices::default(),
            volumes: vec![volume("/a", None), volume("/b", Some(3 << 20)), volume("/c", Some(0))],
            systemd: SystemdNotify::from_environment(),
            show_progress: |_| {},
            tell: |_| {},
            interrupted: 6,
        };
        let left = ending.left();
        assert_eq!(left.len(), 4, "{left:?}");
        assert!(left[0].starts_with("0 connections"), "{left:?}");
        assert!(left[1].starts_with("/a: nothing was left") && left[3].starts_with("/c: nothing was left"), "{left:?}");
        assert!(left[2].starts_with("/b: 3 MiB (3145728 bytes) were not drained"), "{left:?}");
    }
}
