//! A message of the kernel: its header, and the operation that it asks for.

use crate::features::Features;
use crate::ids::{NodeId, Unique};
use crate::operation::Operation;
use crate::parse::Fields;
use crate::wire::InHeader;

/// What every request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The request's number.
    pub unique: Unique,
    /// The node that the request is about; for names, their directory.
    pub node: NodeId,
    /// File system user of the program; for requests of the kernel itself, 0.
    pub uid: u32,
    /// File system group of the program; for requests of the kernel itself, 0.
    pub gid: u32,
    /// The program's *thread*, in the server's namespace of processes; 0 for the kernel and for a
    /// program in another namespace.
    pub pid: u32,
}

/// A message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// What every request says.
    pub header: Header,
    /// What the request asks for.
    pub operation: Operation<'a>,
}

/// The bytes are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request with opcode {opcode} and {len} bytes is malformed: {rule}")]
pub struct Malformed {
    /// The request's number, if its header is whole. Reply `EIO` to it.
    pub unique: Option<Unique>,
    /// The operation's number.
    pub opcode: u32,
    /// Bytes of the message.
    pub len: usize,
    /// What is true of every request and not of this one.
    pub rule: &'static str,
}

impl<'a> Request<'a> {
    /// Takes a message apart. `agreed` is what [`Session`](crate::Session) agreed on, and
    /// [`Features::NONE`] for the first message.
    pub fn parse(message: &'a [u8], agreed: Features) -> Result<Request<'a>, Malformed> {
        let broken = |unique, opcode, rule| Malformed { unique, opcode, len: message.len(), rule };
        let mut fields = Fields::new(message);
        let header: InHeader = fields.record().map_err(|rule| broken(None, 0, rule))?;
        let unique = Unique(header.unique);
        let broken = |rule| broken(Some(unique), header.opcode, rule);
        if usize::try_from(header.len) != Ok(message.len()) {
            return Err(broken("the length in the header is the message's"));
        }
        fields.drop_last(usize::from(header.total_extlen) * 8).map_err(broken)?;
        let operation = Operation::parse(header.opcode, fields, agreed).map_err(broken)?;
        Ok(Request { header: Header::of(&header), operation })
    }
}

impl Header {
    fn of(header: &InHeader) -> Header {
        Header {
            unique: Unique(header.unique),
            node: NodeId(header.nodeid),
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
        }
    }
}
