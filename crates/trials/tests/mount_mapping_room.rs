//! Programs that share the room of a pool for pages of direct mappings: one that does nothing gives
//! pages back when another one touches absent pages and the pool has no room.
//!
//! | who has all room | who needs some |
//! | --- | --- |
//! | a parent that waits | its child |
//! | a program that waits for its next command | another one, and then the first one again |
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use tidegate_trials::direct::counted;
use tidegate_trials::mapper::Mapper;
use tidegate_trials::mounted::MountTestbed;

const MIB: usize = 1 << 20;

/// More than the pool has.
const LARGE: usize = 48 * MIB;

fn make(testbed: &MountTestbed, name: &str) {
    fs::write(testbed.mountpoint().join(name), vec![1; LARGE]).unwrap();
}

fn is_all(testbed: &MountTestbed, name: &str, byte: u8) -> bool {
    fs::read(testbed.mountpoint().join(name)).unwrap() == vec![byte; LARGE]
}

/// This program has all of a file mapped, and all room of the pool: it stored to all pages.
fn with_all_room(testbed: &MountTestbed, name: &str, byte: u8) -> Mapper {
    let mut mapper = Mapper::start(testbed);
    mapper.does(&[&format!("open {name} rw"), &format!("map paged 0 {LARGE}"), &format!("store 0 {byte} {LARGE}")]);
    mapper
}

#[test]
fn a_child_stores_to_all_pages_beside_its_parent_that_has_all_room_and_waits() {
    let testbed = MountTestbed::with_small_pool();
    make(&testbed, "file");
    let mut mapper = with_all_room(&testbed, "file", 2);
    let had = counted(&testbed, "mapped_bytes");
    assert!(had > 4 * MIB as u64, "{had}");
    mapper.does(&[&format!("child 0 3 {LARGE}"), &format!("msync 0 {LARGE}")]);
    assert!(is_all(&testbed, "file", 3), "what the child stored, which was later");
    mapper.exits();
    assert!(testbed.end().is_written_back());
}

#[test]
fn two_programs_have_the_room_in_turn() {
    let testbed = MountTestbed::with_small_pool();
    ["one", "two"].iter().for_each(|name| make(&testbed, name));
    let mut one = with_all_room(&testbed, "one", 2);
    let mut two = with_all_room(&testbed, "two", 3);
    for round in 4..6 {
        for mapper in [&mut one, &mut two] {
            mapper.does(&[&format!("store 0 {round} {LARGE}"), &format!("msync 0 {LARGE}")]);
        }
    }
    assert!(["one", "two"].iter().all(|name| is_all(&testbed, name, 5)));
    one.exits();
    two.exits();
    assert!(testbed.end().is_written_back());
}
