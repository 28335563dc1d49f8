//! The namespace log: changes to names, attributes and extended attributes, one record an
//! operation, in a ring between two cursors.
//!
//! A *place* counts the log's lines of 64 bytes from its first use and never begins anew: line n
//! lies in line n modulo the ring's size. A record begins at a place and fills whole lines: a head,
//! and behind it a path, a second path or name, and a value. It carries its own place and a
//! checksum, so recovery takes no leftover of an older record for it.

use crate::on_media::{Broken, on_media, rule};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Bytes of a line: what places of the log are counted in.
pub const LOG_LINE_BYTES: u64 = 64;

/// Bytes of the longest path, and of the longest target of a symbolic link.
const LOGGED_PATH_BYTES_MAX: usize = 4095;

/// Bytes of the longest value of an extended attribute.
const LOGGED_VALUE_BYTES_MAX: usize = 1 << 16;

/// Lines of the smallest ring: half of it has room for any record.
pub const NAMESPACE_LINES_MIN: u32 = 4096;

const NAME_RECORD_BYTES_MAX: usize = size_of::<NameRecord>() + 2 * LOGGED_PATH_BYTES_MAX + LOGGED_VALUE_BYTES_MAX;

const _: () = assert!(NAME_RECORD_BYTES_MAX as u64 <= NAMESPACE_LINES_MIN as u64 / 2 * LOG_LINE_BYTES);

/// Where the ring lies, from the cursors.
const RING_IN_LOG: u64 = 4096;

on_media! {
    /// The head of a record of the namespace log. Its paths, name and value follow it, without
    /// gaps; the next record begins at the next line of 64 bytes.
    pub struct NameRecord [128] {
        /// where the record begins, in lines from the log's first use
        0: place: U64,
        /// bytes of the record, with what follows its head
        8: length: U32,
        /// CRC-32C of all those bytes but these four
        12: checksum: U32,
        /// 1: made; 2: linked; 3: removed; 4: renamed; 5: exchanged; 6: attributes set; 7: extended
        /// attribute set; 8: extended attribute removed; 9: recovery made the inode anew, as the
        /// other inode; 10: recovery began to repeat operations
        16: kind: U16,
        /// which of the words that may be absent are there: bit 0 mode, 1 owner, 2 group, 3 time of
        /// access, 4 time of modification, 5 the other inode; bit 8: the last name of the inode, or
        /// of the other inode, is gone
        18: flags: U16,
        /// type and permissions, as in `st_mode`
        20: mode: U32,
        /// user
        24: owner: U32,
        /// group
        28: group: U32,
        /// device number of a special file
        32: special: U64,
        /// number of the inode
        40: inode: U64,
        /// which of the inodes that had this number
        48: generation: U64,
        /// number of the inode that was replaced or exchanged
        56: other_inode: U64,
        /// which of the inodes that had this number
        64: other_generation: U64,
        /// seconds of the time of access, in two's complement
        72: accessed: U64,
        /// seconds of the time of modification, in two's complement
        80: modified: U64,
        /// nanoseconds of the time of access
        88: accessed_nanos: U32,
        /// nanoseconds of the time of modification
        92: modified_nanos: U32,
        /// bytes of the path, from the served directory on
        96: path_length: U32,
        /// bytes of the new path, of the symbolic link's target, or of the attribute's name
        100: second_length: U32,
        /// bytes of the extended attribute's value
        104: value_length: U32,
        /// zero
        108: reserved: [u8; 20],
    }
}

/// Which inode of the served file system an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIdentity {
    /// Number of the inode.
    pub inode: u64,
    /// Which of the inodes that had this number (`FS_IOC_GETVERSION`, or the time of birth).
    pub generation: u64,
}

/// A time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedTime {
    /// Seconds from 1970 on.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanos: u32,
}

/// Attributes, of which those that are `None` stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeAttributes {
    /// Type and permissions as in `st_mode`.
    pub mode: Option<u32>,
    /// User.
    pub owner: Option<u32>,
    /// Group.
    pub group: Option<u32>,
    /// Time of access.
    pub accessed: Option<LoggedTime>,
    /// Time of modification.
    pub modified: Option<LoggedTime>,
}

/// An inode that lost a name, and whether that was its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostName {
    /// The inode.
    pub node: NodeIdentity,
    /// Whether no name is left.
    pub last: bool,
}

