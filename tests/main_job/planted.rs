//! Generated repositories with planted facts: the same seed gives the same repository.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use fastrand::Rng;

use crate::cli::call::no_forks;

#[derive(Debug, Default)]
pub(crate) struct Planted {
    /// Lines about errors, by path and number.
    pub(crate) errors: BTreeSet<(String, usize)>,
}

/// Paths that ignore files exclude in every generated repository.
pub(crate) const HIDDEN: &[&str] = &["noise.log", "out", "parser/cache.tmp"];

/// A language: the extension of its files, filler lines, and lines that handle errors; `#` is replaced by a number.
struct Language {
    ending: &'static str,
    opens: &'static str,
    filler: &'static [&'static str],
    errors: &'static [&'static str],
}

const LANGUAGES: &[Language] = &[
    Language {
        ending: "rs",
        opens: "//! Part # of the whole.",
        filler: &["let step_# = mirrored(#);", "fn walk_#() -> u32 { # }", "// An errand, number #.", ""],
        errors: &["return Err(Fault::Broken(#));", "pub enum Error# { Broken }", "Err(cause) => cause || #,"],
    },
    Language {
        ending: "py",
        opens: "\"\"\"Part # of the whole.\"\"\"",
        filler: &["def walk_#(): return #", "steps.append(#)", "# terrace #", ""],
        errors: &["raise ValueError('failed at #')", "except OSError as err:  # #", "FAILURES_# = `once`"],
    },
    Language {
        ending: "go",
        opens: "// Package part# is a part of the whole.",
        filler: &["func Walk#() int { return # }", "steps[#] = #", ""],
        errors: &["if err != nil { return # }", "var ErrorBroken# = broken(#)"],
    },
    Language {
        ending: "ts",
        opens: "// Part # of the whole.",
        filler: &["const step# = #;", "export { walk# };", ""],
        errors: &["throw new Error(`broken <br> at #`);", "onFailure#(() => a || b);"],
    },
    Language {
        ending: "md",
        opens: "Part # of the whole.",
        filler: &["Word # of many.", "* item #", ""],
        errors: &["| failures | # |", "Errors of kind # are reported."],
    },
];

const AREAS: &[&str] = &["engine", "parser", "server", "store", "network", "billing", "widgets"];

pub(crate) fn plant(root: &Path, seed: u64) -> Planted {
    let mut rng = Rng::with_seed(seed);
    let mut field = RepositoryWriter { root, rng: &mut rng, planted: Planted::default(), serial: 0 };
    field.text("README.md", "# Zephyr\n\nA thing of several parts.\n");
    field.text(".gitignore", "*.log\n/out/\n");
    let mut areas = AREAS.to_vec();
    field.rng.shuffle(&mut areas);
    areas.truncate(field.rng.usize(4..=7));
    if !areas.contains(&"parser") {
        areas.push("parser");
    }
    for area in &areas {
        for at in 0..field.rng.usize(2..6) {
            let deep = ["", "core/", "core/inner/", "web/"][field.rng.usize(0..4)];
            field.source(&format!("{area}/{deep}part_{at}"), 5..80);
        }
    }
    field.odd(areas[0]);
    field.hide();
    field.planted
}

struct RepositoryWriter<'a> {
    root: &'a Path,
    rng: &'a mut Rng,
    planted: Planted,
    /// Counts lines, so that no two lines are equal.
    serial: usize,
}

