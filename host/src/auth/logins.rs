//! One-time login links, and the browser logins that they open.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use blake3::Hash;
use tokio::time::Instant;

use super::tokens::secret;

const LINK_LIFETIME: Duration = Duration::from_secs(300);
const LOGIN_LIFETIME: Duration = Duration::from_secs(12 * 3_600);
/// Maximum number of links, and of logins. Beyond it, the oldest is removed.
const MAX_KEPT: usize = 256;

/// Login links and logins of a host process. Only their hashes are stored.
#[derive(Debug, Default)]
pub struct Logins {
    links: Mutex<HashMap<Hash, Instant>>,
    logins: Mutex<HashMap<Hash, Instant>>,
}

impl Logins {
    /// Creates a code that opens one login within five minutes. Returns `None` if the system cannot supply random
    /// bytes.
    pub fn link(&self) -> Option<String> {
        let code = secret()?;
        keep(&self.links, &code);
        Some(code)
    }

    /// Redeems a code, and returns the secret of the new login.
    pub(super) fn redeem(&self, code: &str) -> Option<String> {
        let made = self.links.lock().unwrap_or_else(PoisonError::into_inner).remove(&blake3::hash(code.as_bytes()))?;
        if made.elapsed() > LINK_LIFETIME {
            return None;
        }
        let login = secret()?;
        keep(&self.logins, &login);
        Some(login)
    }

    #[cfg(test)]
    fn is_open(&self, login: &str) -> bool {
        self.is_open_hash(&blake3::hash(login.as_bytes()))
    }

    /// As [`Logins::is_open`], by the hash of the login, so that the time of the lookup does not reveal the secret.
    pub(super) fn is_open_hash(&self, login: &Hash) -> bool {
        let logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        logins.get(login).is_some_and(|made| made.elapsed() <= LOGIN_LIFETIME)
    }
}

fn keep(of: &Mutex<HashMap<Hash, Instant>>, secret: &str) {
    let mut of = of.lock().unwrap_or_else(PoisonError::into_inner);
    if of.len() >= MAX_KEPT
        && let Some(oldest) = of.iter().min_by_key(|(_, made)| **made).map(|(hash, _)| *hash)
    {
        of.remove(&oldest);
    }
    of.insert(blake3::hash(secret.as_bytes()), Instant::now());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn link_opens_one_login_in_time() {
        let logins = Logins::default();
        let code = logins.link().expect("a code");
        let login = logins.redeem(&code).expect("a login");
        assert!(logins.is_open(&login) && !logins.is_open(&code));
        assert_eq!(logins.redeem(&code), None, "a code is used once");
        let late = logins.link().expect("a code");
        tokio::time::advance(LINK_LIFETIME + Duration::from_secs(1)).await;
        assert_eq!(logins.redeem(&late), None);
        tokio::time::advance(LOGIN_LIFETIME).await;
        assert!(!logins.is_open(&login));
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_link_is_removed_at_the_limit() {
        let logins = Logins::default();
        let first = logins.link().expect("a code");
        for _ in 0..MAX_KEPT {
            tokio::time::advance(Duration::from_millis(1)).await;
            logins.link().expect("a code");
        }
        assert_eq!(logins.redeem(&first), None);
    }
}
