//! The operations of the protocol, by theme.

mod attributes;
mod contents;
mod directories;
mod doubt;
mod groups;
mod names;
mod xattrs;
