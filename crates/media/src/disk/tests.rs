//! Disks in files: their contents beside a dull row of bytes, their locks, their refusals.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::*;
use crate::error::Error;
use proptest::prelude::*;
use std::path::PathBuf;

const BLOCKS: u64 = 64;

/// A file of [`BLOCKS`] blocks of `block_size` bytes, all one hole.
fn sparse(folder: &Path, block_size: u32) -> PathBuf {
    let path = folder.join("disk");
    File::create(&path).unwrap().set_len(BLOCKS * u64::from(block_size)).unwrap();
    path
}

fn opened(path: &Path, block_size: u32) -> FileDisk {
    FileDisk::open(path, DiskAccess::ReadWrite, block_size).unwrap()
}

/// A request.
#[derive(Clone, Debug)]
enum Act {
    Write { at: u64, blocks: u64, fill: u8, durability: Durability },
    Runs(Vec<(u64, u64, u8)>),
    Zero { at: u64, blocks: u64 },
    Discard { at: u64, blocks: u64 },
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..BLOCKS).prop_flat_map(|at| (Just(at), 0..=(BLOCKS - at).min(9)))
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let durability = prop_oneof![4 => Just(Durability::Volatile), 1 => Just(Durability::Fua)];
    let write = (range(), 1_u8.., durability);
    // Every run in an eighth of the disk of its own, so that none overlap.
    let runs = prop::collection::vec((0_u64..8, 1_u64..=8, 1_u8..), 0..8).prop_map(|runs| {
        let run = |(eighth, (shift, blocks, fill)): (usize, (u64, u64, u8))| {
            (eighth as u64 * 8 + shift, blocks.min(8 - shift), fill)
        };
        Act::Runs(runs.into_iter().enumerate().map(run).collect())
    });
    let act = prop_oneof![
        3 => write.prop_map(|((at, blocks), fill, durability)| Act::Write { at, blocks, fill, durability }),
        2 => runs,
        1 => range().prop_map(|(at, blocks)| Act::Zero { at, blocks }),
        1 => range().prop_map(|(at, blocks)| Act::Discard { at, blocks }),
    ];
    prop::collection::vec(act, 1..30)
}

/// Bytes that lie at an address that is a multiple of nothing.
struct Crooked(Vec<u8>);

impl Crooked {
    fn new(len: usize, fill: u8) -> Crooked {
        Crooked(vec![fill; len + 1])
    }
    fn bytes(&self) -> &[u8] {
        &self.0[1..]
    }
}

/// Carries `act` out on `disk`, and on the row of bytes that it is to be like.
fn carry_out(act: &Act, disk: &FileDisk, like: &mut [u8], size: usize) {
    let bytes =
        |at: u64, blocks: u64| usize::try_from(at).unwrap() * size..usize::try_from(at + blocks).unwrap() * size;
    let lba_range = |at: &u64, blocks: &u64| LbaRange { first: Lba(*at), blocks: *blocks };
    match act {
        Act::Write { at, blocks, fill, durability } => {
            let data = Crooked::new(bytes(*at, *blocks).len(), *fill);
            disk.write(Lba(*at), data.bytes(), *durability).unwrap();
            like[bytes(*at, *blocks)].fill(*fill);
        }
        Act::Runs(runs) => {
            // Every other run is aligned.
            let crooked: Vec<_> =
                runs.iter().map(|(_, blocks, fill)| Crooked::new(bytes(0, *blocks).len(), *fill)).collect();
            let aligned: Vec<_> = crooked.iter().map(|data| aligned_copy(data.bytes())).collect();
            let data = |nth: usize| if nth.is_multiple_of(2) { &aligned[nth][..] } else { crooked[nth].bytes() };
            let handed: Vec<_> =
                runs.iter().enumerate().map(|(nth, (at, ..))| Run { at: Lba(*at), data: data(nth) }).collect();
            assert_eq!(disk.write_runs(&handed), vec![Ok(()); runs.len()]);
            runs.iter().for_each(|(at, blocks, fill)| like[bytes(*at, *blocks)].fill(*fill));
        }
        Act::Zero { at, blocks } => {
            disk.write_zeroes(lba_range(at, blocks), Durability::Volatile).unwrap();
            like[bytes(*at, *blocks)].fill(0);
        }
        Act::Discard { at, blocks } => {
            disk.discard(lba_range(at, blocks)).unwrap();
            // Whatever it reads as now.
            disk.read(Lba(*at), &mut like[bytes(*at, *blocks)]).unwrap();
        }
    }
}

