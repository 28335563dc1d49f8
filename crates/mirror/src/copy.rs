//! Copies between sides: only lines that differ are stored.

use tidegate_media::{LINE_BYTES, Poison, Region};

/// Bytes of a line, as a length in memory.
pub(crate) const LINE_LEN: usize = 64;
const _: () = assert!(LINE_LEN as u64 == LINE_BYTES);

/// Bytes that are compared at once.
pub(crate) const COMPARED_BYTES: usize = 64 << 10;

/// Calls `differ` for each piece of `0..len` of up to [`COMPARED_BYTES`] that `one` and `other` do
/// not give equal, with its place and bytes, and `progress` after each piece, with the bytes done.
pub(crate) fn pieces_that_differ<A: Region, B: Region, E>(
    one: &A,
    other: &B,
    len: u64,
    progress: &mut dyn FnMut(u64, u64),
    mut differ: impl FnMut(u64, u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut bytes = [vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]];
    let mut at = 0;
    while at < len {
        let piece = usize::try_from(len - at).map_or(COMPARED_BYTES, |left| left.min(COMPARED_BYTES));
        let [ours, theirs] = &mut bytes;
        let (ours, theirs) = (&mut ours[..piece], &mut theirs[..piece]);
        if one.read(at, ours).is_err() || other.read(at, theirs).is_err() || ours != theirs {
            differ(at, piece as u64)?;
        }
        at += piece as u64;
        progress(at, len);
    }
    Ok(())
}

/// The parts of `at..at + len` in each line it touches, as places and lengths.
pub(crate) fn lines(at: u64, len: u64) -> impl Iterator<Item = (u64, usize)> {
    let end = at + len;
    std::iter::successors((len > 0).then_some(at), move |at| {
        Some(at / LINE_BYTES * LINE_BYTES + LINE_BYTES).filter(|next| *next < end)
    })
    .map(move |at| {
        let until = (at / LINE_BYTES * LINE_BYTES + LINE_BYTES).min(end);
        (at, usize::try_from(until - at).unwrap_or(usize::MAX))
    })
}

/// A line, or the part of one, of a region.
pub(crate) fn read_line<R: Region>(region: &R, at: u64, bytes: usize) -> Result<LineBytes, Poison> {
    let mut line = LineBytes { bytes: [0; LINE_LEN], len: bytes };
    region.read(at, &mut line.bytes[..bytes])?;
    Ok(line)
}

/// Up to a line of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineBytes {
    bytes: [u8; LINE_LEN],
    len: usize,
}

impl LineBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cover_a_range_once() {
        let cut = |at, len| lines(at, len).collect::<Vec<_>>();
        assert_eq!(cut(0, 0), []);
        assert_eq!(cut(0, 64), [(0, 64)]);
        assert_eq!(cut(60, 8), [(60, 4), (64, 4)]);
        assert_eq!(cut(64, 130), [(64, 64), (128, 64), (192, 2)]);
    }
}
