//! The commands, in the groups of the help.

pub(crate) mod cache;
pub(crate) mod files;
pub(crate) mod tools;
pub(crate) mod volume;
mod watched;
