//! Permissions of what programs make.

use crate::service::nodes::folders::Folder;
use rustix::fs::Mode;
use rustix::io::Result;

/// The permissions that a program asks for what it makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permissions {
    /// With the kind of file, or without.
    pub(crate) mode: u32,
    pub(crate) umask: u32,
}

impl Permissions {
    /// What is asked of the file system below: a default ACL takes the place of the umask.
    pub(crate) fn in_folder(self, folder: &Folder) -> Result<Mode> {
        let has_effect = self.mode & self.umask != 0;
        let umask = if has_effect && !folder.has_default_acl()? { self.umask } else { 0 };
        Ok(Mode::from_raw_mode(self.mode & 0o7777 & !umask))
    }
}
