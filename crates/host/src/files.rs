//! File systems and their files: directories read, what is mounted where and may be lost,
//! programs that use files.

pub mod directory;
pub mod mount_table;
pub mod ordered_names;
pub mod users;
