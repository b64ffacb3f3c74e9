//! The real model: SmolLM2-135M behind llama.cpp's server, one for the whole process.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value;

use super::http;
use super::server::{ListeningServer, installed, server_file};

static LLM: OnceLock<ListeningServer> = OnceLock::new();
static EXCLUSIVE: Mutex<()> = Mutex::new(());

/// The server. Only one test at a time uses it, with all slots and full speed.
pub(crate) struct Llm {
    origin: &'static str,
    _alone: MutexGuard<'static, ()>,
}

pub(crate) fn llm() -> Llm {
    let alone = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = LLM.get_or_init(|| {
        let mut command = Command::new(installed("llm/bin/python"));
        command.arg(server_file("llm.py")).arg(server_file("tools.jinja"));
        ListeningServer::start(command)
    });
    Llm { origin: server.origin(), _alone: alone }
}

impl Llm {
    pub(crate) fn origin(&self) -> &'static str {
        self.origin
    }

    pub(crate) fn busy(&self) -> usize {
        let slots = http::get(self.origin, "/slots");
        let slots = slots.as_array().expect("slots");
        slots.iter().filter(|slot| slot["is_processing"] == Value::Bool(true)).count()
    }
}
