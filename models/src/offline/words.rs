//! Finds the words of a question to search for, and the names of places.

const MAX_WORDS: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QuestionWord {
    pub(super) label: String,
    pub(super) pattern: String,
}

impl QuestionWord {
    /// Returns the plain words of the pattern, in lower case.
    pub(super) fn names(&self) -> Vec<String> {
        let plain = self.pattern.replace("(?i)", "").replace("\\b", "").replace('\\', "").to_lowercase();
        plain.split('|').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Returns whether `path` contains one of the names: at the start of a word with `at_starts`, otherwise anywhere.
    pub(super) fn is_in(&self, path: &str, at_starts: bool) -> bool {
        let names = self.names();
        let telling = |name: &&String| name.chars().all(char::is_alphanumeric) && (name.len() > 3 || names.len() == 1);
        let path = path.to_lowercase();
        names.iter().filter(telling).any(|name| {
            let begins = |at: usize| !path.get(..at).is_some_and(|before| before.ends_with(char::is_alphanumeric));
            path.match_indices(&**name).any(|(at, _)| !at_starts || begins(at))
        })
    }
}

/// Common words of questions, which are not searched for.
const STOP: &str = "\
    a about above again all also an and any application architecture are area around as ask at be been being below \
    between both built but by can code codebase come comes could crate crates dealt deal defined describe design did directory do \
    does doing done each every everything explain file files find first folder for found from get gets give given go \
    goes had handle handled handles handling happen happens has have here how i if implement implementation \
    implemented implements in inside into is it its know laid layout let like list live lives locate located look \
    looks made main make makes many map me might more most much must my name need needs no not now of on one only or \
    organised organized other our out over overview part parts people place places please project purpose put \
    question read repo repository responsible said say search see set shall should show so some source sources \
    structure structured such summarise summarize summary take tell than that the their them then there these they \
    thing things this those through to together too under up us use used uses using very want was way ways we well \
    were what when where which who whole why will with within without work working works workspace would write \
    written you your";

fn is_stop(word: &str) -> bool {
    STOP.split_whitespace().any(|stop| stop == word)
}

/// Concepts that have several names in code: the starts of words in a question, and the pattern to search for.
const IDEAS: &[(&[&str], &str, &str)] = &[
    (&["error", "failure", "fail", "exception"], "error", r"(?i)error|\berr\b|fail"),
    (&["config", "setting", "option"], "config", r"(?i)config|setting|option"),
    (&["authenti", "authori", "login", "permission"], "authority", r"(?i)\bauth|login|permission"),
    (&["log", "logs", "logging", "logger", "tracing"], "logging", r"(?i)\blog(s|ger|ging)?\b|tracing"),
    (&["concurren", "parallel", "thread", "async"], "concurrency", r"(?i)async|await|thread|mutex|spawn"),
    (&["database", "storage", "persist"], "storage", r"(?i)database|storage|persist|\bsql"),
    (&["test", "tests", "testing", "tested"], "test", r"(?i)test"),
];

fn is_idea(word: &str, starts: &[&str]) -> bool {
    starts.iter().any(|start| {
        if start.len() < 5 { word == *start || word == format!("{start}s") } else { word.starts_with(start) }
    })
}

/// Returns the first few distinct words of `question`, exact names first.
pub(super) fn words(question: &str) -> Vec<QuestionWord> {
    let (quoted, plain) = quoted(question);
    let tokens: Vec<&str> = tokens(&plain).collect();
    let exact = quoted.iter().map(|text| literal(text));
    let names = tokens.iter().filter(|token| is_identifier(token)).map(|token| identifier(token));
    let common =
        tokens.iter().filter(|token| !is_identifier(token) && !is_path(token)).filter_map(|token| common(token));
    let mut out: Vec<QuestionWord> = Vec::new();
    for word in exact.chain(names).chain(common) {
        if !out.iter().any(|other| other.pattern == word.pattern || other.label == word.label) {
            out.push(word);
        }
    }
    out.truncate(MAX_WORDS);
    out
}

/// Returns all words of `question` that may name a place: paths and plain words, in lower case.
pub(super) fn place_words(question: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for token in question.split(|c: char| !(c.is_alphanumeric() || "_-./".contains(c))) {
        let token = token.trim_matches(['.', '/', '-', '_']).to_lowercase();
        if token.len() > 1 && !is_stop(&token) && !out.contains(&token) {
            out.push(token);
        }
    }
    out
}

/// Splits quoted text from the rest.
fn quoted(question: &str) -> (Vec<String>, String) {
    let last = question.matches(['`', '"']).count();
    let closed = |at: &usize, text: &str| at % 2 == 1 && *at < last && (2..=60).contains(&text.len());
    let parts = question.split(['`', '"']).map(str::trim).enumerate();
    let (inside, outside): (Vec<_>, Vec<_>) = parts.partition(|(at, text)| closed(at, text) && !text.contains('\n'));
    let inside = inside.into_iter().map(|(_, text)| text.to_owned()).filter(|text| !is_path(text));
    (inside.collect(), outside.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" "))
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || "_:./-".contains(c)))
        .map(|token| token.trim_matches(['.', ':', '/', '-']))
        .filter(|token| !token.is_empty() && token.len() <= 60)
}

