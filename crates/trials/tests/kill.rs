//! The server killed with SIGKILL over and over while clients write: no acknowledged write is lost,
//! no block is torn, and the volume is clean after every kill.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use tidegate_trials::artefacts::announce;
use tidegate_trials::sectors::Dice;
use tidegate_trials::served::{Volume, Writer, kill_under_load};

const ROUNDS: u64 = 25;
const WRITERS: u64 = 3;
/// Acknowledged requests before a kill: at most so many.
const ACKS_MAX: u64 = 3000;

#[test]
fn nothing_acknowledged_is_lost_and_no_block_torn() {
    let folder = tempfile::tempdir().unwrap();
    let volume = Volume::create(folder.path(), "volume", "48M");
    let mut writers = Writer::sharing(volume.serve().connect().bytes(), WRITERS);
    let (mut dice, mut acked) = (Dice::new(99), 0);
    for _ in 0..ROUNDS {
        let mut server = volume.serve();
        writers.iter_mut().for_each(|writer| writer.assert_possible(&mut server.connect()));
        let acks = 1 + dice.below(ACKS_MAX);
        kill_under_load(&mut server, &mut writers, acks);
        acked += acks;
        volume.assert_clean();
    }
    let server = volume.serve();
    writers.iter_mut().for_each(|writer| writer.assert_possible(&mut server.connect()));
    server.stop();
    volume.assert_clean();
    announce(&format!("killed the server {ROUNDS} times, after {acked} acknowledged requests; none lost, none torn"));
}
