//! Sets options of tools, and fills in required ones.

use std::sync::Arc;

use serde_json::{Map, Value};
use subtend::config::{DefaultModel, Key, Loaded};
use subtend_tools::dialect::minion;
use subtend_tools::option::{self, OptionKind, ToolOption};
use subtend_tools::registry::Registry;
use subtend_tools::tool::Tool;
use subtend_tools::workspace::Workspace;

use super::super::fail::Fail;
use super::super::settings;
use super::super::trust::Trust;

/// The part of a tool's options that a key sets.
enum OptionTarget<'a> {
    Nothing,
    Minions,
    Option { tool: &'a str, id: &'a str },
}

fn target<'a>(key: &'a Key, value: &Value) -> OptionTarget<'a> {
    let names: Vec<&str> = key.names().iter().map(String::as_str).collect();
    match names.as_slice() {
        ["tools", "minion", "enabled"] if *value == Value::Bool(true) => OptionTarget::Minions,
        ["tools", "options", tool, id] => OptionTarget::Option { tool, id },
        _ => OptionTarget::Nothing,
    }
}

/// Converts the value to the type of the tool's option that `key` names, and checks it against the declaration.
pub(super) fn check_value(key: &Key, value: Value, text: &str, tools: &Registry) -> Result<Value, Fail> {
    let names: Vec<&str> = key.names().iter().map(String::as_str).collect();
    if names == ["tools", "minion", "options", "model"] && text.trim().is_empty() {
        let why = "the model of `minion` is required once it is enabled: name a model, or disable it (`subtend config set \
                   tools.minion.enabled false`)";
        return Err(Fail::Usage(format!("`{key}` cannot be empty: {why}")));
    }
    let OptionTarget::Option { tool, id } = target(key, &value) else {
        let several = key.names().iter().map(String::as_str).take(2).eq(["tools", "options"]);
        return if several {
            Err(Fail::Usage("a tool is not an option: write the key as tools.options.TOOL.OPTION".into()))
        } else {
            Ok(value)
        };
    };
    let options = declared_options(tool, tools)?;
    let known = options.iter().find(|option| *option.id == *id);
    // A boolean option may be given as text.
    let value = match known.map(|option| &option.kind) {
        Some(OptionKind::Boolean { .. }) => text.trim().parse().map_or(value, Value::Bool),
        Some(OptionKind::LongText { .. } | OptionKind::Model) | None => text.into(),
    };
    option::check_given(&options, &Map::from_iter([(id.to_owned(), value.clone())]))
        .map_err(|bad| Fail::Usage(format!("`{key}` cannot be set: {bad}")))?;
    Ok(value)
}

/// Refuses a value of `key` that removes the model of an enabled `minion`.
pub(super) fn check_required(key: &Key, before: &Loaded, after: &Loaded) -> Result<(), Fail> {
    let (had, has) = (&before.config.tools.minion, &after.config.tools.minion);
    if had.options.model.is_none() || has.options.model.is_some() || !has.enabled {
        return Ok(());
    }
    Err(Fail::Usage(format!(
        "`{key}` would leave `minion` without its model, which is required while it is enabled: set `tools.minion.options.model` \
         with it, or disable it (`subtend config set tools.minion.enabled false`)"
    )))
}

fn declared_options(tool: &str, tools: &Registry) -> Result<Vec<ToolOption>, Fail> {
    let has = |tool: &&Arc<dyn Tool>| !tool.options().is_empty();
    if let Some(tool) = tools.get(tool).filter(has) {
        return Ok(tool.options().to_vec());
    }
    if tool == minion::NAME {
        return Err(Fail::Usage("the options of `minion` are under `tools.minion.options`".into()));
    }
    let known: Vec<&str> =
        tools.names().filter(|name| tools.get(name).as_ref().is_some_and(has)).map(|name| &**name).collect();
    let known = if known.is_empty() { String::new() } else { format!("{}, and ", known.join(", ")) };
    Err(Fail::Usage(format!(
        "the tool `{tool}` has no options; tools with options: {known}`minion` under `tools.minion.options`"
    )))
}

/// Returns the settings to write together with `key`. A tool that needs a model gets the model of sessions when the
/// tool is enabled or gets its first option.
pub(super) fn fill_required(
    key: &Key,
    value: &Value,
    written: &Loaded,
    workspace: &Workspace,
    tools: &Registry,
) -> Result<Vec<(Key, Value)>, Fail> {
    let (options, given, place) = match target(key, value) {
        OptionTarget::Nothing => return Ok(Vec::new()),
        OptionTarget::Minions => {
            let text = &written.config.tools.minion.options.model;
            let given = text.iter().map(|model| ("model".to_owned(), Value::from(&**model))).collect();
            (minion::options().to_vec(), given, Key::from(["tools", "minion", "options"]))
        }
        OptionTarget::Option { tool, .. } => {
            let given = written.config.tool_options().remove(tool).unwrap_or_default();
            (declared_options(tool, tools)?, given, Key::from(["tools", "options", tool]))
        }
    };
    let model = match settings::load(workspace, Trust::decide(workspace)?)?.default_model() {
        DefaultModel::Model(model) => Some(model.to_string()),
        DefaultModel::Pool(_) | DefaultModel::Unset => None,
    };
    let mut all = given.clone();
    option::fill(&options, &mut all, model.as_deref());
    // Defaults apply without a line in the file, so they are not written.
    let is_model = |id: &str| options.iter().any(|option| *option.id == *id && option.kind == OptionKind::Model);
    let lacked = all.into_iter().filter(|(id, _)| is_model(id) && !given.contains_key(id));
    Ok(lacked.map(|(id, value)| (place.with(&id), value)).collect())
}
