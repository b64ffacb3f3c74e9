//! Missing scopes: a server refuses a request with 403 and `insufficient_scope`.
//!
//! Missing scopes are never requested automatically, because a model or a server must not make the user grant more.

use std::error::Error;

use rmcp::transport::streamable_http_client::InsufficientScopeError;

/// Maximum number of scopes in a message.
const MAX_SCOPES: usize = 16;
/// Maximum length of one scope.
const MAX_SCOPE: usize = 128;

/// Returns the missing scopes of a refused request, except those that a command line cannot contain. Returns `None` for other errors.
pub(in crate::mcp) fn missing_scopes(error: &(dyn Error + 'static)) -> Option<Vec<String>> {
    let mut at = Some(error);
    while let Some(current) = at {
        let refused = current.downcast_ref::<InsufficientScopeError>();
        // The library reports every 403 with a challenge as this error.
        let is_meant = |refused: &InsufficientScopeError| {
            refused.www_authenticate_header.to_ascii_lowercase().contains("insufficient_scope")
        };
        if let Some(refused) = refused.filter(|refused| is_meant(refused)) {
            return Some(usable(refused.get_required_scope().unwrap_or_default()));
        }
        at = current.source();
    }
    None
}

/// Returns the scopes of a list that need no quotes in a command line: the server chooses the text, and the user may copy it.
fn usable(scopes: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for scope in scopes.split_ascii_whitespace() {
        if is_plain(scope) && !all.iter().any(|known| known == scope) && all.len() < MAX_SCOPES {
            all.push(scope.to_owned());
        }
    }
    all
}

/// Returns whether a scope needs no quotes in a command line.
pub(super) fn is_plain(scope: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '/' | '-' | '+' | '@');
    scope.len() <= MAX_SCOPE && scope.chars().all(plain) && !scope.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_missing_scopes(header: &str, scopes: Option<&str>) -> Option<Vec<String>> {
        missing_scopes(&InsufficientScopeError::new(header.to_owned(), scopes.map(str::to_owned)))
    }

    /// Scopes with special characters are omitted. The control: plain scopes are returned.
    #[test]
    fn scopes_of_a_server_cannot_continue_a_command() {
        let header = "Bearer error=\"insufficient_scope\"";
        assert_eq!(parse_missing_scopes(header, Some("a:write b a:write")).unwrap(), ["a:write", "b"]);
        let attack = "a;touch $(x) `y` -rf \"q\" 'z' https://x.example/a.b é";
        assert_eq!(parse_missing_scopes(header, Some(attack)).unwrap(), ["https://x.example/a.b"]);
        assert_eq!(parse_missing_scopes(header, Some(&"x".repeat(129))).unwrap(), Vec::<String>::new());
        let many: Vec<String> = (0..99).map(|number| number.to_string()).collect();
        assert_eq!(parse_missing_scopes(header, Some(&many.join(" "))).unwrap().len(), MAX_SCOPES);
        assert_eq!(parse_missing_scopes(header, None).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn other_refusals_are_not_about_scopes() {
        assert_eq!(parse_missing_scopes("Basic realm=\"x\"", None), None);
        assert_eq!(missing_scopes(&std::io::Error::other("x")), None);
    }
}
