use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use axum::http::Method;
use blake3::Hash;
use serde::{Deserialize, Serialize};

use super::grant::TokenGrant;
use super::own_file::{FileVersion, new_file, open_lock, read_own};

/// The scope of a token. `admin` includes all others, and `act` includes `read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenScope {
    /// Answering calls of remote tools.
    Work,
    /// Reading sessions, events and metrics.
    Read,
    /// Sending inputs, approving, cancelling.
    Act,
    /// Deleting, exporting, changing agents and tool options.
    Admin,
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Work => "work",
            Self::Read => "read",
            Self::Act => "act",
            Self::Admin => "admin",
        })
    }
}

impl TokenScope {
    /// Returns whether this scope includes `needed`.
    pub(super) fn allows(self, needed: Self) -> bool {
        match needed {
            Self::Work => matches!(self, Self::Work | Self::Admin),
            Self::Read | Self::Act | Self::Admin => self >= needed,
        }
    }

    /// Returns the scope that a request needs, by its method and the segments of its path.
    pub(super) fn required_scope(method: &Method, path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').collect();
        let reads = *method == Method::GET || *method == Method::HEAD;
        match *parts {
            // Returns all records of a tree.
            ["", "v1", "sessions", _, "export"] => Self::Admin,
            // Reads a local file.
            ["", "v1", "store", "imports"] => Self::Admin,
            // Contains file contents that are not in transcripts.
            ["", "v1", "sessions", _, "restore" | "worktree"] => Self::Act,
            ["", "s", _, "restore" | "worktree"] => Self::Act,
            // Changes tool options, one of which may name a model.
            ["", "options"] if !reads => Self::Admin,
            // Removes queued inputs only.
            ["", "v1", "sessions", _, "queue"] | ["", "v1", "sessions", _, "queue", _] if !reads => Self::Act,
            // Only makes messages visible again.
            ["", "v1", "sessions", _, "compaction"] if !reads => Self::Act,
            // Requests of workers.
            ["", "v1", "workers", "take" | "renew" | "complete"] if *method == Method::POST => Self::Work,
            // Only reads, despite its method.
            ["", "v1", "tasks", "list"] if *method == Method::POST => Self::Read,
            _ if reads => Self::Read,
            _ if *method == Method::POST || *method == Method::PATCH => Self::Act,
            _ => Self::Admin,
        }
    }
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// Name of the token.
    pub name: String,
    /// Scope of the token.
    pub scope: TokenScope,
    /// Remote tools whose calls the token may answer, if limited; only with the scope `work`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// BLAKE3 hash of the secret, in hexadecimal.
    hash: String,
}

/// The error for tokens that cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("token file {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file does not contain tokens.
    #[error("token file {path} cannot be read: {source}; move it away, and create tokens again")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// The name is already used.
    #[error("token {0:?} exists: revoke it first, or choose another name")]
    Exists(String),
    /// The token does not exist.
    #[error("no token {0:?}: `subtend token list` shows those that exist")]
    Unknown(String),
    /// The name is invalid for a remote tool.
    #[error("tool {0:?}: names of remote tools have letters a-z A-Z, digits, _ and -")]
    Tool(String),
    /// The system cannot supply random bytes.
    #[error("cannot get random bytes from the system: no token can be made")]
    NoRandomness,
}

impl TokenError {
    /// Returns whether the system failed, for example without a free file descriptor. The file itself may be intact.
    fn is_of_system(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.raw_os_error().is_some())
    }
}