/// Each block by itself, and extents that tell the truth.
fn assert_like(disk: &FileDisk, like: &[u8], size: usize) {
    let mut whole = AlignedBytes::zeroed(like.len());
    disk.read(Lba(0), &mut whole).unwrap();
    assert!(*whole == *like, "the disk holds something else");
    let mut at = 0;
    while at < BLOCKS {
        let extent = disk.extent(LbaRange { first: Lba(at), blocks: BLOCKS - at }).unwrap();
        assert!((1..=BLOCKS - at).contains(&extent.blocks));
        let bytes = usize::try_from(at).unwrap() * size..usize::try_from(at + extent.blocks).unwrap() * size;
        assert!(
            extent.kind == ExtentKind::Data || like[bytes].iter().all(|byte| *byte == 0),
            "a hole that holds something"
        );
        at += extent.blocks;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_disk_is_like_a_row_of_bytes(acts in acts(), size in prop_oneof![Just(512_u32), Just(4096), Just(65536)], in_memory: bool) {
        let folder = if in_memory { tempfile::tempdir_in("/dev/shm").unwrap() } else { tempfile::tempdir().unwrap() };
        let path = sparse(folder.path(), size);
        let disk = opened(&path, size);
        let mut like = vec![0; usize::try_from(BLOCKS).unwrap() * size as usize];
        for act in &acts {
            carry_out(act, &disk, &mut like, size as usize);
            assert_like(&disk, &like, size as usize);
        }
        disk.flush().unwrap();
        drop(disk);
        prop_assert!(std::fs::read(&path).unwrap() == like, "the file holds something else");
    }
}

#[test]
fn without_io_uring_or_past_the_page_cache_it_is_the_same_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = sparse(folder.path(), 4096);
    let mut disk = opened(&path, 4096);
    assert_ne!(disk.way(), IoMethod::Cached, "this test needs a file system that knows O_DIRECT");
    let run = |at, fill| (Lba(at), Crooked::new(8192, fill));
    let runs = [run(3, 1), run(9, 2), run(20, 3)];
    let runs: Vec<_> = runs.iter().map(|(at, data)| Run { at: *at, data: data.bytes() }).collect();
    disk.ring = Mutex::new(None);
    assert_eq!(disk.write_runs(&runs), [Ok(()), Ok(()), Ok(())]);
    let mut out = vec![0; 8192];
    disk.read(Lba(20), &mut out).unwrap();
    assert!(out.iter().all(|byte| *byte == 3));
}

#[test]
fn one_bad_run_leaves_the_others_their_success() {
    let folder = tempfile::tempdir().unwrap();
    let disk = opened(&sparse(folder.path(), 4096), 4096);
    let data = aligned_copy(&[7; 8192]);
    let runs = [Lba(0), Lba(BLOCKS - 1), Lba(8)].map(|at| Run { at, data: &data });
    let answers = disk.write_runs(&runs);
    assert!(matches!(answers[..], [Ok(()), Err(Error::Misuse(Misuse::OutOfRange { .. })), Ok(())]), "{answers:?}");
    let many: Vec<_> = (0..BLOCKS).map(|at| Run { at: Lba(at), data: &data[..4096] }).collect();
    let three_times_as_many_as_fit = [&many[..], &many[..], &many[..]].concat();
    assert!(disk.write_runs(&three_times_as_many_as_fit).iter().all(Result::is_ok));
    assert_eq!(disk.write_runs(&[]), []);
}

#[test]
fn a_disk_has_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = sparse(folder.path(), 4096);
    let writer = opened(&path, 4096);
    for access in [DiskAccess::ReadWrite, DiskAccess::ReadOnly] {
        assert!(matches!(FileDisk::open(&path, access, 4096), Err(MapError::InUse { .. })));
    }
    drop(writer);
    let readers = [0; 2].map(|_| FileDisk::open(&path, DiskAccess::ReadOnly, 4096).unwrap());
    assert!(matches!(FileDisk::open(&path, DiskAccess::ReadWrite, 4096), Err(MapError::InUse { .. })));
    let reader = &readers[0];
    assert!(reader.geometry().read_only);
    let all = LbaRange { first: Lba(0), blocks: 1 };
    let refusals = [
        reader.write(Lba(0), &[0; 4096], Durability::Volatile),
        reader.discard(all),
        reader.write_zeroes(all, Durability::Volatile),
        reader.write_runs(&[Run { at: Lba(0), data: &[0; 4096] }]).remove(0),
    ];
    assert!(refusals.iter().all(|refusal| *refusal == Err(Error::Misuse(Misuse::ReadOnly))), "{refusals:?}");
}

#[test]
fn what_is_no_disk_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |path: &Path| FileDisk::open(path, DiskAccess::ReadWrite, 4096).err().unwrap();
    assert!(matches!(refusal(&folder.path().join("absent")), MapError::NotFound { .. }));
    assert!(matches!(refusal(folder.path()), MapError::NotAFile { kind: "a folder", .. }));
    assert!(matches!(refusal(Path::new("/dev/null")), MapError::NotAFile { .. }));
    let small = folder.path().join("small");
    std::fs::write(&small, [1; 4095]).unwrap();
    assert!(matches!(refusal(&small), MapError::Empty { .. }));
    std::fs::write(&small, [1; 4097]).unwrap();
    assert_eq!(opened(&small, 4096).geometry().blocks, 1);
}

#[test]
fn a_file_cut_short_is_answered_with_the_bytes_that_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = sparse(folder.path(), 4096);
    let disk = opened(&path, 4096);
    File::options().write(true).open(&path).unwrap().set_len(8 * 4096).unwrap();
    let mut out = vec![0; 2 * 4096];
    assert_eq!(disk.read(Lba(6), &mut out), Ok(()));
    assert_eq!(disk.read(Lba(10), &mut out), Err(Error::Media(Poison { at: 10 * 4096, len: 2 * 4096 })));
    let refusal = disk.last_refusal().unwrap();
    assert_eq!((refusal.range, refusal.errno), (LbaRange { first: Lba(10), blocks: 2 }, Errno::IO.raw_os_error()));
    assert!(refusal.to_string().starts_with("cannot read blocks 10..12: "), "{refusal}");
    assert_eq!(disk.refusals(), Refusals { reads: 1, ..Refusals::default() });
}
