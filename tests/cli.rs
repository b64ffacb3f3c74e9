//! The command as its users call it: what goes where, and what it tells by its exit code.

#[cfg(test)]
mod cli {
    pub(crate) mod call;
    pub(crate) mod repository;

    mod cancel;
    mod reading;
    mod runs;
    mod store;
    mod usage;
}
