//! THREATS.md against the tests that it names, in both directions.

use std::collections::BTreeSet;

use super::source::{quoted, read, tests};

/// Returns what is wrong with the file, of all tests.
fn problems(text: &str, tests: &BTreeSet<(String, String)>) -> Vec<String> {
    let section = |name: &str| {
        let (_, rest) = text.split_once(&format!("\n## {name}\n")).unwrap_or_default();
        rest.split("\n## ").next().unwrap_or_default()
    };
    let listed = |name: &str| -> BTreeSet<String> {
        let names = section(name).lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    let (positions, targets) = (listed("Positions"), listed("Targets"));
    let exists = |name: &str| {
        name.split_once("::").is_some_and(|(path, test)| tests.contains(&(path.to_owned(), test.to_owned())))
    };
    let (mut wrong, mut named) = (Vec::new(), BTreeSet::new());
    for row in section("Promises").lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [position, target, promise, shown] = cells[..] else {
            wrong.push(format!("a row has four cells: {row}"));
            continue;
        };
        if !positions.contains(position) || !targets.contains(target) {
            wrong.push(format!("`{position}` or `{target}` is not listed: {promise}"));
        }
        if quoted(shown).next().is_none() {
            wrong.push(format!("no test shows it: {promise}"));
        }
        wrong.extend(quoted(shown).filter(|name| !exists(name)).map(|name| format!("there is no `{name}`")));
        named.extend(quoted(shown).map(str::to_owned));
    }
    let places: Vec<&str> = quoted(section("How attacks are tested")).collect();
    let attacks =
        tests.iter().filter(|(path, name)| places.iter().any(|place| path.starts_with(place)) && name != "role");
    let attacks = attacks.map(|(path, name)| format!("{path}::{name}"));
    wrong.extend(attacks.filter(|attack| !named.contains(attack)).map(|attack| format!("no row names `{attack}`")));
    wrong
}

#[test]
fn each_promise_names_tests_and_each_attack_a_promise() {
    let wrong = problems(&read("THREATS.md"), &tests());
    assert!(wrong.is_empty(), "THREATS.md:\n{}", wrong.join("\n"));
}

#[test]
fn doctored_threats_are_refused() {
    let sound = "# T\n\n## Targets\n\n- **files**: f\n\n## Positions\n\n- **model**: m\n\n## Promises\n\n\
                 | position | target | promise | shown by |\n|---|---|---|---|\n| model | files | P | `a/b.rs::c` |\n\n\
                 ## How attacks are tested\n\n`a`\n";
    let tests: BTreeSet<_> = [("a/b.rs".to_owned(), "c".to_owned()), ("d.rs".to_owned(), "e".to_owned())].into();
    let judged = |from: &str, to: &str| problems(&sound.replace(from, to), &tests).join("; ");
    assert_eq!(judged("", ""), "");
    assert_eq!(judged("| model |", "| moon |"), "`moon` or `files` is not listed: P");
    assert_eq!(judged("`a/b.rs::c`", "`a/b.rs::x`"), "there is no `a/b.rs::x`; no row names `a/b.rs::c`");
    assert_eq!(judged("`a/b.rs::c`", "`d.rs::e`"), "no row names `a/b.rs::c`");
    assert_eq!(judged("`a/b.rs::c`", ""), "no test shows it: P; no row names `a/b.rs::c`");
    assert_eq!(judged("| P |", "|"), "a row has four cells: | model | files | `a/b.rs::c` |; no row names `a/b.rs::c`");
}
