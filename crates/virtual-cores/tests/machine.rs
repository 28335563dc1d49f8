//! What a machine promises: the same run from the same seed, every interleaving sooner or later,
//! clocks that say when.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_virtual_cores::sync::Mutex;
use tidegate_virtual_cores::sync::atomic::{AtomicU64, Ordering};
use tidegate_virtual_cores::{
    Costs, Ended, How, Machine, Order, Plan, Rng, charge, is_inside, note, now_ns, park, pass_time, stop, thread,
    thread_number, unpark,
};

const ORDERS: [Order; 4] = [
    Order::Random { one_in: 3 },
    Order::Priorities { changes: 3, points: 60 },
    Order::Unfair { points: 20 },
    Order::Timed,
];

fn plan(seed: u64, order: Order) -> Plan {
    Plan { points_max: 1_000_000, ..Plan::new(seed, 4, order) }
}

/// Two threads that add one by a load and a store, three times each. Returns what was counted.
fn unlocked(seed: u64, order: Order) -> (u64, Ended) {
    let counter = Arc::new(AtomicU64::new(0));
    let mut machine = Machine::new(plan(seed, order));
    for core in 0..2 {
        let counter = counter.clone();
        machine.spawn(core, move || {
            for _ in 0..3 {
                let before = counter.load(Ordering::SeqCst);
                counter.store(before + 1, Ordering::SeqCst);
            }
        });
    }
    let ended = machine.run();
    (counter.load(Ordering::SeqCst), ended)
}

#[test]
fn a_race_of_a_load_and_a_store_is_found_in_few_seeds() {
    for order in &ORDERS[..3] {
        let found = (0..100).find(|seed| unlocked(*seed, *order).0 < 6);
        assert!(found.is_some(), "{order:?} never loses an addition");
        assert!((0..100).any(|seed| unlocked(seed, *order).0 == 6), "{order:?} never lets one thread go on");
    }
}

#[test]
fn a_seed_names_one_run() {
    for order in ORDERS {
        for seed in 0..20 {
            let ((first, one), (second, other)) = (unlocked(seed, order), unlocked(seed, order));
            assert_eq!((first, one.hash, one.points), (second, other.hash, other.points));
        }
    }
    assert_ne!(unlocked(1, ORDERS[0]).1.hash, unlocked(2, ORDERS[0]).1.hash);
}

#[test]
fn a_lock_keeps_additions_apart_in_any_order() {
    for order in ORDERS {
        for seed in 0..50 {
            let counter = Arc::new((Mutex::new(0u64), AtomicU64::new(0)));
            let mut machine = Machine::new(plan(seed, order));
            for core in 0..4 {
                let counter = counter.clone();
                machine.spawn(core, move || {
                    for _ in 0..5 {
                        let mut held = counter.0.lock().unwrap();
                        let before = *held;
                        counter.1.fetch_add(1, Ordering::Relaxed);
                        *held = before + 1;
                    }
                });
            }
            assert!(matches!(machine.run().how, How::Finished));
            assert_eq!(*counter.0.lock().unwrap(), 20);
        }
    }
}

#[test]
fn locks_taken_in_two_orders_end_in_a_deadlock_that_is_named() {
    let tied = |seed| {
        let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
        let mut machine = Machine::new(plan(seed, ORDERS[0]));
        for first in 0..2 {
            let locks = locks.clone();
            machine.spawn(0, move || {
                let _one = locks[first].lock().unwrap();
                let _other = locks[1 - first].lock().unwrap();
            });
        }
        matches!(machine.run().how, How::Deadlock(stuck) if stuck == [0, 1])
    };
    assert!((0..100).any(tied));
    assert!(!(0..100).all(tied));
}

#[test]
fn a_loop_that_gives_way_ends_in_any_order() {
    for order in ORDERS {
        for seed in 0..50 {
            let flag = Arc::new(AtomicU64::new(0));
            let mut machine = Machine::new(plan(seed, order));
            for core in 0..3 {
                let flag = flag.clone();
                machine.spawn(core, move || {
                    while flag.load(Ordering::Acquire) == 0 {
                        thread::yield_now();
                    }
                });
            }
            machine.spawn(3, move || flag.store(1, Ordering::Release));
            assert!(matches!(machine.run().how, How::Finished), "{order:?}, seed {seed}");
        }
    }
}

#[test]
fn a_loop_that_waits_for_nobody_is_too_long() {
    let mut machine = Machine::new(Plan { points_max: 1000, ..Plan::new(1, 1, ORDERS[0]) });
    machine.spawn(0, || {
        loop {
            thread::yield_now();
        }
    });
    assert!(matches!(machine.run().how, How::TooLong));
}

#[test]
fn a_loop_without_a_point_is_too_long() {
    for order in ORDERS {
        let waiting = Arc::new(Mutex::new(vec![1, 2, 3]));
        let mut machine = Machine::new(plan(1, order));
        machine.spawn(0, move || {
            let waiting = waiting.lock().unwrap();
            // Nobody takes any away: the lock is held.
            while !waiting.is_empty() {}
        });
        assert!(matches!(machine.run().how, How::TooLong));
        let mut machine = Machine::new(plan(1, order));
        machine.spawn(0, || {
            loop {
                note(1);
            }
        });
        assert!(matches!(machine.run().how, How::TooLong));
    }
}

