//! One call to the device of FUSE, which only an `ioctl` reaches.

use rustix::fd::{AsFd, AsRawFd as _, BorrowedFd};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`: takes the number of a descriptor, an unsigned int.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Connects `fresh`, which was just opened at `/dev/fuse`, with the mount of `mounted`.
pub fn join_fuse_mount(fresh: BorrowedFd<'_>, mounted: BorrowedFd<'_>) -> Result<(), Errno> {
    let number = u32::try_from(mounted.as_fd().as_raw_fd()).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel reads one u32 through the pointer to `Setter`'s, and stores nothing. Other
    // devices than FUSE's refuse the number of the command, which no other driver has (229 is
    // FUSE's letter in Linux's list of ioctl numbers).
    unsafe { ioctl(fresh, Setter::<CLONE, u32>::new(number)) }
}
