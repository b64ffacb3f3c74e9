//! Detection of panics that the simulator did not cause.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    /// The panics of the simulation that runs on this thread, if any.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Starts recording on this thread.
pub(crate) fn start_recording() {
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let messages = PANICS.with_borrow_mut(|messages| match messages {
                Some(messages) => {
                    messages.push(panic.to_string());
                    true
                }
                None => false,
            });
            if !messages {
                before(panic);
            }
        }));
    });
    PANICS.set(Some(Vec::new()));
}

pub(crate) fn take_panics() -> Vec<String> {
    PANICS.with_borrow_mut(|messages| messages.as_mut().map(std::mem::take)).unwrap_or_default()
}

pub(crate) fn stop_recording() {
    PANICS.set(None);
}