#[test]
fn an_unparking_is_never_lost() {
    for order in ORDERS {
        for seed in 0..50 {
            let mut machine = Machine::new(plan(seed, order));
            let sleeper = machine.spawn(0, || {
                park();
                park();
            });
            machine.spawn(1, move || unpark(sleeper));
            assert!(matches!(machine.run().how, How::Deadlock(stuck) if stuck == [0]), "one unparking, two parkings");
        }
    }
}

#[test]
fn a_stopped_machine_unwinds_its_threads() {
    struct Dropped(Arc<AtomicU64>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            assert!(!is_inside());
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (dropped, after) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut machine = Machine::new(plan(3, ORDERS[0]));
    for core in 0..3 {
        let (dropped, after) = (Dropped(dropped.clone()), after.clone());
        machine.spawn(core, move || {
            let _dropped = dropped;
            if core == 2 {
                stop();
                after.fetch_add(1, Ordering::SeqCst);
            }
            loop {
                thread::yield_now();
            }
        });
    }
    assert!(matches!(machine.run().how, How::Stopped));
    assert_eq!(dropped.load(Ordering::SeqCst), 3);
    assert_eq!(after.load(Ordering::SeqCst), 0);
}

#[test]
fn a_panic_ends_the_machine_and_is_handed_on() {
    let mut machine = Machine::new(plan(3, ORDERS[0]));
    machine.spawn(0, park);
    machine.spawn(1, || std::panic::resume_unwind(Box::new("enough")));
    match machine.run().how {
        How::Panicked(1, panic) => assert_eq!(*panic.downcast::<&str>().unwrap(), "enough"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn cores_run_at_once_and_threads_of_one_core_do_not() {
    let free = Costs { access_ns: 0, locked_ns: 0, handoff_ns: 0, wake_up_ns: 0, switch_ns: 0, ..Costs::default() };
    let clocks = |cores: u32| {
        let mut machine =
            Machine::new(Plan { costs: Costs { slice_ns: 50, ..free }, ..Plan::new(1, cores, Order::Timed) });
        for thread in 0..4 {
            machine.spawn(thread % cores, || {
                for _ in 0..10 {
                    charge(10);
                    AtomicU64::new(0).load(Ordering::Relaxed);
                }
            });
        }
        machine.run().clocks_ns
    };
    assert_eq!(clocks(4), [100; 4]);
    assert_eq!(clocks(2), [200; 2]);
    assert_eq!(clocks(1), [400]);
}

#[test]
fn the_holder_of_a_lock_passes_its_clock_on() {
    let costs = Costs { access_ns: 0, locked_ns: 0, handoff_ns: 7, ..Costs::default() };
    let lock = Arc::new(Mutex::new(()));
    let mut machine = Machine::new(Plan { costs, ..Plan::new(1, 2, Order::Timed) });
    for core in 0..2 {
        let lock = lock.clone();
        machine.spawn(core, move || {
            charge(u64::from(core));
            let _held = lock.lock().unwrap();
            charge(100);
            let _ = AtomicU64::new(0).load(Ordering::Relaxed);
        });
    }
    assert_eq!(machine.run().clocks_ns, [100, 207]);
}

#[test]
fn sleepers_wake_in_the_order_of_their_times() {
    let woken = Rc::new(RefCell::new(Vec::new()));
    let mut machine = Machine::new(Plan::new(1, 1, Order::Timed));
    for ns in [500, 100, 300] {
        let woken = woken.clone();
        machine.spawn(0, move || {
            pass_time(ns);
            woken.borrow_mut().push((thread_number().unwrap(), now_ns() >= ns));
        });
    }
    machine.run();
    assert_eq!(*woken.borrow(), [(1, true), (2, true), (0, true)]);
}

#[test]
fn orders_of_every_kind_come_up() {
    let mut rng = Rng::new(1);
    let orders: Vec<Order> = (0..100).map(|_| Order::any(&mut rng, 1000)).collect();
    assert!(orders.iter().any(|order| matches!(order, Order::Unfair { .. })));
    assert!(orders.iter().any(|order| matches!(order, Order::Priorities { .. })));
}

#[test]
fn on_a_plain_thread_all_of_it_is_as_in_std() {
    assert!(!is_inside());
    let counter = Arc::new((Mutex::new(0), AtomicU64::new(0)));
    let threads = [(); 4].map(|()| {
        let counter = counter.clone();
        std::thread::spawn(move || {
            for _ in 0..1000 {
                *counter.0.lock().unwrap() += 1;
                counter.1.fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
            }
        })
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!((*counter.0.lock().unwrap(), counter.1.load(Ordering::Relaxed)), (4000, 4000));
    assert_eq!((now_ns(), thread_number()), (0, None));
}
