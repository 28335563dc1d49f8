//! Clients that ask a running server how it does: served side by side, each on a thread of its own,
//! in a bounded number of seats.
//!
//! A client is *awaited* while the server waits for its request, or for it to take the answer. That
//! has a deadline, which its bytes do not move. If all seats are taken when one more client comes,
//! the oldest of those that are awaited goes. So no client keeps another one waiting, whatever it
//! does or leaves undone.

use crate::sockets::listen::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;
use tidegate_nbd::Stream as _;

/// Clients of one kind of socket that are served at a time.
pub(crate) const WATCHERS_MAX: usize = 32;

/// The seats of one kind of socket.
pub struct Watchers {
    seats_max: usize,
    seated: Mutex<Seated>,
    changed: Condvar,
}

#[derive(Default)]
struct Seated {
    next: u64,
    /// By number, so the oldest comes first.
    seats: BTreeMap<u64, SeatedClient>,
}

struct SeatedClient {
    stream: Arc<Stream>,
    state: SeatState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SeatState {
    /// The server waits for the client.
    Awaited,
    /// The client waits for the server.
    Waiting,
    /// Its connection was ended, and its thread is about to see that.
    SentAway,
}

impl Watchers {
    /// `seats_max` empty seats.
    pub fn new(seats_max: usize) -> Watchers {
        Watchers { seats_max, seated: Mutex::default(), changed: Condvar::new() }
    }

    /// Gives the client of `stream` a seat. If there is none, the oldest client that is awaited
    /// loses its own; if none is awaited, this waits for the answers that are being made.
    pub fn seat(&self, stream: Stream) -> Watcher<'_> {
        let stream = Arc::new(stream);
        let mut seated = self.seated();
        while seated.seats.len() >= self.seats_max {
            seated.send_away_oldest();
            seated = self.changed.wait(seated).expect(HOLDER_PANICKED);
        }
        let number = seated.next;
        seated.next += 1;
        seated.seats.insert(number, SeatedClient { stream: Arc::clone(&stream), state: SeatState::Awaited });
        Watcher { stream, seat: Some(Seat { watchers: self, number }) }
    }

    /// Takes no more requests: what was asked is still answered.
    pub fn close(&self) {
        self.seated().seats.values().for_each(|place| place.stream.shut_down(Shutdown::Read));
    }

    fn seated(&self) -> MutexGuard<'_, Seated> {
        self.seated.lock().expect(HOLDER_PANICKED)
    }
}

const HOLDER_PANICKED: &str = "nothing that holds this lock panics";

impl Seated {
    /// Ends the connection of the oldest client that is awaited, unless one is leaving already.
    fn send_away_oldest(&mut self) {
        if self.seats.values().any(|place| place.state == SeatState::SentAway) {
            return;
        }
        if let Some(oldest) = self.seats.values_mut().find(|place| place.state == SeatState::Awaited) {
            oldest.state = SeatState::SentAway;
            oldest.stream.shut_down(Shutdown::Both);
        }
    }
}

/// A client that asks.
pub struct Watcher<'w> {
    stream: Arc<Stream>,
    seat: Option<Seat<'w>>,
}

/// A client's place among the others, given up when dropped.
struct Seat<'w> {
    watchers: &'w Watchers,
    number: u64,
}

