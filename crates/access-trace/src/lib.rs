//! Traces of what programs read and write.
//!
//! While programs run they leave records (`tidegate-file-wire` has their form). Behind them these
//! become a text, which a replay reads: requests in the order of time, with program contexts.

#![forbid(unsafe_code)]

mod recorded;
mod recording;
mod text;

pub use recorded::{Recorded, RecordedFile};
pub use recording::{Recording, RecordingFailure, lost_records};
pub use text::Trace;
