//! Foreign contents of a medium: the signatures of file systems, volumes, partition tables, images
//! and common files.
//!
//! Places and bytes are those by which libblkid (util-linux) and file(1) recognise them; where
//! libblkid's name for a type is not in the description, it stands behind it in brackets. Order
//! matters: a FAT file system and a hybrid ISO image have a boot sector too.

/// So many bytes at the start are looked at.
pub const HEAD_BYTES: u64 = 256 << 10;

/// So many bytes at the end are looked at.
pub const TAIL_BYTES: u64 = 128 << 10;

/// Where a signature lies, what it is, and whose.
type Signature = (usize, &'static [u8], &'static str);

const EXT: &str = "an ext2, ext3 or ext4 file system";
const BTRFS: &str = "a btrfs file system";
const LVM: &str = "an LVM physical volume (LVM2_member)";
const RAID: &str = "a member of a Linux software RAID (linux_raid_member)";
const SWAP: &str = "swap space";
const ZFS: &str = "a member of a ZFS pool (zfs_member)";
const FAT: &str = "a FAT file system (vfat)";
const GPT: &str = "a GPT partition table";
const VMDK: &str = "a VMDK image";

const LOG: &str = "an append-only log of Tidegate";
const POOL: &str = "the pool of a mount of Tidegate";
const CACHE: &str = "a cache of a disk, of Tidegate";
const BTT: &str = "a BTT volume";

/// What persistent memory holds beside volumes and caches, which are looked at otherwise.
const FILES_IN_MEMORY: &[Signature] =
    &[(0, b"tidegate-applog\0", LOG), (0, b"tidegate-nvfiles", POOL), (4096, b"tidegate-nvfiles", POOL)];

/// Volumes and caches in persistent memory.
const VOLUMES_IN_MEMORY: &[Signature] = &[
    (0, b"tidegate-nvcache", CACHE),
    (4096, b"tidegate-nvcache", CACHE),
    (0, b"BTT_ARENA_INFO\0\0", BTT),
    (4096, b"BTT_ARENA_INFO\0\0", BTT),
];

const SIGNATURES: &[Signature] = &[
    (0, b"PMEMBLK\0", "a libpmemblk pool"),
    (0, b"PMEMOBJ\0", "a libpmemobj pool"),
    (0, b"PMEMLOG\0", "a libpmemlog pool"),
    (4096, b"NVDIMM_PFN_INFO\0", "an fsdax namespace"),
    (4096, b"NVDIMM_DAX_INFO\0", "a devdax namespace"),
    (0, b"LUKS\xba\xbe", "a LUKS volume (crypto_LUKS)"),
    (0x4000, b"SKUL\xba\xbe", "a LUKS volume (crypto_LUKS)"),
    (0, b"LABELONE", LVM),
    (512, b"LABELONE", LVM),
    (1024, b"LABELONE", LVM),
    (1536, b"LABELONE", LVM),
    (0, b"\xfc\x4e\x2b\xa9", RAID),
    (4096, b"\xfc\x4e\x2b\xa9", RAID),
    (0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a member of a bcache"),
    (0xff6, b"SWAPSPACE2", SWAP),
    (0xff6, b"SWAP-SPACE", SWAP),
    (0xfff6, b"SWAPSPACE2", SWAP),
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", BTRFS),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (0x400, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    (0x438, b"\x53\xef", EXT),
    (0, b"hsqs", "a SquashFS file system"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (0x8001, b"BEA01", "a UDF file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (3, b"-FVE-FS-", "a BitLocker volume"),
    (0x36, b"FAT12   ", FAT),
    (0x36, b"FAT16   ", FAT),
    (0x52, b"FAT32   ", FAT),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"KDMV", VMDK),
    (0, b"vhdxfile", "a VHDX image"),
    (0, b"\x7fELF", "an ELF program or library"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"\x1f\x8b\x08", "gzip data"),
    (0, b"\xfd7zXZ\0", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"PK\x03\x04", "a zip archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"%PDF-", "a PDF document"),
    (512, b"EFI PART", GPT),
    (4096, b"EFI PART", GPT),
    (510, b"\x55\xaa", "a boot sector or MBR partition table"),
];

/// Whose the medium of `bytes` bytes is that begins with `head` and ends with `tail`, if it is
/// recognised.
pub fn recognise(head: &[u8], tail: &[u8], bytes: u64) -> Option<&'static str> {
    let signed = || signed(head, FILES_IN_MEMORY.iter().chain(SIGNATURES));
    let zfs = || has_uberblock(head).then_some(ZFS);
    let end = || recognise_end(tail, bytes);
    let text = || is_text(head).then_some("text");
    signed().or_else(zfs).or_else(end).or_else(text)
}

/// What the medium that begins with `head` holds, if that belongs into persistent memory.
pub fn recognise_of_memory(head: &[u8]) -> Option<&'static str> {
    signed(head, FILES_IN_MEMORY.iter().chain(VOLUMES_IN_MEMORY))
}

/// Whose of these signatures `head` has: the first.
fn signed<'s>(head: &[u8], mut signatures: impl Iterator<Item = &'s Signature>) -> Option<&'static str> {
    signatures.find(|(at, signature, _)| has(head, *at, signature)).map(|(_, _, what)| *what)
}

