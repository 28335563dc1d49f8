//! What the kernel says of this process's memory: whether a mapping is still what this library saw
//! it made as. A program may unmap by calls that no library sees.

use crate::kernel_mappings::KernelMapping;
use rustix::io::Errno;

/// Bytes that are read at a time. The stack may be small.
const PART: usize = 2048;

/// Longest beginning of a line that is looked at: what follows is a path.
const LINE: usize = 128;

/// Whether all of a mapping is there, shared, of its file. `read` reads on in `/proc/self/maps`,
/// and says how many bytes it read.
pub fn is_mapped(mapping: &KernelMapping, mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> bool {
    let (mut part, mut line, mut len) = ([0; PART], [0; LINE], 0);
    let mut until = mapping.base;
    while until < mapping.end {
        let Ok(bytes @ 1..=PART) = read(&mut part) else { return false };
        for byte in &part[..bytes] {
            if *byte == b'\n' {
                until = Area::of(&line[..len]).map_or(until, |area| area.covers(mapping, until));
                len = 0;
            } else if len < LINE {
                line[len] = *byte;
                len += 1;
            }
        }
    }
    true
}

/// Some addresses with one thing behind them.
struct Area {
    base: usize,
    end: usize,
    is_shared: bool,
    from: u64,
    file: (u64, u64),
}

impl Area {
    /// What a line says: `base-end rwxs offset major:minor inode`.
    fn of(line: &[u8]) -> Option<Area> {
        let mut words = str::from_utf8(line.split(|byte| *byte == b'/').next()?).ok()?.split_ascii_whitespace();
        let (base, end) = words.next()?.split_once('-')?;
        let access = words.next()?;
        let from = u64::from_str_radix(words.next()?, 16).ok()?;
        let (major, minor) = words.next()?.split_once(':')?;
        let number = |word: &str| u32::from_str_radix(word, 16).ok();
        let address = |word: &str| usize::from_str_radix(word, 16).ok();
        let device = rustix::fs::makedev(number(major)?, number(minor)?);
        let file = (device, words.next()?.parse().ok()?);
        Some(Area { base: address(base)?, end: address(end)?, is_shared: access.ends_with('s'), from, file })
    }

    /// Until where a mapping is there that is there until `until`, with these.
    fn covers(&self, mapping: &KernelMapping, until: usize) -> usize {
        let place = |at: usize, base: usize, from: u64| (at - base) as u64 + from;
        let is_next = self.is_shared
            && self.file == mapping.file
            && (self.base..self.end).contains(&until)
            && place(until, self.base, self.from) == place(until, mapping.base, mapping.from);
        if is_next { self.end } else { until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"7f0000001000-7f0000005000 rw-s 00002000 08:21 77                       /a file";

    fn mapping(base: usize, end: usize, from: u64) -> KernelMapping {
        KernelMapping::new(base..end, ((rustix::fs::makedev(8, 0x21), 77), from), -1)
    }

    #[test]
    fn a_line_covers_what_it_names_and_nothing_else() {
        let area = Area::of(LINE).expect("a line");
        let (base, end) = (0x7f00_0000_1000, 0x7f00_0000_5000);
        assert_eq!(area.covers(&mapping(base, end, 0x2000), base), end);
        assert_eq!(area.covers(&mapping(base + 4096, end, 0x3000), base + 4096), end, "a part of it");
        assert_eq!(area.covers(&mapping(base, end, 0x3000), base), base, "another place of the file");
        assert_eq!(area.covers(&mapping(base - 4096, end, 0x1000), base - 4096), base - 4096, "something is missing");
        let other = KernelMapping::new(base..end, ((area.file.0, 78), 0x2000), -1);
        assert_eq!(area.covers(&other, base), base);
        let private = Area { is_shared: false, ..Area::of(LINE).expect("a line") };
        assert_eq!(private.covers(&mapping(base, end, 0x2000), base), base);
    }

    #[test]
    fn lines_that_are_none_say_nothing() {
        for line in [&b""[..], b"7f00-", b"7f00-8000 r--p", b"x-y rw-s 0 08:21 77", b"\xff-1 rw-s 0 08:21 77"] {
            assert!(Area::of(line).is_none());
        }
        assert!(Area::of(b"7f00-8000 rw-s 0 08:21 77").is_some());
    }

    #[test]
    fn this_process_has_what_it_maps() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(8192).expect("longer");
        let about = rustix::fs::fstat(&file).expect("known");
        let access = rustix::mm::ProtFlags::READ;
        // SAFETY: a new mapping, which stays.
        let at =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), 8192, access, rustix::mm::MapFlags::SHARED, &file, 0) };
        let base = at.expect("mapped").addr();
        let here = |len, from| {
            let maps = std::fs::File::open("/proc/self/maps").expect("a file of the kernel's");
            let mapping = KernelMapping::new(base..base + len, ((about.st_dev, about.st_ino), from), -1);
            is_mapped(&mapping, |part| rustix::io::read(&maps, part))
        };
        assert!(here(8192, 0) && !here(8192, 4096) && !here(1 << 30, 0));
    }
}
