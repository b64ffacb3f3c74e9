use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{Html, Response};
use serde::Deserialize;
use subtend_tools::memory_threads::spawn_for;

use super::actions::{ActionResult, answer};
use super::extract::FormBody;
use super::{PageFrame, Refusal, render_unchanged};
use crate::host::Host;
use crate::problem::Problem;
use crate::settings::{SettingKind, Settings, ToolSetting};

struct Field {
    of: ToolSetting,
    /// HTML id of its input, for the label.
    id: String,
}

impl Field {
    fn is(&self, kind: SettingKind) -> bool {
        self.of.kind == kind
    }
}

#[derive(Template)]
#[template(path = "options.html")]
struct OptionsPage {
    frame: PageFrame,
    fields: Vec<Field>,
    /// True if this host stores options.
    kept: bool,
}

/// Runs file operations on a blocking thread.
async fn run_file_operation<T: Send + 'static>(
    settings: Arc<dyn Settings>,
    run: impl FnOnce(&dyn Settings) -> Result<T, String> + Send + 'static,
) -> Result<T, Problem> {
    let done = spawn_for(0, move || run(&*settings)).await;
    let done = done.unwrap_or_else(|error| Err(error.to_string()));
    done.map_err(|why| Problem::invalid("invalid_input", why))
}

pub(super) async fn page(State(host): State<Host>) -> Result<Html<String>, Refusal> {
    let settings = host.options().settings.clone();
    let is_kept = settings.is_some();
    let all = match settings {
        Some(settings) => run_file_operation(settings, |settings| settings.list()).await?,
        None => Vec::new(),
    };
    let field = |(nth, of): (usize, ToolSetting)| Field { of, id: format!("option-{nth}") };
    let fields = all.into_iter().enumerate().map(field).collect();
    render_unchanged(&OptionsPage {
        frame: PageFrame::new(&host, "Tool options", "options").await,
        fields,
        kept: is_kept,
    })
}

/// A value for an option. Browsers do not send unchecked boxes.
#[derive(Debug, Deserialize)]
pub(super) struct OptionForm {
    key: String,
    #[serde(default)]
    value: String,
}

pub(super) async fn set(
    State(host): State<Host>,
    headers: HeaderMap,
    FormBody(change): FormBody<OptionForm>,
) -> Result<Response, Refusal> {
    let Some(settings) = host.options().settings.clone() else {
        return Err(Refusal(Problem::conflict("refused", "this host does not store tool options")));
    };
    let OptionForm { key, value } = change;
    let done = run_file_operation(settings, move |settings| {
        let known = settings.list()?.into_iter().find(|known| known.key == key);
        let known = known.ok_or_else(|| format!("no tool has the option {key:?}"))?;
        let value = match known.kind {
            SettingKind::Boolean if value.is_empty() => "false".to_owned(),
            SettingKind::Boolean => "true".to_owned(),
            SettingKind::LongText => value.replace("\r\n", "\n"),
            SettingKind::Model => value.trim().to_owned(),
        };
        settings.set(&known.key, &value)?;
        Ok(ActionResult(format!("{} is set. It takes effect at the next start of the host.", known.label)))
    });
    Ok(answer(&headers, "/options", done.await))
}
