//! File systems and their files: directories read, what is mounted where, programs that use files.

pub mod directory;
pub mod mount_table;
pub mod users;
