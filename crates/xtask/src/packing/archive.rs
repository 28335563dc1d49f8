//! Archives: tar in the form of POSIX (ustar), and ar, of which a Debian package is made.
//!
//! Entries come in the order of their paths, and all carry one time.

use super::tree::{Content, Tree};
use anyhow::{Context as _, Result};

const BLOCK_BYTES: usize = 512;
/// Bytes for the last part of a path, and for what stands before it.
const NAME_BYTES: usize = 100;
const PREFIX_BYTES: usize = 155;

/// `tree` as a tar archive; paths begin with `root`, which is empty or ends with a slash.
pub(super) fn tar(tree: &Tree, root: &str, epoch: u64) -> Result<Vec<u8>> {
    let mut archive = Vec::new();
    for (path, entry) in tree.entries() {
        let (kind, bytes, target) = match &entry.content {
            Content::Folder => (b'5', &[][..], ""),
            Content::File(bytes) => (b'0', &bytes[..], ""),
            Content::Link(target) => (b'2', &[][..], target.as_str()),
        };
        let slash = if kind == b'5' { "/" } else { "" };
        let path = format!("{root}{path}{slash}");
        let header = Header { path: &path, kind, mode: entry.mode, owner: entry.owner, bytes: bytes.len(), target };
        archive.extend(header.encoded(epoch).with_context(|| format!("{path} does not fit into a tar archive"))?);
        archive.extend(bytes);
        archive.resize(archive.len().next_multiple_of(BLOCK_BYTES), 0);
    }
    archive.resize(archive.len() + 2 * BLOCK_BYTES, 0);
    Ok(archive)
}

/// What stands before the bytes of an entry.
struct Header<'a> {
    path: &'a str,
    kind: u8,
    mode: u32,
    owner: u32,
    bytes: usize,
    target: &'a str,
}

impl Header<'_> {
    /// The block, or why there is none: a number or a path is too long.
    fn encoded(&self, epoch: u64) -> Result<[u8; BLOCK_BYTES]> {
        let mut block = [0; BLOCK_BYTES];
        let (prefix, name) = split(self.path).context("its path is too long")?;
        let owner = u64::from(self.owner);
        let fields: [(usize, usize, Vec<u8>); 8] = [
            (0, NAME_BYTES, name.into()),
            (100, 8, octal(u64::from(self.mode), 7)?),
            (108, 8, octal(owner, 7)?),
            (116, 8, octal(owner, 7)?),
            (124, 12, octal(self.bytes as u64, 11)?),
            (136, 12, octal(epoch, 11)?),
            (157, NAME_BYTES, self.target.into()),
            (345, PREFIX_BYTES, prefix.into()),
        ];
        for (at, length, bytes) in fields {
            anyhow::ensure!(bytes.len() <= length, "a field is too long");
            block[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        block[156] = self.kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        // The sum is taken with blanks in its own place.
        block[148..156].fill(b' ');
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..154].copy_from_slice(&octal(sum, 6)?);
        block[154] = 0;
        Ok(block)
    }
}

/// `number` in octal digits, as many as `digits`.
fn octal(number: u64, digits: usize) -> Result<Vec<u8>> {
    let said = format!("{number:0digits$o}");
    anyhow::ensure!(said.len() == digits, "{number} has more than {digits} octal digits");
    Ok(said.into_bytes())
}

/// The path in two parts, each of which fits into its field.
fn split(path: &str) -> Option<(&str, &str)> {
    if path.len() <= NAME_BYTES {
        return Some(("", path));
    }
    let parts = path.match_indices('/').map(|(at, _)| (&path[..at], &path[at + 1..]));
    parts
        .into_iter()
        .find(|(prefix, name)| prefix.len() <= PREFIX_BYTES && name.len() <= NAME_BYTES && !name.is_empty())
}

/// `members`, names and bytes, as an ar archive.
pub(super) fn ar(members: &[(&str, &[u8])], epoch: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        archive.extend(format!("{name:<16}{epoch:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, bytes.len()).bytes());
        archive.extend(*bytes);
        // Members begin at even places.
        archive.extend((bytes.len() % 2 == 1).then_some(b'\n'));
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::filtered;
    use std::process::Command;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        tree.file("a/program", 0o755, vec![7; 513]);
        tree.folder("a/state", 0o700, 10);
        tree.link("a/z", "program");
        tree
    }

    #[test]
    fn tar_reads_what_was_written() {
        let listed = filtered(
            Command::new("tar").args(["--list", "--verbose", "--numeric-owner", "--utc"]),
            &tar(&tree(), "./", 86_400).expect("it fits"),
            "tar",
        );
        let listed = String::from_utf8(listed.expect("tar reads it")).expect("text");
        let expected = [
            "drwxr-xr-x 0/0 0 1970-01-02 00:00 ./a/",
            "-rwxr-xr-x 0/0 513 1970-01-02 00:00 ./a/program",
            "drwx------ 10/10 0 1970-01-02 00:00 ./a/state/",
            "lrwxrwxrwx 0/0 0 1970-01-02 00:00 ./a/z -> program",
        ];
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(listed.lines().map(words).collect::<Vec<_>>(), expected.map(words), "{listed}");
    }

    #[test]
    fn long_paths_are_split_at_a_slash_and_too_long_ones_are_refused() {
        let (folder, name) = ("f".repeat(90), "n".repeat(90));
        assert_eq!(split(&format!("{folder}/{name}")), Some((folder.as_str(), name.as_str())));
        let mut tree = Tree::default();
        tree.file(&"n".repeat(101), 0o644, "");
        let refused = tar(&tree, "", 0).expect_err("it does not fit");
        assert!(
            format!("{refused:#}").ends_with("does not fit into a tar archive: its path is too long"),
            "{refused:#}"
        );
    }

    #[test]
    fn ar_members_begin_at_even_places() {
        let archive = ar(&[("odd", b"x"), ("even", b"yy")], 5);
        assert_eq!(archive.len(), 8 + 60 + 2 + 60 + 2);
        let header = b"odd             5           0     0     100644  1         `\nx\neven ";
        assert_eq!(&archive[8..8 + header.len()], header);
    }
}
