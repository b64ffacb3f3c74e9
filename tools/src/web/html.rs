//! HTML to Markdown, within bounds: the parser takes quadratic time for some pages, and both it and the writer follow the nesting.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use htmd::HtmlToMarkdown;
use htmd::options::{BulletListMarker, HrStyle, Options};
use html5ever::tendril::{StrTendril, TendrilSink as _};
use html5ever::tree_builder::{ElementFlags, NodeOrText, QuirksMode, TreeBuilderOpts, TreeSink};
use html5ever::{Attribute, ExpandedName, ParseOpts, QualName, local_name, parse_document};
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use reqwest::Url;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::tool::ToolError;

/// Elements and comments of one page.
const ELEMENTS: usize = 150_000;
/// Levels of a page at which parsing stops.
const PARSED: usize = 512;
/// Levels of a page that are written.
const WRITTEN: usize = 200;
/// Bytes that are parsed before the bounds are checked. One of them may make as many elements as are open.
const PIECE: usize = 256;
/// The stack of the thread: [`WRITTEN`] levels, each of which takes several calls.
const STACK: usize = 32 << 20;
/// Time to parse.
const PARSING: Duration = Duration::from_secs(5);

/// Elements whose text is not for readers.
const SKIPPED: [&str; 7] = ["script", "style", "template", "svg", "iframe", "object", "canvas"];

/// A page as Markdown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Markdown {
    pub(super) text: String,
    /// Whether a bound left something out.
    pub(super) is_cut: bool,
}

/// Converts a page on a thread of its own. It ends early when this is dropped, and gives back the permit when it ends.
pub(super) async fn convert(html: String, base: Url, permit: OwnedSemaphorePermit) -> Result<Markdown, ToolError> {
    let failed = |why: &dyn std::fmt::Display| ToolError::failed(format!("the page cannot be converted: {why}"));
    let stop = CancellationToken::new();
    let (send, mut receive) = oneshot::channel();
    let stopped: DropGuard = stop.clone().drop_guard();
    let work = move || {
        // The call may have ended.
        drop(send.send(markdown(&html, &base, &|| stop.is_cancelled())));
        drop(permit);
    };
    let thread = std::thread::Builder::new().name("page".to_owned()).stack_size(STACK);
    thread.spawn(work).map_err(|error| failed(&error))?;
    let received = match tokio::time::timeout(PARSING, &mut receive).await {
        Ok(received) => received,
        Err(_) => {
            drop(stopped);
            receive.await
        }
    };
    received.map_err(|_| failed(&"its structure breaks the converter"))
}

