//! The page for browsers at the port of the metrics: one document without outside resources, whose
//! script asks for `/metrics` every two seconds and shows what grew, and draws the server's samples
//! of the last hour. Thus it has no numbers of its own.

use uuid::Uuid;

/// The document; `@NONCE@` stands where the policy's word goes.
const PAGE: &str = include_str!("page.html");

/// The document for one answer, with the headers that go with it.
pub(super) struct Document {
    /// What the page may do: let its own style and script act, and ask this server.
    pub policy: String,
    /// The page.
    pub body: String,
}

impl Document {
    /// A document whose policy no text that came into the page otherwise can know.
    pub(super) fn new() -> Document {
        let nonce = Uuid::new_v4().simple().to_string();
        let policy = format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        Document { policy, body: PAGE.replace("@NONCE@", &nonce) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generated list of all metrics.
    const METRICS: &str = include_str!("../../../../docs/reference/metrics.md");

    fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
        text.split_once(from).unwrap().1.split_once(to).unwrap().0
    }

    #[test]
    fn only_the_pages_own_style_and_script_may_act() {
        let (first, second) = (Document::new(), Document::new());
        let nonce = between(&first.policy, "script-src 'nonce-", "'");
        assert_eq!(nonce.len(), 32);
        assert_eq!(first.body.matches(&format!(" nonce=\"{nonce}\">")).count(), 2);
        assert!(!second.body.contains(nonce), "a nonce came twice");
        let body = &first.body;
        for refused in ["@NONCE@", "innerHTML", " style=", " onload=", "src=", "https://", "@import", "url("] {
            assert!(!body.contains(refused), "the page has {refused}");
        }
        assert!(body.len() <= 100_000, "{} bytes", body.len());
    }

    #[test]
    fn every_number_that_the_script_uses_is_a_metric() {
        let names: Vec<&str> = PAGE
            .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
            .filter(|word| {
                ["disk_cache_", "request_", "connections_", "uptime_", "volume_"].iter().any(|of| word.starts_with(of))
            })
            .map(|word| word.strip_suffix("_count").unwrap_or(word))
            .filter(|word| !word.ends_with('_'))
            .collect();
        assert!(names.len() >= 10, "{names:?}");
        for name in names {
            assert!(METRICS.contains(&format!("`tidegate_{name}`")), "the page uses {name}");
        }
    }
}
