use subtend_session::ids::{Epoch, Seq, Short};
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
        last_outcome: None,
        title: "look around".into(),
        created_ms: 0,
        updated_ms: 0,
    }
}

/// Two roots, each with a child of the same short name.
fn heads() -> Heads {
    let of = |me, parent: Option<&str>| (id(me), head(id(me), parent.map(id)));
    Heads::from([of(FIRST, None), of(SECOND, None), of(CHILD, Some(FIRST)), of(COUSIN, Some(SECOND))])
}

#[test]
fn whole_ids_parts_and_short_names_find_one_session() {
    let heads = heads();
    for name in [FIRST, "6789ab", "456789AB", "8def-0123456789ab", " 6789ab "] {
        assert_eq!(find(&heads, name).expect(name), id(FIRST), "{name}");
    }
}

#[test]
fn a_path_tells_cousins_of_one_name_apart() {
    let heads = heads();
    assert_eq!(find(&heads, "6789ab/a3f9c1").expect("by the root's short name"), id(CHILD));
    assert_eq!(find(&heads, "67cdef/a3f9c1").expect("by the other's"), id(COUSIN));
    // Two roots: the word does not tell them apart.
    for name in ["root/a3f9c1", "root", "root/"] {
        assert!(matches!(find(&heads, name), Err(Fail::Usage(_))), "{name}");
    }

    let mut one = heads;
    one.remove(&id(SECOND));
    one.remove(&id(COUSIN));
    assert_eq!(find(&one, "root/a3f9c1").expect("one root"), id(CHILD));
    assert_eq!(find(&one, "root").expect("one root"), id(FIRST));
}

#[test]
fn an_ambiguous_name_lists_the_candidates_newest_first() {
    let text = find(&heads(), "a3f9c1").expect_err("two of them").to_string();
    let place = |of: &str| text.find(of).expect(of);
    assert!(place(COUSIN) < place(CHILD), "{text}");
    assert!(text.starts_with("`a3f9c1` may be any of 2 sessions"), "{text}");
}

#[test]
fn an_unknown_name_says_how_to_list_them() {
    for name in ["zzz", "ffffffff-0000-7000-8000-000000000000", "6789ab/nothing"] {
        let text = find(&heads(), name).expect_err(name).to_string();
        assert!(text.contains(name) && text.contains("subtend sessions --all"), "{text}");
    }
    assert!(matches!(find(&heads(), "  "), Err(Fail::Usage(_))));
}

#[test]
fn a_name_with_control_characters_is_printed_without_them() {
    let text = find(&heads(), "\u{1b}[31mred").expect_err("no such").to_string();
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert_eq!(head(id(FIRST), None).short, Short("6789ab".into()));
}
