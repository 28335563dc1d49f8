//! Read repair: lines that side 0 does not give come from side 1, and are stored to side 0 anew.
//!
//! Other threads may store meanwhile. Every store reaches side 1 first. So a repair that stored
//! what it read there, and then finds the same there, was either early enough for the store to side
//! 0 to cover it, or has the newer bytes. If it finds others, it begins again.
//!
//! Streams become visible late and in any order. A line that was streamed and not fenced while it
//! was repaired could keep old bytes on side 0. So each fence compares all lines repaired since the
//! opening, after a repair under way: the fence that a write waits for finds its line equal, and no
//! redo that would take the write back. Beyond [`REPAIRED_LINES_MAX`]
//! lines the memory is failing, and its side is given up.

use crate::copy::{lines, read_line};
use crate::mirror::{Liveness, Mirror};
use crate::redo::Redo;
use crate::repairs::REPAIRED_LINES_MAX;
use tidegate_media::sync::{Ordering, fence};
use tidegate_media::{LINE_BYTES, Poison, Region, Sealed};

impl<R: Region> Mirror<R> {
    /// Reads what side 0 did not give as a whole, line by line from the side that gives it, and
    /// repairs lines that only side 1 gives. Fails if no side gives one of them.
    #[cold]
    pub(crate) fn read_from_both(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        let poison = Poison { at, len: out.len() as u64 };
        if self.liveness() != Liveness::Both {
            return self.read_survivor(poison, out);
        }
        let mut repaired = self.repairs.lines.lock();
        let mut answer = Ok(());
        let mut rest = out;
        for (at, bytes) in lines(at, rest.len() as u64) {
            let (piece, others) = rest.split_at_mut(bytes);
            rest = others;
            if self.side(0).read(at, piece).is_ok() {
                continue;
            }
            self.side(1).read(at, piece).map_err(|_| poison)?;
            let line = at / LINE_BYTES * LINE_BYTES;
            answer = answer.and_then(|()| self.repair(line, &mut repaired));
        }
        drop(repaired);
        if let Err(sealed) = answer {
            // Whether a side is left is told by the next fence.
            let _ = self.give_up([Err(sealed), Ok(())]);
        }
        Ok(())
    }

    /// Reads from the side that is left: it may be side 1 since the read began.
    fn read_survivor(&self, poison: Poison, out: &mut [u8]) -> Result<(), Poison> {
        match self.liveness() {
            Liveness::Second => self.side(1).read(poison.at, out),
            Liveness::First | Liveness::Both => Err(poison),
        }
    }

    /// Compares the lines repaired so far, and repairs those that differ.
    #[inline]
    pub(crate) fn compare_repaired(&self) -> Result<(), Sealed> {
        if self.repairs.count() == 0 { Ok(()) } else { self.compare_lines() }
    }

    #[cold]
    fn compare_lines(&self) -> Result<(), Sealed> {
        let mut repaired = self.repairs.lines.lock();
        for line in repaired.clone() {
            let bytes = self.bytes_of_line(line);
            let Ok(right) = read_line(self.side(1), line, bytes) else { continue };
            if !read_line(self.side(0), line, bytes).is_ok_and(|found| found == right)
                && let Err(sealed) = self.repair(line, &mut repaired)
            {
                drop(repaired);
                return self.give_up([Err(sealed), Ok(())]);
            }
        }
        Ok(())
    }

    /// Stores to side 0 what side 1 holds in the line at `line`, durably. Fails if side 0 loses
    /// stores, or lost too many lines.
    fn repair(&self, line: u64, repaired: &mut Vec<u64>) -> Result<(), Sealed> {
        let bytes = self.bytes_of_line(line);
        let [first, second] = [self.side(0), self.side(1)];
        if !repaired.contains(&line) {
            repaired.push(line);
            // Before side 1 is read: a write whose fence does not wait for this is read there.
            self.repairs.counted(repaired.len());
            fence(Ordering::SeqCst);
        }
        let mut held = read_line(second, line, bytes);
        while let Ok(right) = held {
            let mut redo = Redo::default();
            redo.add(first, line, &right)?;
            redo.store(first)?;
            // Pairs with the order in which `Mirror::each` stores: the line is read again after the
            // store to side 0 is visible.
            fence(Ordering::SeqCst);
            held = read_line(second, line, bytes);
            if held == Ok(right) {
                break;
            }
        }
        if repaired.len() > REPAIRED_LINES_MAX { Err(Sealed::StoreLost { at: line }) } else { Ok(()) }
    }

    /// Bytes of the line at `line` that belong to the volume.
    fn bytes_of_line(&self, line: u64) -> usize {
        usize::try_from((self.len() - line).min(LINE_BYTES)).unwrap_or(usize::MAX)
    }
}
