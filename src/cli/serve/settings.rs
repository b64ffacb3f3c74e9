//! Options of tools in the configuration of the host's directory, for the options page.

use std::path::{Path, PathBuf};

use serde_json::Value;
use subtend::config::{Key, Loaded};
use subtend_host::settings::{SettingKind, Settings, ToolSetting};
use subtend_tools::dialect::minion;
use subtend_tools::option::{OptionKind, ToolOption};

use super::super::fail::Fail;
use super::super::trust::Trust;
use super::super::{config, settings, work, workspace};

/// Reads and changes `subtend.yaml` of a directory, as `subtend config` does.
#[derive(Debug)]
pub(super) struct HomeSettings {
    home: PathBuf,
}

impl HomeSettings {
    pub(super) fn of(home: &str) -> Self {
        Self { home: Path::new(home).to_owned() }
    }

    fn read(&self) -> Result<Vec<ToolSetting>, Fail> {
        let workspace = workspace::open(&self.home)?;
        let loaded = settings::load(&workspace, Trust::decide(&workspace)?)?;
        let tools = work::setup::tools(&loaded.config)?;
        let minions = minion::options();
        let of_minions = minions
            .iter()
            .map(|option| (minion::NAME.to_owned(), ["tools", "minion", "options"].into(), option.clone()));
        let mut options: Vec<(String, Key, ToolOption)> = of_minions.collect();
        for name in tools.names() {
            let declared = tools.get(name).into_iter().flat_map(|tool| tool.options().to_vec());
            options.extend(declared.map(|option| (name.to_string(), Key::from(["tools", "options", &**name]), option)));
        }
        Ok(options
            .into_iter()
            .map(|(tool, place, option)| to_tool_setting(&loaded, tool, &place.with(&option.id), &option))
            .collect())
    }
}

fn to_tool_setting(loaded: &Loaded, tool: String, key: &Key, option: &ToolOption) -> ToolSetting {
    let set = loaded.values.iter().find(|one| one.key == *key);
    let (kind, default) = match &option.kind {
        OptionKind::Boolean { default } => (SettingKind::Boolean, default.to_string()),
        OptionKind::LongText { .. } => (SettingKind::LongText, String::new()),
        OptionKind::Model => (SettingKind::Model, String::new()),
    };
    let value = match set.map(|set| &set.value) {
        None | Some(Value::Null) => default,
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    ToolSetting {
        key: key.to_string(),
        tool,
        label: option.label.to_string(),
        subtitle: option.subtitle.to_string(),
        kind,
        value,
        origin: set.map_or_else(|| "not set".to_owned(), |set| set.origin.to_string()),
    }
}

impl Settings for HomeSettings {
    fn list(&self) -> Result<Vec<ToolSetting>, String> {
        self.read().map_err(|fail| fail.to_string())
    }

    fn set(&self, key: &str, value: &str) -> Result<(), String> {
        config::set(key, value, &self.home, false).map(drop).map_err(|fail| fail.to_string())
    }
}