fn is_path(token: &str) -> bool {
    let has_ending = token.rsplit_once('.').is_some_and(|(stem, ending)| {
        !stem.is_empty() && (1..=5).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    token.contains('/') || has_ending
}

fn is_identifier(token: &str) -> bool {
    let inner_capital = token.chars().zip(token.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase());
    !is_path(token) && token.len() > 2 && (token.contains("::") || token.contains('_') || inner_capital)
}

fn literal(text: &str) -> QuestionWord {
    QuestionWord { label: text.to_owned(), pattern: escape(text) }
}

/// Returns a pattern for all spellings of a name: `RunEnded`, `run_ended`, `run-ended`.
fn identifier(token: &str) -> QuestionWord {
    let last = token.rsplit("::").next().filter(|last| last.len() > 2).unwrap_or(token);
    let parts = split_name(last);
    if parts.len() < 2 {
        return QuestionWord { label: token.to_owned(), pattern: escape(last) };
    }
    let camel: String = parts
        .iter()
        .map(|part| {
            let mut chars = part.chars();
            chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
        })
        .collect();
    let mut spellings = vec![escape(last)];
    for other in [camel, parts.join("_"), parts.join("-")].map(|text| escape(&text)) {
        if !spellings.contains(&other) {
            spellings.push(other);
        }
    }
    QuestionWord { label: token.to_owned(), pattern: spellings.join("|") }
}

fn split_name(name: &str) -> Vec<String> {
    let mut spaced = String::new();
    let mut before_lower = false;
    for c in name.chars() {
        if c.is_uppercase() && before_lower {
            spaced.push(' ');
        }
        before_lower = c.is_lowercase() || c.is_numeric();
        spaced.extend(c.to_lowercase().map(|c| if matches!(c, '_' | '-') { ' ' } else { c }));
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// Returns a plain word by its stem, unless it is a stop word.
fn common(token: &str) -> Option<QuestionWord> {
    let word = token.to_lowercase();
    if word.chars().count() < 3 || is_stop(&word) || word.chars().all(|c| !c.is_alphabetic()) {
        return None;
    }
    if let Some((_, label, pattern)) = IDEAS.iter().find(|(starts, _, _)| is_idea(&word, starts)) {
        return Some(QuestionWord { label: (*label).to_owned(), pattern: (*pattern).to_owned() });
    }
    let stem = stem(&word);
    let pattern = format!("(?i){}", escape(stem));
    Some(QuestionWord { label: word, pattern })
}

/// Removes the ending of a word, if enough of the word remains.
fn stem(word: &str) -> &str {
    const ENDINGS: &[&str] = &[
        "ations", "ation", "ments", "ment", "ings", "ing", "ions", "ion", "ies", "ers", "ors", "ed", "es", "er", "or",
        "y", "s", "e",
    ];
    ENDINGS.iter().find_map(|ending| word.strip_suffix(ending).filter(|stem| stem.chars().count() >= 4)).unwrap_or(word)
}

fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        if !c.is_alphanumeric()
            && c.is_ascii()
            && !matches!(c, '_' | ' ' | ':' | '/' | '"' | '\'' | ',' | ';' | '=' | '<' | '>' | '@' | '%' | '!' | '`')
        {
            out.push('\\');
        }
        out.push(c);
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn display_pairs(question: &str) -> Vec<(String, String)> {
        words(question).into_iter().map(|word| (word.label, word.pattern)).collect()
    }

    fn word(label: &str, pattern: &str) -> (String, String) {
        (label.to_owned(), pattern.to_owned())
    }

    #[test]
    fn plain_questions_give_stems_and_ideas() {
        assert_eq!(
            display_pairs("How is this project put together, and where are errors handled?"),
            [word("error", r"(?i)error|\berr\b|fail")]
        );
        assert_eq!(
            display_pairs("Where does the journal do its recovery and supervision?"),
            [word("journal", "(?i)journal"), word("recovery", "(?i)recover"), word("supervision", "(?i)supervis")]
        );
        assert_eq!(display_pairs("What is this?"), []);
    }

    #[test]
    fn names_come_first_in_every_spelling() {
        assert_eq!(
            display_pairs("who writes RunEnded and outbox rows, and `fn main()`"),
            [
                word("fn main()", r"fn main\(\)"),
                word("RunEnded", r"RunEnded|run_ended|run\-ended"),
                word("writes", "(?i)writ"),
                word("outbox", "(?i)outbox"),
            ]
        );
        assert_eq!(
            display_pairs("session::ids::SessionId"),
            [word("session::ids::SessionId", r"SessionId|session_id|session\-id")]
        );
        assert_eq!(display_pairs("max_len"), [word("max_len", r"max_len|MaxLen|max\-len")]);
    }

    #[test]
    fn paths_name_places_and_are_not_searched_for() {
        assert_eq!(display_pairs("what is in session/src and Cargo.toml?"), []);
        assert_eq!(place_words("What is in session/src and Cargo.toml?"), ["session/src", "cargo.toml"]);
    }

    #[test]
    fn odd_questions_are_harmless() {
        for question in ["", "`", "\"\"", "?? !!", "`unclosed name", "日本語 の 質問", "::", "a.b.c", "___"] {
            let _ = (words(question), place_words(question));
        }
        assert_eq!(display_pairs("日本語 エラー"), [word("日本語", "(?i)日本語"), word("エラー", "(?i)エラー")]);
    }
}
