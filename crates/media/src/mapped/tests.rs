//! Mapped regions against a plain vector, and accesses that the medium refuses.
#![allow(clippy::cast_possible_truncation, reason = "offsets in a region of 16 KiB")]

use super::*;
use proptest::prelude::{Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;

const LEN: u64 = 16384;

/// A folder in memory, removed at the end.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a folder in memory")
}

fn region_in(folder: &tempfile::TempDir) -> MappedRegion {
    MappedRegion::create(&folder.path().join("region"), LEN, Allocation::Full).expect("creates")
}

/// A region whose file loses everything from `keep` on.
fn cut_short(folder: &tempfile::TempDir, keep: u64) -> MappedRegion {
    let region = region_in(folder);
    region.file().expect("a file").set_len(keep).expect("cut short");
    region
}

#[derive(Clone, Debug)]
enum Verb {
    Write(u64, Vec<u8>),
    Stream(u64, Vec<u8>),
    Store(u64, u64),
    Flush(u64, u64),
    Read(u64, usize),
    Load(u64),
}

fn verb() -> impl Strategy<Value = Verb> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..80),
        prop::collection::vec(any::<u8>(), 200..1200),
        prop::collection::vec(any::<u8>(), 4096..=4096),
    ];
    let place = (0..=LEN, bytes).prop_map(|(at, bytes)| (at.min(LEN - bytes.len() as u64), bytes));
    let place = (place, any::<bool>()).prop_map(|((at, bytes), aligned)| (if aligned { at & !63 } else { at }, bytes));
    let range = (0..=LEN, 0..5000u64).prop_map(|(at, len)| (at, len.min(LEN - at)));
    let page = (0..=(LEN - 4096) / 64).prop_map(|line| Verb::Read(line * 64, 4096));
    prop_oneof![
        place.clone().prop_map(|(at, bytes)| Verb::Write(at, bytes)),
        place.prop_map(|(at, bytes)| Verb::Stream(at, bytes)),
        (0..LEN / 8, any::<u64>()).prop_map(|(word, value)| Verb::Store(word * 8, value)),
        range.clone().prop_map(|(at, len)| Verb::Flush(at, len)),
        range.prop_map(|(at, len)| Verb::Read(at, len as usize)),
        page,
        (0..LEN / 8).prop_map(|word| Verb::Load(word * 8)),
    ]
}

/// Lines of `size` bytes among those of `at..at + len`, counted one by one.
fn lines_touched(at: u64, len: u64, size: u64) -> u64 {
    (0..LEN / size).filter(|line| line * size < at + len && at < (line + 1) * size && len > 0).count() as u64
}

/// Does `verb` to the region, the model and the predicted counts.
fn apply(region: &MappedRegion, model: &mut [u8], counts: &mut Counters, verb: &Verb) {
    let mut covers = |at, len| {
        counts.lines_flushed += lines_touched(at, len, 64);
        counts.lines_256_touched += lines_touched(at, len, 256);
    };
    match verb {
        Verb::Write(at, bytes) | Verb::Stream(at, bytes) => {
            model[*at as usize..][..bytes.len()].copy_from_slice(bytes);
            if matches!(verb, Verb::Stream(..)) {
                covers(*at, bytes.len() as u64);
                region.stream(*at, bytes);
            } else {
                region.write(*at, bytes);
            }
            counts.bytes_stored += bytes.len() as u64;
        }
        Verb::Store(at, word) => {
            model[*at as usize..][..8].copy_from_slice(&word.to_le_bytes());
            region.store_u64(*at, *word);
            counts.bytes_stored += 8;
        }
        Verb::Flush(at, len) => {
            covers(*at, *len);
            region.flush(*at, *len);
        }
        Verb::Read(at, len) => {
            let mut out = vec![0; *len];
            region.read(*at, &mut out).expect("reads");
            assert_eq!(out, &model[*at as usize..][..*len]);
        }
        Verb::Load(at) => {
            let word = u64::from_le_bytes(model[*at as usize..][..8].try_into().expect("8 bytes"));
            assert_eq!(region.load_u64(*at), Ok(word));
        }
    }
}

