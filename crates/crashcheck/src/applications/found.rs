//! What an application finds after a cut.

use std::collections::BTreeMap;

/// Files and directories of a folder, by their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found(pub BTreeMap<String, FoundFile>);

/// A file or directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundFile {
    /// The contents; none of a directory.
    pub bytes: Vec<u8>,
    /// Permissions.
    pub mode: u32,
    /// The value of the extended attribute `user.state`, if there is one.
    pub state: Option<Vec<u8>>,
    /// How many names it has.
    pub links: usize,
}

impl Found {
    /// The file at a path.
    pub fn get(&self, path: &str) -> Option<&FoundFile> {
        self.0.get(path)
    }

    /// What is below a folder.
    pub fn below(&self, folder: &str) -> Found {
        let within = |path: &str| Some(path.strip_prefix(folder)?.strip_prefix('/')?.to_owned());
        Found(self.0.iter().filter_map(|(path, file)| Some((within(path)?, file.clone()))).collect())
    }
}
