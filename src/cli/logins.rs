//! The file of logins for MCP servers, next to the user's configuration. Only the user can read it.

use std::io::ErrorKind;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use subtend_session::ids::Hash;
use subtend_tools::mcp::{Login, LoginKey, LoginStore};

use super::fail::Fail;
use super::settings;
use super::written_file::{self, write_private};

/// Maximum bytes of the file.
const MAX_BYTES: u64 = 4 << 20;
/// Maximum bytes of one login, so that no server can fill the file.
const MAX_LOGIN_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct LoginFile {
    path: PathBuf,
}

#[derive(Deserialize, Serialize)]
struct LoginEntry {
    #[serde(flatten)]
    key: LoginKey,
    login: Login,
}

impl LoginFile {
    /// Returns the file, which need not exist; `None` without a home directory.
    pub(crate) fn locate() -> Option<Self> {
        settings::unchecked_user_path(settings::LOGINS).map(|path| Self { path })
    }

    /// Returns the file for writing.
    ///
    /// # Errors
    /// If another user could write it.
    pub(crate) fn to_write() -> Result<Self, Fail> {
        settings::user_path_to_write(settings::LOGINS, "the login").map(|path| Self { path })
    }

    fn read(&self) -> Result<Vec<LoginEntry>, String> {
        let wrong = |why: &str| format!("{} cannot be used: {why}", self.path.display());
        let found = match self.path.symlink_metadata() {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(wrong(&error.to_string())),
        };
        if !found.is_file() || found.len() > MAX_BYTES {
            return Err(wrong("it is not a regular file of this program: remove it, and log in again"));
        }
        if !settings::is_own(&self.path) || is_open(&found) {
            return Err(wrong("other users can read or write it: remove it, and log in again"));
        }
        let text = std::fs::read_to_string(&self.path).map_err(|error| wrong(&error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| wrong(&format!("{error}; remove it, and log in again")))
    }

    /// Returns the path of the lock of one login, or of the whole file for `None`.
    fn lock_path(&self, key: Option<&LoginKey>) -> Result<PathBuf, String> {
        let key = key.map(serde_json::to_vec).transpose().map_err(|error| error.to_string())?;
        let mut path = self.path.as_os_str().to_owned();
        path.push(key.map_or_else(String::new, |key| format!(".{}", Hash::of(&key))));
        path.push(".lock");
        Ok(path.into())
    }

    fn acquire_lock(&self, key: Option<&LoginKey>) -> Result<std::fs::File, String> {
        let path = self.lock_path(key)?;
        written_file::lock(&path).map_err(|error| format!("{} cannot be locked: {error}", path.display()))
    }
}

#[cfg(unix)]
fn is_open(found: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    found.permissions().mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn is_open(_: &std::fs::Metadata) -> bool {
    false
}

impl LoginStore for LoginFile {
    fn load(&self, key: &LoginKey) -> Result<Option<Login>, String> {
        Ok(self.read()?.into_iter().find(|entry| entry.key == *key).map(|entry| entry.login))
    }

    fn save(&self, key: &LoginKey, login: Option<&Login>) -> Result<(), String> {
        if login
            .map(serde_json::to_vec)
            .transpose()
            .is_ok_and(|text| text.is_some_and(|text| text.len() > MAX_LOGIN_BYTES))
        {
            return Err(format!("its login has more than {MAX_LOGIN_BYTES} bytes, and is not kept"));
        }
        // Lock the file for this write, because it also contains other logins.
        let _locked = self.acquire_lock(None)?;
        let mut all = self.read()?;
        all.retain(|entry| entry.key != *key);
        all.extend(login.map(|login| LoginEntry { key: key.clone(), login: login.clone() }));
        let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?;
        // Check that the new content can be read: one bad login would make the whole file unreadable.
        if text.len() as u64 >= MAX_BYTES || serde_json::from_str::<Vec<LoginEntry>>(&text).is_err() {
            return Err(format!("its tokens cannot be kept: with them {} could not be read", self.path.display()));
        }
        write_private(&self.path, &(text + "\n")).map_err(|error| error.to_string())
    }

    fn lock(&self, key: &LoginKey) -> Result<Box<dyn Send>, String> {
        Ok(Box::new(self.acquire_lock(Some(key))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(server: &str) -> LoginKey {
        LoginKey { server: server.into(), workspace: None }
    }

    fn login() -> Login {
        serde_json::from_value(serde_json::json!({
            "url": "https://tracker.example/mcp", "resource": "https://tracker.example/mcp", "client_secret": null, "since": 7,
            "metadata": {"authorization_endpoint": "https://a.example/a", "token_endpoint": "https://a.example/t"},
            "credentials": {"client_id": "c", "token_response": {"access_token": "at-0123456789", "token_type": "bearer"}},
        }))
        .expect("a login")
    }

    /// The control: the file as this program writes it is accepted.
    #[cfg(unix)]
    #[test]
    fn x17_login_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let file = LoginFile { path: dir.path().join("deep/logins.json") };
        file.save(&key("a"), Some(&login())).expect("saved");
        file.save(&key("b"), Some(&login())).expect("saved");
        file.save(&key("a"), None).expect("removed");
        assert_eq!(file.path.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
        assert!(file.load(&key("a")).expect("read").is_none() && file.load(&key("b")).expect("read").is_some());
        let other = LoginKey { workspace: Some("/w".into()), ..key("b") };
        assert!(file.load(&other).expect("read").is_none(), "a workspace used the login of the user");
        std::fs::set_permissions(&file.path, std::fs::Permissions::from_mode(0o644)).expect("set");
        assert!(file.load(&key("b")).expect_err("refused").contains("other users can read"));
        assert!(file.save(&key("c"), Some(&login())).is_err(), "it was written");
        std::fs::rename(&file.path, dir.path().join("elsewhere")).expect("moved");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &file.path).expect("a link");
        assert!(file.load(&key("b")).expect_err("refused").contains("not a regular file"));
    }

    /// A slow authorization server may keep its login locked for a long time. The control: the lock is exclusive.
    #[test]
    fn lock_of_a_login_is_exclusive_and_stops_no_other_login() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = LoginFile { path: dir.path().join("logins.json") };
        let held = file.lock(&key("a")).expect("locked");
        let path = file.lock_path(Some(&key("a"))).expect("a path");
        let other = std::fs::File::options().write(true).open(path).expect("the lock file");
        assert!(other.try_lock().is_err());
        drop(file.lock(&key("b")).expect("locked"));
        file.save(&key("b"), Some(&login())).expect("saved");
        drop(held);
        assert!(other.try_lock().is_ok());
    }

    /// The control: a login of usual size is stored although the large one is refused.
    #[test]
    fn large_login_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = LoginFile { path: dir.path().join("logins.json") };
        file.save(&key("a"), Some(&login())).expect("saved");
        let mut large = serde_json::to_value(login()).expect("JSON");
        large["client_secret"] = "x".repeat(MAX_LOGIN_BYTES).into();
        let large: Login = serde_json::from_value(large).expect("a login");
        let why = file.save(&key("b"), Some(&large)).expect_err("refused");
        assert_eq!(why, "its login has more than 65536 bytes, and is not kept");
        assert!(file.load(&key("a")).expect("read").is_some() && file.load(&key("b")).expect("read").is_none());
    }
}
