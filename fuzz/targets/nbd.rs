//! Conversations with the NBD server: the first byte says how the others are cut, the others are
//! the bytes of a client.
//!
//! Findings belong into the corpus of the tests of `nbd` too, without their first byte.

#![forbid(unsafe_code)]
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use tidegate_nbd_client::ram::Ram;
use tidegate_nbd::loopback::Loopback;
use tidegate_block_export::Export;
use tidegate_nbd::{Exports, Service};

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, sent)) = bytes.split_first() else { return };
    let disk = Export::new("disk", "a small disk", Arc::new(Ram::new(512, 8)));
    let frozen = Export::new("frozen", "", Arc::new(Ram::read_only(4096, 16)));
    let service = Service::plain(Exports::new(vec![disk, frozen]).expect("two good exports"));
    let whole = Loopback::run(&service, sent, || usize::MAX);
    let cut = Loopback::run(&service, sent, || usize::from(*piece));
    assert!(format!("{:?}", whole.end) == format!("{:?}", cut.end));
});
