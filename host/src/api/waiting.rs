//! Waits for the end of runs and answers, with a time limit of the client.

use std::time::Duration;

use serde::Deserialize;
use utoipa::IntoParams;

use crate::host::Host;

/// Default time limit of a wait.
const DEFAULT_WAIT: Duration = Duration::from_secs(300);
/// Maximum time limit of a wait; clients repeat the request to wait longer.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Options of a wait.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitQuery {
    /// True to wait for the end; otherwise the current state is returned.
    #[serde(default)]
    wait: bool,
    /// Maximum time to wait, in ms. Default: 300,000; maximum: 600,000.
    timeout: Option<u64>,
}

impl WaitQuery {
    /// Waits for `end` within the time limit and until the host ends, then checks `yet`. The last check catches an end at the
    /// same moment as the host's: a foreground host ends with its run, for which other clients may wait.
    pub(super) async fn until<T, E>(
        self,
        host: &Host,
        end: impl Future<Output = Result<T, E>>,
        yet: impl Future<Output = Result<Option<T>, E>>,
    ) -> Result<Option<T>, E> {
        if self.wait
            && let Some(ended) = self.within(host, end).await
        {
            return ended.map(Some);
        }
        yet.await
    }

    /// Waits for `end` within the time limit. Returns `None` after the time limit, or if the host ends.
    pub(super) async fn within<T>(self, host: &Host, end: impl Future<Output = T>) -> Option<T> {
        let most = match (self.wait, self.timeout) {
            (false, _) => Duration::ZERO,
            (true, None) => DEFAULT_WAIT,
            (true, Some(ms)) => Duration::from_millis(ms).min(MAX_WAIT),
        };
        tokio::select! {
            biased;
            ended = tokio::time::timeout(most, end) => ended.ok(),
            () = host.ends().cancelled() => None,
        }
    }
}