/// An operation as its record tells it. Paths begin at the served directory, have no leading slash,
/// and are those that were valid immediately before the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameChange<'a> {
    /// `path` was made: a regular file, directory, special file or symbolic link, as the type in
    /// `mode` says.
    Made {
        /// The new name.
        path: &'a [u8],
        /// The new inode.
        node: NodeIdentity,
        /// Type and permissions as in `st_mode`.
        mode: u32,
        /// User.
        owner: u32,
        /// Group.
        group: u32,
        /// Device number of a special file, else 0.
        special: u64,
        /// Target of a symbolic link, else empty.
        target: &'a [u8],
    },
    /// `to` became one more name of the inode at `path`.
    Linked {
        /// The name it had.
        path: &'a [u8],
        /// The new name.
        to: &'a [u8],
        /// The inode.
        node: NodeIdentity,
    },
    /// `path` was removed: a file's name, or an empty directory.
    Removed {
        /// The name.
        path: &'a [u8],
        /// The inode, and whether this was its last name.
        lost: LostName,
    },
    /// `path` became `to`. What had that name before lost it.
    Renamed {
        /// The former name.
        path: &'a [u8],
        /// The new name.
        to: &'a [u8],
        /// The inode that moved.
        node: NodeIdentity,
        /// The inode that was replaced, if there was one.
        replaced: Option<LostName>,
    },
    /// The inodes at `path` and `to` changed places.
    Exchanged {
        /// The first name.
        path: &'a [u8],
        /// The second name.
        to: &'a [u8],
        /// The inode that was at `path`.
        node: NodeIdentity,
        /// The inode that was at `to`.
        other: NodeIdentity,
    },
    /// Attributes of the inode at `path` were set.
    AttributesSet {
        /// A name of it.
        path: &'a [u8],
        /// The inode.
        node: NodeIdentity,
        /// The new attributes.
        attributes: NodeAttributes,
    },
    /// An extended attribute of the inode at `path` was set.
    XattrSet {
        /// A name of the inode.
        path: &'a [u8],
        /// The inode.
        node: NodeIdentity,
        /// The attribute's name.
        name: &'a [u8],
        /// The attribute's value.
        value: &'a [u8],
    },
    /// An extended attribute of the inode at `path` was removed.
    XattrRemoved {
        /// A name of the inode.
        path: &'a [u8],
        /// The inode.
        node: NodeIdentity,
        /// The attribute's name.
        name: &'a [u8],
    },
}

/// What a record of the log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRecord<'a> {
    /// An operation was done.
    Change(NameChange<'a>),
    /// Recovery made an inode anew whose creation was lost.
    MadeAnew {
        /// The inode of the operation's record.
        node: NodeIdentity,
        /// The inode that has its place.
        anew: NodeIdentity,
    },
    /// Recovery began to repeat operations.
    ReplayBegun,
}

/// Where the parts of the namespace log lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespacePlan {
    /// Where its cursors lie.
    pub cursors_at: u64,
    /// Where its ring lies.
    pub ring_at: u64,
    /// Lines in its ring.
    pub lines: u32,
}

impl NamespacePlan {
    pub(super) fn at(cursors_at: u64, lines: u32) -> NamespacePlan {
        NamespacePlan { cursors_at, ring_at: cursors_at + RING_IN_LOG, lines }
    }

    /// One past the log's last byte.
    pub fn end(&self) -> u64 {
        self.ring_at + u64::from(self.lines) * LOG_LINE_BYTES
    }
}

const MODE: u16 = 1;
const OWNER: u16 = 1 << 1;
const GROUP: u16 = 1 << 2;
const ACCESSED: u16 = 1 << 3;
const MODIFIED: u16 = 1 << 4;
const OTHER: u16 = 1 << 5;
const LAST: u16 = 1 << 8;

const MADE: u16 = 1;
const LINKED: u16 = 2;
const REMOVED: u16 = 3;
const RENAMED: u16 = 4;
const EXCHANGED: u16 = 5;
const ATTRIBUTES_SET: u16 = 6;
const XATTR_SET: u16 = 7;
const XATTR_REMOVED: u16 = 8;
const MADE_ANEW: u16 = 9;
const REPLAY_BEGUN: u16 = 10;

