//! Threads in one transit cache under every kind of schedule, stopped at a random access by a cut
//! and by a kill.
//!
//! Compiled with `--cfg shuttle` only, as `schedules.rs`: its scheduler stands in for locks and
//! atomics. Three threads write, read, flush and drain a few blocks through two or three slots, so
//! slots are taken, freed and taken again while others still read them. No read may be torn or
//! older than one before it.
//!
//! `TIDEGATE_SCHEDULES` gives the number of schedules of each kind. A failure prints its schedule,
//! for `shuttle::replay`.
#![cfg(shuttle)]

use std::sync::{Arc, OnceLock};
use tidegate_crashcheck::btt::SmallVolume;
use tidegate_crashcheck::write_cache::{Act, Stack};
use tidegate_media::sync::set_thread_token;
use tidegate_sim::{Image, Rng};
use tidegate_write_cache::Options;

const THREADS: u32 = 3;
const ACTS: u64 = 4;
const BLOCKS: u64 = 2;

fn scene(shape: &SmallVolume, start: &Image, options: fn(Options) -> Options) {
    use shuttle::rand::Rng as _;
    let mut rng = Rng::new(shuttle::rand::thread_rng().r#gen());
    let slots = 2 + u32::try_from(rng.below(2)).expect("small");
    let stack = Arc::new(Stack::new(shape, start, &options, slots, rng.below(250)));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (stack, mut rng) = (stack.clone(), Rng::new(rng.next_u64()));
            shuttle::thread::spawn(move || {
                set_thread_token(thread);
                (0..ACTS).for_each(|act| stack.act(Act::any(&mut rng, BLOCKS), u64::from(thread) * ACTS + act + 1));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread panicked"));
    (0..BLOCKS).for_each(|lba| stack.act(Act::Read(lba), 0));
    let stack = Arc::into_inner(stack).expect("every thread ended");
    stack.stop().judge(shape, &mut rng).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Formats once; every schedule starts from a copy.
fn formatted(shape: &SmallVolume) -> Image {
    let image = Arc::new(OnceLock::new());
    let (into, shape) = (image.clone(), shape.clone());
    shuttle::check_random(move || drop(into.set(shape.formatted())), 1);
    image.get().cloned().expect("one schedule ran")
}

fn schedules() -> usize {
    std::env::var("TIDEGATE_SCHEDULES").map_or(5_000, |count| count.parse().expect("a number of schedules"))
}

fn judged(options: fn(Options) -> Options, schedules: usize) {
    let shape = SmallVolume::four_free();
    let start = formatted(&shape);
    let (of_random, of_few) = (shape.clone(), (shape, start.clone()));
    shuttle::check_random(move || scene(&of_random, &start, options), schedules);
    shuttle::check_pct(move || scene(&of_few.0, &of_few.1, options), schedules, 3);
}

#[test]
fn the_transit_cache_under_any_schedule() {
    judged(|options| options, schedules());
}

#[test]
fn writers_that_wait_under_any_schedule() {
    judged(|options| Options { bypass: false, ..options }, schedules() / 2);
}
