//! Converts HTML to Markdown, with limits: the parser needs quadratic time for some pages, and both parser and writer are recursive.

use std::rc::Rc;
use std::time::Duration;

use htmd::HtmlToMarkdown;
use htmd::options::{BulletListMarker, HrStyle, Options};
use html5ever::tendril::{StrTendril, TendrilSink as _};
use html5ever::tree_builder::TreeBuilderOpts;
use html5ever::{Attribute, ParseOpts, local_name, parse_document};
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use reqwest::Url;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::table;
use crate::tool::ToolError;
use tree::BoundedTree;

mod tree;

/// Maximum nesting of written elements.
const MAX_WRITTEN_DEPTH: usize = 200;
/// Maximum estimated size of the result. Without this limit, a small page could become gigabytes: addresses become absolute, each block
/// repeats the open elements, and lists and quotes indent each line.
const MAX_RESULT: usize = 8 << 20;
/// Maximum bytes by which one list or quote indents a line.
const MAX_INDENT: usize = 12;
/// Maximum number of children of one element, because the writer needs quadratic time to join equal neighbours.
const MAX_CHILDREN: usize = 20_000;
/// Maximum bytes that the writer copies to join equal neighbours: for each of them, the text of all before it.
const MAX_JOINED: usize = 1 << 30;
/// Blocks with short texts, of which pages have many. The writer joins no blocks.
const BLOCKS: [&str; 16] =
    ["p", "li", "div", "td", "th", "tr", "dd", "dt", "option", "pre", "h1", "h2", "h3", "h4", "h5", "h6"];
/// Maximum bytes of an address in a page. Longer addresses are omitted.
const MAX_ADDRESS: usize = 8 << 10;
/// Number of bytes parsed between checks of the limits. One byte can create as many elements as are open; the tree keeps none of
/// them beyond its limits.
const CHUNK: usize = 256;
/// Stack size of the thread, for [`MAX_WRITTEN_DEPTH`] levels with several calls each.
const STACK_BYTES: usize = 32 << 20;
const PARSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Elements whose text is not content.
const SKIPPED: [&str; 7] = ["script", "style", "template", "svg", "iframe", "object", "canvas"];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Markdown {
    pub(super) text: String,
    /// True if a limit caused the omission of a part.
    pub(super) is_cut: bool,
}

