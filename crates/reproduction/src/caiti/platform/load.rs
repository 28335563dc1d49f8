//! Closed-loop writers in virtual time.
//!
//! A job is fio's: it hands over as many requests as its depth says with one call, and takes the
//! next ones when all of them are done. The drivers below complete a request within the call that
//! submits it, so requests of one job run one after the other, and what the job sees as a request's
//! time is the time of the whole handful. Each request passes the system call, the file system and
//! the block layer on its way there and back, which take the platform's path time. Looks at the
//! clock cost no virtual time.

use super::testbed::{Platform, Testbed};
use super::watch::Watch;
use crate::caiti::load::{Times, whole};
use crate::kernel::{past_the_block_layer, there_and_back};
use crate::keys::{Keys, Spread};
use anyhow::bail;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tidegate_media::{BlockDevice, Durability, Lba};
use tidegate_sim::Rng;
use tidegate_virtual_cores::{How, Machine, Order, Plan, charge, now_ns, pass_time};

/// What is asked of a device.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Writers at once.
    pub jobs: u32,
    /// Requests that a job hands over together.
    pub depth: u32,
    /// Requests before those that are measured, of all jobs: enough to fill a cache.
    pub warm: u32,
    /// Requests that are measured, of all jobs: 4 KiB each.
    pub requests: u32,
    /// Reads among 100 requests.
    pub reads_percent: u32,
    /// Blocks that requests go to, from the first on.
    pub blocks: u64,
    /// Which of them they go to.
    pub spread: Spread,
    /// A flush after so many writes of a job.
    pub flush_every: Option<u32>,
    /// How often the file system's journal has the device flushed, beside the writers.
    pub commit_every: Duration,
}

/// What the threads of a run leave.
#[derive(Default)]
struct Found {
    times: Vec<u32>,
    flushes: Vec<u64>,
    /// Requests per nanosecond of each job.
    rates: Vec<f64>,
    writing: u32,
}

/// Puts `load` on `testbed`, on the cores of `platform`.
pub fn run(platform: &Platform, testbed: Testbed, load: &Load) -> anyhow::Result<Times> {
    if !cfg!(virtual_cores) {
        bail!("this program was built without virtual cores");
    }
    let cores = platform.profile.cores;
    let costs = platform.profile.processor.of_cores();
    let mut machine = Machine::new(Plan { costs, ..Plan::new(1, cores, Order::Timed) });
    let found = Rc::new(RefCell::new(Found { writing: load.jobs, ..Found::default() }));
    let Testbed { device, is_dax, threads, beside } = testbed;
    let path_ns = there_and_back(if is_dax { past_the_block_layer(platform.path_ns) } else { platform.path_ns });
    let watch = platform.watch.clone();
    for job in 0..load.jobs {
        let (device, threads, found, load) = (device.clone(), threads.clone(), found.clone(), *load);
        let watch = watch.clone().filter(|_| job == 0);
        machine.spawn(job % cores, move || {
            let random = Rng::new(seed_of(job));
            let keys = Keys::new(load.spread, load.blocks);
            let job = Job { device: &*device, load: &load, path_ns, watch, random, keys };
            job.work(&found);
            if found.borrow().writing == 0 {
                threads.end();
            }
        });
    }
    let (flushed, committing, every) = (device.clone(), threads.clone(), load.commit_every);
    machine.spawn(load.jobs % cores, move || {
        while !committing.is_over() {
            pass_time(u64::try_from(every.as_nanos()).expect("seconds"));
            let begin = now_ns();
            flushed.flush().expect("the device flushes");
            watch.iter().for_each(|watch| watch.flushed(now_ns() - begin));
        }
    });
    // Whoever drains runs where nobody writes, as long as there are such cores.
    let idle = cores.saturating_sub(load.jobs + 1).max(1);
    for (nth, work) in (0..).zip(beside) {
        machine.spawn((load.jobs + 1 + nth % idle) % cores, work);
    }
    match machine.run().how {
        How::Finished => {}
        How::Panicked(_, panic) => std::panic::resume_unwind(panic),
        other => bail!("the virtual cores ended otherwise than expected: {other:?}"),
    }
    let found = Rc::into_inner(found).expect("every thread has returned").into_inner();
    let total = Duration::from_nanos(whole(found.times.len() as f64 / found.rates.iter().sum::<f64>()));
    Ok(Times { total, writes: found.times, flushes: found.flushes })
}

fn seed_of(job: u32) -> u64 {
    u64::from(job) << 32
}

/// One job.
struct Job<'a> {
    device: &'a dyn BlockDevice,
    load: &'a Load,
    /// On the way there and back.
    path_ns: (u64, u64),
    watch: Option<Arc<Watch>>,
    random: Rng,
    keys: Keys,
}

impl Job<'_> {
    fn work(mut self, found: &RefCell<Found>) {
        let (mut block, depth) = (vec![0x5a; 4096], self.load.depth.max(1));
        let of_job = |all: u32| all / self.load.jobs;
        let (warm, requests) = (of_job(self.load.warm), of_job(self.load.requests));
        let (mut done, mut times, mut flushes) = (0, Vec::with_capacity(requests as usize), Vec::new());
        while done < warm {
            self.request(&mut block, false);
            done += 1;
        }
        self.watch.iter().for_each(|watch| watch.start());
        let (begin, mut written) = (now_ns(), 0);
        while written < requests {
            let (submitted, handful) = (now_ns(), depth.min(requests - written));
            (0..handful).for_each(|_| {
                let reads = self.reads();
                self.request(&mut block, reads);
            });
            written += handful;
            let time = u32::try_from(now_ns() - submitted).unwrap_or(u32::MAX);
            times.extend(std::iter::repeat_n(time, handful as usize));
            if self.load.flush_every.is_some_and(|every| written.is_multiple_of(every)) {
                let begin = now_ns();
                charge(self.path_ns.0);
                self.device.flush().expect("the device flushes");
                charge(self.path_ns.1);
                flushes.push(now_ns() - begin);
            }
        }
        let mut found = found.borrow_mut();
        found.rates.push(f64::from(requests) / (now_ns() - begin) as f64);
        found.times.extend(times);
        found.flushes.extend(flushes);
        found.writing -= 1;
    }

    fn reads(&mut self) -> bool {
        self.load.reads_percent > 0 && self.random.below(100) < u64::from(self.load.reads_percent)
    }

    fn request(&mut self, block: &mut [u8], reads: bool) {
        let lba = Lba(self.keys.draw(&mut self.random));
        self.watch.iter().for_each(|watch| watch.begin(lba, reads));
        charge(self.path_ns.0);
        self.watch.iter().for_each(|watch| watch.arrive());
        match reads {
            true => self.device.read(lba, block).expect("the device reads"),
            false => self.device.write(lba, block, Durability::Volatile).expect("the device writes"),
        }
        self.watch.iter().for_each(|watch| watch.end());
        charge(self.path_ns.1);
        self.watch.iter().for_each(|watch| watch.back());
    }
}