impl<'a> LogRecord<'a> {
    /// This record at `place`: whole lines. `None` if a path or the value is longer than a record
    /// takes.
    pub fn bytes(&self, place: u64) -> Option<Vec<u8>> {
        let mut head = NameRecord::new_zeroed();
        head.place = U64::new(place);
        let (path, second, value) = match self {
            LogRecord::Change(change) => {
                let (second, value) = change.fill(&mut head);
                (change.path(), second, value)
            }
            LogRecord::MadeAnew { node, anew } => {
                head.kind = U16::new(MADE_ANEW);
                (head.inode, head.generation) = (U64::new(node.inode), U64::new(node.generation));
                head.put_other(*anew, false);
                Default::default()
            }
            LogRecord::ReplayBegun => {
                head.kind = U16::new(REPLAY_BEGUN);
                Default::default()
            }
        };
        let fits = path.len().max(second.len()) <= LOGGED_PATH_BYTES_MAX && value.len() <= LOGGED_VALUE_BYTES_MAX;
        fits.then(|| head.followed_by(path, second, value))
    }

    /// The record that begins `bytes`, if it is the one of `place`, and the lines it fills.
    pub fn parse(bytes: &'a [u8], place: u64) -> Result<(LogRecord<'a>, u64), Broken> {
        let (head, _) = NameRecord::read_from_prefix(bytes).map_err(|_| torn(bytes.len()))?;
        let record = bytes.get(..head.bytes(place)?).ok_or_else(|| torn(bytes.len()))?;
        rule(head.checksum.get() == digest(record), "the checksum is that of the record", 12, head.checksum)?;
        let mut rest = &record[size_of::<NameRecord>()..];
        let mut part = |length: U32| {
            let (part, left) = usize::try_from(length.get()).ok().and_then(|length| rest.split_at_checked(length))?;
            rest = left;
            Some(part)
        };
        let parts = [part(head.path_length), part(head.second_length), part(head.value_length)];
        let [Some(path), Some(second), Some(value)] = parts else { return Err(torn(record.len())) };
        Ok((head.meaning(path, second, value)?, record.len().div_ceil(LINE) as u64))
    }
}

impl<'a> NameChange<'a> {
    /// Its first path.
    pub fn path(&self) -> &'a [u8] {
        match *self {
            NameChange::Made { path, .. }
            | NameChange::Linked { path, .. }
            | NameChange::Removed { path, .. }
            | NameChange::Renamed { path, .. }
            | NameChange::Exchanged { path, .. }
            | NameChange::AttributesSet { path, .. }
            | NameChange::XattrSet { path, .. }
            | NameChange::XattrRemoved { path, .. } => path,
        }
    }

    /// The inode it is about.
    pub fn node(&self) -> NodeIdentity {
        match *self {
            NameChange::Made { node, .. }
            | NameChange::Linked { node, .. }
            | NameChange::Removed { lost: LostName { node, .. }, .. }
            | NameChange::Renamed { node, .. }
            | NameChange::Exchanged { node, .. }
            | NameChange::AttributesSet { node, .. }
            | NameChange::XattrSet { node, .. }
            | NameChange::XattrRemoved { node, .. } => node,
        }
    }

    /// Writes the words of the head but lengths and checksum. Returns the second part and the
    /// value.
    fn fill(&self, head: &mut NameRecord) -> (&'a [u8], &'a [u8]) {
        let node = self.node();
        (head.inode, head.generation) = (U64::new(node.inode), U64::new(node.generation));
        let (kind, second, value): (u16, &[u8], &[u8]) = match *self {
            NameChange::Made { mode, owner, group, special, target, .. } => {
                (head.mode, head.owner, head.group) = (U32::new(mode), U32::new(owner), U32::new(group));
                head.special = U64::new(special);
                (MADE, target, &[])
            }
            NameChange::Linked { to, .. } => (LINKED, to, &[]),
            NameChange::Removed { lost, .. } => {
                head.flags = U16::new(if lost.last { LAST } else { 0 });
                (REMOVED, &[], &[])
            }
            NameChange::Renamed { to, replaced, .. } => {
                if let Some(LostName { node, last }) = replaced {
                    head.put_other(node, last);
                }
                (RENAMED, to, &[])
            }
            NameChange::Exchanged { to, other, .. } => {
                head.put_other(other, false);
                (EXCHANGED, to, &[])
            }
            NameChange::AttributesSet { attributes, .. } => {
                head.put_attributes(&attributes);
                (ATTRIBUTES_SET, &[], &[])
            }
            NameChange::XattrSet { name, value, .. } => (XATTR_SET, name, value),
            NameChange::XattrRemoved { name, .. } => (XATTR_REMOVED, name, &[]),
        };
        head.kind = U16::new(kind);
        (second, value)
    }
}

