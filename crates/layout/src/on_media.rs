//! How a struct on the medium is declared: once, with its offsets, and with the words that describe
//! it.

use std::fmt;

/// A struct on the medium, in words.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The struct's name.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// What it is.
    pub text: &'static str,
    /// Its fields, in the order of their offsets.
    pub fields: &'static [Field],
}

/// A field of a struct on the medium.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The field's name.
    pub name: &'static str,
    /// Bytes from the start of the struct.
    pub offset: usize,
    /// Bytes the field takes.
    pub size: usize,
    /// What it holds.
    pub text: &'static str,
}

/// A rule that bytes on the medium break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The rule, as a sentence that is false of these bytes.
    pub rule: &'static str,
    /// Where, in bytes from the start of the struct.
    pub offset: u64,
    /// What was found instead.
    pub found: String,
}

/// `Ok` if the rule `holds`; otherwise the rule, the place and what was found there.
pub(crate) fn rule(holds: bool, rule: &'static str, offset: u64, found: impl fmt::Display) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { rule, offset, found: found.to_string() }) }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (found {} at byte {})", self.rule, self.found, self.offset)
    }
}

impl std::error::Error for Broken {}

/// Declares a struct on the medium. The offsets and the size are asserted, and the doc comments
/// become the struct's [`Description`].
macro_rules! on_media {
    (
        $(#[doc = $text:literal])*
        pub struct $name:ident [$size:literal] {
            $( $(#[doc = $field_text:literal])* $offset:literal: $field:ident: $type:ty, )*
        }
    ) => {
        $(#[doc = $text])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable,
        )]
        #[repr(C)]
        pub struct $name {
            $( $(#[doc = $field_text])* pub $field: $type, )*
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $( assert!(std::mem::offset_of!($name, $field) == $offset); )*
        };

        impl $name {
            /// This struct in words.
            pub const DESCRIPTION: $crate::Description = $crate::Description {
                name: stringify!($name),
                size: $size,
                text: concat!($($text,)*),
                fields: &[ $( $crate::Field {
                    name: stringify!($field),
                    offset: $offset,
                    size: size_of::<$type>(),
                    text: concat!($($field_text,)*),
                }, )* ],
            };
        }
    };
}
pub(crate) use on_media;
