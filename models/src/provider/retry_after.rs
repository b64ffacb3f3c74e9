//! Retry-after of a response.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// A longer wait counts as a refusal; the caller's limits are below it.
const LONGEST: Duration = Duration::from_secs(3600);

/// Returns the milliseconds of `retry-after-ms`, or of `retry-after` in seconds or as a date, measured against the response's own `date`.
pub(super) fn of(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let wait = match (text("retry-after-ms").and_then(|text| number(text, 1000.0)), text(RETRY_AFTER.as_str())) {
        (Some(wait), _) => wait,
        (None, Some(after)) => match number(after, 1.0) {
            Some(wait) => wait,
            None => until(after, text(DATE.as_str())?)?,
        },
        (None, None) => return None,
    };
    u64::try_from(wait.min(LONGEST).as_millis()).ok()
}

fn number(text: &str, per_second: f64) -> Option<Duration> {
    let number: f64 = text.parse().ok()?;
    let seconds = (number.is_finite() && number >= 0.0).then_some(number / per_second)?;
    Duration::try_from_secs_f64(seconds.min(LONGEST.as_secs_f64())).ok()
}

fn until(after: &str, date: &str) -> Option<Duration> {
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
    fn what_makes_no_sense_is_no_wait_and_a_long_one_is_bounded() {
        assert_eq!(wait(&[]), None);
        assert_eq!(wait(&[("retry-after", "-1")]), None);
        assert_eq!(wait(&[("retry-after", "NaN")]), None);
        assert_eq!(wait(&[("retry-after", "soon")]), None);
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT")]), None);
        assert_eq!(wait(&[("retry-after-ms", "x"), ("retry-after", "1")]), Some(1000));
        assert_eq!(wait(&[("retry-after", "1e300")]), Some(3_600_000));
    }
}
