//! What is told of a command line that asks for the wrong thing.

use super::*;

#[test]
fn blocks_are_named_with_units_and_a_file_that_is_no_cache_is_told() {
    let pair = Pair::new();
    let large = pair.folder.text("large");
    for size in ["300", "128K", "4x", "5000000000"] {
        let wrong = run(&["create", "--pmem", &large, "--size", "8M", "--disk", &pair.disk, "--block", size]);
        let told = ["is no block size", "use one of 512, 520", "with --disk a power of two from 512 to 65536"];
        assert_tells(&wrong, USAGE, &told);
    }
    let create = ["create", "--pmem", &large, "--size", "8M", "--disk", &pair.disk, "--block", "64K"];
    assert_eq!(json(&create)["created"]["block_size"], 65536);
    let mode = |pmem: &str| run(&["mode", "--pmem", pmem, "write-back"]);
    assert_tells(&mode(&pair.pmem), ENVIRONMENT, &["no server answers"]);
    assert_tells(&mode(&pair.folder.text("absent")), REFUSED, &["there is no region", "no such file"]);
    let volume = pair.folder.volume("volume");
    assert_tells(&mode(&volume), REFUSED, &[&volume, "is no cache of a disk"]);
}
