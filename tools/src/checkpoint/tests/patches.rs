//! Patches of hostile files. A user reads them before a restore.

use std::time::Duration;

use super::*;

/// The patch has the name on one line. The control: the unescaped name forges lines.
#[tokio::test]
async fn x15_file_name_does_not_forge_lines_of_a_patch() {
    let attacks: [(&str, &str); 3] = [
        ("f\n+++ b_real\n@@ -1 +1 @@\n-x", "f<U+000A>+++ b_real<U+000A>@@ -1 +1 @@<U+000A>-x"),
        ("f\r+++ b_real", "f<U+000D>+++ b_real"),
        ("f\u{1b}[2K\t\u{202e}", "f<U+001B>[2K<U+0009><U+202E>"),
    ];
    for (name, shown) in attacks {
        assert!(format!("+++ b/{name}").contains(|c: char| c.is_control()), "the control");
        let mut scene = CheckpointFixture::new();
        scene.write(1, name, "1\n").await;
        assert_eq!(scene.plan(1).patch, format!("--- a/{shown}\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"));
        let [saved] = &*scene.checkpoints.of_session(session()).unwrap() else { panic!() };
        let [file] = &*scene.checkpoints.examine(saved) else { panic!() };
        assert_eq!(file.patch, format!("--- /dev/null\n+++ b/{shown}\n@@ -0,0 +1 @@\n+1\n"));
    }
}

/// Returns lines of one letter each, whose order depends on `seed`.
fn letters(seed: u32, lines: u32) -> String {
    let next = |state: u32| state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    let states = std::iter::successors(Some(seed), |state| Some(next(*state)));
    let letter = |state: u32| char::from(b'a' + u8::try_from(state >> 29).unwrap());
    states.skip(1).take(lines as usize).flat_map(|state| [letter(state), '\n']).collect()
}

/// An exact comparison takes minutes. The control: a file of few lines is compared exactly.
#[tokio::test]
async fn x15_comparing_unlike_files_takes_bounded_time() {
    let mut scene = CheckpointFixture::new();
    let names = ["large1", "large2", "large3"];
    for name in names {
        fs::write(scene.at(name), letters(1, 100_000)).unwrap();
        scene.write(1, name, &letters(2, 100_000)).await;
    }
    scene.write(2, "a", "a by 2\n").await;
    let begun = tokio::time::Instant::now();
    let plan = scene.plan(1);
    for saved in scene.checkpoints.of_session(session()).unwrap() {
        scene.checkpoints.examine(&saved);
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(plan.changes.len(), names.len());
    let count = |sign: char| plan.patch.lines().filter(|line| line.starts_with(sign)).count();
    assert_eq!(count('-'), count('+'), "lines are missing");
    assert_eq!(scene.plan(2).patch, "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a by 2\n+a before\n");
}
