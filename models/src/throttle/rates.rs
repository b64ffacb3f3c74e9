//! What calls under one quota may do.

/// What calls under one quota may do; what is not set is not bounded.
///
/// A minute is not a window that starts over but a steady flow. Requests come from an account that fills with
/// `requests_per_minute` a minute and holds a tenth of that, at least one: so many may start at once after a rest, and in
/// any minute at most `requests_per_minute` and a tenth of it more. Tokens come from an account that fills with
/// `tokens_per_minute` a minute and holds one minute's worth: a call starts when its estimate is there, or when the account
/// is full, and what it really cost is corrected afterwards, down to a debt that later calls wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Calls that run at the same time.
    pub concurrent: Option<u32>,
    /// Calls that start in a minute.
    pub requests_per_minute: Option<u32>,
    /// Tokens, in and out, of the calls of a minute.
    pub tokens_per_minute: Option<u64>,
}

impl Default for Rates {
    /// 16 at a time, however many a minute.
    fn default() -> Self {
        Self { concurrent: Some(16), ..Self::unbounded() }
    }
}

/// Rates under which nothing could ever start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is 0, so that no call could ever start; give 1 or more, or leave `{field}` out for no bound")]
pub struct BadRates {
    /// The field that is wrong.
    pub field: &'static str,
}

impl Rates {
    /// No bounds at all.
    pub const fn unbounded() -> Self {
        Self { concurrent: None, requests_per_minute: None, tokens_per_minute: None }
    }

    /// Whether calls could start under these rates. Whoever reads them from a person checks them; [`Throttles::new`] takes
    /// a 0 for a 1 rather than let calls wait for ever.
    ///
    /// # Errors
    /// The first field that is 0.
    ///
    /// [`Throttles::new`]: super::Throttles::new
    pub fn check(&self) -> Result<(), BadRates> {
        let bad = |field| Err(BadRates { field });
        match self {
            Self { concurrent: Some(0), .. } => bad("concurrent"),
            Self { requests_per_minute: Some(0), .. } => bad("requests_per_minute"),
            Self { tokens_per_minute: Some(0), .. } => bad("tokens_per_minute"),
            Self { .. } => Ok(()),
        }
    }

    /// These rates with at least 1 in each.
    pub(super) fn at_least_one(self) -> Self {
        Self {
            concurrent: self.concurrent.map(|bound| bound.max(1)),
            requests_per_minute: self.requests_per_minute.map(|rate| rate.max(1)),
            tokens_per_minute: self.tokens_per_minute.map(|rate| rate.max(1)),
        }
    }

    /// Requests that may start at once after a rest.
    pub(super) fn burst(requests_per_minute: u32) -> u32 {
        (requests_per_minute / 10).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_is_refused_by_name() {
        let told = |rates: Rates| rates.check().map_err(|bad| bad.to_string());
        assert_eq!(told(Rates::default()), Ok(()));
        assert_eq!(told(Rates::unbounded()), Ok(()));
        assert_eq!(
            told(Rates { concurrent: Some(0), ..Rates::default() }),
            Err("`concurrent` is 0, so that no call could ever start; give 1 or more, or leave `concurrent` out for no bound"
                .to_owned())
        );
        let requests = Rates { requests_per_minute: Some(0), ..Rates::default() };
        assert_eq!(requests.check(), Err(BadRates { field: "requests_per_minute" }));
        let tokens = Rates { tokens_per_minute: Some(0), ..Rates::default() };
        assert_eq!(tokens.check(), Err(BadRates { field: "tokens_per_minute" }));
    }
}
