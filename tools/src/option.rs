//! Options of tools, which users can set, and their defaults.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use subtend_session::ids::Text;

/// An option of a tool, with its labels for a settings page.
///
/// ```
/// use subtend_tools::option::ToolOption;
///
/// let options = [
///     ToolOption::boolean("images", "Images", true).subtitle("Include the images of pages"),
///     ToolOption::long_text("notes", "Notes", "What a reader should look for"),
///     ToolOption::model("model", "Model").subtitle("The model that shortens pages"),
/// ];
/// assert!(subtend_tools::option::check_declared(&options).is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolOption {
    /// Identifier, unique among the tool's options.
    pub id: Text,
    pub label: Text,
    /// A longer label, which may be empty.
    pub subtitle: Text,
    #[serde(flatten)]
    pub kind: OptionKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OptionKind {
    Boolean {
        default: bool,
    },
    /// A multi-line text; empty by default.
    LongText {
        placeholder: Text,
    },
    /// A model. Defaults to the session's model when the tool is first enabled. An enabled tool requires a value.
    Model,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the option `{id}` {why}")]
pub struct BadOption {
    pub id: Text,
    pub why: String,
}

/// Option values, by tool name and option id.
pub type ToolOptions = BTreeMap<Text, Map<String, Value>>;

impl ToolOption {
    pub fn boolean(id: impl Into<Text>, label: impl Into<Text>, default: bool) -> Self {
        Self::new(id.into(), label.into(), OptionKind::Boolean { default })
    }

    /// Creates an option with a multi-line text. An empty field shows `placeholder`.
    pub fn long_text(id: impl Into<Text>, label: impl Into<Text>, placeholder: impl Into<Text>) -> Self {
        Self::new(id.into(), label.into(), OptionKind::LongText { placeholder: placeholder.into() })
    }

    pub fn model(id: impl Into<Text>, label: impl Into<Text>) -> Self {
        Self::new(id.into(), label.into(), OptionKind::Model)
    }

    #[must_use]
    pub fn subtitle(mut self, subtitle: impl Into<Text>) -> Self {
        self.subtitle = subtitle.into();
        self
    }

    fn new(id: Text, label: Text, kind: OptionKind) -> Self {
        Self { id, label, subtitle: "".into(), kind }
    }

    /// Checks that the option accepts `value`.
    ///
    /// # Errors
    /// [`BadOption`], which names the valid values.
    pub fn check_value(&self, value: &Value) -> Result<(), BadOption> {
        if self.kind.accepts(value) {
            return Ok(());
        }
        let shown = value.to_string();
        let shown = crate::bounded::shorten(&shown, 100);
        Err(BadOption { id: Arc::clone(&self.id), why: format!("must be {}, not {shown}", self.kind.expected_kind()) })
    }
}

impl OptionKind {
    /// Returns the default value. `model` is the session's model.
    fn default_value(&self, model: Option<&str>) -> Option<Value> {
        match self {
            Self::Boolean { default } => Some((*default).into()),
            Self::LongText { .. } => Some("".into()),
            Self::Model => model.map(Value::from),
        }
    }

    fn expected_kind(&self) -> &'static str {
        match self {
            Self::Boolean { .. } => "true or false",
            Self::LongText { .. } => "a string",
            Self::Model => "the name of a model",
        }
    }

    fn accepts(&self, value: &Value) -> bool {
        match self {
            Self::Boolean { .. } => value.is_boolean(),
            Self::LongText { .. } => value.is_string(),
            Self::Model => value.as_str().is_some_and(|model| !model.trim().is_empty()),
        }
    }
}

/// Adds the defaults of missing options to `given` when a tool is enabled. `model` is the session's model.
///
/// ```
/// use serde_json::json;
/// use subtend_tools::dialect::minion;
/// use subtend_tools::option::fill;
///
/// let mut given = serde_json::Map::new();
/// fill(&minion::options(), &mut given, Some("anthropic/small"));
/// let filled = json!({"model": "anthropic/small", "systemPrompt": "", "rollbackOnError": false});
/// assert_eq!(given, *filled.as_object().ok_or("no object")?);
/// # Ok::<(), &str>(())
/// ```
pub fn fill(options: &[ToolOption], given: &mut Map<String, Value>, model: Option<&str>) {
    for option in options {
        if !given.contains_key(&*option.id)
            && let Some(value) = option.kind.default_value(model)
        {
            given.insert(option.id.to_string(), value);
        }
    }
}

/// Checks the options of an enabled tool, including models, which are now required.
///
/// # Errors
/// [`BadOption`] for the first invalid option.
pub fn check(options: &[ToolOption], given: &Map<String, Value>) -> Result<(), BadOption> {
    for option in options {
        match given.get(&*option.id) {
            Some(value) => option.check_value(value)?,
            None => {
                let why = format!("is missing: give {}", option.kind.expected_kind());
                return Err(BadOption { id: Arc::clone(&option.id), why });
            }
        }
    }
    check_known(options, given)
}