/// The tokens of a host, in a file that only its owner can read. Only hashes of secrets are stored. The file is checked
/// for each request, so that a revoked token is refused at once.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    /// Creates a handle for the file at `path`, which need not exist.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Lists tokens.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn list(&self) -> Result<Vec<TokenInfo>, TokenError> {
        let text = match read_own(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(self.io(source)),
        };
        serde_json::from_str(&text).map_err(|source| TokenError::Malformed { path: self.path.clone(), source })
    }

    /// Creates a token, and returns its secret, which is not stored.
    ///
    /// # Errors
    /// [`TokenError`]; then no token was created.
    pub fn create(&self, name: &str, scope: TokenScope) -> Result<String, TokenError> {
        self.add(name, scope, None)
    }

    /// Creates a token that may only answer calls of `tools`, and returns its secret, which is not stored.
    ///
    /// # Errors
    /// [`TokenError`]; then no token was created.
    pub fn create_for_tools(&self, name: &str, tools: Vec<String>) -> Result<String, TokenError> {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        match tools.iter().find(|tool| tool.is_empty() || !tool.chars().all(word)) {
            Some(tool) => Err(TokenError::Tool(tool.clone())),
            None => self.add(name, TokenScope::Work, Some(tools)),
        }
    }

    fn add(&self, name: &str, scope: TokenScope, tools: Option<Vec<String>>) -> Result<String, TokenError> {
        let _alone = self.lock()?;
        let mut tokens = self.list()?;
        if tokens.iter().any(|token| token.name == name) {
            return Err(TokenError::Exists(name.to_owned()));
        }
        let secret = secret().ok_or(TokenError::NoRandomness)?;
        let hash = blake3::hash(secret.as_bytes()).to_hex().to_string();
        tokens.push(TokenInfo { name: name.to_owned(), scope, tools, hash });
        self.write(&tokens)?;
        Ok(secret)
    }

    /// Revokes a token. Requests with it are refused from now on.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        let _alone = self.lock()?;
        let mut tokens = self.list()?;
        let before = tokens.len();
        tokens.retain(|token| token.name != name);
        if tokens.len() == before {
            return Err(TokenError::Unknown(name.to_owned()));
        }
        self.write(&tokens)
    }

    /// Returns the grant of the token with this secret. Compares hashes in constant time.
    #[cfg(test)]
    fn grant_of(&self, secret: &str) -> Option<TokenGrant> {
        self.grant_of_hash(blake3::hash(secret.as_bytes())).expect("the file can be read")
    }

    /// Returns the grant of the token with this hash; `None` also for a file that is damaged or must not be trusted.
    ///
    /// # Errors
    /// [`TokenError`] if the system cannot read the file now, so that the token may be valid.
    pub(super) fn grant_of_hash(&self, hash: Hash) -> Result<Option<TokenGrant>, TokenError> {
        let tokens = match self.list() {
            Ok(tokens) => tokens,
            Err(error) => {
                tracing::error!(%error, "every token is refused");
                return if error.is_of_system() { Err(error) } else { Ok(None) };
            }
        };
        let is = |token: &&TokenInfo| Hash::from_hex(&token.hash).is_ok_and(|known| known == hash);
        Ok(tokens.iter().find(is).map(|token| TokenGrant::new(token.scope, token.tools.as_deref())))
    }

    /// Returns the version of the file, which changes with each write; `None` if the file cannot be read.
    pub(super) fn version(&self) -> Option<FileVersion> {
        FileVersion::of(&std::fs::symlink_metadata(&self.path).ok()?)
    }

    /// Returns the path of the lock file, which is held while tokens are changed.
    pub fn lock_path(&self) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push(".lock");
        path.into()
    }

    /// Locks the tokens against concurrent changes: a write of an outdated list could restore a revoked token.
    fn lock(&self) -> Result<File, TokenError> {
        let path = self.lock_path();
        let locked = open_lock(&path).and_then(|file| file.lock().map(|()| file));
        locked.map_err(|source| TokenError::Io { path, source })
    }

    /// Writes the tokens atomically: a concurrent reader sees the old or the new file.
    fn write(&self, tokens: &[TokenInfo]) -> Result<(), TokenError> {
        let text = serde_json::to_vec_pretty(tokens)
            .map_err(|source| TokenError::Malformed { path: self.path.clone(), source })?;
        let mut next = self.path.as_os_str().to_owned();
        next.push(format!(".{}", secret().ok_or(TokenError::NoRandomness)?));
        let next = PathBuf::from(next);
        let written = new_file(&next).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        });
        let put = written.and_then(|()| std::fs::rename(&next, &self.path));
        if put.is_err() {
            drop(std::fs::remove_file(&next));
        }
        put.map_err(|source| self.io(source))
    }

    fn io(&self, source: std::io::Error) -> TokenError {
        TokenError::Io { path: self.path.clone(), source }
    }
}

