//! Open files and directories by the numbers that the kernel gives back with each request.

use crate::service::nodes::open_files::OpenFile;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tidegate_fuse::Handle;

/// An open directory. The lock is for its position.
pub(crate) type OpenDirectory = Arc<Mutex<OwnedFd>>;

/// What a number stands for.
#[derive(Clone)]
enum Opened {
    File(Arc<OpenFile>),
    Directory(OpenDirectory),
}

/// The numbers in use.
#[derive(Default)]
pub(crate) struct Handles {
    opened: RwLock<HashMap<Handle, Opened>>,
    /// Relaxed: only that numbers differ matters.
    last: AtomicU64,
}

impl Handles {
    pub(crate) fn add_file(&self, file: Arc<OpenFile>) -> Handle {
        self.add(Opened::File(file))
    }

    pub(crate) fn add_directory(&self, directory: OwnedFd) -> Handle {
        self.add(Opened::Directory(Arc::new(Mutex::new(directory))))
    }

    /// The open file with this number.
    pub(crate) fn file(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        match self.get(handle) {
            Some(Opened::File(file)) => Ok(file),
            _ => Err(Errno::BADF),
        }
    }

    /// The open directory with this number.
    pub(crate) fn directory(&self, handle: Handle) -> Result<OpenDirectory> {
        match self.get(handle) {
            Some(Opened::Directory(directory)) => Ok(directory),
            _ => Err(Errno::BADF),
        }
    }

    /// Takes a number out of use; the file that it stood for, if it was a file's.
    pub(crate) fn remove(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        let removed = self.opened.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        match removed {
            Some(Opened::File(file)) => Some(file),
            _ => None,
        }
    }

    fn add(&self, opened: Opened) -> Handle {
        let handle = Handle(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        self.opened.write().unwrap_or_else(PoisonError::into_inner).insert(handle, opened);
        handle
    }

    fn get(&self, handle: Handle) -> Option<Opened> {
        self.opened.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }
}
