//! The contents of a medium: sparse pages that copies share until one of them is stored to.

use std::fmt;
use std::sync::Arc;
use tidegate_virtual_cores::mix;

/// Bytes in a page, the unit in which images share their contents.
pub const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// The bytes of a medium at one instant. A clone costs a few nanoseconds per page stored to so far,
/// and shares the pages; a page never stored to takes no memory, so an image may be terabytes long.
#[derive(Clone)]
pub struct Image {
    len: u64,
    background: u8,
    hash: u64,
    /// Pages stored to, ascending by number.
    pages: Vec<(u64, Arc<Page>)>,
}

impl Image {
    /// `len` bytes of zero.
    pub fn zeroed(len: u64) -> Image {
        Image::filled(len, 0)
    }

    /// `len` times `background`, as a medium that somebody used before.
    pub fn filled(len: u64, background: u8) -> Image {
        Image { len, background, hash: mix(len), pages: Vec::new() }
    }

    /// These bytes, followed by zeroes up to the next multiple of 8.
    pub fn from_bytes(bytes: &[u8]) -> Image {
        let mut image = Image::zeroed((bytes.len() as u64).next_multiple_of(8));
        image.write(0, bytes);
        image
    }

    /// Bytes in the image.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the image has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A number that equal contents share and others, as good as always, do not.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The numbers of the pages stored to so far.
    pub fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.iter().map(|(number, _)| *number)
    }

    /// All of it. For small images only.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).expect("a small image")];
        self.read(0, &mut bytes);
        bytes
    }

    /// Copies `out.len()` bytes from offset `at`.
    pub fn read(&self, at: u64, out: &mut [u8]) {
        self.inside(at, out.len());
        for (number, within, span) in pieces(at, out.len()) {
            let part = &mut out[span];
            match self.find(number) {
                Ok(index) => part.copy_from_slice(&self.pages[index].1[within..within + part.len()]),
                Err(_) => part.fill(self.background),
            }
        }
    }

    /// The aligned 8-byte word at `at`.
    pub fn load_u64(&self, at: u64) -> u64 {
        self.aligned(at);
        match self.find(at / PAGE_BYTES as u64) {
            Ok(index) => word_of(&self.pages[index].1, within_page(at)),
            Err(_) => u64::from_le_bytes([self.background; 8]),
        }
    }

    /// Replaces `bytes.len()` bytes at offset `at`.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.inside(at, bytes.len());
        for (number, within, span) in pieces(at, bytes.len()) {
            let part = &bytes[span];
            // What is there already neither copies a shared page nor changes the hash.
            let there = match self.find(number) {
                Ok(index) => self.pages[index].1[within..within + part.len()] == *part,
                Err(_) => part.iter().all(|byte| *byte == self.background),
            };
            if there {
                continue;
            }
            let start = number * PAGE_BYTES as u64;
            let mut change = 0;
            let page = self.page_mut(number);
            for (word_at, mask, value) in words(start + within as u64, part) {
                change ^= replace(page, word_at, mask, value);
            }
            self.hash ^= change;
        }
    }

    /// Replaces the aligned 8-byte word at `at`.
    pub fn store_u64(&mut self, at: u64, value: u64) {
        self.aligned(at);
        let old = self.load_u64(at);
        if old == value {
            return;
        }
        let change = replace(self.page_mut(at / PAGE_BYTES as u64), at, u64::MAX, value);
        self.hash ^= change;
    }

    /// Replaces the bits of `mask` in the aligned word at `at`.
    pub(crate) fn put(&mut self, at: u64, mask: u64, value: u64) {
        self.aligned(at);
        let Ok(index) = self.find(at / PAGE_BYTES as u64) else {
            let background = u64::from_le_bytes([self.background; 8]);
            return self.store_u64(at, background & !mask | value & mask);
        };
        let old = word_of(&self.pages[index].1, within_page(at));
        if (old ^ value) & mask != 0 {
            self.hash ^= replace(Arc::make_mut(&mut self.pages[index].1), at, mask, value);
        }
    }

    fn find(&self, number: u64) -> Result<usize, usize> {
        self.pages.binary_search_by_key(&number, |(number, _)| *number)
    }

    fn page_mut(&mut self, number: u64) -> &mut Page {
        let index = match self.find(number) {
            Ok(index) => index,
            Err(index) => {
                self.pages.insert(index, (number, Arc::new([self.background; PAGE_BYTES])));
                index
            }
        };
        Arc::make_mut(&mut self.pages[index].1)
    }

    fn inside(&self, at: u64, len: usize) {
        let end = at.checked_add(len as u64);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{len} bytes at {at} reach past an image of {} bytes",
            self.len
        );
    }

    fn aligned(&self, at: u64) {
        assert!(at.is_multiple_of(8), "a word at {at}, which is no multiple of 8");
        assert!(at < self.len, "a word at {at} in an image of {} bytes", self.len);
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        self.len == other.len
            && self.background == other.background
            && same_pages(self, other)
            && same_pages(other, self)
    }
}

