//! Ids, numbers and hashes as newtypes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Text shared by records, messages and results without copying.
pub type Text = Arc<str>;

/// The id of a session: a UUID of version 7, so that sessions sort by creation time. The runtime generates ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub Uuid);

/// The id of an accepted input: the sender's receipt.
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

impl InputId {
    /// Returns the id with a request's hash in place of its random bits, so that a repeated request is recognised.
    pub fn of_request(self, hash: u64) -> Self {
        let (time, _) = self.0.as_u64_pair();
        // Sets version 8 and the standard variant.
        Self(Uuid::from_u64_pair((time & !0xf000) | 0x8000, (hash >> 2) | (1 << 63)))
    }

    /// Returns whether the id contains `hash`; `None` if it contains no hash.
    pub fn is_of_request(self, hash: u64) -> Option<bool> {
        (self.0.get_version_num() == 8).then(|| self == self.of_request(hash))
    }
}

impl SessionId {
    /// Returns six hexadecimal characters of the id's random tail; the caller makes it unique among siblings.
    pub fn short(self) -> Short {
        let mut buffer = Uuid::encode_buffer();
        let whole: &str = self.0.simple().encode_lower(&mut buffer);
        Short(whole.get(26..).unwrap_or_default().into())
    }
}

/// The short name of a session, unique among its siblings: the end of its id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(transparent)]
pub struct Short(pub Text);

impl<'de> Deserialize<'de> for Short {
    /// Refuses a text with other characters than a short name has. Commands print short names as they are.
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(from)?;
        if text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Ok(Self(text));
        }
        Err(serde::de::Error::custom(format!("the short name {text:?} is not of letters and digits only")))
    }
}

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
    /// The number of a run within its session, from 1.
    RunNo(u32)
);
counter!(
    /// The number of a turn within its session, from 1; not reset by a new run.
    TurnNo(u32)
);
counter!(
    /// The number of a model attempt within its turn, from 1.
    AttemptNo(u32)
);
counter!(
    /// The position of a record in its session's journal, from 1.
    Seq(u64)
);
counter!(
    /// The number of a session's activation, from 1; a later one fences all earlier ones.
    Epoch(u32)
);
counter!(
    /// The position of a frame in the store's total order, from 1; assigned by the journal.
    Lsn(u64)
);

/// The id of a tool call: its turn and position. Also the key of the owned run's notice, and a tool's idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId {
    pub turn: TurnNo,
    /// The position in the answer, from 0.
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

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RunKey {
    pub session: SessionId,
    pub run: RunNo,
}

/// The id of a message: the record that holds it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct MsgRef {
    /// The session whose journal holds the record.
    pub session: SessionId,
    pub seq: Seq,
}

/// 128 bits of BLAKE3 over a value's content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 16]);

impl Hash {
    pub fn of(bytes: &[u8]) -> Self {
        let mut out = [0; 16];
        blake3::Hasher::new().update(bytes).finalize_xof().fill(&mut out);
        Self(out)
    }

    /// Returns the 32 digits as one text, because a serializer has a fixed cost for each piece.
    fn digits(self, buffer: &mut [u8; 32]) -> &str {
        Uuid::from_bytes(self.0).as_simple().encode_lower(buffer)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.digits(&mut [0; 32]))
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

/// A text that is not 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 32 hexadecimal digits")]
pub struct BadHash;

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.digits(&mut [0; 32]))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A value named by its hash, whose body is stored once per distinct value.
///
/// In memory the body is present. In the journal only the first record that names the hash contains the body; the
/// `def` table restores it in later records.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "T: Serialize", deserialize = "Box<T>: Deserialize<'de>"))]
pub struct Interned<T: ?Sized> {
    pub hash: Hash,
    /// Absent in all records of a journal except the first that names the hash.
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
    /// Creates the interned form of `body`.
    /// # Errors
    /// If the body cannot be written as JSON.
    pub fn new(body: Arc<T>) -> Result<Self, serde_json::Error> {
        let hash = Hash::of(&serde_json::to_vec(&*body)?);
        Ok(Self { hash, body: Some(body) })
    }
}

impl<T: ?Sized> Interned<T> {
    /// Returns the hash without the body, as in later records.
    #[must_use]
    pub fn stripped(&self) -> Self {
        Self { hash: self.hash, body: None }
    }
}
