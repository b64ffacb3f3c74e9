use subtend_session::ids::{Epoch, Seq, Short};
use subtend_session::index::Head;
use subtend_session::state::Phase;

use super::*;

const FIRST: &str = "0192f0c1-2d3e-7abc-8def-0123456789ab";
const SECOND: &str = "0192f0c1-2d3e-7abc-8def-01234567cdef";
const CHILD: &str = "0192f0c2-0000-7abc-8def-012345a3f9c1";
const COUSIN: &str = "0192f0c3-0000-7abc-8def-0123ffa3f9c1";

fn id(text: &str) -> SessionId {
    text.parse().expect("an id")
}

fn head(me: SessionId, parent: Option<SessionId>) -> Head {
    Head {
        parent,
        root: parent.unwrap_or(me),
        short: me.short(),
        agent: "explore".into(),
        depth: u32::from(parent.is_some()),
        inspectable: false,
        last_seq: Seq(1),
        epoch: Epoch(1),
        state: Phase::Quiet,
        kind: None,
        closed: false,
        deleted: false,
        imported: false,
        last_outcome: None,
        title: "search here".into(),
        created_ms: 0,
        updated_ms: 0,
    }
}

/// Returns two roots, each with a child of the same short name.
fn heads() -> Heads {
    let of = |me, parent: Option<&str>| (id(me), head(id(me), parent.map(id)));
    Heads::from([of(FIRST, None), of(SECOND, None), of(CHILD, Some(FIRST)), of(COUSIN, Some(SECOND))])
}

#[test]
fn whole_ids_prefixes_and_short_names_find_one_session() {
    let heads = heads();
    for name in
        [FIRST, "6789ab", "6789AB", " 6789ab ", "0192f0c1-2d3e-7abc-8def-01234567-89", "0192f0c12d3e7abc8def0123456789"]
    {
        assert_eq!(find(&heads, name).expect(name), id(FIRST), "{name}");
    }
    assert_eq!(find(&heads, "0192f0c2").expect("a prefix"), id(CHILD));
}

#[test]
fn a8_middle_fragment_of_an_id_finds_nothing() {
    for name in ["456789ab", "8def-0123456789ab", "89ab", "12345a3f9c1", "019"] {
        let text = find(&heads(), name).expect_err(name).to_string();
        assert!(text.starts_with(&format!("no session matches `{name}`")), "{text}");
    }
    let text = find(&heads(), "0192f0c").expect_err("four of them").to_string();
    assert!(text.starts_with("`0192f0c` matches 4 sessions"), "{text}");
}

#[test]
fn r1_task_id_finds_its_session() {
    let heads = heads();
    let task = format!("task_{}", id(CHILD).0.simple());
    for name in [&*task, &task[..task.len() - 4], "task_6789ab"] {
        let expected = if name == "task_6789ab" { FIRST } else { CHILD };
        assert_eq!(find(&heads, name).expect(name), id(expected), "{name}");
    }
}

#[test]
fn path_distinguishes_sessions_of_the_same_name() {
    let heads = heads();
    assert_eq!(find(&heads, "6789ab/a3f9c1").expect("by the root's short name"), id(CHILD));
    assert_eq!(find(&heads, "67cdef/a3f9c1").expect("by the other's"), id(COUSIN));
    // With two roots, the word `root` is ambiguous.
    for name in ["root/a3f9c1", "root"] {
        assert!(matches!(find(&heads, name), Err(Fail::Usage(_))), "{name}");
    }

    let mut one = heads;
    one.remove(&id(SECOND));
    one.remove(&id(COUSIN));
    assert_eq!(find(&one, "root/a3f9c1").expect("one root"), id(CHILD));
    assert_eq!(find(&one, "root").expect("one root"), id(FIRST));
    // `/` must not match the only root.
    for name in ["/", "//", "root/", "6789ab/", "root//a3f9c1"] {
        let text = find(&one, name).expect_err(name).to_string();
        assert!(text.starts_with(&format!("no session matches `{name}`")), "{text}");
    }
}

#[test]
fn ambiguous_name_lists_candidates_newest_first() {
    let text = find(&heads(), "a3f9c1").expect_err("two of them").to_string();
    let place = |of: &str| text.find(of).expect(of);
    assert!(place(COUSIN) < place(CHILD), "{text}");
    assert!(text.starts_with("`a3f9c1` matches 2 sessions"), "{text}");
}

#[test]
fn unknown_name_names_the_list_command() {
    for name in ["zzz", "ffffffff-0000-7000-8000-000000000000", "6789ab/nothing"] {
        let text = find(&heads(), name).expect_err(name).to_string();
        assert!(text.contains(name) && text.contains("subtend sessions --all"), "{text}");
    }
    assert!(matches!(find(&heads(), "  "), Err(Fail::Usage(_))));
}

#[test]
fn unknown_name_is_printed_without_control_characters() {
    let text = find(&heads(), "\u{1b}[31mred").expect_err("no such").to_string();
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert_eq!(head(id(FIRST), None).short, Short("6789ab".into()));
}
