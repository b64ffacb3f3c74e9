//! Checks that THREATS.md names only tests that exist, and that it names each attack test.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Entry, entries, files, quoted, read, tests};

const MIN_ATTACKS: usize = 120;

/// A test function, as far as this check needs it.
struct Test {
    /// Number of attacks that the test tries: the length of its array `ATTACKS` or `attacks`, else one.
    cases: usize,
    /// True if the test has a control: the same attack succeeds without the guard.
    control: bool,
}

fn facts_of(tests: &BTreeSet<(String, String)>, files: &[(String, String)]) -> BTreeMap<String, Test> {
    let text = |path: &str| files.iter().find(|(other, _)| other == path).map_or("", |(_, text)| text);
    let facts = |path: &str, name: &str| {
        let body = body(text(path), name);
        Test { cases: cases(body), control: name.starts_with("without") || body.to_lowercase().contains("control") }
    };
    tests.iter().map(|(path, name)| (format!("{path}::{name}"), facts(path, name))).collect()
}

fn body<'a>(text: &'a str, name: &str) -> &'a str {
    let Some(at) = text.find(&format!("fn {name}(")) else { return "" };
    let start = text.get(..at).and_then(|before| before.rfind("\n\n")).unwrap_or(0);
    let rest = text.get(at..).unwrap_or_default();
    let end = at + rest.find("\n}\n").or_else(|| rest.find("\n    }\n")).unwrap_or(rest.len());
    text.get(start..end).unwrap_or_default()
}

/// Returns the number of attacks that a function lists, from the array length in its source.
fn cases(body: &str) -> usize {
    let arrays = ["ATTACKS: [", "attacks: ["].iter().flat_map(|name| body.split(name).skip(1));
    let length = |array: &str| array.split("] =").next()?.rsplit("; ").next()?.parse::<usize>().ok();
    let listed: usize = arrays.filter_map(length).sum();
    listed.max(1)
}

fn section<'a>(text: &'a str, name: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("\n## {name}\n")).unwrap_or_default();
    rest.split("\n## ").next().unwrap_or_default()
}

