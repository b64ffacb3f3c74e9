//! A thread for checks against a server's schemas: a running validation may take long and cannot be interrupted.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

/// Stack size of the thread: a schema has many levels.
const STACK: usize = 8 << 20;

/// Runs one check at a time, each on a new thread. Further checks wait, each up to its own time limit.
pub(super) struct Checker(Arc<Semaphore>);

impl Default for Checker {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Checker {
    /// Runs `work` outside the threads of the runtime. Cancels the token of `work` when this future is dropped or after `limit`.
    ///
    /// # Errors
    /// If `work` takes too long or panics, or the system cannot start a thread.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&CancellationToken) -> T + Send + 'static,
    ) -> Result<T, String> {
        let stop = CancellationToken::new();
        let _left = stop.clone().drop_guard();
        let computing = async {
            let permit = Arc::clone(&self.0).acquire_owned().await.map_err(|error| error.to_string())?;
            let (send, receive) = oneshot::channel();
            let job = move || {
                let _permit = permit;
                // An error means that the caller no longer waits.
                drop(send.send(work(&stop)));
            };
            let thread = std::thread::Builder::new().name("subtend-check".to_owned()).stack_size(STACK);
            thread.spawn(job).map_err(|error| error.to_string())?;
            receive.await.map_err(|_| "its thread ended".to_owned())
        };
        let late = || Err(format!("it takes more than {} s", limit.as_secs()));
        tokio::time::timeout(limit, computing).await.unwrap_or_else(|_| late())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_left(stop: &CancellationToken) {
        while !stop.is_cancelled() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// On a runtime with one thread, other work continues. The caller ends at its time limit or when it is cancelled.
    #[tokio::test]
    async fn endless_check_blocks_no_runtime_thread() {
        let checker = Checker::default();
        let late = checker.run(Duration::from_secs(1), until_left).await;
        assert_eq!(late, Err("it takes more than 1 s".to_owned()));
        tokio::select! {
            biased;
            _ = checker.run(Duration::from_secs(600), until_left) => panic!("the endless check ended"),
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
        // The control: a later check that ends in time returns its result.
        assert_eq!(checker.run(Duration::from_secs(600), |_| 7).await, Ok(7));
        let panics = checker.run(Duration::from_secs(600), |_| assert!(std::thread::panicking(), "a test")).await;
        assert_eq!(panics, Err("its thread ended".to_owned()));
    }

    #[tokio::test]
    async fn checks_of_a_server_have_one_thread() {
        let checker = Checker::default();
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let endless = checker.run(Duration::from_millis(20), move |_| receive.recv().is_ok());
        assert!(endless.await.is_err());
        assert!(checker.run(Duration::from_millis(20), |_| ()).await.is_err(), "the first one has not ended");
        drop(send);
        assert_eq!(checker.run(Duration::from_secs(600), |_| ()).await, Ok(()));
    }
}
