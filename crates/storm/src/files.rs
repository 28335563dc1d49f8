//! Storms with files: threads on a pool of the file cache, on virtual cores, with files below that
//! lose what was not synced.
//!
//! Each file has an *owner*, the one client that changes it; other clients sync it and read it, and
//! threads in the background write back, empty DRAM, admit what was read and drain. Each life ends
//! at a random access to any memory or file, by a power cut or by a kill, and so may the recovery
//! after it.
//!
//! Judged are: each read of an owner, which has one right answer; each read of another client, of
//! which every byte has to be one that the file had meanwhile; after an end, every file by
//! [`states::FileStates`]; every rule of the pool's format, before and after recovery; and what
//! draining brings below.

mod below;
mod client;
mod lives;
mod seen;
mod states;

pub(crate) use lives::FileScene;
