//! Login links: a code that opens a login once, and the logins that browsers hold.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use blake3::Hash;
use tokio::time::Instant;

use super::tokens::secret;

/// Time in which a link is opened.
const LINK: Duration = Duration::from_secs(300);
/// Time after which a login ends.
const LOGIN: Duration = Duration::from_secs(12 * 3_600);
/// Links and logins that exist at a time: the oldest makes room.
const MOST: usize = 256;

/// Login links and logins of one host; they end with it. Only their hashes are kept.
#[derive(Debug, Default)]
pub struct Logins {
    links: Mutex<HashMap<Hash, Instant>>,
    logins: Mutex<HashMap<Hash, Instant>>,
}

impl Logins {
    /// Makes the code of a link that opens a login once, within five minutes. `None` where the system has no randomness.
    pub fn link(&self) -> Option<String> {
        let code = secret()?;
        keep(&self.links, &code);
        Some(code)
    }

    /// Takes a code; returns the login that its browser holds from now on.
    pub(super) fn redeem(&self, code: &str) -> Option<String> {
        let made = self.links.lock().unwrap_or_else(PoisonError::into_inner).remove(&blake3::hash(code.as_bytes()))?;
        if made.elapsed() > LINK {
            return None;
        }
        let login = secret()?;
        keep(&self.logins, &login);
        Some(login)
    }

    /// Returns whether a login exists and has not ended.
    #[cfg(test)]
    fn is_open(&self, login: &str) -> bool {
        self.is_open_hash(&blake3::hash(login.as_bytes()))
    }

    /// As [`Logins::is_open`], by the hash of the login: the time of the search tells nothing of its text.
    pub(super) fn is_open_hash(&self, login: &Hash) -> bool {
        let logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        logins.get(login).is_some_and(|made| made.elapsed() <= LOGIN)
    }
}

fn keep(of: &Mutex<HashMap<Hash, Instant>>, secret: &str) {
    let mut of = of.lock().unwrap_or_else(PoisonError::into_inner);
    if of.len() >= MOST
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
        tokio::time::advance(LINK + Duration::from_secs(1)).await;
        assert_eq!(logins.redeem(&late), None);
        tokio::time::advance(LOGIN).await;
        assert!(!logins.is_open(&login));
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_link_makes_room_when_there_are_too_many() {
        let logins = Logins::default();
        let first = logins.link().expect("a code");
        for _ in 0..MOST {
            tokio::time::advance(Duration::from_millis(1)).await;
            logins.link().expect("a code");
        }
        assert_eq!(logins.redeem(&first), None);
    }
}