proptest! {
    #[test]
    fn every_routine_agrees_with_a_vector(verbs in prop::collection::vec(verb(), 1..40)) {
        for instructions in Instructions::supported() {
            let mut region = MappedRegion::anonymous(LEN).expect("maps");
            region.part.instructions = instructions;
            let (mut model, mut counts) = (vec![0; LEN as usize], Counters::default());
            for verb in &verbs {
                apply(&region, &mut model, &mut counts, verb);
            }
            region.fence().expect("nothing was lost");
            counts.fences += 1;
            let mut all = vec![0; LEN as usize];
            region.read(0, &mut all).expect("reads");
            prop_assert_eq!(&all, &model);
            prop_assert_eq!(region.counters(), counts);
        }
    }
}

#[test]
fn an_aligned_block_streamed_counts_64_lines_and_16_wide_ones() {
    let region = MappedRegion::anonymous(LEN).expect("maps");
    let before = region.counters();
    region.stream(4096, &[1; 4096]);
    region.fence().expect("nothing was lost");
    let after = region.counters() - before;
    let expected = Counters { bytes_stored: 4096, lines_flushed: 64, lines_256_touched: 16, fences: 1 };
    assert_eq!(after, expected);
}

#[test]
fn counts_of_many_threads_add_up() {
    let region = MappedRegion::anonymous(LEN).expect("maps");
    for _ in 0..3 {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let region = &region;
                scope.spawn(move || (0..1000).for_each(|_| region.store_u64(thread * 8, 1)));
            }
        });
    }
    assert_eq!(region.counters().bytes_stored, 3 * 8 * 1000 * 8);
}

#[test]
fn loads_past_the_end_of_a_file_cut_short_are_poison() {
    for instructions in Instructions::supported() {
        let folder = folder();
        let mut region = cut_short(&folder, 4096);
        region.part.instructions = instructions;
        assert_eq!(region.load_u64(8192), Err(Poison { at: 8192, len: 8 }));
        for (at, len) in [
            (4096, 1),
            (5000, 3),
            (4000, 200),
            (4090, 4096),
            (8192, 4096),
            (4096, 64),
            (64, 4096),
            (1024, 4096),
            (2048, 4096),
            (3072, 4096),
        ] {
            assert_eq!(region.read(at, &mut vec![0; len]), Err(Poison { at, len: len as u64 }), "{instructions}");
        }
        assert_eq!(region.read(0, &mut [0; 4096]), Ok(()), "what is left still reads");
        region.fence().expect("a failed load loses no store");
    }
}

type LosingVerb = (&'static str, fn(&MappedRegion), u64);

#[test]
fn stores_past_the_end_of_a_file_cut_short_seal_the_region() {
    let verbs: [LosingVerb; 9] = [
        ("store_u64", |region| region.store_u64(8192, 1), 8192),
        ("short write", |region| region.write(5001, &[1; 7]), 5001),
        ("write over the end", |region| region.write(4000, &[1; 200]), 4096),
        ("long write", |region| region.write(4096, &[1; 4096]), 4096),
        ("stream", |region| region.stream(4096, &[1; 4096]), 4096),
        ("stream of words", |region| region.stream(4096 + 8, &[1; 16]), 4096 + 8),
        ("unaligned stream", |region| region.stream(4097, &[1; 30]), 4097),
        ("stream over the end", |region| region.stream(4000, &[1; 4096]), 4096),
        ("flush", |region| region.flush(4000, 4096), 4096),
    ];
    for instructions in Instructions::supported() {
        for (name, verb, at) in verbs {
            // Where caches survive, and on some aarch64 processors, a flush touches nothing and
            // cannot fail.
            let flushes = cfg!(target_arch = "x86_64") && !instructions.to_string().contains("no flush");
            if name == "flush" && !flushes {
                continue;
            }
            let folder = folder();
            let mut region = cut_short(&folder, 4096);
            region.part.instructions = instructions;
            region.fence().expect("nothing lost yet");
            verb(&region);
            assert_eq!(region.fence(), Err(Sealed::StoreLost { at }), "{name} by {instructions}");
            region.store_u64(16000, 1);
            assert_eq!(region.fence(), Err(Sealed::StoreLost { at }), "the first offset stays");
        }
    }
}

#[test]
fn a_lost_store_harms_no_other_region_and_no_other_thread() {
    let (folder, other_folder) = (folder(), folder());
    let (cut, sound) = (cut_short(&folder, 0), region_in(&other_folder));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..2000).for_each(|round| cut.store_u64(round % 2048 * 8, round)));
            scope.spawn(|| {
                for round in 0..2000 {
                    sound.stream(0, &[round as u8; 4096]);
                    sound.fence().expect("nothing of this region was lost");
                }
            });
        }
    });
    assert!(matches!(cut.fence(), Err(Sealed::StoreLost { .. })));
    let mut out = [0; 4096];
    sound.read(0, &mut out).expect("reads");
    assert_eq!(out, [1999u32 as u8; 4096]);
}

