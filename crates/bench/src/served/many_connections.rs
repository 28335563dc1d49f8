//! One good client beside thousands of others: silent ones, ones that send half of a request, and
//! ones that send nonsense.
//!
//! Two servers run, one with the good client alone and one with the crowd as well, and the good
//! client's writes go to them in turn. While it writes to the crowded one, some of the crowd make
//! their next move before every eighth write: a slow one sends one more byte, and a new one comes,
//! says nonsense and is thrown out.

use super::server::{Place, Server, as_client};
use crate::target::Outcome;
use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Instant;
use tidegate_measure::Pairs;
use tidegate_measure::subject::{BLOCK_BYTES, Block};
use tidegate_measure::workload::Effort;
use tidegate_media::Durability;
use tidegate_nbd_client::client::{Client, Dialect};

/// Connections besides the good one, as far as the system lets this process have them.
const CROWD: u64 = 10_000;

/// Files that this process, and the server, need for anything else.
const OTHER_FILES: u64 = 200;

/// Writes in a sample: enough for a 99th percentile.
const WRITES: u64 = 4000;

/// Writes between two moves of the crowd.
const WRITES_PER_MOVE: u64 = 8;

/// The magic of a request and of a greeting's answer lie in these, but not where they should.
const NONSENSE: &[u8] = b"GET / HTTP/1.1\r\nHost: IHAVEOPT\r\n\r\n\x25\x60\x95\x13";

/// A WRITE of one block at the volume's start, without its payload.
const WRITE_HEADER: [u8; 28] = {
    let mut header = [0; 28];
    let (magic, len) = (0x2560_9513_u32.to_be_bytes(), 4096_u32.to_be_bytes());
    let mut at = 0;
    while at < 4 {
        header[at] = magic[at];
        header[24 + at] = len[at];
        at += 1;
    }
    header[7] = 1;
    header
};

/// The good client's 99th percentile in the crowd over the one alone.
pub(super) fn slowdown(effort: Effort) -> anyhow::Result<Outcome> {
    let (calm, crowded) = (Server::tidegate(Place::Apart)?, Server::tidegate(Place::Apart)?);
    let crowd = ManyConnections::gather(&crowded)?;
    let (mut alone, mut among) = (calm.client()?, crowded.client()?);
    let pairs = as_client(|| {
        let quiet = || percentile_99(&mut alone, |_| Ok(()));
        Pairs::try_alternate(effort.pairs, || percentile_99(&mut among, |nth| crowd.act(nth)), quiet)
    })?;
    Ok(Outcome::ratio(&pairs, "µs"))
}

/// Memory that the server keeps for one of the crowd.
pub(super) fn memory(_: Effort) -> anyhow::Result<Outcome> {
    let server = Server::tidegate(Place::Apart)?;
    let before = server.resident_bytes()?;
    let crowd = ManyConnections::gather(&server)?;
    let after = server.resident_bytes()?;
    Ok(Outcome::count(after.saturating_sub(before), crowd.alive()?))
}

/// µs within which 99 % of the writes are answered.
fn percentile_99(client: &mut Client<UnixStream>, between: impl Fn(u64) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let block = Block::filled(0);
    let mut times = Vec::new();
    for nth in 0..WRITES {
        if nth % WRITES_PER_MOVE == 0 {
            between(nth / WRITES_PER_MOVE)?;
        }
        let began = Instant::now();
        client.write(nth * BLOCK_BYTES as u64, block.bytes(), Durability::Volatile)?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() * 99 / 100])
}

/// Connections that are no use to anyone.
struct ManyConnections<'a> {
    server: &'a Server,
    members: Vec<Member>,
}

struct Member {
    stream: UnixStream,
    habit: Habit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// Shook hands, and is silent.
    Idle,
    /// Does not answer the greeting.
    Mute,
    /// Answered the greeting, and never finishes its first option.
    HalfGreeted,
    /// Sent half of a request's header.
    HalfAsked,
    /// Sends a request's payload byte by byte.
    Slow,
}

impl Habit {
    const ALL: [Habit; 5] = [Habit::Idle, Habit::Mute, Habit::HalfGreeted, Habit::HalfAsked, Habit::Slow];
}

impl Member {
    fn join(server: &Server, habit: Habit) -> anyhow::Result<Member> {
        let stream = server.dial()?;
        match habit {
            Habit::Mute => {}
            Habit::HalfGreeted => (&stream).write_all(b"\0\0\0\x03IHAVE")?,
            Habit::Idle | Habit::HalfAsked | Habit::Slow => drop(Client::connect(&stream, "", Dialect::Simple)?),
        }
        match habit {
            Habit::HalfAsked => (&stream).write_all(&WRITE_HEADER[..14])?,
            Habit::Slow => (&stream).write_all(&WRITE_HEADER)?,
            Habit::Idle | Habit::Mute | Habit::HalfGreeted => {}
        }
        Ok(Member { stream, habit })
    }

    /// Whether the server still keeps the connection.
    fn is_kept(&self) -> anyhow::Result<bool> {
        let mut polled = [PollFd::new(&self.stream, PollFlags::empty())];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(!polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR))
    }
}

impl<'a> ManyConnections<'a> {
    /// Everyone has come, and has done what it does first.
    fn gather(server: &'a Server) -> anyhow::Result<ManyConnections<'a>> {
        let count = CROWD.min(files_allowed()?.saturating_sub(OTHER_FILES));
        if count < CROWD {
            eprintln!("bench: {count} connections, as no more files may be open; see ulimit -Hn");
        }
        let habits = Habit::ALL.into_iter().cycle();
        let join = |(nth, habit)| Member::join(server, habit).with_context(|| format!("{habit:?}, connection {nth}"));
        let members = (0..count).zip(habits).map(join).collect::<anyhow::Result<_>>()?;
        Ok(ManyConnections { server, members })
    }

    /// One slow member sends a byte, and a stranger is thrown out.
    fn act(&self, nth: u64) -> anyhow::Result<()> {
        let slow = self.members.iter().filter(|member| member.habit == Habit::Slow);
        let index = usize::try_from(nth).unwrap_or(0) % (self.members.len() / Habit::ALL.len()).max(1);
        if let Some(member) = slow.clone().nth(index) {
            // A server may lose its patience with the slow.
            let _ = (&member.stream).write_all(&[0]);
        }
        let mut stranger = self.server.dial()?;
        // A server may throw it out while it still speaks.
        let _ = stranger.write_all(NONSENSE);
        Ok(())
    }

    /// How many the server keeps.
    fn alive(&self) -> anyhow::Result<u64> {
        let mut alive = 0;
        for member in &self.members {
            alive += u64::from(member.is_kept()?);
        }
        Ok(alive)
    }
}

/// Files this process may have open, raised as far as it can be.
fn files_allowed() -> anyhow::Result<u64> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).context("raising the limit of open files")?;
    Ok(maximum.unwrap_or(u64::MAX))
}
