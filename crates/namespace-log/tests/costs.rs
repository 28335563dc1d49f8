//! What an operation and a sync cost in the namespace log, and when SOURCE is synced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tidegate_file_cache::{PoolSpec, Refused, format};
use tidegate_layout::file_cache::{NAMESPACE_LINES_MIN, NameChange, NodeIdentity};
use tidegate_namespace_log::{FoundNode, NamespaceError, NamespaceLog, NamespaceSource, Witness};
use tidegate_sim::Region;

/// A served directory without names.
#[derive(Default)]
struct StubSource {
    witness: Mutex<Option<Witness>>,
    syncs: Mutex<u32>,
    /// Whether it can only be read.
    refuses: AtomicBool,
}

const READ_ONLY: Refused = Refused { errno: 30 };

impl StubSource {
    fn change(&self) -> Result<(), Refused> {
        if self.refuses.load(Ordering::Relaxed) { Err(READ_ONLY) } else { Ok(()) }
    }
}

impl NamespaceSource for StubSource {
    fn witness(&self) -> Result<Option<Witness>, Refused> {
        Ok(*self.witness.lock().expect("no holder panics"))
    }

    fn set_witness(&self, witness: &Witness) -> Result<(), Refused> {
        self.change()?;
        *self.witness.lock().expect("no holder panics") = Some(*witness);
        Ok(())
    }

    fn look_up(&self, _path: &[u8]) -> Result<Option<FoundNode>, Refused> {
        Ok(None)
    }

    fn carry_out(&self, _change: &NameChange<'_>) -> Result<(), Refused> {
        Ok(())
    }

    fn sync(&self) -> Result<(), Refused> {
        self.change()?;
        *self.syncs.lock().expect("no holder panics") += 1;
        Ok(())
    }
}

fn spec(namespace_lines: u32) -> PoolSpec {
    PoolSpec { uuid: [7; 16], lanes: 1, files: 2, ring_slots: 8, bytes_per_entry: 1 << 16, namespace_lines }
}

fn pool() -> Arc<Region> {
    let region = Region::new(4 << 20);
    format(&region, &spec(NAMESPACE_LINES_MIN)).expect("the region takes a pool");
    Arc::new(region)
}

const LINKED: NameChange<'static> =
    NameChange::Linked { path: b"a", to: b"b", node: NodeIdentity { inode: 5, generation: 6 } };

#[test]
fn an_operation_takes_one_fence_and_a_sync_takes_one_for_all_operations() {
    let (region, source) = (pool(), Arc::new(StubSource::default()));
    let log = NamespaceLog::open(region.clone(), source.clone()).unwrap();
    let fences = || region.counters().fences;
    let before = fences();
    for _ in 0..5 {
        log.begin().unwrap().record(&LINKED).unwrap();
    }
    assert_eq!(fences() - before, 5);
    (0..3).for_each(|_| log.commit().unwrap());
    assert_eq!(fences() - before, 6);
    assert_eq!((log.counters().recorded, log.counters().commits, log.counters().syncs_below), (5, 1, 0));
}

#[test]
fn a_log_that_is_half_full_syncs_source_and_goes_on() {
    let (region, source) = (pool(), Arc::new(StubSource::default()));
    let log = NamespaceLog::open(region, source.clone()).unwrap();
    let synced = || *source.syncs.lock().unwrap();
    let (before, (_, room)) = (synced(), log.fill());
    while synced() == before {
        log.begin().unwrap().record(&LINKED).unwrap();
    }
    let bytes = log.fill().0;
    assert!(bytes < 500 && log.counters().recorded * bytes > room, "{bytes} of {room}");
    assert_eq!(log.counters().syncs_below, 1);
}

#[test]
fn what_source_has_durably_leaves_the_log() {
    let (region, source) = (pool(), Arc::new(StubSource::default()));
    let log = NamespaceLog::open(region.clone(), source.clone()).unwrap();
    let mark = log.begin().unwrap().record(&LINKED).unwrap();
    assert_eq!(log.mark(), mark);
    log.begin().unwrap().record(&LINKED).unwrap();
    let before = log.fill().0;
    log.durable_below(mark).unwrap();
    assert_eq!(log.fill().0 * 2, before);
    log.durable_below(mark).unwrap();
    log.durable_below(log.mark()).unwrap();
    assert_eq!(log.fill().0, 0);
    drop(log);
    assert!(NamespaceLog::open(region, source).is_ok());
}

#[test]
fn a_log_is_opened_only_after_its_operations_were_replayed() {
    let (region, source) = (pool(), Arc::new(StubSource::default()));
    let log = NamespaceLog::open(region.clone(), source.clone()).unwrap();
    log.begin().unwrap().record(&LINKED).unwrap();
    drop(log);
    let open = || NamespaceLog::open(region.clone(), source.clone()).map(drop);
    assert_eq!(open(), Err(NamespaceError::NotRecovered));
    NamespaceLog::replay(region.clone(), &*source).unwrap().finish(&*source).unwrap();
    assert_eq!(open(), Ok(()));
}

#[test]
fn a_resumed_log_keeps_its_operations_and_takes_none_until_source_takes_changes() {
    let (region, source) = (pool(), Arc::new(StubSource::default()));
    let log = NamespaceLog::open(region.clone(), source.clone()).unwrap();
    log.begin().unwrap().record(&LINKED).unwrap();
    let (recorded, witness) = (log.fill().0, *source.witness.lock().unwrap());
    drop(log);
    source.refuses.store(true, Ordering::Relaxed);
    let refused = Err(NamespaceError::Source(READ_ONLY));
    assert!(NamespaceLog::follow(region.clone(), &*source).is_ok());
    let log = NamespaceLog::resume(region, source.clone()).unwrap();
    assert_eq!([log.begin().map(drop), log.settle()], [refused.clone(), refused]);
    assert_eq!((log.commit(), log.durable_below(log.mark())), (Ok(()), Ok(())));
    assert_eq!((log.fill().0, *source.witness.lock().unwrap()), (recorded, witness));
    source.refuses.store(false, Ordering::Relaxed);
    log.begin().unwrap().record(&LINKED).unwrap();
    assert_eq!((log.fill().0, log.is_unsettled()), (recorded, false), "the first one is durable in SOURCE");
}

#[test]
fn pools_without_a_log_say_so() {
    let region = Region::new(4 << 20);
    format(&region, &spec(0)).unwrap();
    let opened = NamespaceLog::open(Arc::new(region), Arc::new(StubSource::default())).map(drop);
    assert_eq!(opened, Err(NamespaceError::NoLog));
    assert!(format(&Region::new(4 << 20), &spec(NAMESPACE_LINES_MIN - 1)).is_err());
}
