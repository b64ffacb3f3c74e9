//! One session: takes queued commands, decides, commits, and performs. The actor is the shell around the driver.

pub(crate) mod activation;
pub(crate) mod admit;
pub(crate) mod announce;
pub(crate) mod calling;
pub(crate) mod cells;
pub(crate) mod clock;
pub(crate) mod commit;
mod compacting;
pub(crate) mod dormant;
pub(crate) mod driver;
mod folding;
mod messaging;
pub(crate) mod names;
pub(crate) mod perform;
pub(crate) mod prepare;
pub(crate) mod reading;
pub(crate) mod recall;
pub(crate) mod renewal;
pub(crate) mod resident;
pub(crate) mod session_actor;
pub(crate) mod settling;
pub(crate) mod slots;
mod submitting;
pub(crate) mod turn;
pub(crate) mod work;
pub(crate) mod working;
pub(crate) mod written;
