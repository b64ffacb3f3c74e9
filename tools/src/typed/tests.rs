use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use subtend_session::authority::{Access, Authority, Rule, RuleSet, Verdict};
use subtend_session::call::{Invalid, ToolEffect};
use subtend_session::ids::{CallId, RunNo, SessionId, Text, TurnNo};
use subtend_session::message::ToolSpec;
use tokio_util::sync::CancellationToken;

use super::snake_case;
use crate::closure::FnTool;
use crate::policy::HostPolicy;
use crate::processes::Processes;
use crate::registry::{Classified, Registry, RegistryError};
use crate::tool::{Progress, Tool, ToolError, ToolInvocation, ToolKey, ToolOutput};
use crate::typed::{IntoOutput, TypedTool};
use crate::workspace::Workspace;

/// Tells the weather of a day.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WeatherReport {
    /// The place.
    city: String,
    /// The day.
    day: Day,
}

/// A day, as `YYYY-MM-DD`.
#[derive(Debug, JsonSchema)]
#[schemars(transparent)]
struct Day(String);

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() == 10 { Ok(Self(text)) } else { Err(serde::de::Error::custom("expected a day as YYYY-MM-DD")) }
    }
}

#[derive(Serialize)]
struct Forecast {
    city: String,
    celsius: i32,
}

impl TypedTool for WeatherReport {
    type Output = Forecast;
    const EFFECT: ToolEffect = ToolEffect::ReadOnly;

    fn access(args: Option<&Self>) -> Vec<Access> {
        let resource = args.map_or("*".into(), |args| Text::from(&*args.city));
        vec![Access { action: "net.fetch".into(), resource }]
    }

    async fn run(self, call: ToolInvocation) -> Result<Forecast, ToolError> {
        assert_eq!(call.args, Value::Null);
        match &*self.day.0 {
            "2026-05-01" => Ok(Forecast { city: self.city, celsius: 17 }),
            day => Err(ToolError::not_found(format!("nothing is known of {day}"))),
        }
    }
}

/// Does nothing.
#[derive(Deserialize, JsonSchema)]
struct Rest {}

impl TypedTool for Rest {
    type Output = ToolOutput;
    const EFFECT: ToolEffect = ToolEffect::Idempotent;

    fn leaves_process() -> bool {
        false
    }

    async fn run(self, _call: ToolInvocation) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput { content: "rested".into(), truncated_from: Some(9) })
    }
}

fn call(args: Value) -> ToolInvocation {
    let session: SessionId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    ToolInvocation {
        key: ToolKey { session, run: RunNo(1), call: CallId { turn: TurnNo(2), ix: 3 } },
        args,
        options: Default::default(),
        workspace: Arc::new(Workspace::open(".").unwrap()),
        authority: Arc::new(Authority::allow_all()),
        cancel: CancellationToken::new(),
        max_bytes: 1000,
        progress: Progress::none(),
        processes: Processes::default(),
        checkpoints: None,
        messenger: None,
        child_tools: None,
        approved: false,
    }
}

async fn run(registry: &Registry, tool: &str, args: Value) -> Result<ToolOutput, ToolError> {
    registry.get(tool).unwrap().run(call(args)).await
}

fn allowed(rule: &str) -> Authority {
    Authority::of(RuleSet { default: Verdict::Deny, rules: vec![HostPolicy::allow(rule).unwrap()] })
}

#[test]
fn spec_is_derived_from_the_struct() {
    let registry = Registry::builder().typed::<WeatherReport>().unwrap().build();
    let tool = registry.get("weather_report").unwrap();
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The place."},
            "day": {"type": "string", "description": "The day."},
        },
        "required": ["city", "day"],
        "additionalProperties": false,
    });
    let spec = ToolSpec {
        name: "weather_report".into(),
        description: "Tells the weather of a day.".into(),
        schema: Arc::new(schema),
    };
    assert_eq!((tool.spec(), tool.effect(), tool.leaves_process()), (&spec, ToolEffect::ReadOnly, true));
}

