//! PMDK's own judgement and PMDK's own writer, through a small C program linked with Debian's
//! libraries.

use crate::artefacts::{CProgram, MissingError, run};
use crate::surgery;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate_layout::btt::{PAGE_BYTES, Version};

const PROGRAM: CProgram = CProgram {
    name: "pmdk",
    source: include_str!("../guest/pmdk.c"),
    flags: &["-lpmempool", "-lpmemblk"],
    packages: "gcc libc6-dev libpmempool-dev libpmemblk-dev",
};

/// Where the BTT's first arena begins in a pool file; before it are the pool's own headers.
const POOL_ARENA_AT: u64 = 2 * PAGE_BYTES;
/// Where a pool file keeps the uuid that its BTT has to name as its parent.
const POOLSET_UUID_AT: u64 = 24;

/// What PMDK's checker says of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether nothing at all was wrong.
    pub consistent: bool,
    /// Everything it said.
    pub said: String,
}

/// Has PMDK's checker judge the image at `path`, whose BTT v1.1 begins at byte 4096. The image is
/// not changed: the checker works on a copy.
pub fn check(path: &Path) -> Result<Verdict, MissingError> {
    let copy = path.with_extension("pmdk-copy");
    fs::copy(path, &copy).map_err(MissingError::file(&copy))?;
    let said = pmdk(&["check"], &[&copy], "");
    fs::remove_file(&copy).map_err(MissingError::file(&copy))?;
    let said = said?;
    Ok(Verdict { consistent: said.lines().any(|line| line == "result 0"), said })
}

/// A pool of blocks made by libpmemblk.
#[derive(Debug)]
pub struct Pool {
    path: PathBuf,
    block_size: String,
}

/// All blocks of a pool as PMDK reads them.
#[derive(Debug)]
pub struct Contents {
    /// The blocks in order, without gaps; a block in error is zeroes here.
    pub bytes: Vec<u8>,
    /// The blocks that read as errors.
    pub errors: Vec<u64>,
}

impl Pool {
    /// A new pool of `bytes` bytes in a new file.
    pub fn create(path: &Path, block_size: u32, bytes: u64) -> Result<Pool, MissingError> {
        let pool = Pool { path: path.to_owned(), block_size: block_size.to_string() };
        pool.pmdk("create", &[&bytes.to_string()], "")?;
        Ok(pool)
    }

    /// Carries out lines of `write BLOCK GENERATION`, `zero BLOCK` and `error BLOCK`.
    pub fn apply(&self, plan: &str) -> Result<(), MissingError> {
        self.pmdk("apply", &[], plan).map(drop)
    }

    /// Reads all blocks.
    pub fn read(&self) -> Result<Contents, MissingError> {
        let out = self.path.with_extension("blocks");
        let said = self.pmdk("read", &[&out.to_string_lossy()], "")?;
        let bytes = fs::read(&out).map_err(MissingError::file(&out))?;
        fs::remove_file(&out).map_err(MissingError::file(&out))?;
        let errors = said.lines().filter_map(|line| line.strip_prefix("error ")?.parse().ok()).collect();
        Ok(Contents { bytes, errors })
    }

    /// Whether both of PMDK's checks of pools find nothing.
    pub fn is_consistent(&self) -> Result<bool, MissingError> {
        Ok(self.pmdk("pool", &[], "")?.contains("consistent 1\n"))
    }

    /// Copies the pool's BTT to a raw image, which Linux could attach as a namespace without a
    /// label.
    pub fn export(&self, image: &Path) -> Result<(), MissingError> {
        let pool = fs::read(&self.path).map_err(MissingError::file(&self.path))?;
        let mut raw = vec![0; offset(Version::V1_1.start())];
        raw.extend_from_slice(&pool[offset(POOL_ARENA_AT)..]);
        fs::write(image, raw).map_err(MissingError::file(image))?;
        surgery::set_parent_uuid(image, Version::V1_1, [0; 16]);
        Ok(())
    }

    /// Puts the BTT of a raw image, exported from this pool before, back into the pool.
    pub fn import(&self, image: &Path) -> Result<(), MissingError> {
        let mut parent = [0; 16];
        let pool =
            OpenOptions::new().read(true).write(true).open(&self.path).map_err(MissingError::file(&self.path))?;
        pool.read_exact_at(&mut parent, POOLSET_UUID_AT).map_err(MissingError::file(&self.path))?;
        surgery::set_parent_uuid(image, Version::V1_1, parent);
        let raw = fs::read(image).map_err(MissingError::file(image))?;
        let arena = &raw[offset(Version::V1_1.start())..];
        pool.write_all_at(arena, POOL_ARENA_AT).map_err(MissingError::file(&self.path))
    }

    fn pmdk(&self, verb: &str, more: &[&str], input: &str) -> Result<String, MissingError> {
        let mut arguments: Vec<&Path> = vec![&self.path, Path::new(&self.block_size)];
        arguments.extend(more.iter().map(Path::new));
        pmdk(&[verb], &arguments, input)
    }
}

fn offset(at: u64) -> usize {
    usize::try_from(at).expect("offsets of headers are small")
}

fn pmdk(verb: &[&str], paths: &[&Path], input: &str) -> Result<String, MissingError> {
    let program = PROGRAM.build()?;
    let mut plan = tempfile::tempfile().map_err(MissingError::file(&std::env::temp_dir()))?;
    plan.write_all(input.as_bytes()).map_err(MissingError::file(&program))?;
    let stdin = rewound(plan, &program)?;
    let mut command = Command::new(&program);
    // Stores are flushed with clwb instead of msync: fast, and the same bytes.
    command.env("PMEM_IS_PMEM_FORCE", "1").args(verb).args(paths).stdin(stdin);
    run(&mut command, PROGRAM.packages)
}

fn rewound(mut file: File, whose: &Path) -> Result<File, MissingError> {
    use std::io::Seek as _;
    file.rewind().map_err(MissingError::file(whose))?;
    Ok(file)
}
