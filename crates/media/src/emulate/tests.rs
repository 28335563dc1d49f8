//! The charges of emulated media, to the nanosecond, on a clock that only waiting moves.

use super::*;
use crate::mapped::MappedRegion;
use crate::sync::set_thread_token;

/// A clock that stands still but for waits.
#[derive(Debug, Default)]
struct StillClock(AtomicU64);

impl Clock for StillClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn wait_until(&self, ns: u64) {
        self.0.fetch_max(ns, Ordering::SeqCst);
    }
}

fn emulated(name: &str) -> Emulated<MappedRegion, StillClock> {
    let region = MappedRegion::anonymous(1 << 16).expect("maps");
    Emulated::with_clock(region, Profile::by_name(name).expect("a profile"), StillClock::default())
}

/// Nanoseconds that `act` waits.
fn charged<R>(region: &Emulated<MappedRegion, StillClock>, act: impl FnOnce() -> R) -> u64 {
    let before = region.clock.now_ns();
    act();
    region.clock.now_ns() - before
}

#[test]
fn reads_are_charged_by_the_line() {
    // (profile, one word, one aligned block, 2 bytes on both sides of a line of 64 and of 256
    // bytes)
    let expected = [
        ("nvdimm", 0, 0, 0),
        ("stt-ram", 50, 64 * 50, 2 * 50),
        ("pcm", 50, 64 * 50, 2 * 50),
        ("optane", 224, 224 + 15 * 39, 224 + 39),
        ("cxl", 245, 245, 245),
    ];
    for (name, word, block, crossing) in expected {
        let region = emulated(name);
        assert_eq!(charged(&region, || region.load_u64(0)), word, "{name}");
        assert_eq!(charged(&region, || region.read(4096, &mut [0; 4096])), block, "{name}");
        assert_eq!(charged(&region, || region.read(255, &mut [0; 2])), crossing, "{name}");
        assert_eq!(charged(&region, || region.read(255, &mut [])), 0, "{name}");
    }
}

#[test]
fn writes_are_charged_at_the_fence_and_once() {
    // A block of 4096 bytes at 2.3 GB/s takes 1781 ns; one line of 64 bytes at 24.267 GB/s takes 3.
    for (name, block) in [("nvdimm", 0), ("stt-ram", 64 * 50), ("pcm", 64 * 180), ("optane", 1781), ("cxl", 245)] {
        let region = emulated(name);
        assert_eq!(charged(&region, || region.stream(0, &[1; 4096])), 0, "{name}: not before the fence");
        assert_eq!(charged(&region, || region.fence()), block, "{name}");
        assert_eq!(charged(&region, || region.fence()), 0, "{name}: paid");
        region.write(4096, &[1; 4096]);
        assert_eq!(charged(&region, || region.fence()), 0, "{name}: nothing was flushed");
        region.flush(4096, 4096);
        assert_eq!(charged(&region, || region.fence()), block, "{name}");
    }
}

#[test]
fn latencies_of_one_fence_add_up() {
    let region = emulated("pcm");
    region.flush(0, 8);
    region.flush(60, 8);
    region.flush(0, 0);
    assert_eq!(charged(&region, || region.fence()), 3 * 180);
}

#[test]
fn optane_writes_whole_lines_of_256_bytes() {
    let region = emulated("optane");
    region.flush(0, 8);
    // 256 bytes at 2.3 GB/s, rounded up: longer than the latency of 5 ns.
    assert_eq!(charged(&region, || region.fence()), 112);
    region.flush(192, 128);
    assert_eq!(charged(&region, || region.fence()), 223);
}

#[test]
fn threads_pay_their_own_latency_and_share_the_bandwidth() {
    let region = emulated("optane");
    let as_thread = |token| set_thread_token(token);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            as_thread(1);
            region.stream(0, &[1; 4096]);
            as_thread(2);
            region.stream(4096, &[2; 4096]);
            as_thread(3);
            assert_eq!(charged(&region, || region.fence()), 0, "this thread wrote nothing");
            as_thread(2);
            assert_eq!(charged(&region, || region.fence()), 2 * 1781, "the medium wrote the other's block first");
            as_thread(1);
            assert_eq!(charged(&region, || region.fence()), 5, "written meanwhile; what is left is its own latency");
        });
    });
}

#[test]
fn an_unknown_profile_is_told_the_known_ones() {
    let error = Profile::by_name("drum").expect_err("no such medium").to_string();
    assert_eq!(error, "no emulated medium is called \"drum\"; choose one of nvdimm, stt-ram, pcm, optane, cxl");
    for name in Profile::NAMES {
        assert_eq!(Profile::by_name(name).expect("known").name, name);
    }
}

#[test]
fn the_bytes_are_those_of_the_region_below() {
    let region = Emulated::new(MappedRegion::anonymous(4096).expect("maps"), Profile::by_name("cxl").expect("known"));
    region.stream(0, b"tidegate");
    region.fence().expect("nothing was lost");
    assert_eq!(region.load_u64(0), Ok(u64::from_le_bytes(*b"tidegate")));
    assert_eq!(region.region().counters().bytes_stored, 8);
}

#[test]
fn the_tick_clock_waits_no_shorter_than_asked() {
    let clock = TickClock::calibrated();
    let end = clock.now_ns() + 50_000;
    clock.wait_until(end);
    assert!(clock.now_ns() >= end);
}
