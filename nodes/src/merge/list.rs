//! Merges lists of shards. Rows stay text: as values, JSON of small items takes up to 16 times the memory of its text.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use subtend_host::iso_time;
use subtend_host::problem::Problem;

use super::MAX_ANSWER;
use super::json_parts::{check, fields, parts};
use crate::gateway::Merge;

/// Maximum bytes of rows of tasks and approvals with all their texts, and of one text of further rows: nearly those of
/// one host.
const MAX_TEXTS: usize = 8 << 20;
const SHORTENED_TEXT: usize = 1_000;

/// The list of one shard.
#[derive(Debug)]
pub(super) struct ShardPage {
    items: Vec<Box<str>>,
    has_more: bool,
}

impl ShardPage {
    pub(super) fn parse(of: Merge, bytes: &[u8]) -> serde_json::Result<Self> {
        let page = check(bytes)?;
        let page = match of {
            Merge::Sessions => fields(page),
            Merge::Approvals | Merge::Tasks | Merge::Events | Merge::Metrics => vec![("\"items\"", page)],
        };
        let field = |name| page.iter().find_map(|(field, value)| (*field == name).then_some(*value));
        let items = field("\"items\"").filter(|items| items.starts_with('['));
        let items = items.ok_or_else(|| <serde_json::Error as serde::de::Error>::custom("it is not a list"))?;
        let has_more = field("\"next\"").is_some_and(|next| next != "null");
        Ok(Self { items: parts(items).into_iter().map(Box::from).collect(), has_more })
    }
}

/// Where a row of a list of sessions or tasks belongs.
#[derive(Deserialize)]
struct RowPlace {
    id: String,
    created_ms: Option<i64>,
    /// A time as text, or in milliseconds from a node of an earlier version.
    #[serde(rename = "createdAt")]
    created_at: Option<Value>,
}

/// Time of creation, and id.
type SortKey = (i64, String);

/// A list of all shards that answered so far: the newest rows first, of approvals those of the oldest session.
#[derive(Debug)]
pub(super) struct MergedList {
    of: Merge,
    most: usize,
    rows: Vec<(SortKey, Box<str>)>,
    has_more: bool,
}

impl MergedList {
    pub(super) fn new(of: Merge, most: usize) -> Self {
        Self { of, most, rows: Vec::new(), has_more: false }
    }

    /// Adds the rows of a shard, and drops those beyond the page.
    pub(super) fn add(&mut self, page: ShardPage) -> Result<(), Problem> {
        self.has_more |= page.has_more;
        let of = self.of;
        self.rows.extend(page.items.into_iter().map(|row| (sort_key(of, &row), row)));
        let is_ascending = of == Merge::Approvals;
        self.rows.sort_by(|(one, _), (other, _)| if is_ascending { one.cmp(other) } else { other.cmp(one) });
        self.has_more |= self.rows.len() > self.most;
        self.rows.truncate(self.most);
        let mut bytes = 0_usize;
        for (_, row) in &mut self.rows {
            let all = bytes.saturating_add(row.len());
            if all > MAX_TEXTS
                && let Some(short) = shorten(of, row)
            {
                *row = short;
            }
            bytes = bytes.saturating_add(row.len());
        }
        if bytes > MAX_ANSWER {
            let detail =
                format!("the lists of all shards have more than {MAX_ANSWER} bytes: ask for one, by ?shard=NAME");
            return Err(Problem::new(StatusCode::BAD_GATEWAY, "outcome_unknown", detail));
        }
        Ok(())
    }

