//! Providers over the wire: a small server of the test's own says what a provider might say, and what it should not.

#[cfg(test)]
mod provider {
    pub(crate) mod answers;
    mod bounds;
    mod broken;
    mod errors;
    mod requests;
    mod secrets;
    pub(crate) mod server;
    mod transcripts;
}
