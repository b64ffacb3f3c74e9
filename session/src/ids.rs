//! Identities: newtypes for everything that is named, counted or addressed.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Text that records, messages and results share without copying.
pub type Text = Arc<str>;

/// Names one session for ever.
///
/// A UUID of version 7: sessions sort by the time of their birth. Ids are minted by the hub and enter here as values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub Uuid);

/// Names one accepted input; the receipt that a sender holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InputId(pub Uuid);

macro_rules! uuid_newtype {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(s).map($name)
            }
        }
    };
}
uuid_newtype!(SessionId);
uuid_newtype!(InputId);

impl SessionId {
    /// Six characters of the id's random tail, in lower-case hexadecimal; made unique among siblings by the caller.
    pub fn short(self) -> Short {
        let mut buffer = Uuid::encode_buffer();
        let whole: &str = self.0.simple().encode_lower(&mut buffer);
        Short(whole.get(26..).unwrap_or_default().into())
    }
}

/// The short name of a session, unique among its siblings and recorded at its birth.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Short(pub Text);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The next one.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

counter!(
    /// Number of a run within its session, from 1.
    RunNo(u32)
);
counter!(
    /// Number of a turn within its session, from 1; not reset by a new run.
    TurnNo(u32)
);
counter!(
    /// Number of a model attempt within its turn, from 1.
    AttemptNo(u32)
);
counter!(
    /// Place of a record in its session's journal, from 1.
    Seq(u64)
);
counter!(
    /// Number of an activation of a session, from 1; a later one fences all earlier ones (J-6).
    Epoch(u32)
);
counter!(
    /// Place of a frame in the store's one total order, from 1; given by the journal.
    Lsn(u64)
);

/// Names one tool call of a session: the turn whose answer asked for it, and its place in that answer.
///
/// It also is the key of what the call obliges (the notice of an owned run, the idempotency key of a tool).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId {
    /// The turn whose answer asked for the call.
    pub turn: TurnNo,
    /// Place in that answer, from 0.
    pub ix: u32,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.turn, self.ix)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Names one run of one session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RunKey {
    /// The session.
    pub session: SessionId,
    /// The run of that session.
    pub run: RunNo,
}

/// Names one message: a message is its record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct MsgRef {
    /// The session whose journal holds the record.
    pub session: SessionId,
    /// The record.
    pub seq: Seq,
}

/// 128 bits of BLAKE3: names a value by its content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 16]);

impl Hash {
    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut out = [0; 16];
        blake3::Hasher::new().update(bytes).finalize_xof().fill(&mut out);
        Self(out)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = BadHash;

    fn from_str(s: &str) -> Result<Self, BadHash> {
        if s.len() != 32 || !s.is_ascii() {
            return Err(BadHash);
        }
        let value = u128::from_str_radix(s, 16).map_err(|_| BadHash)?;
        Ok(Self(value.to_be_bytes()))
    }
}

/// A hash is 32 hexadecimal digits, and this was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 32 hexadecimal digits")]
pub struct BadHash;

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A value named by its hash, whose body travels once per distinct value.
///
/// In memory the body is there; in the journal only the first record that names the value carries it, and the journal's
/// `def` table gives it back (see `journal`).
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "T: Serialize", deserialize = "Box<T>: Deserialize<'de>"))]
pub struct Interned<T: ?Sized> {
    /// Hash of the body's JSON.
    pub hash: Hash,
    /// The body; absent in all but the first record of a journal that names it.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub body: Option<Arc<T>>,
}

impl<T: ?Sized> Clone for Interned<T> {
    fn clone(&self) -> Self {
        Self { hash: self.hash, body: self.body.clone() }
    }
}

impl<T: ?Sized> PartialEq for Interned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl<T: ?Sized> Eq for Interned<T> {}

impl<T: Serialize + ?Sized> Interned<T> {
    /// Names `body` by its hash.
    ///
    /// # Errors
    /// When the body cannot be written as JSON.
    pub fn new(body: Arc<T>) -> Result<Self, serde_json::Error> {
        let hash = Hash::of(&serde_json::to_vec(&*body)?);
        Ok(Self { hash, body: Some(body) })
    }
}

impl<T: ?Sized> Interned<T> {
    /// The same name without its body, as later records carry it.
    #[must_use]
    pub fn stripped(&self) -> Self {
        Self { hash: self.hash, body: None }
    }
}
