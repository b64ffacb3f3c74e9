//! Writes records and rows as JSON: the bytes of `serde_json`, whose check of each byte of each name and text took half of the time to
//! encode a frame.

use serde::ser::{self, Serialize, Serializer};
use serde_json::{Error, Result};

/// Bytes of a text that are checked at once.
const CHUNK: usize = 32;

/// Appends `value` to `out`.
/// # Errors
/// As [`serde_json::to_writer`].
pub(crate) fn write(out: &mut Vec<u8>, value: &impl Serialize) -> Result<()> {
    value.serialize(JsonWriter(out))
}

struct JsonWriter<'a>(&'a mut Vec<u8>);

/// The elements of an array or an object, and what closes it.
struct Elements<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
    close: &'static [u8],
}

fn is_plain(text: &str) -> bool {
    let is_escaped = |byte: &u8| *byte < b' ' || *byte == b'"' || *byte == b'\\';
    // Without an early exit within a chunk, so that the compiler uses vectors.
    let has_escaped = |chunk: &[u8]| chunk.iter().fold(false, |any, byte| any | is_escaped(byte));
    !text.as_bytes().chunks(CHUNK).any(has_escaped)
}

fn push_quoted(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len().saturating_add(3));
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Appends the name of a field or variant, which needs no escapes.
fn push_name(out: &mut Vec<u8>, name: &'static str) {
    debug_assert!(is_plain(name));
    push_quoted(out, name);
    out.push(b':');
}

impl<'a> JsonWriter<'a> {
    fn elements(self, open: u8, close: &'static [u8]) -> Result<Elements<'a>> {
        self.0.push(open);
        Ok(Elements { out: self.0, first: true, close })
    }

    fn variant(self, name: &'static str, open: u8, close: &'static [u8]) -> Result<Elements<'a>> {
        self.0.push(b'{');
        push_name(self.0, name);
        self.elements(open, close)
    }
}

/// Passes values to `serde_json`.
macro_rules! pass {
    ($($name:ident($of:ty))*) => {$(
        fn $name(self, value: $of) -> Result<()> {
            serde_json::to_writer(self.0, &value)
        }
    )*};
}

impl<'a> Serializer for JsonWriter<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Elements<'a>;
    type SerializeTuple = Elements<'a>;
    type SerializeTupleStruct = Elements<'a>;
    type SerializeTupleVariant = Elements<'a>;
    type SerializeMap = Elements<'a>;
    type SerializeStruct = Elements<'a>;
    type SerializeStructVariant = Elements<'a>;

    pass! {
        serialize_bool(bool)
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64) serialize_i128(i128)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64) serialize_u128(u128)
        serialize_f32(f32) serialize_f64(f64) serialize_char(char) serialize_bytes(&[u8])
    }

    fn serialize_str(self, text: &str) -> Result<()> {
        if !is_plain(text) {
            return serde_json::to_writer(self.0, text);
        }
        push_quoted(self.0, text);
        Ok(())
    }

    fn serialize_none(self) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<()> {
        self.0.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Result<()> {
        self.serialize_str(name)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Result<()> {
        self.0.push(b'{');
        push_name(self.0, name);
        value.serialize(JsonWriter(self.0))?;
        self.0.push(b'}');
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Elements<'a>> {
        self.elements(b'[', b"]")
    }

    fn serialize_tuple(self, _: usize) -> Result<Elements<'a>> {
        self.elements(b'[', b"]")
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Elements<'a>> {
        self.elements(b'[', b"]")
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, name: &'static str, _: usize) -> Result<Elements<'a>> {
        self.variant(name, b'[', b"]}")
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Elements<'a>> {
        self.elements(b'{', b"}")
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Elements<'a>> {
        self.elements(b'{', b"}")
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, name: &'static str, _: usize) -> Result<Elements<'a>> {
        self.variant(name, b'{', b"}}")
    }
}

impl Elements<'_> {
    fn separate(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.separate();
        value.serialize(JsonWriter(self.out))
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<()> {
        self.separate();
        push_name(self.out, name);
        value.serialize(JsonWriter(self.out))
    }

    fn close(self) -> Result<()> {
        self.out.extend_from_slice(self.close);
        Ok(())
    }
}

/// Implements the serializer of elements with values (`$method`) or of fields.
macro_rules! elements {
    ($($of:ident::$method:ident)*) => {$(
        impl ser::$of for Elements<'_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
                self.element(value)
            }

            fn end(self) -> Result<()> {
                self.close()
            }
        }
    )*};
    (fields $($of:ident)*) => {$(
        impl ser::$of for Elements<'_> {
            type Ok = ();
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<()> {
                self.field(name, value)
            }

            fn end(self) -> Result<()> {
                self.close()
            }
        }
    )*};
}

elements! {
    SerializeSeq::serialize_element
    SerializeTuple::serialize_element
    SerializeTupleStruct::serialize_field
    SerializeTupleVariant::serialize_field
}
elements! { fields SerializeStruct SerializeStructVariant }

impl ser::SerializeMap for Elements<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        self.separate();
        // Keys that are not texts are quoted.
        let written = serde_json::to_string(key)?;
        if written.starts_with('"') {
            self.out.extend_from_slice(written.as_bytes());
        } else {
            push_quoted(self.out, &written);
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.out.push(b':');
        value.serialize(JsonWriter(self.out))
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, serde::Serialize)]
    enum Sample {
        Unit,
        Newtype(Option<String>),
        Tuple(u8, (i64, bool)),
        Struct { text: String, map: BTreeMap<u32, Vec<char>>, float: f64, nothing: () },
    }

    proptest! {
        #[test]
        fn bytes_are_those_of_serde_json(text in ".{0,80}", ascii in "[ -~]{0,80}", number: u32, float: f64) {
            let map = BTreeMap::from([(number, text.chars().collect()), (0, Vec::new())]);
            let shapes = [
                Sample::Unit,
                Sample::Newtype(Some(ascii)),
                Sample::Newtype(None),
                Sample::Tuple(number as u8, (-i64::from(number), true)),
                Sample::Struct { text, map, float, nothing: () },
            ];
            let mut out = Vec::new();
            write(&mut out, &shapes).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&shapes).unwrap());
        }
    }
}
