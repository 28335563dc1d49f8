//! Formats on a disk that own the disk's end: a file system, a partition table, an encrypted
//! volume. Its last blocks may be zeroes, and are no less its own.
//!
//! Each is known by its magic number near the beginning of the disk, and says how many bytes it
//! takes. Where the numbers lie is told at each; libblkid of util-linux knows the same magic
//! numbers (`libblkid/src/superblocks/`, `partitions/`). A format that is not known here is only
//! seen by its blocks.

use crate::block::backing::AlignedBytes;
use crate::block::{BlockDevice, Lba};
use crate::error::Result;
use std::fmt;

/// Bytes at the beginning of a disk that are looked at: the superblock of btrfs lies last.
const LOOKED_AT_BYTES: u64 = (64 << 10) + (4 << 10);

/// Something that takes a disk, or the beginning of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What it is.
    pub by: &'static str,
    /// One past its last byte. None: it takes the disk up to its end.
    pub until: Option<u64>,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.until {
            Some(until) => write!(f, "{}, which takes {until} bytes", self.by),
            None => write!(f, "{}, which takes all of it", self.by),
        }
    }
}

/// What takes bytes of `disk` from byte `from` on, if it is known here.
pub fn claim_of(disk: &dyn BlockDevice, from: u64) -> Result<Option<Claim>> {
    let geometry = disk.geometry();
    let blocks = LOOKED_AT_BYTES.div_ceil(u64::from(geometry.block_size)).min(geometry.blocks);
    let mut bytes = AlignedBytes::zeroed(usize::try_from(blocks).expect("few") * geometry.block_size as usize);
    disk.read(Lba(0), &mut bytes)?;
    let found = READERS.iter().filter_map(|read| read(&Start(&bytes)));
    Ok(found
        .filter(|claim| claim.until.is_none_or(|until| until > from))
        .max_by_key(|claim| claim.until.unwrap_or(u64::MAX)))
}

/// The beginning of a disk.
struct Start<'a>(&'a [u8]);

impl Start<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    fn has(&self, at: usize, magic: &[u8]) -> Option<()> {
        self.0.get(at..)?.starts_with(magic).then_some(())
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn le16(&self, at: usize) -> Option<u64> {
        self.bytes(at).map(|bytes| u16::from_le_bytes(bytes).into())
    }

    fn le32(&self, at: usize) -> Option<u64> {
        self.bytes(at).map(|bytes| u32::from_le_bytes(bytes).into())
    }

    fn le64(&self, at: usize) -> Option<u64> {
        self.bytes(at).map(u64::from_le_bytes)
    }
}

/// Something that is `units` of `unit` bytes long. Numbers that no disk has take all of it.
fn claim(by: &'static str, units: u64, unit: u64) -> Option<Claim> {
    Some(Claim { by, until: units.checked_mul(unit) })
}

/// Two to the power of a number that may be anything.
fn power_of_two(power: u64) -> u64 {
    u32::try_from(power).ok().and_then(|power| 1_u64.checked_shl(power)).unwrap_or(u64::MAX)
}

