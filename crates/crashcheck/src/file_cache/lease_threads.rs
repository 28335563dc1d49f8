//! Threads on one file: two append by leases, which they share at times, or as others do where they
//! have none; the third reads, syncs and writes back, some of which revokes, and cuts the power
//! once. What the file holds at any time is a beginning of what each appended, no shorter than what
//! was answered before.

use crate::checker::Failure;
use crate::file_cache::checker::recover_on;
use crate::file_cache::machine::{JointCut, Machine, SimFile, SmallPool, Watched, backing};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tidegate_file_cache::{FilePool, LeasedFile, Persistence, PoolFile, PoolLease, Sharer, Wrote};
use tidegate_layout::file_cache::Class;
use tidegate_media::sync::{AtomicU64, Mutex, Ordering, set_thread_token};
use tidegate_sim::{Region, Rng};

#[cfg(shuttle)]
use shuttle::thread;
#[cfg(not(shuttle))]
use std::thread;

/// Appends of each thread, and what the other thread does.
const ACTS: u64 = 8;

/// Threads that append, and share a lease at times.
const WRITERS: usize = 2;

/// Bytes of an append: which thread's it is, and its number.
const BYTES: usize = 8;

/// What both writers' counts may be.
type Bounds = [RangeInclusive<u64>; WRITERS];

/// How many appends of each writer were begun, answered, and are durable.
#[derive(Default)]
struct Progress {
    begun: [AtomicU64; WRITERS],
    answered: [AtomicU64; WRITERS],
    durable: [AtomicU64; WRITERS],
}

impl Progress {
    /// What is read now is no shorter than what was answered, and no longer than what was begun.
    fn bounds<T>(&self, least: &[AtomicU64; WRITERS], look: impl FnOnce() -> T) -> (Bounds, T) {
        // SeqCst: counts of several threads, each read beside the others' acts.
        let least = least.each_ref().map(|count| count.load(Ordering::SeqCst));
        let seen = look();
        let most = self.begun.each_ref().map(|count| count.load(Ordering::SeqCst));
        (std::array::from_fn(|writer| least[writer]..=most[writer]), seen)
    }

