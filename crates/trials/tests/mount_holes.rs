//! Holes and room of files on a mount, compared call by call with a file on the disk's own file
//! system: the same random calls leave the same bytes and lengths. They are there too after the
//! service was killed.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom, fallocate, ftruncate, open, seek};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tidegate_sim::Rng;
use tidegate_trials::mounted::MountTestbed;

/// Files reach about this far.
const REACH: u64 = 300_000;

/// Calls on each file.
const CALLS: u32 = 150;

/// A call that changes a file.
#[derive(Clone, Debug)]
enum Call {
    Write(u64, usize, u8),
    Fallocate(FallocateFlags, u64, u64),
    Truncate(u64),
    Sync,
}

impl Call {
    fn random(rng: &mut Rng) -> Call {
        let keep = FallocateFlags::KEEP_SIZE;
        let modes = [
            FallocateFlags::PUNCH_HOLE | keep,
            FallocateFlags::ZERO_RANGE | keep,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::empty(),
            keep,
        ];
        let (at, len) = (rng.below(REACH), 1 + rng.below(70_000));
        match rng.below(16) {
            0..6 => Call::Write(at, rng.index(40_000) + 1, u8::try_from(1 + rng.below(255)).unwrap()),
            6..13 => Call::Fallocate(modes[rng.index(modes.len())], at, len),
            13 => Call::Truncate(at),
            _ => Call::Sync,
        }
    }

    fn make(&self, file: &File) -> Result<(), Errno> {
        match *self {
            Call::Write(at, len, byte) => file.write_all_at(&vec![byte; len], at).unwrap(),
            Call::Fallocate(mode, at, len) => fallocate(file, mode, at, len)?,
            Call::Truncate(size) => ftruncate(file, size)?,
            Call::Sync => file.sync_all().unwrap(),
        }
        Ok(())
    }
}

/// All of a file of the mount, as the service has it: the kernel's pages are left out.
fn contents(path: &Path) -> Vec<u8> {
    let file: File = open(path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).unwrap().into();
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Each hole that the file tells of has zeroes only, and data and holes take turns up to the end.
fn check_holes(file: &File, bytes: &[u8]) {
    let end = bytes.len() as u64;
    let mut at = 0;
    while at < end {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(errno) => {
                assert_eq!(errno, Errno::NXIO);
                end
            }
        };
        assert!((at..=end).contains(&data), "{data} is not between {at} and {end}");
        let hole = &bytes[usize::try_from(at).unwrap()..usize::try_from(data).unwrap()];
        assert!(hole.iter().all(|byte| *byte == 0), "{at}..{data} is no hole");
        at = data;
        if at < end {
            at = seek(file, SeekFrom::Hole(data)).unwrap();
            assert!(data < at && at <= end, "data at {data} ends at {at}");
        }
    }
    assert_eq!(seek(file, SeekFrom::Data(end)), Err(Errno::NXIO));
    assert_eq!(seek(file, SeekFrom::Hole(end)), Err(Errno::NXIO));
}

#[test]
fn the_same_calls_leave_the_same_files_as_on_the_disk() {
    let mut testbed = MountTestbed::new();
    for seed in 0..3 {
        let name = format!("file{seed}");
        let paths = [testbed.mountpoint().join(&name), testbed.beside().join(&name)];
        let [mounted, plain] = paths.each_ref().map(|path| File::create_new(path).unwrap());
        let readable = File::open(&paths[0]).unwrap();
        let mut rng = Rng::new(seed);
        for number in 0..CALLS {
            let call = Call::random(&mut rng);
            assert_eq!(call.make(&mounted), call.make(&plain), "seed {seed}, call {number}: {call:?}");
            let found = contents(&paths[0]);
            // The disk's file is read through the kernel's pages: `O_DIRECT` wants aligned memory.
            let wanted = std::fs::read(&paths[1]).unwrap();
            assert_eq!(found.len(), wanted.len(), "seed {seed}, call {number}: {call:?}");
            let differs = found.iter().zip(&wanted).position(|(one, other)| one != other);
            assert_eq!(differs, None, "seed {seed}, call {number}: {call:?}");
            check_holes(&readable, &found);
        }
        drop((mounted, readable));
        testbed.kill();
        testbed.mount_again();
        assert!(contents(&paths[0]) == std::fs::read(&paths[1]).unwrap(), "seed {seed}, after a kill");
    }
}
