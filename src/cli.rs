//! The command line: one file for each command.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use fail::{Code, Fail};
use paint::{BAD, Styled};

mod agents;
mod answers;
mod approvals;
mod attach;
mod branch;
mod branched;
mod cancel;
mod cause;
mod chat;
mod checkpoints;
mod client;
mod clock;
mod close;
mod compact;
mod completions;
mod condense;
mod config;
mod control;
mod damaged_sessions;
mod data;
mod delete;
mod doctor;
mod drill;
mod examples;
mod export;
mod fail;
mod find;
mod guard;
mod guidance;
mod hosted;
mod import;
mod interrupt;
mod json;
mod logins;
mod mcp;
mod metadata;
mod names;
mod notices;
mod owners;
mod paint;
mod partial_file;
mod progress;
mod queue;
mod recover;
#[cfg(test)]
mod reference;
mod regenerate;
mod remote;
mod restore;
mod resume;
mod rollback;
mod run;
mod send;
mod serve;
mod servers;
mod sessions;
mod settings;
mod show;
mod store_reader;
mod summary;
mod switch;
mod tasks;
mod token;
mod tools;
mod tree;
mod trust;
mod usage;
mod verify;
mod web;
mod work;
mod worker;
mod workspace;
mod worktree;
mod worktrees;
mod written_file;

const AFTER_HELP: &str = "\
Exit codes: 0 completed · 1 failed · 2 usage · 3 store refused (in use, newer, damaged) · 4 out of turns or budget · \
130 cancelled

Example:
  subtend run \"How is this project put together, and where does it handle errors?\"";

/// Supervised, durable sessions and subagents for LLM agents.
#[derive(Debug, Parser)]
#[command(name = "subtend", version, after_help = AFTER_HELP, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Run(run::Args),
    Chat(chat::Args),
    Attach(attach::Args),
    Send(send::Args),
    #[command(hide = true)]
    Steer(send::Args),
    Serve(serve::Args),
    Continue(resume::Args),
    Branch(branch::Args),
    Regenerate(regenerate::Args),
    Switch(switch::Args),
    Rollback(rollback::Args),
    Condense(condense::Args),
    Interrupt(interrupt::Args),
    Cancel(cancel::Args),
    Close(close::Args),
    Summary(summary::Args),
    Metadata(metadata::Args),
    Delete(delete::Args),
    Compact(compact::Args),
    Queue(queue::Args),
    Tasks(tasks::Args),
    Usage(usage::Args),
    Approvals(approvals::Args),
    Sessions(sessions::Args),
    Tree(tree::Args),
    Show(show::Args),
    Agents(agents::Args),
    Tools(tools::Args),
    Mcp(mcp::Args),
    #[command(hide = true)]
    Prompt(agents::prompt::Args),
    Config(config::Args),
    Trust(trust::Args),
    Worktree(worktree::Args),
    Token(token::Args),
    Worker(worker::Args),
    Verify(verify::Args),
    Drill(drill::Args),
    Recover(recover::Args),
    Doctor(doctor::Args),
    Export(export::Args),
    Import(import::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Guard(guard::Args),
    #[command(hide = true)]
    DrillChild(drill::ChildArgs),
}

/// Parses the command line, runs the command, and returns the exit code.
pub(crate) fn main() -> ExitCode {
    let mut command = examples::add(Cli::command());
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = parsed.and_then(|matches| check_named_once(&matches, std::env::args_os()).map(|()| matches));
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| error.format(&mut command));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout with code 0, usage errors to stderr with code 2.
            let code = if error.use_stderr() { Code::Usage } else { Code::Done };
            drop(error.print());
            return code.into();
        }
    };
    if let Err(error) = subtend_tools::commands::hide_this_process() {
        let warning = Styled(paint::CAUTION, "warning:");
        drop(writeln!(
            anstream::stderr(),
            "{warning} other processes of this user can read the keys of this one: {error}"
        ));
    }
    let done = match cli.command {
        CliCommand::Run(args) => run::run(&args),
        CliCommand::Chat(args) => chat::run(&args),
        CliCommand::Attach(args) => attach::run(&args),
        CliCommand::Send(args) => send::run(&args),
        CliCommand::Steer(mut args) => {
            args.steer = true;
            send::run(&args)
        }
        CliCommand::Serve(args) => serve::run(&args),
        CliCommand::Continue(args) => resume::run(&args),
        CliCommand::Branch(args) => branch::run(&args),
        CliCommand::Regenerate(args) => regenerate::run(&args),
        CliCommand::Switch(args) => switch::run(&args),
        CliCommand::Rollback(args) => rollback::run(&args),
        CliCommand::Condense(args) => condense::run(&args),
        CliCommand::Interrupt(args) => interrupt::run(&args),
        CliCommand::Cancel(args) => cancel::run(&args),
        CliCommand::Close(args) => close::run(&args),
        CliCommand::Summary(args) => summary::run(&args),
        CliCommand::Metadata(args) => metadata::run(&args),
        CliCommand::Delete(args) => delete::run(&args),
        CliCommand::Compact(args) => compact::run(&args),
        CliCommand::Queue(args) => queue::run(&args),
        CliCommand::Tasks(args) => tasks::run(&args),
        CliCommand::Usage(args) => usage::run(&args),
        CliCommand::Approvals(args) => approvals::run(&args),
        CliCommand::Sessions(args) => sessions::run(&args),
        CliCommand::Tree(args) => tree::run(&args),
        CliCommand::Show(args) => show::run(&args),
        CliCommand::Agents(args) => agents::run(&args),
        CliCommand::Tools(args) => tools::run(&args),
        CliCommand::Mcp(args) => mcp::run(&args),
        CliCommand::Prompt(args) => agents::prompt::run_deprecated(&args),
        CliCommand::Config(args) => config::run(&args),
        CliCommand::Trust(args) => trust::run(&args),
        CliCommand::Worktree(args) => worktree::run(&args),
        CliCommand::Token(args) => token::run(&args),
        CliCommand::Worker(args) => worker::run(&args),
        CliCommand::Verify(args) => verify::run(&args),
        CliCommand::Drill(args) => drill::run(&args),
        CliCommand::Recover(args) => recover::run(&args),
        CliCommand::Doctor(args) => doctor::run(&args),
        CliCommand::Export(args) => export::run(&args),
        CliCommand::Import(args) => import::run(&args),
        CliCommand::Completions(args) => completions::run(&args),
        CliCommand::Guard(args) => return guard::run(args),
        CliCommand::DrillChild(args) => drill::child(&args),
    };
    done.unwrap_or_else(|fail| print_error(&fail)).into()
}

