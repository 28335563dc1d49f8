//! Threads on one file: one appends by leases, or as others do where it has none; the other reads,
//! syncs and writes back, some of which revokes, and cuts the power once. What the file holds at
//! any time is a beginning of what was appended, no shorter than what was answered before.

use crate::checker::Failure;
use crate::file_cache::checker::recover_on;
use crate::file_cache::machine::{JointCut, Machine, SimFile, SmallPool, Watched, backing};
use std::ops::RangeInclusive;
use std::sync::Arc;
use tidegate_file_cache::{FilePool, LeasedFile, Persistence, PoolFile, PoolLease, Wrote};
use tidegate_layout::file_cache::Class;
use tidegate_media::sync::{AtomicU64, Ordering, set_thread_token};
use tidegate_sim::{Region, Rng};

#[cfg(shuttle)]
use shuttle::thread;
#[cfg(not(shuttle))]
use std::thread;

/// Appends, and what the other thread does.
const ACTS: u64 = 8;

/// Bytes of an append: its number.
const BYTES: usize = 8;

/// How many appends were begun, answered, and are durable.
#[derive(Default)]
struct Progress {
    begun: AtomicU64,
    answered: AtomicU64,
    durable: AtomicU64,
}

impl Progress {
    /// What is read now is no shorter than what was answered, and no longer than what was begun.
    fn bounds<T>(&self, least: &AtomicU64, look: impl FnOnce() -> T) -> (RangeInclusive<u64>, T) {
        // SeqCst: counts of two threads, each read beside the other's acts.
        let least = least.load(Ordering::SeqCst);
        let seen = look();
        (least..=self.begun.load(Ordering::SeqCst), seen)
    }
}

/// The thread that appends.
struct Appender {
    machine: Arc<Machine>,
    pool: Arc<FilePool<Watched>>,
    file: PoolFile,
    progress: Arc<Progress>,
    lease: Option<(PoolLease, LeasedFile<Watched>)>,
    rng: Rng,
}

impl Appender {
    fn run(mut self) -> Result<(), Failure> {
        for number in 1..=ACTS {
            self.progress.begun.store(number, Ordering::SeqCst);
            self.append(&number.to_le_bytes())?;
            self.progress.answered.store(number, Ordering::SeqCst);
            if self.rng.one_in(3) {
                self.sync()?;
                self.progress.durable.store(number, Ordering::SeqCst);
            }
        }
        Ok(())
    }

    fn append(&mut self, data: &[u8; BYTES]) -> Result<(), Failure> {
        if self.lease.is_none() && self.rng.one_in(2) {
            let granted = self.pool.lend(self.file, 0..4096, Class::ALL[0]).map_err(Failure::new)?;
            self.lease = granted.map(|(id, grant)| (id, LeasedFile::new(self.machine.memory(), grant)));
        }
        if self.append_by_lease(data)? {
            return Ok(());
        }
        self.leave()?;
        self.pool.append(self.file, data, Persistence::Asynchronous).map(drop).map_err(Failure::new)
    }

    /// False: nothing was appended, as the lease was revoked, or there is none.
    fn append_by_lease(&mut self, data: &[u8; BYTES]) -> Result<bool, Failure> {
        let Some((id, leased)) = &mut self.lease else { return Ok(false) };
        let append = |leased: &mut LeasedFile<Watched>| {
            let mut turn = leased.turn(&mut |_| {})?.expect("no other program writes");
            turn.write(turn.size(), data, 0)
        };
        let mut wrote = append(leased).map_err(Failure::new)?;
        if wrote == Wrote::OutOfBlocks && self.pool.extend(*id).map_err(Failure::new)? {
            wrote = append(leased).map_err(Failure::new)?;
        }
        if wrote == Wrote::InDoubt {
            // Any request comes after the revocation.
            self.pool.size(self.file).map_err(Failure::new)?;
            wrote = leased.resolve().map_err(Failure::new)?;
        }
        match wrote {
            Wrote::Done => Ok(true),
            Wrote::OutOfBlocks | Wrote::Revoked => Ok(false),
            Wrote::OutOfRoom | Wrote::InDoubt => Err(Failure::new(format_args!("an append is {wrote:?}"))),
        }
    }

    fn sync(&mut self) -> Result<(), Failure> {
        match &mut self.lease {
            Some((_, leased)) => leased.sync().map_err(Failure::new),
            None => self.pool.sync(self.file).map(drop).map_err(Failure::new),
        }
    }

