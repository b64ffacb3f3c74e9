use std::io::Write as _;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::fail::{Code, Fail};

/// Prints the completion script of a shell.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "subtend", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(Code::Done)
}
