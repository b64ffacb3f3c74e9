//! Templates of minions: named messages and prompts with placeholders, and default tools.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use subtend_session::ids::Text;

use super::Offered;
use crate::bounded;
use crate::near;
use crate::result::ToolError;

/// Name of the placeholder for the call's own message.
const MESSAGE: &str = "message";

/// Maximum bytes of a filled-in text: a template can repeat a value any number of times.
const MAX_FILLED: usize = 4 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedTemplate {
    pub name: Text,
    pub description: Text,
    /// The message with placeholders. Defaults to the call's own message.
    pub message: Option<Text>,
    /// The system prompt with placeholders. Defaults to the prompt of minions.
    pub system_prompt: Option<Text>,
    /// The tools of a call that names none.
    pub tools: Option<Vec<Text>>,
    /// The default of `enableWeb`.
    pub web: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilledTemplate {
    pub(crate) message: String,
    pub(crate) system_prompt: Option<Text>,
}

impl OfferedTemplate {
    /// Returns the names of the values that a call must provide.
    pub fn value_names(&self) -> BTreeSet<&str> {
        let texts = [&self.message, &self.system_prompt].into_iter().flatten();
        texts.flat_map(|text| pieces(text)).filter_map(Piece::name).filter(|name| *name != MESSAGE).collect()
    }

    /// Fills the message and the values of a call into the template.
    ///
    /// # Errors
    /// If a value is missing or unknown, or a text would be too long.
    pub(crate) fn fill(&self, message: &str, values: &BTreeMap<String, String>) -> Result<FilledTemplate, ToolError> {
        let wanted = self.value_names();
        let missing: Vec<&str> = wanted.iter().copied().filter(|name| !values.contains_key(*name)).collect();
        let unknown: Vec<&str> = values.keys().map(String::as_str).filter(|name| !wanted.contains(name)).collect();
        let takes = || match wanted.is_empty() {
            true => "it takes none".to_owned(),
            false => format!("it takes {}", near::list_names(&wanted.iter().copied().collect::<Vec<_>>())),
        };
        let mismatch = |problem: &str, names: &[&str]| {
            let names = near::list_names(&names.iter().map(|name| bounded::head(name, 100)).collect::<Vec<_>>());
            Err(ToolError::bad_args(format!("{problem} values of the template `{}`: {names}; {}", self.name, takes())))
        };
        if !missing.is_empty() {
            return mismatch("missing", &missing);
        }
        if !unknown.is_empty() {
            return mismatch("unknown", &unknown);
        }
        let texts = [&self.message, &self.system_prompt].into_iter().flatten();
        for text in texts {
            let length = |length: usize, piece: Piece<'_>| length.saturating_add(piece.fill(message, values).len());
            let length = pieces(text).fold(0, length);
            if length > MAX_FILLED {
                return Err(ToolError::bad_args(format!(
                    "the template `{}` would have {length} bytes with these values; the limit is {MAX_FILLED}: give shorter ones",
                    self.name
                )));
            }
        }
        let fill = |text: &str| pieces(text).map(|piece| piece.fill(message, values)).collect::<String>();
        let message = match &self.message {
            None => message.to_owned(),
            Some(text) if pieces(text).any(|piece| piece.name() == Some(MESSAGE)) => fill(text),
            Some(text) => format!("{}\n\n{message}", fill(text).trim_end()),
        };
        Ok(FilledTemplate { message, system_prompt: self.system_prompt.as_deref().map(|text| fill(text).into()) })
    }

    fn line(&self) -> String {
        let about = self.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let about = bounded::shorten(&about, 1000).into_owned();
        let stop = if about.is_empty() || about.ends_with(['.', '!', '?']) { "" } else { "." };
        let values: Vec<&str> = self.value_names().into_iter().collect();
        let values = if values.is_empty() { String::new() } else { format!(" Values: {}.", values.join(", ")) };
        format!("\n- {}: {about}{stop}{values}", self.name)
    }
}

pub(crate) fn list_templates(templates: &[OfferedTemplate]) -> String {
    templates.iter().map(OfferedTemplate::line).collect()
}

impl Offered {
    pub(crate) fn template(&self, name: &str) -> Result<&OfferedTemplate, ToolError> {
        self.templates.iter().find(|template| *template.name == *name).ok_or_else(|| {
            let names: Vec<&str> = self.templates.iter().map(|template| &*template.name).collect();
            let shown = bounded::shorten(name, 100);
            let valid = match names.is_empty() {
                true => "no templates exist, so leave `template` out".to_owned(),
                false => format!("valid: {}", near::list_names(&names)),
            };
            ToolError::bad_args(format!("no template `{shown}`; {valid}"))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

impl<'a> Piece<'a> {
    fn name(self) -> Option<&'a str> {
        match self {
            Self::Placeholder(name) => Some(name),
            Self::Text(_) => None,
        }
    }

    fn fill(self, message: &'a str, values: &'a BTreeMap<String, String>) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text.into(),
            Self::Placeholder(MESSAGE) => message.into(),
            Self::Placeholder(name) => {
                values.get(name).map_or_else(|| format!("{{{name}}}").into(), |value| value.as_str().into())
            }
        }
    }
}

/// Splits `text` at its placeholders. Braces that do not enclose a name are ordinary text.
fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.filter(|text| !text.is_empty())?;
        let placeholder = |(start, _): (usize, &str)| {
            let after = text.get(start.saturating_add(1)..)?;
            // Stops at the first other character: a search for the end after each brace takes quadratic time.
            let (name, rest) = after.split_at(after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?);
            let is_name = rest.starts_with('}') && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            is_name.then_some((start, name))
        };
        match text.match_indices('{').find_map(placeholder) {
            None => {
                rest = None;
                Some(Piece::Text(text))
            }
            Some((0, name)) => {
                rest = text.get(name.len().saturating_add(2)..);
                Some(Piece::Placeholder(name))
            }
            Some((start, _)) => {
                let (before, after) = text.split_at(start);
                rest = Some(after);
                Some(Piece::Text(before))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(message: &str, system_prompt: &str) -> OfferedTemplate {
        let (message, system_prompt) = (Some(message.into()), Some(system_prompt.into()));
        OfferedTemplate { name: "review".into(), message, system_prompt, ..OfferedTemplate::default() }
    }

    fn fill(template: &OfferedTemplate, values: &[(&str, &str)]) -> Result<(String, String), String> {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let filled = template.fill("Be brief.", &values).map_err(|error| error.message)?;
        Ok((filled.message, filled.system_prompt.unwrap_or_default().to_string()))
    }

    #[test]
    fn m10_template_replaces_each_placeholder_once() {
        let whole = template("Read {path}: {message}", "You judge {what} like {\"json\": {x y}}.");
        assert_eq!(whole.value_names().into_iter().collect::<Vec<_>>(), ["path", "what"]);
        let given = [("path", "{what}"), ("what", "style")];
        let expected = ("Read {what}: Be brief.".to_owned(), "You judge style like {\"json\": {x y}}.".to_owned());
        assert_eq!(fill(&whole, &given), Ok(expected));
        assert_eq!(fill(&template("Read it.\n", "x"), &[]).map(|it| it.0), Ok("Read it.\n\nBe brief.".to_owned()));
    }

    #[test]
    fn m10_missing_and_unknown_values_are_refused() {
        let whole = template("Read {path}.", "Judge {what}.");
        let missing = "missing values of the template `review`: what; it takes path, what";
        assert_eq!(fill(&whole, &[("path", "a")]).unwrap_err(), missing);
        let given = [("path", "a"), ("what", "b"), ("more", "c")];
        let unknown = "unknown values of the template `review`: more; it takes path, what";
        assert_eq!(fill(&whole, &given).unwrap_err(), unknown);
        let none = "unknown values of the template `review`: path; it takes none";
        assert_eq!(fill(&template("Read.", ""), &[("path", "a")]).unwrap_err(), none);
    }

    /// The rest is not searched again for each open brace. The control: a closed one is recognized.
    #[test]
    fn unclosed_braces_take_linear_time() {
        let attacks: [&str; 2] = ["{", "{a"];
        for part in attacks {
            let open = part.repeat(1_000_000);
            let whole = template(&format!("{open} {{path}}"), "");
            assert_eq!(fill(&whole, &[("path", "x")]), Ok((format!("{open} x\n\nBe brief."), String::new())), "{part}");
        }
    }

    #[test]
    fn template_that_repeats_a_long_value_is_refused() {
        let long = "x".repeat(1 << 20);
        let repeating = |times: usize| template(&"{path}".repeat(times), "Judge.");
        let refused = "the template `review` would have 1048576000 bytes with these values; the limit is 4194304: give shorter ones";
        assert_eq!(fill(&repeating(1_000), &[("path", &long)]).unwrap_err(), refused);
        let prompt = template("Read.", &"{path}".repeat(5));
        assert!(fill(&prompt, &[("path", &long)]).unwrap_err().contains("5242880 bytes"));
        // The control: a text within the limit is filled in.
        assert_eq!(fill(&repeating(3), &[("path", &long)]).map(|it| it.0.len()), Ok((3 << 20) + "\n\nBe brief.".len()));
    }
}
