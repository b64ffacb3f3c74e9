//! Limits of globs, checked before compilation.
//!
//! Braces compile recursively, and alternates multiply memory. Without limits, a glob from a model or from a repository's ignore file
//! could abort the process.

const MAX_BYTES: usize = 1024;
/// Maximum number of opening braces, including escaped ones.
const MAX_BRACES: usize = 32;
/// Maximum number of commas, each of which may start an alternate.
const MAX_COMMAS: usize = 256;

/// Checks that a glob is safe to compile.
///
/// # Errors
/// If the glob exceeds a limit, which the error names.
pub(super) fn check(glob: &str) -> Result<(), String> {
    let count = |sign: u8| glob.bytes().filter(|byte| *byte == sign).count();
    for (what, found, most) in
        [("bytes", glob.len(), MAX_BYTES), ("braces", count(b'{'), MAX_BRACES), ("alternates", count(b','), MAX_COMMAS)]
    {
        if found > most {
            return Err(format!("it has {found} {what}; the limit is {most}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_over_a_limit_is_refused() {
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
