//! The command as its users call it: what goes where, and what it tells by its exit code.

#[cfg(test)]
mod cli {
    pub(crate) mod call;
    pub(crate) mod repository;

    mod agents;
    mod cancel;
    mod config;
    mod drill;
    mod elsewhere;
    #[cfg(target_os = "linux")]
    mod left;
    mod life;
    mod moving;
    mod prompt;
    mod reading;
    mod rollback;
    mod runs;
    mod services;
    mod store;
    #[cfg(target_os = "linux")]
    mod terminal;
    mod usage;
    mod waiting;
}
