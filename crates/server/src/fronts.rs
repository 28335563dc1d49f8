//! Fronts: the protocols by which clients use volumes.

pub mod nbd;
