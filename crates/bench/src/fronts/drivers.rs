//! Drivers of the fronts, all of this process, and what they measure.

use super::{REMEDY, writes};
use crate::blocks::second_core_missing;
use crate::served::server::{Place, Server, missing};
use crate::target::Outcome;
use anyhow::Context;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tidegate_measure::Pairs;
use tidegate_measure::medium::WALK_BYTES;
use tidegate_measure::subject::{BLOCK_BYTES, Block};
use tidegate_measure::workload::{Effort, on_core};
use tidegate_media::Durability;
use tidegate_nbd_client::client::{Client as NbdClient, Dialect, Operation};
use tidegate_virtio_driver::{Command, Machine, Shape};

/// The core of drivers, among those allowed.
const DRIVER_CORE: usize = 0;
/// Bytes of a write.
const BLOCK: u32 = 4096;
const _: () = assert!(BLOCK as usize == BLOCK_BYTES);
/// Writes under way where there are many.
const MANY: u16 = 32;
/// Writes after which each block of the volume is there.
pub(super) const WARMING: u64 = MANY as u64 * 2000;
/// How long a driver waits for an answer.
const PATIENCE_MILLISECONDS: i32 = 20_000;
/// How long an idle server is watched.
const SILENCE: Duration = Duration::from_secs(2);

/// Who writes, and to which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// A driver of vhost-user-blk.
    Vhost,
    /// An NBD client on a unix socket.
    Nbd,
    /// A driver of vhost-user-blk, of QEMU's server.
    VhostOfQemu,
}

/// Writes under way at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// One.
    One,
    /// [`MANY`].
    Many,
}

/// Where both ends run, and what the client does until there is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// On one core, it sleeps.
    AsleepTogether,
    /// On a core for each, it sleeps.
    AsleepApart,
    /// On a core for each, it looks and looks.
    BusyApart,
}

impl Waiting {
    fn place(self) -> Place {
        if self == Waiting::AsleepTogether { Place::Together } else { Place::Apart }
    }
}

/// A client at work.
enum Driver {
    Vhost(Box<Machine>),
    Nbd(Box<NbdClient<Socket>>),
}

/// A socket of a client that sends what it has when it would have to wait, and takes in as many
/// replies as there are: a system call or two serve many requests.
struct Socket {
    stream: UnixStream,
    waiting: Waiting,
    unsent: Vec<u8>,
    taken: Box<[u8]>,
    /// The part of `taken` that was not given out.
    left: Range<usize>,
}

impl Socket {
    fn new(stream: UnixStream, waiting: Waiting) -> io::Result<Socket> {
        stream.set_nonblocking(waiting == Waiting::BusyApart)?;
        Ok(Socket { stream, waiting, unsent: Vec::new(), taken: vec![0; 64 << 10].into(), left: 0..0 })
    }

    /// Does `act`, again and again where a client does not sleep.
    fn retry<T>(&mut self, mut act: impl FnMut(&mut Socket) -> io::Result<T>) -> io::Result<T> {
        loop {
            match act(self) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.waiting == Waiting::BusyApart => {
                    std::hint::spin_loop();
                }
                end => return end,
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left.is_empty() {
            self.flush()?;
            let got = self.retry(|socket| socket.stream.read(&mut socket.taken))?;
            self.left = 0..got;
        }
        let part = self.left.start..self.left.end.min(self.left.start + out.len());
        out[..part.len()].copy_from_slice(&self.taken[part.clone()]);
        self.left.start = part.end;
        Ok(part.len())
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unsent.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.unsent.len() {
            sent += self.retry(|socket| socket.stream.write(&socket.unsent[sent..]))?;
        }
        self.unsent.clear();
        Ok(())
    }
}

/// Where writes go: random blocks of the volume.
struct Blocks(u64);

impl Blocks {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % (WALK_BYTES / BLOCK_BYTES as u64)
    }
}

/// The time of a write by one client over that by another, upside down: how much faster the first
/// one is.
pub(super) fn compare(
    effort: Effort,
    over: Client,
    under: Client,
    (depth, waiting): (Depth, Waiting),
) -> anyhow::Result<Outcome> {
    if under == Client::VhostOfQemu
        && let Some(missing) = missing(&["qemu-storage-daemon"], REMEDY)
    {
        return Ok(missing);
    }
    if waiting.place() == Place::Apart
        && let Some(missing) = second_core_missing()
    {
        return Ok(missing);
    }
    let ours = Server::tidegate_with_vhost(waiting.place())?;
    let theirs = (under == Client::VhostOfQemu).then(|| Server::qemu_vhost(waiting.place())).transpose()?;
    let mut drivers = [over, under].map(|client| start(client, &ours, theirs.as_ref(), waiting));
    for driver in &mut drivers {
        let driver = driver.as_mut().map_err(|error| anyhow::anyhow!("{error:#}"))?;
        // Each block is there before it is measured.
        on_core(DRIVER_CORE, || driver.rate(WARMING, Depth::Many, waiting))?;
    }
    let [over, under] = drivers;
    let (mut over, mut under) = (over?, under?);
    let count = writes(effort);
    let pairs = Pairs::try_alternate(
        effort.pairs,
        || on_core(DRIVER_CORE, || over.rate(count, depth, waiting)),
        || on_core(DRIVER_CORE, || under.rate(count, depth, waiting)),
    )?;
    Ok(Outcome::ratio(&pairs, "requests/s"))
}

