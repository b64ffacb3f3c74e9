//! Waiting for something to end, within what a client asks for.

use std::time::Duration;

use serde::Deserialize;
use utoipa::IntoParams;

use crate::host::Host;

/// The longest wait if a client gives none.
const DEFAULT: Duration = Duration::from_secs(300);
/// The longest wait of one request; clients repeat the request to wait longer.
const MOST: Duration = Duration::from_secs(600);

/// Whether and how long a request waits.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitQuery {
    /// Whether to wait for the end; otherwise the present state is returned.
    #[serde(default)]
    wait: bool,
    /// Milliseconds to wait at most: 300,000 if not given, never more than 600,000.
    timeout: Option<u64>,
}

impl WaitQuery {
    /// Waits for `end` as long as the client asks, but not beyond the end of the host; then `yet` tells whether it has come. So an end that
    /// came in the same moment is not missed: a host in the foreground ends with the run that others wait for.
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

    /// Waits for `end` as long as asked: `None` where it has not come by then, or the host ends.
    pub(super) async fn within<T>(self, host: &Host, end: impl Future<Output = T>) -> Option<T> {
        let most = match (self.wait, self.timeout) {
            (false, _) => Duration::ZERO,
            (true, None) => DEFAULT,
            (true, Some(ms)) => Duration::from_millis(ms).min(MOST),
        };
        tokio::select! {
            biased;
            ended = tokio::time::timeout(most, end) => ended.ok(),
            () = host.ends().cancelled() => None,
        }
    }
}
