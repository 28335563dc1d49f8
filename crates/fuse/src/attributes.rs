//! Nodes, times and file systems as replies describe them.

use crate::ids::NodeId;
use crate::wire::{Attr, EntryOut, StatfsOut, StatxAttr, SxTime};
use std::time::Duration;

/// A point of time, since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// The rest, below a thousand million.
    pub nanoseconds: u32,
}

/// Attributes of a node, as `stat` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number that programs see.
    pub inode: u64,
    /// Bytes in the file.
    pub size: u64,
    /// Blocks of 512 bytes that are allocated.
    pub blocks: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of the contents.
    pub modified: Time,
    /// Last change of contents or attributes.
    pub changed: Time,
    /// Type and permissions.
    pub mode: u32,
    /// Names of the node.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as [`device_number`](Attributes::device_number) makes it.
    pub device: u32,
    /// Best length for reads and writes.
    pub block_bytes: u32,
}

/// Attributes that only `statx` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtendedAttributes {
    /// The attributes that `stat` shows as well.
    pub attributes: Attributes,
    /// Creation, where the file system keeps it.
    pub born: Option<Time>,
    /// `STATX_ATTR_` flags that are set.
    pub flags: u64,
    /// `STATX_ATTR_` flags that the file system knows.
    pub flags_known: u64,
}

/// A name's node, and for how long the kernel may cache name and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The node. The kernel counts one more lookup of it.
    pub node: NodeId,
    /// Tells nodes apart that had the same number one after the other.
    pub generation: u64,
    /// The node's attributes.
    pub attributes: Attributes,
    /// How long the name stays valid.
    pub name_valid: Duration,
    /// How long the attributes stay valid.
    pub attributes_valid: Duration,
}

/// Room of a file system, as `statfs` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// All blocks, in units of `fragment_bytes`.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for users other than root.
    pub blocks_available: u64,
    /// All nodes.
    pub files: u64,
    /// Free nodes.
    pub files_free: u64,
    /// Best length for reads and writes.
    pub block_bytes: u32,
    /// Unit of the counts of blocks.
    pub fragment_bytes: u32,
    /// Longest name, in bytes.
    pub name_bytes_max: u32,
}

/// `STATX_BASIC_STATS`: all that `stat` shows as well.
const STATX_BASIC_STATS: u32 = 0x7ff;
/// `STATX_BTIME`: the time of creation.
const STATX_BTIME: u32 = 0x800;

impl Attributes {
    /// Returns the number of a device in the protocol's 32 bits (`new_encode_dev` of Linux).
    pub const fn device_number(major: u32, minor: u32) -> u32 {
        (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
    }

    /// Returns major and minor number of a device in the protocol's 32 bits.
    pub const fn device_parts(number: u32) -> (u32, u32) {
        ((number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xf_ff00))
    }

    pub(crate) fn record(&self) -> Attr {
        Attr {
            ino: self.inode,
            size: self.size,
            blocks: self.blocks,
            atime: self.accessed.seconds.cast_unsigned(),
            mtime: self.modified.seconds.cast_unsigned(),
            ctime: self.changed.seconds.cast_unsigned(),
            atimensec: self.accessed.nanoseconds,
            mtimensec: self.modified.nanoseconds,
            ctimensec: self.changed.nanoseconds,
            mode: self.mode,
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.device,
            blksize: self.block_bytes,
            flags: 0,
        }
    }
}

impl ExtendedAttributes {
    pub(crate) fn record(&self) -> StatxAttr {
        let stat = &self.attributes;
        let (rdev_major, rdev_minor) = Attributes::device_parts(stat.device);
        StatxAttr {
            mask: STATX_BASIC_STATS | if self.born.is_some() { STATX_BTIME } else { 0 },
            blksize: stat.block_bytes,
            attributes: self.flags,
            nlink: stat.links,
            uid: stat.uid,
            gid: stat.gid,
            // The types and permissions of Linux have 16 bits.
            mode: (stat.mode & 0xffff) as u16,
            ino: stat.inode,
            size: stat.size,
            blocks: stat.blocks,
            attributes_mask: self.flags_known,
            atime: stat.accessed.record(),
            btime: self.born.unwrap_or_default().record(),
            ctime: stat.changed.record(),
            mtime: stat.modified.record(),
            rdev_major,
            rdev_minor,
            ..StatxAttr::default()
        }
    }
}

impl Time {
    fn record(self) -> SxTime {
        SxTime { tv_sec: self.seconds, tv_nsec: self.nanoseconds, reserved: 0 }
    }
}

impl Entry {
    pub(crate) fn record(&self) -> EntryOut {
        EntryOut {
            nodeid: self.node.0,
            generation: self.generation,
            entry_valid: self.name_valid.as_secs(),
            attr_valid: self.attributes_valid.as_secs(),
            entry_valid_nsec: self.name_valid.subsec_nanos(),
            attr_valid_nsec: self.attributes_valid.subsec_nanos(),
            attr: self.attributes.record(),
        }
    }
}

impl Statistics {
    pub(crate) fn record(&self) -> StatfsOut {
        StatfsOut {
            blocks: self.blocks,
            bfree: self.blocks_free,
            bavail: self.blocks_available,
            files: self.files,
            ffree: self.files_free,
            bsize: self.block_bytes,
            namelen: self.name_bytes_max,
            frsize: self.fragment_bytes,
            ..StatfsOut::default()
        }
    }
}