/// How often the driver rings while many writes are under way.
pub(super) fn doorbells(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = second_core_missing() {
        return Ok(missing);
    }
    let server = Server::tidegate_with_vhost(Place::Apart)?;
    let mut driver = start(Client::Vhost, &server, None, Waiting::AsleepApart)?;
    let count = writes(effort);
    on_core(DRIVER_CORE, || driver.rate(count, Depth::Many, Waiting::AsleepApart))?;
    let before = driver.doorbells();
    on_core(DRIVER_CORE, || driver.rate(count, Depth::Many, Waiting::AsleepApart))?;
    Ok(Outcome::count(driver.doorbells() - before, count))
}

/// The processor time of a server whose machine is silent.
pub(super) fn idle(_: Effort) -> anyhow::Result<Outcome> {
    let server = Server::tidegate_with_vhost(Place::Together)?;
    let mut driver = start(Client::Vhost, &server, None, Waiting::AsleepTogether)?;
    on_core(DRIVER_CORE, || driver.rate(1000, Depth::One, Waiting::AsleepTogether))?;
    // What is left to be done after the last write is done.
    std::thread::park_timeout(SILENCE);
    let before = server.ticks()?;
    std::thread::park_timeout(SILENCE);
    Ok(Outcome::count(server.ticks()? - before, SILENCE.as_secs()))
}

/// A driver of vhost-user-blk, of a server with its ends on one core.
pub(super) fn vhost_together() -> anyhow::Result<(Server, impl FnMut(u64) -> anyhow::Result<f64>)> {
    let server = Server::tidegate_with_vhost(Place::Together)?;
    let mut driver = start(Client::Vhost, &server, None, Waiting::AsleepTogether)?;
    Ok((server, move |count| on_core(DRIVER_CORE, || driver.rate(count, Depth::One, Waiting::AsleepTogether))))
}

fn start(client: Client, ours: &Server, theirs: Option<&Server>, waiting: Waiting) -> anyhow::Result<Driver> {
    let vhost = |server: &Server| -> anyhow::Result<Driver> {
        let socket = UnixStream::connect(server.vhost_socket()).context("connecting to vhost-user-blk")?;
        Ok(Driver::Vhost(Box::new(Machine::attach(socket, Shape::default())?)))
    };
    match client {
        Client::Vhost => vhost(ours),
        Client::VhostOfQemu => vhost(theirs.context("QEMU's server runs")?),
        Client::Nbd => {
            let stream = ours.dial()?;
            Ok(Driver::Nbd(Box::new(NbdClient::connect(Socket::new(stream, waiting)?, "", Dialect::Simple)?)))
        }
    }
}

impl Driver {
    /// Writes per second, of `count` random ones.
    fn rate(&mut self, count: u64, depth: Depth, waiting: Waiting) -> anyhow::Result<f64> {
        let depth = if depth == Depth::One { 1 } else { MANY };
        let began = Instant::now();
        match self {
            Driver::Vhost(machine) => vhost_writes(machine, count, depth, waiting)?,
            Driver::Nbd(client) => nbd_writes(client, count, depth)?,
        }
        Ok(count as f64 / began.elapsed().as_secs_f64())
    }

    fn doorbells(&self) -> u64 {
        match self {
            Driver::Vhost(machine) => machine.queues[0].doorbells(),
            Driver::Nbd(_) => 0,
        }
    }
}

fn vhost_writes(machine: &mut Machine, count: u64, depth: u16, waiting: Waiting) -> anyhow::Result<()> {
    let queue = &mut machine.queues[0];
    let (mut blocks, block) = (Blocks(count | 1), Block::filled(0));
    let (mut sent, mut answered) = (0, 0);
    let mut free: Vec<u16> = (0..depth).collect();
    while answered < count {
        while let Some(slot) = free.pop_if(|_| sent < count) {
            queue.fill(slot, block.bytes());
            queue.submit(slot, Command::Write, blocks.next() * 8, BLOCK);
            sent += 1;
        }
        queue.kick();
        if waiting == Waiting::BusyApart {
            while !queue.has_answer() {
                std::hint::spin_loop();
            }
        } else {
            anyhow::ensure!(queue.wait(PATIENCE_MILLISECONDS)?, "the server does not answer");
        }
        while let Some(answer) = queue.answer() {
            anyhow::ensure!(answer.status == 0, "a write failed");
            free.push(answer.slot);
            answered += 1;
        }
    }
    Ok(())
}

fn nbd_writes(client: &mut NbdClient<Socket>, count: u64, depth: u16) -> anyhow::Result<()> {
    let (mut blocks, block) = (Blocks(count | 1), Block::filled(0));
    let (mut sent, mut answered) = (0, 0);
    while answered < count {
        while sent < count && sent - answered < u64::from(depth) {
            let offset = blocks.next() * BLOCK_BYTES as u64;
            client.submit(Operation::Write { offset, data: block.bytes(), durability: Durability::Volatile })?;
            sent += 1;
        }
        client.complete()?.outcome?;
        answered += 1;
    }
    Ok(())
}
