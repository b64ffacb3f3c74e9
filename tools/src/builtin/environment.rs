//! The environment of commands: a list of variables without secrets, and variables that the host adds.

use std::ffi::{OsStr, OsString};

use subtend_session::ids::Text;

/// Names of variables passed to commands. A trailing `*` matches any suffix.
pub(crate) const PASSED_VARIABLES: [&str; 38] = [
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

/// Returns the variables of `all` that a command receives. `more` has the additional names of the host.
pub(crate) fn passed_variables(
    all: impl IntoIterator<Item = (OsString, OsString)>,
    more: &[Text],
) -> impl Iterator<Item = (OsString, OsString)> {
    let names: Vec<Text> = PASSED_VARIABLES.into_iter().map(Text::from).chain(more.iter().cloned()).collect();
    all.into_iter().filter(move |(name, _)| names.iter().any(|pattern| matches(pattern, name)))
}

fn matches(pattern: &str, name: &OsStr) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.as_encoded_bytes().starts_with(start.as_bytes()),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed_names(all: &[&str], more: &[&str]) -> Vec<String> {
        let all = all.iter().map(|name| ((*name).into(), "value".into()));
        let more: Vec<Text> = more.iter().map(|name| Text::from(*name)).collect();
        passed_variables(all, &more).map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn command_gets_listed_variables_only() {
        let all =
            ["PATH", "LC_ALL", "OPENAI_API_KEY", "LD_PRELOAD", "AWS_SECRET_ACCESS_KEY", "PATHS", "lc_all", "HOME"];
        assert_eq!(passed_names(&all, &[]), ["PATH", "LC_ALL", "HOME"]);
        assert_eq!(passed_names(&all, &["LD_*", "PATHS"]), ["PATH", "LC_ALL", "LD_PRELOAD", "PATHS", "HOME"]);
        assert_eq!(passed_names(&all, &["*"]), all);
    }
}
