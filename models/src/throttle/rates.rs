//! Rates of a quota.

/// Bounds of calls under one quota; `None` is unbounded.
///
/// A minute is a steady flow, not a window. The bucket of requests fills with `requests_per_minute` and holds a tenth of that, at least
/// one: the burst after a pause. The bucket of tokens fills with `tokens_per_minute` and holds a minute's worth: a call starts when its
/// estimate is available or the bucket is full. Its actual cost corrects the bucket, down to a debt that later calls wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    pub concurrent: Option<u32>,
    /// Calls that start in a minute.
    pub requests_per_minute: Option<u32>,
    /// Input and output tokens of the calls of a minute.
    pub tokens_per_minute: Option<u64>,
}

impl Default for Rates {
    /// 16 concurrent calls.
    fn default() -> Self {
        Self { concurrent: Some(16), ..Self::unbounded() }
    }
}

/// Error: rates under which no call could start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is 0, so that no call could ever start; give 1 or more, or leave `{field}` out for no bound")]
pub struct BadRates {
    pub field: &'static str,
}

impl Rates {
    /// Returns rates without bounds.
    pub const fn unbounded() -> Self {
        Self { concurrent: None, requests_per_minute: None, tokens_per_minute: None }
    }

    /// Checks that calls can start under these rates; the error names the first field that is 0.
    /// [`Throttles::new`](super::Throttles::new) uses 1 for 0 rather than block forever.
    pub fn check(&self) -> Result<(), BadRates> {
        let bad = |field| Err(BadRates { field });
        match self {
            Self { concurrent: Some(0), .. } => bad("concurrent"),
            Self { requests_per_minute: Some(0), .. } => bad("requests_per_minute"),
            Self { tokens_per_minute: Some(0), .. } => bad("tokens_per_minute"),
            Self { .. } => Ok(()),
        }
    }

    pub(super) fn divided(self, by: u32) -> Self {
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

    /// Requests that may start at once after a pause.
    pub(super) fn burst(requests_per_minute: u32) -> u32 {
        (requests_per_minute / 10).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_is_refused_by_name() {
        let check = |rates: Rates| rates.check().map_err(|bad| bad.to_string());
        assert_eq!(check(Rates::default()), Ok(()));
        assert_eq!(check(Rates::unbounded()), Ok(()));
        assert_eq!(
            check(Rates { concurrent: Some(0), ..Rates::default() }),
            Err("`concurrent` is 0, so that no call could ever start; give 1 or more, or leave `concurrent` out for no bound"
                .to_owned())
        );
        let requests = Rates { requests_per_minute: Some(0), ..Rates::default() };
        assert_eq!(requests.check(), Err(BadRates { field: "requests_per_minute" }));
        let tokens = Rates { tokens_per_minute: Some(0), ..Rates::default() };
        assert_eq!(tokens.check(), Err(BadRates { field: "tokens_per_minute" }));
    }
}
