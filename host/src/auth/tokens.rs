//! Tokens: who holds one may use the host within its scope.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use axum::http::Method;
use blake3::Hash;
use serde::{Deserialize, Serialize};

/// What a token allows; each scope includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Reading sessions, events and figures.
    Read,
    /// Sending inputs, approving, cancelling.
    Act,
    /// Deleting, exporting, options of tools.
    Admin,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Act => "act",
            Self::Admin => "admin",
        })
    }
}

impl Scope {
    /// The scope that a request needs.
    pub(super) fn needed(method: &Method, path: &str) -> Self {
        let reads = *method == Method::GET || *method == Method::HEAD;
        // An option may name a model. The list of tasks is a POST, as its seed has it.
        let configures = path == "/options" && !reads;
        let parts: Vec<&str> = path.split('/').collect();
        let of_queue = matches!(*parts, ["", "v1", "sessions", _, "queue"] | ["", "v1", "sessions", _, "queue", _]);
        if configures || path.ends_with("/export") || (*method == Method::DELETE && !of_queue) {
            Self::Admin
        } else if reads || path == "/v1/tasks/list" {
            Self::Read
        } else {
            Self::Act
        }
    }
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// Its name, by which it is revoked.
    pub name: String,
    /// What it allows.
    pub scope: Scope,
    /// BLAKE3 of the secret, in hexadecimal.
    hash: String,
}

/// Why tokens cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("token file {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file does not hold tokens.
    #[error("token file {path} cannot be read: {source}; move it away, and create tokens again")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The name is taken.
    #[error("token {0:?} exists: revoke it first, or choose another name")]
    Exists(String),
    /// No token has that name.
    #[error("no token {0:?}: `subtend token list` shows those that exist")]
    Unknown(String),
    /// The system has no randomness.
    #[error("the system gives no random bytes: no token can be made")]
    NoRandomness,
}

/// The tokens of a host, in a file that only its owner may read. Only hashes of secrets are kept. It is read for each request, so
/// that a revoked token is refused at once.
#[derive(Clone, Debug)]
pub struct Tokens {
    path: PathBuf,
}

impl Tokens {
    /// The tokens of the file `path`, which need not exist.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Lists tokens.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn list(&self) -> Result<Vec<TokenInfo>, TokenError> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(self.io(source)),
        };
        serde_json::from_str(&text).map_err(|source| TokenError::Malformed { path: self.path.clone(), source })
    }

    /// Makes a token; returns its secret, which is shown this once.
    ///
    /// # Errors
    /// [`TokenError`]; then no token was made.
    pub fn create(&self, name: &str, scope: Scope) -> Result<String, TokenError> {
        let mut tokens = self.list()?;
        if tokens.iter().any(|token| token.name == name) {
            return Err(TokenError::Exists(name.to_owned()));
        }
        let secret = secret().ok_or(TokenError::NoRandomness)?;
        let hash = blake3::hash(secret.as_bytes()).to_hex().to_string();
        tokens.push(TokenInfo { name: name.to_owned(), scope, hash });
        self.write(&tokens)?;
        Ok(secret)
    }

    /// Revokes a token: from now on it is refused.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        let mut tokens = self.list()?;
        let before = tokens.len();
        tokens.retain(|token| token.name != name);
        if tokens.len() == before {
            return Err(TokenError::Unknown(name.to_owned()));
        }
        self.write(&tokens)
    }

    /// Returns what `secret` allows. Hashes are compared, in constant time.
    pub(super) fn scope_of(&self, secret: &str) -> Option<Scope> {
        let hash = blake3::hash(secret.as_bytes());
        let tokens = match self.list() {
            Ok(tokens) => tokens,
            Err(error) => {
                tracing::error!(%error, "every token is refused");
                return None;
            }
        };
        let is = |token: &&TokenInfo| Hash::from_hex(&token.hash).is_ok_and(|known| known == hash);
        tokens.iter().find(is).map(|token| token.scope)
    }

    /// Writes a new file and puts it in place of the old one, so that a reader finds one of them whole.
    fn write(&self, tokens: &[TokenInfo]) -> Result<(), TokenError> {
        let text = serde_json::to_vec_pretty(tokens)
            .map_err(|source| TokenError::Malformed { path: self.path.clone(), source })?;
        let next = self.path.with_extension("new");
        let written = owner_only(&next).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        written.and_then(|()| std::fs::rename(&next, &self.path)).map_err(|source| self.io(source))
    }

    fn io(&self, source: std::io::Error) -> TokenError {
        TokenError::Io { path: self.path.clone(), source }
    }
}

/// Creates a file that only its owner may read, in place of one that exists.
fn owner_only(path: &Path) -> std::io::Result<std::fs::File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// 32 random bytes, in hexadecimal.
pub(super) fn secret() -> Option<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
        text.extend([digit(byte >> 4), digit(byte & 15)]);
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_allows_its_scope_until_it_is_revoked() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::at(dir.path().join("tokens.json"));
        let secret = tokens.create("phone", Scope::Act).expect("a token");
        assert_eq!(tokens.scope_of(&secret), Some(Scope::Act));
        assert_eq!(tokens.scope_of("guess"), None);
        assert!(matches!(tokens.create("phone", Scope::Read), Err(TokenError::Exists(_))));
        tokens.revoke("phone").expect("revoked");
        assert_eq!(tokens.scope_of(&secret), None);
        assert!(matches!(tokens.revoke("phone"), Err(TokenError::Unknown(_))));
    }

    #[cfg(unix)]
    #[test]
    fn token_file_is_closed_to_others_and_keeps_no_secret() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tokens.json");
        let secret = Tokens::at(&path).create("phone", Scope::Read).expect("a token");
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
        let text = std::fs::read_to_string(&path).expect("text");
        assert_eq!((mode, text.contains(&secret)), (0o600, false));
    }

    #[test]
    fn damaged_token_file_refuses_every_token() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::at(dir.path().join("tokens.json"));
        let secret = tokens.create("phone", Scope::Read).expect("a token");
        std::fs::write(dir.path().join("tokens.json"), "{").expect("written");
        assert_eq!(tokens.scope_of(&secret), None);
        assert!(matches!(tokens.create("other", Scope::Read), Err(TokenError::Malformed { .. })));
    }

    #[test]
    fn scope_follows_from_method_and_resource() {
        let needed = |method: Method, path| Scope::needed(&method, path);
        assert_eq!(needed(Method::GET, "/v1/sessions"), Scope::Read);
        assert_eq!(needed(Method::POST, "/v1/tasks/list"), Scope::Read);
        assert_eq!(needed(Method::POST, "/v1/sessions/a/inputs"), Scope::Act);
        assert_eq!(needed(Method::DELETE, "/v1/sessions/a/queue/b"), Scope::Act);
        assert_eq!(needed(Method::DELETE, "/v1/sessions/a"), Scope::Admin);
        assert_eq!(needed(Method::GET, "/v1/sessions/a/export"), Scope::Admin);
    }
}