    /// What a sync makes durable is what anybody was answered before it.
    fn sync(&self, act: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        let answered = self.answered.each_ref().map(|count| count.load(Ordering::SeqCst));
        act()?;
        for (durable, answered) in self.durable.iter().zip(answered) {
            durable.fetch_max(answered, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// Who has which lease: one that nobody has any more is released.
type Sharers = Mutex<BTreeMap<PoolLease, usize>>;

/// A thread that appends.
struct Appender {
    machine: Arc<Machine>,
    pool: Arc<FilePool<Watched>>,
    file: PoolFile,
    progress: Arc<Progress>,
    sharers: Arc<Sharers>,
    writer: usize,
    lease: Option<(PoolLease, LeasedFile<Watched>)>,
    rng: Rng,
}

impl Appender {
    fn run(mut self) -> Result<(), Failure> {
        for number in 1..=ACTS {
            self.progress.begun[self.writer].store(number, Ordering::SeqCst);
            self.append(&bytes_of(self.writer, number))?;
            self.progress.answered[self.writer].store(number, Ordering::SeqCst);
            if self.rng.one_in(3) {
                let progress = self.progress.clone();
                progress.sync(|| self.sync())?;
            }
        }
        self.leave()
    }

    fn append(&mut self, data: &[u8; BYTES]) -> Result<(), Failure> {
        if self.lease.is_none() && self.rng.one_in(2) {
            self.claim()?;
        }
        if self.append_by_lease(data)? {
            return Ok(());
        }
        self.leave()?;
        self.pool.append(self.file, data, Persistence::Asynchronous).map(drop).map_err(Failure::new)
    }

    /// Takes a share in the lease that the other one has, or another lease.
    fn claim(&mut self) -> Result<(), Failure> {
        let mut sharers = self.sharers.lock();
        let shared = match self.pool.lease_of(self.file).filter(|lease| sharers.contains_key(lease)) {
            Some(lease) => {
                let joined = self.pool.join(self.file, &(0..1), Sharer::Another).map_err(Failure::new)?;
                joined.map(|grant| (lease, grant))
            }
            None => None,
        };
        let granted = match shared {
            Some(shared) => Some(shared),
            None => self.pool.lend(self.file, 0..4096, Class::ALL[0]).map_err(Failure::new)?,
        };
        if let Some((lease, grant)) = granted {
            *sharers.entry(lease).or_default() += 1;
            self.lease = Some((lease, LeasedFile::new(self.machine.memory(), grant)));
        }
        Ok(())
    }

    /// False: nothing was appended, as the lease was revoked, the other one writes, or there is
    /// none.
    fn append_by_lease(&mut self, data: &[u8; BYTES]) -> Result<bool, Failure> {
        let Some((id, leased)) = &mut self.lease else { return Ok(false) };
        let append = |leased: &mut LeasedFile<Watched>| match leased.turn(&mut |_| {}, &mut |_| false)? {
            Some(mut turn) => turn.write(turn.size(), data, 0).map(Some),
            None => Ok(None),
        };
        let mut wrote = append(leased).map_err(Failure::new)?;
        if wrote == Some(Wrote::OutOfBlocks) && self.pool.extend(*id).map_err(Failure::new)? {
            wrote = append(leased).map_err(Failure::new)?;
        }
        if wrote == Some(Wrote::InDoubt) {
            // Any request comes after the revocation.
            self.pool.size(self.file).map_err(Failure::new)?;
            wrote = Some(leased.resolve().map_err(Failure::new)?);
        }
        match wrote {
            Some(Wrote::Done) => Ok(true),
            None | Some(Wrote::OutOfBlocks | Wrote::Revoked) => Ok(false),
            Some(Wrote::OutOfRoom | Wrote::InDoubt) => Err(Failure::new(format_args!("an append is {wrote:?}"))),
        }
    }

    fn sync(&mut self) -> Result<(), Failure> {
        match &mut self.lease {
            // What others wrote since it was revoked is not in it.
            Some((_, leased)) if !leased.is_revoked().map_err(Failure::new)? => leased.sync().map_err(Failure::new),
            _ => self.pool.sync(self.file).map(drop).map_err(Failure::new),
        }
    }

    fn leave(&mut self) -> Result<(), Failure> {
        let Some((lease, mut leased)) = self.lease.take() else { return Ok(()) };
        leased.sync().map_err(Failure::new)?;
        drop(leased);
        let mut sharers = self.sharers.lock();
        let left = sharers.get_mut(&lease).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            sharers.remove(&lease);
            self.pool.release(lease).map_err(Failure::new)?;
        }
        Ok(())
    }
}

fn bytes_of(writer: usize, number: u64) -> [u8; BYTES] {
    ((writer as u64) << 32 | number).to_le_bytes()
}

/// Whether the bytes are the first appends of each writer, in their order, as many as its bounds
/// say.
fn judge(bytes: &[u8], bounds: &Bounds) -> Result<(), Failure> {
    let (appends, rest) = bytes.as_chunks::<BYTES>();
    let mut counts = [0; WRITERS];
    let in_order = appends.iter().all(|found| {
        (0..WRITERS).any(|writer| {
            let is_next = *found == bytes_of(writer, counts[writer] + 1);
            counts[writer] += u64::from(is_next);
            is_next
        })
    });
    let are_enough = bounds.iter().zip(counts).all(|(bounds, count)| bounds.contains(&count));
    if in_order && rest.is_empty() && are_enough {
        return Ok(());
    }
    Err(Failure::new(format_args!("the file holds {bytes:?}, and {bounds:?} appends were made")))
}

/// All of the file, by one read.
fn read(pool: &FilePool<Watched>, file: PoolFile) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0xcc; 2 * WRITERS * BYTES * usize::try_from(ACTS).expect("few")];
    let length = pool.read(file, 0, &mut bytes).map_err(Failure::new)?;
    Ok(bytes[..length].to_vec())
}

/// All of the file, by one read that lets the lease go on.
fn read_leased(pool: &FilePool<Watched>, file: PoolFile) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0xcc; 2 * WRITERS * BYTES * usize::try_from(ACTS).expect("few")];
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
) -> Result<(JointCut, Bounds), Failure> {
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
    let sharers = Arc::new(Sharers::new(BTreeMap::new()));
    let appenders: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let appender = Appender {
                machine: machine.clone(),
                pool: pool.clone(),
                file,
                progress: progress.clone(),
                sharers: sharers.clone(),
                writer,
                lease: None,
                rng: Rng::new(rng.next_u64()),
            };
            thread::spawn(move || {
                set_thread_token(u32::try_from(writer).expect("few"));
                appender.run()
            })
        })
        .collect();
    let shared = (machine.clone(), pool.clone(), progress, Rng::new(rng.next_u64()));
    let revokes = thread::spawn(move || {
        set_thread_token(u32::try_from(WRITERS).expect("few"));
        revoker(&shared.0, &shared.1, file, &shared.2, shared.3)
    });
    appenders.into_iter().try_for_each(|appender| appender.join().expect("no thread panics"))?;
    let (cut, bounds) = revokes.join().expect("no thread panics")?;
    judge(&read(&pool, file)?, &[const { ACTS..=ACTS }; WRITERS])?;
    let images = cut.files_images();
    let files = images[rng.index(images.len())].clone();
    let region = Region::with_line_order(cut.region.sample(&mut rng), small.order);
    let restarted = Machine::new(small, region, files, None, None);
    recover_on(&restarted)?;
    judge(&restarted.contents()[0], &bounds)
}
