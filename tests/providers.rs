//! Tests the command with llama.cpp's server and a small model, and with a mock of the providers' protocols.
//!
//! Runs only if it is named (`--test providers`), because it needs the servers that `.ci/tools servers` installs. The
//! tests start them on free loopback ports and stop them.

#[cfg(test)]
mod providers {
    #[expect(dead_code, unused_imports, reason = "only the tests of the command line need the rest")]
    #[path = "../cli/call.rs"]
    pub(crate) mod call;

    pub(crate) mod broken;
    pub(crate) mod chat_message;
    pub(crate) mod http;
    pub(crate) mod llm;
    pub(crate) mod mock;
    pub(crate) mod protocol;
    pub(crate) mod provider_run;
    pub(crate) mod relay;
    pub(crate) mod same;
    pub(crate) mod server;
    pub(crate) mod stored_session;

    mod calls;
    mod cancel;
    mod controls;
    mod conversation;
    mod dialects;
    mod fallback;
    mod faults;
    mod keys;
    mod limits;
    mod reasoning;
    mod silence;
    mod subagents;
    mod text;
}
