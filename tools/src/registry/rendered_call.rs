//! Renders calls for users, with the render functions of their tools.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use subtend_session::dialect::discovery;
use subtend_session::ids::Text;

use super::Registry;
use crate::dialect::{self, minion};
use crate::display::{Display, RenderedCall};
use crate::{arguments, bounded};

/// Maximum bytes of one displayed input or output.
const MAX_DISPLAYED: usize = 16 << 10;

impl Registry {
    /// Renders a call of `tool` and its result for users.
    ///
    /// The render functions are host code. If one panics, its text is omitted; long texts are truncated. Texts may contain terminal control
    /// characters.
    pub fn render_call(&self, tool: &str, args: &str, result: Option<&str>) -> RenderedCall {
        let used = discovery::resolve(tool, args);
        let (tool, args) = used.as_ref().map_or((tool, args), |(tool, args)| (tool, args));
        let parsed = arguments::parse(tool, args).ok();
        let bounded_text = |render: &dyn Fn() -> Option<Text>| {
            let text = catch_unwind(AssertUnwindSafe(render)).ok().flatten();
            text.filter(|text| !text.trim().is_empty()).map(|text| Text::from(&*bounded::shorten(&text, MAX_DISPLAYED)))
        };
        let (display, input, output) = match self.get(tool) {
            Some(tool) => (
                catch_unwind(AssertUnwindSafe(|| tool.display())).unwrap_or_default(),
                bounded_text(&|| tool.render_input(parsed.as_ref()?)),
                bounded_text(&|| tool.render_output(result?)),
            ),
            None => (dialect_display(tool), bounded_text(&|| dialect_input(tool, parsed.as_ref()?)), None),
        };
        RenderedCall { tool: tool.into(), display, input, output }
    }
}

fn dialect_display(tool: &str) -> Display {
    match tool {
        minion::NAME => Display::named("Minion").subtitle("Delegate a task to a sub-agent").icons("🤖", "🤖"),
        minion::RETURN => Display::named("Return").subtitle("Return a result and stop").icons("↩", "✅"),
        _ => Display::default(),
    }
}

fn dialect_input(tool: &str, args: &Value) -> Option<Text> {
    let text = |name: &str| args.get(name).and_then(Value::as_str).map(Text::from);
    match tool {
        minion::NAME => text("message"),
        minion::RETURN => text("result"),
        dialect::spawn::NAME | dialect::subagent::NAME => text("task"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use subtend_session::call::ToolEffect;
    use subtend_session::message::ToolSpec;

    use super::*;
    use crate::closure::FnTool;
    use crate::tool::ToolOutput;

    fn fetch() -> FnTool {
        let spec = ToolSpec {
            name: "fetch".into(),
            description: "Fetches a page.".into(),
            schema: Arc::new(json!({"type": "object"})),
        };
        FnTool::new(spec, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("page")) })
    }

    fn registry(tool: FnTool) -> Registry {
        Registry::builder().tool(Arc::new(tool)).unwrap().build()
    }

    #[test]
    fn m13_tool_display_applies_also_through_use_tool() {
        let display = Display::named("Fetch").subtitle("Reads a page").icons("🌐", "📄");
        let tool = fetch().display(display.clone());
        let tool = tool.render_input(|args| Some(args["url"].as_str()?.into()));
        let tools = registry(tool.render_output(|text| Some(format!("{} letters", text.len()).into())));
        let shown =
            RenderedCall { tool: "fetch".into(), display, input: Some("a.b".into()), output: Some("4 letters".into()) };
        assert_eq!(tools.render_call("fetch", r#"{"url":"a.b"}"#, Some("page")), shown);
        assert_eq!(tools.render_call("use_tool", r#"{"tool":"fetch","args":{"url":"a.b"}}"#, Some("page")), shown);
        let silent = RenderedCall { input: None, output: None, ..shown };
        assert_eq!(tools.render_call("fetch", "no JSON", None), silent);
    }

    #[test]
    fn m13_failed_long_or_empty_rendering_is_handled() {
        let tool = fetch().render_input(|_| panic!("render failed")).render_output(|_| Some("x".repeat(20_000).into()));
        let shown = registry(tool).render_call("fetch", "{}", Some("page"));
        assert_eq!((shown.display, shown.input), (Display::default(), None));
        assert!(shown.output.unwrap().ends_with("(3616 more bytes)"));
        let empty = registry(fetch().render_input(|_| Some(" ".into()))).render_call("fetch", "{}", None);
        assert_eq!(empty, RenderedCall { tool: "fetch".into(), ..RenderedCall::default() });
    }

    #[test]
    fn m13_minion_and_return_have_their_own_display() {
        let tools = Registry::builder().build();
        let minion = tools.render_call("minion", r#"{"message":"Count.","enableWeb":false,"enabledTools":[]}"#, None);
        let display = Display::named("Minion").subtitle("Delegate a task to a sub-agent").icons("🤖", "🤖");
        assert_eq!((minion.display, minion.input.as_deref()), (display, Some("Count.")));
        let returned = tools.render_call("return", r#"{"result":"3"}"#, None);
        assert_eq!((&*returned.display.name, returned.input.as_deref()), ("Return", Some("3")));
    }
}
