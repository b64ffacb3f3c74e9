//! Renders Markdown of models as HTML. Raw HTML is shown as text, and images become links, so that no external content is
//! loaded.

use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, html};

/// Maximum nesting of quotes and lists in a line. The parser revisits all levels for each continued line.
const MAX_DEPTH: usize = 64;

/// Renders Markdown, also an incomplete text of a stream. A text with excessive nesting, or whose tables have more cells than it has
/// bytes, is shown as code.
pub(super) fn render(text: &str) -> String {
    let parser = || Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH);
    if text.lines().any(|line| depth(line) > MAX_DEPTH) || has_more_cells(parser(), text.len()) {
        return code(text);
    }
    let mut html = String::with_capacity(text.len().saturating_mul(2));
    html::push_html(&mut html, parser().map(harmless));
    html
}

/// Returns whether the tables have more cells than `most`. The parser adds those that rows lack, so a short text may have 200,000.
fn has_more_cells<'a>(mut events: impl Iterator<Item = Event<'a>>, most: usize) -> bool {
    let mut cells = 0_usize;
    events.any(|event| {
        cells = cells.saturating_add(usize::from(matches!(event, Event::Start(Tag::TableCell))));
        cells > most
    })
}

fn code(text: &str) -> String {
    let (start, end) = (Tag::CodeBlock(CodeBlockKind::Indented), TagEnd::CodeBlock);
    let mut html = String::new();
    html::push_html(&mut html, [Event::Start(start), Event::Text(text.into()), Event::End(end)].into_iter());
    html
}

/// Returns the number of quotes and list items that a line opens or may continue.
fn depth(line: &str) -> usize {
    let (mut rest, mut depth) = (line.trim_start(), 0_usize);
    while let Some(next) = rest.strip_prefix('>').or_else(|| item(rest)) {
        (rest, depth) = (next.trim_start(), depth.saturating_add(1));
    }
    depth
}

/// Returns the text after the marker of a list item.
fn item(line: &str) -> Option<&str> {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let marker = if number.len() < line.len() { ['.', ')'].as_slice() } else { ['-', '+', '*'].as_slice() };
    number.strip_prefix(marker).filter(|rest| rest.starts_with([' ', '\t']))
}

fn harmless(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(raw) | Event::InlineHtml(raw) => Event::Text(raw),
        Event::Start(Tag::Link { dest_url, title, .. } | Tag::Image { dest_url, title, .. }) => {
            Event::Start(Tag::Link { link_type: LinkType::Inline, dest_url: target(dest_url), title, id: "".into() })
        }
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        // The page itself uses the first two levels of headings.
        Event::Start(Tag::Heading { level, .. }) => {
            Event::Start(Tag::Heading { level: lower(level), id: None, classes: Vec::new(), attrs: Vec::new() })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lower(level))),
        other @ (Event::Start(_)
        | Event::End(_)
        | Event::Text(_)
        | Event::Code(_)
        | Event::InlineMath(_)
        | Event::DisplayMath(_)
        | Event::FootnoteReference(_)
        | Event::SoftBreak
        | Event::HardBreak
        | Event::Rule
        | Event::TaskListMarker(_)) => other,
    }
}

/// Returns the target of a link; `#` if its scheme is not allowed.
fn target(url: CowStr<'_>) -> CowStr<'_> {
    let known = ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    if known { url } else { "#".into() }
}

fn lower(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        HeadingLevel::H4 | HeadingLevel::H5 | HeadingLevel::H6 => HeadingLevel::H6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_rendered_without_the_html_in_it() {
        let text = "# Top\n\n*a* <img src=x onerror=alert(1)> ![shot](https://x.y/z.png)\n\n<script>alert(1)</script>\n\n\
                    [bad](javascript:alert(1)) [good](https://x.y/)\n\n| a |\n|---|\n| 1 |\n";
        let expected = "<h3>Top</h3>\n\
            <p><em>a</em> &lt;img src=x onerror=alert(1)&gt; <a href=\"https://x.y/z.png\">shot</a></p>\n\
            &lt;script&gt;alert(1)&lt;/script&gt;\n\
            <p><a href=\"#\">bad</a> <a href=\"https://x.y/\">good</a></p>\n\
            <table><thead><tr><th>a</th></tr></thead><tbody>\n<tr><td>1</td></tr>\n</tbody></table>\n";
        assert_eq!(render(text), expected);
        // Positive control: without the filter, the tags are kept.
        let mut bare = String::new();
        html::push_html(&mut bare, Parser::new(text));
        assert!(bare.contains("<script>") && bare.contains("<img src=x"), "{bare}");
    }

    #[test]
    fn blocks_nest_to_a_bound_and_deeper_text_is_code() {
        let nested = |marker: &str, times: usize| format!("{}{}", marker.repeat(times), "b\n".repeat(2_000));
        for (marker, tag) in [
            ("> ", "<blockquote>"),
            (">", "<blockquote>"),
            ("1. ", "<ol>"),
            ("+ ", "<ul>"),
            ("> 2) ", "<ol start=\"2\">"),
        ] {
            // Positive control: up to the limit, blocks are nested.
            let most = MAX_DEPTH / marker.split_whitespace().count();
            assert_eq!(render(&nested(marker, most)).matches(tag).count(), most, "{marker:?}");
            let deep = nested(marker, 2_000);
            assert_eq!(render(&deep), format!("<pre><code>{}</code></pre>\n", deep.replace('>', "&gt;")), "{marker:?}");
        }
        // Markers that do not nest.
        assert_eq!(render(&"-".repeat(200)), "<hr />\n");
        assert_eq!(
            render(&format!("a {}", "> ".repeat(200))),
            format!("<p>a {}</p>\n", "&gt; ".repeat(200).trim_end())
        );
    }

    #[test]
    fn table_with_more_cells_than_bytes_is_code() {
        let table =
            |columns, rows| format!("{}|\n{}|\n{}", "|a".repeat(columns), "|-".repeat(columns), "|b\n".repeat(rows));
        let wide = table(500, 500);
        assert_eq!(render(&wide), format!("<pre><code>{wide}</code></pre>\n"));
        // Positive control: a table whose rows lack few cells.
        assert_eq!(render(&table(3, 4)).matches("<td>").count(), 12);
    }

    #[test]
    fn incomplete_markdown_is_rendered() {
        assert_eq!(render("a\n\n```rs\nfn "), "<p>a</p>\n<pre><code class=\"language-rs\">fn </code></pre>\n");
    }
}
