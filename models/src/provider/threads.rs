//! Threads of their own for connections to servers. The HTTP library reads interim responses (1xx) for as long as they come, without
//! giving its thread back: two servers that send them without end held both threads of a runtime, with its limits and cancels. So each
//! server has threads of its own: one that holds them holds no other.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};

/// Reading and TLS take little time: what is read is parsed on the threads of the caller.
const THREADS: usize = 2;
/// Servers with threads of their own. Others share some.
const SERVERS: usize = 16;

/// Runtimes by the origin of their server. They are never shut down, since their threads may not come back.
static RUNTIMES: LazyLock<Mutex<HashMap<String, Runtime>>> = LazyLock::new(Mutex::default);

/// Returns the runtime of all connections to the server at `origin`.
///
/// # Errors
/// When the system gives no threads.
pub(super) fn of(origin: &str) -> Result<Handle, String> {
    let mut runtimes = RUNTIMES.lock().unwrap_or_else(PoisonError::into_inner);
    let own = runtimes.len() < SERVERS || runtimes.contains_key(origin);
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
