//! A lease whose log cannot be read.

use crate::InMemory;
use std::sync::Arc;
use tidegate_file_cache::{BackingFile, FilePool, Persistence, PoolSpec, dram_bytes, format};
use tidegate_layout::file_cache::Class;
use tidegate_sim::{PoisonedStore, Region, SharedMemory};

#[test]
fn a_lease_log_that_cannot_be_read_holds_no_other_file_up() {
    let region = Arc::new(Region::new(12 << 20));
    format(&*region, &PoolSpec { files: 8, ring_slots: 64, ..PoolSpec::usual([7; 16]) }).expect("laid out");
    let dram = Arc::new(SharedMemory::new(dram_bytes(&*region, 1 << 20).expect("a pool")));
    let pool = FilePool::open(&region, |_| Ok(dram.clone())).expect("opened");
    let below: [Arc<dyn BackingFile>; 2] = [1, 2].map(|inode| Arc::new(InMemory::new(inode, &[])) as _);
    let [own, other] = below.each_ref().map(|file| pool.open_file(file, b"a file").expect("opened"));
    let (_, grant) = pool.lend(own, 0..1 << 16, Class::ALL[3]).expect("lent").expect("there is room");
    region.poison(grant.log.visible_at(), 8, PoisonedStore::Kept);
    pool.write(other, 0, &[3; 5000], Persistence::Synchronous).expect("written");
    assert_eq!(pool.write_back_step(0, u64::MAX).map(|step| step.bytes), Ok(5000));
    assert!(pool.size(own).is_err(), "whoever asks for the file is told");
}
