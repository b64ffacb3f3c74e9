//! Reads the time at which a provider accepts calls again: a retry-after, or the reset of a limit.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde_json::Value;

/// Maximum wait. The longest known limits last a week.
const MAX_WAIT: Duration = Duration::from_secs(8 * 24 * 3600);

/// Returns the milliseconds of `retry-after-ms`, or of `retry-after`, which has seconds or a date. A date is relative to the `date` of the
/// response.
pub(super) fn of(headers: &HeaderMap) -> Option<u64> {
    let wait = match (
        text(headers, "retry-after-ms").and_then(|text| number(text, 1000.0)),
        text(headers, RETRY_AFTER.as_str()),
    ) {
        (Some(wait), _) => wait,
        (None, Some(after)) => match number(after, 1.0) {
            Some(wait) => wait,
            None => until_date(after, text(headers, DATE.as_str())?)?,
        },
        (None, None) => return None,
    };
    millis(wait)
}

/// Returns the milliseconds until the reset of an exhausted limit, for a response without a retry-after. The time comes from the error in the
/// body, from headers of a subscription, or from headers of exhausted budgets.
pub(super) fn reset(headers: &HeaderMap, body: &Value) -> Option<u64> {
    let now = text(headers, DATE.as_str()).and_then(|date| httpdate::parse_http_date(date).ok());
    let at = |seconds: f64| {
        let at = UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)?;
        Some(at.duration_since(now?).unwrap_or_default())
    };
    let error = body.get("error").unwrap_or(body);
    let seconds = |name: &str| error.get(name).and_then(Value::as_f64);
    let spent = |of: &str| {
        let left = text(headers, &format!("x-ratelimit-remaining-{of}"))?;
        text(headers, &format!("x-ratelimit-reset-{of}")).filter(|_| left == "0").and_then(span)
    };
    let delay = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let delay = delay.filter_map(|detail| detail.get("retryDelay")?.as_str()).find_map(span);
    let wait = seconds("resets_in_seconds")
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .or_else(|| seconds("resets_at").and_then(at))
        .or(delay)
        .or_else(|| text(headers, "anthropic-ratelimit-unified-reset")?.parse().ok().and_then(at))
        .or_else(|| spent("requests").max(spent("tokens")))?;
    millis(wait)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

fn millis(wait: Duration) -> Option<u64> {
    u64::try_from(wait.min(MAX_WAIT).as_millis()).ok()
}

/// Parses a span such as `6m0s`, `1h2m3.5s` or `20ms`.
fn span(text: &str) -> Option<Duration> {
    let (mut rest, mut whole) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|digits| *digits > 0)?;
        let (value, after) = rest.split_at(digits);
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let seconds = match unit {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            _ => return None,
        };
        let value: f64 = value.parse().ok()?;
        whole = whole.checked_add(Duration::try_from_secs_f64(value * seconds).ok()?)?;
        rest = after;
    }
    Some(whole).filter(|_| !text.is_empty())
}

fn number(text: &str, per_second: f64) -> Option<Duration> {
    let number: f64 = text.parse().ok()?;
    let seconds = (number.is_finite() && number >= 0.0).then_some(number / per_second)?;
    Duration::try_from_secs_f64(seconds.min(MAX_WAIT.as_secs_f64())).ok()
}

fn until_date(after: &str, date: &str) -> Option<Duration> {
    let (after, date): (SystemTime, SystemTime) =
        (httpdate::parse_http_date(after).ok()?, httpdate::parse_http_date(date).ok()?);
    Some(after.duration_since(date).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn wait(headers: &[(&'static str, &'static str)]) -> Option<u64> {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        of(&headers.iter().map(pair).collect())
    }

    #[test]
    fn seconds_milliseconds_and_dates_are_read() {
        assert_eq!(wait(&[("retry-after", "2")]), Some(2000));
        assert_eq!(wait(&[("retry-after", "0.25")]), Some(250));
        assert_eq!(wait(&[("retry-after-ms", "1500"), ("retry-after", "9")]), Some(1500));
        let date = ("date", "Wed, 21 Oct 2026 07:28:00 GMT");
        assert_eq!(wait(&[date, ("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT")]), Some(30_000));
        assert_eq!(wait(&[date, ("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT")]), Some(0));
    }

    #[test]
    fn invalid_retry_after_is_ignored_and_long_ones_are_capped() {
        assert_eq!(wait(&[]), None);
        assert_eq!(wait(&[("retry-after", "-1")]), None);
        assert_eq!(wait(&[("retry-after", "NaN")]), None);
        assert_eq!(wait(&[("retry-after", "soon")]), None);
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT")]), None);
        assert_eq!(wait(&[("retry-after-ms", "x"), ("retry-after", "1")]), Some(1000));
        assert_eq!(wait(&[("retry-after", "1e300")]), Some(WEEK_AND_A_DAY));
    }

    const WEEK_AND_A_DAY: u64 = 691_200_000;

    fn resets(headers: &[(&'static str, &'static str)], body: &str) -> Option<u64> {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        reset(&headers.iter().map(pair).collect(), &serde_json::from_str(body).unwrap())
    }

    #[test]
    fn reset_is_read_from_headers_and_bodies() {
        // 2026-10-21 07:28:00 is 1,792,567,680.
        let date = ("date", "Wed, 21 Oct 2026 07:28:00 GMT");
        let unified = ("anthropic-ratelimit-unified-reset", "1792585680");
        assert_eq!(resets(&[date, unified], "{}"), Some(18_000_000));
        assert_eq!(resets(&[unified], "{}"), None, "a reset needs the server's clock");
        assert_eq!(resets(&[], r#"{"error": {"resets_in_seconds": 7200}}"#), Some(7_200_000));
        assert_eq!(resets(&[date], r#"{"error": {"resets_at": 1792567740}}"#), Some(60_000));
        let info = r#"{"error": {"details": [{"reason": "x"}, {"retryDelay": "34.5s"}]}}"#;
        assert_eq!(resets(&[], info), Some(34_500));
        let budget = |left| [("x-ratelimit-remaining-tokens", left), ("x-ratelimit-reset-tokens", "1h6m0.5s")];
        assert_eq!(resets(&budget("0"), "{}"), Some(3_960_500));
        assert_eq!(resets(&budget("7"), "{}"), None, "that budget is not exhausted");
    }

    #[test]
    fn invalid_reset_is_ignored() {
        for body in [
            "null",
            "[]",
            r#"{"error": "slow"}"#,
            r#"{"error": {"resets_in_seconds": -1}}"#,
            r#"{"error": {"resets_in_seconds": "7"}}"#,
            r#"{"error": {"details": [{"retryDelay": ""}, {"retryDelay": "5 weeks"}, {"retryDelay": "s"}, 7]}}"#,
        ] {
            assert_eq!(resets(&[], body), None, "{body}");
        }
        assert_eq!(resets(&[], r#"{"error": {"resets_in_seconds": 1e18}}"#), Some(WEEK_AND_A_DAY));
        assert_eq!(resets(&[], r#"{"error": {"details": [{"retryDelay": "9999999999d"}]}}"#), Some(WEEK_AND_A_DAY));
    }
}
