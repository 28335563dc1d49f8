//! The handshake: fixed newstyle negotiation of an export.
//!
//! The server greets, the client answers with its flags, then sends options, each answered before
//! the next, until one of them (GO or EXPORT_NAME) picks an export or ends the connection. Bytes
//! in, bytes out; no socket.
//!
//! After STARTTLS everything agreed on before is forgotten: it may have been said by somebody in
//! between.

use crate::buffers::Output;
use crate::contexts::{Contexts, Topic};
use crate::exports;
use crate::failure::Violation;
use crate::limits::{OPTION_BYTES_MAX, PAYLOAD_BYTES_MAX, STRING_BYTES_MAX};
use crate::service::{Encryption, Service};
use crate::tls::Tls;
use crate::transmission::execution::Agreement;
use crate::transmission::reply::Replies;

use crate::wire::{self, Fields, handshake_flag, info, option, reply, transmission_flag};
use tidegate_block_export::Export;

/// A client that has not picked an export.
pub(crate) struct Handshake<'e> {
    service: &'e Service,
    secrecy: Secrecy,
    expects: Expects,
    fixed_newstyle: bool,
    no_zeroes: bool,
    replies: Replies,
    /// The metadata contexts that the client chose, and for which export.
    chosen_of: Option<(&'e Export, Contexts)>,
}

/// Whether the client's bytes can be read on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secrecy {
    Plain,
    Encrypted,
}

/// What the next bytes are.
#[derive(Clone, Copy)]
enum Expects {
    ClientFlags,
    Option,
    /// The rest of an option that was refused for its length.
    Refused {
        left: u32,
    },
}

/// What became of the input.
pub(crate) enum Progress<'e> {
    /// This many bytes were understood.
    Consumed(usize),
    /// It is the beginning of something longer.
    NeedMore,
    /// These bytes were understood, and requests follow.
    ExportChosen(usize, &'e Export, Agreement),
    /// These bytes were understood; everything that follows is encrypted.
    Upgrade(usize, &'e Tls),
    /// The client wants no more.
    Aborted,
}

/// Whether a client that names an export also starts to use it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    Info,
    Go,
}

impl<'e> Handshake<'e> {
    /// Greets the client.
    pub(crate) fn greet(service: &'e Service, out: &mut Output) -> Handshake<'e> {
        out.put(&wire::GREETING_MAGIC.to_be_bytes());
        out.put(&wire::OPTION_MAGIC.to_be_bytes());
        out.put(&(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes());
        Handshake {
            service,
            secrecy: Secrecy::Plain,
            expects: Expects::ClientFlags,
            fixed_newstyle: false,
            no_zeroes: false,
            replies: Replies::Simple,
            chosen_of: None,
        }
    }

    /// From now on the client's bytes are encrypted.
    pub(crate) fn encrypt(&mut self) {
        (self.secrecy, self.replies, self.chosen_of) = (Secrecy::Encrypted, Replies::Simple, None);
    }

    /// Whether the client may leave without having left something half said.
    pub(crate) fn is_between_messages(&self) -> bool {
        !matches!(self.expects, Expects::Refused { .. })
    }

    /// Understands one message at the front of `input`, and answers it.
    pub(crate) fn step(&mut self, input: &[u8], out: &mut Output) -> Result<Progress<'e>, Violation> {
        match self.expects {
            Expects::ClientFlags => self.take_client_flags(input),
            Expects::Option => self.take_option(input, out),
            Expects::Refused { left } => Ok(self.skip(input, left)),
        }
    }

    fn take_client_flags(&mut self, input: &[u8]) -> Result<Progress<'e>, Violation> {
        let Some(flags) = Fields(input).u32() else { return Ok(Progress::NeedMore) };
        let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        if flags & !known != 0 {
            return Err(Violation::ClientFlags { flags });
        }
        self.fixed_newstyle = flags & u32::from(handshake_flag::FIXED_NEWSTYLE) != 0;
        self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        self.expects = Expects::Option;
        Ok(Progress::Consumed(4))
    }

