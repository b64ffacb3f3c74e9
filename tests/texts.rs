//! Snapshots of the texts that people and models read, so that the wording is reviewed in one place.
//!
//! After a change: `INSTA_UPDATE=always cargo test -p subtend --features testing --test whole texts::`, then review the diff of `texts/snapshots`.

mod page;

mod errors;
mod help;
#[cfg(feature = "testing")]
mod models;
