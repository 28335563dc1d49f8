//! Metadata contexts: the status that BLOCK_STATUS tells of a range, one answer for each context
//! that the client chose.
//!
//! `base:allocation` tells holes from data. `tidegate:atomic` tells how many bytes a write request
//! may have to be put in place as a whole: it begins and ends at block boundaries then, and a crash
//! leaves all of it or none. Only exports have it where that is more than a block; the protocol has
//! no field for it.

/// What a metadata context is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// Holes and data.
    Allocation,
    /// Bytes of the largest whole write.
    Atomic,
}

impl Topic {
    /// Every context, in the order in which they are told.
    pub(crate) const ALL: [Topic; 2] = [Topic::Allocation, Topic::Atomic];

    /// Its name.
    pub(crate) const fn name(self) -> &'static [u8] {
        match self {
            Topic::Allocation => b"base:allocation",
            Topic::Atomic => b"tidegate:atomic",
        }
    }

    /// Its namespace, in which a client may ask for all there is.
    const fn namespace(self) -> &'static [u8] {
        match self {
            Topic::Allocation => b"base:",
            Topic::Atomic => b"tidegate:",
        }
    }

    /// Its number in every reply.
    pub(crate) const fn id(self) -> u32 {
        match self {
            Topic::Allocation => 1,
            Topic::Atomic => 2,
        }
    }

    /// The context of this number.
    pub(crate) fn numbered(id: u32) -> Option<Topic> {
        Topic::ALL.into_iter().find(|context| context.id() == id)
    }

    /// Whether a query for what there is finds it.
    pub(crate) fn matches(self, query: &[u8]) -> bool {
        [self.name(), self.namespace()].contains(&query)
    }
}

/// A set of contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contexts(u32);

impl Contexts {
    pub(crate) fn with(self, context: Topic) -> Contexts {
        Contexts(self.0 | 1 << context.id())
    }

    pub(crate) fn has(self, context: Topic) -> bool {
        self.0 >> context.id() & 1 == 1
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn each(self) -> impl Iterator<Item = Topic> {
        Topic::ALL.into_iter().filter(move |context| self.has(*context))
    }
}
