//! Requests of the kernel, checked and carried out on an export.

use crate::driver::{Descriptor, SECTOR_BYTES, operation};
use crate::parameters::{DISCARD_BYTES_MAX, ZEROES_BYTES_MAX, device_bytes, durability};
use rustix::io::Errno;
use std::time::Instant;
use tidegate_block_export::{ConnectionCounters, Export, RequestKind, Scratch, Zeroing};
use tidegate_media::{Durability, Error};

/// Bytes that are moved in no time.
const SHORT_BYTES_MAX: u64 = 256 << 10;

/// A request as it may be carried out: its range lies in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    kind: RequestKind,
    offset: u64,
    bytes: u64,
    durability: Durability,
    zeroing: Zeroing,
}

impl Checked {
    /// Bytes of the device that it is about.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What carries out the requests of one queue.
pub(crate) struct RequestExecutor<'e> {
    export: &'e Export,
    tally: &'e ConnectionCounters<'e>,
    durability: Durability,
    device_bytes: u64,
    scratch: Scratch,
    /// When the last request ended, or the next one was found.
    now: Instant,
}

impl<'e> RequestExecutor<'e> {
    /// For a queue of the device of `export`.
    pub(crate) fn new(export: &'e Export, tally: &'e ConnectionCounters<'e>) -> RequestExecutor<'e> {
        RequestExecutor {
            export,
            tally,
            durability: durability(export),
            device_bytes: device_bytes(export),
            scratch: Scratch::default(),
            now: Instant::now(),
        }
    }

    /// There is a request, after a wait.
    pub(crate) fn wake(&mut self) {
        self.now = Instant::now();
    }

    /// When the clock was read last: at the end of a request, or after a wait.
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// The request that `descriptor` describes, with room for `room` bytes of data, if it makes
    /// sense.
    pub(crate) fn check(&self, descriptor: &Descriptor, room: usize) -> Result<Checked, Errno> {
        let (kind, bytes_max) = match descriptor.operation.get() & operation::MASK {
            operation::READ => (RequestKind::Read, room as u64),
            operation::WRITE => (RequestKind::Write, room as u64),
            operation::FLUSH => (RequestKind::Flush, u64::MAX),
            operation::DISCARD => (RequestKind::Trim, DISCARD_BYTES_MAX),
            operation::WRITE_ZEROES => (RequestKind::WriteZeroes, ZEROES_BYTES_MAX),
            _ => return Err(Errno::OPNOTSUPP),
        };
        let is_set = |flag: u32| descriptor.operation.get() & flag != 0;
        let durability = if is_set(operation::FUA) { Durability::Fua } else { self.durability };
        let zeroing = if is_set(operation::NO_UNMAP) { Zeroing::AsData } else { Zeroing::AnyWay };
        if kind == RequestKind::Flush {
            return Ok(Checked { kind, offset: 0, bytes: 0, durability, zeroing });
        }
        let bytes = u64::from(descriptor.sectors.get()) * SECTOR_BYTES;
        let offset = descriptor.first_sector.get().checked_mul(SECTOR_BYTES).ok_or(Errno::INVAL)?;
        let end = offset.checked_add(bytes).ok_or(Errno::INVAL)?;
        if bytes == 0 || bytes > bytes_max || end > self.device_bytes {
            return Err(Errno::INVAL);
        }
        Ok(Checked { kind, offset, bytes, durability, zeroing })
    }

    /// Whether a request may take so long that answers before it should not wait for its own.
    pub(crate) fn may_last(&self, request: &Checked) -> bool {
        match request.kind {
            RequestKind::Read | RequestKind::Write => request.bytes > SHORT_BYTES_MAX,
            _ => true,
        }
    }

    /// Carries out a request with its data, or into the room for them. Its result for the driver:
    /// bytes, or an error's number below zero.
    pub(crate) fn carry_out(&mut self, request: &Checked, data: &mut [u8]) -> i32 {
        let outcome = self.execute(request, data);
        let now = Instant::now();
        let took = now - self.now;
        if request.kind == RequestKind::Flush {
            self.export.flush_latency().learn_flush(took);
        }
        self.tally.answered(request.kind, outcome.is_ok().then_some(request.bytes), took);
        self.now = now;
        match outcome {
            Ok(()) if matches!(request.kind, RequestKind::Read | RequestKind::Write) => {
                i32::try_from(request.bytes).unwrap_or(i32::MAX)
            }
            Ok(()) => 0,
            Err(errno) => -errno.raw_os_error(),
        }
    }

    /// Counts a request that makes no sense.
    pub(crate) fn reject(&mut self) {
        let now = Instant::now();
        self.tally.answered(RequestKind::Unknown, None, now - self.now);
        self.now = now;
    }

    fn execute(&mut self, request: &Checked, data: &mut [u8]) -> Result<(), Errno> {
        let Checked { kind, offset, bytes, durability, zeroing } = *request;
        let (export, scratch) = (self.export, &mut self.scratch);
        if !matches!(kind, RequestKind::Read | RequestKind::Flush) && export.refuses_changes() {
            return Err(Errno::PERM);
        }
        let data = usize::try_from(bytes).ok().and_then(|bytes| data.get_mut(..bytes));
        let done = match (kind, data) {
            (RequestKind::Read, Some(room)) => export.read(offset, room, scratch),
            (RequestKind::Write, Some(data)) => export.write(offset, data, durability, scratch),
            (RequestKind::Flush, _) => export.flush(),
            (RequestKind::Trim, _) => export.trim(offset, bytes, durability),
            (RequestKind::WriteZeroes, _) => export.write_zeroes(offset, bytes, (zeroing, durability), scratch),
            _ => return Err(Errno::INVAL),
        };
        done.map_err(|error| errno(&error))
    }
}

/// What the kernel is told of a failure.
fn errno(error: &Error) -> Errno {
    if error.is_for_want_of_room() { Errno::NOSPC } else { Errno::IO }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tidegate_media::{BlockDevice, Lba, NoRoom, Poison, Result};
    use tidegate_nbd_client::ram::Ram;
    use tidegate_sim::{Intercept, Intercepted};

    const BLOCKS: u64 = 64;
    const ROOM: usize = 64 << 10;

    /// Counts flushes and writes that had to be durable, and fails where it is told to.
    #[derive(Default)]
    struct Watched {
        flushes: AtomicU64,
        durable: AtomicU64,
    }

    impl Intercept for Watched {
        fn read<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, out: &mut [u8]) -> Result<()> {
            if at.0 == 9 { Err(Poison { at: 0, len: 1 }.into()) } else { device.read(at, out) }
        }

        fn write<D: BlockDevice + ?Sized>(
            &self,
            device: &D,
            at: Lba,
            data: &[u8],
            durability: Durability,
        ) -> Result<()> {
            self.durable.fetch_add(u64::from(durability == Durability::Fua), Ordering::Relaxed);
            if at.0 == 9 { Err(NoRoom { at: 0, len: 1 }.into()) } else { device.write(at, data, durability) }
        }

        fn flush<D: BlockDevice + ?Sized>(&self, device: &D) -> Result<()> {
            self.flushes.fetch_add(1, Ordering::Relaxed);
            device.flush()
        }
    }

