//! The terms on which metrics are answered: by which token, and by which identity.

use crate::failure::ListenFailure;
use crate::fronts::nbd::read_identity;
use crate::log_ratelimit::LogRatelimit;
use crate::options::Plan;
use crate::sockets::token::Token;
use tidegate_nbd::Tls;

/// Who is answered, and how.
#[derive(Default)]
pub(crate) struct MetricsTerms {
    /// What clients have to show. `None`: everyone who reaches the port is answered.
    token: Option<Token>,
    /// The identity to encrypt with; there is none without a token.
    pub tls: Option<Tls>,
    refused: LogRatelimit,
}

impl MetricsTerms {
    /// Those of `plan`, whose files are read anew. Clients of the metrics have the token instead of
    /// a certificate.
    pub(crate) fn of(plan: &Plan) -> Result<MetricsTerms, ListenFailure> {
        let Some(path) = plan.metrics_token.as_ref().filter(|_| plan.metrics.is_some()) else {
            return Ok(MetricsTerms::default());
        };
        let token = Token::from_file(path).map_err(|error| ListenFailure::Token { error })?;
        let tls = plan.tls.as_ref().map(|named| read_identity(named, None)).transpose()?;
        Ok(MetricsTerms { token: Some(token), tls, refused: LogRatelimit::default() })
    }

    /// How URLs of the port begin.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Whether the client at `peer`, whose request has this head, may see numbers.
    pub(crate) fn admit(&self, head: &str, peer: impl FnOnce() -> String) -> bool {
        let Some(token) = &self.token else { return true };
        let Some(shown) = shown_token(head) else { return false };
        let admitted = token.is(shown);
        if !admitted && let Some(more) = self.refused.ask() {
            tracing::warn!("a client of the metrics showed a wrong token: {}{more}", peer());
        }
        admitted
    }
}

/// The token in the head of a request: `Authorization: Bearer TOKEN`.
fn shown_token(head: &str) -> Option<&str> {
    let headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut credentials = headers.filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let (scheme, token) = credentials.next()?.1.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_in_the_header_that_is_for_it_and_nowhere_else() {
        let shown = |header: &str| {
            shown_token(&format!("GET /Bearer:x HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n")).map(str::to_owned)
        };
        for header in ["Authorization: Bearer abc", "authorization:bearer  abc ", "AUTHORIZATION: BEARER abc"] {
            assert_eq!(shown(header).as_deref(), Some("abc"), "{header}");
        }
        for header in ["Authorization: Basic abc", "Authorization: abc", "X-Authorization: Bearer abc", ""] {
            assert_eq!(shown(header), None, "{header}");
        }
    }
}
