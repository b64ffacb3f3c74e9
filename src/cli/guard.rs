//! `subtend guard`: supervises the processes of one tool call. subtend starts it.

use std::ffi::OsString;
use std::process::ExitCode;

use subtend_tools::guard::Guard;

/// Stands over the processes of one tool call; subtend starts it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// What subtend passes on
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

pub(crate) fn verb(args: Args) -> ExitCode {
    let code = subtend_tools::guard::main(args.rest);
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

pub(crate) fn guard() -> std::io::Result<Guard> {
    Ok(Guard { program: std::env::current_exe()?, args: vec!["guard".into(), "--".into()] })
}
