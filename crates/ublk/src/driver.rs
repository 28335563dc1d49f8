//! What passes between a server and the driver `ublk_drv`: commands, records, limits.
//!
//! All integers are the machine's own: both ends are on it. Source: Linux 6.12,
//! `include/uapi/linux/ublk_cmd.h` and `drivers/block/ublk_drv.c`.

use zerocopy::native_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a sector, the unit of addresses and lengths.
pub(crate) const SECTOR_BYTES: u64 = SECTOR_BYTES_32 as u64;
pub(crate) const SECTOR_BYTES_32: u32 = 512;

/// The number of a device that the driver is to choose.
pub(crate) const ANY_NUMBER: u32 = u32::MAX;

/// The most requests that a queue may have, which decides how far apart the descriptors of queues
/// lie.
const QUEUE_DEPTH_MAX: u64 = 4096;

/// Where in the device's file the descriptors of the requests of queue `queue` lie.
pub(crate) fn descriptors_at(queue: u16) -> u64 {
    u64::from(queue) * QUEUE_DEPTH_MAX * size_of::<Descriptor>() as u64
}

/// A command's number as ioctls are numbered: whether its record is written, read, or both by the
/// driver, the record's size, the driver's letter.
const fn numbered(direction: u32, command: u32, record_bytes: u32) -> u32 {
    direction << 30 | record_bytes << 16 | (b'u' as u32) << 8 | command
}

const fn asks(command: u32) -> u32 {
    numbered(2, command, CONTROL_BYTES)
}

const fn changes(command: u32) -> u32 {
    numbered(3, command, CONTROL_BYTES)
}

/// Commands about devices.
pub(crate) mod command {
    use super::{asks, changes};

    pub(crate) const DEVICE_INFO: u32 = asks(0x02);
    pub(crate) const ADD: u32 = changes(0x04);
    pub(crate) const DELETE: u32 = changes(0x05);
    pub(crate) const START: u32 = changes(0x06);
    pub(crate) const STOP: u32 = changes(0x07);
    pub(crate) const SET_PARAMETERS: u32 = changes(0x08);
    pub(crate) const PARAMETERS: u32 = asks(0x09);
    pub(crate) const START_RECOVERY: u32 = changes(0x10);
    pub(crate) const END_RECOVERY: u32 = changes(0x11);
    pub(crate) const FEATURES: u32 = asks(0x13);
}

/// Asks for the first request at a tag.
pub(crate) const FETCH: u32 = numbered(3, 0x20, QUEUE_BYTES);
/// Answers the request at a tag, and asks for the next.
pub(crate) const COMMIT_AND_FETCH: u32 = numbered(3, 0x21, QUEUE_BYTES);

/// What the driver can do.
pub(crate) mod feature {
    /// A device outlives its server, and another one may take it over.
    pub(crate) const RECOVERY: u64 = 1 << 3;
    /// Requests without an answer are issued again then.
    pub(crate) const REISSUE: u64 = 1 << 4;
    /// Commands are numbered as ioctls.
    pub(crate) const IOCTL_NUMBERS: u64 = 1 << 6;
    /// All that is asked of a driver here.
    pub(crate) const NEEDED: u64 = RECOVERY | REISSUE | IOCTL_NUMBERS;
}

/// A command about a device: `ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ControlCommand {
    pub(crate) number: U32,
    /// [`NO_QUEUE`]: no command here is about one queue.
    pub(crate) queue: U16,
    pub(crate) record_bytes: U16,
    pub(crate) record_at: U64,
    /// The server's process, where a device starts.
    pub(crate) value: U64,
    pub(crate) path_bytes: U16,
    pub(crate) unused: [u8; 6],
}
const CONTROL_BYTES: u32 = 32;
const _: () = assert!(size_of::<ControlCommand>() == CONTROL_BYTES as usize);

pub(crate) const NO_QUEUE: u16 = u16::MAX;

/// What the driver knows of a device: `ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct DeviceRecord {
    pub(crate) queues: U16,
    pub(crate) queue_depth: U16,
    pub(crate) state: U16,
    pub(crate) unused_start: U16,
    pub(crate) buffer_bytes: U32,
    pub(crate) number: U32,
    pub(crate) server_pid: I32,
    pub(crate) unused_middle: U32,
    pub(crate) features: U64,
    /// Kept by the driver for servers, as it is.
    pub(crate) mark: U64,
    pub(crate) owner_uid: U32,
    pub(crate) owner_gid: U32,
    pub(crate) unused_end: [U64; 2],
}
const _: () = assert!(size_of::<DeviceRecord>() == 64);

/// What became of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceState {
    /// There is no block device yet, or no more.
    Dead,
    /// It has a server.
    Live,
    /// Its server is gone, and requests wait for another.
    Quiesced,
    /// Another one.
    Unknown,
}

impl DeviceRecord {
    pub(crate) fn state(&self) -> DeviceState {
        match self.state.get() {
            0 => DeviceState::Dead,
            1 => DeviceState::Live,
            2 => DeviceState::Quiesced,
            _ => DeviceState::Unknown,
        }
    }
}

