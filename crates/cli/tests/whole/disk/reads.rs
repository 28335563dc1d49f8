//! What becomes of blocks that are read.

use super::*;

#[test]
fn what_is_read_comes_in_by_the_policies_and_is_counted() {
    let pair = Pair::new();
    let mut server = pair.serve(&["--read-admission", "second-miss", "--sequential-cutoff", "64K"]);
    let mut client = pair.client();
    (0..100).for_each(|block| assert_eq!(read(&mut client, block), vec![0; 4096]));
    (0..3).for_each(|_| assert_eq!(read(&mut client, 1000), vec![0; 4096]));
    let look = &pair.info()["disk"];
    assert_eq!((look["admit"].as_str(), look["sequential_bytes"].as_u64()), (Some("second-miss"), Some(65536)));
    assert_eq!((look["past"]["in_runs"].as_u64(), look["past"]["turned_away"].as_u64()), (Some(84), Some(17)));
    assert_eq!((look["reads"]["hits"].as_u64(), look["clean_bytes"].as_u64()), (Some(1), Some(BLOCK)));
    let shown = run(&["info", "--pmem", &pair.pmem]).stdout;
    assert!(shown.contains("second-miss, runs over 64 KiB go past; past: 84 in runs, 17 turned away"), "{shown}");
    let stat = json(&["stat", "--pmem", &pair.pmem]);
    assert_eq!(stat["volumes"][0]["counters"]["disk_cache_turned_away"].as_f64(), Some(17.0));
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn what_is_read_is_forgotten_by_a_restart_if_asked_for() {
    let pair = Pair::new();
    let info = |word: &str| {
        let shown = run(&["info", "--pmem", &pair.pmem]).stdout;
        assert_eq!(shown.contains("always, until a restart"), word == "forgets", "{shown}");
        pair.info()["disk"].clone()
    };
    let mut server = pair.serve(&["--volatile-reads"]);
    let mut client = pair.client();
    write(&mut client, 7, 1);
    (0..10).for_each(|block| drop(read(&mut client, block)));
    let look = info("forgets");
    assert_eq!((look["forgets_reads"].as_bool(), look["reads"]["misses"].as_u64()), (Some(true), Some(9)));
    drop(client);
    assert_eq!(server.stop().code(), Some(0));
    let mut server = pair.serve(&[]);
    let look = info("keeps");
    let held = ["clean_bytes", "dirty_bytes"].map(|key| look[key].as_u64().unwrap_or_default()).iter().sum::<u64>();
    assert_eq!((look["forgets_reads"].as_bool(), held), (Some(false), BLOCK), "what was written alone");
    assert_eq!(read(&mut pair.client(), 7), stamped(7, 1));
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn what_is_forgotten_is_scrubbed_and_passes_through_every_change_of_the_cache() {
    let pair = Pair::laid_out(&["--checksums"]);
    let mut server = pair.serve(&["--volatile-reads", "--dirty-age", "3600"]);
    let mut client = pair.client();
    let mut read_and_write = |turn: u64| {
        (0..40).for_each(|block| {
            assert_eq!(read(&mut client, block), if block < turn { stamped(block, turn) } else { vec![0; 4096] })
        });
        (0..=turn).for_each(|block| write(&mut client, block, turn + 1));
    };
    read_and_write(0);
    assert_eq!(json(&["scrub", "--pmem", &pair.pmem])["sound"].as_u64(), Some(40));
    assert_eq!(run(&["resize", "--pmem", &pair.pmem, "--size", "6M"]).code, 0);
    read_and_write(1);
    assert_eq!(json(&["scrub", "--pmem", &pair.pmem])["sound"].as_u64(), Some(40));
    assert_eq!(run(&["detach", "--pmem", &pair.pmem]).code, 0);
    read_and_write(2);
    assert_eq!(run(&["attach", "--pmem", &pair.pmem, "--disk", &pair.disk]).code, 0);
    read_and_write(3);
    assert_eq!(pair.info()["disk"]["forgets_reads"].as_bool(), Some(true));
    server.kill();
    let found = json(&["scrub", "--pmem", &pair.pmem]);
    assert_eq!((found["served"].as_bool(), found["sound"].as_u64()), (Some(false), Some(4)));
    let mut server = pair.serve(&["--volatile-reads"]);
    let mut client = pair.client();
    (0..4).for_each(|block| assert_eq!(read(&mut client, block), stamped(block, 4)));
    assert_eq!(server.stop().code(), Some(0));
    assert_eq!(run(&["check", "--pmem", &pair.pmem]).code, 0);
}
