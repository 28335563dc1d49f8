//! What a file with the direct path asks of the system.

use tidegate_file_wire::{Claim, Read};
use tidegate_layout::file_cache::LeaseGrant;
use tidegate_media::ExchangeWords;

/// What is asked about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// More blocks: whether there are some.
    Extend,
    /// Nothing: the memory of the lease is not touched any more. It may be that nobody listens.
    Leave,
    /// Nothing: the answer comes behind what the service did with the file before.
    Probe,
}

/// The system below one open file, in eight verbs. The first three are the `ioctl`s of
/// `tidegate-file-wire`.
pub trait Os {
    /// The pool's memory: offsets are the pool's. It may be mapped where it is first touched: a
    /// store that cannot be made is a lost one, which the next fence reports.
    type Memory: ExchangeWords;

    /// Asks for a lease. Whether the service has answered.
    fn claim(&mut self, claim: &mut Claim) -> bool;

    /// Asks something about the lease of this number. Whether the answer is yes.
    fn ask(&mut self, request: LeaseRequest, lease: u64) -> bool;

    /// Reads the leased file. Whether the service has answered.
    fn read(&mut self, read: &mut Read) -> bool;

    /// Maps the lease's log, which keeps the lease's memory from being lent to others, and says how
    /// the blocks are reached. `None`: it cannot be had.
    fn map(&mut self, grant: &LeaseGrant) -> Option<Self::Memory>;

    /// Whether other processes seem to have a lease of the file. A hint, which takes no request.
    fn others_have_lease(&mut self) -> bool;

    /// Waits a moment for another process to end its write, for the `round`th time. False: that
    /// has taken too long.
    fn pause(&mut self, round: u32) -> bool;

    /// The program context of the call; 0: not said. It may take a microsecond.
    fn context(&mut self) -> u64;

    /// The time now, as a pool's record has it; 0: not said.
    fn now(&mut self) -> u64;
}
