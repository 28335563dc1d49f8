//! Fronts: the protocols by which clients use volumes.

pub mod nbd;
pub mod ublk;
pub(crate) mod vhost_user;

/// The protocol of those who connect to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// NBD: clients choose the volume by its name.
    Nbd,
    /// vhost-user-blk: monitors of virtual machines get the volume of this number.
    VhostUserBlk(usize),
}
