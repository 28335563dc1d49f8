//! Many writes under way at once, through io_uring.

use io_uring::{IoUring, opcode, types};
use rustix::fd::AsRawFd;
use std::fs::File;
use std::io;

/// Writes under way at once.
const DEPTH: u32 = 64;

/// Bytes of one write at most: what the system takes in one go, rounded to whole pages.
const WRITE_BYTES_MAX: usize = 0x7fff_f000;

/// A queue of requests to the kernel, and its answers.
pub(super) struct Ring {
    /// None: it failed once, and is not asked any more.
    queues: Option<IoUring>,
}

impl Ring {
    /// A ring, if the system has them and lets this process have one.
    pub(super) fn new() -> io::Result<Ring> {
        Ok(Ring { queues: Some(IoUring::new(DEPTH)?) })
    }

    /// Writes each of `pieces` at its offset in `file`. How many bytes of each have been written
    /// when this returns, from its start on; fewer than all of them: the kernel refused the rest or
    /// did not get to it. Nothing is under way any more then.
    pub(super) fn write_all(&mut self, file: &File, pieces: &[(u64, &[u8])]) -> Vec<usize> {
        let mut written = vec![0; pieces.len()];
        let Some(queues) = &mut self.queues else { return written };
        let writes = Writes { queues, file, pieces, written: &mut written, next: 0, under_way: 0 };
        if !writes.carry_out() {
            // What it still holds in its queue must never be begun: the bytes are not ours to read
            // any more.
            self.queues = None;
        }
        written
    }
}

/// The writes of one call.
struct Writes<'a> {
    queues: &'a mut IoUring,
    file: &'a File,
    pieces: &'a [(u64, &'a [u8])],
    written: &'a mut [usize],
    /// The piece that is to be queued next.
    next: usize,
    /// Pieces that the kernel has and has not answered.
    under_way: usize,
}

impl Writes<'_> {
    /// Whether the ring can be used again. When this returns the kernel has no piece any more.
    fn carry_out(mut self) -> bool {
        let mut queued = 0;
        while self.next < self.pieces.len() || queued > 0 || self.under_way > 0 {
            while self.next < self.pieces.len() && queued + self.under_way < DEPTH as usize && self.queue_next() {
                queued += 1;
            }
            match self.queues.submit_and_wait(1) {
                Ok(begun) => {
                    queued = queued.saturating_sub(begun);
                    self.under_way += begun;
                }
                // Interrupted, or too much at once: nothing was begun by this call.
                Err(error) if is_passing(&error) => {}
                Err(_) => {
                    self.wait_for_the_rest();
                    return false;
                }
            }
            self.take_answers();
        }
        true
    }

    /// Puts the next piece into the queue; false: the queue is full.
    fn queue_next(&mut self) -> bool {
        let (at, data) = self.pieces[self.next];
        let len = u32::try_from(data.len().min(WRITE_BYTES_MAX)).expect("less than 2 GiB");
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = opcode::Write::new(fd, data.as_ptr(), len).offset(at).build().user_data(self.next as u64);
        // SAFETY: the kernel reads `len` bytes from `data`, which the caller of `write_all` lends
        // for that call. `carry_out` does not return, and nothing in it panics, before every entry
        // that was begun is answered; entries that were not begun by then are thrown away with the
        // ring before the loan ends. The file is open as long as the borrow of it.
        let queued = unsafe { self.queues.submission().push(&entry) }.is_ok();
        self.next += usize::from(queued);
        queued
    }

    fn take_answers(&mut self) {
        for answer in self.queues.completion() {
            self.under_way = self.under_way.saturating_sub(1);
            let piece = usize::try_from(answer.user_data()).ok().and_then(|piece| self.written.get_mut(piece));
            // A refusal is a negative number: nothing was written.
            let bytes = usize::try_from(answer.result()).unwrap_or(0);
            piece.into_iter().for_each(|written| *written = bytes);
        }
    }

    /// Waits without the ring's own way to wait, which failed, until the kernel has answered all
    /// that was begun.
    fn wait_for_the_rest(&mut self) {
        while self.under_way > 0 {
            self.take_answers();
            std::thread::yield_now();
        }
    }
}

/// Whether the same call may work a moment later.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}
