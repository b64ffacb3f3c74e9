//! Calls of providers over HTTP, with a small server that can misbehave.

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
