//! The exports of a server by name, within the limits of the protocol.

use crate::contexts::{Contexts, Topic};
use crate::limits::{EXPORTS_MAX, STRING_BYTES_MAX};
use tidegate_block_export::{BLOCK_BYTES_MAX, Export};

/// The exports of a server, the default one first.
pub struct Exports(Vec<Export>);

/// Why a list of exports cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportsError {
    /// Nothing to offer.
    #[error("there is nothing to export")]
    None,
    /// More than a server may have.
    #[error("{found} exports are more than the {EXPORTS_MAX} a server offers")]
    TooMany {
        /// How many there are.
        found: usize,
    },
    /// Two exports of one name.
    #[error("two exports are named {name:?}")]
    SameName {
        /// Their name.
        name: String,
    },
    /// A name or a description that the protocol cannot carry.
    #[error("the name and the description of export {name:?} must have at most {STRING_BYTES_MAX} bytes and no NUL")]
    BadString {
        /// The beginning of the export's name.
        name: String,
    },
    /// Blocks larger than [`BLOCK_BYTES_MAX`].
    #[error("export {name:?} has blocks of {block_size} bytes; {BLOCK_BYTES_MAX} is the most")]
    LargeBlocks {
        /// The export's name.
        name: String,
        /// Bytes in a block.
        block_size: u32,
    },
}

/// Characters of a name that is refused, as they are shown.
const SHOWN_CHARS_MAX: usize = 64;

impl Exports {
    /// Offers `exports`; the first is also what a client gets that asks for the empty name.
    pub fn new(exports: Vec<Export>) -> Result<Exports, ExportsError> {
        Exports::check_texts(exports.iter().map(|export| (export.name(), export.description())))?;
        for export in &exports {
            let block_size = export.geometry().block_size;
            if block_size > BLOCK_BYTES_MAX {
                return Err(ExportsError::LargeBlocks { name: export.name().to_owned(), block_size });
            }
        }
        Ok(Exports(exports))
    }

    /// Checks that a server can offer exports with these names and descriptions.
    pub fn check_texts<'t>(texts: impl Iterator<Item = (&'t str, &'t str)>) -> Result<(), ExportsError> {
        let mut names: Vec<&str> = Vec::new();
        for (name, description) in texts {
            if names.contains(&name) {
                return Err(ExportsError::SameName { name: name.to_owned() });
            }
            if !is_protocol_string(name) || !is_protocol_string(description) {
                return Err(ExportsError::BadString { name: name.chars().take(SHOWN_CHARS_MAX).collect() });
            }
            names.push(name);
        }
        match names.len() {
            0 => Err(ExportsError::None),
            found if found > EXPORTS_MAX => Err(ExportsError::TooMany { found }),
            _ => Ok(()),
        }
    }

    /// All of them, the default one first.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.0.iter()
    }

    /// The export of this name; the empty name is the default one's too.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Export> {
        let named = self.0.iter().find(|export| export.name().as_bytes() == name);
        named.or_else(|| self.0.first().filter(|_| name.is_empty()))
    }
}

/// The metadata contexts of `export`.
pub(crate) fn contexts(export: &Export) -> Contexts {
    let contexts = Contexts::default().with(Topic::Allocation);
    if export.puts_blocks_as_one() { contexts.with(Topic::Atomic) } else { contexts }
}

fn is_protocol_string(text: &str) -> bool {
    text.len() <= STRING_BYTES_MAX && !text.contains('\0')
}
