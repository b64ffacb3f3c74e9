//! The text of a command, with placeholders for arguments, commands and files.
//!
//! Expansion runs no commands and reads no files. Where the template contains a command or a file, the prompt asks the
//! model to run or read it. The model does so with its tools, under the permissions of the session.

use std::collections::BTreeMap;

use super::MAX_EXPANDED;
use crate::product::Product;

/// The closing fence of a block of commands.
const FENCE_END: &str = "\n```";
/// The maximum number of digits in `$ARGUMENTS[N]`.
const MAX_INDEX_DIGITS: usize = 3;

/// A text with placeholders. It is parsed at each use, because the parsed parts would take sixteen times the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    text: String,
    /// The folder of a skill.
    folder: Option<String>,
    /// True if the last numbered placeholder takes all remaining arguments.
    greedy: bool,
    /// True for the syntax of Codex: `$$` is a literal `$`, and `$FILE` inserts the argument `FILE=value`.
    codex: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    All,
    /// One argument, by its index.
    One(usize),
    /// The value of a named argument. If the argument is missing, the placeholder remains in the text.
    Named(String),
    /// The output of a command.
    Shell(Vec<TemplatePart>),
    /// A file of the workspace.
    File(Vec<TemplatePart>),
}

#[derive(Clone, Copy)]
struct TemplateRules<'a> {
    /// The number in `$N` that represents the first argument: 0 or 1.
    first: usize,
    codex: bool,
    folder: Option<&'a str>,
}

struct GivenArguments<'a> {
    all: &'a str,
    words: &'a [String],
    named: BTreeMap<&'a str, &'a str>,
    /// The index of the placeholder that takes all remaining words.
    last: Option<usize>,
}

impl Template {
    pub(super) fn of(text: &str, product: Option<Product>) -> Self {
        let greedy = product == Some(Product::OpenCode);
        Self { text: text.trim().to_owned(), folder: None, greedy, codex: product == Some(Product::Codex) }
    }

    pub(super) fn of_skill(text: &str, folder: &str) -> Self {
        let text = format!("{}\n\nThe folder of this skill is `{folder}`.", text.trim());
        Self { text, folder: Some(folder.to_owned()), greedy: false, codex: false }
    }

    fn parts(&self) -> Vec<TemplatePart> {
        let folder = self.folder.as_deref();
        parts(&self.text, TemplateRules { first: usize::from(folder.is_none()), codex: self.codex, folder }, true)
    }

    /// Returns notes on the parts that work differently in the product of the file.
    pub(super) fn notes(&self) -> Vec<String> {
        let parts = self.parts();
        let has = |wanted: fn(&TemplatePart) -> bool| parts.iter().any(wanted);
        let shell = has(|part| matches!(part, TemplatePart::Shell(_)));
        let file = has(|part| matches!(part, TemplatePart::File(_)));
        let shell =
            shell.then(|| "does not run its commands: the prompt asks the model to run them with `shell`".to_owned());
        let file =
            file.then(|| "does not read its files: the prompt asks the model to read them with `read`".to_owned());
        shell.into_iter().chain(file).collect()
    }

    /// Returns the text with its arguments, or `None` if it would be longer than [`MAX_EXPANDED`].
    pub(super) fn fill(&self, arguments: &str) -> Option<String> {
        let (parts, words) = (self.parts(), words(arguments));
        let last = self.greedy.then(|| highest(&parts)).flatten();
        let named = words.iter().filter_map(|word| word.split_once('=')).collect();
        let given = GivenArguments { all: arguments, words: &words, named, last };
        let mut out = String::new();
        fill_in(&parts, &given, &mut out)?;
        if !arguments.is_empty() && !parts.iter().any(|part| takes_arguments(part, &given)) {
            push(&mut out, "\n\nArguments: ")?;
            push(&mut out, arguments)?;
        }
        Some(out)
    }
}

fn fill_in(parts: &[TemplatePart], given: &GivenArguments<'_>, out: &mut String) -> Option<()> {
    for part in parts {
        match part {
            TemplatePart::Text(text) => push(out, text)?,
            TemplatePart::All => push(out, given.all)?,
            TemplatePart::One(at) if given.last == Some(*at) => {
                push(out, &given.words.get(*at..).unwrap_or_default().join(" "))?;
            }
            TemplatePart::One(at) => push(out, given.words.get(*at).map_or("", String::as_str))?,
            TemplatePart::Named(name) => match given.named.get(&**name) {
                Some(value) => push(out, value)?,
                None => push(out, &format!("${name}"))?,
            },
            TemplatePart::Shell(of) => {
                push(out, "(first run this command with the tool `shell`, and use its output here: `")?;
                fill_in(of, given, out)?;
                push(out, "`)")?;
            }
            TemplatePart::File(of) => {
                push(out, "(first read this file with the tool `read`, and use its text here: `")?;
                fill_in(of, given, out)?;
                push(out, "`)")?;
            }
        }
    }
    Some(())
}

/// Appends `text`, or returns `None` if the result would be too long.
fn push(out: &mut String, text: &str) -> Option<()> {
    (out.len().saturating_add(text.len()) <= MAX_EXPANDED).then(|| out.push_str(text))
}