/// Refuses a store that is named before and after a subcommand: the parser would silently apply the last one.
fn check_named_once(matches: &ArgMatches, words: impl Iterator<Item = OsString>) -> Result<(), clap::Error> {
    if matches.subcommand().is_none_or(|(_, of_verb)| of_verb.subcommand_name().is_none()) {
        return Ok(());
    }
    let words: Vec<OsString> = words.take_while(|word| word != "--").collect();
    for option in ["--data", "--store"] {
        let is_named = |word: &&OsString| {
            let rest = word.to_str().and_then(|word| word.strip_prefix(option));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        if words.iter().filter(is_named).count() > 1 {
            let why = format!("the argument '{option}' cannot be used multiple times: name the store once");
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, why));
        }
    }
    Ok(())
}

fn print_error(fail: &Fail) -> Code {
    if !matches!(fail, Fail::Closed) {
        if notices::has_log() {
            tracing::error!("{}", paint::harmless(&fail.to_string()));
            return fail.code();
        }
        // A failed write is ignored: the exit code still reports the error.
        drop(writeln!(anstream::stderr(), "{} {}", Styled(BAD, "error:"), paint::harmless(&fail.to_string())));
    }
    fail.code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The control: the store is named once, on either side.
    #[test]
    fn store_named_on_both_sides_of_a_subcommand_is_refused() {
        let check = |words: &str| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            let matches = Cli::command().try_get_matches_from(&words).unwrap_or_else(|error| panic!("{error}"));
            check_named_once(&matches, words.into_iter()).map_err(|error| error.to_string())
        };
        for (words, option) in [
            ("subtend queue --data a x list --data b", "--data"),
            ("subtend queue --data=a x clear --data=a", "--data"),
            ("subtend token --store redb:a list --store=redb:b", "--store"),
        ] {
            let why = format!("error: the argument '{option}' cannot be used multiple times: name the store once");
            assert_eq!(check(words).map_err(|error| error.trim().to_owned()), Err(why), "{words}");
        }
        for words in ["subtend queue --data a x list", "subtend queue x list --data b", "subtend queue --data a x"] {
            assert_eq!(check(words), Ok(()), "{words}");
        }
    }

    #[test]
    fn store_options_may_follow_a_subcommand() {
        for (verb, rest) in [
            (&["queue", "a3f9c1"][..], &["list"][..]),
            (&["queue", "a3f9c1"], &["remove", "x"]),
            (&["queue", "a3f9c1"], &["clear"]),
            (&["token"], &["create", "phone"]),
            (&["token"], &["list"]),
            (&["token"], &["login"]),
            (&["token"], &["revoke", "phone"]),
            (&["worktree"], &["list"]),
            (&["worktree"], &["diff", "a3f9c1"]),
            (&["worktree"], &["merge", "a3f9c1"]),
            (&["worktree"], &["discard", "a3f9c1"]),
            (&["worktree"], &["keep", "a3f9c1"]),
        ] {
            let stores = |words: [&[&str]; 4]| {
                let matches =
                    Cli::command().try_get_matches_from(words.concat()).unwrap_or_else(|error| panic!("{error}"));
                let (_, of_verb) = matches.subcommand().expect("a command");
                (of_verb.get_one::<String>("store").cloned(), of_verb.get_flag("accept_loss"))
            };
            let (options, expected) = (&["--store", "redb:x", "--accept-loss"][..], (Some("redb:x".to_owned()), true));
            assert_eq!(stores([&["subtend"], verb, options, rest]), expected, "{verb:?} {rest:?}");
            assert_eq!(stores([&["subtend"], verb, rest, options]), expected, "{verb:?} {rest:?}");
            assert_eq!(stores([&["subtend"], verb, rest, &[]]), (None, false), "{verb:?} {rest:?}");
        }
    }
}
