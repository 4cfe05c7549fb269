//! The outer object of a JSON request, its members left as they are written.
//!
//! A key twice is refused: else the gate could check one value and the backend act on the other.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::limits::MEMBERS_MAX;

/// Members in their order, each key once.
pub(crate) struct Members<'a>(Vec<(String, Member<'a>)>);

enum Member<'a> {
    Written(&'a RawValue),
    Set(String),
}

impl<'a> Members<'a> {
    /// Reads a whole text; `None` where it is not exactly one object with each key once.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    pub(crate) fn empty() -> Self {
        Members(Vec::new())
    }

    fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, member)| match member {
            Member::Written(raw) => raw.get(),
            Member::Set(text) => text,
        })
    }

    /// A member's text; `None` where it is absent or no text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.raw(name)?).ok()
    }

    /// A member that is a whole number: `Ok(None)` where it is absent or null, `Err` where it is something else.
    pub(crate) fn seconds(&self, name: &str) -> Result<Option<u64>, ()> {
        self.raw(name).map_or(Ok(None), |raw| serde_json::from_str(raw).map_err(|_| ()))
    }

    /// Sets a member to a JSON text.
    pub(crate) fn set(&mut self, name: &str, json: String) {
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, member)) => *member = Member::Set(json),
            None => self.0.push((name.to_owned(), Member::Set(json))),
        }
    }

    /// The object as text: every member that was not set stands as it was written.
    pub(crate) fn write(&self) -> String {
        let mut text = String::from("{");
        for (index, (key, member)) in self.0.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(&quoted(key));
            text.push(':');
            text.push_str(match member {
                Member::Written(raw) => raw.get(),
                Member::Set(json) => json,
            });
        }
        text.push('}');
        text
    }
}

/// A text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Outer;
        impl<'de> Visitor<'de> for Outer {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members: Vec<(String, Member<'de>)> = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if members.len() == MEMBERS_MAX || members.iter().any(|(other, _)| *other == key) {
                        return Err(A::Error::custom("a key stands twice, or there are too many"));
                    }
                    members.push((key, Member::Written(map.next_value()?)));
                }
                Ok(Members(members))
            }
        }
        reader.deserialize_map(Outer)
    }
}

/// A value that is read from an object alone: serde's derived readers take a list for one as well.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Only<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Only<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        reader.deserialize_map(Only(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_stays_as_it_was_written() {
        let text =
            br#" {"tool":"code_execution", "input": {"code":"print(\u0031)\n", "x": 1.50}, "timeout_seconds":600} "#;
        let mut members = Members::parse(text).unwrap();
        assert_eq!(members.text("tool").as_deref(), Some("code_execution"));
        assert_eq!(members.seconds("timeout_seconds"), Ok(Some(600)));
        members.set("timeout_seconds", "60".to_owned());
        members.set("image", quoted("a\"b"));
        assert_eq!(
            members.write(),
            r#"{"tool":"code_execution","input":{"code":"print(\u0031)\n", "x": 1.50},"timeout_seconds":60,"image":"a\"b"}"#
        );
    }

    #[test]
    fn two_readings_are_refused() {
        for wrong in [
            r#"{"tool":"a","tool":"b"}"#,
            r#"{"tool":"a","t\u006fol":"b"}"#,
            r#"{"tool":"a"} {"tool":"b"}"#,
            r#"[{"tool":"a"}]"#,
            "",
            "null",
            r#"{"tool":NaN}"#,
            r#"{"a":1,}"#,
        ] {
            assert!(Members::parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert!(Members::parse(b"{\"a\":\"\xff\"}").is_none());
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Members::parse(deep.as_bytes()).is_some_and(|members| members.write() == deep));
    }

    #[test]
    fn only_whole_numbers_are_seconds() {
        for (json, seconds) in [("null", Ok(None)), ("1", Ok(Some(1))), ("0", Ok(Some(0)))] {
            assert_eq!(Members::parse(format!("{{\"s\":{json}}}").as_bytes()).unwrap().seconds("s"), seconds);
        }
        for json in ["1.0", "-1", "\"60\"", "true", "[60]", "1e2", "99999999999999999999"] {
            assert_eq!(Members::parse(format!("{{\"s\":{json}}}").as_bytes()).unwrap().seconds("s"), Err(()), "{json}");
        }
    }
}
