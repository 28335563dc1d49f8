//! What an older kernel lacks: found when a mount begins, and logged once.

use tidegate_fuse::{Features, Session};

/// A part of the protocol, the Linux that brought it, and what programs see without it.
struct Lack {
    is_there: fn(&Session) -> bool,
    linux: &'static str,
    effect: &'static str,
    /// Whether programs get errors.
    fails: bool,
}

const LACKS: [Lack; 4] = [
    Lack {
        is_there: |session| session.features.contains(Features::HANDLE_KILLPRIV_V2),
        linux: "5.11",
        effect: "each write takes one more request",
        fails: false,
    },
    Lack {
        is_there: |session| session.minor >= 37,
        linux: "6.1",
        effect: "O_TMPFILE fails with EOPNOTSUPP",
        fails: true,
    },
    Lack { is_there: |session| session.minor >= 39, linux: "6.6", effect: "files have no time of birth", fails: false },
    Lack {
        is_there: |session| session.features.contains(Features::RESEND),
        linux: "6.9",
        effect: "if a server dies, requests under way fail with ECONNABORTED",
        fails: true,
    },
];

/// Logs what the mount does without.
pub(crate) fn log_lacks(session: &Session) {
    for Lack { linux, effect, fails, .. } in lacks(session) {
        match fails {
            true => tracing::warn!("{effect}: use Linux {linux} or later"),
            false => tracing::info!("{effect}: use Linux {linux} or later"),
        }
    }
}

fn lacks(session: &Session) -> impl Iterator<Item = &'static Lack> {
    LACKS.iter().filter(|lack| !(lack.is_there)(session))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(minor: u32, features: Features) -> Vec<&'static str> {
        lacks(&Session { minor, features }).map(|lack| lack.linux).collect()
    }

    #[test]
    fn each_kernel_lacks_what_later_ones_brought() {
        let until_6_9 = Features::FILE_SERVER;
        assert_eq!(missing(31, Features::NONE), ["5.11", "6.1", "6.6", "6.9"]);
        assert_eq!(missing(37, until_6_9), ["6.6", "6.9"]);
        assert!(missing(41, until_6_9.with(Features::RESEND)).is_empty());
    }
}
