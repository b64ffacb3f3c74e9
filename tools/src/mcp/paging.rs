//! Lists of a server, read page by page within bounds.

use std::collections::BTreeSet;

use serde::Serialize;

use super::result::CallFailure;

const MAX_PAGES: usize = 50;
pub(super) const MAX_LIST_BYTES: usize = 4 << 20;
/// Maximum number of JSON values in a list, because a value takes many times its bytes in memory.
pub(super) const MAX_LIST_VALUES: usize = 200_000;
/// Maximum bytes of a cursor, which the next request contains.
const MAX_CURSOR: usize = 4 << 10;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pages<T> {
    pub(super) entries: Vec<T>,
    /// The reason why further entries are missing.
    pub(super) truncated: Option<String>,
}

/// The size of a list, or of one of its entries, as JSON.
#[derive(Clone, Copy, Default)]
pub(super) struct ListSize {
    pub(super) bytes: usize,
    pub(super) values: usize,
}

impl ListSize {
    pub(super) fn of(json: &str) -> Self {
        // Each value except the first follows one of these characters. Characters within strings count too.
        Self { bytes: json.len(), values: json.bytes().filter(|byte| b",[{".contains(byte)).count() }
    }

    pub(super) fn is_too_large(self) -> bool {
        self.bytes > MAX_LIST_BYTES || self.values > MAX_LIST_VALUES
    }
}

/// Reads a list with at most `most` entries. `page` returns the entries for a cursor, and the cursor of the next page.
///
/// # Errors
/// If a page cannot be read, the list is too large, or a cursor is too long or repeats.
pub(super) async fn read_all<T: Serialize, F>(
    what: &str,
    most: usize,
    mut page: impl FnMut(Option<String>) -> F,
) -> Result<Pages<T>, CallFailure>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), CallFailure>>,
{
    let refused = |why: String| Err(CallFailure::Refused(format!("its list of {what} {why}").into()));
    let (mut entries, mut total, mut seen) = (Vec::new(), ListSize::default(), BTreeSet::new());
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let (listed, next) = page(cursor).await?;
        for entry in &listed {
            let size = ListSize::of(&serde_json::to_string(entry).unwrap_or_default());
            total.bytes = total.bytes.saturating_add(size.bytes);
            total.values = total.values.saturating_add(size.values);
        }
        if total.is_too_large() {
            return refused(format!("has more than {MAX_LIST_BYTES} bytes, or {MAX_LIST_VALUES} values"));
        }
        entries.extend(listed);
        if entries.len() > most {
            entries.truncate(most);
            return Ok(Pages {
                entries,
                truncated: Some(format!("it has more than {most} {what}: the rest is ignored")),
            });
        }
        let Some(next) = next else { return Ok(Pages { entries, truncated: None }) };
        if next.len() > MAX_CURSOR {
            return refused(format!("has a cursor of more than {MAX_CURSOR} bytes"));
        }
        if !seen.insert(next.clone()) {
            return refused("repeats a cursor, so that it never ends".to_owned());
        }
        cursor = Some(next);
    }
    let why = format!("its list of {what} has more than {MAX_PAGES} pages: the rest is ignored");
    Ok(Pages { entries, truncated: Some(why) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a list of pages. `page(n)` returns the entries and the cursor of page `n`.
    async fn read(page: impl Fn(usize) -> (Vec<String>, Option<String>)) -> (Result<Pages<String>, String>, usize) {
        let mut asked = Vec::new();
        let read = read_all("tools", 100, |cursor: Option<String>| {
            asked.push(cursor);
            std::future::ready(Ok(page(asked.len())))
        });
        let read = read.await.map_err(|failed| match failed {
            CallFailure::Refused(why) | CallFailure::Unauthorized(why) | CallFailure::Disconnected(why) => {
                why.into_result()
            }
            CallFailure::TimedOut => String::new(),
        });
        assert_eq!(asked.first(), Some(&None));
        (read, asked.len())
    }

    #[tokio::test]
    async fn x17_pages_of_a_list_are_joined() {
        let next = |n: usize| (n < 3).then(|| n.to_string());
        let (listed, pages) = read(|n| (vec![format!("t{n}")], next(n))).await;
        let entries = ["t1", "t2", "t3"].map(str::to_owned).to_vec();
        assert_eq!((listed, pages), (Ok(Pages { entries, truncated: None }), 3));
    }

    /// The control: `x17_pages_of_a_list_are_joined`.
    #[tokio::test]
    async fn lists_without_end_are_bounded() {
        let endless = |n: usize| Some(n.to_string());
        let (listed, pages) = read(|n| (Vec::new(), endless(n))).await;
        assert!(listed.unwrap().truncated.unwrap().contains("more than 50 pages") && pages == MAX_PAGES);
        let (listed, pages) = read(|n| (vec!["t".to_owned(); 60], endless(n))).await;
        let listed = listed.unwrap();
        assert!(listed.entries.len() == 100 && listed.truncated.unwrap().contains("more than 100 tools") && pages == 2);
        let (refused, pages) = read(|n| (vec!["t".repeat(1 << 20)], endless(n))).await;
        assert!(refused.unwrap_err().contains("more than 4194304 bytes") && pages == 4);
        let (refused, pages) = read(|n| (vec!["[0],".repeat(50_000)], endless(n))).await;
        assert!(refused.unwrap_err().contains("or 200000 values") && pages == 3);
        let (refused, pages) = read(|_| (Vec::new(), Some("c".repeat(MAX_CURSOR + 1)))).await;
        assert!(refused.unwrap_err().contains("a cursor of more than 4096 bytes") && pages == 1);
        let (refused, pages) = read(|n| (Vec::new(), Some((n % 3).to_string()))).await;
        assert!(refused.unwrap_err().contains("repeats a cursor") && pages == 4);
    }
}