/// What the kernel is told of a device: `ublk_params`, up to what is about discarding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct ParameterRecord {
    /// Bytes of the record.
    pub(crate) len: U32,
    /// Which parts it has.
    pub(crate) parts: U32,
    pub(crate) attributes: U32,
    pub(crate) logical_block_shift: u8,
    pub(crate) physical_block_shift: u8,
    pub(crate) best_shift: u8,
    pub(crate) least_shift: u8,
    pub(crate) request_sectors_max: U32,
    pub(crate) chunk_sectors: U32,
    pub(crate) sectors: U64,
    pub(crate) boundary_mask: U64,
    pub(crate) discard_alignment: U32,
    pub(crate) discard_granularity: U32,
    pub(crate) discard_sectors_max: U32,
    pub(crate) zeroes_sectors_max: U32,
    pub(crate) discard_ranges_max: U16,
    pub(crate) unused: [u8; 6],
}
const _: () = assert!(size_of::<ParameterRecord>() == 64);

/// Attributes and parts of [`ParameterRecord`].
pub(crate) mod parameter {
    pub(crate) const READ_ONLY: u32 = 1 << 0;
    pub(crate) const VOLATILE_CACHE: u32 = 1 << 2;
    pub(crate) const FUA: u32 = 1 << 3;

    pub(crate) const BASIC: u32 = 1 << 0;
    pub(crate) const DISCARD: u32 = 1 << 1;

    /// Bytes of the record with both parts; what follows in it is not used.
    pub(crate) const BYTES: u32 = 60;
}

/// A command about the request at a tag: `ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct QueueCommand {
    pub(crate) queue: U16,
    pub(crate) tag: U16,
    /// Bytes, or an error's number below zero.
    pub(crate) result: I32,
    /// Where the request's data are, in this process.
    pub(crate) data_at: U64,
}
const QUEUE_BYTES: u32 = 16;
const _: () = assert!(size_of::<QueueCommand>() == QUEUE_BYTES as usize);

/// A request, as the driver describes it: `ublksrv_io_desc`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// What is asked for, in the lowest eight bits, and how.
    pub(crate) operation: U32,
    pub(crate) sectors: U32,
    pub(crate) first_sector: U64,
    pub(crate) data_at: U64,
}
const _: () = assert!(size_of::<Descriptor>() == 24);

/// What a request asks for, and how.
pub(crate) mod operation {
    pub(crate) const MASK: u32 = 0xff;
    pub(crate) const READ: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const FLUSH: u32 = 2;
    pub(crate) const DISCARD: u32 = 3;
    pub(crate) const WRITE_ZEROES: u32 = 5;

    /// The write is durable before its answer.
    pub(crate) const FUA: u32 = 1 << 13;
    /// The zeroes have to take their place.
    pub(crate) const NO_UNMAP: u32 = 1 << 15;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn commands_have_the_numbers_of_the_kernels_header() {
        // As the preprocessor computes them from Linux 6.12's header.
        assert_eq!(command::DEVICE_INFO, 0x8020_7502);
        assert_eq!(command::ADD, 0xc020_7504);
        assert_eq!(command::END_RECOVERY, 0xc020_7511);
        assert_eq!(command::FEATURES, 0x8020_7513);
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
    }

    #[test]
    fn fields_lie_where_the_kernels_header_has_them() {
        assert_eq!(offset_of!(ControlCommand, record_at), 8);
        assert_eq!(offset_of!(ControlCommand, value), 16);
        assert_eq!(offset_of!(DeviceRecord, buffer_bytes), 8);
        assert_eq!(offset_of!(DeviceRecord, server_pid), 16);
        assert_eq!(offset_of!(DeviceRecord, features), 24);
        assert_eq!(offset_of!(DeviceRecord, mark), 32);
        assert_eq!(offset_of!(ParameterRecord, request_sectors_max), 16);
        assert_eq!(offset_of!(ParameterRecord, sectors), 24);
        assert_eq!(offset_of!(ParameterRecord, discard_alignment), 40);
        assert_eq!(offset_of!(ParameterRecord, discard_ranges_max), 56);
        assert_eq!(parameter::BYTES as usize, offset_of!(ParameterRecord, unused) + 2);
        assert_eq!(descriptors_at(1), 4096 * 24);
    }

    #[test]
    fn a_record_of_a_device_is_read_as_the_driver_wrote_it() {
        let mut bytes = [0_u8; 64];
        bytes[..2].copy_from_slice(&3_u16.to_ne_bytes());
        bytes[4..6].copy_from_slice(&2_u16.to_ne_bytes());
        bytes[12..16].copy_from_slice(&7_u32.to_ne_bytes());
        bytes[32..40].copy_from_slice(&0xfeed_u64.to_ne_bytes());
        let record = DeviceRecord::read_from_bytes(&bytes).expect("64 bytes");
        assert_eq!((record.queues.get(), record.number.get(), record.mark.get()), (3, 7, 0xfeed));
        assert_eq!(record.state(), DeviceState::Quiesced);
        assert_eq!(DeviceRecord { state: 9.into(), ..record }.state(), DeviceState::Unknown);
    }
}
