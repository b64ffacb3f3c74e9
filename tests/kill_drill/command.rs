//! The command `subtend drill`, one at a time.

use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// Seed of a drill, to repeat it.
const SEED: &str = "SUBTEND_DRILL_SEED";

/// Allows one drill at a time, because each keeps two cores busy.
static DRILL_LOCK: Mutex<()> = Mutex::new(());

pub(crate) fn call(args: &[&str]) -> Output {
    let _one = DRILL_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_subtend"));
    command.arg("drill").args(args);
    if let Ok(seed) = std::env::var(SEED) {
        command.args(["--seed", &seed]);
    }
    command.output().expect("the drill starts")
}

pub(crate) fn drill(args: &[&str]) -> (Option<i32>, Value) {
    let output = call(&[&["--json"], args].concat());
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|error| Value::String(format!("{error}: {output:?}")));
    (output.status.code(), report)
}
