//! Files and folders that other users may have put there.

use crate::{Exit, Report};
use tidegate_host::owned::{NotOwn, UntrustedFile, for_sudo};
use tidegate_host::shell::word;

impl From<&NotOwn> for Report {
    fn from(not_own: &NotOwn) -> Report {
        let NotOwn { file, distrust, command, instead } = not_own;
        let next = match distrust {
            UntrustedFile::Owner(uid) => {
                let user = for_sudo(*uid);
                format!("run the same command as that user, for example: sudo -u {user} {command}; or {instead}")
            }
            UntrustedFile::Writable(_) => {
                format!("if no other user has changed it, take that right away: chmod go-w {}", word(file))
            }
            UntrustedFile::Link(_) | UntrustedFile::Kind(_) => format!("move it away, or {instead}"),
        };
        let what = format!("{} is not used: other users may have put it there", file.display());
        Report::new(("not-own", Exit::Refused), what, distrust.to_string(), next)
    }
}