    pub(super) fn into_response(self) -> Response {
        let rows: Vec<&str> = self.rows.iter().map(|(_, row)| &**row).collect();
        let items = format!("[{}]", rows.join(","));
        // The cursor names the last row, so every shard accepts it.
        let last = self.rows.last().filter(|_| self.has_more);
        let next = Value::from(last.map(|((ms, id), _)| format!("{ms}.{id}")));
        let list = if self.of == Merge::Sessions { format!("{{\"items\":{items},\"next\":{next}}}") } else { items };
        let mut response = Response::new(Body::from(list));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

fn sort_key(of: Merge, row: &str) -> SortKey {
    if of == Merge::Approvals {
        return call_key(row).unwrap_or_default();
    }
    if !matches!(of, Merge::Sessions | Merge::Tasks) {
        return SortKey::default();
    }
    let Ok(place) = serde_json::from_str::<RowPlace>(row) else { return SortKey::default() };
    let in_ms = |at: &Value| at.as_i64().or_else(|| iso_time::from_text(at.as_str()?));
    (place.created_ms.or_else(|| in_ms(place.created_at.as_ref()?)).unwrap_or(0), place.id)
}

/// Returns the key of a waiting call, by which hosts sort them too: session, turn and index.
fn call_key(row: &str) -> Option<SortKey> {
    #[derive(Deserialize)]
    struct CallPlace {
        session: String,
        call: String,
    }
    let CallPlace { session, call } = serde_json::from_str(row).ok()?;
    let (turn, ix): (u32, u32) =
        call.split_once('.').and_then(|(turn, ix)| Some((turn.parse().ok()?, ix.parse().ok()?)))?;
    Some((0, format!("{session}.{turn:010}.{ix:010}")))
}

/// Returns a row of a task or an approval with its long texts truncated, as hosts shorten them: a task without long
/// metadata, and a call without the digest that answers it. `None` if all are short, or for a row of another list.
fn shorten(of: Merge, row: &str) -> Option<Box<str>> {
    let texts: &[&str] = match of {
        Merge::Tasks => &["\"prompt\"", "\"result\""],
        Merge::Approvals => &["\"args\"", "\"resource\"", "\"plan\""],
        Merge::Sessions | Merge::Events | Merge::Metrics => return None,
    };
    let mut is_shortened = false;
    let mut written = Vec::new();
    for (name, value) in fields(row) {
        let short = match name {
            _ if value.len() <= SHORTENED_TEXT => None,
            "\"metadata\"" => Some("{}".to_owned()),
            name if texts.contains(&name) => {
                let text: String = serde_json::from_str(value).ok()?;
                let start = text.get(..text.floor_char_boundary(SHORTENED_TEXT)).unwrap_or_default();
                Some(Value::from(start).to_string())
            }
            _ => None,
        };
        is_shortened |= short.is_some();
        if !matches!(name, "\"shortened\"" | "\"digest\"") {
            written.push(format!("{name}:{}", short.as_deref().unwrap_or(value)));
        }
    }
    written.push("\"shortened\":true".to_owned());
    is_shortened.then(|| format!("{{{}}}", written.join(",")).into())
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use futures_util::FutureExt as _;
    use serde_json::json;

    use super::*;

    fn merged(of: Merge, most: usize, pages: &[Value]) -> Value {
        let mut list = MergedList::new(of, most);
        for page in pages {
            list.add(ShardPage::parse(of, page.to_string().as_bytes()).unwrap()).unwrap();
        }
        let body = to_bytes(list.into_response().into_body(), usize::MAX).now_or_never().unwrap().unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[test]
    fn d4_pages_of_shards_are_merged() {
        let row = |ms: i64, id: &str| json!({"created_ms": ms, "id": id});
        let first = json!({"items": [row(9, "b"), row(5, "a")], "next": "5.a"});
        let second = json!({"items": [row(9, "c"), row(1, "d")], "next": null});
        let sessions = |most: usize, pages: &[Value]| merged(Merge::Sessions, most, pages);
        let page = sessions(3, &[first.clone(), second.clone()]);
        assert_eq!(page, json!({"items": [row(9, "c"), row(9, "b"), row(5, "a")], "next": "5.a"}));
        let all = sessions(10, &[json!({"items": [row(5, "a")], "next": null}), second]);
        assert_eq!(all["next"], Value::Null, "the last page");
        assert_eq!(sessions(10, &[first])["next"], "5.a", "a shard has more");
    }

    #[test]
    fn d4_approvals_of_shards_are_merged_by_session() {
        let row = |session: &str, call: &str| json!({"session": session, "call": call});
        let pages = [json!([row("a", "2.0"), row("a", "10.0"), row("c", "1.0")]), json!([]), json!([row("b", "9.1")])];
        let all = json!([row("a", "2.0"), row("a", "10.0"), row("b", "9.1"), row("c", "1.0")]);
        assert_eq!(merged(Merge::Approvals, 500, &pages), all);
        assert_eq!(merged(Merge::Approvals, 3, &pages), json!([all[0], all[1], all[2]]), "the first page");
    }

    /// Each of 16 shards sends as much as a host does. A shortened call has no digest, so that it is not approved as it is
    /// listed. The control: the calls of one shard are whole.
    #[test]
    fn d4_merged_approvals_have_no_more_text_than_one_host_sends() {
        let page = |shard: usize| {
            let call = |ix: usize| {
                let session = format!("{shard:02}");
                json!({"session": session, "call": format!("1.{ix}"), "args": "é".repeat(50_000), "plan": null, "digest": "d"})
            };
            Value::Array((0..40).map(call).collect())
        };
        let one = merged(Merge::Approvals, 500, &[page(0)]);
        assert_eq!(one, page(0));
        let all = merged(Merge::Approvals, 500, &(0..16).map(page).collect::<Vec<_>>());
        let rows = all.as_array().unwrap();
        assert_eq!((rows.len(), rows.iter().filter(|row| row["digest"] == "d").count()), (500, 83));
        let last = json!({"session": "12", "call": "1.19", "args": "é".repeat(500), "plan": null, "shortened": true});
        assert_eq!(rows[499], last);
        assert!(all.to_string().len() < 10 << 20);
    }

    #[test]
    fn d4_tasks_of_shards_are_merged_newest_first() {
        let task = |ms: i64, id: &str| json!({"createdAt": format!("2026-11-24T08:58:15.{ms:03}Z"), "id": id});
        let tasks = |most: usize, pages: &[Value]| merged(Merge::Tasks, most, pages);
        let pages = [json!([task(5, "a"), task(9, "b")]), json!([task(9, "c")])];
        assert_eq!(tasks(500, &pages), json!([task(9, "c"), task(9, "b"), task(5, "a")]));
        assert_eq!(tasks(1, &pages), json!([task(9, "c")]));
        // 2026-11-24T08:58:15.007Z.
        let earlier_version = json!([{"createdAt": 1_795_510_695_007_i64, "id": "d"}]);
        let mixed = [&pages[..], std::slice::from_ref(&earlier_version)].concat();
        assert_eq!(tasks(500, &mixed), json!([task(9, "c"), task(9, "b"), earlier_version[0], task(5, "a")]));
    }

    /// Each of 16 shards sends as much as a host does. The control: the texts of one shard are complete.
    #[test]
    fn d4_merged_tasks_have_no_more_text_than_one_host_sends() {
        let page = |shard: usize| {
            let task = |ms: usize| {
                let numbers = vec![0; 50_000];
                json!({"createdAt": ms, "id": format!("{shard}.{ms}"), "prompt": "é".repeat(50_000), "metadata": {"a": numbers}})
            };
            Value::Array((0..40).map(task).collect())
        };
        let shortened = |list: &Value| list.as_array().unwrap().iter().filter(|row| row["shortened"] == true).count();
        let one = merged(Merge::Tasks, 500, &[page(0)]);
        assert_eq!((one.as_array().unwrap().len(), shortened(&one)), (40, 0));
        let all = merged(Merge::Tasks, 500, &(0..16).map(page).collect::<Vec<_>>());
        assert_eq!((all.as_array().unwrap().len(), shortened(&all)), (500, 459));
        let last = &all[499];
        assert_eq!((&last["metadata"], &last["prompt"]), (&json!({}), &json!("é".repeat(500))));
        assert!(all.to_string().len() < 10 << 20);
    }
}