    fn watched() -> (Export, Arc<Intercepted<Ram, Watched>>) {
        let device = Arc::new(Intercepted { device: Arc::new(Ram::new(4096, BLOCKS)), by: Watched::default() });
        (Export::new("v", "", Arc::clone(&device) as Arc<dyn BlockDevice>), device)
    }

    fn descriptor(operation: u32, first_sector: u64, sectors: u32) -> Descriptor {
        Descriptor {
            operation: operation.into(),
            sectors: sectors.into(),
            first_sector: first_sector.into(),
            data_at: 0.into(),
        }
    }

    /// Has an executor answer requests one after the other, with the same room for data.
    fn answers(export: &Export, data: &mut [u8], asked: &[Descriptor]) -> Vec<i32> {
        let tally = export.count_connection();
        let mut executor = RequestExecutor::new(export, &tally);
        let answer = |descriptor: &Descriptor| match executor.check(descriptor, data.len()) {
            Ok(request) => executor.carry_out(&request, data),
            Err(errno) => {
                executor.reject();
                -errno.raw_os_error()
            }
        };
        asked.iter().map(answer).collect()
    }

    #[test]
    fn what_was_written_is_read_and_both_answers_tell_the_bytes() {
        let (export, _) = watched();
        let written: Vec<u8> = (0..=255).cycle().take(ROOM).collect();
        let mut data = written.clone();
        assert_eq!(answers(&export, &mut data, &[descriptor(operation::WRITE, 8, 128)]), [65536]);
        let mut out = vec![0; ROOM];
        assert_eq!(answers(&export, &mut out, &[descriptor(operation::READ, 16, 8)]), [4096]);
        assert_eq!(out[..4096], written[4096..8192]);
        assert_eq!(out[..2], [0, 1]);
        assert!(out[4096..].iter().all(|byte| *byte == 0), "no more than was asked for");
        assert_eq!(export.counters().of(RequestKind::Write).bytes, 65536);
    }

