//! Writes tables as Markdown. The library pads each cell to its column's width and each row to the longest one, and reads captions of
//! empty tables twice at each level, so pages of a few kilobytes took gigabytes and hours.

use std::rc::Rc;

use htmd::Element;
use htmd::element_handler::{HandlerResult, Handlers};
use markup5ever_rcdom::{Handle, NodeData};

/// Writes a table with headers that is not nested in a cell. For other tables, writes the text.
#[expect(clippy::needless_pass_by_value, reason = "the library requires this signature")]
pub(super) fn table(handlers: &dyn Handlers, element: Element<'_>) -> Option<HandlerResult> {
    let table = element.node;
    let (captions, rows) = if is_in_cell(table) || !has_header(table) { Default::default() } else { parts(table) };
    let mut rows = rows.iter().map(|row| write_row(handlers, row)).filter(|(columns, _)| *columns > 0);
    let Some((columns, header)) = rows.next() else {
        let content = handlers.walk_children(table).content;
        return Some(format!("\n\n{}\n\n", content.trim_matches('\n')).into());
    };
    let mut out = String::from("\n\n");
    for caption in captions {
        out.push_str(handlers.walk_children(&caption).content.trim());
        out.push('\n');
    }
    out.push_str(&header);
    out.push_str(&"| - ".repeat(columns));
    out.push_str("|\n");
    rows.for_each(|(_, row)| out.push_str(&row));
    out.push('\n');
    Some(out.into())
}

fn tag(node: &Handle) -> &str {
    if let NodeData::Element { name, .. } = &node.data { &name.local } else { "" }
}

fn children(node: &Handle, tags: &[&str]) -> Vec<Handle> {
    node.children.borrow().iter().filter(|child| tags.contains(&tag(child))).map(Rc::clone).collect()
}

/// Returns captions and rows.
fn parts(table: &Handle) -> (Vec<Handle>, Vec<Handle>) {
    let rows = children(table, &["thead", "tbody", "tfoot", "tr"]).into_iter().flat_map(|part| match tag(&part) {
        "tr" => vec![part],
        _ => children(&part, &["tr"]),
    });
    (children(table, &["caption"]), rows.collect())
}

/// Returns the number of cells of a row, and its line.
fn write_row(handlers: &dyn Handlers, row: &Handle) -> (usize, String) {
    let cells = children(row, &["td", "th"]);
    let cell = |cell: &Handle| {
        let content = handlers.walk_children(cell).content;
        format!("| {} ", content.trim().replace('\r', "").replace('\n', " ").replace('|', "&#124;"))
    };
    let line: String = cells.iter().map(cell).collect();
    (cells.len(), format!("{line}|\n"))
}

fn has_header(table: &Handle) -> bool {
    let mut nodes = table.children.borrow().clone();
    while let Some(node) = nodes.pop() {
        match tag(&node) {
            "th" | "thead" => return true,
            "table" => {}
            _ => nodes.extend(node.children.borrow().iter().map(Rc::clone)),
        }
    }
    false
}

fn is_in_cell(table: &Handle) -> bool {
    let mut at = parent(table);
    while let Some(node) = at {
        if matches!(tag(&node), "td" | "th") {
            return true;
        }
        at = parent(&node);
    }
    false
}

fn parent(node: &Handle) -> Option<Handle> {
    let parent = node.parent.take();
    let found = parent.as_ref().and_then(std::rc::Weak::upgrade);
    node.parent.set(parent);
    found
}