#[test]
fn a_private_region_never_changes_its_file() {
    let folder = folder();
    region_in(&folder).store_u64(0, 7);
    let path = folder.path().join("region");
    let (one, two) = (MappedRegion::open(&path, Access::Private), MappedRegion::open(&path, Access::Private));
    let (one, two) = (one.expect("opens"), two.expect("opens beside another private one"));
    one.write(0, &[9; 100]);
    assert_eq!(one.load_u64(0), Ok(0x0909_0909_0909_0909));
    assert_eq!(two.load_u64(0), Ok(7));
    assert_eq!(one.zero_all().ok(), Some(false));
    assert_eq!(fs::read(&path).expect("reads")[..8], 7u64.to_le_bytes());
    assert!(matches!(MappedRegion::open(&path, Access::ReadWrite), Err(MapError::InUse { .. })));
}

#[test]
fn a_region_open_for_writing_is_nobody_elses() {
    let folder = folder();
    let region = region_in(&folder);
    let path = folder.path().join("region");
    for access in [Access::ReadWrite, Access::Private] {
        assert!(matches!(MappedRegion::open(&path, access), Err(MapError::InUse { .. })));
    }
    region.store_u64(0, 7);
    let look = MappedRegion::open(&path, Access::PrivateUnlocked).expect("a look needs no lock");
    assert_eq!(look.load_u64(0), Ok(7));
    look.store_u64(0, 8);
    assert_eq!(region.load_u64(0), Ok(7), "a look changes nothing");
    drop(region);
    MappedRegion::open(&path, Access::ReadWrite).expect("the lock went with the region");
}

#[test]
fn what_is_stored_is_there_when_opened_again() {
    let folder = folder();
    region_in(&folder).stream(100, b"tide");
    let region = MappedRegion::open(&folder.path().join("region"), Access::ReadWrite).expect("opens");
    let mut out = [0; 6];
    region.read(99, &mut out).expect("reads");
    assert_eq!(&out, b"\0tide\0");
    assert_eq!((region.len(), region.domain()), (LEN, Domain::ProcessCrash));
}

#[test]
fn zero_all_zeroes_and_keeps_a_full_file_full_and_a_sparse_one_sparse() {
    // One folder in memory (punches a hole and allocates again), one on a disk's file system
    // (zeroes a range).
    for folder in [folder(), tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder on disk")] {
        let region = region_in(&folder);
        region.write(0, &[5; LEN as usize]);
        if region.zero_all().expect("zeroes") {
            let mut all = vec![1; LEN as usize];
            region.read(0, &mut all).expect("reads");
            assert!(all.iter().all(|&byte| byte == 0));
        }
        let stat = fstat(region.file().expect("a file")).expect("stat");
        assert!(stat.st_blocks.cast_unsigned() * 512 >= LEN);
        let sparse = MappedRegion::create(&folder.path().join("sparse"), 64 * LEN, Allocation::Sparse);
        let sparse = sparse.expect("creates");
        sparse.write(0, &[5; LEN as usize]);
        if sparse.zero_all().expect("zeroes") {
            assert_eq!(sparse.load_u64(0), Ok(0));
        }
        let stat = fstat(sparse.file().expect("a file")).expect("stat");
        assert!(stat.st_blocks.cast_unsigned() * 512 <= 2 * LEN);
    }
    let region = MappedRegion::anonymous(LEN).expect("maps");
    region.write(0, &[5; 64]);
    assert!(region.zero_all().expect("zeroes"));
    assert_eq!(region.load_u64(0), Ok(0));
}