    fn skip(&mut self, input: &[u8], left: u32) -> Progress<'e> {
        let skipped = u32::try_from(input.len()).unwrap_or(u32::MAX).min(left);
        self.expects = if skipped == left { Expects::Option } else { Expects::Refused { left: left - skipped } };
        match skipped {
            0 => Progress::NeedMore,
            _ => Progress::Consumed(skipped as usize),
        }
    }

    fn take_option(&mut self, input: &[u8], out: &mut Output) -> Result<Progress<'e>, Violation> {
        let Some((header, rest)) = input.split_first_chunk::<{ wire::OPTION_BYTES }>() else {
            return Ok(Progress::NeedMore);
        };
        let mut fields = Fields(header);
        let (magic, number, len) = (fields.fixed_u64(), fields.fixed_u32(), fields.fixed_u32());
        if magic != wire::OPTION_MAGIC {
            return Err(Violation::OptionMagic { found: magic });
        }
        if number != option::EXPORT_NAME && !self.fixed_newstyle {
            return Err(Violation::OptionUnannounced { option: number });
        }
        if len > OPTION_BYTES_MAX {
            return self.refuse_for_length(number, len, out);
        }
        match rest.get(..len as usize) {
            Some(data) => self.answer(number, data, out),
            None => Ok(Progress::NeedMore),
        }
    }

    fn refuse_for_length(&mut self, number: u32, len: u32, out: &mut Output) -> Result<Progress<'e>, Violation> {
        if number == option::EXPORT_NAME {
            return Err(Violation::LongExportName { len });
        }
        put_error(out, number, reply::ERR_TOO_BIG, &format!("an option has at most {OPTION_BYTES_MAX} bytes"));
        self.expects = Expects::Refused { left: len };
        Ok(Progress::Consumed(wire::OPTION_BYTES))
    }

    fn answer(&mut self, number: u32, data: &[u8], out: &mut Output) -> Result<Progress<'e>, Violation> {
        let taken = wire::OPTION_BYTES + data.len();
        if self.is_too_open_for(number) {
            if number == option::EXPORT_NAME {
                return Err(Violation::NotEncrypted);
            }
            put_error(
                out,
                number,
                reply::ERR_TLS_REQD,
                "this server speaks with clients that encrypt only: STARTTLS first",
            );
            return Ok(Progress::Consumed(taken));
        }
        match number {
            option::STARTTLS => {
                if let Some(tls) = self.start_tls(data, out) {
                    return Ok(Progress::Upgrade(taken, tls));
                }
            }
            option::EXPORT_NAME => return self.export_name(taken, data, out),
            option::ABORT => {
                put_reply(out, number, reply::ACK, &[]);
                return Ok(Progress::Aborted);
            }
            option::LIST => self.list(data, out),
            option::INFO => {
                self.name_export(Naming::Info, data, out);
            }
            option::GO => {
                if let Some(export) = self.name_export(Naming::Go, data, out) {
                    return Ok(Progress::ExportChosen(taken, export, self.agreement_on(export)));
                }
            }
            option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => self.choose_replies(number, data, out),
            option::LIST_META_CONTEXT => self.list_contexts(data, out),
            option::SET_META_CONTEXT => self.set_contexts(data, out),
            _ => put_error(out, number, reply::ERR_UNSUP, &format!("option {number} is not offered here")),
        }
        Ok(Progress::Consumed(taken))
    }

    /// Whether an option has to wait until the connection is encrypted.
    fn is_too_open_for(&self, number: u32) -> bool {
        let closed = self.secrecy == Secrecy::Plain && matches!(self.service.encryption, Encryption::Required(_));
        closed && ![option::STARTTLS, option::ABORT].contains(&number)
    }

    /// Answers STARTTLS, and returns the identity to encrypt with if all is well.
    fn start_tls(&self, data: &[u8], out: &mut Output) -> Option<&'e Tls> {
        let refuse = |kind, text, out: &mut Output| put_error(out, option::STARTTLS, kind, text);
        let tls = self.service.encryption.tls();
        match tls {
            _ if !data.is_empty() => refuse(reply::ERR_INVALID, "STARTTLS has no data", out),
            _ if self.secrecy == Secrecy::Encrypted => {
                refuse(reply::ERR_INVALID, "the connection is encrypted already", out);
            }
            None => refuse(reply::ERR_POLICY, "this server has no certificate: it does not encrypt", out),
            Some(tls) => {
                put_reply(out, option::STARTTLS, reply::ACK, &[]);
                return Some(tls);
            }
        }
        None
    }

    /// The answer to EXPORT_NAME has no room for an error: an unknown name ends the connection.
    fn export_name(&self, taken: usize, name: &[u8], out: &mut Output) -> Result<Progress<'e>, Violation> {
        let Some(export) = self.service.exports.find(name) else {
            return Err(Violation::UnknownExport { name: beginning(name) });
        };
        out.put(&export.bytes().to_be_bytes());
        out.put(&transmission_flags(export, self.agreement_on(export)).to_be_bytes());
        if !self.no_zeroes {
            out.space(wire::EXPORT_NAME_ZEROES).fill(0);
        }
        Ok(Progress::ExportChosen(taken, export, self.agreement_on(export)))
    }

    fn agreement_on(&self, export: &Export) -> Agreement {
        // A context chosen for one export says nothing about another.
        let chosen = self.chosen_of.filter(|(of, _)| std::ptr::eq(*of, export));
        Agreement { replies: self.replies, contexts: chosen.map(|(_, contexts)| contexts).unwrap_or_default() }
    }

    fn list(&self, data: &[u8], out: &mut Output) {
        if !data.is_empty() {
            return put_error(out, option::LIST, reply::ERR_INVALID, "LIST has no data");
        }
        for export in self.service.exports.iter() {
            let name = export.name().as_bytes();
            let parts = [&wire_len(name.len()).to_be_bytes(), name, export.description().as_bytes()];
            put_reply(out, option::LIST, reply::SERVER, &parts);
        }
        put_reply(out, option::LIST, reply::ACK, &[]);
    }

    /// Answers STRUCTURED_REPLY or EXTENDED_HEADERS. The second includes the first.
    fn choose_replies(&mut self, number: u32, data: &[u8], out: &mut Output) {
        if !data.is_empty() {
            return put_error(out, number, reply::ERR_INVALID, "this option has no data");
        }
        if number == option::STRUCTURED_REPLY && self.replies == Replies::Extended {
            let text = "extended headers, which were agreed on, include structured replies";
            return put_error(out, number, reply::ERR_EXT_HEADER_REQD, text);
        }
        self.replies = if number == option::EXTENDED_HEADERS { Replies::Extended } else { Replies::Structured };
        put_reply(out, number, reply::ACK, &[]);
    }

    /// Tells the contexts that match any query, or all if there is none.
    fn list_contexts(&self, data: &[u8], out: &mut Output) {
        let Some((export, queries)) = self.export_and_queries(option::LIST_META_CONTEXT, data, out) else { return };
        for context in exports::contexts(export).each() {
            if queries.is_empty() || queries.iter().any(|query| context.matches(query)) {
                put_context(out, option::LIST_META_CONTEXT, 0, context);
            }
        }
        put_reply(out, option::LIST_META_CONTEXT, reply::ACK, &[]);
    }

    /// Chooses the contexts that are named exactly. Whatever was chosen before is forgotten, even
    /// by an option that fails.
    fn set_contexts(&mut self, data: &[u8], out: &mut Output) {
        self.chosen_of = None;
        let Some((export, queries)) = self.export_and_queries(option::SET_META_CONTEXT, data, out) else { return };
        let mut chosen = Contexts::default();
        for context in exports::contexts(export).each().filter(|context| queries.contains(&context.name())) {
            chosen = chosen.with(context);
            put_context(out, option::SET_META_CONTEXT, context.id(), context);
        }
        self.chosen_of = Some((export, chosen));
        put_reply(out, option::SET_META_CONTEXT, reply::ACK, &[]);
    }

    /// The export and the queries in the data of LIST_META_CONTEXT or SET_META_CONTEXT; otherwise
    /// the refusal is answered.
    fn export_and_queries<'d>(
        &self,
        number: u32,
        data: &'d [u8],
        out: &mut Output,
    ) -> Option<(&'e Export, Vec<&'d [u8]>)> {
        if self.replies == Replies::Simple {
            put_error(out, number, reply::ERR_INVALID, "metadata contexts need structured replies: ask for them first");
            return None;
        }
        let Some((name, queries)) = named_and_queries(data) else {
            put_error(out, number, reply::ERR_INVALID, "a name and a list of queries were expected");
            return None;
        };
        let Some(export) = self.service.exports.find(name) else {
            put_error(out, number, reply::ERR_UNKNOWN, &unknown_export(name));
            return None;
        };
        Some((export, queries))
    }

    /// Answers INFO or GO, and returns the export if all is well.
    fn name_export(&self, naming: Naming, data: &[u8], out: &mut Output) -> Option<&'e Export> {
        let number = if naming == Naming::Go { option::GO } else { option::INFO };
        let Some((name, wanted)) = named_and_wanted(data) else {
            put_error(out, number, reply::ERR_INVALID, "a name and a list of informations were expected");
            return None;
        };
        let Some(export) = self.service.exports.find(name) else {
            put_error(out, number, reply::ERR_UNKNOWN, &unknown_export(name));
            return None;
        };
        self.put_infos(number, export, wanted, out);
        put_reply(out, number, reply::ACK, &[]);
        Some(export)
    }

    /// Size, flags and block sizes are told unasked, texts when asked for.
    fn put_infos(&self, number: u32, export: &Export, wanted: &[u8], out: &mut Output) {
        let flags = transmission_flags(export, self.agreement_on(export));
        put_info(out, number, info::EXPORT, &[&export.bytes().to_be_bytes(), &flags.to_be_bytes()]);
        let [minimum, preferred, maximum] =
            [1, export.geometry().block_size, PAYLOAD_BYTES_MAX].map(|size: u32| size.to_be_bytes());
        put_info(out, number, info::BLOCK_SIZE, &[&minimum, &preferred, &maximum]);
        let asks_for = |kind: u16| wanted.chunks_exact(2).any(|asked| asked == kind.to_be_bytes());
        if asks_for(info::NAME) {
            put_info(out, number, info::NAME, &[export.name().as_bytes()]);
        }
        if asks_for(info::DESCRIPTION) {
            put_info(out, number, info::DESCRIPTION, &[export.description().as_bytes()]);
        }
    }
}

