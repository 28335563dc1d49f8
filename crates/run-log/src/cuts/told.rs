//! What a recovery does about a name that a strip tells of, beside what it finds there, and what it
//! says of that.

use super::again::{after_a_cut, keep_of_file, with_file_and_name, with_file_at};
use super::names::Step;
use super::recover;
use super::world::{SimLog, World};
use crate::ground::{Log, Unlike};
use crate::recover::Recovered;
use std::sync::Arc;

fn recovered(world: &Arc<World>) -> Recovered {
    recover(world, "second").expect("there is room")
}

#[test]
fn what_lies_at_a_name_that_nothing_is_to_have_is_told_if_it_is_left_alone() {
    let what_is_done: [(fn(&World), _, _); 3] = [
        (|_| {}, None, 1),
        (|world| world.disks().file.write(0, b"used"), Some(Unlike::Beside), 0),
        (
            |world| {
                world.disks().folder.remove();
                world.disks().folder.make();
            },
            Some(Unlike::Changed),
            0,
        ),
    ];
    for (used, unlike, removed) in what_is_done {
        let mut program = with_file_and_name();
        program.step(Step::Remove);
        let world = after_a_cut(&program.world);
        assert!(world.disks().folder.bytes().is_some(), "the cut has brought it back");
        used(&world);
        let recovered = recovered(&world);
        let left: Vec<_> = recovered.left.iter().map(|left| left.unlike).collect();
        assert_eq!((left.first(), recovered.removed.len()), (unlike.as_ref(), removed), "{recovered:?}");
        assert_eq!(world.disks().folder.bytes().is_some(), unlike.is_some());
    }
}

#[test]
fn nothing_is_said_of_a_name_that_nothing_is_to_have_and_nothing_has() {
    let mut program = with_file_and_name();
    program.step(Step::Remove);
    program.world.disks().folder.sync_folder();
    let world = after_a_cut(&program.world);
    // Somebody uses the file beside it.
    world.disks().file.write(0, b"used");
    let recovered = recovered(&world);
    assert!(recovered.left.is_empty() && recovered.removed.is_empty(), "{recovered:?}");
}

#[test]
fn a_file_that_was_held_at_a_name_is_nobodys_once_a_strip_tells_of_the_name() {
    use Step::{Hold, Make, Remove, Sync, Write};
    let nothing = &[][..];
    for (told, written, removed) in
        [(nothing, 1, 0), (&[Make, Write, Sync], 1, 1), (&[Make, Write, Sync, Remove], 0, 2)]
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
        assert_eq!((recovered.written.len(), recovered.removed.len()), (written, removed), "{told:?}: {recovered:?}");
        assert!(recovered.salvaged.is_empty(), "{recovered:?}");
        let kept = world.disks().file.bytes[..100] == [1; 100];
        assert!(kept && world.disks().aside.is_some() == (removed > 0), "{told:?}");
    }
}

#[test]
fn a_file_that_was_held_at_a_name_that_was_given_up_is_brought() {
    use Step::{Hold, Make, Remove, Sync, Write};
    let mut program = with_file_at("/root/name", &[Make, Hold, Remove, Make, Write, Sync]);
    // Nobody holds the name any more: its program makes files there by the kernel, and holds one.
    SimLog(program.world.clone()).append(b"\nfailed 0000000001\n").expect("the journal takes it");
    keep_of_file(&mut program);
    let world = after_a_cut(&program.world);
    let recovered = recovered(&world);
    let why: Vec<_> = recovered.salvaged.iter().map(|salvaged| salvaged.unlike).collect();
    assert_eq!((recovered.written.len(), why), (1, vec![Unlike::Failed]), "{recovered:?}");
    assert_eq!(world.disks().file.bytes[..100], [1; 100]);
}
