//! Threads of their own for connections to servers. The HTTP library reads interim responses (1xx) for as long as they come, without
//! giving its thread back: two servers that send them without end held both threads of a runtime, with its limits and cancels.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

/// Reading and TLS take little time: what is read is parsed on the threads of the caller.
const THREADS: usize = 2;

/// Returns the runtime of all connections of this process. It is never shut down, since its threads may not come back.
///
/// # Errors
/// When the system gives no threads.
pub(crate) fn handle() -> Result<&'static Handle, String> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    let made = || {
        let made = Builder::new_multi_thread().worker_threads(THREADS).thread_name("subtend-http").enable_all().build();
        made.map_err(|error| error.to_string())
    };
    RUNTIME.get_or_init(made).as_ref().map(Runtime::handle).map_err(Clone::clone)
}
