//! What is in force for a database, and why: the answer to `PRAGMA tidegate_status`.

use std::ffi::CString;

/// Whether transactions of a database are atomic groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    /// They are.
    Groups,
    /// The file is not on a mount, or not open for writing.
    NotOnMount,
    /// The VFS for Unix used a descriptor again that another connection had left, or opens files in
    /// a way of its own.
    UnknownDescriptor,
}

/// How transactions of this connection became durable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommitCounts {
    /// Groups that were committed.
    pub(crate) groups: u64,
    /// Journals that became files.
    pub(crate) journals: u64,
}

/// The answer, a line of text.
pub(crate) fn text(support: Support, counts: CommitCounts) -> CString {
    let text = match support {
        Support::Groups => format!("on: {} groups, {} journals", counts.groups, counts.journals),
        Support::NotOnMount => "off: the file is not on a Tidegate mount, or cannot be written".to_owned(),
        Support::UnknownDescriptor => "off: SQLite does not tell which descriptor it uses".to_owned(),
    };
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_says_whether_and_why() {
        let counts = CommitCounts { groups: 3, journals: 1 };
        assert_eq!(text(Support::Groups, counts).to_string_lossy(), "on: 3 groups, 1 journals");
        for support in [Support::NotOnMount, Support::UnknownDescriptor] {
            assert!(text(support, counts).to_string_lossy().starts_with("off: "));
        }
    }
}
