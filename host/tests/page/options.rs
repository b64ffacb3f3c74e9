//! Options of tools.

use std::sync::Mutex;

use subtend_host::settings::{SettingKind, Settings, ToolSetting};

use super::*;

/// Options in memory. No option can be set to an empty value.
#[derive(Debug)]
struct StoredOptions(Mutex<Vec<ToolSetting>>);

impl Settings for StoredOptions {
    fn list(&self) -> Result<Vec<ToolSetting>, String> {
        Ok(self.0.lock().expect("no panic").clone())
    }

    fn set(&self, key: &str, value: &str) -> Result<(), String> {
        if value.is_empty() {
            return Err(format!("`{key}` cannot be empty"));
        }
        let mut stored = self.0.lock().expect("no panic");
        stored.iter_mut().filter(|of| of.key == key).for_each(|of| of.value = value.to_owned());
        Ok(())
    }
}

fn option(key: &str, kind: SettingKind, value: &str) -> ToolSetting {
    let text = |text: &str| text.to_owned();
    let (tool, subtitle, origin) = (text("digest"), text("about <it>"), text("subtend.yaml"));
    ToolSetting { key: text(key), tool, label: key.to_uppercase(), subtitle, kind, value: text(value), origin }
}

#[tokio::test]
async fn option_is_edited_by_its_type() {
    let stored = Arc::new(StoredOptions(Mutex::new(vec![
        option("on", SettingKind::Boolean, "true"),
        option("notes", SettingKind::LongText, "two\nlines"),
        option("model", SettingKind::Model, "offline"),
    ])));
    let options = HostOptions { settings: Some(stored.clone()), ..HostOptions::default() };
    let host = Host::new(crate::support::runtime(&Memory::new()).await, options);
    let app = host.router();
    let page = get(&app, "/options").await.body;
    for field in [
        "<label class=\"check\" for=\"option-0\"><input type=\"checkbox\" id=\"option-0\" name=\"value\" value=\"true\" checked> ON</label>",
        "<label for=\"option-1\">NOTES <textarea id=\"option-1\" name=\"value\" rows=\"4\">two\nlines</textarea></label>",
        "<label for=\"option-2\">MODEL <input type=\"text\" id=\"option-2\" name=\"value\" value=\"offline\" autocomplete=\"off\" spellcheck=\"false\"></label>",
    ] {
        assert!(page.contains(field), "{field} in {page}");
    }
    let form = [("content-type", "application/x-www-form-urlencoded"), ("hx-request", "true")];
    for (body, status) in
        [("key=on", 200), ("key=notes&value=a%0D%0Ab", 200), ("key=model&value=", 422), ("key=none&value=x", 422)]
    {
        assert_eq!(request(&app, Method::POST, "/options", &form, body).await.status.as_u16(), status, "{body}");
    }
    let values: Vec<_> = stored.list().expect("options").into_iter().map(|of| of.value).collect();
    assert_eq!(values, ["false", "a\nb", "offline"]);
    drop(app);
    crate::support::end(host).await;
}
