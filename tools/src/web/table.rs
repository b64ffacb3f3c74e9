//! Writes tables as Markdown, instead of the library. The library pads cells to the width of their column, and rows to the length of
//! the longest row. It also reads captions of empty tables twice at each level. With the library, pages of a few kilobytes take
//! gigabytes and hours.

use std::rc::Rc;

use htmd::Element;
use htmd::element_handler::{HandlerResult, Handlers};
use markup5ever_rcdom::{Handle, NodeData};

/// Elements that make a cell more than one line of text. A table with such cells and without headers is a layout table.
const BLOCKS: &str = "address article aside blockquote center details div dl fieldset figure footer form h1 h2 h3 h4 h5 \
                      h6 header hr main menu nav ol p pre section table ul video";
const CELLS: [&str; 2] = ["td", "th"];

/// Writes a data table that is not nested in a cell. For other tables, writes only the text.
#[expect(clippy::needless_pass_by_value, reason = "the library requires this signature")]
pub(super) fn table(handlers: &dyn Handlers, element: Element<'_>) -> Option<HandlerResult> {
    let table = element.node;
    let is_written = !is_in_cell(table) && (has_header(table) || is_data(table));
    let (captions, mut nodes) = if is_written { parts(table) } else { Default::default() };
    nodes.retain(|row| !children(row, &CELLS).is_empty());
    let rows: Vec<(usize, String)> = nodes.iter().map(|row| write_row(handlers, row)).collect();
    let Some((first, header)) = rows.first() else {
        let content = handlers.walk_children(table).content;
        return Some(format!("\n\n{}\n\n", content.trim_matches('\n')).into());
    };
    let mut out = String::from("\n\n");
    for caption in captions {
        out.push_str(handlers.walk_children(&caption).content.trim());
        out.push('\n');
    }
    // Markdown has no table without a header.
    let has_header_row = nodes.first().is_some_and(is_header);
    let columns = if has_header_row { *first } else { rows.iter().map(|(columns, _)| *columns).max().unwrap_or(0) };
    if has_header_row {
        out.push_str(header);
    } else {
        out.push_str(&"|  ".repeat(columns));
        out.push_str("|\n");
    }
    out.push_str(&"| - ".repeat(columns));
    out.push_str("|\n");
    rows.iter().skip(usize::from(has_header_row)).for_each(|(_, row)| out.push_str(row));
    out.push('\n');
    Some(out.into())
}

fn tag(node: &Handle) -> &str {
    if let NodeData::Element { name, .. } = &node.data { &name.local } else { "" }
}

fn children(node: &Handle, tags: &[&str]) -> Vec<Handle> {
    node.children.borrow().iter().filter(|child| tags.contains(&tag(child))).map(Rc::clone).collect()
}

fn parts(table: &Handle) -> (Vec<Handle>, Vec<Handle>) {
    let rows = children(table, &["thead", "tbody", "tfoot", "tr"]).into_iter().flat_map(|part| match tag(&part) {
        "tr" => vec![part],
        _ => children(&part, &["tr"]),
    });
    (children(table, &["caption"]), rows.collect())
}

/// Returns the number of cells of a row, and its line.
fn write_row(handlers: &dyn Handlers, row: &Handle) -> (usize, String) {
    let cells = children(row, &CELLS);
    let cell = |cell: &Handle| {
        let content = handlers.walk_children(cell).content;
        format!("| {} ", content.trim().replace('\r', "").replace('\n', " ").replace('|', "&#124;"))
    };
    let line: String = cells.iter().map(cell).collect();
    (cells.len(), format!("{line}|\n"))
}

/// Returns whether a row contains the column headers.
fn is_header(row: &Handle) -> bool {
    parent(row).is_some_and(|part| tag(&part) == "thead") || children(row, &["td"]).is_empty()
}

/// Returns whether a table without headers has data: several columns of text.
fn is_data(table: &Handle) -> bool {
    let rows: Vec<Vec<Handle>> = parts(table).1.iter().map(|row| children(row, &CELLS)).collect();
    rows.iter().any(|cells| cells.len() > 1) && !has_block(rows.into_iter().flatten().collect())
}

/// Returns whether a block is below one of these nodes.
fn has_block(mut nodes: Vec<Handle>) -> bool {
    while let Some(node) = nodes.pop() {
        if BLOCKS.split(' ').any(|block| block == tag(&node)) {
            return true;
        }
        nodes.extend(node.children.borrow().iter().map(Rc::clone));
    }
    false
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
