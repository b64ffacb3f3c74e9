//! Lines of an export: `{"n":N,"KIND":{…},"crc":"…"}`, with the CRC-32C of all bytes of the line before `,"crc"`.

use std::fmt;
use std::io::{self, Write};

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use subtend_session::ids::{Epoch, Hash, Seq, SessionId, Text};
use subtend_session::index::Head;

use super::{Scope, Tally};

/// Maximum bytes of a line in addition to the body of its frame.
pub(crate) const LINE_ROOM: u64 = 4 << 10;
/// Length of `,"crc":"01234567"}`.
const SEAL: usize = 18;
const BEFORE: &[u8; 8] = b",\"crc\":\"";
const AFTER: &[u8; 2] = b"\"}";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) format: u32,
    /// Version of its frames.
    pub(crate) frames: u8,
    pub(crate) what: Scope,
}

/// The fields that headers of all versions have.
#[derive(Debug, Deserialize)]
pub(crate) struct AnyHeader {
    pub(crate) export: Versions,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Versions {
    pub(crate) format: u32,
    #[serde(default)]
    pub(crate) frames: u8,
}

/// A body, on a line before the first frame that names it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Def {
    pub(crate) hash: Hash,
    /// JSON as text: the hash covers its bytes.
    pub(crate) body: Text,
}

/// A deleted session, which others may name.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Deleted {
    pub(crate) session: SessionId,
    /// Its position, without text.
    pub(crate) head: Head,
}

/// A frame; `R` is its records or their number.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FrameLine<R> {
    pub(crate) session: SessionId,
    pub(crate) first_seq: Seq,
    pub(crate) epoch: Epoch,
    pub(crate) at_ms: i64,
    pub(crate) records: R,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct End {
    pub(crate) tally: Tally,
    /// BLAKE3 of all bytes before this line.
    pub(crate) sum: Text,
}

/// Any line. Exactly one of the kinds is set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "R: Deserialize<'de>"))]
pub(crate) struct Line<R> {
    pub(crate) n: u64,
    #[serde(default = "Option::default")]
    pub(crate) export: Option<Header>,
    #[serde(default = "Option::default")]
    pub(crate) deleted: Option<Deleted>,
    #[serde(default = "Option::default")]
    pub(crate) def: Option<Def>,
    #[serde(default = "Option::default")]
    pub(crate) frame: Option<FrameLine<R>>,
    #[serde(default = "Option::default")]
    pub(crate) end: Option<End>,
    #[serde(rename = "crc")]
    _crc: IgnoredAny,
}

/// The size of an array of records, counted without storing the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) records: u64,
    /// Number of all JSON values in the records, because even short values need memory.
    pub(crate) values: u64,
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RecordsVisitor;
        impl<'de> Visitor<'de> for RecordsVisitor {
            type Value = Count;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of records")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut records: A) -> Result<Count, A::Error> {
                let mut count = Count::default();
                while let Some(Values(values)) = records.next_element()? {
                    count.records = count.records.saturating_add(1);
                    count.values = count.values.saturating_add(values);
                }
                Ok(count)
            }
        }
        deserializer.deserialize_seq(RecordsVisitor)
    }
}

/// The number of JSON values in a value, including itself.
struct Values(u64);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValuesVisitor;
        impl<'de> Visitor<'de> for ValuesVisitor {
            type Value = Values;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_bool<E>(self, _: bool) -> Result<Values, E> {
                Ok(Values(1))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Values, E> {
                Ok(Values(1))
            }

            fn visit_u64<E>(self, _: u64) -> Result<Values, E> {
                Ok(Values(1))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Values, E> {
                Ok(Values(1))
            }

            fn visit_str<E>(self, _: &str) -> Result<Values, E> {
                Ok(Values(1))
            }

            fn visit_unit<E>(self) -> Result<Values, E> {
                Ok(Values(1))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Values, A::Error> {
                let mut count = 1_u64;
                while let Some(Values(values)) = items.next_element()? {
                    count = count.saturating_add(values);
                }
                Ok(Values(count))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Values, A::Error> {
                let mut count = 1_u64;
                while let Some((IgnoredAny, Values(values))) = fields.next_entry()? {
                    count = count.saturating_add(values);
                }
                Ok(Values(count))
            }
        }
        deserializer.deserialize_any(ValuesVisitor)
    }
}

/// Writes numbered lines with checksums, and computes the checksum of the whole.
pub(crate) struct Writer<'a> {
    out: &'a mut dyn Write,
    n: u64,
    sum: blake3::Hasher,
    buffer: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, n: 0, sum: blake3::Hasher::new(), buffer: Vec::new() }
    }

    pub(crate) fn write_line(&mut self, kind: &str, value: &impl Serialize) -> io::Result<()> {
        self.n = self.n.saturating_add(1);
        self.buffer.clear();
        write!(self.buffer, "{{\"n\":{},\"{kind}\":", self.n)?;
        serde_json::to_writer(&mut self.buffer, value)?;
        seal(&mut self.buffer);
        self.sum.update(&self.buffer);
        self.out.write_all(&self.buffer)
    }

    pub(crate) fn sum(&self) -> Text {
        self.sum.finalize().to_hex().as_str().into()
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

pub(crate) fn seal(line: &mut Vec<u8>) {
    let crc = crc32c::crc32c(line);
    line.extend_from_slice(BEFORE);
    line.extend_from_slice(format!("{crc:08x}").as_bytes());
    line.extend_from_slice(AFTER);
    line.push(b'\n');
}

/// Checks a line without its newline.
pub(crate) fn check(line: &[u8]) -> Result<(), String> {
    let none = || format!("it does not end with a checksum, as `{}01234567\"}}`", String::from_utf8_lossy(BEFORE));
    let (body, tail) = line.len().checked_sub(SEAL).and_then(|at| line.split_at_checked(at)).ok_or_else(none)?;
    let digits = tail.strip_prefix(BEFORE).and_then(|tail| tail.strip_suffix(AFTER)).ok_or_else(none)?;
    let found = format!("{:08x}", crc32c::crc32c(body));
    if digits == found.as_bytes() {
        return Ok(());
    }
    Err(format!("its checksum is {found}, but the line has {}", String::from_utf8_lossy(digits)))
}
