//! The environment of commands: names without secrets, and names that the host adds.

use std::ffi::{OsStr, OsString};

use subtend_session::ids::Text;

/// Variables of the system, its user and tool locations. A trailing `*` matches any suffix.
pub(crate) const PASSED: [&str; 38] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "TZ",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "RBENV_ROOT",
    "NVM_DIR",
    "VOLTA_HOME",
    "ASDF_DATA_DIR",
    "MISE_DATA_DIR",
    "SDKMAN_DIR",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "HOMEBREW_PREFIX",
    "NIX_PROFILES",
    "PKG_CONFIG_PATH",
];

/// Returns the variables of `all` that a command gets; `more` are the host's additions.
pub(crate) fn of(
    all: impl IntoIterator<Item = (OsString, OsString)>,
    more: &[Text],
) -> impl Iterator<Item = (OsString, OsString)> {
    let names: Vec<Text> = PASSED.into_iter().map(Text::from).chain(more.iter().cloned()).collect();
    all.into_iter().filter(move |(name, _)| names.iter().any(|pattern| is_meant(pattern, name)))
}

fn is_meant(pattern: &str, name: &OsStr) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.as_encoded_bytes().starts_with(start.as_bytes()),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(all: &[&str], more: &[&str]) -> Vec<String> {
        let all = all.iter().map(|name| ((*name).into(), "value".into()));
        let more: Vec<Text> = more.iter().map(|name| Text::from(*name)).collect();
        of(all, &more).map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn a_command_gets_the_names_that_are_listed_and_no_other() {
        let all =
            ["PATH", "LC_ALL", "OPENAI_API_KEY", "LD_PRELOAD", "AWS_SECRET_ACCESS_KEY", "PATHS", "lc_all", "HOME"];
        assert_eq!(passed(&all, &[]), ["PATH", "LC_ALL", "HOME"]);
        assert_eq!(passed(&all, &["LD_*", "PATHS"]), ["PATH", "LC_ALL", "LD_PRELOAD", "PATHS", "HOME"]);
        assert_eq!(passed(&all, &["*"]), all);
    }
}