/// Converts a page; `stops` ends the parsing early.
fn markdown(html: &str, base: &Url, stops: &dyn Fn() -> bool) -> Markdown {
    let (dom, unparsed) = parse(html, stops);
    let unwritten = prepare(&dom.document, base);
    let options = Options {
        bullet_list_marker: BulletListMarker::Dash,
        hr_style: HrStyle::Dashes,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    let writer = HtmlToMarkdown::builder().options(options).skip_tags(SKIPPED.to_vec()).build();
    Markdown { text: writer.tree_to_markdown(&dom.document), is_cut: unparsed || unwritten }
}

/// Returns the tree, and whether the rest of the page was left out.
fn parse(html: &str, stops: &dyn Fn() -> bool) -> (RcDom, bool) {
    let tree_builder = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
    let mut parser = parse_document(BoundedTree::default(), ParseOpts { tree_builder, ..ParseOpts::default() });
    let mut rest = html;
    while !rest.is_empty() {
        let tree = &parser.tokenizer.sink.sink;
        if tree.made.get() > ELEMENTS || tree.is_deep() || stops() {
            break;
        }
        let (piece, after) = rest.split_at(rest.ceil_char_boundary(PIECE));
        parser.process(StrTendril::from(piece));
        rest = after;
    }
    (parser.finish(), !rest.is_empty())
}

/// Removes what is nested too deeply, and makes addresses whole. Returns whether something was removed.
fn prepare(document: &Handle, base: &Url) -> bool {
    let mut is_cut = false;
    let mut nodes = vec![(Rc::clone(document), 0_usize)];
    while let Some((node, depth)) = nodes.pop() {
        if let NodeData::Element { attrs, .. } = &node.data {
            attrs.borrow_mut().retain_mut(|attribute| is_kept(attribute, base));
        }
        let mut children = node.children.borrow_mut();
        if depth >= WRITTEN {
            is_cut |= !children.is_empty();
            children.clear();
        }
        nodes.extend(children.iter().map(|child| (Rc::clone(child), depth.saturating_add(1))));
    }
    is_cut
}

/// Makes an address whole, and returns whether the attribute is kept: addresses of the web and of mail are.
fn is_kept(attribute: &mut Attribute, base: &Url) -> bool {
    if !matches!(attribute.name.local, local_name!("href") | local_name!("src")) {
        return true;
    }
    match base.join(&attribute.value) {
        Ok(whole) if matches!(whole.scheme(), "http" | "https" | "mailto") => {
            attribute.value = StrTendril::from(whole.as_str());
            true
        }
        Ok(_) | Err(_) => false,
    }
}

/// A tree that counts what it is made of, and keeps no list of errors.
#[derive(Default)]
struct BoundedTree {
    dom: RcDom,
    made: Cell<usize>,
}

impl BoundedTree {
    fn count(&self) {
        self.made.set(self.made.get().saturating_add(1));
    }

    /// Returns whether the elements that are open are nested deeply: they are the last ones of each level.
    fn is_deep(&self) -> bool {
        let mut at = Rc::clone(&self.dom.document);
        for _ in 0..PARSED {
            let Some(last) = at.children.borrow().last().map(Rc::clone) else { return false };
            at = last;
        }
        true
    }
}

impl TreeSink for BoundedTree {
    type Handle = Handle;
    type Output = RcDom;
    type ElemName<'a> = ExpandedName<'a>;

    fn finish(self) -> RcDom {
        self.dom
    }

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> Handle {
        self.dom.get_document()
    }

    fn elem_name<'a>(&'a self, target: &'a Handle) -> ExpandedName<'a> {
        self.dom.elem_name(target)
    }

    fn create_element(&self, name: QualName, attrs: Vec<Attribute>, flags: ElementFlags) -> Handle {
        self.count();
        self.dom.create_element(name, attrs, flags)
    }

    fn create_comment(&self, text: StrTendril) -> Handle {
        self.count();
        self.dom.create_comment(text)
    }

    fn create_pi(&self, target: StrTendril, data: StrTendril) -> Handle {
        self.count();
        self.dom.create_pi(target, data)
    }

    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        self.dom.append(parent, child);
    }

    fn append_based_on_parent_node(&self, element: &Handle, previous: &Handle, child: NodeOrText<Handle>) {
        self.dom.append_based_on_parent_node(element, previous, child);
    }

    fn append_doctype_to_document(&self, name: StrTendril, public: StrTendril, system: StrTendril) {
        self.dom.append_doctype_to_document(name, public, system);
    }

    fn get_template_contents(&self, target: &Handle) -> Handle {
        self.dom.get_template_contents(target)
    }

    fn same_node(&self, one: &Handle, other: &Handle) -> bool {
        self.dom.same_node(one, other)
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.dom.set_quirks_mode(mode);
    }

    fn append_before_sibling(&self, sibling: &Handle, node: NodeOrText<Handle>) {
        self.dom.append_before_sibling(sibling, node);
    }

    fn add_attrs_if_missing(&self, target: &Handle, attrs: Vec<Attribute>) {
        self.dom.add_attrs_if_missing(target, attrs);
    }

    fn remove_from_parent(&self, target: &Handle) {
        self.dom.remove_from_parent(target);
    }

    fn reparent_children(&self, node: &Handle, parent: &Handle) {
        self.dom.reparent_children(node, parent);
    }

    fn is_mathml_annotation_xml_integration_point(&self, target: &Handle) -> bool {
        self.dom.is_mathml_annotation_xml_integration_point(target)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    fn page() -> Url {
        Url::parse("https://example.org/a/b").unwrap()
    }

    async fn converted(html: &str) -> Markdown {
        let permit = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        convert(html.to_owned(), page(), permit).await.unwrap()
    }

    #[tokio::test]
    async fn a_page_becomes_markdown_with_whole_addresses() {
        let html = "<!doctype html><html><head><title>T</title><style>p {}</style><script>evil()</script></head><body>\
             <h1>Head</h1><p>One <b>two</b> <a href=\"../c?d#e\">three</a> <a href=\"javascript:evil()\">four</a></p>\
             <ul><li>a<li>b</ul><pre><code>x\n  y</code></pre><img src=\"data:image/png;base64,AAAA\" alt=\"dot\">\
             <table><tr><th>h</th></tr><tr><td>c</td></tr></table>";
        let text = "T\n\n# Head\n\nOne **two** [three](https://example.org/c?d#e) four\n\n- a\n- b\n\n```\nx\n  y\n```\n\n\
             | h |\n| - |\n| c |";
        assert_eq!(converted(html).await, Markdown { text: text.to_owned(), is_cut: false });
    }

    /// Each of these takes minutes, gigabytes or more stack than there is where a bound is missing.
    #[tokio::test]
    async fn pages_that_are_bombs_are_cut() {
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
            let cut = converted(&html).await;
            assert!(cut.is_cut && cut.text.len() < 8 << 20, "{name}: {} bytes", cut.text.len());
        }
    }
}
