//! Bounds of globs, checked before one is compiled.
//!
//! Braces are compiled by recursion, and alternates multiply the memory that a glob takes: without a bound, a glob of a model or
//! of an ignore file that comes with a repository ends the process.

/// Bytes of a glob.
const MAX_BYTES: usize = 1024;
/// Opening braces, nested or not; escaped ones count, so that no reading of escapes can hide one.
const MAX_BRACES: usize = 32;
/// Commas, each of which may begin an alternate.
const MAX_COMMAS: usize = 256;

/// Checks that a glob can be compiled.
///
/// # Errors
/// With what it has too much of.
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
