//! Topics of `tidegate help` beside commands: pages of the book.

/// A page of the book that the help shows.
pub(crate) struct Topic {
    /// The word that names it.
    pub(crate) name: &'static str,
    /// What it is about, in one line.
    pub(crate) about: &'static str,
    /// The page, in Markdown.
    pub(crate) page: &'static str,
}

/// The word for the list of all topics.
pub(crate) const TOPICS_WORD: &str = "topics";

/// Every topic, in the order in which they are listed.
pub(crate) const TOPICS: [Topic; 3] = [
    Topic {
        name: "persistence-domains",
        about: "What memory survives, and what becomes of writes at a power loss",
        page: include_str!("../../../../docs/reference/persistence-domains.md"),
    },
    Topic {
        name: "exit-codes",
        about: "How every command ends, for scripts",
        page: include_str!("../../../../docs/reference/exit-codes.md"),
    },
    Topic {
        name: "recipes",
        about: "Command lines for common tasks",
        page: include_str!("../../../../docs/guide/recipes.md"),
    },
];