/// Decodes and converts a page on a separate thread. A drop of the future stops the thread early. The thread releases the permit when it
/// ends.
pub(super) async fn convert(
    decode: impl FnOnce() -> String + Send + 'static,
    base: Url,
    permit: impl Send + 'static,
) -> Result<Markdown, ToolError> {
    let failed = |why: &dyn std::fmt::Display| ToolError::failed(format!("the page cannot be converted: {why}"));
    let stop = CancellationToken::new();
    let (send, mut receive) = oneshot::channel();
    let stopped: DropGuard = stop.clone().drop_guard();
    let work = move || {
        // An error means that the call has ended.
        drop(send.send(markdown(&decode(), &base, &|| stop.is_cancelled())));
        drop(permit);
    };
    let thread = std::thread::Builder::new().name("page".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(work).map_err(|error| failed(&error))?;
    let received = match tokio::time::timeout(PARSE_TIMEOUT, &mut receive).await {
        Ok(received) => received,
        Err(_) => {
            drop(stopped);
            receive.await
        }
    };
    let received = received.map_err(|_| failed(&"the converter panicked"))?;
    received.ok_or_else(|| failed(&format!("its elements take more than {} MiB", tree::MAX_BYTES >> 20)))
}

/// Converts a page; `None` if its tree would be too large. Parsing ends early when `stops` returns true.
fn markdown(html: &str, base: &Url, stops: &dyn Fn() -> bool) -> Option<Markdown> {
    let (dom, unparsed) = parse(html, stops)?;
    let unwritten = prepare(&dom.document, base) | limit_joins(&dom.document);
    let options = Options {
        bullet_list_marker: BulletListMarker::Dash,
        hr_style: HrStyle::Dashes,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    let writer = HtmlToMarkdown::builder().options(options).skip_tags(SKIPPED.to_vec());
    let writer = writer.add_handler(vec!["table"], table::table).build();
    Some(Markdown { text: writer.tree_to_markdown(&dom.document), is_cut: unparsed || unwritten })
}

/// Returns the tree, and whether the rest of the page was omitted; `None` if the tree would be too large.
fn parse(html: &str, stops: &dyn Fn() -> bool) -> Option<(RcDom, bool)> {
    let tree_builder = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
    let mut parser = parse_document(BoundedTree::default(), ParseOpts { tree_builder, ..ParseOpts::default() });
    let mut rest = html;
    while !rest.is_empty() {
        let tree = &parser.tokenizer.sink.sink;
        if tree.is_full() || tree.is_deep() || stops() {
            break;
        }
        let (piece, after) = rest.split_at(rest.ceil_char_boundary(CHUNK));
        parser.process(StrTendril::from(piece));
        rest = after;
    }
    let (dom, is_cut) = parser.finish()?;
    Some((dom, is_cut || !rest.is_empty()))
}

/// Removes parts that are nested too deeply or would become too large, and makes addresses absolute. Returns whether a part was removed.
fn prepare(document: &Handle, base: &Url) -> bool {
    let mut is_cut = false;
    let mut left = MAX_RESULT;
    let mut nodes = vec![(Rc::clone(document), NodeContext::default())];
    while let Some((node, context)) = nodes.pop() {
        let mut context = context;
        match &node.data {
            NodeData::Element { name, attrs, .. } => {
                context.depth = context.depth.saturating_add(1);
                match name.local {
                    local_name!("li") | local_name!("blockquote") => {
                        context.indents = context.indents.saturating_add(1)
                    }
                    local_name!("code") => context.codes = context.codes.saturating_add(1),
                    _ => {}
                }
                let mut attrs = attrs.borrow_mut();
                attrs.retain_mut(|attribute| keep_attribute(attribute, base));
                let bytes = attrs.iter().map(|attribute| attribute.value.len()).fold(0, usize::saturating_add);
                // An element may add a line break before and after it.
                if !context.try_charge(&mut left, bytes, 2) {
                    attrs.clear();
                    left = 0;
                }
            }
            NodeData::Text { contents } => {
                let mut text = contents.borrow_mut();
                let lines = text.bytes().filter(|byte| *byte == b'\n').count();
                if !context.try_charge(&mut left, text.len(), lines) {
                    text.clear();
                    left = 0;
                }
            }
            NodeData::Document
            | NodeData::Doctype { .. }
            | NodeData::Comment { .. }
            | NodeData::ProcessingInstruction { .. } => {}
        }
        let mut children = node.children.borrow_mut();
        let limit = if context.depth >= MAX_WRITTEN_DEPTH || left == 0 { 0 } else { MAX_CHILDREN };
        is_cut |= left == 0 || children.len() > limit;
        children.truncate(limit);
        // Visit nodes in page order, so that the end of the page is omitted.
        nodes.extend(children.iter().rev().map(|child| (Rc::clone(child), context)));
    }
    is_cut
}

/// Removes neighbours that the writer would join at too high a cost. Returns whether a part was removed.
fn limit_joins(document: &Handle) -> bool {
    let (mut is_cut, mut left) = (false, MAX_JOINED);
    let mut nodes = vec![Rc::clone(document)];
    while let Some(node) = nodes.pop() {
        let mut children = node.children.borrow_mut();
        let count = affordable(&children, &mut left);
        is_cut |= count < children.len();
        children.truncate(count);
        nodes.extend(children.iter().rev().map(Rc::clone));
    }
    is_cut
}

/// Charges the joins of some children to the budget `left`. Returns the number of children that it covers.
fn affordable(children: &[Handle], left: &mut usize) -> usize {
    // The previous child, and the bytes of the text that it would be joined to.
    let mut joined: Option<(&Handle, usize)> = None;
    for (count, child) in children.iter().enumerate() {
        let text = inline_text(child);
        joined = match (joined, text) {
            (Some((previous, before)), Some(text)) if have_equal_attributes(previous, child) => {
                let bytes = before.saturating_add(text);
                let Some(rest) = left.checked_sub(bytes) else { return count };
                *left = rest;
                Some((child, bytes))
            }
            (Some(_) | None, text) => text.map(|text| (child, text)),
        };
    }
    children.len()
}

/// Returns the bytes of the text of an element that the writer may join to another one: its only child is a text.
fn inline_text(node: &Handle) -> Option<usize> {
    let NodeData::Element { name, .. } = &node.data else { return None };
    let children = node.children.borrow();
    let [child] = children.as_slice() else { return None };
    let NodeData::Text { contents } = &child.data else { return None };
    (!BLOCKS.contains(&&*name.local)).then(|| contents.borrow().len())
}

fn have_equal_attributes(one: &Handle, other: &Handle) -> bool {
    let NodeData::Element { attrs: one, .. } = &one.data else { return false };
    let NodeData::Element { attrs: other, .. } = &other.data else { return false };
    one == other
}

#[derive(Clone, Copy, Default)]
struct NodeContext {
    depth: usize,
    /// Number of enclosing elements that indent each line.
    indents: usize,
    /// Number of enclosing `code` elements. The writer searches the text once for each of them.
    codes: usize,
}

impl NodeContext {
    /// Charges the cost of a text to the budget `left`. Returns false if the budget is too small.
    fn try_charge(self, left: &mut usize, bytes: usize, lines: usize) -> bool {
        let indents = lines.saturating_mul(MAX_INDENT).saturating_mul(self.indents);
        let cost = bytes.saturating_mul(self.codes.saturating_add(1)).saturating_add(lines).saturating_add(indents);
        let rest = left.checked_sub(cost);
        *left = rest.unwrap_or(*left);
        rest.is_some()
    }
}

/// Makes the address in an attribute absolute. Returns whether to keep the attribute: only web and mail addresses are kept.
fn keep_attribute(attribute: &mut Attribute, base: &Url) -> bool {
    if !matches!(attribute.name.local, local_name!("href") | local_name!("src")) {
        return true;
    }
    if attribute.value.len() > MAX_ADDRESS {
        return false;
    }
    match base.join(&attribute.value) {
        Ok(absolute) if matches!(absolute.scheme(), "http" | "https" | "mailto") => {
            attribute.value = StrTendril::from(absolute.as_str());
            true
        }
        Ok(_) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    fn page() -> Url {
        Url::parse("https://example.org/a/b").unwrap()
    }

    async fn convert_html(html: &str) -> Markdown {
        let html = html.to_owned();
        convert(|| html, page(), ()).await.unwrap()
    }

    #[tokio::test]
    async fn page_becomes_markdown_with_absolute_addresses() {
        let html = "<!doctype html><html><head><title>T</title><style>p {}</style><script>evil()</script></head><body>\
             <h1>Head</h1><p>One <b>two</b> <a href=\"../c?d#e\">three</a> <a href=\"javascript:evil()\">four</a></p>\
             <ul><li>a<li>b</ul><pre><code>x\n  y</code></pre><img src=\"data:image/png;base64,AAAA\" alt=\"dot\">\
             <table><tr><th>h</th></tr><tr><td>c</td></tr></table>";
        let text = "T\n\n# Head\n\nOne **two** [three](https://example.org/c?d#e) four\n\n- a\n- b\n\n```\nx\n  y\n```\n\n\
             | h |\n| - |\n| c |";
        assert_eq!(convert_html(html).await, Markdown { text: text.to_owned(), is_cut: false });
    }

    /// Attack: calls that end while their pages are converted. The control: the permit is free after the thread.
    #[tokio::test]
    async fn thread_of_an_ended_call_keeps_its_permit() {
        static PERMITS: Semaphore = Semaphore::const_new(1);
        let (sender, receiver) = std::sync::mpsc::channel::<String>();
        let permit = PERMITS.acquire().await.unwrap();
        let call = convert(move || receiver.recv().unwrap_or_default(), page(), permit);
        assert!(call.now_or_never().is_none());
        assert_eq!(PERMITS.available_permits(), 0);
        sender.send("<p>x".to_owned()).unwrap();
        assert!(PERMITS.acquire().await.is_ok());
    }

    /// Without limits, each of these pages would take minutes or gigabytes, or overflow the stack.
    #[tokio::test]
    async fn decompression_bombs_are_truncated() {
        let most = 4 << 20;
        let filled = |start: &str, rest: &str| start.to_owned() + &rest.repeat((most - start.len()) / rest.len());
        let link = format!("<p><a href=\"/{}\">x", "y".repeat(64));
        for (name, html) in [
            ("a link that is open in each block", filled(&link, "<p>x")),
            ("lines in quotes", filled(&("<blockquote>".repeat(150) + "<pre>"), "a\n")),
            ("lines in lists", filled(&("<ol start=2147483647><li>".repeat(90) + "<pre>"), "a\n")),
            ("code in code", filled(&("<code>".repeat(150) + &"` ".repeat(1 << 20)), &"`".repeat(1_500))),
            ("equal elements", filled("", "<i>x</i>")),
            (
                "equal elements after a long one",
                format!("<b>{}</b>{}", "x".repeat(3_900_000), "<b>x</b>".repeat(9_999)),
            ),
        ] {
            let begun = tokio::time::Instant::now();
            let cut = convert_html(&html).await;
            let took = begun.elapsed();
            assert!(cut.is_cut && cut.text.len() <= 2 * MAX_RESULT, "{name}: {} bytes", cut.text.len());
            assert!(took < Duration::from_secs(60), "{name}: {took:?}");
        }
        // The control: a page of the same size that does not expand is complete.
        let whole = convert_html(&filled("<pre>", "a line of text, as long as lines of text are\n")).await;
        assert!(!whole.is_cut && whole.text.len() > most - 100, "{} bytes", whole.text.len());
        // So are pages with as many blocks, and with as many elements that differ.
        let long = "x".repeat(3_600_000);
        for rest in ["<p>x</p>", "<b class=a>x</b><b class=b>x</b>"] {
            assert!(!convert_html(&format!("<p>{long}</p>{}", rest.repeat(9_999))).await.is_cut, "{rest}");
        }
    }

    /// The parser repeats open formatting elements in each block, with their attributes: small pages would become gigabytes.
    #[tokio::test]
    async fn page_whose_tree_is_too_large_is_refused() {
        let attributes: String = (0..200).map(|ix| format!(" a{ix}")).collect();
        let formats = |names: &str| names.split(' ').map(|name| format!("<{name}{attributes}>")).collect::<String>();
        let many = "<p>".to_owned() + &formats("b big code em font i s small strike strong tt u") + "</p>";
        let link = format!("<p><a href=\"/{}\">x", "y".repeat(1 << 19));
        let too_large = ToolError::failed("the page cannot be converted: its elements take more than 96 MiB");
        for (name, html) in [
            ("formats with attributes", many.clone() + &"<p>x</p>".repeat(11_000)),
            ("a long link", link.clone() + &"<p>x".repeat(11_000)),
        ] {
            assert_eq!(markdown(&html, &page(), &|| false), None, "{name}");
        }
        let full = link.clone() + &"<p>x".repeat(11_000);
        assert_eq!(convert(|| full, page(), ()).await, Err(too_large));
        // The control: with fewer blocks, the same elements are converted.
        for html in [many + &"<p>x</p>".repeat(100), link + &"<p>x".repeat(99)] {
            let whole = convert_html(&html).await;
            assert_eq!((whole.text.matches('x').count(), whole.is_cut), (100, false));
        }
    }

    /// Each relative address repeats a long base address.
    #[tokio::test]
    async fn total_size_of_addresses_is_bounded() {
        let base = Url::parse(&format!("https://example.org/{}", "y".repeat(8_000))).unwrap();
        let cut = convert(|| "<a href=\"#\">x</a> ".repeat(100_000), base, ()).await.unwrap();
        assert!(cut.is_cut && cut.text.len() <= 2 * MAX_RESULT, "{} bytes", cut.text.len());
        let whole = convert(|| "<a href=\"#\">x</a> ".repeat(100), page(), ()).await.unwrap();
        assert!(!whole.is_cut && whole.text.len() > 2_500);
    }

    /// Tables with wide columns or long rows, and nested tables with captions.
    #[tokio::test]
    async fn table_bombs_are_bounded() {
        let wide = format!("<table><tr><th>{}</th></tr>{}", "x".repeat(2 << 20), "<tr><td>".repeat(60_000));
        let many = format!("<table><tr>{}</tr>{}", "<th>".repeat(15_000), "<tr><td>".repeat(15_000));
        let nested = "<table><thead></thead><caption>".repeat(90) + "x";
        let cells = "<table><tr><th>|".repeat(60) + "x";
        for (name, html) in [("wide", wide), ("many", many), ("nested", nested), ("cells", cells)] {
            let begun = tokio::time::Instant::now();
            let table = convert_html(&html).await;
            let took = begun.elapsed();
            assert!(table.text.len() <= 2 * MAX_RESULT, "{name}: {} bytes", table.text.len());
            assert!(took < Duration::from_secs(60), "{name}: {took:?}");
        }
        let text = "C\n| a | b |\n| - | - |\n| 1 | 2&#124;3 |\n| 4 |";
        let html = "<table><caption>C</caption><thead><tr><th>a<th>b</thead><tbody><tr><td>1<td>2|3<tr><td>4</table>";
        assert_eq!(convert_html(html).await, Markdown { text: text.to_owned(), is_cut: false });
        // Layout tables, and tables within cells, become text.
        let layout = "<table><tr><td>a<td><table><tr><th>b<td>c</table></table>";
        assert_eq!(convert_html(layout).await.text, "a\n\nb\n\nc");
    }

    /// The control: a layout table, whose cells have blocks, stays text.
    #[tokio::test]
    async fn table_without_a_header_row_keeps_its_rows() {
        let data = "<table><tr><td>a<td>1|2<tr><td>b<br>c<td>3<td>4<tr><tr><td><a href='x'>d</a></table>";
        let rows = "|  |  |  |\n| - | - | - |\n| a | 1&#124;2 |\n| b   c | 3 | 4 |\n| [d](https://example.org/a/x) |";
        assert_eq!(convert_html(data).await.text, rows);
        // Header cells of rows are not column headers.
        let named = "<table><caption>C</caption><tr><th>a<td>1<tr><th>b<td>2</table>";
        assert_eq!(convert_html(named).await.text, "C\n|  |  |\n| - | - |\n| a | 1 |\n| b | 2 |");
        let layout = "<table><tr><td><p>a<td><ul><li>b</ul></table>";
        assert_eq!(convert_html(layout).await.text, "a\n\n- b");
        let column = "<table><tr><td>a<tr><td>b</table>";
        assert_eq!(convert_html(column).await.text, "a\n\nb");
    }

    #[tokio::test]
    async fn oversized_pages_are_truncated() {
        let formats: String = (0..500).map(|ix| format!("<b a{ix}>")).collect();
        let hidden: String = (0..2_000).map(|ix| format!("<p><b a{ix}>x</p>")).collect();
        for (name, html) in [
            ("blocks", "<div>".repeat(400_000)),
            ("lists", "<ul><li>".repeat(200_000)),
            ("quotes", "<blockquote>".repeat(200_000)),
            ("links", "<a><div>".repeat(200_000)),
            ("tables", "<table><td>".repeat(200_000)),
            ("formats", formats + &"<p>x".repeat(500_000)),
            ("formats that are closed", hidden + &"<p>x".repeat(500_000)),
            ("elements", "<p>x".repeat(1_000_000)),
            ("comments", "<!---->".repeat(500_000)),
        ] {
            let cut = convert_html(&html).await;
            assert!(cut.is_cut && cut.text.len() < 8 << 20, "{name}: {} bytes", cut.text.len());
        }
    }
}