impl Watcher<'_> {
    /// Its connection.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Gives up the seat; the connection stays open as long as what is returned.
    pub fn leave(mut self) -> Arc<Stream> {
        self.stand();
        Arc::clone(&self.stream)
    }

    /// Waits for bytes of the client; 0 at the end of what it says.
    ///
    /// # Errors
    /// `TimedOut` if none came before `deadline`.
    pub fn receive(&self, out: &mut [u8], deadline: Instant) -> io::Result<usize> {
        self.wait_for(PollFlags::IN, deadline, || self.stream.receive_now(out))
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// `TimedOut` if the client has not taken them before `deadline`.
    pub fn send(&self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while !bytes.is_empty() {
            let sent = self.wait_for(PollFlags::OUT, deadline, || Ok(send(&*self.stream, bytes, flags)?))?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Makes an answer. It takes as long as it takes, and the client keeps its seat meanwhile.
    pub fn make<T>(&self, answer: impl FnOnce() -> T) -> T {
        self.turn(SeatState::Waiting);
        let made = answer();
        self.turn(SeatState::Awaited);
        made
    }

    /// Gives up the seat, and goes on without: for what something else bounds.
    pub fn stand(&mut self) {
        self.seat = None;
    }

    /// Does `act` as soon as it can be done.
    fn wait_for<T>(
        &self,
        readiness: PollFlags,
        deadline: Instant,
        mut act: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match act() {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                done => return done,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let left = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
            match poll(&mut [PollFd::new(&*self.stream, readiness)], Some(&left)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn turn(&self, state: SeatState) {
        let Some(Seat { watchers, number }) = &self.seat else { return };
        let mut seated = watchers.seated();
        if let Some(place) = seated.seats.get_mut(number)
            && place.state != SeatState::SentAway
        {
            place.state = state;
            watchers.changed.notify_all();
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.watchers.seated().seats.remove(&self.number);
        self.watchers.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Duration;

    fn pair() -> (UnixStream, Stream) {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        (near, Stream::Unix(far))
    }

    fn in_a_minute() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn the_oldest_client_that_is_awaited_makes_room_and_nobody_else() {
        let watchers = Watchers::new(3);
        thread::scope(|threads| {
            let (mut busy, stream) = pair();
            let (answered, answer) = std::sync::mpsc::channel::<()>();
            let watcher = watchers.seat(stream);
            let (begun, begins) = std::sync::mpsc::channel();
            threads.spawn(move || {
                watcher.make(|| {
                    begun.send(()).expect("somebody listens");
                    answer.recv().expect("the test goes on");
                });
                watcher.send(b"answer", in_a_minute())
            });
            begins.recv().expect("the answer is being made");
            // Ten silent ones one after the other, each of which waits for its client in a thread
            // of its own.
            let silent: Vec<_> = (0..10)
                .map(|_| {
                    let (near, stream) = pair();
                    let watcher = watchers.seat(stream);
                    (near, threads.spawn(move || watcher.receive(&mut [0], in_a_minute())))
                })
                .collect();
            let mut kept = silent;
            for (mut gone, thread) in kept.drain(..8) {
                assert_eq!(gone.read(&mut [0]).expect("an end"), 0);
                assert_eq!(thread.join().expect("no panic").expect("an end"), 0);
            }
            answered.send(()).expect("the thread waits");
            let mut told = [0; 6];
            busy.read_exact(&mut told).expect("the answer");
            assert_eq!(&told, b"answer");
            for (mut near, thread) in kept {
                near.write_all(b"x").expect("it is still connected");
                assert_eq!(thread.join().expect("no panic").expect("a byte"), 1);
            }
        });
        assert!(watchers.seated().seats.is_empty());
    }

    #[test]
    fn drops_do_not_move_a_deadline() {
        let watchers = Watchers::new(1);
        let (mut near, stream) = pair();
        let watcher = watchers.seat(stream);
        let deadline = Instant::now() + Duration::from_millis(50);
        let (taken, take) = std::sync::mpsc::channel();
        thread::scope(|threads| {
            // Each byte comes when the one before was taken.
            threads.spawn(move || while near.write_all(b"x").is_ok() && take.recv().is_ok() {});
            let end = loop {
                match watcher.receive(&mut [0], deadline) {
                    Ok(_) => taken.send(()).expect("somebody drops"),
                    Err(error) => break error,
                }
            };
            assert_eq!(end.kind(), ErrorKind::TimedOut);
            drop((watcher, taken));
        });
    }

    #[test]
    fn a_client_that_does_not_take_its_answer_is_given_up() {
        let watchers = Watchers::new(1);
        let (near, stream) = pair();
        let watcher = watchers.seat(stream);
        let sent = watcher.send(&vec![0; 64 << 20], Instant::now() + Duration::from_millis(50));
        assert_eq!(sent.expect_err("nobody reads").kind(), ErrorKind::TimedOut);
        drop(near);
    }

    #[test]
    fn a_client_that_stands_leaves_its_seat_to_another() {
        let watchers = Watchers::new(1);
        let (mut near, stream) = pair();
        let mut watcher = watchers.seat(stream);
        watcher.stand();
        let another = watchers.seat(pair().1);
        watcher.send(b"x", in_a_minute()).expect("it is still connected");
        near.read_exact(&mut [0]).expect("a byte");
        drop(another);
    }

    #[test]
    fn what_was_asked_before_the_end_is_answered_and_nobody_is_waited_for() {
        let watchers = Watchers::new(2);
        let ((mut asked, one), (silent, other)) = (pair(), pair());
        let (one, other) = (watchers.seat(one), watchers.seat(other));
        asked.write_all(b"x").expect("it is connected");
        watchers.close();
        assert_eq!(one.receive(&mut [0], in_a_minute()).expect("a byte"), 1);
        one.send(b"y", in_a_minute()).expect("an answer");
        assert_eq!(other.receive(&mut [0], in_a_minute()).expect("an end"), 0);
        drop(silent);
    }
}