/// What `export` can do for a client with whom this is agreed.
fn transmission_flags(export: &Export, agreement: Agreement) -> u16 {
    let mut flags = transmission_flag::HAS_FLAGS
        | transmission_flag::SEND_FLUSH
        | transmission_flag::SEND_FUA
        | transmission_flag::SEND_TRIM
        | transmission_flag::SEND_WRITE_ZEROES
        | transmission_flag::SEND_FAST_ZERO
        | transmission_flag::SEND_CACHE
        // A flush of the device covers writes answered on every connection: all share the device.
        | transmission_flag::CAN_MULTI_CONN;
    if export.is_read_only() {
        flags |= transmission_flag::READ_ONLY;
    }
    if agreement.replies != Replies::Simple {
        flags |= transmission_flag::SEND_DF;
    }
    if agreement.replies == Replies::Extended && !agreement.contexts.is_empty() {
        flags |= transmission_flag::BLOCK_STATUS_PAYLOAD;
    }
    flags
}

/// The name and the numbers of the wanted informations in the data of INFO or GO, if it is well
/// formed.
fn named_and_wanted(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = Fields(data);
    let name_len = fields.u32()? as usize;
    let name = fields.bytes(name_len)?;
    let count = usize::from(fields.u16()?);
    let wanted = fields.bytes(2 * count)?;
    (fields.is_empty() && name.len() <= STRING_BYTES_MAX).then_some((name, wanted))
}

