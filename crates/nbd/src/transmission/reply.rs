//! Replies, in the form that was agreed on.
//!
//! A reply has one chunk, but for a read of more than
//! [`WHOLE_REPLY_BYTES_MAX`](crate::limits::WHOLE_REPLY_BYTES_MAX).

use crate::buffers::Output;
use crate::contexts::Topic;
use crate::failure::RequestFailure;
use crate::limits::STRING_BYTES_MAX;
use crate::wire::{self, Headers, RequestHeader, chunk};
use std::ops::Range;

/// How the server answers, as agreed in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    Simple,
    Structured,
    /// Structured, with headers whose lengths have eight bytes.
    Extended,
}

impl Replies {
    pub(crate) fn headers(self) -> Headers {
        match self {
            Replies::Simple | Replies::Structured => Headers::Compact,
            Replies::Extended => Headers::Extended,
        }
    }

    /// Answers a request without data. Success has the same short answer with simple and structured
    /// replies.
    pub(crate) fn put_fate(self, request: &RequestHeader, fate: Result<(), RequestFailure>, out: &mut Output) {
        match (fate, self) {
            (Ok(()), Replies::Extended) => self.put_chunk(chunk::NONE, request, 0, out),
            (Ok(()), _) => out.put(&wire::simple_reply(0, request.cookie)),
            (Err(failure), Replies::Simple) => out.put(&wire::simple_reply(failure.errno() as u32, request.cookie)),
            (Err(failure), _) => self.put_error(request, &failure, out),
        }
    }

    /// Begins the answer to a read; as many bytes as it asks for have to follow.
    pub(crate) fn begin_data(self, request: &RequestHeader, out: &mut Output) {
        self.begin_piece(request, 0..request.len, out);
    }

    /// Begins a piece of the answer to a read, whose bytes have to follow; `part` counts them from
    /// the request's offset.
    pub(crate) fn begin_piece(self, request: &RequestHeader, part: Range<u64>, out: &mut Output) {
        let flags = if part.end == request.len { chunk::DONE } else { 0 };
        match self {
            Replies::Simple if part.start == 0 => out.put(&wire::simple_reply(0, request.cookie)),
            Replies::Simple => {}
            // A chunk of data has at least one byte.
            _ if request.len == 0 => self.put_chunk(chunk::NONE, request, 0, out),
            _ => {
                self.put_header((flags, chunk::OFFSET_DATA), request, 8 + part.end - part.start, out);
                out.put(&(request.offset + part.start).to_be_bytes());
            }
        }
    }

    /// Tells what the bytes from the request's offset on are, context by context.
    pub(crate) fn put_statuses(self, request: &RequestHeader, told: &[(Topic, Vec<(u64, u32)>)], out: &mut Output) {
        for (nth, (context, extents)) in told.iter().enumerate() {
            let flags = if nth + 1 == told.len() { chunk::DONE } else { 0 };
            self.put_status((flags, *context), request, extents, out);
        }
    }

    fn put_status(
        self,
        (chunk_flags, context): (u16, Topic),
        request: &RequestHeader,
        extents: &[(u64, u32)],
        out: &mut Output,
    ) {
        let extended = self == Replies::Extended;
        let count = u32::try_from(extents.len()).expect("a few thousand");
        if extended {
            self.put_header((chunk_flags, chunk::BLOCK_STATUS_EXT), request, 8 + 16 * u64::from(count), out);
        } else {
            self.put_header((chunk_flags, chunk::BLOCK_STATUS), request, 4 + 8 * u64::from(count), out);
        }
        out.put(&context.id().to_be_bytes());
        if extended {
            out.put(&count.to_be_bytes());
        }
        for (bytes, flags) in extents {
            if extended {
                out.put(&bytes.to_be_bytes());
                out.put(&u64::from(*flags).to_be_bytes());
            } else {
                out.put(&short(*bytes).to_be_bytes());
                out.put(&flags.to_be_bytes());
            }
        }
    }

    fn put_error(self, request: &RequestHeader, failure: &RequestFailure, out: &mut Output) {
        let text = failure.to_string();
        let shown = &text[..text.floor_char_boundary(STRING_BYTES_MAX)];
        let shown_len = u16::try_from(shown.len()).expect("a message is at most 4096 bytes long");
        self.put_chunk(chunk::ERROR, request, 6 + u64::from(shown_len), out);
        out.put(&(failure.errno() as u32).to_be_bytes());
        out.put(&shown_len.to_be_bytes());
        out.put(shown.as_bytes());
    }

    /// The header of a reply's last chunk, with `len` bytes to follow.
    fn put_chunk(self, kind: u16, request: &RequestHeader, len: u64, out: &mut Output) {
        self.put_header((chunk::DONE, kind), request, len, out);
    }

    fn put_header(self, (flags, kind): (u16, u16), request: &RequestHeader, len: u64, out: &mut Output) {
        let (cookie, offset) = (request.cookie, request.offset);
        match self.headers() {
            Headers::Compact => out.put(&wire::chunk_header(flags, kind, cookie, short(len))),
            Headers::Extended => out.put(&wire::extended_chunk_header(flags, kind, cookie, offset, len)),
        }
    }
}

/// A length in an answer to a request whose own length had four bytes.
fn short(len: u64) -> u32 {
    u32::try_from(len).expect("an answer to a compact request is shorter than 4 GiB")
}
