//! The file service: the owner of the files below a mount, which answers the kernel's requests
//! about them.
//!
//! A mount shows the files of SOURCE. Every change of a name is made in SOURCE at once; the
//! contents of files go through the file cache, whose syncs complete in persistent memory.

#![forbid(unsafe_code)]
