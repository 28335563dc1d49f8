//! What the kernel knows: nodes, open files and handles.

pub(crate) mod dentry;
pub(crate) mod folders;
pub(crate) mod groups;
pub(crate) mod handles;
pub(crate) mod inodes;
pub(crate) mod open_files;
pub(crate) mod records;
