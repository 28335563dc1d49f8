//! A volume served by the program itself, and a file system on it: `tidegate serve`, nbdfuse, a
//! loop device, ext4.
//!
//! Every part undoes itself when dropped, also while a test panics, and ends only what it started.

mod program;
mod stack;
mod writer;

pub use program::{Server, Volume, program, until};
pub use stack::{Attached, Mounted};
pub use writer::{Writer, kill_under_load};
