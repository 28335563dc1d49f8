//! Values of flags and of keys in configuration files, read from text.

use crate::errors::UsageFailure;
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use rustix::fs::Mode;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use tidegate_disk_cache::Mode as CacheMode;
use tidegate_host::units;
use tidegate_layout::btt::{SECTOR_SIZES, Version};
use tidegate_layout::disk_cache::{CACHE_BLOCK_BYTES_MAX, CACHE_BLOCK_BYTES_MIN};
use tidegate_media::emulate::Profile;
use tidegate_policy::admit::Admit;
use tidegate_policy::evict::Replacement;
use tidegate_policy::placement::{Bypass, NamedPlacement};
use tidegate_sandbox::SandboxWish;
use tidegate_server::sockets::access;
use tidegate_server::sockets::listen::{ListenAddress, socket_path};
use tidegate_server::volume::write_cache::WriteCacheSize;
use tidegate_top::SortKey;

/// Sizes of blocks as they are offered: [`SECTOR_SIZES`].
pub(super) const BLOCK_WORDS: [&str; 7] = ["512", "520", "528", "4096", "4104", "4160", "4224"];

/// Versions of the format as they are offered: [`Version::ALL`].
pub(super) const VERSION_WORDS: [&str; 2] = ["1.1", "2.0"];

/// Reads a size: bytes, or a number and a unit.
pub(crate) fn size(text: &str) -> Result<u64, UsageFailure> {
    Ok(units::parse(text)?)
}

/// Reads a glob of files that bypass a pool.
pub(crate) fn glob(text: &str) -> Result<String, UsageFailure> {
    Bypass::new(vec![text.to_owned()])?;
    Ok(text.to_owned())
}

/// Offsets in a file: of the first byte, and one past the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange(pub(crate) u64, pub(crate) u64);

/// Reads a range of bytes.
pub(super) fn byte_range(text: &str) -> Result<ByteRange, UsageFailure> {
    let ends =
        text.split_once("..").and_then(|(from, until)| Some((units::parse(from).ok()?, units::parse(until).ok()?)));
    let (from, until) =
        ends.filter(|(from, until)| from < until).ok_or_else(|| UsageFailure::ByteRange { text: text.to_owned() })?;
    Ok(ByteRange(from, until))
}

/// Reads the name of a placement.
pub(super) fn policies() -> impl TypedValueParser<Value = NamedPlacement> {
    PossibleValuesParser::new(NamedPlacement::OF_ONE_TIER.map(NamedPlacement::name)).try_map(|name| name.parse())
}

/// Reads the word of a column to sort by.
pub(super) fn sort_keys() -> impl TypedValueParser<Value = SortKey> {
    PossibleValuesParser::new(SortKey::ALL.map(SortKey::word)).try_map(|word| word.parse())
}

pub(super) fn sandbox_wishes() -> impl TypedValueParser<Value = SandboxWish> {
    PossibleValuesParser::new(SandboxWish::NAMED.map(|(name, _)| name)).try_map(|word| word.parse())
}

pub(super) fn block_size(text: &str) -> Result<u32, UsageFailure> {
    match units::parse(text).map(u32::try_from) {
        Ok(Ok(size)) if SECTOR_SIZES.contains(&size) => Ok(size),
        Ok(Ok(size @ CACHE_BLOCK_BYTES_MIN..=CACHE_BLOCK_BYTES_MAX)) if size.is_power_of_two() => Ok(size),
        _ => Err(UsageFailure::BlockSize { text: text.to_owned() }),
    }
}

/// Reads a number from 1 on.
pub(super) fn from_one_on<N: FromStr>(text: &str) -> Result<N, UsageFailure> {
    text.parse().map_err(|_| UsageFailure::NotFromOneOn { text: text.to_owned() })
}

pub(super) fn version(text: &str) -> Result<Version, UsageFailure> {
    let known = Version::ALL.into_iter().find(|version| version.to_string() == text);
    known.ok_or_else(|| UsageFailure::Version { text: text.to_owned() })
}

/// Reads the name of an emulated medium.
pub(crate) fn profile(text: &str) -> Result<Profile, UsageFailure> {
    Profile::by_name(text).map_err(|_| UsageFailure::Emulate { text: text.to_owned() })
}

/// Reads where to listen.
pub(super) fn listen(text: &str) -> Result<ListenAddress, UsageFailure> {
    Ok(ListenAddress::parse(text)?)
}

/// Reads the same, and leaves a relative path as it is written.
pub(crate) fn listen_as_written(text: &str) -> Result<ListenAddress, UsageFailure> {
    Ok(ListenAddress::as_written(text)?)
}

/// Reads the path of a unix socket, which may have `unix:` before it, as places to listen have.
pub(super) fn socket() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(socket_path)
}

/// Reads a user: a number, or a name that the system knows.
pub(crate) fn user(text: &str) -> Result<u32, UsageFailure> {
    access::user(text).ok_or_else(|| UsageFailure::NoUser { text: text.to_owned() })
}

/// Reads a group: a number, or a name that the system knows.
pub(crate) fn group(text: &str) -> Result<u32, UsageFailure> {
    access::group(text).ok_or_else(|| UsageFailure::NoGroup { text: text.to_owned() })
}

/// Reads a TCP port.
pub(crate) fn metrics(text: &str) -> Result<SocketAddr, UsageFailure> {
    match ListenAddress::parse(text) {
        Ok(ListenAddress::Tcp(address)) => Ok(address),
        _ => Err(UsageFailure::Metrics { text: text.to_owned() }),
    }
}

/// The smallest cache in front of a volume: a few blocks of any size.
const CACHE_BYTES_MIN: u64 = 64 << 10;

/// Reads what to do about a cache.
pub(crate) fn cache(text: &str) -> Result<WriteCacheSize, UsageFailure> {
    match text {
        "auto" => Ok(WriteCacheSize::Auto),
        "off" => Ok(WriteCacheSize::Off),
        bytes => match size(bytes)? {
            0 => Ok(WriteCacheSize::Off),
            bytes if bytes < CACHE_BYTES_MIN => Err(UsageFailure::CacheTooFew { bytes, min: CACHE_BYTES_MIN }),
            bytes => Ok(WriteCacheSize::Bytes(bytes)),
        },
    }
}

/// Reads what a cache of a disk does with reads and writes.
pub(crate) fn cache_mode(text: &str) -> Result<CacheMode, UsageFailure> {
    text.parse().map_err(|_| UsageFailure::CacheMode { text: text.to_owned() })
}

/// Reads which block goes when room is needed.
pub(crate) fn replacement(text: &str) -> Result<Replacement, UsageFailure> {
    text.parse().map_err(|_| UsageFailure::Replacement { text: text.to_owned() })
}

/// Reads which blocks come in.
pub(crate) fn admit(text: &str) -> Result<Admit, UsageFailure> {
    text.parse().map_err(|_| UsageFailure::Admit { text: text.to_owned() })
}

/// Reads the permissions of a file: octal, at most 0777.
pub(crate) fn socket_mode(text: &str) -> Result<Mode, UsageFailure> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    mode.map(Mode::from_raw_mode).ok_or_else(|| UsageFailure::SocketMode { text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_that_are_offered_are_those_that_are_known() {
        assert_eq!(BLOCK_WORDS.map(|word| block_size(word).expect(word)), SECTOR_SIZES);
        assert_eq!(VERSION_WORDS.map(|word| version(word).expect(word)), Version::ALL);
    }
}
