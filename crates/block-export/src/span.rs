//! A range of bytes seen in blocks: whole blocks in the middle, at most one partial block at each
//! end.

use tidegate_media::{Lba, LbaRange};

/// Some bytes of one block, never all of them and never none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partial {
    pub(crate) lba: Lba,
    /// The first byte, counted from the block's start.
    pub(crate) start: usize,
    /// One past the last byte.
    pub(crate) end: usize,
}

impl Partial {
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }
}

/// A range of bytes, cut where its blocks begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The end of a block in front of the whole ones, or the inside of the only block.
    pub(crate) head: Option<Partial>,
    pub(crate) whole: LbaRange,
    /// The start of a block behind the whole ones.
    pub(crate) tail: Option<Partial>,
}

impl Span {
    /// Cuts `len` bytes from `offset` on, for blocks of `1 << block_shift` bytes. Their end fits a
    /// u64.
    pub(crate) fn cut(offset: u64, len: u64, block_shift: u32) -> Span {
        let end = offset + len;
        let first = offset.div_ceil(1 << block_shift);
        let last = end >> block_shift;
        if first > last {
            let head = Partial::between(offset, end, block_shift);
            return Span { head, whole: LbaRange { first: Lba(first), blocks: 0 }, tail: None };
        }
        Span {
            head: Partial::between(offset, first << block_shift, block_shift),
            whole: LbaRange { first: Lba(first), blocks: last - first },
            tail: Partial::between(last << block_shift, end, block_shift),
        }
    }
}

impl Partial {
    /// The bytes from `offset` up to `end`, which lie in one block; none if there are none.
    fn between(offset: u64, end: u64, block_shift: u32) -> Option<Partial> {
        let lba = offset >> block_shift;
        let within = |at: u64| usize::try_from(at - (lba << block_shift)).expect("a block fits in memory");
        (offset < end).then(|| Partial { lba: Lba(lba), start: within(offset), end: within(end) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partial(lba: u64, start: usize, end: usize) -> Option<Partial> {
        Some(Partial { lba: Lba(lba), start, end })
    }

    fn cut(offset: u64, len: u64) -> (Option<Partial>, u64, u64, Option<Partial>) {
        let span = Span::cut(offset, len, 9);
        (span.head, span.whole.first.0, span.whole.blocks, span.tail)
    }

    #[test]
    fn ranges_are_cut_at_block_borders() {
        assert_eq!(cut(512, 1024), (None, 1, 2, None));
        assert_eq!(cut(500, 24), (partial(0, 500, 512), 1, 0, partial(1, 0, 12)));
        assert_eq!(cut(100, 412), (partial(0, 100, 512), 1, 0, None));
        assert_eq!(cut(0, 100), (None, 0, 0, partial(0, 0, 100)));
        assert_eq!(cut(700, 10), (partial(1, 188, 198), 2, 0, None));
        assert_eq!(cut(1, 2047), (partial(0, 1, 512), 1, 3, None));
    }

    #[test]
    fn empty_ranges_have_no_parts() {
        assert_eq!(cut(512, 0), (None, 1, 0, None));
        assert_eq!(cut(700, 0), (None, 2, 0, None));
    }
}
