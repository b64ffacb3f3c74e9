//! Bounds of globs, checked before compilation.
//!
//! Braces compile recursively, and alternates multiply memory: without a bound, a glob of a model or of a repository's ignore file
//! could abort the process.

const MAX_BYTES: usize = 1024;
/// Opening braces; escaped ones count too, so that no escape hides one.
const MAX_BRACES: usize = 32;
/// Commas, which may start alternates.
const MAX_COMMAS: usize = 256;

/// Checks that a glob is safe to compile.
///
/// # Errors
/// The exceeded bound.
pub(super) fn check(glob: &str) -> Result<(), String> {
    let count = |sign: u8| glob.bytes().filter(|byte| *byte == sign).count();
    for (what, found, most) in
        [("bytes", glob.len(), MAX_BYTES), ("braces", count(b'{'), MAX_BRACES), ("alternates", count(b','), MAX_COMMAS)]
    {
        if found > most {
            return Err(format!("it has {found} {what}; {most} is the most a glob may have"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_has_a_length_braces_and_alternates_at_most() {
        assert_eq!(check("src/**/*.{rs,toml}"), Ok(()));
        assert_eq!(check(&"a".repeat(1024)), Ok(()));
        for (glob, found) in [
            ("a".repeat(1025), "1025 bytes"),
            (format!("{}a{}", "{".repeat(33), "}".repeat(33)), "33 braces"),
            ("\\{}".repeat(33), "33 braces"),
            (format!("{{{}}}", ",".repeat(257)), "257 alternates"),
        ] {
            let refused = check(&glob).unwrap_err();
            assert!(refused.starts_with(&format!("it has {found}; ")), "{refused}");
        }
    }
}