fn has(bytes: &[u8], at: usize, signature: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|bytes| bytes.starts_with(signature))
}

/// Uberblocks of a ZFS label lie in its second half, one in each KiB, in the byte order of the
/// machine that wrote them.
fn has_uberblock(head: &[u8]) -> bool {
    const MAGIC: u64 = 0x00ba_b10c;
    let (_, second_half) = head.split_at(head.len().min(128 << 10));
    let mut slots = second_half.chunks_exact(1024);
    slots.any(|slot| has(slot, 0, &MAGIC.to_le_bytes()) || has(slot, 0, &MAGIC.to_be_bytes()))
}

/// Signatures at the end: those of RAID members of versions 1.0 and 0.90, and the second copy of a
/// GPT.
fn recognise_end(tail: &[u8], bytes: u64) -> Option<&'static str> {
    let begins = bytes - tail.len() as u64;
    let at_end = |place: Option<u64>, signature: &[u8]| {
        let at = place.and_then(|place| place.checked_sub(begins)).and_then(|at| usize::try_from(at).ok());
        at.is_some_and(|at| has(tail, at, signature))
    };
    let raid_1_0 = (bytes / 512).checked_sub(16).map(|sector| (sector & !7) * 512);
    let raid_0_90 = (bytes & !0xffff).checked_sub(0x1_0000);
    match () {
        () if at_end(raid_1_0, b"\xfc\x4e\x2b\xa9") || at_end(raid_0_90, b"\xfc\x4e\x2b\xa9") => Some(RAID),
        () if [512, 4096].iter().any(|sector| at_end(bytes.checked_sub(*sector), b"EFI PART")) => Some(GPT),
        () => None,
    }
}

/// Whether the first bytes are readable text, with zeroes behind it at most.
fn is_text(head: &[u8]) -> bool {
    const LEAST_BYTES: usize = 8;
    let first = &head[..head.len().min(512)];
    let ends = first.iter().position(|byte| *byte == 0).unwrap_or(first.len());
    let (text, rest) = first.split_at(ends);
    // The last character may be cut off.
    let whole = text.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let readable = whole.chars().all(|letter| !letter.is_control() || "\n\r\t\u{c}\u{1b}".contains(letter));
    text.len() >= LEAST_BYTES && text.len() - whole.len() < 4 && readable && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a medium of 1 MiB is taken for that has only `bytes`, at `at`.
    fn with(at: usize, bytes: &[u8]) -> Option<&'static str> {
        let mut medium = vec![0; 1 << 20];
        medium[at..at + bytes.len()].copy_from_slice(bytes);
        let [head, tail] = [HEAD_BYTES, TAIL_BYTES].map(|len| usize::try_from(len).expect("small"));
        recognise(&medium[..head], &medium[medium.len() - tail..], 1 << 20)
    }

    #[test]
    fn each_signature_is_recognised_alone() {
        for (at, signature, what) in SIGNATURES {
            assert_eq!(with(*at, signature), Some(*what));
        }
        assert_eq!(with(0, &[]), None);
    }

    #[test]
    fn labels_of_pools_and_arrays_lie_further_in_and_at_the_end() {
        for place in [128 << 10, (128 << 10) + 5 * 1024] {
            assert_eq!(with(place, &0x00ba_b10c_u64.to_le_bytes()), Some(ZFS));
            assert_eq!(with(place, &0x00ba_b10c_u64.to_be_bytes()), Some(ZFS));
        }
        assert_eq!(with((1 << 20) - 8192, b"\xfc\x4e\x2b\xa9"), Some(RAID));
        assert_eq!(with((1 << 20) - 65536, b"\xfc\x4e\x2b\xa9"), Some(RAID));
        assert_eq!(with((1 << 20) - 512, b"EFI PART"), Some(GPT));
        assert_eq!(recognise(b"", b"", 0), None);
        assert_eq!(recognise(b"\x7fELF", b"\x7fELF", 4), Some("an ELF program or library"));
    }

    #[test]
    fn text_is_what_people_can_read() {
        assert_eq!(with(0, b"#!/bin/sh\nexit 0\n"), Some("text"));
        assert_eq!(with(0, "größer als nötig".repeat(40).as_bytes()), Some("text"));
        for no_text in [&b"seven b"[..], b"eight\x07bytes", b"something\0else", b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8"] {
            assert_eq!(with(0, no_text), None, "{no_text:?}");
        }
    }
}
