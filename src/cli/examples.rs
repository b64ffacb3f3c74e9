//! One example of each command, printed below its help and in `docs/cli.md`.

use clap::Command;
use clap::builder::StyledStr;

/// Commands in the order of help, each with its example.
const EXAMPLES: [(&str, &str); 60] = [
    ("run", "subtend run --allow 'fs.write=docs/**' \"Describe each module of src in docs/modules.md\""),
    ("chat", "subtend chat --agent plan"),
    ("attach", "subtend attach a3f9c1"),
    ("send", "subtend send a3f9c1 \"And where are the tests?\""),
    ("serve", "subtend serve --listen 127.0.0.1:7475"),
    ("continue", "subtend continue a3f9c1 --turns 20"),
    ("branch", "subtend branch a3f9c1:12 --title \"Without the cache\""),
    ("regenerate", "subtend regenerate a3f9c1 --model openai/gpt-5"),
    ("switch", "subtend switch a3f9c1:12 previous"),
    ("rollback", "subtend rollback a3f9c1 --run 2"),
    ("condense", "subtend condense a3f9c1"),
    ("interrupt", "subtend interrupt a3f9c1"),
    ("cancel", "subtend cancel a3f9c1 --tree"),
    ("close", "subtend close a3f9c1"),
    ("summary", "subtend summary a3f9c1"),
    ("metadata", "subtend metadata a3f9c1 ticket=7 draft=null"),
    ("delete", "subtend delete a3f9c1 --yes"),
    ("compact", "subtend compact"),
    ("queue", "subtend queue a3f9c1"),
    ("queue list", "subtend queue a3f9c1 list --json"),
    ("queue remove", "subtend queue a3f9c1 remove 0192f0c1-2d3e-7abc-8def-0123456789ab"),
    ("queue clear", "subtend queue a3f9c1 clear"),
    ("tasks", "subtend tasks --status running --limit 20"),
    ("usage", "subtend usage a3f9c1"),
    ("approvals", "subtend approvals a3f9c1 --allow 3.0"),
    ("sessions", "subtend sessions --all --limit 20"),
    ("tree", "subtend tree a3f9c1"),
    ("show", "subtend show root/a3f9c1 --full"),
    ("agents", "subtend agents explore"),
    ("agents check", "subtend agents check .subtend/agents"),
    ("agents commands", "subtend agents commands review src"),
    ("agents prompt", "subtend agents prompt general"),
    ("agents reload", "subtend agents reload a3f9c1"),
    ("agents schema", "subtend agents schema spawn_task"),
    ("agents skills", "subtend agents skills --json"),
    ("tools list", "subtend tools list --json"),
    ("mcp login", "subtend mcp login tracker"),
    ("mcp logout", "subtend mcp logout tracker"),
    ("mcp status", "subtend mcp status --json"),
    ("config show", "subtend config show limits"),
    ("config set", "subtend config set --user llm.model anthropic/claude-sonnet-4-5"),
    ("config schema", "subtend config schema config > subtend.schema.json"),
    ("trust", "subtend trust --list"),
    ("worktree list", "subtend worktree list"),
    ("worktree diff", "subtend worktree diff a3f9c1"),
    ("worktree merge", "subtend worktree merge a3f9c1"),
    ("worktree discard", "subtend worktree discard a3f9c1"),
    ("worktree keep", "subtend worktree keep a3f9c1"),
    ("token create", "subtend token create phone --scope read"),
    ("token list", "subtend token list"),
    ("token login", "subtend token login"),
    ("token revoke", "subtend token revoke phone"),
    ("worker", "subtend worker --host http://127.0.0.1:7475 --token-file token --tool build=/usr/local/bin/build"),
    ("verify", "subtend verify --store redb:/backup/subtend"),
    ("drill", "subtend drill --kills 100 --store redb:/mnt/disk/drill"),
    ("recover", "subtend recover"),
    ("doctor", "subtend doctor"),
    ("export", "subtend export a3f9c1 --out tree.jsonl"),
    ("import", "subtend import tree.jsonl"),
    ("completions", "subtend completions bash > ~/.local/share/bash-completion/completions/subtend"),
];

/// Adds the examples to the help of their commands.
pub(super) fn add(cli: Command) -> Command {
    EXAMPLES.into_iter().fold(cli, |cli, (path, example)| add_example(cli, path, example))
}

fn add_example(command: Command, path: &str, example: &str) -> Command {
    let (name, rest) = path.split_once(' ').map_or((path, None), |(name, rest)| (name, Some(rest)));
    command.mut_subcommand(name, |command| match rest {
        Some(rest) => add_example(command, rest, example),
        None => {
            let before = command.get_after_help().map(|text| format!("{}\n\n", text.ansi()));
            let text = format!("{}Example:\n  {example}", before.unwrap_or_default());
            command.after_help(StyledStr::from(text))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::super::Cli;
    use super::*;

    /// Returns the arguments of a command line, up to a redirection.
    fn shell_words(line: &str) -> Vec<String> {
        let mut shell_words = vec![String::new()];
        let mut quote = None;
        for c in line.split(" > ").next().expect("a command").chars() {
            match (c, quote) {
                ('\'' | '"', None) => quote = Some(c),
                (c, Some(open)) if c == open => quote = None,
                (' ', None) => shell_words.push(String::new()),
                (c, _) => shell_words.last_mut().expect("a word").push(c),
            }
        }
        shell_words
    }

    /// Collects the visible commands that can be called without a subcommand.
    fn collect_leaves(command: &Command, path: &str, out: &mut BTreeSet<String>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let path = format!("{path} {}", sub.get_name()).trim_start().to_owned();
            if !sub.is_subcommand_required_set() {
                out.insert(path.clone());
            }
            collect_leaves(sub, &path, out);
        }
    }

    #[test]
    fn every_command_has_a_valid_example() {
        let mut commands = BTreeSet::new();
        collect_leaves(&Cli::command(), "", &mut commands);
        assert_eq!(EXAMPLES.map(|(path, _)| path.to_owned()).into_iter().collect::<BTreeSet<_>>(), commands);
        for (path, example) in EXAMPLES {
            let matches = Cli::command().try_get_matches_from(shell_words(example)).expect(example);
            let (mut at, mut named) = (&matches, Vec::new());
            while let Some((name, add_example)) = at.subcommand() {
                named.push(name);
                at = add_example;
            }
            assert_eq!(named.join(" "), path);
        }
    }

    /// Positive control: an unknown flag is refused.
    #[test]
    fn example_with_an_unknown_flag_is_refused() {
        assert!(Cli::command().try_get_matches_from(shell_words("subtend tree a3f9c1 --ful")).is_err());
        assert_eq!(shell_words("subtend run 'a b' \"c d\" > out"), ["subtend", "run", "a b", "c d"]);
    }
}
