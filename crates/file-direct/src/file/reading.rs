//! Reads of a leased file: what was written by the lease a moment ago, what the process has in
//! DRAM, and requests for the rest.

use super::{Attempted, DirectFile, EndedBy, Leased};
use crate::os::Os;
use crate::read_cache::{Owner, PAGE_BYTES, Placed, ReadCache, pieces};
use tidegate_file_wire::{Answer, READ_BYTES_MAX, Read};
use tidegate_media::ExchangeWords;

/// So many requests for reading are allowed to a lease that was just granted.
const READS_FIRST: u32 = 256;
/// So many more are, for each write and each sync.
const READS_WORTH: u32 = 2;
/// No more than these: what was written long ago is no reason to read so. Some programs write a
/// thousand pages at a time, and read what they are in for some seconds.
const READS_MAX: u32 = 4096;
/// A longer read is made up of requests alone: it is one of many pages that come one after the
/// other, and each of them once.
const KEPT_READ_BYTES_MAX: usize = 64 << 10;
const _: () = assert!(READ_BYTES_MAX.is_multiple_of(PAGE_BYTES));

/// Requests for reading that a lease is worth. Without the lease, the kernel's page cache would
/// answer most of them, and each write and sync would be a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadsWorth(u32);

impl Default for ReadsWorth {
    fn default() -> ReadsWorth {
        ReadsWorth(READS_FIRST)
    }
}

impl ReadsWorth {
    /// The lease saved a request.
    pub(super) fn was_useful(&mut self) {
        self.0 = READS_MAX.min(self.0 + READS_WORTH);
    }

    /// Whether one more request for reading is worth it, which counts.
    fn may_ask(&mut self) -> bool {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }

    /// So many pages that were kept are not any more: the requests that they took count after all.
    pub(super) fn has_lost(&mut self, pages: u32) {
        self.0 = self.0.saturating_sub(pages);
    }

    /// The last request need not be made again: it does not count.
    fn was_investment(&mut self) {
        self.0 += 1;
    }
}

/// What a read may need beside the place for its bytes.
pub struct ReadAids<'a> {
    /// Room for what is said about it.
    pub message: &'a mut Read,
    /// Tells the DRAM in which this process keeps pages that it read, the same for all its files;
    /// `None`: it keeps none. It is asked once a read is about to take requests.
    pub cache: fn() -> Option<ReadCache<'static>>,
}

/// Why a read is not done by the lease.
struct NotRead;

impl<O: Os> DirectFile<O> {
    /// Reads bytes at offset `at`.
    pub fn read(&mut self, at: u64, out: &mut [u8], aids: ReadAids<'_>) -> Attempted {
        let ReadAids { message, cache } = aids;
        // Once more if the lease had ended: others may have a new one.
        for _ in 0..2 {
            if self.lease.is_none() && !self.join(0, 0) {
                break;
            }
            let Some(size) = self.look() else { continue };
            if let Some(bytes) = self.read_leased((at, size), out, (message, cache)) {
                return Attempted::Done(bytes as u64);
            }
            self.end(EndedBy::Others);
        }
        Attempted::ByDescriptor
    }

