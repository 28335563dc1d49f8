//! Reads of a leased file: what the process has in DRAM, what was written by the lease lately,
//! where blocks lie in the pool, and requests for the rest.

use super::{Attempted, DirectFile, EndedBy, Leased, forget_kept};
use crate::os::Os;
use crate::read_cache::{Owner, PAGE_BYTES, Placed, ReadCache, pieces};
use std::ops::Range;
use tidegate_file_cache::Copied;
use tidegate_file_wire::{Answer, LOCATED_BYTES_MAX, LOCATES, READ_BYTES_MAX, Read};
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

/// What is done before a page is looked for in the pool once more.
#[derive(Clone, Copy)]
enum Next {
    Look,
    Locate,
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
        if known.is_none() && leased.file.read_written(at, out) == Ok(true) {
            return Some(out.len());
        }
        let cache = known.or_else(|| may_keep.then(cache)?);
        let (bytes, is_kept) = leased.read_pages(&mut self.os, (cache, size), (at, out), message).ok()?;
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
    /// Reads bytes, as far as the file has them, out of the pages that are kept, from the pool, and
    /// by requests, and keeps the pages of these. How many there are, and whether it took no
    /// request.
    fn read_pages<O: Os>(
        &mut self,
        os: &mut O,
        (cache, size): (Option<ReadCache<'static>>, u64),
        (at, out): (u64, &mut [u8]),
        message: &mut Read,
    ) -> Result<(usize, bool), NotRead> {
        let left = size.saturating_sub(at);
        let bytes = usize::try_from(left).map_or(out.len(), |left| out.len().min(left));
        let owner = self.pages.map_or_else(Owner::new, |(owner, _)| owner);
        let (mut done, mut is_first_miss, requests) = (0, true, self.requests);
        while let Some((number, from, piece)) = pieces(at + done as u64, bytes - done).next() {
            let piece = &mut out[done..done + piece.len()];
            let is_kept = cache.is_some_and(|cache| cache.get(owner, number, from, piece));
            if is_kept || self.read_in_pool(os, at + done as u64, piece, message) {
                done += piece.len();
                continue;
            }
            if std::mem::take(&mut is_first_miss) && self.file.read_written(at, &mut out[..bytes]) == Ok(true) {
                return Ok((bytes, false));
            }
            let rest = &mut out[done..bytes];
            let read = match cache {
                Some(cache) => self.ask_to_keep(os, (owner, cache), (at + done as u64, rest), message)?,
                None => self.ask_for_bytes(os, (at + done as u64, rest), message)?,
            };
            done += read;
            if read == 0 {
                break;
            }
        }
        // The pages say nothing if others may have changed the file since.
        let is_kept = self.requests == requests && done > 0;
        if self.file.is_revoked().unwrap_or(true) { Err(NotRead) } else { Ok((done, is_kept)) }
    }

    /// Reads bytes of one page from the pool: what somebody has just written, or where the service
    /// says that they lie. False: they do not lie there in one block.
    fn read_in_pool<O: Os>(&mut self, os: &mut O, at: u64, out: &mut [u8], message: &mut Read) -> bool {
        for next in [Next::Look, Next::Locate, Next::Look, Next::Look] {
            let is_read =
                self.file.read_written(at, out) == Ok(true) || self.file.read_located(at, out) == Ok(Copied::All);
            if is_read {
                return true;
            }
            let may_be_known = match next {
                Next::Look => self.look_again(),
                Next::Locate => self.locate(os, &(at..at + out.len() as u64), message),
            };
            if !may_be_known {
                return false;
            }
        }
        false
    }

    /// Looks at what others have written meanwhile.
    fn look_again(&mut self) -> bool {
        let Leased { file, pages, .. } = self;
        file.look(&mut |others| forget_kept(pages, others)).is_ok()
    }

    /// Asks where blocks lie in the pool, those of these bytes and others. Whether these do.
    fn locate<O: Os>(&mut self, os: &mut O, bytes: &Range<u64>, message: &mut Read) -> bool {
        if !self.locates.is_due() || !self.reads_worth.may_ask() {
            return false;
        }
        let (from, len) = (bytes.start / LOCATED_BYTES_MAX * LOCATED_BYTES_MAX, LOCATED_BYTES_MAX);
        message.how = LOCATES.into();
        if self.request(os, (from, len), message) {
            message.told().for_each(|(at, pool_at, bytes)| self.file.locate(at, pool_at, bytes));
        }
        let is_there = self.file.is_located(bytes);
        if is_there {
            self.reads_worth.was_investment();
        }
        self.locates.was_answered(if is_there { Answer::Granted } else { Answer::Later });
        is_there
    }

    /// Asks for the page that has the first of these bytes, keeps it, and says how many it has.
    fn ask_to_keep<O: Os>(
        &mut self,
        os: &mut O,
        (owner, cache): (Owner, ReadCache<'static>),
        (at, out): (u64, &mut [u8]),
        message: &mut Read,
    ) -> Result<usize, NotRead> {
        let Some((number, from, piece)) = pieces(at, out.len()).next() else { return Ok(0) };
        let page = self.ask_for_page(os, number, message)?;
        out[piece.clone()].copy_from_slice(&page[from..from + piece.len()]);
        let placed = cache.keep(owner, number, page);
        if placed == Placed::InFreePlace {
            self.reads_worth.was_investment();
        }
        if placed != Placed::Nowhere {
            self.pages = Some((owner, cache));
        }
        Ok(piece.len())
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

    /// Asks for as many of these bytes as a message has room for. How many there are.
    fn ask_for_bytes<O: Os>(
        &mut self,
        os: &mut O,
        (at, out): (u64, &mut [u8]),
        message: &mut Read,
    ) -> Result<usize, NotRead> {
        let asked = out.len().min(READ_BYTES_MAX);
        let bytes = self.ask(os, at, asked, message)?;
        out[..bytes].copy_from_slice(&message.data[..bytes]);
        Ok(bytes)
    }

    /// Has at most [`READ_BYTES_MAX`] bytes read into `message`, if that is worth it; how many
    /// there are, fewer at the end of the file only.
    fn ask<O: Os>(&mut self, os: &mut O, at: u64, len: usize, message: &mut Read) -> Result<usize, NotRead> {
        if !self.reads_worth.may_ask() {
            return Err(NotRead);
        }
        message.how = 0.into();
        let has_answered = self.request(os, (at, len as u64), message);
        usize::try_from(message.len.get()).ok().filter(|bytes| has_answered && *bytes <= len).ok_or(NotRead)
    }

    /// Sends a message about these bytes. Whether it was answered as asked.
    fn request<O: Os>(&mut self, os: &mut O, (at, len): (u64, u64), message: &mut Read) -> bool {
        let Ok(len) = u32::try_from(len) else { return false };
        self.requests += 1;
        (message.lease, message.at, message.len) = (self.number.into(), at.into(), len.into());
        (message.answer, message.runs) = (0.into(), 0.into());
        os.read(message) && Answer::of(message.answer.get()) == Answer::Granted
    }
}
