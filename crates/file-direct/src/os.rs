//! What a file with the direct path asks of the system.

use tidegate_file_wire::{Claim, Read};
use tidegate_layout::file_cache::LeaseGrant;
use tidegate_media::Region;

/// The system below one open file, in eight verbs. The first four are the `ioctl`s of
/// `tidegate-file-wire`.
pub trait Os {
    /// The pool's memory: offsets are the pool's. It may be mapped where it is first touched: a
    /// store that cannot be made is a lost one, which the next fence reports.
    type Memory: Region;

    /// Asks for a lease. Whether the service has answered.
    fn claim(&mut self, claim: &mut Claim) -> bool;

    /// Asks for more blocks. Whether there are some.
    fn extend(&mut self, lease: u64) -> bool;

    /// Tells that the memory of a lease is not touched any more, if anybody listens.
    fn leave(&mut self, lease: u64);

    /// Reads the leased file. Whether the service has answered.
    fn read(&mut self, read: &mut Read) -> bool;

    /// Maps the lease's log, which keeps the lease's memory from being lent to others, and says how
    /// the blocks are reached. `None`: it cannot be had.
    fn map(&mut self, grant: &LeaseGrant) -> Option<Self::Memory>;

    /// Has the service answer any request about the file which leaves it as it is. What it did with
    /// the file before is done then.
    fn probe(&mut self);

    /// The program context of the call; 0: not said. It may take a microsecond.
    fn context(&mut self) -> u64;

    /// The time now, as a pool's record has it; 0: not said.
    fn now(&mut self) -> u64;
}
