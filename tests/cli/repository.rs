//! A generated repository with planted facts.

use super::call::User;

/// Areas of the repository; each has one file with a planted error type.
pub(crate) const AREAS: [&str; 4] = ["engine", "parser", "server", "store"];

pub(crate) fn make(user: &User) {
    user.file("README.md", "# Zephyr\n\nA small engine with a parser, a server and a store.\n");
    for area in AREAS {
        let title = format!("{}{}", area[..1].to_uppercase(), &area[1..]);
        let errors = format!(
            "//! What goes wrong in the {area}.\n\npub enum {title}Error {{\n    Broken,\n}}\n\n\
             pub fn check(fine: bool) -> Result<(), {title}Error> {{\n    if fine {{ Ok(()) }} else {{ Err({title}Error::Broken) }}\n}}\n"
        );
        user.file(&format!("{area}/errors.rs"), &errors);
        user.file(&format!("{area}/lib.rs"), &format!("//! The {area} of Zephyr.\n\nmod errors;\n"));
    }
}
