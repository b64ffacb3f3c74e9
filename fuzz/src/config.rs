//! Fuzzes `subtend.yaml`, as the file of a user and of a workspace.

use serde_json::Value;
use subtend::config::{Layer, Loaded, Origin, ProjectAccess};

use super::InputResult;

/// Loads the bytes as a configuration file. An accepted configuration survives a round trip, and an error names the
/// file. The file of a workspace cannot set keys that only the user may set.
pub fn any_bytes(bytes: &[u8]) -> InputResult {
    let text = String::from_utf8_lossy(bytes);
    let project = load(Origin::Project("fuzzed.yaml".into()), &text);
    for setting in project.iter().flat_map(|loaded| &loaded.values) {
        let user_only = ProjectAccess::of(&setting.key) == ProjectAccess::UserOnly;
        assert!(!user_only || setting.origin == Origin::Default, "a workspace sets {}", setting.key);
    }
    let user = load(Origin::User("fuzzed.yaml".into()), &text);
    assert!(project.is_none() || user.is_some(), "a workspace accepts a file that the user's configuration refuses");
    let Some(user) = user else { return InputResult::Refused };
    let written = serde_json::to_value(&user.config).map(without_nulls).map(|config| config.to_string());
    let again = written.ok().and_then(|text| load(Origin::User("again.yaml".into()), &text));
    let again = again.map(|loaded: Loaded| loaded.config);
    assert_eq!(again.as_ref(), Some(&user.config), "a written configuration reads back differently");
    InputResult::Accepted
}

fn load(origin: Origin, text: &str) -> Option<Loaded> {
    let name = origin.to_string();
    match Layer::file(origin, text).and_then(|layer| Loaded::of([layer])) {
        Ok(loaded) => {
            let defaults = Loaded::of([]).map_or(0, |defaults| defaults.values.len());
            assert!(loaded.values.len() >= defaults, "a key is missing: {:?}", loaded.values);
            Some(loaded)
        }
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with(&name) && error.len() > name.len(), "an error without its file: {error:?}");
            None
        }
    }
}

/// Removes keys whose value is null, because a file omits them.
fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(map) = &mut value {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(|value| *value = without_nulls(std::mem::take(value)));
    }
    value
}