/// Returns 32 random bytes in hexadecimal; `None` if the system cannot supply them.
pub(crate) fn secret() -> Option<String> {
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
        let tokens = TokenFile::at(dir.path().join("tokens.json"));
        let secret = tokens.create("phone", TokenScope::Act).expect("a token");
        assert_eq!(tokens.grant_of(&secret), Some(TokenScope::Act.into()));
        assert_eq!(tokens.grant_of("guess"), None);
        assert!(matches!(tokens.create("phone", TokenScope::Read), Err(TokenError::Exists(_))));
        tokens.revoke("phone").expect("revoked");
        assert_eq!(tokens.grant_of(&secret), None);
        assert!(matches!(tokens.revoke("phone"), Err(TokenError::Unknown(_))));
    }

    #[test]
    fn d6_token_for_a_tool_is_refused_for_other_tools() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = TokenFile::at(dir.path().join("tokens.json"));
        let secret = tokens.create_for_tools("one", vec!["seek".into(), "find-2".into()]).expect("a token");
        let grant = tokens.grant_of(&secret).expect("a grant");
        assert_eq!((grant.scope(), grant.to_string().parse()), (TokenScope::Work, Ok(grant.clone())));
        assert_eq!(
            ["seek", "find-2", "pay", "see", ""].map(|tool| grant.answers(tool)),
            [true, true, false, false, false]
        );
        assert!(TokenGrant::from(TokenScope::Work).answers("pay"));
        for bad in ["", "a,b", "a b", "a:b", "ä"] {
            let refused = tokens.create_for_tools("two", vec![bad.to_owned()]);
            assert!(matches!(refused, Err(TokenError::Tool(_))), "{bad:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn token_file_is_private_and_without_secrets() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tokens.json");
        let secret = TokenFile::at(&path).create("phone", TokenScope::Read).expect("a token");
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
        let text = std::fs::read_to_string(&path).expect("text");
        assert_eq!((mode, text.contains(&secret)), (0o600, false));
    }

    /// Attack: another user replaces or writes the token file to choose a token.
    #[cfg(unix)]
    #[test]
    fn token_files_that_are_links_pipes_or_foreign_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let secret = TokenFile::at(at("planted.json")).create("x", TokenScope::Admin).expect("a token");
        std::os::unix::fs::symlink(at("planted.json"), at("linked.json")).expect("a link");
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe.json"), rustix::fs::Mode::RWXU).expect("a pipe");
        std::fs::create_dir(at("dir.json")).expect("a directory");
        std::fs::copy(at("planted.json"), at("open.json")).expect("a copy");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o606);
        std::fs::set_permissions(at("open.json"), open).expect("its owner may");
        let mut attacks = vec!["linked.json", "pipe.json", "dir.json", "open.json"];
        if rustix::process::geteuid().is_root() {
            std::fs::copy(at("planted.json"), at("foreign.json")).expect("a copy");
            std::os::unix::fs::chown(at("foreign.json"), Some(1_000), None).expect("another owner");
            attacks.push("foreign.json");
        }
        for attack in attacks {
            let tokens = TokenFile::at(at(attack));
            assert_eq!(tokens.grant_of(&secret), None, "{attack}");
            assert!(matches!(tokens.create("y", TokenScope::Read), Err(TokenError::Io { .. })), "{attack}");
        }
        // Positive control: the same file by its own path.
        assert_eq!(TokenFile::at(at("planted.json")).grant_of(&secret), Some(TokenScope::Admin.into()));
    }

    /// Attack: another user who can open the lock file keeps it locked, so that no token can be revoked.
    #[cfg(unix)]
    #[test]
    fn lock_that_others_can_hold_is_refused() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = TokenFile::at(dir.path().join("tokens.json"));
        tokens.create("before", TokenScope::Read).expect("a token");
        let lock = tokens.lock_path();
        let refused = || matches!(tokens.create("x", TokenScope::Read), Err(TokenError::Io { .. }));
        std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o666)).expect("its owner may");
        assert!(refused());
        std::fs::remove_file(&lock).expect("removed");
        symlink(dir.path().join("elsewhere"), &lock).expect("a link");
        assert!(refused());
        // Positive control: after its removal, the lock file is created again.
        std::fs::remove_file(&lock).expect("removed");
        tokens.create("after", TokenScope::Read).expect("a token");
    }

    #[test]
    fn damaged_token_file_refuses_every_token() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = TokenFile::at(dir.path().join("tokens.json"));
        let secret = tokens.create("phone", TokenScope::Read).expect("a token");
        std::fs::write(dir.path().join("tokens.json"), "{").expect("written");
        assert_eq!(tokens.grant_of(&secret), None);
        assert!(matches!(tokens.create("other", TokenScope::Read), Err(TokenError::Malformed { .. })));
    }

    /// Fails if the OpenAPI document has an operation that is not listed here with its scope.
    #[test]
    fn scope_is_decided_for_each_route() {
        let document: serde_json::Value =
            serde_json::from_str(&crate::api::document().expect("a document")).expect("JSON");
        let mut needed: std::collections::BTreeMap<TokenScope, Vec<String>> = std::collections::BTreeMap::new();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for method in methods.as_object().expect("methods").keys() {
                let name = method.to_ascii_uppercase();
                let scope = TokenScope::required_scope(&name.parse().expect("a method"), path);
                // Most GET requests need the scope `read`; only exceptions are listed.
                if (scope, &*name) != (TokenScope::Read, "GET") {
                    needed.entry(scope).or_default().push(format!("{name} {path}"));
                }
            }
        }
        let session = |method: &str, what: &str| format!("{method} /v1/sessions/{{id}}{what}");
        let mut act = vec!["POST /v1/sessions".to_owned(), session("PATCH", "")];
        act.extend(
            ["inputs", "cancel", "interrupt", "continue", "close", "rollback"]
                .map(|it| session("POST", &format!("/{it}"))),
        );
        act.extend(
            ["branches", "compaction", "regenerate", "reload", "summary", "switch"]
                .map(|it| session("POST", &format!("/{it}"))),
        );
        act.extend([
            session("DELETE", "/compaction"),
            session("DELETE", "/queue"),
            session("DELETE", "/queue/{input}"),
            session("GET", "/restore"),
            session("GET", "/worktree"),
        ]);
        act.extend(["merge", "keep", "discard"].map(|it| session("POST", &format!("/worktree/{it}"))));
        act.extend(
            ["approvals/{session}/{call}", "tasks/spawn", "tasks/cancel/{id}", "store/reads"]
                .map(|it| format!("POST /v1/{it}")),
        );
        let agent = |method: &str| format!("{method} /v1/agents/{{name}}");
        let mut admin = vec![session("DELETE", ""), session("GET", "/export"), agent("PUT"), agent("DELETE")];
        admin.extend(["GET", "POST"].map(|method| format!("{method} /v1/store/imports")));
        let sorted = |mut routes: Vec<String>| {
            routes.sort();
            routes
        };
        let found = |scope| sorted(needed.get(&scope).cloned().unwrap_or_default());
        assert_eq!(found(TokenScope::Read), ["POST /v1/tasks/list"]);
        let work = ["take", "renew", "complete"].map(|what| format!("POST /v1/workers/{what}"));
        assert_eq!(found(TokenScope::Work), sorted(work.to_vec()));
        assert_eq!(found(TokenScope::Act), sorted(act));
        assert_eq!(found(TokenScope::Admin), sorted(admin));
    }

    /// A name in a path cannot change the scope of the route. An unknown route needs the scope of its method.
    #[test]
    fn names_in_a_path_do_not_change_its_scope() {
        let attacks: [(Method, &str, TokenScope); 12] = [
            (Method::HEAD, "/v1/sessions/a/export", TokenScope::Admin),
            (Method::POST, "/v1/sessions/a/export", TokenScope::Admin),
            (Method::GET, "/v1/agents/export", TokenScope::Read),
            (Method::POST, "/options", TokenScope::Admin),
            (Method::GET, "/s/a/worktree", TokenScope::Act),
            (Method::GET, "/s/worktree", TokenScope::Read),
            (Method::POST, "/s/options/send", TokenScope::Act),
            (Method::DELETE, "/v1/sessions/queue", TokenScope::Admin),
            (Method::DELETE, "/v1/sessions/a/queue/b/c", TokenScope::Admin),
            (Method::DELETE, "/queue/v1/sessions/a/queue", TokenScope::Admin),
            (Method::POST, "/v1/tasks/list/", TokenScope::Act),
            (Method::PUT, "/v1/tasks/list", TokenScope::Admin),
        ];
        for (method, path, scope) in attacks {
            assert_eq!(TokenScope::required_scope(&method, path), scope, "{method} {path}");
        }
        // Positive control: a check of only the end of the path would confuse these resources.
        assert!("/v1/agents/export".ends_with("/export") && "/queue/v1/sessions/a/queue".ends_with("/queue"));
    }
}
