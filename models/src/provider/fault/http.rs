use std::error::Error;
use std::io::ErrorKind;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;
use subtend_session::outcome::ModelFail;
use subtend_session::values::parse_foreign;

use super::{Fault, classify};
use crate::provider::client::Client;
use crate::provider::retry_after;

/// Returns the failure of a connection, or of a request that could not be made.
pub(in crate::provider) fn of_transport(error: &reqwest::Error, client: &Client) -> Fault {
    let origin = client.origin();
    if error.is_builder() || error.is_request() && !error.is_connect() && !error.is_timeout() && io(error).is_none() {
        let kind = if error.is_builder() { ModelFail::InvalidRequest } else { ModelFail::Unavailable };
        return Fault::new(kind, format!("the request to {origin} failed: {}", root(error)));
    }
    let why = match io(error) {
        _ if error.is_timeout() => "no connection within 10 seconds".to_owned(),
        _ if client.is_https() && is_no_tls(error) => {
            "the server does not speak TLS on this port. Give its base URL as http://…".to_owned()
        }
        _ if client.is_https() && root(error) == "tls handshake eof" => {
            "the server closed the connection before TLS was established. If it does not speak TLS, give its base URL as http://…"
                .to_owned()
        }
        Some(ErrorKind::ConnectionRefused) => "connection refused".to_owned(),
        Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => "the connection was reset".to_owned(),
        Some(_) | None => root(error),
    };
    let text = if error.is_connect() || error.is_timeout() {
        format!("could not reach {origin}: {why}")
    } else {
        format!("the connection to {origin} was interrupted in the middle of the answer: {why}")
    };
    Fault::new(ModelFail::Unavailable, text)
}

pub(in crate::provider) fn of_status(status: StatusCode, headers: &HeaderMap, body: &str, client: &Client) -> Fault {
    let who = client.provider_name();
    let code = status.as_u16();
    if status.is_redirection() {
        // Omit the target of the redirect: the server chooses it, and it may contain the key with other upper and lower case.
        let text = format!(
            "{who} answered with a redirect ({code}), which is not followed, because its target would receive the key. Give the final base URL"
        );
        return Fault::new(ModelFail::InvalidRequest, text);
    }
    let json = parse_foreign::<Value>(body.as_bytes()).unwrap_or(Value::Null);
    let mut fault = classify(Some(status), &json, Some(body));
    let wording = if fault.text.is_empty() { String::new() } else { format!(": {}", fault.text) };
    fault.text = match (fault.kind, &client.key, client.key_name()) {
        (ModelFail::Auth, Some(_), Some(name)) => format!("the key in {name} was refused by {who} ({code}){wording}"),
        (ModelFail::Auth, Some(_), None) => format!("the key was refused by {who} ({code}){wording}"),
        (ModelFail::Auth, None, _) => match client.protocol.key_variable() {
            Some(name) => format!("{who} requires a key ({code}): set {name}{wording}"),
            None => format!("{who} requires a key ({code}){wording}"),
        },
        (ModelFail::Credit, ..) => {
            format!(
                "{who} refused the call ({code}), because the account is out of credit{wording}: add credit or choose another model"
            )
        }
        (ModelFail::Access, None, _) if client.protocol.key_variable().is_some() => {
            let name = client.protocol.key_variable().unwrap_or_default();
            format!("{who} refused access ({code}){wording}; if it needs a key, set {name}")
        }
        (ModelFail::Access, ..) => format!("{who} refused access ({code}){wording}"),
        _ if code == 404 && !client.is_official() && !wording.to_lowercase().contains("model") => {
            format!("{who} answered 404{wording}: check the base URL, and that the server speaks {}", client.protocol)
        }
        _ => format!("{who} answered {code}{wording}"),
    };
    let reset = || retry_after::reset(headers, &json).filter(|_| fault.kind == ModelFail::Rate);
    fault.retry_after_ms = retry_after::of(headers).or_else(reset).filter(|_| fault.kind.is_retryable());
    if let Some(ms) = fault.retry_after_ms.filter(|ms| *ms >= 1_000) {
        fault.text = format!("{}; retry after {} s", fault.text, ms.div_ceil(1_000));
    }
    fault
}

/// Returns whether a connection failed because the server does not speak TLS.
fn is_no_tls(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return matches!(error, rustls::Error::InvalidMessage(_));
    }
    // The inner error of an I/O error is not its `source`.
    let held = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    held.is_some_and(|held| is_no_tls(held)) || error.source().is_some_and(is_no_tls)
}

fn io(error: &(dyn Error + 'static)) -> Option<ErrorKind> {
    let mut below = Some(error);
    while let Some(error) = below {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        below = error.source();
    }
    None
}

/// Returns the message of the innermost error, because outer errors only repeat the address.
fn root(error: &(dyn Error + 'static)) -> String {
    let mut root = error;
    while let Some(below) = root.source() {
        root = below;
    }
    root.to_string()
}