fn listed(text: &str, name: &str) -> Vec<String> {
    let names = section(text, name).lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// Computes the table of positions by targets from the entries. Returns the table and its sum.
fn matrix(text: &str, cases: &BTreeMap<(String, String), usize>) -> (String, usize) {
    let (positions, targets) = (listed(text, "Positions"), listed(text, "Targets"));
    let mut lines =
        vec![format!("| | {} | all |", targets.join(" | ")), format!("|---|{}---|", "---|".repeat(targets.len()))];
    let of = |position: &String, target: &String| cases.get(&(position.clone(), target.clone())).copied().unwrap_or(0);
    let row = |name: &str, of: &dyn Fn(&String) -> usize| {
        let cells: Vec<usize> = targets.iter().map(of).collect();
        let shown: Vec<String> = cells.iter().map(|n| if *n == 0 { String::new() } else { n.to_string() }).collect();
        format!("| {name} | {} | {} |", shown.join(" | "), cells.iter().sum::<usize>())
    };
    lines.extend(positions.iter().map(|position| row(position, &|target| of(position, target))));
    lines.push(row("all", &|target| positions.iter().map(|position| of(position, target)).sum()));
    (lines.join("\n"), cases.values().sum())
}

/// Splits an entry into position, target, promise, attacks and control.
fn parts(entry: &Entry) -> Option<[&str; 5]> {
    let (head, promise) = entry.text.strip_prefix("**")?.split_once("**: ")?;
    let (position, target) = head.split_once(", ")?;
    let [attacks, control] = &entry.points[..] else { return None };
    Some([position, target, promise, attacks.strip_prefix("Attacks:")?, control.strip_prefix("Control:")?])
}

/// Returns the problems of the file. `tests` are all tests of the workspace.
fn problems(text: &str, tests: &BTreeMap<String, Test>) -> Vec<String> {
    let (positions, targets) = (listed(text, "Positions"), listed(text, "Targets"));
    let named: BTreeSet<&str> = quoted(section(text, "Promises")).filter(|name| name.contains("::")).collect();
    let unknown = named.iter().filter(|name| !tests.contains_key(**name));
    let mut wrong: Vec<String> = unknown.map(|name| format!("`{name}` does not exist")).collect();
    let (mut counted, mut cases) = (BTreeSet::new(), BTreeMap::new());
    for entry in entries(section(text, "Promises")) {
        let Some([position, target, promise, attacks, controls]) = parts(&entry) else {
            wrong.push(format!("an entry needs a position, a target, attacks and a control: {}", entry.text));
            continue;
        };
        if !positions.iter().any(|it| it == position) || !targets.iter().any(|it| it == target) {
            wrong.push(format!("`{position}` or `{target}` is not listed: {promise}"));
        }
        if quoted(attacks).next().is_none() {
            wrong.push(format!("no attack is named: {promise}"));
        }
        if !quoted(controls).any(|name| tests.get(name).is_some_and(|test| test.control)) {
            wrong.push(format!("no control is named: {promise}"));
        }
        for (name, test) in quoted(attacks).filter_map(|name| tests.get_key_value(name)) {
            // A test that two entries name counts only for the first.
            if counted.insert(name) {
                *cases.entry((position.to_owned(), target.to_owned())).or_insert(0) += test.cases;
            }
        }
    }
    let places: Vec<&str> = quoted(section(text, "How attacks are tested")).collect();
    let attacks =
        tests.keys().filter(|name| places.iter().any(|place| name.starts_with(place)) && !name.ends_with("::role"));
    wrong.extend(
        attacks.filter(|attack| !named.contains(attack.as_str())).map(|attack| format!("no row names `{attack}`")),
    );
    let (table, sum) = matrix(text, &cases);
    if !section(text, "Cases").contains(&table) {
        wrong.push(format!("the table of cases must be:\n{table}"));
    }
    if sum < MIN_ATTACKS {
        wrong.push(format!("there are {sum} attacks, the minimum is {MIN_ATTACKS}"));
    }
    wrong
}

#[test]
fn threats_name_existing_tests_and_every_attack() {
    let wrong = problems(&read("THREATS.md"), &facts_of(&tests(), &files()));
    assert!(wrong.is_empty(), "THREATS.md:\n{}", wrong.join("\n"));
}

#[test]
fn cases_are_counted_by_the_length_of_their_array() {
    let text = "\nfn helper() {}\n\n/// Tries.\n#[test]\nfn one() {\n    assert!(true);\n}\n\n#[test]\nfn two() {\n    \
                const ATTACKS: [(&str, [u8; 3]); 7] = [];\n    let attacks: [&str; 4] = [];\n    // The control.\n}\n";
    assert_eq!([cases(body(text, "one")), cases(body(text, "two"))], [1, 11]);
    assert_eq!([body(text, "one"), body(text, "two")].map(|body| body.contains("control")), [false, true]);
}

#[test]
fn invalid_threat_rows_are_refused() {
    let sound = "# T\n\n## Targets\n\n- **files**: f\n- **keys**: k\n\n## Positions\n\n- **model**: m\n\n## Promises\n\n\
                 - **model, files**: P\n  - Attacks: `a/b.rs::c`\n  - Control: `a/b.rs::d`\n\n\
                 ## Cases\n\n| | files | keys | all |\n|---|---|---|---|\n| model | 130 |  | 130 |\n| all | 130 |  | 130 |\n\n\
                 ## How attacks are tested\n\n`a`\n";
    let test = |cases, control| Test { cases, control };
    let tests: BTreeMap<String, Test> =
        [("a/b.rs::c", test(130, false)), ("a/b.rs::d", test(1, true)), ("e.rs::f", test(9, false))]
            .map(|(name, test)| (name.to_owned(), test))
            .into();
    let problems_after = |from: &str, to: &str| {
        let text = sound.replace(from, to);
        assert!(from.is_empty() || text != sound, "{from} is not in the fixture");
        problems(&text, &tests).join("; ")
    };
    assert_eq!(problems_after("", ""), "");
    assert!(problems_after("**model, files**", "**moon, files**").starts_with("`moon` or `files` is not listed: P"));
    assert!(
        problems_after("`a/b.rs::c`", "`a/b.rs::x`")
            .starts_with("`a/b.rs::x` does not exist; no row names `a/b.rs::c`")
    );
    assert!(problems_after("`a/b.rs::c`", "").starts_with("no attack is named: P; no row names `a/b.rs::c`"));
    assert!(problems_after("`a/b.rs::d`", "").starts_with("no control is named: P; no row names `a/b.rs::d`"));
    assert!(problems_after("Control: `a/b.rs::d`", "Control: `e.rs::f`").starts_with("no control is named: P"));
    assert!(
        problems_after("Control:", "Also:")
            .starts_with("an entry needs a position, a target, attacks and a control: **model")
    );
    assert!(problems_after("| model | 130 |", "| model | 131 |").starts_with("the table of cases must be:"));
    assert!(problems_after("`a/b.rs::c`", "`e.rs::f`").contains("there are 9 attacks, the minimum is 120"));
}
