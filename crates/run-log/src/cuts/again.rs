//! Recoveries that were killed or cut, or had no room, and are done again when somebody has used
//! what they had brought.

use super::names::{Program, YOUNG};
use super::world::{Disks, JointCut, Open, Use, World};
use super::{BOOTS, BUSY, HOLDER, Judge, POOL_BYTES, STRIP_BYTES, Step, first_lines, names, recover, reduction, runs};
use crate::ground::Unlike;
use std::sync::Arc;
use tidegate_preload_wire::{Answer, Request};
use tidegate_sim::Region;

impl Judge {
    /// Somebody uses what the first recovery left that was killed or cut, and the recovery is done
    /// again, in that boot or in another one: what it had brought stays as he left it.
    pub(super) fn used(&mut self, cut: &JointCut) -> Result<(), String> {
        let [first, second, third] = BOOTS;
        for how in [Use::Remove, Use::Replace] {
            if cut.is_brought {
                self.stays(&self.killed(cut), how, first).map_err(|wrong| format!("killed: {wrong}"))?;
            } else if how == Use::Remove {
                // Of what was removed nothing tells.
                continue;
            }
            self.each_state(cut, (how == Use::Remove, cut.is_brought, "used"), |judge, region, disks| {
                judge.stays(&judge.after(region, disks.clone()), how, second)?;
                if cut.is_brought {
                    let mut used = disks.clone();
                    used.be_used(how);
                    judge.stays_as_it_is(&judge.after(region, used.at_the_next_boot()), third)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn stays(&mut self, world: &Arc<World>, how: Use, boot: &str) -> Result<(), String> {
        world.disks().be_used(how);
        self.stays_as_it_is(world, boot).map_err(|wrong| format!("{how:?}: {wrong}"))
    }

    fn stays_as_it_is(&mut self, world: &Arc<World>, boot: &str) -> Result<(), String> {
        self.tally.used += 1;
        let before = world.disks().found();
        recover(world, boot)?;
        let found = world.disks().found();
        if found == before {
            Ok(())
        } else {
            Err(format!("{} by boot {boot}, it was {}", shown(&found), shown(&before)))
        }
    }
}

fn shown((file, named): &(Vec<u8>, Option<Vec<u8>>)) -> String {
    format!("{}; at the name {}", runs(file), named.as_ref().map_or_else(|| "nothing".to_owned(), |bytes| runs(bytes)))
}

/// A program with a file that only the pool has, in part, and a young file that was synced.
pub(super) fn with_file_and_name() -> Program {
    let mut program = with_file_at("/root/a", &YOUNG);
    keep_of_file(&mut program);
    program
}

/// A program that has taken these steps, beside a file at `path`.
pub(super) fn with_file_at(path: &str, steps: &[names::Step]) -> Program {
    let world = World::new(Region::new(POOL_BYTES), Disks::new(vec![0xaa; 5000], first_lines()), names::STRIP_BYTES);
    world.disks().file.rename(path);
    world.disks().file.sync_path();
    let mut program = Program::on(world, None);
    steps.iter().for_each(|step| program.step(*step));
    program
}

/// Holds the file, and keeps some of it in the pool alone.
pub(super) fn keep_of_file(program: &mut Program) {
    let world = program.world.clone();
    let path = world.disks().file.path.clone();
    let held = program.keeper.hold_file(HOLDER, Arc::new(Open { world: world.clone(), path }));
    let Some(Answer::Held { hold, .. }) = held else { panic!("{held:?}") };
    world.sync_file();
    world.disks().file.write(0, &[1; 100]);
    let keep = Request::Keep { hold, size: 5000, filling: 0, ranges: &[(0, 100)] };
    assert_eq!(program.keeper.answer(HOLDER, &keep, None), Answer::Done);
}

/// The power fails, and no disk has anything that it need not have.
pub(super) fn after_a_cut(world: &World) -> Arc<World> {
    let cut = world.take().pop().expect("a cut of now");
    let reduction = reduction();
    let mut images = cut.region.images(&reduction);
    let region = images.advance().expect("the memory is as it is");
    Judge::on(names::STRIP_BYTES).after(region, cut.disks_images().remove(0))
}

#[test]
fn what_was_brought_before_a_recovery_failed_is_not_brought_again() {
    let world = after_a_cut(&with_file_and_name().world);
    world.disks().full = true;
    let failed = recover(&world, "second").expect_err("there is no room for the name's file");
    assert!(failed.contains("/root/name"), "{failed}");
    assert_eq!(world.disks().file.bytes[..100], [1; 100], "the file comes first");
    world.disks().be_used(Use::Remove);
    world.disks().full = false;
    let recovered = recover(&world, "second").expect("there is room");
    let found = world.disks().found();
    assert_eq!((&found.0[..4], found.1.is_some()), (&b"used"[..], true), "only the name's file was missing");
    assert_eq!(recovered.written.len(), 2, "both are told of: {recovered:?}");
    assert!(recovered.salvaged.is_empty() && recovered.removed.is_empty(), "{recovered:?}");
}

#[test]
fn what_the_kernel_had_when_the_run_was_killed_is_not_brought_after_a_later_cut() {
    let world = with_file_and_name().world;
    (world.disks().failing, world.disks().full) = (true, true);
    recover(&world, "first").expect_err("there is no room for what the disk did not take");
    world.disks().be_used(Use::Remove);
    let world = after_a_cut(&world);
    let before = world.disks().found();
    let recovered = recover(&world, "second").expect("there is room");
    assert_eq!(world.disks().found(), before, "all but the failed file had everything");
    let why: Vec<_> = recovered.salvaged.iter().map(|salvaged| salvaged.unlike).collect();
    assert_eq!((why, recovered.written.len()), (vec![Unlike::Failed], 0));
}

#[test]
fn recoveries_that_do_not_say_what_they_brought_are_noticed() {
    let forgetful = |strip_bytes| Judge { forgets: true, ..Judge::on(strip_bytes) };
    let script = [&YOUNG[..], &[names::Step::SyncFolder]].concat();
    let judged = [
        names::judged(&mut forgetful(names::STRIP_BYTES), &script, None),
        forgetful(STRIP_BYTES).script(&BUSY, &[Step::Write], None),
    ];
    for noticed in judged {
        println!("{}", noticed.expect_err("nobody noticed"));
    }
}
