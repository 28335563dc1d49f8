//! Images with flipped bytes, and the program let loose on each of them.
//!
//! A trial makes files in good order once and takes a [`Snapshot`] of them. For each image it puts
//! the files back, flips a few of their bytes, and runs the program's commands. No command may
//! panic, hang, die of a signal, or end with an exit code that the manual does not name.

mod commands;
mod snapshot;

pub use commands::{Block, Verdict, serve_and_read, tidegate, verdict};
pub use snapshot::Snapshot;

use crate::sectors::Dice;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes that are flipped in one image, at most.
const FLIPS_MAX: u64 = 8;

/// The numbers of the images of each format: as many as `TIDEGATE_IMAGES` says, or 60; or the one
/// that `TIDEGATE_IMAGE` names. Before them comes image 0, which has no flipped byte and shows that
/// everything works otherwise.
pub fn images() -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().map(|number| number.parse::<u64>().expect("a number"));
    let flipped = match number("TIDEGATE_IMAGE") {
        Some(one) => one..one + 1,
        None => 1..number("TIDEGATE_IMAGES").unwrap_or(60) + 1,
    };
    std::iter::once(0).chain(flipped)
}

/// A part of a file whose bytes are flipped, and how often it is chosen beside others.
#[derive(Clone, Debug)]
pub struct Part {
    /// The file.
    pub file: PathBuf,
    /// From which byte to which.
    pub bytes: Range<u64>,
    /// Its share of all flips.
    pub weight: u64,
}

/// Flips bits of `parts` for image number `image`, in up to eight bytes. Returns which, for people
/// who repeat it.
pub fn flip(parts: &[Part], image: u64) -> Vec<String> {
    let mut dice = Dice::new(image + 1);
    // The first numbers of seeds that are near are near each other.
    (0..8).for_each(|_| _ = dice.below(1));
    let flips = if image == 0 { 0 } else { 1 + dice.below(FLIPS_MAX) };
    (0..flips).map(|_| flip_one(parts, &mut dice)).collect()
}

fn flip_one(parts: &[Part], dice: &mut Dice) -> String {
    let mut choice = dice.below(parts.iter().map(|part| part.weight).sum());
    let part = parts.iter().find(|part| {
        let is_chosen = choice < part.weight;
        choice = choice.saturating_sub(part.weight);
        is_chosen
    });
    let part = part.expect("the choice is below the sum of all weights");
    let at = part.bytes.start + dice.below(part.bytes.end - part.bytes.start);
    let mask = 1_u8 << dice.below(8);
    let file = File::options().read(true).write(true).open(&part.file).expect("the file is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("the file has this byte");
    file.write_all_at(&[byte[0] ^ mask], at).expect("the file can be written");
    format!("{} byte {at:#x} ^ {mask:#04x}", part.file.display())
}
