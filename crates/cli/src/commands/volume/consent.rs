//! Asks before data is given up: on a terminal, a person; elsewhere only a flag consents.

use std::io::{self, IsTerminal, Write};
use tidegate_host::shell::{Ends, shown};

/// Asks `question` on the terminal, if the program has one and speaks to people. Anything but `yes`
/// declines.
pub(crate) fn given(question: &str, json: bool) -> bool {
    if json || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    let asked = write!(io::stderr().lock(), "{} Type yes to go on: ", shown(question, Ends::OfNothing));
    let mut answer = String::new();
    asked.and_then(|()| io::stdin().read_line(&mut answer)).is_ok() && answer.trim() == "yes"
}