fn takes_arguments(part: &TemplatePart, given: &GivenArguments<'_>) -> bool {
    match part {
        TemplatePart::All | TemplatePart::One(_) => true,
        TemplatePart::Named(name) => given.named.contains_key(&**name),
        TemplatePart::Text(_) => false,
        TemplatePart::Shell(of) | TemplatePart::File(of) => of.iter().any(|part| takes_arguments(part, given)),
    }
}

fn highest(parts: &[TemplatePart]) -> Option<usize> {
    let of = |part: &TemplatePart| match part {
        TemplatePart::One(at) => Some(*at),
        TemplatePart::Text(_) | TemplatePart::All | TemplatePart::Named(_) => None,
        TemplatePart::Shell(of) | TemplatePart::File(of) => highest(of),
    };
    parts.iter().filter_map(of).max()
}

fn parts(text: &str, rules: TemplateRules<'_>, outer: bool) -> Vec<TemplatePart> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    // Searched once: a search after each opening fence takes quadratic time without a closing one.
    let mut fence = text.rfind(FENCE_END);
    while let Some(c) = rest.chars().next() {
        let starts = outer && plain.chars().next_back().map_or(parts.is_empty(), char::is_whitespace);
        let at = text.len().saturating_sub(rest.len());
        fence = fence.filter(|last| *last >= at);
        let found = placeholder(rest, rules)
            .or_else(|| starts.then(|| parse_injection(rest, fence.is_some(), rules)).flatten());
        if let Some((part, length)) = found {
            if !plain.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
            }
            parts.push(part);
            rest = rest.get(length..).unwrap_or_default();
            continue;
        }
        let length = if rest.starts_with("\\$") { 2 } else { c.len_utf8() };
        plain.push(if length == 2 && c == '\\' { '$' } else { c });
        rest = rest.get(length..).unwrap_or_default();
    }
    if !plain.is_empty() {
        parts.push(TemplatePart::Text(plain));
    }
    parts
}

/// Returns the argument placeholder at the start of `rest`, and its length.
fn placeholder(rest: &str, rules: TemplateRules<'_>) -> Option<(TemplatePart, usize)> {
    const DIR: &str = "${CLAUDE_SKILL_DIR}";
    const ALL: &str = "$ARGUMENTS";
    if rules.codex && rest.starts_with("$$") {
        return Some((TemplatePart::Text("$".to_owned()), 2));
    }
    if let (Some(folder), true) = (rules.folder, rest.starts_with(DIR)) {
        return Some((TemplatePart::Text(folder.to_owned()), DIR.len()));
    }
    if let Some(after) = rest.strip_prefix(ALL) {
        let index = after.strip_prefix('[').and_then(|after| {
            let end = after.bytes().take(MAX_INDEX_DIGITS.saturating_add(1)).position(|byte| byte == b']')?;
            after.get(..end)
        });
        let number = index.and_then(|index| index.parse::<usize>().ok());
        return Some(match (number, index) {
            (Some(at), Some(index)) => (TemplatePart::One(at), ALL.len().saturating_add(index.len()).saturating_add(2)),
            (_, _) => (TemplatePart::All, ALL.len()),
        });
    }
    let after = rest.strip_prefix('$')?;
    if rules.codex && after.starts_with(|c: char| c.is_ascii_uppercase()) {
        let end = after.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        let name = after.get(..end.unwrap_or(after.len()))?;
        return Some((TemplatePart::Named(name.to_owned()), name.len().saturating_add(1)));
    }
    let mut digits = after.chars();
    let number = digits.next().and_then(|c| c.to_digit(10)).and_then(|digit| usize::try_from(digit).ok())?;
    let is_last = digits.next().is_none_or(|c| !c.is_ascii_digit());
    let at = number.checked_sub(rules.first).filter(|_| is_last)?;
    Some((TemplatePart::One(at), 2))
}

/// Returns the command or file at the start of `rest`, and its length.
fn parse_injection(rest: &str, is_fence_closed: bool, rules: TemplateRules<'_>) -> Option<(TemplatePart, usize)> {
    if let Some(after) = rest.strip_prefix("!`") {
        let (command, _) = after.split_once('`').filter(|(command, _)| !command.trim().is_empty())?;
        return Some((TemplatePart::Shell(parts(command, rules, false)), command.len().saturating_add(3)));
    }
    if let Some(after) = rest.strip_prefix("```!\n").filter(|_| is_fence_closed) {
        let (commands, _) = after.split_once(FENCE_END)?;
        return Some((TemplatePart::Shell(parts(commands, rules, false)), commands.len().saturating_add(9)));
    }
    let path = rest.strip_prefix('@')?.split(char::is_whitespace).next()?;
    let path = path.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', '`', '"', '\'']);
    // A word such as `@alice` is not a file.
    let is_path = path.contains('/') || path.contains('.') || path.starts_with('$');
    is_path.then(|| (TemplatePart::File(parts(path, rules, false)), path.len().saturating_add(1)))
}

/// Splits arguments into words at whitespace outside of quotes.
fn words(arguments: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for c in arguments.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            (Some(_) | None, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