/// Checks values that a user set: all options must be known and all values valid. Options may be missing until the tool is enabled.
///
/// # Errors
/// [`BadOption`] for the first invalid option.
pub fn check_given(options: &[ToolOption], given: &Map<String, Value>) -> Result<(), BadOption> {
    options.iter().filter_map(|option| Some(option.check_value(given.get(&*option.id)?))).collect::<Result<(), _>>()?;
    check_known(options, given)
}

fn check_known(options: &[ToolOption], given: &Map<String, Value>) -> Result<(), BadOption> {
    let unknown = given.keys().find(|id| !options.iter().any(|option| *option.id == ***id));
    let Some(id) = unknown else { return Ok(()) };
    let ids: Vec<&str> = options.iter().map(|option| &*option.id).collect();
    let available = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
    let id = Text::from(&*crate::bounded::shorten(id, 60));
    Err(BadOption { id, why: format!("is not an option of the tool; available: {available}") })
}

/// Checks that the declared options of a tool have valid, unique ids and labels.
///
/// # Errors
/// [`BadOption`] for the first invalid option.
pub fn check_declared(options: &[ToolOption]) -> Result<(), BadOption> {
    for (at, option) in options.iter().enumerate() {
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let id = &option.id;
        let why = if id.is_empty() || id.len() > 64 || !id.chars().all(valid) {
            "has a name that is not 1 to 64 of the characters a-z A-Z 0-9 _ -"
        } else if options.iter().take(at).any(|before| before.id == *id) {
            "is declared twice: option ids must be unique"
        } else if option.label.trim().is_empty() {
            "has no label, so users cannot know its meaning"
        } else {
            continue;
        };
        return Err(BadOption { id: Arc::clone(id), why: why.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::minion;

    fn web() -> ToolOption {
        ToolOption::boolean("web", "Web", true).subtitle("Allow fetching of pages")
    }

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn m3_fill_adds_defaults_and_keeps_set_values() {
        let options = [&minion::options()[..], &[web()]].concat();
        let filled = |given: Value, model| {
            let mut given = map(given);
            fill(&options, &mut given, model);
            Value::Object(given)
        };
        let defaults = json!({"systemPrompt": "", "model": "big", "rollbackOnError": false, "web": true});
        assert_eq!(filled(json!({}), Some("big")), defaults);
        let given = json!({
            "systemPrompt": "Be brief.", "model": "small", "rollbackOnError": true, "web": false, "other": 1,
        });
        assert_eq!(filled(given.clone(), Some("big")), given);
        assert_eq!(filled(json!({}), None), json!({"systemPrompt": "", "rollbackOnError": false, "web": true}));
    }

    #[test]
    fn m3_model_is_required_when_the_tool_is_enabled() {
        let error_of = |given: Value| {
            let mut given = map(given);
            given.insert("rollbackOnError".to_owned(), json!(false));
            check(&minion::options(), &given).map_err(|bad| bad.to_string())
        };
        assert_eq!(error_of(json!({"systemPrompt": "", "model": "m"})), Ok(()));
        let missing = "the option `model` is missing: give the name of a model";
        assert_eq!(error_of(json!({"systemPrompt": ""})), Err(missing.to_owned()));
        let empty = "the option `model` must be the name of a model, not \" \"";
        assert_eq!(error_of(json!({"systemPrompt": "", "model": " "})), Err(empty.to_owned()));
        let number = "the option `systemPrompt` must be a string, not 7";
        assert_eq!(error_of(json!({"systemPrompt": 7, "model": "m"})), Err(number.to_owned()));
    }

    #[test]
    fn m3_option_values_are_checked_against_declared_options() {
        let error_of = |value: Value| check_given(&[web()], &map(value)).map_err(|bad| bad.to_string());
        assert_eq!((error_of(json!({})), error_of(json!({"web": false}))), (Ok(()), Ok(())));
        let text = "the option `web` must be true or false, not \"no\"";
        assert_eq!(error_of(json!({"web": "no"})), Err(text.to_owned()));
        let other = "the option `wep` is not an option of the tool; available: web";
        assert_eq!(error_of(json!({"wep": true})), Err(other.to_owned()));
    }

    #[test]
    fn m3_declared_options_need_unique_ids_and_labels() {
        let error_of = |options: &[ToolOption]| check_declared(options).map_err(|bad| bad.to_string());
        assert_eq!(error_of(&minion::options()), Ok(()));
        assert!(error_of(&[web(), web()]).unwrap_err().contains("is declared twice"));
        assert!(error_of(&[ToolOption::model("a model", "Model")]).unwrap_err().contains("has a name"));
        assert!(error_of(&[ToolOption::model("model", " ")]).unwrap_err().contains("has no label"));
    }

    #[test]
    fn m3_options_serialize_for_a_settings_page() {
        let shown = json!({
            "id": "systemPrompt",
            "label": "System prompt",
            "subtitle": "The system prompt of every minion",
            "type": "long_text",
            "placeholder": "Left empty, a minion has its caller's prompt",
        });
        assert_eq!(serde_json::to_value(&minion::options()[0]).unwrap(), shown);
        assert_eq!(serde_json::to_value(&web().kind).unwrap(), json!({"type": "boolean", "default": true}));
    }
}