impl NameRecord {
    /// Bytes of the record whose head this is, if it is the one of `place` and no longer than a
    /// record may be. They are checked when they are read.
    pub fn bytes(&self, place: u64) -> Result<usize, Broken> {
        rule(self.place.get() == place, "a record carries its own place", 0, self.place)?;
        let bytes = usize::try_from(self.length.get()).unwrap_or(usize::MAX);
        rule(
            (size_of::<NameRecord>()..=NAME_RECORD_BYTES_MAX).contains(&bytes),
            "a record's length is in range",
            8,
            self.length,
        )?;
        Ok(bytes)
    }

    /// The whole record: lengths and checksum, and lines filled up with zeroes.
    fn followed_by(mut self, path: &[u8], second: &[u8], value: &[u8]) -> Vec<u8> {
        let bytes_of = |part: &[u8]| U32::new(u32::try_from(part.len()).expect("the caller bounds it"));
        self.path_length = bytes_of(path);
        self.second_length = bytes_of(second);
        self.value_length = bytes_of(value);
        let mut bytes = [self.as_bytes(), path, second, value].concat();
        let length = bytes_of(&bytes);
        bytes[8..12].copy_from_slice(length.as_bytes());
        let checksum = digest(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(LINE), 0);
        bytes
    }

    fn put_other(&mut self, node: NodeIdentity, last: bool) {
        self.flags = U16::new(OTHER | if last { LAST } else { 0 });
        (self.other_inode, self.other_generation) = (U64::new(node.inode), U64::new(node.generation));
    }

    fn put_attributes(&mut self, attributes: &NodeAttributes) {
        let NodeAttributes { mode, owner, group, accessed, modified } = *attributes;
        let present = [
            (MODE, mode.is_some()),
            (OWNER, owner.is_some()),
            (GROUP, group.is_some()),
            (ACCESSED, accessed.is_some()),
            (MODIFIED, modified.is_some()),
        ];
        self.flags = U16::new(present.iter().filter(|(_, there)| *there).fold(0, |flags, (flag, _)| flags | flag));
        self.mode = U32::new(mode.unwrap_or(0));
        (self.owner, self.group) = (U32::new(owner.unwrap_or(0)), U32::new(group.unwrap_or(0)));
        let words = |time: Option<LoggedTime>| {
            time.map_or((U64::ZERO, U32::ZERO), |time| (U64::new(time.seconds.cast_unsigned()), U32::new(time.nanos)))
        };
        (self.accessed, self.accessed_nanos) = words(accessed);
        (self.modified, self.modified_nanos) = words(modified);
    }

    fn attributes(&self) -> NodeAttributes {
        let time = |seconds: U64, nanos: U32| LoggedTime { seconds: seconds.get().cast_signed(), nanos: nanos.get() };
        NodeAttributes {
            mode: self.has(MODE).then_some(self.mode.get()),
            owner: self.has(OWNER).then_some(self.owner.get()),
            group: self.has(GROUP).then_some(self.group.get()),
            accessed: self.has(ACCESSED).then_some(time(self.accessed, self.accessed_nanos)),
            modified: self.has(MODIFIED).then_some(time(self.modified, self.modified_nanos)),
        }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags.get() & flag != 0
    }

    fn meaning<'a>(&self, path: &'a [u8], second: &'a [u8], value: &'a [u8]) -> Result<LogRecord<'a>, Broken> {
        let node = NodeIdentity { inode: self.inode.get(), generation: self.generation.get() };
        let other = NodeIdentity { inode: self.other_inode.get(), generation: self.other_generation.get() };
        let last = self.has(LAST);
        Ok(LogRecord::Change(match self.kind.get() {
            MADE => NameChange::Made {
                path,
                node,
                mode: self.mode.get(),
                owner: self.owner.get(),
                group: self.group.get(),
                special: self.special.get(),
                target: second,
            },
            LINKED => NameChange::Linked { path, to: second, node },
            REMOVED => NameChange::Removed { path, lost: LostName { node, last } },
            RENAMED => {
                let replaced = self.has(OTHER).then_some(LostName { node: other, last });
                NameChange::Renamed { path, to: second, node, replaced }
            }
            EXCHANGED => NameChange::Exchanged { path, to: second, node, other },
            ATTRIBUTES_SET => NameChange::AttributesSet { path, node, attributes: self.attributes() },
            XATTR_SET => NameChange::XattrSet { path, node, name: second, value },
            XATTR_REMOVED => NameChange::XattrRemoved { path, node, name: second },
            MADE_ANEW => return Ok(LogRecord::MadeAnew { node, anew: other }),
            REPLAY_BEGUN => return Ok(LogRecord::ReplayBegun),
            unknown => return Err(Broken { rule: "a record's kind is known", offset: 16, found: unknown.to_string() }),
        }))
    }
}

