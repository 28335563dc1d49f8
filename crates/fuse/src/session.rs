//! The kernel's first request, and what both sides agreed on by its reply.
//!
//! Linux keeps the formats of 7.31 for servers of every later version; a server of this crate says
//! the lower of both minor versions. What is newer hangs on features, each of which is used only if
//! the kernel offers it and the server wants it.
//!
//! A session outlives its server: [`Session::to_words`] goes to the next server, which gets no
//! INIT.

use crate::features::Features;
use crate::operation::Init;
use crate::reply::Reply;
use crate::wire::{self, InitOut};

/// Longest data of one request.
pub const DATA_BYTES_MAX: u32 = 1 << 20;
/// Longest data of one request, in pages of the kernel.
const DATA_PAGES_MAX: u16 = 256;
const _: () = assert!(DATA_PAGES_MAX as u32 * 4096 == DATA_BYTES_MAX);
/// Requests in the background, such as readahead, that the kernel sends at once.
const BACKGROUND_REQUESTS_MAX: u16 = 64;
/// Requests in the background from which on the kernel starts no readahead.
const CONGESTED_REQUESTS: u16 = 48;

/// What kernel and server agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Minor version that both speak.
    pub minor: u32,
    /// Features that both use.
    pub features: Features,
}

/// The kernel's protocol is older than 7.31, which Linux 5.4 brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kernel speaks FUSE {major}.{minor}; Linux 5.4 (FUSE 7.31) or later is needed")]
pub struct TooOld {
    /// Major version of the kernel's protocol.
    pub major: u32,
    /// Its minor version.
    pub minor: u32,
}

/// What comes of an INIT.
#[derive(Clone, Copy, Debug)]
pub enum Agreement<'a> {
    /// Send the reply; the session stands.
    Reached(Session, Reply<'a>),
    /// Send the reply; the kernel sends another INIT, in our major version.
    AskAgain(Reply<'a>),
}

impl Session {
    /// Answers the kernel's first request. `wanted` are the features that the server uses where the
    /// kernel has them.
    pub fn agree<'a>(init: &Init, wanted: Features) -> Result<Agreement<'a>, TooOld> {
        let Init { major, minor, .. } = *init;
        if major > wire::MAJOR {
            let ours = InitOut { major: wire::MAJOR, minor: wire::MINOR, ..InitOut::default() };
            return Ok(Agreement::AskAgain(Reply::record(&ours)));
        }
        if (major, minor) < (wire::MAJOR, wire::MINOR_MIN) {
            return Err(TooOld { major, minor });
        }
        let required = Features::BIG_WRITES.with(Features::MAX_PAGES).with(Features::INIT_EXT);
        let features = init.offered.and(wanted.with(required));
        let session = Session { minor: minor.min(wire::MINOR), features };
        Ok(Agreement::Reached(session, Reply::record(&session.reply(init.readahead_bytes_max))))
    }

    fn reply(&self, readahead_bytes_max: u32) -> InitOut {
        let [low, high] = self.features.words();
        InitOut {
            major: wire::MAJOR,
            minor: self.minor,
            max_readahead: readahead_bytes_max,
            flags: low,
            max_background: BACKGROUND_REQUESTS_MAX,
            congestion_threshold: CONGESTED_REQUESTS,
            max_write: DATA_BYTES_MAX,
            time_gran: 1,
            max_pages: DATA_PAGES_MAX,
            flags2: high,
            ..InitOut::default()
        }
    }

    /// Returns the session as two numbers, for the next server.
    pub fn to_words(&self) -> [u64; 2] {
        [u64::from(self.minor), self.features.bits()]
    }

    /// Returns the session that an earlier server agreed on; `None` if it is none.
    pub fn from_words([minor, features]: [u64; 2]) -> Option<Session> {
        let minor = u32::try_from(minor).ok().filter(|minor| (wire::MINOR_MIN..=wire::MINOR).contains(minor))?;
        Some(Session { minor, features: Features::from_bits(features) })
    }
}
