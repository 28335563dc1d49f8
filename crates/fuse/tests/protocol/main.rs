//! The protocol beside bytes that were written by hand from the kernel's header `fuse.h`.

#![allow(clippy::unwrap_used)]

mod kernel;
mod malformed;
mod records;
mod replies;
mod requests;
mod sessions;