#[test]
fn a_file_on_a_disk_is_of_the_domain_disk_file() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder beside the sources");
    let region = region_in(&folder);
    // Sources may be checked out into memory, too.
    let in_memory = rustix::fs::statfs(folder.path()).expect("statfs").f_type == 0x0102_1994;
    assert_eq!(region.domain(), if in_memory { Domain::ProcessCrash } else { Domain::DiskFile });
    assert_eq!(MappedRegion::anonymous(1).expect("maps").domain(), Domain::Volatile);
}

#[test]
fn opening_says_what_is_wrong() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let error = |name: &str| MappedRegion::open(&path(name), Access::ReadWrite).err().expect("refused");
    fs::write(path("empty"), b"").expect("writes");
    fs::create_dir(path("folder")).expect("makes");
    let _listener = UnixListener::bind(path("socket")).expect("binds");
    assert!(matches!(error("missing"), MapError::NotFound { .. }));
    assert!(matches!(error("empty"), MapError::Empty { .. }));
    assert!(matches!(error("empty/below"), MapError::NotFound { .. }));
    assert!(matches!(error("folder"), MapError::NotAFile { kind: "a folder", .. }));
    assert!(matches!(error("socket"), MapError::NotAFile { .. }));
    let null = MappedRegion::open(Path::new("/dev/null"), Access::Private).err().expect("refused");
    assert!(matches!(null, MapError::NotAFile { .. }), "{null}");
}

#[test]
fn creating_says_what_is_wrong_and_leaves_nothing() {
    let folder = folder();
    let path = folder.path().join("region");
    let error = |len, allocation| MappedRegion::create(&path, len, allocation).err().expect("refused");
    assert!(matches!(error(0, Allocation::Full), MapError::Empty { .. }));
    assert!(matches!(error(1 << 62, Allocation::Full), MapError::NoSpace { .. } | MapError::TooLarge { .. }));
    assert!(!path.exists(), "a failed creation removes its file");
    fs::write(&path, b"mine").expect("writes");
    assert!(matches!(error(4096, Allocation::Sparse), MapError::AlreadyExists { .. }));
    assert_eq!(fs::read(&path).expect("reads"), b"mine");
}

#[test]
fn a_new_file_is_its_owners_alone() {
    let folder = folder();
    let region = region_in(&folder);
    let mode = region.file().expect("a file").metadata().expect("metadata").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
#[should_panic(expected = "reach past the end")]
fn a_read_past_the_end_panics() {
    let _ = MappedRegion::anonymous(4096).expect("maps").read(4090, &mut [0; 7]);
}

#[test]
#[should_panic(expected = "not that of an aligned word")]
fn an_unaligned_word_panics() {
    MappedRegion::anonymous(4096).expect("maps").store_u64(4, 1);
}

#[test]
fn the_end_of_a_region_becomes_zero_and_nothing_else_does() {
    let folder = folder();
    let region = region_in(&folder);
    region.write(0, &[7; LEN as usize]);
    region.zero_end(4096).expect("memory");
    let expected = [vec![7; LEN as usize - 4096], vec![0; 4096]].concat();
    assert_eq!(fs::read(folder.path().join("region")).expect("a file"), expected);
}

/// A pipe refers to pages that were spliced into it.
#[test]
fn renewed_pages_are_other_memory_in_the_same_place() {
    let folder = folder();
    let region = region_in(&folder);
    region.write(0, &[7; LEN as usize]);
    let file = region.file().expect("a file");
    let blocks = file.metadata().expect("there").blocks();
    let (from, to) = rustix::pipe::pipe().expect("a pipe");
    let spliced = rustix::pipe::splice(file, Some(&mut 4096), &to, None, 8192, rustix::pipe::SpliceFlags::empty());
    assert_eq!(spliced, Ok(8192));
    assert!(region.renew(4096, 8192));
    let mut all = vec![1; LEN as usize];
    region.read(0, &mut all).expect("there");
    let expected: Vec<u8> = [7, 0, 0, 7].iter().flat_map(|byte| [*byte; 4096]).collect();
    assert!(all == expected);
    assert_eq!(file.metadata().expect("there").blocks(), blocks, "it has the room that it had");
    region.write(4096, &[9; 8192]);
    let mut old = [0; 8192];
    assert_eq!((rustix::io::read(from, &mut old), old.iter().all(|byte| *byte == 7)), (Ok(8192), true));
}
