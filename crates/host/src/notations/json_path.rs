//! Paths in JSON: a string if a path is text, else its bytes as an array of numbers. Any path can
//! be told, and comes back as it was.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A path as it is written.
#[derive(Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// A path as it is read.
#[derive(Deserialize)]
#[serde(untagged)]
enum Read {
    Text(String),
    Bytes(Vec<u8>),
}

impl Shown<'_> {
    fn of(path: &Path) -> Shown<'_> {
        path.to_str().map_or_else(|| Shown::Bytes(path.as_os_str().as_bytes()), Shown::Text)
    }
}

/// For `#[serde(with)]`.
pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    Shown::of(path).serialize(serializer)
}

/// For `#[serde(with)]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    Ok(match Read::deserialize(deserializer)? {
        Read::Text(text) => text.into(),
        Read::Bytes(bytes) => OsString::from_vec(bytes).into(),
    })
}

/// Several of them, for `#[serde(serialize_with)]`.
pub fn each<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| Shown::of(path)))
}

/// One that may be absent, for `#[serde(serialize_with)]`.
pub fn optional<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(Shown::of).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Wrapper(#[serde(with = "super")] PathBuf);

    #[test]
    fn any_path_comes_back_and_text_is_a_string() {
        for (bytes, json) in [(&b"/a b\"c"[..], r#""/a b\"c""#), (b"/\xff", "[47,255]"), (b"", r#""""#)] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let written = serde_json::to_string(&Wrapper(path.clone())).expect("any path");
            assert_eq!(written, json);
            assert_eq!(serde_json::from_str::<Wrapper>(&written).expect("what was written").0, path);
        }
    }
}
