//! A flush before which no later write is served, as the published write caches have it.
//!
//! PMBD's own source (`pmbd_write_barrier`) stops the writes that come in by a lock, and then
//! flushes all of its buffers. Caiti § 4.4: Caiti flushes what waits, waits for the device, and
//! "then continues to serve subsequent bio requests". Caiti § 3 says so of all staging caches:
//! flushes of the file system's journal, which no program waits for, "occur on the critical path of
//! serving I/O requests", and Fig. 6a has them in the time of a `pwrite`.
//!
//! Left open and chosen: reads go on, as in PMBD's source. A write that is under way when a flush
//! begins goes on too; PMBD's flush waits for it first.

use std::sync::Arc;
use tidegate_media::sync::{AtomicU32, Mutex, Ordering};
use tidegate_media::{BlockDevice, Durability, Lba, Result};
use tidegate_sim::{Intercept, Intercepted};

/// What a write that meets a flush is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushWait {
    /// It begins to wait.
    Begins,
    /// It goes on.
    Ends,
}

/// Who is told of every write that waits for a flush, on the writer's thread.
pub type FlushWaitListener = Arc<dyn Fn(FlushWait) + Send + Sync>;

/// Holds up the writes of a device while it is flushed.
#[derive(Default)]
pub struct FlushBarrier {
    /// Flushes that wait or are under way.
    flushes: AtomicU32,
    /// Locked by the flush that is under way.
    gate: Mutex<()>,
    told: Option<FlushWaitListener>,
}

impl FlushBarrier {
    /// `device` behind a barrier, which tells `told` of writes that wait.
    pub fn before(device: Arc<dyn BlockDevice>, told: Option<FlushWaitListener>) -> Arc<dyn BlockDevice> {
        Arc::new(Intercepted { device, by: FlushBarrier { told, ..FlushBarrier::default() } })
    }

    /// Waits for the flushes that are under way.
    fn pass(&self) {
        // Relaxed: whether a flush began a moment ago is nobody's promise; the gate orders the
        // rest.
        while self.flushes.load(Ordering::Relaxed) > 0 {
            let tell = |held| self.told.iter().for_each(|told| told(held));
            tell(FlushWait::Begins);
            drop(self.gate.lock());
            tell(FlushWait::Ends);
        }
    }
}

impl Intercept for FlushBarrier {
    fn write<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.pass();
        device.write(at, data, durability)
    }

    fn flush<D: BlockDevice + ?Sized>(&self, device: &D) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        let under_way = self.gate.lock();
        let flushed = device.flush();
        // Before the gate opens: who waits at it looks again.
        self.flushes.fetch_sub(1, Ordering::Relaxed);
        drop(under_way);
        flushed
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use tidegate_nbd_client::ram::Ram;

    /// A disk whose flush says that it began, and then waits for a word.
    struct Slow {
        ram: Ram,
        begun: Mutex<Sender<()>>,
        goes_on: Mutex<Receiver<()>>,
    }

    impl BlockDevice for Slow {
        tidegate_media::forward!(self => self.ram; geometry, read, write, discard, write_zeroes, extent);

        fn flush(&self) -> Result<()> {
            self.begun.lock().send(()).unwrap();
            self.goes_on.lock().recv().unwrap();
            self.ram.flush()
        }
    }

    #[test]
    fn a_write_waits_for_the_flush_that_came_before_it_and_a_read_does_not() {
        let ((begins, begun), (go, goes_on)) = (channel(), channel());
        let (told, tells) = channel();
        let slow = Slow { ram: Ram::new(4096, 4), begun: Mutex::new(begins), goes_on: Mutex::new(goes_on) };
        let told = Mutex::new(told);
        let listener: FlushWaitListener = Arc::new(move |held| told.lock().send(held).unwrap());
        let device = FlushBarrier::before(Arc::new(slow), Some(listener));
        device.write(Lba(1), &[1; 4096], Durability::Volatile).unwrap();
        thread::scope(|threads| {
            threads.spawn(|| device.flush().unwrap());
            begun.recv().unwrap();
            let writer = threads.spawn(|| device.write(Lba(1), &[2; 4096], Durability::Volatile).unwrap());
            assert_eq!(tells.recv().unwrap(), FlushWait::Begins);
            let mut seen = [0; 4096];
            device.read(Lba(1), &mut seen).unwrap();
            assert_eq!(seen[0], 1);
            go.send(()).unwrap();
            writer.join().unwrap();
            device.read(Lba(1), &mut seen).unwrap();
            assert_eq!((tells.recv().unwrap(), seen[0]), (FlushWait::Ends, 2));
        });
        assert!(tells.try_recv().is_err(), "a write before the flush waited for nothing");
    }
}
