//! What a recovery does about a name that a strip tells of, beside what it finds there.

use super::again::{after_a_cut, keep_of_file, with_file_at};
use super::names::Step;
use super::recover;
use super::world::World;
use crate::run::recover::Recovered;
use std::sync::Arc;

fn recovered(world: &Arc<World>) -> Recovered {
    recover(world, "second").expect("there is room")
}

#[test]
fn a_file_that_was_held_at_a_name_is_nobodys_once_a_strip_tells_of_the_name() {
    use Step::{Hold, Make, Remove, Sync, Write};
    for (told, written, aside) in [(&[][..], 1, 0), (&[Make, Write, Sync], 1, 0), (&[Make, Write, Sync, Remove], 0, 0)]
    {
        let mut program = with_file_at("/root/name", &[Make, Hold]);
        keep_of_file(&mut program);
        if !told.is_empty() {
            // The supervisor has not let go of it yet.
            program.world.disks().file.rename("/removed");
            program.world.sync_file();
            program.step(Remove);
        }
        told.iter().for_each(|step| program.step(*step));
        let world = after_a_cut(&program.world);
        let recovered = recovered(&world);
        assert_eq!((recovered.written.len(), recovered.salvaged.len()), (written, aside), "{told:?}: {recovered:?}");
        let kept = world.disks().file.bytes[..100] == [1; 100];
        assert!(kept && world.disks().aside.is_none(), "{told:?}");
    }
}
