/// Limits of calls under one quota; `None` means no limit.
///
/// A rate per minute is a steady rate (a token bucket), not a window. The bucket of requests fills at `requests_per_minute`. Its capacity, the burst
/// after a pause, is a tenth of that rate, but at least one. The bucket of tokens fills at `tokens_per_minute`, and its capacity is the tokens of one
/// minute. A call starts when its estimate is available or the bucket is full. Afterwards, the actual cost replaces the estimate. The level may
/// become negative, and then later calls wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    pub concurrent: Option<u32>,
    pub requests_per_minute: Option<u32>,
    /// Maximum number of input and output tokens of the calls of a minute.
    pub tokens_per_minute: Option<u64>,
}

impl Default for Rates {
    /// Returns a limit of 16 concurrent calls.
    fn default() -> Self {
        Self { concurrent: Some(16), ..Self::unbounded() }
    }
}

/// The error of rates under which no call could start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is 0, so no call could ever start. Give 1 or more, or omit `{field}` for no limit")]
pub struct BadRates {
    pub field: &'static str,
}

impl Rates {
    pub const fn unbounded() -> Self {
        Self { concurrent: None, requests_per_minute: None, tokens_per_minute: None }
    }

    /// Checks that calls can start under these rates. The error contains the first field that is 0.
    /// [`Throttles::new`](super::Throttles::new) uses 1 instead of 0, because 0 would block forever.
    pub fn check(&self) -> Result<(), BadRates> {
        let bad = |field| Err(BadRates { field });
        match self {
            Self { concurrent: Some(0), .. } => bad("concurrent"),
            Self { requests_per_minute: Some(0), .. } => bad("requests_per_minute"),
            Self { tokens_per_minute: Some(0), .. } => bad("tokens_per_minute"),
            Self { .. } => Ok(()),
        }
    }

    pub(super) fn divide(self, by: u32) -> Self {
        let part = |rate: u32| rate.checked_div(by).unwrap_or(rate);
        Self {
            concurrent: self.concurrent.map(part),
            requests_per_minute: self.requests_per_minute.map(part),
            tokens_per_minute: self.tokens_per_minute.map(|rate| rate.checked_div(u64::from(by)).unwrap_or(rate)),
        }
        .at_least_one()
    }

    pub(super) fn at_least_one(self) -> Self {
        Self {
            concurrent: self.concurrent.map(|bound| bound.max(1)),
            requests_per_minute: self.requests_per_minute.map(|rate| rate.max(1)),
            tokens_per_minute: self.tokens_per_minute.map(|rate| rate.max(1)),
        }
    }

    /// Returns the number of requests that may start at once after a pause.
    pub(super) fn burst(requests_per_minute: u32) -> u32 {
        (requests_per_minute / 10).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_rate_is_refused_by_name() {
        let check = |rates: Rates| rates.check().map_err(|bad| bad.to_string());
        assert_eq!(check(Rates::default()), Ok(()));
        assert_eq!(check(Rates::unbounded()), Ok(()));
        assert_eq!(
            check(Rates { concurrent: Some(0), ..Rates::default() }),
            Err("`concurrent` is 0, so no call could ever start. Give 1 or more, or omit `concurrent` for no limit"
                .to_owned())
        );
        let requests = Rates { requests_per_minute: Some(0), ..Rates::default() };
        assert_eq!(requests.check(), Err(BadRates { field: "requests_per_minute" }));
        let tokens = Rates { tokens_per_minute: Some(0), ..Rates::default() };
        assert_eq!(tokens.check(), Err(BadRates { field: "tokens_per_minute" }));
    }
}