impl Eq for Image {}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} bytes, {} pages, {:016x})", self.len, self.pages.len(), self.hash)
    }
}

/// Whether every page of `one` is the same in `other`, stored to there or not.
fn same_pages(one: &Image, other: &Image) -> bool {
    one.pages.iter().all(|(number, page)| match other.find(*number) {
        Ok(index) => other.pages[index].1 == *page,
        Err(_) => page.iter().all(|byte| *byte == other.background),
    })
}

/// Puts the bits of `value` under `mask` into the word at `at`, and says how that changes the
/// image's hash.
fn replace(page: &mut Page, at: u64, mask: u64, value: u64) -> u64 {
    let within = within_page(at);
    let old = word_of(page, within);
    let new = (old & !mask) | (value & mask);
    if new == old {
        return 0;
    }
    page[within..within + 8].copy_from_slice(&new.to_le_bytes());
    trace(at, old) ^ trace(at, new)
}

/// What the word `value` at `at` adds to a hash.
fn trace(at: u64, value: u64) -> u64 {
    mix(value.wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn within_page(at: u64) -> usize {
    in_memory(at % PAGE_BYTES as u64)
}

fn word_of(page: &Page, within: usize) -> u64 {
    u64::from_le_bytes(page[within..within + 8].try_into().expect("eight bytes"))
}

/// A length or distance within bytes that are in this process's memory.
pub(crate) fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("it fits in memory")
}

/// The pages that `len` bytes at `at` touch: number, first byte within the page, part of the bytes.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let here = at + done as u64;
        let within = within_page(here);
        let start = done;
        done = len.min(start + PAGE_BYTES - within);
        Some((here / PAGE_BYTES as u64, within, start..done))
    })
}

/// The aligned words that `bytes` at `at` touch: offset, mask of the bits stored, value under the
/// mask.
pub(crate) fn words(at: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
    let end = at + bytes.len() as u64;
    let first = at - at % 8;
    (first..end).step_by(8).map(move |word_at| {
        let from = word_at.max(at);
        let until = (word_at + 8).min(end);
        let part = &bytes[in_memory(from - at)..in_memory(until - at)];
        if let Ok(whole) = <[u8; 8]>::try_from(part) {
            return (word_at, u64::MAX, u64::from_le_bytes(whole));
        }
        let (mut mask, mut value) = ([0u8; 8], [0u8; 8]);
        let lead = in_memory(from - word_at);
        mask[lead..lead + part.len()].fill(0xff);
        value[lead..lead + part.len()].copy_from_slice(part);
        (word_at, u64::from_le_bytes(mask), u64::from_le_bytes(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_to_a_clone_leaves_the_first_alone() {
        let first = Image::from_bytes(b"persistent memory");
        let mut second = first.clone();
        second.write(3, b"SIST");
        assert_eq!(&first.to_vec()[..17], b"persistent memory");
        assert_eq!(&second.to_vec()[..17], b"perSISTent memory");
        assert_ne!(first.hash(), second.hash());
        second.write(3, b"sist");
        assert_eq!(first.hash(), second.hash());
        assert_eq!(first, second);
    }

    #[test]
    fn pages_never_stored_to_read_as_the_background_and_take_no_memory() {
        let mut image = Image::filled(1 << 40, 0xa5);
        let edge = (1 << 39) - 3;
        image.write(edge, b"across two pages");
        let mut out = [0; 18];
        image.read(edge - 1, &mut out);
        assert_eq!(&out, b"\xa5across two pages\xa5");
        assert_eq!(image.pages().count(), 2);
        assert_eq!(image.load_u64(0), 0xa5a5_a5a5_a5a5_a5a5);
    }

    #[test]
    fn unaligned_bytes_are_cut_into_masked_words() {
        let cut: Vec<_> = words(6, b"abcdefghijkl").collect();
        assert_eq!(cut[0], (0, 0xffff << 48, u64::from_le_bytes(*b"\0\0\0\0\0\0ab")));
        assert_eq!(cut[1], (8, u64::MAX, u64::from_le_bytes(*b"cdefghij")));
        assert_eq!(cut[2], (16, 0xffff, u64::from_le_bytes(*b"kl\0\0\0\0\0\0")));
        assert_eq!(cut.len(), 3);
    }

    #[test]
    #[should_panic(expected = "reach past an image")]
    fn bytes_past_the_end_are_a_mistake() {
        Image::zeroed(64).read(60, &mut [0; 8]);
    }
}