    #[test]
    fn fua_and_flush_reach_the_volume_and_other_writes_wait_for_them() {
        let (export, device) = watched();
        let mut data = vec![1; ROOM];
        let asked = [
            descriptor(operation::WRITE, 0, 8),
            descriptor(operation::WRITE | operation::FUA, 8, 8),
            descriptor(operation::FLUSH, 0, 0),
        ];
        assert_eq!(answers(&export, &mut data, &asked), [4096, 4096, 0]);
        assert_eq!((device.by.durable.load(Ordering::Relaxed), device.by.flushes.load(Ordering::Relaxed)), (1, 1));
    }

    #[test]
    fn discards_and_zeroes_are_carried_out_without_data() {
        let (export, _) = watched();
        let mut data = vec![7; 4096];
        let zero = operation::WRITE_ZEROES | operation::NO_UNMAP;
        let asked = [
            descriptor(operation::WRITE, 0, 8),
            descriptor(zero, 0, 512),
            descriptor(operation::DISCARD, 0, 512),
            descriptor(operation::READ, 0, 8),
        ];
        assert_eq!(answers(&export, &mut data, &asked), [4096, 0, 0, 4096]);
        assert!(data.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn requests_that_make_no_sense_fail_alone() {
        let (export, _) = watched();
        let (invalid, unknown) = (-Errno::INVAL.raw_os_error(), -Errno::OPNOTSUPP.raw_os_error());
        let end = BLOCKS * 8;
        let asked = [
            descriptor(operation::READ, end, 8),
            descriptor(operation::READ, end - 8, 16),
            descriptor(operation::READ, u64::MAX / 512, 8),
            descriptor(operation::WRITE, u64::MAX, u32::MAX),
            descriptor(operation::WRITE, 0, 0),
            descriptor(operation::WRITE, 0, 16),
            descriptor(operation::DISCARD, 0, u32::MAX),
            descriptor(operation::WRITE_ZEROES, end, 8),
            descriptor(4, 0, 8),
            descriptor(operation::MASK, 0, 8),
            descriptor(operation::READ, 0, 8),
        ];
        let told = answers(&export, &mut vec![0; 4096], &asked);
        assert_eq!(told[..8], [invalid; 8]);
        assert_eq!(told[8..], [unknown, unknown, 4096]);
        assert_eq!(export.counters().of(RequestKind::Unknown).errors, 10);
    }

    #[test]
    fn failures_of_the_volume_have_their_numbers() {
        let (export, _) = watched();
        let asked = [descriptor(operation::READ, 72, 8), descriptor(operation::WRITE, 72, 8)];
        let told = answers(&export, &mut vec![0; 4096], &asked);
        assert_eq!(told, [-Errno::IO.raw_os_error(), -Errno::NOSPC.raw_os_error()]);
    }

    #[test]
    fn only_what_is_short_may_keep_answers_waiting() {
        let (export, _) = watched();
        let tally = export.count_connection();
        let executor = RequestExecutor::new(&export, &tally);
        let lasts = |asked| executor.may_last(&executor.check(&asked, 1 << 20).expect("it makes sense"));
        assert!(!lasts(descriptor(operation::WRITE, 0, 8)) && !lasts(descriptor(operation::READ, 0, 8)));
        assert!(lasts(descriptor(operation::FLUSH, 0, 0)) && lasts(descriptor(operation::DISCARD, 0, 8)));
    }
}
