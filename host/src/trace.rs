//! Trace ids of requests. They are read from `traceparent` (W3C Trace Context), and added to log lines and responses.

use std::fmt;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::Instant;
use tracing::Instrument as _;

/// The header of a request that continues a trace.
const PARENT: &str = "traceparent";
/// The header of the response, with the span of the host.
const RESPONSE: &str = "traceresponse";
/// Maximum characters of a path in the log.
const MAX_PATH: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trace {
    id: [u8; 16],
    span: [u8; 8],
    sampled: bool,
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Trace {
    /// Parses `VERSION-TRACE-SPAN-FLAGS`. Returns `None` for any other text; the standard then requires a new trace.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let [version] = bytes(version)?;
        // A later version may append fields.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let ([flags], id, span) = (bytes(flags)?, bytes(id)?, bytes(span)?);
        (id != [0; 16] && span != [0; 8]).then_some(Self { id, span, sampled: flags & 1 == 1 })
    }

    fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut all = headers.get_all(PARENT).iter();
        match (all.next(), all.next()) {
            (Some(one), None) => Self::parse(one.to_str().ok()?),
            (_, _) => None,
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", Hex(&self.id), Hex(&self.span), u8::from(self.sampled))
    }
}

/// Reads lower-case hexadecimal digits, two for each byte.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != N.checked_mul(2)? {
        return None;
    }
    let digit = |byte: &u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().try_fold(0_u8, |byte, one| Some(byte << 4 | digit(one)?))?;
    }
    Some(bytes)
}

/// Returns random bytes, not all zero. Without any from the system, returns a constant: ids in logs are not unique then.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) if bytes != [0; N] => bytes,
        Ok(()) | Err(_) => [1; N],
    }
}

/// Marks a request that already has a span.
#[derive(Clone, Copy)]
struct Traced;

/// Runs a request in a span with its trace id, writes one line when its response begins, and names the trace in the response.
pub(crate) async fn trace(mut request: Request, next: Next) -> Response {
    // Run once: the router of a guard contains the router of a host, and both have this layer.
    if request.extensions().get::<Traced>().is_some() {
        return next.run(request).await;
    }
    request.extensions_mut().insert(Traced);
    let parent = Trace::from_headers(request.headers());
    let own = Trace {
        id: parent.map_or_else(random, |parent| parent.id),
        span: random(),
        sampled: parent.is_some_and(|parent| parent.sampled),
    };
    let path: String = request.uri().path().chars().take(MAX_PATH).collect();
    let span = tracing::info_span!(
        "request",
        trace_id = %Hex(&own.id),
        span_id = %Hex(&own.span),
        parent_id = parent.map(|parent| Hex(&parent.span).to_string()),
        method = %request.method(),
        // Without the query, which contains the code of a login.
        path,
        resource = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str),
    );
    let from = Instant::now();
    let mut response = next.run(request).instrument(span.clone()).await;
    let (status, us) = (response.status().as_u16(), u64::try_from(from.elapsed().as_micros()).unwrap_or(u64::MAX));
    span.in_scope(|| tracing::info!(status, us, "answered"));
    if let Ok(value) = HeaderValue::try_from(own.to_string()) {
        response.headers_mut().insert(RESPONSE, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_reads_what_it_writes() {
        assert_eq!(Trace::parse(GIVEN).expect("a trace").to_string(), GIVEN);
        let later = GIVEN.replacen("00", "01", 1) + "-more";
        assert_eq!(Trace::parse(&later), Trace::parse(GIVEN));
    }

    #[test]
    fn traceparent_refuses_other_texts() {
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let upper = GIVEN.to_uppercase();
        let (short, version, long) = (&GIVEN[..54], GIVEN.replacen("00", "ff", 1), format!("{GIVEN}-more"));
        for text in ["", "00", zero, &upper, short, &version, &long, "00-é-é-é"] {
            assert_eq!(Trace::parse(text), None, "{text}");
        }
    }
}
