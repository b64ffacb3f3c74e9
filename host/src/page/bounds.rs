//! Size limits for the HTML of a view. A notice says how much was left out and where to read it.

use std::fmt;

use askama::Template;
use subtend_session::ids::{Seq, SessionId};
use subtend_tools::escape::harmless;

/// Maximum size in bytes of shown arguments and results.
pub(super) const MAX_RESULT_BYTES: usize = 64 << 10;
pub(super) const MAX_MESSAGE_BYTES: usize = 256 << 10;
/// Maximum size in bytes of the HTML of one entry.
pub(super) const MAX_ENTRY_BYTES: usize = 1 << 20;
/// Maximum size in bytes of the HTML of all entries of a view.
pub(super) const MAX_ENTRIES_BYTES: usize = 8 << 20;
pub(super) const MAX_HTML_BYTES: usize = 16 << 20;
/// Lower bound of the HTML of a part of an entry, without its text.
const PART_HTML_BYTES: usize = 20;

/// Returns a text, truncated to `most` bytes with a notice about the rest.
pub(super) fn clip(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most);
    format!(
        "{}\n[{} bytes more: the API has them]",
        text.get(..end).unwrap_or_default(),
        text.len().saturating_sub(end)
    )
}

/// HTML that is never longer than a bound: writing more of it fails, so that the rest is not rendered.
struct BoundedHtml {
    html: String,
    most: usize,
    is_full: bool,
    names_invisible: bool,
}

impl BoundedHtml {
    fn push(&mut self, text: &str) -> fmt::Result {
        self.check_room(text)?;
        self.html.push_str(text);
        Ok(())
    }

    fn check_room(&mut self, text: &str) -> fmt::Result {
        self.is_full |= text.len() > self.most.saturating_sub(self.html.len());
        if self.is_full { Err(fmt::Error) } else { Ok(()) }
    }
}

impl fmt::Write for BoundedHtml {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.check_room(text)?;
        let named = if self.names_invisible { harmless(text) } else { String::new() };
        if named.is_empty() || named == text {
            return self.push(text);
        }
        // Texts are already escaped, so only inserted names begin with `<U+`.
        let mut parts = named.split("<U+");
        self.push(parts.next().unwrap_or_default())?;
        parts.try_for_each(|part| self.push("&lt;U+").and_then(|()| self.push(&part.replacen('>', "&gt;", 1))))
    }
}

/// Renders a view; `None` if it has more than `most` bytes of HTML. They are counted as they are written, since escaping makes a text
/// five times as long. With `names_invisible`, characters that are not seen are replaced with their names.
///
/// # Errors
/// The error of the template.
pub(super) fn render(view: &impl Template, most: usize, names_invisible: bool) -> askama::Result<Option<String>> {
    let mut into = BoundedHtml { html: String::new(), most, is_full: false, names_invisible };
    match view.render_into(&mut into) {
        Ok(()) => Ok(Some(into.html)),
        Err(_) if into.is_full => Ok(None),
        Err(error) => Err(error),
    }
}

/// Builds parts of an entry up to the first that it has no room for; `size` counts the text that a part shows. The entry is then too
/// long, so none of its parts is shown.
pub(super) fn build_parts<V>(parts: impl Iterator<Item = V>, size: impl Fn(&V) -> usize) -> Vec<V> {
    let mut bytes = 0_usize;
    let fits = |part: &V| {
        let fits = bytes <= MAX_ENTRY_BYTES;
        bytes = bytes.saturating_add(size(part)).saturating_add(PART_HTML_BYTES);
        fits
    };
    parts.take_while(fits).collect()
}

/// Returns the newest parts that fit within `most` bytes together, oldest first. `parts` begin with the newest; others are not built.
pub(super) fn newest_within<T>(parts: impl Iterator<Item = T>, most: usize, size: impl Fn(&T) -> usize) -> Vec<T> {
    let mut bytes = 0_usize;
    let fits = |part: &T| {
        bytes = bytes.saturating_add(size(part));
        bytes <= most
    };
    let mut newest: Vec<T> = parts.take_while(fits).collect();
    newest.reverse();
    newest
}

/// Returns the notice for an entry with too much HTML, with the address of the whole entry.
pub(super) fn entry_left_out(session: SessionId, record: Seq) -> String {
    let after = record.0.saturating_sub(1);
    format!(
        "[this entry has more than {MAX_ENTRY_BYTES} bytes of HTML: \
         GET /v1/sessions/{session}/transcript?after={after}&limit=1 has all of it]"
    )
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[derive(Template)]
    #[template(source = "{% for part in parts %}{{ part }}{% endfor %}", ext = "html")]
    struct CountedView<'a> {
        parts: Vec<CountedPart<'a>>,
    }

    /// A text of 100 bytes, which takes 500 as HTML. Counts how often it was rendered.
    struct CountedPart<'a>(&'a Cell<usize>);

    impl fmt::Display for CountedPart<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.set(self.0.get() + 1);
            f.write_str(&"<".repeat(100))
        }
    }

    /// The controls: a view of exactly the bound, and the parts of an entry up to the one that makes it too long.
    #[test]
    fn no_more_of_a_view_is_built_than_its_bound() {
        let rendered = Cell::new(0);
        let view = CountedView { parts: (0..1_000).map(|_| CountedPart(&rendered)).collect() };
        let html = |most| {
            rendered.set(0);
            let html = render(&view, most, true).expect("rendered").map(|html| html.len());
            (html, rendered.get())
        };
        assert_eq!([html(500_000), html(499_999), html(5_000)], [(Some(500_000), 1_000), (None, 1_000), (None, 11)]);
        let built = Cell::new(0);
        let part = |size: usize| {
            built.set(built.get() + 1);
            size
        };
        let parts = build_parts([300 << 10; 1_000].into_iter().map(part), |size| *size);
        assert_eq!((parts.len(), built.get()), (4, 5));
    }

    #[test]
    fn newest_parts_within_the_bound_are_built() {
        let newest = |most| newest_within([3, 4, 5].into_iter(), most, |size| *size);
        assert_eq!([newest(99), newest(7), newest(6), newest(2)], [vec![5, 4, 3], vec![4, 3], vec![3], vec![]]);
    }

    #[test]
    fn clipped_text_says_how_much_is_left_out() {
        assert_eq!(clip("aüb", 4), "aüb");
        assert_eq!(clip("aüb", 2), "a\n[3 bytes more: the API has them]");
    }
}
