//! What trials do to files again and again until the service or the power is gone, and how they
//! recognise it afterwards.

use std::io;
use std::sync::mpsc::Sender;

/// How far a protocol came: the acts up to this number returned.
pub type Done = u64;

/// Does act after act until one fails, and tells of each that returned.
pub fn acts(tell: &Sender<()>, mut act: impl FnMut(u64) -> io::Result<()>) -> Done {
    let mut done = 0;
    while act(done + 1).is_ok() {
        done += 1;
        // Nobody listens any more after the end.
        let _ = tell.send(());
    }
    done
}

/// Bytes of one number.
pub fn filled(number: u64, bytes: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(bytes / 8)
}

/// The number that `bytes` are filled with; None: they are too few, or of several numbers.
pub fn number_of(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    (bytes == filled(number, bytes.len())).then_some(number)
}