type Reader = fn(&Start<'_>) -> Option<Claim>;

const READERS: [Reader; 15] =
    [ext, xfs, btrfs, f2fs, swap, gpt, mbr, fat, ntfs, exfat, luks, lvm, md_at_start, md_at_4096, bcache];

/// Linux, Documentation/filesystems/ext4/super.rst: the superblock lies at byte 1024;
/// s_blocks_count_lo at 0x4, s_log_block_size at 0x18, s_magic at 0x38, s_feature_incompat at 0x60
/// (64BIT is 0x80), s_blocks_count_hi at 0x150.
fn ext(start: &Start<'_>) -> Option<Claim> {
    const AT: usize = 1024;
    start.has(AT + 0x38, &[0x53, 0xef])?;
    // Two bytes of magic may be anything: blocks have up to 64 KiB.
    let power = start.le32(AT + 0x18).filter(|power| *power <= 6)?;
    let high = if start.le32(AT + 0x60)? & 0x80 == 0 { 0 } else { start.le32(AT + 0x150)? };
    let blocks = high << 32 | start.le32(AT + 4)?;
    claim("an ext2, ext3 or ext4 file system", blocks, 1024 << power)
}

/// Linux, fs/xfs/libxfs/xfs_format.h, struct xfs_dsb, big-endian: sb_magicnum at 0, sb_blocksize at
/// 4, sb_dblocks at 8.
fn xfs(start: &Start<'_>) -> Option<Claim> {
    start.has(0, b"XFSB")?;
    let size = u32::from_be_bytes(start.bytes(4)?);
    claim("an XFS file system", u64::from_be_bytes(start.bytes(8)?), size.into())
}

/// Linux, include/uapi/linux/btrfs_tree.h, struct btrfs_super_block at 64 KiB: magic at 0x40,
/// dev_item at 0xc9, in which total_bytes is at 8.
fn btrfs(start: &Start<'_>) -> Option<Claim> {
    const AT: usize = 64 << 10;
    start.has(AT + 0x40, b"_BHRfS_M")?;
    claim("a btrfs file system", start.le64(AT + 0xc9 + 8)?, 1)
}

/// Linux, include/linux/f2fs_fs.h, struct f2fs_super_block at 1024: magic at 0, log_blocksize at
/// 16, block_count at 36.
fn f2fs(start: &Start<'_>) -> Option<Claim> {
    const AT: usize = 1024;
    start.has(AT, &0xf2f5_2010_u32.to_le_bytes())?;
    claim("an F2FS file system", start.le64(AT + 36)?, power_of_two(start.le32(AT + 16)?))
}

/// Linux, include/linux/swap.h, union swap_header: the magic in the last 10 bytes of the first
/// page; last_page, which counts from 0, at 1028.
fn swap(start: &Start<'_>) -> Option<Claim> {
    let page = [4096, 8192, 16384, 65536].into_iter().find(|page| start.has(page - 10, b"SWAPSPACE2").is_some())?;
    claim("swap space", start.le32(1028)? + 1, page as u64)
}

/// UEFI 2.10, 5.3.2: the header lies in block 1; AlternateLBA, which is the last block that belongs
/// to the table, at 32.
fn gpt(start: &Start<'_>) -> Option<Claim> {
    let size = [512, 4096].into_iter().find(|size| start.has(*size, b"EFI PART").is_some())?;
    claim("a GPT partition table", start.le64(size + 32)?.saturating_add(1), size as u64)
}

/// UEFI 2.10, 5.2.1: four records of 16 bytes from 446 on: the boot indicator at 0, the type at 4,
/// StartingLBA at 8, SizeInLBA at 12; the signature at 510. The first sector of a FAT or NTFS file
/// system ends as this one does, with code instead of records.
fn mbr(start: &Start<'_>) -> Option<Claim> {
    const PROTECTIVE: u8 = 0xee;
    start.has(510, &[0x55, 0xaa])?;
    let mut until = 0;
    for at in (446..510).step_by(16) {
        let (active, kind) = (start.byte(at)?, start.byte(at + 4)?);
        let (first, blocks) = (start.le32(at + 8)?, start.le32(at + 12)?);
        // What a protective record covers is told by the GPT.
        match (active, kind) {
            (0, 0 | PROTECTIVE) => {}
            (0 | 0x80, 1..) if first > 0 && blocks > 0 => until = until.max(first + blocks),
            _ => return None,
        }
    }
    if until == 0 { None } else { claim("a partition", until, 512) }
}

/// Microsoft, FAT specification 1.03, 3.1: BPB_BytsPerSec at 11, BPB_TotSec16 at 19, BPB_TotSec32
/// at 32; BS_FilSysType at 54 (FAT12 and FAT16) or 82.
fn fat(start: &Start<'_>) -> Option<Claim> {
    start.has(510, &[0x55, 0xaa])?;
    start.has(54, b"FAT").or_else(|| start.has(82, b"FAT32"))?;
    let sectors = match start.le16(19)? {
        0 => start.le32(32)?,
        sectors => sectors,
    };
    claim("a FAT file system", sectors, start.le16(11)?)
}

/// Linux, fs/ntfs3/ntfs.h, struct NTFS_BOOT: system_id at 3, bytes_per_sector at 11,
/// sectors_per_volume at 40, without the copy of the first sector behind them.
fn ntfs(start: &Start<'_>) -> Option<Claim> {
    start.has(3, b"NTFS    ")?;
    claim("an NTFS file system", start.le64(40)?.saturating_add(1), start.le16(11)?)
}

/// Microsoft, exFAT specification, 3.1: FileSystemName at 3, VolumeLength at 72,
/// BytesPerSectorShift at 108.
fn exfat(start: &Start<'_>) -> Option<Claim> {
    start.has(3, b"EXFAT   ")?;
    claim("an exFAT file system", start.le64(72)?, power_of_two(start.byte(108)?.into()))
}

/// LUKS1 and LUKS2 on-disk formats: the magic at 0. What is encrypted takes the rest of the disk.
fn luks(start: &Start<'_>) -> Option<Claim> {
    start.has(0, b"LUKS\xba\xbe")?;
    Some(Claim { by: "an encrypted volume (LUKS)", until: None })
}

/// LVM2, lib/format_text/layout.h and lib/label/label.h: a label in one of the first four sectors:
/// its id at 0, offset_xl at 20, the type at 24; there, struct pv_header with device_size_xl at 32.
fn lvm(start: &Start<'_>) -> Option<Claim> {
    let at = (0..2048).step_by(512).find(|at| start.has(*at, b"LABELONE").is_some())?;
    start.has(at + 24, b"LVM2 001")?;
    let header = at.checked_add(usize::try_from(start.le32(at + 20)?).ok()?)?;
    claim("a physical volume of LVM", start.le64(header + 32)?, 1)
}

/// Version 1.1, whose superblock begins the disk. Versions 0.90 and 1.0 have theirs at the end,
/// where they are seen.
fn md_at_start(start: &Start<'_>) -> Option<Claim> {
    md(start, 0)
}

/// Version 1.2.
fn md_at_4096(start: &Start<'_>) -> Option<Claim> {
    md(start, 4096)
}

/// Linux, include/uapi/linux/raid/md_p.h, struct mdp_superblock_1: magic at 0, major_version at 4,
/// data_offset at 128 and data_size at 136, both in sectors of 512 bytes.
fn md(start: &Start<'_>, at: usize) -> Option<Claim> {
    start.has(at, &[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0])?;
    claim("a member of a RAID (md)", start.le64(at + 128)?.saturating_add(start.le64(at + 136)?), 512)
}

/// Linux, drivers/md/bcache/bcache_ondisk.h, struct cache_sb at 4096: magic at 24. It takes the
/// whole disk.
fn bcache(start: &Start<'_>) -> Option<Claim> {
    const MAGIC: [u8; 16] =
        [0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81];
    start.has(4096 + 24, &MAGIC)?;
    Some(Claim { by: "a device of bcache", until: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DiskAccess, FileDisk};
    use std::path::Path;
    use std::process::Command;

    /// Where bytes lie, and the bytes.
    type Piece<'a> = (usize, &'a [u8]);

    /// A disk of 8 MiB that begins with `pieces`, each at its byte.
    fn disk(folder: &Path, pieces: &[Piece<'_>]) -> FileDisk {
        let mut bytes = vec![0; 8 << 20];
        for (at, piece) in pieces {
            bytes[*at..at + piece.len()].copy_from_slice(piece);
        }
        let path = folder.join("disk");
        std::fs::write(&path, bytes).expect("a disk");
        FileDisk::open(&path, DiskAccess::ReadOnly, 4096).expect("it opens")
    }

    #[test]
    fn whatever_takes_the_end_of_a_disk_is_known_by_its_beginning() {
        let sector = 1_u64.to_le_bytes();
        let sectors = 16_000_u64.to_le_bytes();
        let partition = [&[0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0][..], &13_952_u32.to_le_bytes()].concat();
        let two_blocks = [&4096_u32.to_be_bytes()[..], &2000_u64.to_be_bytes()].concat();
        let label = [&b"LABELONE"[..], &sector, &[0, 0, 0, 0], &32_u32.to_le_bytes(), b"LVM2 001"].concat();
        let all = None;
        let most = Some(8_192_000);
        let known: [(&str, &[Piece<'_>], Option<u64>); 13] = [
            ("ext", &[(1080, &[0x53, 0xef]), (1028, &2000_u32.to_le_bytes()), (1048, &[2])], most),
            ("XFS", &[(0, b"XFSB"), (4, &two_blocks)], most),
            ("btrfs", &[(65_600, b"_BHRfS_M"), (65_536 + 0xd1, &8_192_000_u64.to_le_bytes())], most),
            ("F2FS", &[(1024, &[0x10, 0x20, 0xf5, 0xf2]), (1040, &[12]), (1060, &2000_u64.to_le_bytes())], most),
            ("swap", &[(4086, b"SWAPSPACE2"), (1028, &1999_u32.to_le_bytes())], most),
            ("GPT", &[(512, b"EFI PART"), (544, &15_999_u64.to_le_bytes()), (510, &[0x55, 0xaa])], most),
            ("partition", &[(446, &partition), (510, &[0x55, 0xaa])], most),
            ("FAT", &[(11, &[0, 2]), (32, &sectors[..4]), (82, b"FAT32"), (510, &[0x55, 0xaa])], most),
            ("NTFS", &[(3, b"NTFS    "), (11, &[0, 2]), (40, &15_999_u64.to_le_bytes())], most),
            ("exFAT", &[(3, b"EXFAT   "), (72, &sectors), (108, &[9])], most),
            ("LUKS", &[(0, b"LUKS\xba\xbe")], all),
            ("LVM", &[(512, &label), (544 + 32, &8_192_000_u64.to_le_bytes())], most),
            ("RAID", &[(4096, &[0xfc, 0x4e, 0x2b, 0xa9, 1]), (4224, &sector), (4232, &15_999_u64.to_le_bytes())], most),
        ];
        let folder = tempfile::tempdir().expect("a folder");
        for (name, pieces, until) in known {
            let disk = disk(folder.path(), pieces);
            let claim = claim_of(&disk, 8_191_999).expect("it can be read").expect(name);
            assert!(claim.by.contains(name) && claim.until == until, "{name}: {claim:?}");
            assert_eq!(claim_of(&disk, 8_192_000).expect("it can be read").is_some(), until.is_none(), "{name}");
        }
        assert_eq!(claim_of(&disk(folder.path(), &[]), 0).expect("it can be read"), None);
    }

    #[test]
    fn numbers_that_cannot_be_true_take_all_of_the_disk_or_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let ones = [0xff; 8];
        let absurd: [&[Piece<'_>]; 3] = [
            &[(1080, &[0x53, 0xef]), (1028, &ones), (1048, &ones), (1120, &ones), (1360, &ones)],
            &[(3, b"EXFAT   "), (72, &ones), (108, &ones)],
            &[(512, b"LABELONE"), (532, &ones[..4]), (536, b"LVM2 001")],
        ];
        for pieces in absurd {
            let found = claim_of(&disk(folder.path(), pieces), 0).expect("it can be read");
            assert!(found.is_none_or(|claim| claim.until.is_none()), "{found:?}");
        }
    }

    #[test]
    fn what_real_programs_make_is_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        let made: [(&[&str], &str, u64); 4] = [
            (&["mkfs.ext4", "-q", "-F", "-b", "4096"], "ext", 8 << 20),
            (&["mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "64bit"], "ext", 8 << 20),
            (&["mkfs.ext2", "-q", "-F"], "ext", 8 << 20),
            (&["mkswap"], "swap", 8 << 20),
        ];
        for (words, name, until) in made {
            drop(disk(folder.path(), &[]));
            let path_to_it = format!("/usr/sbin:/sbin:{}", std::env::var("PATH").unwrap_or_default());
            let ended = Command::new(words[0]).args(&words[1..]).arg(&path).env("PATH", path_to_it).output();
            let ended = ended.unwrap_or_else(|error| panic!("Debian's e2fsprogs and util-linux have it: {error}"));
            assert!(ended.status.success(), "{ended:?}");
            let disk = FileDisk::open(&path, DiskAccess::ReadOnly, 4096).expect("it opens");
            let claim = claim_of(&disk, until - 4096).expect("it can be read").expect(name);
            assert!(claim.by.contains(name) && claim.until == Some(until), "{words:?}: {claim:?}");
        }
    }
}
