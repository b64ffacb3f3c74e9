//! Processes of a test that kill themselves at a given moment.

pub(crate) use std::collections::BTreeMap;
pub(crate) use std::fs;
pub(crate) use std::path::Path;
pub(crate) use std::sync::Arc;
pub(crate) use std::time::Duration;

pub(crate) use serde_json::json;
pub(crate) use subtend_actors::builder::Builder;
pub(crate) use subtend_actors::event::{EventKind, Next};
pub(crate) use subtend_actors::faults::Faults;
pub(crate) use subtend_actors::{OpenOptions, Runtime};
pub(crate) use subtend_agents::catalog::Catalog;
pub(crate) use subtend_agents::manifest::{AgentMode, Manifest};
pub(crate) use subtend_journal::Journal;
pub(crate) use subtend_models::closure::fn_model;
pub(crate) use subtend_models::model::{Answer, ModelError, Request};
pub(crate) use subtend_session::authority::{RuleSet, Verdict};
pub(crate) use subtend_session::ids::{RunNo, SessionId};
pub(crate) use subtend_session::message::Message;
pub(crate) use subtend_session::outcome::{ModelFail, Outcome};
pub(crate) use subtend_session::place::OnRestart;
pub(crate) use subtend_session::record::{Record, ToolCall};

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use subtend_journal::{StoreSpec, open_store};

pub(crate) fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}

/// Runs the test `name` of this binary with an instruction in `variable`; returns whether it was killed.
pub(crate) fn is_killed(name: &str, variable: &str, instruction: &str) -> bool {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", name, "--nocapture"]).stdout(Stdio::null());
    command.env(variable, instruction).status().expect("it starts").signal() == Some(9)
}

pub(crate) fn store(dir: &Path) -> Journal {
    open_store(&StoreSpec::Redb(dir.join("store"))).expect("the store opens")
}

/// Adds a line to the file with the model calls of this process.
pub(crate) fn note(dir: &Path, line: &str) {
    let path = dir.join(format!("calls-{}", std::process::id()));
    let mut file = fs::File::options().create(true).append(true).open(path).expect("a file");
    file.write_all(format!("{line}\n").as_bytes()).expect("written");
}

/// Removes and returns the recorded model calls of this process.
pub(crate) fn take_notes(dir: &Path) -> Vec<String> {
    let path = dir.join(format!("calls-{}", std::process::id()));
    let notes = fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
    drop(fs::remove_file(path));
    notes
}
