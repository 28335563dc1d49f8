//! What programs say of their reads and writes: by which context they make them, on a board, and
//! traces of them.
//!
//! While programs run they leave records (`tidegate-file-wire` has their form). Behind them these
//! become a text, which a replay reads: requests in the order of time, with program contexts.

#![forbid(unsafe_code)]

mod context_board;
mod recorded;
mod recording;
mod text;

pub use context_board::ContextBoard;
pub use recorded::{Recorded, RecordedFile};
pub use recording::{Recording, RecordingFailure, lost_records};
pub use text::Trace;
