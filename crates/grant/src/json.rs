//! JSON, read strictly: a key twice, a nesting or a list beyond its bound, or anything after the value is refused.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::limits::{JSON_DEPTH_MAX, JSON_MEMBERS_MAX};

/// A JSON value as grants and keys need it.
#[derive(Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool,
    Integer(u64),
    /// A negative number or one with a fraction: no member that this crate reads is one.
    OtherNumber,
    Text(String),
    List(Vec<Json>),
    Object(Object),
}

/// An object whose keys are all different.
#[derive(Clone, PartialEq, Default)]
pub(crate) struct Object(Vec<(String, Json)>);

impl Object {
    pub(crate) fn member(&self, name: &str) -> Option<&Json> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// The text of a member; `None` where it is absent or something else.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.member(name) {
            Some(Json::Text(text)) => Some(text),
            _ => None,
        }
    }
}

/// Reads one object; `None` for everything that is not exactly one, within the bounds.
pub(crate) fn object(bytes: &[u8]) -> Option<Object> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Depth(JSON_DEPTH_MAX).deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    match value {
        Json::Object(object) => Some(object),
        _ => None,
    }
}

/// How many levels may still be opened.
#[derive(Clone, Copy)]
struct Depth(usize);

impl Depth {
    fn deeper<E: Error>(self) -> Result<Depth, E> {
        self.0.checked_sub(1).map(Depth).ok_or_else(|| E::custom("nested too deeply"))
    }
}

impl<'de> DeserializeSeed<'de> for Depth {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Json, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Depth {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Json, E> {
        Ok(Json::Bool)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Integer(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Json, E> {
        Ok(Json::OtherNumber)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json::OtherNumber)
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(inner)? {
            if items.len() == JSON_MEMBERS_MAX {
                return Err(A::Error::custom("too many items"));
            }
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let inner = self.deeper()?;
        let mut object = Object::default();
        while let Some(key) = map.next_key::<String>()? {
            if object.0.len() == JSON_MEMBERS_MAX {
                return Err(A::Error::custom("too many members"));
            }
            if object.member(&key).is_some() {
                return Err(A::Error::custom("a key stands twice"));
            }
            let value = map.next_value_seed(inner)?;
            object.0.push((key, value));
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_is_read() {
        let read = object(br#" {"a": "x", "b": [1, "y"], "c": {"d": null}, "e": 7, "f": -1, "g": 1.5} "#).unwrap();
        assert_eq!(read.text("a"), Some("x"));
        assert!(read.member("e") == Some(&Json::Integer(7)));
        assert!(read.member("f") == Some(&Json::OtherNumber) && read.member("g") == Some(&Json::OtherNumber));
        assert!(read.member("h").is_none());
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        for wrong in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"x":{"a":1,"a":1}}"#,
            r#"{"a":1}{"#,
            r#"{"a":1} x"#,
            r#"[1]"#,
            r#"{"a":NaN}"#,
            r#"{'a':1}"#,
            "",
            "\u{feff}{}",
        ] {
            assert!(object(wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert!(object(b"{\"a\":\"\xff\"}").is_none());
    }

    #[test]
    fn nesting_and_numbers_of_members_are_bounded() {
        assert!(object(br#"{"a":[[[1]]]}"#).is_some());
        assert!(object(br#"{"a":[[[[1]]]]}"#).is_none());
        assert!(object("[".repeat(100_000).as_bytes()).is_none());
        let members = |n: usize| {
            let list: Vec<String> = (0..n).map(|i| format!("\"k{i}\":0")).collect();
            format!("{{{}}}", list.join(","))
        };
        assert!(object(members(JSON_MEMBERS_MAX).as_bytes()).is_some());
        assert!(object(members(JSON_MEMBERS_MAX + 1).as_bytes()).is_none());
    }
}
