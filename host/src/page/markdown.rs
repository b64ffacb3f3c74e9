//! Renders Markdown of models as HTML. Shows raw HTML as text and images as links: no external content is loaded.

use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, html};

use super::bounds;

/// Maximum nesting of quotes and lists, and of inlines. The parser revisits all levels for each continued line.
const MAX_DEPTH: usize = 64;
/// Minimum indentation of the text of a list item.
const ITEM_COLUMNS: usize = 2;
const TAB_COLUMNS: usize = 4;

/// Renders the start of a Markdown text, which may be incomplete, with a notice about the rest. Shows it as code if it
/// nests too deeply or has too many table cells.
pub(super) fn render(text: &str) -> String {
    let text = &bounds::clip(text, bounds::MAX_MESSAGE_BYTES);
    let parser = || Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH);
    if lines(text).any(|line| depth(line) > MAX_DEPTH) || exceeds_bounds(parser(), text.len()) {
        return code(text);
    }
    let mut html = String::with_capacity(text.len().saturating_mul(2));
    html::push_html(&mut html, without_dead_links(parser()).map(harmless));
    html
}

/// Replaces links that lead nowhere with their text, and adds the target as code if the text does not contain it.
fn without_dead_links<'a>(events: impl Iterator<Item = Event<'a>>) -> impl Iterator<Item = Event<'a>> {
    // The open links: the target of each dead link and where its text begins; `None` for links that are kept.
    let mut open: Vec<Option<(CowStr<'a>, usize)>> = Vec::new();
    // Shared by the open links: nested ones with a copy each would use the square of their number.
    let mut text = String::new();
    events.flat_map(move |event| {
        let shown = if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = &event {
            let dead = (!leads_somewhere(dest_url)).then(|| (dest_url.clone(), text.len()));
            let is_kept = dead.is_none();
            open.push(dead);
            [is_kept.then_some(event), None]
        } else if let Event::End(TagEnd::Link | TagEnd::Image) = &event {
            match open.pop().flatten() {
                Some((target, from))
                    if target.is_empty() || target.starts_with('#') || text.get(from..) == Some(&*target) =>
                {
                    [None, None]
                }
                Some((target, _)) => [Some(Event::Text(" ".into())), Some(Event::Code(target))],
                None => [Some(event), None],
            }
        } else {
            if open.is_empty() {
                text.clear();
            } else if let Event::Text(part) | Event::Code(part) = &event {
                text.push_str(part);
            }
            [Some(event), None]
        };
        shown.into_iter().flatten()
    })
}

/// Returns whether inlines nest too deeply, or the tables have more than `most` cells. The parser fills short rows: a
/// small text may have 200,000.
fn exceeds_bounds<'a>(mut events: impl Iterator<Item = Event<'a>>, most: usize) -> bool {
    let (mut cells, mut depth) = (0_usize, 0_usize);
    events.any(|event| {
        if let Event::Start(tag) = event {
            cells = cells.saturating_add(usize::from(tag == Tag::TableCell));
            depth = depth.saturating_add(usize::from(is_inline(tag.to_end())));
        } else if let Event::End(tag) = event {
            depth = depth.saturating_sub(usize::from(is_inline(tag)));
        }
        cells > most || depth > MAX_DEPTH
    })
}

fn is_inline(tag: TagEnd) -> bool {
    matches!(tag, TagEnd::Link | TagEnd::Image | TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough)
}

fn code(text: &str) -> String {
    let (start, end) = (Tag::CodeBlock(CodeBlockKind::Indented), TagEnd::CodeBlock);
    let mut html = String::new();
    html::push_html(&mut html, [Event::Start(start), Event::Text(text.into()), Event::End(end)].into_iter());
    html
}

/// Returns the lines of a text. In Markdown, a carriage return also ends a line.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split(['\n', '\r'])
}

/// Returns an upper bound of the nesting level of a line that opens quotes or list items; 0 for other lines. Each level
/// needs a marker on the line, or two columns of indentation below an earlier item.
fn depth(line: &str) -> usize {
    let (mut rest, mut depth, mut columns, mut in_item) = (line, 0_usize, 0_usize, false);
    loop {
        let text = rest.trim_start_matches([' ', '\t']);
        let indentation = rest.get(..rest.len().saturating_sub(text.len())).unwrap_or_default();
        // After a list marker on this line, indentation cannot continue an earlier item.
        if !in_item {
            columns = indentation
                .bytes()
                .fold(columns, |columns, byte| columns.saturating_add(if byte == b'\t' { TAB_COLUMNS } else { 1 }));
        }
        if let Some(next) = text.strip_prefix('>') {
            // The space after `>` is a part of the marker.
            rest = next.strip_prefix(' ').unwrap_or(next);
        } else if let Some(next) = item_text(text) {
            (rest, in_item) = (next, true);
        } else {
            return if depth == 0 { 0 } else { depth.saturating_add(columns / ITEM_COLUMNS) };
        }
        depth = depth.saturating_add(1);
    }
}

