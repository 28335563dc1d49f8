//! How a file of SOURCE is reached.

use crate::nameless::KeptFile;
use std::sync::Arc;

/// How a node is reached below.
#[derive(Clone, Debug)]
pub enum Route {
    /// By these names, one after the other, from SOURCE's root on.
    Names(Vec<Box<[u8]>>),
    /// By the descriptor that was kept when its last name went.
    Kept(Arc<KeptFile>),
}

impl Route {
    /// The path from SOURCE's root on; None: there is no name.
    pub fn path(&self) -> Option<Vec<u8>> {
        match self {
            Route::Names(names) => Some(names.join(&b'/')),
            Route::Kept(_) => None,
        }
    }

    /// The path of a name in the directory that this leads to.
    pub fn path_of(&self, name: &[u8]) -> Option<Vec<u8>> {
        let folder = self.path()?;
        Some(if folder.is_empty() { name.to_vec() } else { [&folder, name].join(&b'/') })
    }
}
