//! The checker fails on an answer with any false claim.

use super::answers::ask;
use super::checker;
use super::planted::{self, HIDDEN};
use super::truth::{ERROR, Truth};
use crate::cli::call::User;

fn answered() -> (Truth, String) {
    let user = User::new();
    planted::plant(&user.workspace(), 4);
    let answer = ask(&user, "Where does it handle errors?");
    (Truth::of(&user.workspace(), HIDDEN), answer)
}

fn problems(truth: &Truth, answer: &str) -> Vec<String> {
    checker::answer(answer, truth, &[ERROR]).wrong
}

#[test]
fn changed_digit_or_letter_is_noticed() {
    let (truth, answer) = answered();
    assert_eq!(problems(&truth, &answer), [""; 0], "{answer}");
    let mut changed = 0;
    for (at, byte) in answer.bytes().enumerate() {
        let other = match byte {
            b'0'..=b'8' | b'a'..=b'y' | b'A'..=b'Y' => byte + 1,
            b'9' => b'1',
            b'z' | b'Z' => byte - 1,
            _ => continue,
        };
        // Every digit is changed, and some of the letters.
        if byte.is_ascii_digit() || at % 5 == 0 {
            let doctored = format!("{}{}{}", &answer[..at], other as char, &answer[at + 1..]);
            let place = &doctored[doctored.floor_char_boundary(at.saturating_sub(30))..=at];
            assert_ne!(problems(&truth, &doctored), [""; 0], "not seen: {place}");
            changed += 1;
        }
    }
    assert!(changed > 300, "{changed}: {answer}");
}

#[test]
fn missing_line_is_noticed() {
    let (truth, answer) = answered();
    // A line with an example may be missing.
    let needed = |line: &str| !(line.is_empty() || line.starts_with("  - "));
    let dull = |line: &str| line.starts_with("|---") || line.starts_with("| area") || line.starts_with("## How");
    let kept = |line: &str| dull(line) || line.starts_with("At its top") || line.starts_with("## What");
    let lines: Vec<_> = answer.lines().collect();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| needed(line) && !kept(line)) {
        let rest: Vec<_> = lines.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, line)| *line).collect();
        let total = line.contains(" areas searched");
        assert!(total || !problems(&truth, &rest.join("\n")).is_empty(), "not missed: {line}");
    }
}

#[test]
fn invented_claims_are_noticed() {
    let (truth, answer) = answered();
    let place = answer.lines().find(|line| line.starts_with("  - ")).expect("a place");
    for more in [
        "It is well tested.",
        "- `nowhere`: 1 line in 1 file",
        "- not covered: `nowhere/`",
        "- `.` (its own files): `README.md` could not be read: it is binary",
        "## `lock`",
        place,
    ] {
        let doctored = answer.replacen(place, &format!("{place}\n{more}"), 1);
        assert_ne!(problems(&truth, &doctored), [""; 0], "{more}");
    }
    let doubtful = answer.replacen(" lines match", " lines at least match", 1);
    assert_ne!(problems(&truth, &doubtful), [""; 0]);
    // A lower bound is wrong where everything can be counted.
    let at = answer.find(" lines match").expect("a count");
    let line = answer[..at].rfind('\n').map_or(0, |line| line + 1);
    let vague = format!("{}At least {}", &answer[..line], &answer[line..]);
    assert_ne!(problems(&truth, &vague), [""; 0]);
}