fn item_text(line: &str) -> Option<&str> {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let marker = if number.len() < line.len() { ['.', ')'].as_slice() } else { ['-', '+', '*'].as_slice() };
    number.strip_prefix(marker).filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}

fn harmless(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(raw) | Event::InlineHtml(raw) => Event::Text(raw),
        // The target of a link is the only text that reaches an attribute. A language would become a class.
        Event::Start(Tag::CodeBlock(_)) => Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)),
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            let link_type = LinkType::Inline;
            Event::Start(Tag::Link { link_type, dest_url, title: "".into(), id: "".into() })
        }
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        // The page uses the first two levels of headings itself.
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

/// Returns whether the page links to a target. A relative target names a file of a workspace, which no view shows.
fn leads_somewhere(url: &str) -> bool {
    ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
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
            <p>bad <code>javascript:alert(1)</code> <a href=\"https://x.y/\">good</a></p>\n\
            <table><thead><tr><th>a</th></tr></thead><tbody>\n<tr><td>1</td></tr>\n</tbody></table>\n";
        assert_eq!(render(text), expected);
        // Positive control: without the filter, the tags are kept.
        let mut bare = String::new();
        html::push_html(&mut bare, Parser::new(text));
        assert!(bare.contains("<script>") && bare.contains("<img src=x"), "{bare}");
    }

    /// Attack: classes and ids that scripts and styles of the page select. The control: without the filter, a language
    /// adds one.
    #[test]
    fn model_text_reaches_no_attribute_but_targets() {
        let fences = "```x\task\na\n```\n\n~~~ y\u{c}skip\nb\n~~~\n\n# c {#approvals .ask onclick=x}\n\n";
        let links = "[d](https://x.y/ \"ask\") ![e](https://x.y/ 'skip')\n\n1. f\n";
        let expected = "<pre><code>a\n</code></pre>\n<pre><code>b\n</code></pre>\n\
            <h3>c {#approvals .ask onclick=x}</h3>\n\
            <p><a href=\"https://x.y/\">d</a> <a href=\"https://x.y/\">e</a></p>\n<ol>\n<li>f</li>\n</ol>\n";
        assert_eq!(render(&format!("{fences}{links}")), expected);
        let mut bare = String::new();
        html::push_html(&mut bare, Parser::new(fences));
        assert!(bare.contains("class=\"language-x\task\""), "{bare}");
    }

    #[test]
    fn link_that_leads_nowhere_is_shown_as_text() {
        for (text, html) in [
            ("[the *parser*](src/parse.rs)", "the <em>parser</em> <code>src/parse.rs</code>"),
            ("[src/parse.rs](src/parse.rs)", "src/parse.rs"),
            ("[`a.rs`](a.rs)", "<code>a.rs</code>"),
            ("[part](#part) [none]()", "part none"),
            ("[x](//evil.example/) [y](/s/1/cancel)", "x <code>//evil.example/</code> y <code>/s/1/cancel</code>"),
            ("[x](data:text/html,x)", "x <code>data:text/html,x</code>"),
            ("<a@b.c>", "a@b.c"),
            ("![shot](a.png)", "shot <code>a.png</code>"),
            ("[![shot](a.png)](https://x.y/)", "<a href=\"https://x.y/\">shot <code>a.png</code></a>"),
            ("[![shot](https://x.y/a.png)](b.md)", "<a href=\"https://x.y/a.png\">shot</a> <code>b.md</code>"),
            // Control: addresses with a known scheme stay links.
            ("[x](HTTP://x.y/) [y](mailto:a@b.c)", "<a href=\"HTTP://x.y/\">x</a> <a href=\"mailto:a@b.c\">y</a>"),
        ] {
            assert_eq!(render(text), format!("<p>{html}</p>\n"), "{text}");
        }
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
            // Positive control: blocks up to the limit are nested.
            let most = MAX_DEPTH / marker.split_whitespace().count();
            assert_eq!(render(&nested(marker, most)).matches(tag).count(), most, "{marker:?}");
            let deep = nested(marker, 2_000);
            assert_eq!(render(&deep), format!("<pre><code>{}</code></pre>\n", deep.replace('>', "&gt;")), "{marker:?}");
        }
        // These markers do not nest.
        assert_eq!(render(&"-".repeat(200)), "<hr />\n");
        assert_eq!(
            render(&format!("a {}", "> ".repeat(200))),
            format!("<p>a {}</p>\n", "&gt; ".repeat(200).trim_end())
        );
    }

    /// Returns the sum of the levels of quotes and items that are open at each block. The parser visits all of them.
    fn count_levels(text: &str) -> (usize, usize) {
        let (mut open, mut deepest, mut visits) = (0_usize, 0_usize, 0_usize);
        for event in Parser::new(text) {
            if let Event::Start(Tag::BlockQuote(_) | Tag::Item) = event {
                open += 1;
                (deepest, visits) = (deepest.max(open), visits + open);
            } else if let Event::End(TagEnd::BlockQuote(_) | TagEnd::Item) = event {
                open -= 1;
            }
        }
        (deepest, visits)
    }

    /// Returns a list in which each line continues the items of earlier lines, and opens `per_line` more.
    fn nested_list(marker: &str, per_line: usize, lines: usize) -> String {
        let step = marker.chars().count() * per_line;
        let line = |at: usize| format!("{}{}a\n", " ".repeat(at * step), marker.repeat(per_line));
        (0..lines).map(line).collect()
    }

    /// Counts visits instead of measuring time. Without the bound, they grow with the square of the levels.
    #[test]
    fn lists_nested_over_lines_are_bounded() {
        for (marker, per_line) in [("- ", 1), ("- ", 60), ("1. ", 20), ("+ ", 32)] {
            let deep = nested_list(marker, per_line, 320 / per_line);
            let (deepest, cost) = count_levels(&deep);
            assert!(deepest >= 300 && cost > deepest * deepest / 4, "control {marker:?}: {deepest}, {cost}");
            assert_eq!(render(&deep), code(&deep), "{marker:?}");
            let flat = nested_list(marker, 1, MAX_DEPTH / 2);
            assert_eq!(render(&flat).matches("<li>").count(), MAX_DEPTH / 2, "{marker:?}");
        }
        // Tabs, and lists within quotes.
        let tabs: String = (0..200).map(|at| format!("{}- a\n", "\t".repeat(at))).collect();
        let quoted: String = (0..200).map(|at| format!("> {}- a\n", "  ".repeat(at))).collect();
        let returns = nested_list("- ", 1, 200).replace('\n', "\r");
        for deep in [tabs, quoted, returns] {
            assert!(count_levels(&deep).0 > 100, "{deep}");
            assert_eq!(render(&deep), code(&deep));
        }
    }

    /// Compares the bound with the nesting that the parser finds.
    #[test]
    fn depth_of_lines_is_an_upper_bound() {
        let mut random = 7_u64;
        for _ in 0..2_000 {
            let mut text = String::new();
            for _ in 0..12 {
                for _ in 0..8 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let piece = [" ", "  ", "\t", "- ", "1. ", "> ", ">", "a", "-", "\r"][(random >> 33) as usize % 10];
                    text.push_str(piece);
                }
                text.push('\n');
            }
            let bound = lines(&text).map(depth).max().unwrap_or(0);
            assert!(count_levels(&text).0 <= bound, "{} > {bound}: {text:?}", count_levels(&text).0);
        }
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

    /// Each level of links costs all text inside it, and each level of any inline the browser's stack.
    #[test]
    fn inlines_nest_to_a_bound_and_deeper_text_is_code() {
        for (before, after, tag) in
            [("![", "](a)", "<code>a</code>"), ("![", "](http://x.y)", "<a href="), ("*a ", " a*", "<em>")]
        {
            let nested = |levels| format!("{}b{}", before.repeat(levels), after.repeat(levels));
            // Positive control: inlines up to the limit are nested.
            assert_eq!(render(&nested(MAX_DEPTH)).matches(tag).count(), MAX_DEPTH, "{before:?}");
            for levels in [MAX_DEPTH + 1, 1_000] {
                assert_eq!(render(&nested(levels)), code(&nested(levels)), "{before:?}");
            }
        }
    }

    #[test]
    fn markdown_beyond_the_size_limit_is_left_out() {
        let text = |bytes| "a".repeat(bytes);
        let most = bounds::MAX_MESSAGE_BYTES;
        assert_eq!(render(&text(most)), format!("<p>{}</p>\n", text(most)));
        let notice = "[1 bytes more: the API has them]";
        assert_eq!(render(&text(most + 1)), format!("<p>{}\n{notice}</p>\n", text(most)));
    }

    #[test]
    fn incomplete_markdown_is_rendered() {
        assert_eq!(render("a\n\n```rs\nfn "), "<p>a</p>\n<pre><code>fn </code></pre>\n");
    }
}
