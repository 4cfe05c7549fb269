//! What a model passes to a tool, read leniently: unknown fields are passed over, a wrong one is named.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Python or a shell command.
#[derive(Debug, Deserialize)]
pub(crate) struct Program {
    #[serde(alias = "command", alias = "script")]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) timeout_seconds: Option<f64>,
}

/// A file to put there.
#[derive(Debug, Deserialize)]
pub(crate) struct Upload {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) text: Option<String>,
    #[serde(default)]
    pub(crate) base64: Option<String>,
}

/// A file to fetch.
#[derive(Debug, Deserialize)]
pub(crate) struct Download {
    pub(crate) path: String,
}

/// A folder to list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct List {
    pub(crate) path: String,
    pub(crate) recursive: bool,
}

/// Reads the arguments of a tool; a text that says what is wrong with them otherwise.
pub(crate) fn read<T: DeserializeOwned>(arguments: Option<Map<String, Value>>) -> Result<T, String> {
    let arguments = Value::Object(arguments.unwrap_or_default());
    serde_json::from_value(arguments).map_err(|error| format!("the arguments are wrong: {error}"))
}

impl Upload {
    /// The file's content.
    pub(crate) fn content(self) -> Result<(String, Bytes), String> {
        let content = match (self.text, self.base64) {
            (Some(text), None) => Bytes::from(text),
            (None, Some(coded)) => {
                let coded: String = coded.split_ascii_whitespace().collect();
                Bytes::from(BASE64.decode(coded).map_err(|error| format!("`base64` is no base64: {error}"))?)
            }
            _ => return Err("give the content as `text` or as `base64`, one of the two".to_owned()),
        };
        Ok((self.path, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Option<Map<String, Value>> {
        value.as_object().cloned()
    }

    #[test]
    fn what_is_unknown_is_passed_over_and_what_is_wrong_is_named() {
        let program: Program = read(object(json!({"code": "1", "later": 5}))).unwrap();
        assert_eq!((program.code.as_str(), program.timeout_seconds), ("1", None));
        assert!(read::<Program>(None).unwrap_err().contains("code"));
        assert!(read::<List>(None).is_ok());
    }

    #[test]
    fn a_file_is_text_or_base64() {
        let upload = |value| read::<Upload>(object(value)).unwrap().content();
        assert_eq!(upload(json!({"path": "a", "text": "x"})).unwrap().1, "x");
        assert_eq!(upload(json!({"path": "a", "base64": "/w==\n"})).unwrap().1, &[255][..]);
        for wrong in [json!({"path": "a"}), json!({"path": "a", "text": "", "base64": ""})] {
            assert!(upload(wrong).unwrap_err().contains("one of the two"));
        }
        assert!(upload(json!({"path": "a", "base64": "?"})).unwrap_err().contains("base64"));
    }
}
