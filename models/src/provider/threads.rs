//! Separate threads for connections to servers. The HTTP library reads interim responses (1xx) without yielding, so a server that sends them
//! endlessly blocks a thread. Two such servers would block a runtime with two threads, including time limits and cancels. So each server has its
//! own threads, and can block only itself.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};

/// Number of threads per server. They only read and decrypt: parsing runs on the threads of the caller.
const THREADS: usize = 2;
/// Maximum number of servers with separate threads. Further servers share threads.
const MAX_SERVERS: usize = 16;

/// Runtimes, by the origin of their server. They are never shut down, because a blocked thread would not end.
static RUNTIMES: LazyLock<Mutex<HashMap<String, Runtime>>> = LazyLock::new(Mutex::default);

/// Returns the runtime of all connections to the server at `origin`.
///
/// # Errors
/// If the system cannot create threads.
pub(super) fn of(origin: &str) -> Result<Handle, String> {
    let mut runtimes = RUNTIMES.lock().unwrap_or_else(PoisonError::into_inner);
    let own = runtimes.len() < MAX_SERVERS || runtimes.contains_key(origin);
    let origin = if own { origin } else { "" };
    if let Some(runtime) = runtimes.get(origin) {
        return Ok(runtime.handle().clone());
    }
    let made = Builder::new_multi_thread().worker_threads(THREADS).thread_name("subtend-http").enable_all().build();
    let runtime = made.map_err(|error| error.to_string())?;
    let handle = runtime.handle().clone();
    runtimes.insert(origin.to_owned(), runtime);
    Ok(handle)
}