impl RepositoryWriter<'_> {
    /// Writes a file that is not text, or is ignored.
    fn bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, bytes).expect("a file");
    }

    fn text(&self, path: &str, text: &str) {
        self.bytes(path, text.as_bytes());
    }

    fn number(&mut self, line: &str) -> String {
        self.serial += 1;
        line.replace('#', &self.serial.to_string())
    }

    /// Writes a source file in some language, with errors handled in some places.
    fn source(&mut self, stem: &str, lines: std::ops::Range<usize>) {
        let language = &LANGUAGES[self.rng.usize(0..LANGUAGES.len())];
        let path = format!("{stem}.{}", language.ending);
        let mut text = self.number(language.opens) + "\n";
        for line in 2..self.rng.usize(lines) + 2 {
            let errs = self.rng.u8(0..10) == 0;
            let of = if errs { language.errors } else { language.filler };
            let indent = " ".repeat(self.rng.usize(0..3) * 4);
            let message = of[self.rng.usize(0..of.len())];
            let message = self.number(message);
            writeln!(text, "{indent}{message}").expect("a text");
            if errs {
                self.planted.errors.insert((path.clone(), line));
            }
        }
        self.text(&path, &text);
    }

    fn lines(&mut self, path: &str, lines: &[(bool, &str)], end: &str) {
        let all: Vec<_> = lines.iter().map(|(_, line)| self.number(line)).collect();
        self.text(path, &all.join(end));
        let shown = path.replace(char::is_control, "\u{fffd}");
        for (at, _) in lines.iter().enumerate().filter(|(_, (errs, _))| *errs) {
            self.planted.errors.insert((shown.clone(), at + 1));
        }
    }

    fn odd(&mut self, area: &str) {
        let endless = format!("error {}", "x".repeat(5_000));
        self.lines(&format!("{area}/wide.txt"), &[(false, "narrow #"), (true, &endless), (true, "ERROR #")], "\n");
        self.lines(&format!("{area}/dos.txt"), &[(false, "one #"), (true, "an error #"), (true, "fail")], "\r\n");
        let escape = "error \u{1b}[31mred\u{1b}[0m | `tick` ``two`` #";
        self.lines(&format!("{area}/colours.txt"), &[(true, escape), (false, "ünï #"), (true, "  `error`")], "\n");
        self.lines(&format!("{area}/odd: 7: name  two.txt"), &[(false, "a #"), (true, "b: 3: error #")], "\n");
        let last = 4_000 + self.rng.usize(0..100);
        let mut long: Vec<_> = (1..last).map(|line| (line == 1_999, "nothing here, #")).collect();
        long[1_998].1 = "in the middle, an error #";
        long.push((true, "the last failure, #"));
        self.lines(&format!("{area}/long.txt"), &long, "\n");
        self.bytes(&format!("{area}/empty.txt"), b"");
        self.bytes(&format!("{area}/image.bin"), b"error\0\x89error\nerror\n");
        self.bytes(&format!("{area}/latin.txt"), b"plain\nerror in caf\xe9\n");
        self.planted.errors.insert((format!("{area}/latin.txt"), 2));
        fs::create_dir_all(self.root.join("empty/below")).expect("a folder");
        #[cfg(unix)]
        self.unreadable(area);
    }

    /// Makes files with names that are not UTF-8, links, and a pipe.
    #[cfg(unix)]
    fn unreadable(&mut self, area: &str) {
        use std::os::unix::ffi::OsStrExt as _;
        use std::os::unix::fs::symlink;
        let forged = format!("{area}/two\nREADME.md  5 bytes, 9 lines");
        self.lines(&forged, &[(false, "forged #"), (true, "an error in a forged name #")], "\n");
        let forged = format!("{area}/\u{1b}[31m\n[7 directories; 99 files]");
        self.lines(&forged, &[(true, "an error in another forged name #")], "\n");
        self.lines(&format!("{area}/tick`s.rs"), &[(true, "an error next to a tick #")], "\n");
        let name = std::ffi::OsStr::from_bytes(b"caf\xe9.rs");
        fs::write(self.root.join(area).join(name), "// error in a name\n").expect("a file");
        self.planted.errors.insert((format!("{area}/caf\u{fffd}.rs"), 1));
        symlink(self.root.join("noise.log"), self.root.join(area).join("link.rs")).expect("a link");
        symlink("nowhere", self.root.join(area).join("dangling.rs")).expect("a link");
        symlink("..", self.root.join(area).join("round")).expect("a link");
        let pipe = self.root.join(area).join("error.pipe");
        let _alone = no_forks();
        let made = std::process::Command::new("mkfifo").arg(pipe).status().expect("mkfifo runs");
        assert!(made.success());
    }

    fn hide(&self) {
        self.text("noise.log", "error\n");
        self.text("out/made.rs", "error\n");
        self.text("parser/.gitignore", "cache.tmp\n");
        self.text("parser/cache.tmp", "error\n");
    }
}

pub(crate) fn plant_lights(root: &Path) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    write("README.md", "# Lights\n\nA Beacon for each ship.\n");
    write("harbour/gate.rs", "//! Gates.\n\nfn run_lantern() {}\n\nfn open() -> RunLantern { beacon_of(1) }\n");
    write("harbour/keeper.rs", "//! Keepers.\n\nstruct RunLantern;\n\nfn fail() -> Error { Error }\n");
    write("ships/sail.go", "// Package ships.\nvar beacons = 3 // run-lantern\nvar err error\n");
    write("ships/deep/hold.py", "\"\"\"Holds.\"\"\"\nBEACON = 1\n");
    write("shore/note.md", "# Notes\n\nNothing to see, but errors.\n");
}
