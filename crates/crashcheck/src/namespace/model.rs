//! The dull model: the names after each step, and what a cut may leave of each file's contents.

use crate::file_cache::{Allowed, FileModel};
use crate::namespace::tree::{Names, REGULAR};
use std::collections::{BTreeMap, BTreeSet};

/// A name, and what can be told of its inode.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Named {
    mode: u32,
    owner: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// All names of the inode.
    names: BTreeSet<Vec<u8>>,
}

/// All names, without the numbers of their inodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameState {
    named: BTreeMap<Vec<u8>, Named>,
    /// For each regular file, which one it is.
    pub(crate) files: BTreeMap<Vec<u8>, u64>,
}

/// The names after each step, and the files.
#[derive(Clone, Debug)]
pub(crate) struct NamesModel {
    pub(crate) states: Vec<NameState>,
    /// The first of the states that a cut may leave.
    pub(crate) committed: usize,
    pub(crate) files: BTreeMap<u64, FileModel>,
}

/// What may be found: one of these states, and in its files what is allowed of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Expected {
    pub(crate) states: Vec<NameState>,
    pub(crate) contents: BTreeMap<u64, Allowed>,
}

impl NameState {
    pub(crate) fn of(names: &Names) -> NameState {
        let paths = names.paths();
        let of_inode =
            |inode| paths.iter().filter(|(_, other)| **other == inode).map(|(path, _)| path.clone()).collect();
        let named = |(path, inode): (&Vec<u8>, &u64)| {
            let node = &names.nodes[inode];
            let named =
                Named { mode: node.mode, owner: node.owner, xattrs: node.xattrs.clone(), names: of_inode(*inode) };
            (path.clone(), named)
        };
        let regular = |(path, inode): (&Vec<u8>, &u64)| {
            let node = &names.nodes[inode];
            (node.mode & REGULAR == REGULAR).then(|| (path.clone(), node.generation))
        };
        NameState { named: paths.iter().map(named).collect(), files: paths.iter().filter_map(regular).collect() }
    }

    fn equals(&self, other: &NameState) -> bool {
        self.named == other.named
    }

    /// The names, for messages.
    pub(crate) fn described(&self) -> String {
        let name = |(path, named): (&Vec<u8>, &Named)| {
            format!("{} {:o} {} {}", String::from_utf8_lossy(path), named.mode, named.owner, named.xattrs.len())
        };
        format!("[{}]", self.named.iter().map(name).collect::<Vec<_>>().join(", "))
    }
}

impl NamesModel {
    /// The names are as `names` says from now on.
    pub(crate) fn follow(&mut self, names: &Names) {
        let state = NameState::of(names);
        for generation in state.files.values() {
            self.files.entry(*generation).or_insert_with(|| FileModel::new(&[]));
        }
        self.states.push(state);
    }

    /// Every operation so far is durable.
    pub(crate) fn commit(&mut self) {
        self.committed = self.states.len() - 1;
    }

    /// What a cut may leave from here on, until the model `after` holds.
    pub(crate) fn until(&self, after: &NamesModel, mixed: bool) -> Expected {
        let contents = after.files.iter().map(|(file, new)| {
            let old = self.files.get(file).unwrap_or(new);
            let seen = [&old.now, &new.now].into_iter().filter(|_| mixed);
            (*file, Allowed::of(old.may.iter().chain(&new.may).chain(seen).cloned(), mixed))
        });
        Expected { states: after.states[self.committed..].to_vec(), contents: contents.collect() }
    }

    /// What a kill may leave from here on, until the model `after` holds.
    pub(crate) fn killed_until(&self, after: &NamesModel) -> Expected {
        let contents = after.files.iter().map(|(file, new)| {
            let old = self.files.get(file).unwrap_or(new);
            (*file, Allowed::of([old.now.clone(), new.now.clone()], false))
        });
        Expected { states: after.states[self.states.len() - 1..].to_vec(), contents: contents.collect() }
    }
}

impl Expected {
    /// Whether names and contents are those of one of the states.
    pub(crate) fn allows(&self, found: &NameState, contents: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(), String> {
        let states: Vec<&NameState> = self.states.iter().filter(|state| state.equals(found)).collect();
        if states.is_empty() {
            let allowed: Vec<String> = self.states.iter().map(NameState::described).collect();
            return Err(format!("the names are {}, allowed are {}", found.described(), allowed.join(" or ")));
        }
        let fits =
            |state: &&NameState| contents.iter().all(|(path, bytes)| self.contents[&state.files[path]].allows(bytes));
        if states.iter().any(fits) {
            return Ok(());
        }
        Err(format!("the names are {}, with contents {contents:?} that were never synced so", found.described()))
    }
}
