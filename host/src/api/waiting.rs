//! Waits for the end of runs and answers, with a time limit of the client.

use std::time::Duration;

use serde::Deserialize;
use utoipa::IntoParams;

use crate::host::Host;
use crate::problem::Problem;
use crate::reads;

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
    /// Waits for `end` within the time limit and until the host ends, before and after which it checks `yet`. The last check catches an end
    /// at the same moment as the host's: a foreground host ends with its run, for which other clients may wait. Both read in a turn.
    pub(super) async fn until<T: Send, E: Send, F>(
        self,
        host: &Host,
        end: impl Future<Output = Result<T, E>> + Send,
        yet: impl Fn() -> F,
    ) -> Result<Option<T>, Problem>
    where
        F: Future<Output = Result<Option<T>, E>> + Send,
        Problem: From<E>,
    {
        if let Some(ended) = host.reads().of_session(yet()).await?? {
            return Ok(Some(ended));
        }
        if !self.wait {
            return Ok(None);
        }
        if let Some(ended) = self.within(host, reads::to_end(end)).await {
            return Ok(Some(ended?));
        }
        Ok(host.reads().of_session(yet()).await??)
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
