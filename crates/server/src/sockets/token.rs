//! The token that clients of the metrics have to show: a secret in a file that nobody else reads.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;
use tidegate_host::files::regular;

/// The shortest token: fewer characters could be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// The longest token, which a request has room for.
const TOKEN_BYTES_MAX: usize = 4096;

/// A secret of 16 visible ASCII characters or more. It is not shown in logs.
#[derive(Clone)]
pub struct Token(Vec<u8>);

/// Why a file has no token that can be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Others than the server's user and root may read or change the file.
    #[error("{} has the permissions {mode:04o} and belongs to user {owner}", path.display())]
    NotPrivate {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Its owner.
        owner: u32,
    },
    /// What is in the file is no token.
    #[error("{} holds no token: {why}", path.display())]
    NoToken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl Token {
    /// The token in the file `path`, the only line there.
    ///
    /// # Errors
    /// The file cannot be read, is open to others, or holds something else.
    pub fn from_file(path: &Path) -> Result<Token, TokenError> {
        let unreadable = |error: io::Error| TokenError::Unreadable { path: path.to_owned(), error };
        let file = regular::open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        let (mode, owner) = (about.mode() & 0o7777, about.uid());
        let is_own = owner == 0 || owner == rustix::process::geteuid().as_raw();
        if mode & 0o077 != 0 || !is_own {
            return Err(TokenError::NotPrivate { path: path.to_owned(), mode, owner });
        }
        let mut bytes = Vec::new();
        let limit = TOKEN_BYTES_MAX as u64 + 2;
        file.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
        Token::of(&bytes).map_err(|why| TokenError::NoToken { path: path.to_owned(), why })
    }

    /// The token in `bytes`, around which white space is left out.
    fn of(bytes: &[u8]) -> Result<Token, &'static str> {
        let bytes = bytes.trim_ascii();
        match bytes.len() {
            0 => return Err("it is empty"),
            1..TOKEN_BYTES_MIN => return Err("it has fewer than 16 characters, which could be guessed"),
            TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX => {}
            _ => return Err("it has more than 4096 characters"),
        }
        if !bytes.iter().all(u8::is_ascii_graphic) {
            return Err("it has more than one line, or other characters than visible ASCII");
        }
        Ok(Token(bytes.to_vec()))
    }

    /// Whether `shown` is this token. How long that takes tells its length at most.
    pub(crate) fn is(&self, shown: &str) -> bool {
        self.0.ct_eq(shown.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn a_token_is_one_long_line_of_visible_characters() {
        let token = Token::of(format!("{SECRET}\n").as_bytes()).expect("it is one");
        for (shown, is) in [(SECRET, true), ("0123456789abcdeF", false), ("0123456789abcde", false), ("", false)] {
            assert_eq!(token.is(shown), is, "{shown}");
        }
        assert_eq!(format!("{token:?}"), "Token");
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        for text in
            ["", " \n", "0123456789abcde", "0123456789 abcdef", "0123456789abcdef\nx", "0123456789abcdeé", &long]
        {
            assert!(Token::of(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_or_that_is_none_has_no_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        assert!(matches!(Token::from_file(&path), Err(TokenError::Unreadable { .. })));
        fs::write(&path, SECRET).expect("a file");
        for (mode, is_private) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our own");
            match Token::from_file(&path) {
                Ok(token) => assert!(is_private && token.is(SECRET), "{mode:o}"),
                Err(error) => assert!(!is_private && matches!(error, TokenError::NotPrivate { .. }), "{error}"),
            }
        }
        assert!(matches!(Token::from_file(folder.path()), Err(TokenError::Unreadable { .. })));
    }
}
