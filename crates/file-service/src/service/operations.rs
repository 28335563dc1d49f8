//! The operations of the protocol, by theme.

mod attributes;
mod contents;
mod directories;
mod doubt;
mod groups;
mod leases;
mod mappings;
mod names;
pub(crate) mod permissions;
mod xattrs;
