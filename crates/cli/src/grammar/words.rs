//! Values that are one of a few words: a parser of ours reads them, and completions offer them.

use crate::errors::UsageFailure;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use std::ffi::OsStr;

/// What a parser takes, as far as it can be listed.
#[derive(Clone)]
pub(super) struct Words<T> {
    read: fn(&str) -> Result<T, UsageFailure>,
    words: fn() -> Vec<&'static str>,
}

/// Values that `read` reads, of which `words` are those to offer. It may take others.
pub(super) fn words<T>(read: fn(&str) -> Result<T, UsageFailure>, words: fn() -> Vec<&'static str>) -> Words<T> {
    Words { read, words }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Words<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        TypedValueParser::parse_ref(&self.read, command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.words)().into_iter().map(PossibleValue::new)))
    }
}
