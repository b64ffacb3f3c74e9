//! Properties of authority (P-1 to P-4) over chains of sessions up to depth 12, each with bugs that it is seen to notice.
//!
//! A property is a function of a *reading*: how a chain of rule sets comes to a verdict. The one of this crate must keep it in
//! every case; each seeded one must break it in some.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot continue fails")]

mod chains;
mod given;
mod lives;
