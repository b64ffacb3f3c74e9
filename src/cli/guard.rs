use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use subtend_tools::guard::Guard;

/// Supervises the processes of one tool call. It is started by subtend, not by users.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Arguments of the guard
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> ExitCode {
    let code = subtend_tools::guard::main(args.rest);
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

pub(crate) fn guard() -> std::io::Result<Guard> {
    // The running file, which stays the same if a session replaces the program under its name.
    let running = Path::new("/proc/self/exe");
    let program = if running.exists() { running.to_owned() } else { std::env::current_exe()? };
    Ok(Guard { program, args: vec!["guard".into(), "--".into()] })
}
