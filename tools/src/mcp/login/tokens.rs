//! The tokens of an authorization server, which are untrusted data.

use std::time::Duration;

use http::HeaderValue;
use oauth2::basic::BasicTokenType;
use oauth2::{AccessToken, TokenResponse as _};
use rmcp::transport::auth::{OAuthTokenResponse, StoredCredentials, VendorExtraTokenFields};

/// Removes the fields of a token response that no request needs.
///
/// # Errors
/// If the access token cannot be sent.
pub(super) fn check_tokens(credentials: StoredCredentials) -> Result<StoredCredentials, String> {
    let (kept, sent) = of_renewal(credentials);
    sent.map(|()| kept)
}

/// Removes the fields of a renewal that no request needs. Also returns an error if the access token cannot be sent.
/// Then that token is removed, and the next use renews the login again. The new refresh token is kept in any case,
/// because the old one may be valid only once.
pub(super) fn of_renewal(mut credentials: StoredCredentials) -> (StoredCredentials, Result<(), String>) {
    let Some(tokens) = credentials.token_response.take() else { return (credentials, Ok(())) };
    let sent = check_access(&tokens);
    let access = if sent.is_ok() { tokens.access_token().clone() } else { AccessToken::new(String::new()) };
    let mut kept = OAuthTokenResponse::new(access, BasicTokenType::Bearer, VendorExtraTokenFields::default());
    kept.set_refresh_token(tokens.refresh_token().cloned());
    kept.set_expires_in(if sent.is_ok() { tokens.expires_in() } else { Some(Duration::ZERO) }.as_ref());
    kept.set_scopes(tokens.scopes().cloned());
    credentials.token_response = Some(kept);
    (credentials, sent)
}

fn check_access(tokens: &OAuthTokenResponse) -> Result<(), String> {
    if *tokens.token_type() != BasicTokenType::Bearer {
        return Err("its token has another type than `Bearer`".to_owned());
    }
    let secret = tokens.access_token().secret();
    if secret.is_empty() {
        return Err("its token is empty".to_owned());
    }
    if !secret.bytes().all(|byte| byte.is_ascii_graphic()) || HeaderValue::from_str(secret).is_err() {
        return Err("its token cannot be sent: it contains characters that HTTP headers do not allow".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn credentials(tokens: &Value) -> StoredCredentials {
        serde_json::from_value(json!({"client_id": "c", "token_response": tokens})).unwrap()
    }

    #[test]
    fn tokens_are_reduced_to_what_requests_need() {
        let needed = json!({
            "access_token": "at", "token_type": "bearer", "expires_in": 60, "refresh_token": "rt", "scope": "a b",
        });
        let mut given = needed.clone();
        given["id_token"] = "x".repeat(100_000).into();
        let kept = check_tokens(credentials(&given)).unwrap();
        assert_eq!(serde_json::to_value(&kept).unwrap()["token_response"], needed);
    }

    /// The control: each printable character without spaces can be sent.
    #[test]
    fn token_invalid_in_headers_is_refused() {
        let of = |token: &str, kind: &str| {
            check_tokens(credentials(&json!({"access_token": token, "token_type": kind}))).err().unwrap_or_default()
        };
        let printable: String = ('!'..='~').collect();
        assert_eq!(of(&printable, "Bearer"), "");
        for token in ["a b", "a\nb", "a\u{7f}", "\u{e9}", "\u{202e}"] {
            assert_eq!(
                of(token, "bearer"),
                "its token cannot be sent: it contains characters that HTTP headers do not allow",
                "{token:?}"
            );
        }
        assert_eq!(of("", "bearer"), "its token is empty");
        assert_eq!(of("a", "mac"), "its token has another type than `Bearer`");
    }

    /// The control: a token that can be sent is kept as it is.
    #[test]
    fn renewal_with_unusable_access_token_keeps_refresh_token() {
        let of = |token: &str| {
            let given = json!({
                "access_token": token, "token_type": "bearer", "expires_in": 60, "refresh_token": "rt-2", "scope": "a",
            });
            let (kept, sent) = of_renewal(credentials(&given));
            (serde_json::to_value(&kept).unwrap()["token_response"].clone(), sent)
        };
        let kept = |token: &str, lasts: u64| {
            json!({
                "access_token": token, "token_type": "bearer", "expires_in": lasts, "refresh_token": "rt-2", "scope": "a",
            })
        };
        let why = "its token cannot be sent: it contains characters that HTTP headers do not allow";
        assert_eq!(of("a b"), (kept("", 0), Err(why.to_owned())));
        assert_eq!(of("at-2"), (kept("at-2", 60), Ok(())));
    }
}