#[tokio::test]
async fn result_is_json_unless_it_is_text_or_an_output() {
    let registry = Registry::builder().typed::<WeatherReport>().unwrap().typed::<Rest>().unwrap().build();
    let report = run(&registry, "weather_report", json!({"city": "Bern", "day": "2026-05-01"})).await;
    assert_eq!(report, Ok(ToolOutput::text(r#"{"city":"Bern","celsius":17}"#)));
    let rested = run(&registry, "rest", json!({})).await;
    assert_eq!(rested, Ok(ToolOutput { content: "rested".into(), truncated_from: Some(9) }));
    assert_eq!(String::from("as it is").into_output(), Ok(ToolOutput::text("as it is")));
    assert_eq!("as it is".into_output(), Ok(ToolOutput::text("as it is")));
    assert_eq!(vec![1, 2].into_output(), Ok(ToolOutput::text("[1,2]")));
}

#[tokio::test]
async fn invalid_arguments_error_names_position_and_expectation() {
    let registry = Registry::builder().typed::<WeatherReport>().unwrap().build();
    let args = r#"{"city": 7, "day": "2026-05-01"}"#;
    let found = registry.classify("weather_report", args, &Authority::allow_all(), None, false, &|_| false);
    let Classified::Invalid { kind: Invalid::BadArgs, message } = found else { panic!("{found:?}") };
    assert!(message.contains("- /city: 7 is not of type \"string\"\n"), "{message}");
    let args = json!({"city": "Bern", "day": "tomorrow"});
    assert_eq!(
        run(&registry, "weather_report", args).await,
        Err(ToolError::bad_args(
            "the arguments of weather_report do not fit:\n\
             - /day: expected a day as YYYY-MM-DD\n\
             Correct them and call weather_report again."
        ))
    );
}

#[test]
fn call_needs_the_access_of_its_arguments() {
    let registry = Registry::builder().typed::<WeatherReport>().unwrap().build();
    let tool = registry.get("weather_report").unwrap();
    let check = |city: &str| {
        let args = json!({"city": city, "day": "2026-05-01"});
        registry.check(tool.as_ref(), &args, &allowed("net.fetch=B*"), &|_| false).map_err(|error| error.denied)
    };
    assert_eq!((check("Bern"), check("Zug")), (Ok(()), Err(true)));
}

#[test]
fn tool_without_access_needs_its_own_action() {
    let registry = Registry::builder().typed::<Rest>().unwrap().build();
    let offered = |authority: &Authority| registry.offered(authority, None, false).len();
    assert_eq!(offered(&Authority::of(HostPolicy::default_for_workspace())), 1);
    assert_eq!(offered(&allowed("tool:rest")), 1);
    assert_eq!(offered(&allowed("fs.read")), 0);
}

#[test]
fn tool_without_a_description_is_refused() {
    #[derive(Deserialize, JsonSchema)]
    struct Silent {}

    impl TypedTool for Silent {
        type Output = ();
        const EFFECT: ToolEffect = ToolEffect::ReadOnly;

        async fn run(self, _call: ToolInvocation) -> Result<(), ToolError> {
            Ok(())
        }
    }

    let refused = Registry::builder().typed::<Silent>().unwrap_err();
    assert_eq!(refused, RegistryError::NoDescription { name: "silent".into() });
    assert_eq!(
        refused.to_string(),
        "the tool `silent` has no description, so models cannot know when to use it: add a doc comment to its arguments' \
         struct"
    );
}

#[tokio::test]
async fn closure_tool_takes_typed_arguments_and_keeps_state() {
    #[derive(Deserialize, JsonSchema)]
    struct Sum {
        /// What is added.
        numbers: Vec<u8>,
    }

    let base = 100_u32;
    let sum = FnTool::typed(
        "sum",
        "Adds numbers to the base.",
        ToolEffect::ReadOnly,
        move |args: Sum, _call: ToolInvocation| async move {
            Ok(base + args.numbers.iter().map(|n| u32::from(*n)).sum::<u32>())
        },
    );
    assert_eq!(Tool::access(&sum, None), [Access { action: "tool:sum".into(), resource: "*".into() }]);
    assert_eq!(sum.run(call(json!({"numbers": [1, 2]}))).await, Ok(ToolOutput::text("103")));
    assert_eq!(
        sum.run(call(json!({"numbers": [1, 2000]}))).await,
        Err(ToolError::bad_args(
            "the arguments of sum do not fit:\n\
             - /numbers/1: invalid value: integer `2000`, expected u8\n\
             Correct them and call sum again."
        ))
    );
}

#[test]
fn type_names_become_snake_case() {
    let names = ["Weather", "RoadDistance", "HTTPGet2Things", "already_snake", "A", "ReadPDF"].map(snake_case);
    assert_eq!(names, ["weather", "road_distance", "http_get2_things", "already_snake", "a", "read_pdf"]);
}

#[test]
fn policy_accepts_additional_rules() {
    let policy = HostPolicy::allowing(["tool:rest", "fs.write=out/**"]).unwrap();
    let allow = |action: &str, resource: &str| Rule {
        action: action.into(),
        resource: resource.into(),
        verdict: Verdict::Allow,
    };
    let mut expected = HostPolicy::default_for_workspace();
    expected.rules.extend([allow("tool:rest", "*"), allow("fs.write", "out/**")]);
    assert_eq!(policy, expected);
    assert_eq!(HostPolicy::allowing(["tool rest"]).map_err(|error| error.rule), Err("tool rest".into()));
}
