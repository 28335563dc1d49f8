//! `tidegate help`: the help of the program, of a command, or a topic as plain text.

use crate::errors::{Exit, Failure};
use crate::grammar::{self, Help, TOPICS, TOPICS_WORD};
use crate::output;
use tidegate_host::plain::plain;

/// Runs `tidegate help`.
pub(crate) fn print_help(asked: &Help) -> Result<Exit, Failure> {
    output::print(text(asked.subject.as_deref()).trim_end())?;
    Ok(Exit::Done)
}

/// What is printed about `subject`, or about the program.
fn text(subject: Option<&str>) -> String {
    let mut program = grammar::command();
    program.build();
    let Some(subject) = subject else { return program.render_long_help().to_string() };
    if subject == TOPICS_WORD {
        return topics();
    }
    match TOPICS.iter().find(|topic| topic.name == subject) {
        Some(topic) => plain(topic.page),
        None => {
            let command = program.find_subcommand_mut(subject);
            command.map_or_else(String::new, |command| command.render_long_help().to_string())
        }
    }
}

fn topics() -> String {
    let lines: String = TOPICS.iter().map(|topic| format!("  {:<21}{}\n", topic.name, topic.about)).collect();
    format!("Topics:\n{lines}\n`tidegate help TOPIC` shows one.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_has_a_text_of_lines_that_fit_a_terminal() {
        for subject in grammar::subjects() {
            let text = text(Some(subject));
            assert!(text.lines().count() >= 3, "{subject}: {text}");
            let long = text.lines().find(|line| line.chars().count() > 100);
            assert!(long.is_none(), "{subject}: {long:?}");
            assert!(!text.contains("xtask"), "{subject}: {text}");
        }
        assert!(text(None).contains("Volumes:"));
    }

    #[test]
    fn the_page_about_domains_has_the_words_of_the_promises() {
        use tidegate_media::Domain;
        let page = TOPICS[0].page;
        for domain in
            [Domain::PowerFail { caches_included: false }, Domain::DiskFile, Domain::ProcessCrash, Domain::Volatile]
        {
            let row = format!("| `{domain}` | {} |", domain.meaning());
            assert!(page.contains(&row), "no {row:?} in:\n{page}");
        }
    }
}
