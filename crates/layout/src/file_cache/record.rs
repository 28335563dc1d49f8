//! Records: one for each file of a lane.

use crate::on_media::{Broken, on_media, rule};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// Bytes of the longest path hint.
pub const PATH_HINT_BYTES_MAX: usize = 176;

on_media! {
    /// A file of the lane. Its first line changes with commits; the rest is written before `state`
    /// says that the record is in use.
    pub struct FileRecord [256] {
        /// bytes in the file, but for what entries newer than `version` add
        0: size: U64,
        /// entries up to this version are void: the file below has their bytes
        8: void: U64,
        /// entries up to this version count only below `size`
        16: version: U64,
        /// the file's own mark of its last change, durable there too, if nothing has changed it
        /// since; all ones: its data was to be salvaged, and no file is taken for it; otherwise 0
        24: stamp: U64,
        /// 1: the record is in use; 0: it is not
        32: state: U64,
        /// when a program changed the contents last, if the file below may say otherwise: seconds
        /// since 1901-12-13T20:45:52Z in 34 bits, above nanoseconds and one; otherwise 0
        40: modified: U64,
        /// number of the file system's device
        48: device: U64,
        /// number of the inode
        56: inode: U64,
        /// which of the files that had this inode
        64: generation: U64,
        /// bytes in the path hint
        72: hint_length: U32,
        /// CRC-32C of bytes 48 to 75 and 80 to 255
        76: checksum: U32,
        /// where the file was when it was opened
        80: hint: [u8; 176],
    }
}

/// A record in use that keeps the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedRecord {
    /// Device, inode and generation.
    pub identity: [u64; 3],
    /// Where the file was.
    pub hint: Vec<u8>,
    /// Bytes in the file, but for what newer entries add.
    pub size: u64,
    /// Up to which version the file's entries are void.
    pub void: u64,
    /// Up to which version entries count only below `size`.
    pub version: u64,
    /// The file's mark of its last change, or 0.
    pub stamp: u64,
    /// When a program changed the contents last, or 0.
    pub modified: u64,
}

impl FileRecord {
    /// Where the changing words lie, from the record's beginning.
    pub const SIZE_AT: u64 = 0;
    /// See the field.
    pub const VOID_AT: u64 = 8;
    /// See the field.
    pub const VERSION_AT: u64 = 16;
    /// See the field.
    pub const STAMP_AT: u64 = 24;
    /// See the field.
    pub const STATE_AT: u64 = 32;
    /// See the field.
    pub const MODIFIED_AT: u64 = 40;
    /// Bytes from the record's beginning that have all changing words.
    pub const CHANGING_BYTES: u64 = 48;

    /// The record of a file, not in use yet. The hint has at most [`PATH_HINT_BYTES_MAX`] bytes.
    pub fn new(record: &TrustedRecord) -> FileRecord {
        let [device, inode, generation] = record.identity.map(U64::new);
        let mut hint = [0; PATH_HINT_BYTES_MAX];
        hint[..record.hint.len()].copy_from_slice(&record.hint);
        let mut raw = FileRecord {
            size: U64::new(record.size),
            void: U64::new(record.void),
            version: U64::new(record.version),
            stamp: U64::new(record.stamp),
            state: U64::ZERO,
            modified: U64::new(record.modified),
            device,
            inode,
            generation,
            hint_length: U32::new(u32::try_from(record.hint.len()).expect("a hint is short")),
            checksum: U32::ZERO,
            hint,
        };
        raw.checksum = U32::new(raw.digest());
        raw
    }

    /// What the record says, if it is in use and keeps the rules.
    pub fn check(&self) -> Result<Option<TrustedRecord>, Broken> {
        if self.state.get() == 0 {
            return Ok(None);
        }
        rule(self.state.get() == 1, "a record is in use or not", FileRecord::STATE_AT, self.state)?;
        rule(self.checksum.get() == self.digest(), "the checksum is that of the record", 76, self.checksum)?;
        let hint = usize::try_from(self.hint_length.get()).ok().and_then(|length| self.hint.get(..length));
        let hint = hint.ok_or_else(|| Broken {
            rule: "the path hint fits into its record",
            offset: 72,
            found: self.hint_length.to_string(),
        })?;
        Ok(Some(TrustedRecord {
            identity: [self.device.get(), self.inode.get(), self.generation.get()],
            hint: hint.to_vec(),
            size: self.size.get(),
            void: self.void.get(),
            version: self.version.get(),
            stamp: self.stamp.get(),
            modified: self.modified.get(),
        }))
    }

    fn digest(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c_append(crc32c::crc32c(&bytes[48..76]), &bytes[80..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    fn trusted() -> TrustedRecord {
        let hint = b"/srv/data/log".to_vec();
        TrustedRecord { identity: [0x0a, 0x0b, 0x0c], hint, size: 1, void: 2, version: 3, stamp: 4, modified: 5 }
    }

    #[test]
    fn golden_bytes_of_a_record() {
        let mut raw = FileRecord::new(&trusted());
        assert_eq!(raw.check(), Ok(None));
        raw.state = U64::new(1);
        let bytes = raw.as_bytes();
        for (at, byte) in
            [(0, 1), (8, 2), (16, 3), (24, 4), (32, 1), (40, 5), (48, 0x0a), (56, 0x0b), (64, 0x0c), (72, 13)]
        {
            assert_eq!((bytes[at], &bytes[at + 1..at + 4]), (byte, &[0; 3][..]), "byte {at}");
        }
        assert_eq!(&bytes[80..94], b"/srv/data/log\0");
        assert_eq!(raw.check(), Ok(Some(trusted())));
    }

    #[test]
    fn every_changed_byte_of_what_stays_is_noticed() {
        let mut raw = FileRecord::new(&trusted());
        raw.state = U64::new(1);
        for byte in 48..size_of::<FileRecord>() {
            let mut bytes = [0; size_of::<FileRecord>()];
            bytes.copy_from_slice(raw.as_bytes());
            bytes[byte] ^= 4;
            assert!(FileRecord::read_from_bytes(&bytes).unwrap().check().is_err(), "byte {byte}");
        }
    }
}