const LINE: usize = 64;
const _: () = assert!(LINE as u64 == LOG_LINE_BYTES);

/// All of a record but its checksum.
fn digest(record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record[..12]), &record[16..])
}

fn torn(bytes: usize) -> Broken {
    Broken { rule: "a record is whole", offset: 8, found: bytes.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeIdentity = NodeIdentity { inode: 0x0a, generation: 0x0b };
    const OTHER_NODE: NodeIdentity = NodeIdentity { inode: 0x0c, generation: 0x0d };

    fn changes() -> Vec<NameChange<'static>> {
        let (path, to, node, name) = (&b"d/a"[..], &b"d/\xff"[..], NODE, &b"user.x"[..]);
        let lost = LostName { node: OTHER_NODE, last: true };
        let time = LoggedTime { seconds: -1, nanos: 999 };
        let attributes = NodeAttributes { owner: Some(0), modified: Some(time), ..NodeAttributes::default() };
        vec![
            NameChange::Made { path, node, mode: 0o120_777, owner: 1, group: 2, special: 3, target: b"../x" },
            NameChange::Linked { path, to, node },
            NameChange::Removed { path, lost },
            NameChange::Renamed { path, to, node, replaced: None },
            NameChange::Renamed { path, to, node, replaced: Some(lost) },
            NameChange::Exchanged { path, to, node, other: OTHER_NODE },
            NameChange::AttributesSet { path, node, attributes },
            NameChange::XattrSet { path, node, name, value: &[7; 200] },
            NameChange::XattrRemoved { path, node, name },
        ]
    }

    fn bytes_of(change: NameChange<'_>, place: u64) -> Option<Vec<u8>> {
        LogRecord::Change(change).bytes(place)
    }

    #[test]
    fn golden_bytes_of_a_record() {
        let bytes = bytes_of(changes()[4], 0x0102).unwrap();
        assert_eq!(bytes.len(), 192);
        assert_eq!(&bytes[..12], b"\x02\x01\0\0\0\0\0\0\x86\0\0\0");
        assert_eq!(&bytes[16..20], b"\x04\0\x20\x01");
        for (at, byte) in [(40, 0x0a), (48, 0x0b), (56, 0x0c), (64, 0x0d), (96, 3), (100, 3), (104, 0)] {
            assert_eq!((bytes[at], &bytes[at + 1..at + 4]), (byte, &[0; 3][..]), "byte {at}");
        }
        assert_eq!(&bytes[128..136], b"d/ad/\xff\0\0");
    }

    #[test]
    fn every_record_is_read_as_it_was_written() {
        let anew = LogRecord::MadeAnew { node: NODE, anew: OTHER_NODE };
        let changes = changes();
        let records = changes.into_iter().map(LogRecord::Change).chain([anew, LogRecord::ReplayBegun]);
        for record in records {
            let bytes = record.bytes(9).unwrap();
            let lines = (bytes.len() / 64) as u64;
            assert_eq!(LogRecord::parse(&bytes, 9), Ok((record, lines)));
            assert!(LogRecord::parse(&bytes, 10).is_err());
        }
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let whole = bytes_of(changes()[0], 1).unwrap();
        for byte in 0..NameRecord::read_from_prefix(&whole).unwrap().0.length.get() as usize {
            let mut bytes = whole.clone();
            bytes[byte] ^= 4;
            assert!(LogRecord::parse(&bytes, 1).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn what_is_too_long_has_no_record() {
        let long = vec![b'x'; LOGGED_PATH_BYTES_MAX + 1];
        let value = vec![0; LOGGED_VALUE_BYTES_MAX];
        assert_eq!(bytes_of(NameChange::Linked { path: b"a", to: &long, node: NODE }, 0), None);
        let set = |value| bytes_of(NameChange::XattrSet { path: &long[1..], node: NODE, name: &long[1..], value }, 0);
        assert!(set(&value).is_some_and(|bytes| bytes.len() as u64 <= 2048 * LOG_LINE_BYTES));
        assert_eq!(set(&[&value[..], b"1"].concat()), None);
    }
}
