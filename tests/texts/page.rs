//! A snapshot of calls of the command, with their output and exit codes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;
use subtend::session::SessionId;

use crate::cli::call::{CommandOutput, RunningCommand, User};

/// Width of wrapped help.
const COLUMNS: &str = "100";

/// The texts before a checksum.
const CHECKSUMS: [&str; 3] = ["checksum is ", "line has ", "header says "];

/// The texts before a number that depends on the system, or on how records were grouped into commits.
const COUNTS: [&str; 7] = ["process ", "boot ", "lsn ", "at record ", "lsn N, but ", "after line ", "1 session with "];

pub(super) struct Page {
    pub(super) user: User,
    variables: Vec<(String, String)>,
    /// Texts that differ from call to call, and their replacements in a snapshot.
    names: BTreeMap<String, String>,
    text: String,
}

impl Page {
    pub(super) fn new() -> Self {
        let user = User::new();
        let home = user.workspace().parent().expect("a home").to_owned();
        let real = std::fs::canonicalize(&home).expect("a home");
        let names = [home, real].map(|path| (path.display().to_string(), "~".to_owned())).into();
        Self { user, variables: Vec::new(), names, text: String::new() }
    }

    /// Sets an environment variable for later calls; an empty value removes it.
    pub(super) fn variable(&mut self, name: &str, value: &str) {
        self.variables.retain(|(of, _)| of != name);
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    pub(super) fn name(&mut self, value: &str, name: &str) {
        self.names.insert(value.to_owned(), name.to_owned());
    }

    /// Names each unnamed session by its agent and a number, oldest first. Returns the id of the newest.
    pub(super) fn name_sessions(&mut self) -> String {
        let listed = self.user.json(&["sessions", "--all", "--json"]);
        let ids: Vec<_> = listed.as_array().expect("sessions").iter().rev().map(|row| text(&row["id"])).collect();
        for id in &ids {
            if !self.names.contains_key(id) {
                let number = self.names.values().filter(|name| name.starts_with("<id-")).count() + 1;
                let short = id.parse::<SessionId>().expect("an id").short().to_string();
                self.names.insert(short, format!("<short-{number}>"));
                self.names.insert(id.clone(), format!("<id-{number}>"));
            }
        }
        ids.last().cloned().unwrap_or_default()
    }

    pub(super) fn heading(&mut self, text: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        writeln!(self.text, "{gap}# {text}").expect("text");
    }

    /// Makes a call; writes its stderr and its exit code.
    pub(super) fn call(&mut self, line: &str) -> CommandOutput {
        self.call_with(line, "")
    }

    pub(super) fn call_with(&mut self, line: &str, stdin: &str) -> CommandOutput {
        let done = self.quiet(line, stdin);
        let (code, err) = (done.code, done.err.clone());
        self.note(line, &format!("exit {}", code.map_or("signal".to_owned(), |code| code.to_string())), &err);
        done
    }

    /// Makes a call; writes its stdout.
    pub(super) fn prints(&mut self, line: &str) -> CommandOutput {
        let done = self.quiet(line, "");
        assert_eq!(done.code, Some(0), "{line}: {done:?}");
        self.note(line, "prints", &done.out);
        done
    }

    /// Makes a call without writing anything.
    pub(super) fn quiet(&mut self, line: &str, stdin: &str) -> CommandOutput {
        let args = words(line);
        let mut command = self.user.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
        only_these_variables(&mut command);
        command.env("COLUMNS", COLUMNS).env("HOME", self.user.workspace().with_file_name("home"));
        for (name, value) in &self.variables {
            if value.is_empty() {
                command.env_remove(name)
            } else {
                command.env(name, value)
            };
        }
        let done = RunningCommand::start(command, stdin).done();
        assert_ne!(done.code, Some(101), "it panics: {line}: {done:?}");
        done
    }

    /// Writes a text below a line, with varying values replaced.
    pub(super) fn note(&mut self, line: &str, what: &str, text: &str) {
        let (line, text) = (self.named(line), self.named(text));
        // Trailing blanks would be lost in a snapshot.
        let text: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        write!(self.text, "\n$ subtend {line}\n[{what}]\n{text}").expect("text");
    }

    fn named(&self, text: &str) -> String {
        // Longer values first: a short name is a part of its id.
        let mut names: Vec<_> = self.names.iter().collect();
        names.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        let text = names.iter().fold(text.to_owned(), |text, (value, name)| text.replace(*value, name));
        redacted(&text)
    }

    pub(super) fn check(self, name: &str) {
        check(name, &self.text);
    }
}

pub(super) fn check(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Removes the test environment's variables from the command, so that its texts are the same everywhere.
pub(super) fn only_these_variables(command: &mut Command) {
    let kept = ["PATH", "TMPDIR", "LLVM_PROFILE_FILE"]
        .into_iter()
        .filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    let set = command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    let all: Vec<(OsString, OsString)> = kept.chain(set).collect();
    command.env_clear().envs(all);
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// Splits a command line at blanks; quotation marks `'` enclose words with blanks.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Writes `<id>`, `<short>` and `<crc>`, and `N` for process ids, durations and numbers of records.
pub(super) fn redacted(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let (mut out, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        let hex = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let digits = || word.bytes().any(|byte| byte.is_ascii_digit());
        let task = word.strip_prefix("task_").is_some_and(|id| id.len() == 32 && hex(id));
        let number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        let sum = word.strip_prefix("0x").unwrap_or(word);
        let checksum = sum.len() == 8 && hex(sum) && CHECKSUMS.iter().any(|before| out.ends_with(before));
        let whole = out.strip_suffix('.').map(|out| out.trim_end_matches(|c: char| c.is_ascii_digit()).len());
        let seconds =
            word.strip_suffix('s').is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()));
        if let Some(whole) = whole.filter(|_| seconds) {
            out.truncate(whole);
            out.push_str("Ns");
        } else if checksum {
            out.push_str("<crc>");
        } else if task {
            out.push_str("task_<id>");
        } else if word.len() == 36 && word.parse::<SessionId>().is_ok() {
            out.push_str("<id>");
        } else if word.len() == 6 && hex(word) && digits() && !number {
            out.push_str("<short>");
        } else if number && (COUNTS.iter().any(|before| out.ends_with(before)) || tail.starts_with(" of the export")) {
            out.push('N');
        } else {
            out.push_str(word);
        }
        let next = tail.find(is_part).unwrap_or(tail.len());
        out.push_str(&tail[..next]);
        rest = &tail[next..];
    }
    out
}

#[test]
fn page_replaces_values_that_differ_between_calls() {
    let text = "session 0192f0c1-2d3e-7abc-8def-0123456789ab (a3f9c1) is in use by process 4711; 480000 ms, 123456";
    assert_eq!(redacted(text), "session <id> (<short>) is in use by process N; 480000 ms, 123456");
    let text = "its checksum is 17a43bd6, but the line has 01234567; is 0x850ef903, 33554432, 0 tokens · 11.7s, 5s";
    let named = "its checksum is <crc>, but the line has <crc>; is 0x850ef903, 33554432, 0 tokens · Ns, 5s";
    assert_eq!(redacted(text), named);
    let text = "line 6 of the export, at lsn 2, but 4; imported 1 session with 8 records";
    assert_eq!(redacted(text), "line N of the export, at lsn N, but N; imported 1 session with N records");
    assert_eq!(words("run --model 'a b' ''"), ["run", "--model", "a b", ""]);
}
