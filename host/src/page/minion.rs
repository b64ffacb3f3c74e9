//! Renders the work of the minion that a call started.

use subtend_actors::transcript::{Block, Group, Minion};
use subtend_session::ids::CallId;

use super::entries::{clip, pretty};
use super::{bounds, markdown, words};

/// The work of a minion that a call started.
pub(super) struct MinionWork {
    pub(super) id: String,
    pub(super) chat: String,
    pub(super) response: Option<String>,
    pub(super) returned: bool,
    pub(super) ended: bool,
    pub(super) turns: String,
    pub(super) steps: Vec<ActivityStep>,
    pub(super) json: String,
}

pub(super) struct ActivityStep {
    pub(super) name: String,
    pub(super) text: String,
}

impl MinionWork {
    pub(super) fn of(call: CallId, of: &Minion) -> Self {
        Self {
            id: format!("json-{}-{}", call.turn, call.ix),
            chat: of.minion_chat_id.to_string(),
            response: of.minion_response.as_ref().map(|text| markdown::render(text)),
            returned: of.minion_used_return_tool,
            ended: of.has_ended,
            turns: words::count(of.activity.turns, "turn"),
            steps: bounds::build_parts(of.activity.groups.iter().flat_map(steps), |step| step.text.len()),
            json: json(of),
        }
    }

    /// Returns a lower bound of the text that the minion shows.
    pub(super) fn text_bytes(&self) -> usize {
        self.steps.iter().map(|step| step.text.len()).fold(self.json.len(), usize::saturating_add)
    }
}

/// Returns the work as JSON, or a notice if its texts alone are too long for an entry.
fn json(of: &Minion) -> String {
    let text = |block: &Block| match block {
        Block::Text { text } => text.len(),
        Block::ToolUse { args, .. } => args.len(),
        Block::ToolResult { content, .. } => content.len(),
    };
    let blocks = of.activity.groups.iter().flat_map(|group| &group.blocks).map(text);
    match blocks.fold(0, usize::saturating_add) {
        bytes if bytes > bounds::MAX_ENTRY_BYTES => format!("[{bytes} bytes of texts: the API has them]"),
        _ => serde_json::to_string_pretty(of).unwrap_or_default(),
    }
}

fn steps(group: &Group) -> impl Iterator<Item = ActivityStep> {
    let step = |block: &Block| match block {
        Block::Text { text } => ActivityStep { name: "said".to_owned(), text: clip(text) },
        Block::ToolUse { tool, args, .. } => {
            ActivityStep { name: format!("called {}", words::line(tool)), text: clip(&pretty(args)) }
        }
        Block::ToolResult { error, content, .. } => {
            ActivityStep { name: if *error { "error" } else { "result" }.to_owned(), text: clip(content) }
        }
    };
    group.blocks.iter().map(step)
}

#[cfg(test)]
mod tests {
    use askama::Template;
    use subtend_actors::transcript::{Activity, Category};
    use subtend_session::ids::TurnNo;

    use super::super::render_fragment;
    use super::*;

    #[derive(Template)]
    #[template(path = "minion.html")]
    struct Viewer {
        minion: MinionWork,
    }

    fn viewer(response: Option<&str>, returned: bool, ended: bool) -> String {
        let block = Block::Text { text: "I <see>".into() };
        let groups = vec![Group { category: Category::Text, blocks: vec![block] }];
        let minion = Minion {
            minion_chat_id: subtend_session::ids::Short("a1".into()),
            minion_response: response.map(Into::into),
            minion_used_return_tool: returned,
            has_ended: ended,
            activity: Activity { turns: 2, groups },
        };
        render_fragment(&Viewer { minion: MinionWork::of(CallId { turn: TurnNo(3), ix: 0 }, &minion) })
    }

    #[test]
    fn minion_shows_an_explicit_result_unfolded() {
        let shown = viewer(Some("**yes**"), true, true);
        let expected = "<section class=\"panel minion\" aria-label=\"Minion a1\">\n<h3>Minion a1</h3>\n\
            <details class=\"response\" open>\n<summary>Explicit result, by <code>return</code></summary>\n\
            <div class=\"md\"><p><strong>yes</strong></p>\n</div>\n</details>\n\
            <details class=\"activity\">\n<summary>Activity, 2 turns</summary>\n<ol>\n\
            <li>said<pre tabindex=\"0\">I &#60;see&#62;</pre></li>\n</ol>\n</details>\n\
            <button type=\"button\" data-copy=\"json-3-0\">Copy as JSON</button>\n<pre id=\"json-3-0\" hidden>";
        assert_eq!(shown.get(..expected.len()), Some(expected));
    }

    #[test]
    fn minion_shows_fallback_running_and_ended_work() {
        let fallback = viewer(Some("maybe"), false, true);
        assert!(fallback.contains("<details class=\"response\">\n<summary>Fallback: its last message"), "{fallback}");
        for (ended, state) in
            [(false, "<p class=\"live\">working</p>"), (true, "<p class=\"dim\">ended without a result</p>")]
        {
            let html = viewer(None, false, ended);
            assert_eq!(html.lines().nth(2), Some(state), "{html}");
            assert!(!html.contains("class=\"response\""), "{html}");
        }
    }
}
