//! The operations of the protocol, by theme.

mod attributes;
mod contents;
mod directories;
mod doubt;
mod names;
mod xattrs;