    fn leave(&mut self) -> Result<(), Failure> {
        match self.lease.take() {
            Some((id, mut leased)) => {
                leased.sync().map_err(Failure::new)?;
                drop(leased);
                self.pool.release(id).map_err(Failure::new)
            }
            None => Ok(()),
        }
    }
}

/// Whether the bytes are a beginning of what was appended, of a length within `bounds`.
fn judge(bytes: &[u8], bounds: &RangeInclusive<u64>) -> Result<(), Failure> {
    let (numbers, rest) = bytes.as_chunks::<BYTES>();
    let in_order = (1..).zip(numbers).all(|(number, found): (u64, _)| *found == number.to_le_bytes());
    if in_order && rest.is_empty() && bounds.contains(&(numbers.len() as u64)) {
        return Ok(());
    }
    Err(Failure::new(format_args!("the file holds {bytes:?}, and {bounds:?} appends were made")))
}

/// All of the file, by one read.
fn read(pool: &FilePool<Watched>, file: PoolFile) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0xcc; 2 * BYTES * usize::try_from(ACTS).expect("few")];
    let length = pool.read(file, 0, &mut bytes).map_err(Failure::new)?;
    Ok(bytes[..length].to_vec())
}

/// All of the file, by one read that lets the lease go on.
fn read_leased(pool: &FilePool<Watched>, file: PoolFile) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0xcc; 2 * BYTES * usize::try_from(ACTS).expect("few")];
    let (length, _) = pool.read_leased(file, 0, &mut bytes).map_err(Failure::new)?;
    Ok(bytes[..length].to_vec())
}

/// The other thread: what the power left at one instant, and what it had to leave.
fn revoker(
    machine: &Machine,
    pool: &FilePool<Watched>,
    file: PoolFile,
    progress: &Progress,
    mut rng: Rng,
) -> Result<(JointCut, RangeInclusive<u64>), Failure> {
    let cut_at = rng.below(ACTS);
    let mut cut = None;
    for act in 0..ACTS {
        if act == cut_at {
            let (bounds, left) = progress.bounds(&progress.durable, || machine.cut());
            cut = Some((left, bounds));
        }
        match rng.below(8) {
            0 => pool.sync(file).map(drop).map_err(Failure::new)?,
            1 | 2 => drop(pool.write_back_step(0, u64::MAX).map_err(Failure::new)?),
            3 => pool.revoke(file).map_err(Failure::new)?,
            4 | 5 => {
                let (bounds, read) = progress.bounds(&progress.answered, || read_leased(pool, file));
                judge(&read?, &bounds)?;
            }
            6 => {
                for lease in pool.leases() {
                    pool.refill(lease).map_err(Failure::new)?;
                }
            }
            _ => {
                let (bounds, read) = progress.bounds(&progress.answered, || read(pool, file));
                judge(&read?, &bounds)?;
            }
        }
    }
    cut.ok_or_else(|| Failure::new("no cut was made"))
}

/// Runs both threads, the scheduler and `seed` choosing, and judges what they see and what a cut
/// leaves.
pub fn judge_lease_threads(small: &SmallPool, seed: u64) -> Result<(), Failure> {
    let mut rng = Rng::new(seed);
    let region = Region::with_line_order(small.image.clone(), small.order);
    let machine = Machine::new(small, region, vec![SimFile::new(&[]), SimFile::new(&[])], None, None);
    let pool = Arc::new(machine.open().map_err(Failure::new)?);
    let file = pool.open_file(&backing(&machine, 0), b"a path").map_err(Failure::new)?;
    let progress = Arc::new(Progress::default());
    let appender = Appender {
        machine: machine.clone(),
        pool: pool.clone(),
        file,
        progress: progress.clone(),
        lease: None,
        rng: Rng::new(rng.next_u64()),
    };
    let appends = thread::spawn(move || {
        set_thread_token(0);
        appender.run()
    });
    let shared = (machine.clone(), pool.clone(), progress, Rng::new(rng.next_u64()));
    let revokes = thread::spawn(move || {
        set_thread_token(1);
        revoker(&shared.0, &shared.1, file, &shared.2, shared.3)
    });
    appends.join().expect("no thread panics")?;
    let (cut, bounds) = revokes.join().expect("no thread panics")?;
    judge(&read(&pool, file)?, &(ACTS..=ACTS))?;
    let images = cut.files_images();
    let files = images[rng.index(images.len())].clone();
    let region = Region::with_line_order(cut.region.sample(&mut rng), small.order);
    let restarted = Machine::new(small, region, files, None, None);
    recover_on(&restarted)?;
    judge(&restarted.contents()[0], &bounds)
}
