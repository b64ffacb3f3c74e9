//! Detects panics that the simulator did not cause.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    /// The panics of this thread's simulation, while one runs.
    static HEARD: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HUNG: Once = Once::new();

/// Starts recording on this thread.
pub(crate) fn listen() {
    HUNG.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let heard = HEARD.with_borrow_mut(|heard| match heard {
                Some(heard) => {
                    heard.push(panic.to_string());
                    true
                }
                None => false,
            });
            if !heard {
                before(panic);
            }
        }));
    });
    HEARD.set(Some(Vec::new()));
}

pub(crate) fn heard() -> Vec<String> {
    HEARD.with_borrow_mut(|heard| heard.as_mut().map(std::mem::take)).unwrap_or_default()
}

pub(crate) fn stop() {
    HEARD.set(None);
}
