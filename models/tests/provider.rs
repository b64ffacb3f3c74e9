//! Providers over the wire, with a small server that misbehaves on request.

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
