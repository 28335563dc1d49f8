//! Directories that are not as the log left them: files of other programs are not written over, and
//! each operation that cannot be repeated is told.

use crate::namespace::machine::{Machine, NamesPool, SimBelow, SimSource};
use crate::namespace::script::NameStep;
use crate::namespace::script::NameStep::{Create, Link, Remove, Rename, Sync, SyncDirectory, Write};
use crate::namespace::service::Service;
use crate::namespace::tree::{REGULAR, Tree};
use std::sync::Arc;
use tidegate_file_cache::Refused;
use tidegate_namespace_log::{Conflict, NameConflict, NamespaceError, NamespaceLog, NamespaceSource, Witness};

const OTHERS: u32 = REGULAR | 0o777;

/// A machine that did `steps` and lost its power. SOURCE lost all of them.
fn after(steps: &[NameStep]) -> Arc<Machine> {
    let pool = NamesPool::new();
    let machine = Machine::new(&pool, pool.memory(), Tree::new(), None, None);
    let mut service = Service::start(&machine, machine.open().unwrap()).unwrap();
    steps.iter().for_each(|step| assert!(!service.step(*step).unwrap()));
    let cut = machine.take().pop().unwrap();
    let lost = cut.tree.images().swap_remove(0);
    Machine::new(&pool, pool.memory_of(cut.region.least()), lost, None, None)
}

fn conflicts(machine: &Arc<Machine>) -> Vec<NameConflict> {
    NamespaceLog::replay(machine.memory(), &SimSource(machine.clone())).unwrap().conflicts
}

fn conflict(path: &str, why: Conflict) -> NameConflict {
    NameConflict { path: path.into(), why }
}

#[test]
fn a_name_that_somebody_else_took_is_left_to_them() {
    let machine = after(&[Create("a"), Create("b"), Rename("b", "c"), SyncDirectory]);
    machine.tree(|tree| ["a", "c"].iter().try_for_each(|path| tree.make(path.as_bytes(), OTHERS))).unwrap();
    assert_eq!(conflicts(&machine), [conflict("a", Conflict::Taken), conflict("b", Conflict::Taken)]);
    let modes = ["a", "b", "c"].map(|path| machine.tree(|tree| tree.look_up(path.as_bytes())).unwrap().mode);
    assert_eq!(modes, [OTHERS, REGULAR | 0o644, OTHERS]);
}

#[test]
fn contents_without_a_place_stay_in_the_pool() {
    let machine = after(&[Create("a"), Write("a", 20), Sync("a")]);
    machine.tree(|tree| tree.make(b"a", OTHERS)).unwrap();
    assert_eq!(conflicts(&machine), [conflict("a", Conflict::Taken)]);
    let pool = machine.open().unwrap();
    let source = SimSource(machine.clone());
    let names = NamespaceLog::replay(machine.memory(), &source).unwrap();
    let below = SimBelow(machine.clone());
    let recovered = pool.recover(&tidegate_namespace_log::ReplayedBelow::new(&names, &below)).unwrap();
    assert_eq!((recovered.len(), recovered[0].bytes, &recovered[0].path_hint[..]), (1, 20, &b"a"[..]));
    assert_eq!(pool.fill().out_of_sync, 20);
    assert!(machine.tree(|tree| tree.look_up(b"a")).unwrap().empty);
}

#[test]
fn names_that_somebody_else_removed_are_told() {
    let machine =
        after(&[Create("a"), NameStep::SyncSource, Link("a", "b"), Rename("a", "c"), Remove("a"), SyncDirectory]);
    assert_eq!(conflicts(&machine), []);
    let machine = after(&[Create("a"), NameStep::SyncSource, Link("a", "b"), Rename("a", "c"), SyncDirectory]);
    let removed = machine.tree(|tree| tree.lost(b"a")).unwrap();
    let change = tidegate_layout::file_cache::NameChange::Removed { path: b"a", lost: removed };
    machine.tree(|tree| tree.change(&change)).unwrap();
    assert_eq!(conflicts(&machine), [conflict("a", Conflict::Missing), conflict("a", Conflict::Missing)]);
}

#[test]
fn another_directory_an_older_one_and_an_older_pool_are_refused() {
    let replay = |machine: &Arc<Machine>| {
        NamespaceLog::replay(machine.memory(), &SimSource(machine.clone())).map(|replayed| replayed.repeated)
    };
    let machine = after(&[Create("a"), SyncDirectory]);
    machine.tree(|tree| tree.set_witness(&Witness { pool: [9; 16], place: 0 })).unwrap();
    assert_eq!(replay(&machine), Err(NamespaceError::OtherSource));
    let machine = after(&[Create("a"), NameStep::SyncSource, Create("b"), SyncDirectory]);
    let witness = SimSource(machine.clone()).witness().unwrap().unwrap();
    machine.tree(|tree| tree.set_witness(&Witness { place: 0, ..witness })).unwrap();
    let older = NamespaceError::OlderSource { witness: 0, tail: witness.place };
    assert_eq!(replay(&machine), Err(older));
    let ahead = Witness { place: witness.place + 10, ..witness };
    machine.tree(|tree| tree.set_witness(&ahead)).unwrap();
    let older = NamespaceError::OlderPool { witness: ahead.place, head: witness.place + 3 };
    assert_eq!(replay(&machine), Err(older));
    machine.tree(|tree| tree.set_witness(&witness)).unwrap();
    assert_eq!(replay(&machine), Ok(1));
}

/// A source whose witness cannot be stored any more.
struct Failing(SimSource);

impl NamespaceSource for Failing {
    fn witness(&self) -> Result<Option<Witness>, Refused> {
        self.0.witness()
    }

    fn set_witness(&self, witness: &Witness) -> Result<(), Refused> {
        if witness.place == 0 { self.0.set_witness(witness) } else { Err(Refused { errno: 5 }) }
    }

    fn look_up(&self, path: &[u8]) -> Result<Option<tidegate_namespace_log::FoundNode>, Refused> {
        self.0.look_up(path)
    }

    fn carry_out(&self, change: &tidegate_layout::file_cache::NameChange<'_>) -> Result<(), Refused> {
        self.0.carry_out(change)
    }

    fn sync(&self) -> Result<(), Refused> {
        self.0.sync()
    }
}

#[test]
fn after_a_failure_below_the_log_takes_no_operation() {
    let pool = NamesPool::new();
    let machine = Machine::new(&pool, pool.memory(), Tree::new(), None, None);
    let log = NamespaceLog::open(machine.memory(), Arc::new(Failing(SimSource(machine.clone())))).unwrap();
    let failed = NamespaceError::Source(Refused { errno: 5 });
    machine.tree(|tree| tree.make(b"a", REGULAR)).unwrap();
    let lost = machine.tree(|tree| tree.lost(b"a")).unwrap();
    let change = tidegate_layout::file_cache::NameChange::Removed { path: b"a", lost };
    machine.tree(|tree| tree.change(&change)).unwrap();
    assert_eq!(log.begin().unwrap().record(&change).map(drop), Err(failed.clone()));
    assert_eq!((log.begin().map(drop), log.commit()), (Err(failed.clone()), Err(failed)));
}