    /// Reads bytes of a file of `size` bytes by the lease.
    fn read_leased(
        &mut self,
        (at, size): (u64, u64),
        out: &mut [u8],
        (message, cache): (&mut Read, fn() -> Option<ReadCache<'static>>),
    ) -> Option<usize> {
        let leased = self.lease.as_mut()?;
        let may_keep = out.len() <= KEPT_READ_BYTES_MAX;
        let known = leased.pages.map(|(_, cache)| cache).filter(|_| may_keep);
        let read = if known.is_none() && leased.file.read_written(at, out) == Ok(true) {
            Ok((out.len(), false))
        } else if let Some(cache) = known.or_else(|| may_keep.then(cache)?) {
            leased.read_kept(&mut self.os, (cache, size), (at, out), message)
        } else {
            leased.read_by_requests(&mut self.os, (at, out), message).map(|bytes| (bytes, false))
        };
        let (bytes, is_kept) = read.ok()?;
        self.kept_reads += u64::from(is_kept);
        Some(bytes)
    }

    /// Reads that took no request, as pages were kept, since it was asked last; fewer than
    /// `least` are not told yet.
    pub fn take_kept_reads(&mut self, least: u64) -> Option<u64> {
        (self.kept_reads >= least.max(1)).then(|| std::mem::take(&mut self.kept_reads))
    }
}

impl<M: ExchangeWords> Leased<M> {
    /// Reads bytes, as far as the file has them, out of the pages that are kept, and keeps those
    /// that are not there yet. How many there are, and whether all were kept.
    fn read_kept<O: Os>(
        &mut self,
        os: &mut O,
        (cache, size): (ReadCache<'static>, u64),
        (at, out): (u64, &mut [u8]),
        message: &mut Read,
    ) -> Result<(usize, bool), NotRead> {
        let left = size.saturating_sub(at);
        let bytes = usize::try_from(left).map_or(out.len(), |left| out.len().min(left));
        let owner = self.pages.map_or_else(Owner::new, |(owner, _)| owner);
        let mut missing = 0;
        for (number, from, piece) in pieces(at, bytes) {
            if !cache.get(owner, number, from, &mut out[piece.clone()]) {
                if missing == 0 && self.file.read_written(at, &mut out[..bytes]) == Ok(true) {
                    return Ok((bytes, false));
                }
                missing += 1;
                let page = self.ask_for_page(os, number, message)?;
                out[piece.clone()].copy_from_slice(&page[from..from + piece.len()]);
                let placed = cache.keep(owner, number, page);
                if placed == Placed::InFreePlace {
                    self.reads_worth.was_investment();
                }
                if placed != Placed::Nowhere {
                    self.pages = Some((owner, cache));
                }
            }
        }
        // The pages say nothing if others may have changed the file since.
        if self.file.is_revoked().unwrap_or(true) { Err(NotRead) } else { Ok((bytes, missing == 0 && bytes > 0)) }
    }

    /// Asks for a page, which has zeroes behind the end of the file.
    fn ask_for_page<'r, O: Os>(
        &mut self,
        os: &mut O,
        number: u64,
        message: &'r mut Read,
    ) -> Result<&'r [u8; PAGE_BYTES], NotRead> {
        let bytes = self.ask(os, number * PAGE_BYTES as u64, PAGE_BYTES, message)?;
        let (page, _) = message.data.split_first_chunk_mut::<PAGE_BYTES>().expect("a message has room for a page");
        page[bytes..].fill(0);
        Ok(page)
    }

    /// Reads bytes by as many requests as it takes.
    fn read_by_requests<O: Os>(
        &mut self,
        os: &mut O,
        (at, out): (u64, &mut [u8]),
        message: &mut Read,
    ) -> Result<usize, NotRead> {
        let mut read = 0;
        for piece in out.chunks_mut(READ_BYTES_MAX) {
            let bytes = self.ask(os, at.checked_add(read as u64).ok_or(NotRead)?, piece.len(), message)?;
            piece[..bytes].copy_from_slice(&message.data[..bytes]);
            read += bytes;
            if bytes < piece.len() {
                break;
            }
        }
        Ok(read)
    }

    /// Has at most [`READ_BYTES_MAX`] bytes read into `message`, if that is worth it; how many
    /// there are, fewer at the end of the file only.
    fn ask<O: Os>(&mut self, os: &mut O, at: u64, len: usize, message: &mut Read) -> Result<usize, NotRead> {
        if !self.reads_worth.may_ask() {
            return Err(NotRead);
        }
        let asked = u32::try_from(len).map_err(|_| NotRead)?;
        (message.lease, message.at, message.len, message.answer) =
            (self.number.into(), at.into(), asked.into(), 0.into());
        let has_answered = os.read(message) && Answer::of(message.answer.get()) == Answer::Granted;
        usize::try_from(message.len.get()).ok().filter(|bytes| has_answered && *bytes <= len).ok_or(NotRead)
    }
}
