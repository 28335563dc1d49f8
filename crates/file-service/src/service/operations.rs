//! The operations of the protocol, by theme.

mod attributes;
mod contents;
mod directories;
mod names;
mod xattrs;
