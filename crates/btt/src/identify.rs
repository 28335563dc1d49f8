//! Says what lies on a region, before anything is written to it.

use crate::locate::{CopyState, NotLocated, Summary, locate};
use tidegate_layout::btt::PAGE_BYTES;
use tidegate_media::{Corrupt, Poison, Region};

/// What lies on a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Zeroes, where anybody puts a signature.
    Blank,
    /// A block translation table whose info blocks are sound.
    Btt(Summary),
    /// What is left of one.
    Damaged {
        /// The first rule that is broken.
        corrupt: Corrupt,
        /// What it is, if a second info block is intact.
        twin: Option<Summary>,
    },
    /// Something else.
    Foreign {
        /// What its first bytes look like.
        what: &'static str,
    },
}

/// Where a signature lies, what it is, and whose.
type Signature = (u64, &'static [u8], &'static str);

const SIGNATURES: [Signature; 16] = [
    (0, b"PMEMBLK\0", "a libpmemblk pool"),
    (0, b"PMEMOBJ\0", "a libpmemobj pool"),
    (0, b"PMEMLOG\0", "a libpmemlog pool"),
    (4096, b"NVDIMM_PFN_INFO\0", "an fsdax namespace"),
    (4096, b"NVDIMM_DAX_INFO\0", "a devdax namespace"),
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a Linux software RAID"),
    (0xff6, b"SWAPSPACE2", "swap space"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (510, b"\x55\xaa", "a boot sector or MBR partition table"),
];

/// Bytes at the start of a region that are looked at for signatures.
const HEAD_BYTES: u64 = 0x10000 + PAGE_BYTES;

/// Says what lies on `region`. Reads only.
pub fn identify<R: Region + ?Sized>(region: &R) -> Result<Identity, Poison> {
    match locate(region, None) {
        Ok(located) => {
            let summary = located.summary();
            let first_damaged = located.arenas.iter().find(|found| found.first != CopyState::Good);
            Ok(match first_damaged {
                None => Identity::Btt(summary),
                Some(found) => Identity::Damaged {
                    corrupt: Corrupt {
                        rule: "both info blocks are good",
                        at: found.arena.start(),
                        found: found.first.to_string(),
                    },
                    twin: Some(summary),
                },
            })
        }
        Err(NotLocated::Corrupt(corrupt)) => Ok(Identity::Damaged { corrupt, twin: None }),
        Err(NotLocated::CutShort { needs, has }) => Ok(Identity::Damaged {
            corrupt: Corrupt {
                rule: "the volume lies inside its region",
                at: has,
                found: format!("{needs} bytes needed"),
            },
            twin: None,
        }),
        Err(NotLocated::Unreadable(poison)) => Err(poison),
        Err(NotLocated::Absent) => foreign(region),
    }
}

fn foreign<R: Region + ?Sized>(region: &R) -> Result<Identity, Poison> {
    let head_bytes = usize::try_from(region.len().min(HEAD_BYTES)).expect("at most HEAD_BYTES");
    let mut head = vec![0; head_bytes];
    region.read(0, &mut head)?;
    let there = |(at, signature, _): &&Signature| {
        usize::try_from(*at).ok().and_then(|at| head.get(at..)).is_some_and(|bytes| bytes.starts_with(signature))
    };
    if let Some((_, _, what)) = SIGNATURES.iter().find(there) {
        return Ok(Identity::Foreign { what });
    }
    if head.iter().any(|byte| *byte != 0) {
        return Ok(Identity::Foreign { what: "data that is not recognised" });
    }
    Ok(Identity::Blank)
}
