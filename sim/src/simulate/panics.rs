//! The alarm: hears of panics that nobody ordered. Those that were ordered do not ring it.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    /// What was heard in the simulation of this thread, while there is one.
    static HEARD: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

static HUNG: Once = Once::new();

/// Listens on this thread from here on.
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

/// What was heard since the last look.
pub(crate) fn heard() -> Vec<String> {
    HEARD.with_borrow_mut(|heard| heard.as_mut().map(std::mem::take)).unwrap_or_default()
}

/// Listens no more.
pub(crate) fn stop() {
    HEARD.set(None);
}