/// The name and the queries in the data of an option about metadata contexts, if it is well formed.
fn named_and_queries(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut fields = Fields(data);
    let name_len = fields.u32()? as usize;
    let name = fields.bytes(name_len)?;
    let count = fields.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        let len = fields.u32()? as usize;
        queries.push(fields.bytes(len)?);
    }
    (fields.is_empty() && name.len() <= STRING_BYTES_MAX).then_some((name, queries))
}

fn unknown_export(name: &[u8]) -> String {
    format!("there is no export named {:?}; LIST tells which there are", beginning(name))
}

/// As much of a client's bytes as a person needs to know them again.
fn beginning(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(64).collect()
}

fn put_reply(out: &mut Output, number: u32, kind: u32, parts: &[&[u8]]) {
    let len = parts.iter().map(|part| part.len()).sum();
    out.put(&wire::option_reply(number, kind, wire_len(len)));
    for part in parts {
        out.put(part);
    }
}

fn put_info(out: &mut Output, number: u32, kind: u16, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.put(&wire::option_reply(number, reply::INFO, wire_len(2 + len)));
    out.put(&kind.to_be_bytes());
    for part in parts {
        out.put(part);
    }
}

fn put_context(out: &mut Output, number: u32, id: u32, context: Topic) {
    put_reply(out, number, reply::META_CONTEXT, &[&id.to_be_bytes(), context.name()]);
}

fn put_error(out: &mut Output, number: u32, kind: u32, text: &str) {
    put_reply(out, number, kind, &[text.as_bytes()]);
}

fn wire_len(len: usize) -> u32 {
    u32::try_from(len).expect("a reply to an option is short")
}
