use super::super::results::{FoundCount, ListedFile};
use super::*;

fn listing(entries: &[(&str, u64)]) -> ToolListing {
    let (dirs, files): (Vec<_>, Vec<_>) = entries.iter().partition(|(path, _)| path.ends_with('/'));
    ToolListing {
        dirs: dirs.iter().map(|(path, n)| Dir { path: path.trim_end_matches('/').into(), entries: *n }).collect(),
        files: files.iter().map(|(path, n)| ListedFile { path: (*path).into(), lines: Some(*n) }).collect(),
        count: FoundCount::exactly(files.len() as u64),
    }
}

fn project() -> ToolListing {
    listing(&[
        (".github/", 1),
        ("docs/", 3),
        ("journal/", 2),
        ("session/", 3),
        ("sim/", 0),
        ("tools/", 2),
        ("web/", 1),
        ("Cargo.toml", 9),
        ("README.md", 4),
        ("journal/src/", 9),
        ("session/src/", 30),
        ("session/tests/", 4),
        ("tools/src/", 20),
        ("web/src/", 2),
        ("session/Cargo.toml", 7),
    ])
}

fn areas(listing: &ToolListing, question: &str) -> Vec<Area> {
    plan(listing, question, None).briefs.into_iter().map(|(brief, _)| brief.area).collect()
}

#[test]
fn general_question_takes_the_top_and_the_largest_areas() {
    let plan = plan(&project(), "How is this project put together?", None);
    let expected =
        [Area::shallow("."), Area::deep("session"), Area::deep("tools"), Area::deep("journal"), Area::deep("docs")];
    assert_eq!(plan.briefs.iter().map(|(brief, _)| brief.area.clone()).collect::<Vec<_>>(), expected);
    assert_eq!(plan.left, [".github", "web"]);
    assert!(plan.briefs.iter().all(|(brief, _)| brief.words.is_empty()));
}

#[test]
fn question_with_place_names_takes_those_first() {
    assert_eq!(
        areas(&project(), "Where does the web part log errors?"),
        [Area::deep("web"), Area::shallow("."), Area::deep("session")]
    );
    assert_eq!(
        areas(&project(), "Compare session/src with the journals"),
        [Area::deep("session/src"), Area::deep("journal"), Area::shallow(".")]
    );
    assert_eq!(
        areas(&project(), "what does cargo.toml say"),
        [Area::deep("Cargo.toml"), Area::deep("session"), Area::deep("tools")]
    );
}

#[test]
fn few_areas_are_divided() {
    let one = listing(&[("src/", 4), ("src/a/", 2), ("src/b/", 5), ("src/main.rs", 3)]);
    assert_eq!(areas(&one, "what?"), [Area::shallow("src"), Area::deep("src/b"), Area::deep("src/a")]);
    assert_eq!(areas(&listing(&[("main.rs", 3)]), "what?"), [Area::shallow(".")]);
    assert_eq!(areas(&listing(&[]), "what?"), []);
}

#[test]
fn words_that_name_an_area_are_not_searched_if_others_exist() {
    let words = |question| {
        plan(&project(), question, None)
            .briefs
            .iter()
            .flat_map(|(brief, _)| brief.words.iter().map(|word| word.label.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(words("locks in the journal"), ["locks", "locks", "locks"]);
    assert_eq!(words("the journal"), ["journal", "journal", "journal"]);
}

#[test]
fn areas_do_not_share_files() {
    for question in ["session session/src journal Cargo.toml", "session/src session", "README.md tools src docs web"] {
        let areas = areas(&project(), question);
        for (at, area) in areas.iter().enumerate() {
            let others: Vec<Area> =
                areas.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, area)| area.clone()).collect();
            assert!(is_disjoint(area, &others), "{question}: {areas:?}");
        }
    }
}

fn hits(question: &str, at_starts: bool, files: &[(&str, u64)]) -> AreaHits {
    let files: Vec<(String, u64)> = files.iter().map(|(path, lines)| ((*path).to_owned(), *lines)).collect();
    let lines = FoundCount::exactly(files.iter().map(|(_, lines)| lines).sum());
    let matching = FoundCount::exactly(files.iter().filter(|(_, lines)| *lines > 0).count() as u64);
    AreaHits { words: words::words(question), at_starts, matched: Matched { files, lines, matching, whole: true } }
}

const ACTORS: &str = "Which of these crates implement an actor supervisor?";

fn chosen(listing: &ToolListing, hits: &AreaHits) -> Vec<(String, String)> {
    let briefs = plan(listing, ACTORS, Some(Ok(hits.clone()))).briefs;
    briefs.into_iter().map(|(brief, why)| (brief.area.path, why)).collect()
}

fn expected<const N: usize>(areas: [(&str, &str); N]) -> Vec<(String, String)> {
    areas.map(|(path, why)| (path.to_owned(), why.to_owned())).into()
}

#[test]
fn matching_areas_come_before_large_ones() {
    let crates = listing(&[
        ("asn1/", 900),
        ("bindings/", 800),
        ("checker/", 9),
        ("codes/", 700),
        ("ractor/", 12),
        ("zoo/", 3),
        ("zoo-actors/", 2),
    ]);
    let hits = hits(
        ACTORS,
        true,
        &[
            ("ractor/src/actor.rs", 40),
            ("ractor/src/supervision.rs", 30),
            ("zoo/actors.rs", 0),
            ("checker/src/model.rs", 90),
            ("checker/README.md", 2),
        ],
    );
    assert_eq!(
        chosen(&crates, &hits),
        expected([
            ("ractor", "paths name `actor`, `supervisor`; 70 matching lines"),
            ("zoo-actors", "paths name `actor`"),
            ("zoo", "paths name `actor`"),
            ("checker", "92 matching lines"),
        ])
    );
    assert_eq!(plan(&crates, ACTORS, Some(Ok(hits))).left, ["asn1", "bindings", "codes"]);
}

#[test]
fn single_matching_directory_is_divided() {
    let nested = listing(&[
        ("docs/", 50),
        ("index/", 3),
        ("index/asn1/", 400),
        ("index/codes/", 300),
        ("index/factory/", 2),
        ("index/ractor/", 9),
    ]);
    let hits = hits(ACTORS, false, &[("index/ractor/src/lib.rs", 4), ("index/factory/lib.rs", 9)]);
    assert_eq!(
        chosen(&nested, &hits),
        expected([
            ("index/factory", "paths contain `actor`; 9 matching lines"),
            ("index/ractor", "paths contain `actor`; 4 matching lines"),
            ("docs", "size"),
        ])
    );
}
