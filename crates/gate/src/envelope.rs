//! The answer to an Execute, read as far as the contract demands it and the usage record needs it.

use ringfence_usage::{Outcome, Record};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::members::Object;

/// The usage of an answer is small: what is larger is none.
const USAGE_BYTES_MAX: usize = 1024;

/// What the gate keeps of an answer: figures.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    outcome: Outcome,
    usage: Usage,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
struct Usage {
    #[serde(default)]
    cpu_ms: Option<u64>,
    #[serde(default)]
    memory_peak_bytes: Option<u64>,
    #[serde(default)]
    stdout_bytes: Option<u64>,
    #[serde(default)]
    stderr_bytes: Option<u64>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "tool_use_id")]
    _tool_use_id: Text,
    result_block: Object<Block>,
    #[serde(default, borrow)]
    usage: Option<&'a RawValue>,
    #[serde(default, borrow)]
    limit_exceeded: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    _type: Text,
    #[serde(rename = "tool_use_id")]
    _tool_use_id: Text,
    content: Object<Content>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default, rename = "stdout")]
    _stdout: Option<Text>,
    #[serde(default, rename = "stderr")]
    _stderr: Option<Text>,
    #[serde(default)]
    return_code: Option<i64>,
    #[serde(default, rename = "content")]
    _content: Option<Vec<Object<File>>>,
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "file_id")]
    _file_id: Text,
    #[serde(rename = "filename")]
    _filename: Text,
}

/// A text that is not kept.
struct Text;

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Any;
        impl serde::de::Visitor<'_> for Any {
            type Value = Text;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, _: &str) -> Result<Text, E> {
                Ok(Text)
            }
        }
        reader.deserialize_str(Any)
    }
}

impl Summary {
    /// Reads an answer; `Err` says what of the contract it breaks.
    pub(crate) fn read(answer: &[u8]) -> Result<Self, &'static str> {
        // JSON is UTF-8; serde_json would look at the texts only that it keeps.
        std::str::from_utf8(answer).map_err(|_| "it is no UTF-8")?;
        serde_json::from_slice::<IgnoredAny>(answer).map_err(|_| "it is no whole JSON")?;
        let Object(envelope): Object<Envelope<'_>> =
            serde_json::from_slice(answer).map_err(|_| "it is no envelope with a result block")?;
        let content = &envelope.result_block.0.content.0;
        if content.kind.as_deref().is_some_and(|kind| kind != "code_execution_result") {
            return Err("its content is no result");
        }
        let small = envelope.usage.filter(|usage| usage.get().len() <= USAGE_BYTES_MAX);
        let usage = small.and_then(|usage| serde_json::from_str(usage.get()).ok()).unwrap_or_default();
        let limit = envelope.limit_exceeded.map(RawValue::get);
        let outcome = match (limit, content.return_code.unwrap_or(0)) {
            (Some(r#""wall_clock""# | r#""memory""# | r#""processes""# | r#""disk""# | r#""cpu""#), _) => {
                Outcome::LimitExceeded
            }
            (_, 0) => Outcome::Ok,
            _ => Outcome::ProgramFailed,
        };
        Ok(Summary { outcome, usage })
    }

    /// Puts the figures into a record.
    pub(crate) fn fill(&self, record: &mut Record) {
        record.outcome = self.outcome.clone();
        record.cpu_ms = self.usage.cpu_ms;
        record.memory_peak_bytes = self.usage.memory_peak_bytes;
        record.stdout_bytes = self.usage.stdout_bytes;
        record.stderr_bytes = self.usage.stderr_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(content: &str, more: &str) -> String {
        format!(
            r#"{{"tool_use_id":"t","result_block":{{"type":"x_result","tool_use_id":"t","content":{content}}}{more}}}"#
        )
    }

    #[test]
    fn outcomes_and_figures_are_read() {
        let read = |content: &str, more: &str| Summary::read(answer(content, more).as_bytes()).unwrap();
        assert_eq!(read("{}", "").outcome, Outcome::Ok);
        assert_eq!(read(r#"{"return_code":null,"stdout":null}"#, "").outcome, Outcome::Ok);
        assert_eq!(read(r#"{"return_code":1}"#, "").outcome, Outcome::ProgramFailed);
        assert_eq!(read(r#"{"return_code":124}"#, r#","limit_exceeded":"wall_clock""#).outcome, Outcome::LimitExceeded);
        assert_eq!(read("{}", r#","limit_exceeded":"output""#).outcome, Outcome::Ok);
        assert_eq!(read("{}", r#","limit_exceeded":null"#).outcome, Outcome::Ok);
        let usage =
            read("{}", r#","usage":{"cpu_ms":5,"memory_peak_bytes":null,"stdout_bytes":7,"stderr_bytes":0}"#).usage;
        assert_eq!((usage.cpu_ms, usage.memory_peak_bytes, usage.stdout_bytes), (Some(5), None, Some(7)));
        assert_eq!(read("{}", r#","usage":"much""#).usage, Usage::default());
        assert_eq!(read("{}", r#","new_field":{"a":[1]}"#).outcome, Outcome::Ok);
    }

    #[test]
    fn what_the_contract_does_not_have_is_told() {
        for wrong in [
            String::new(),
            "{}".to_owned(),
            "null".to_owned(),
            r#"{"type":"x","tool_use_id":"t","content":{}}"#.to_owned(),
            r#"{"tool_use_id":"t","result_block":{"type":"x","tool_use_id":"t"}}"#.to_owned(),
            answer("[]", ""),
            r#"["t",{"type":"x","tool_use_id":"t","content":{}}]"#.to_owned(),
            r#"{"tool_use_id":"t","result_block":["x","t",{}]}"#.to_owned(),
            answer(r#"{"content":[["f","g"]]}"#, ""),
            answer("null", ""),
            answer(r#"{"type":"code_execution_tool_result_error","error_code":"x"}"#, ""),
            answer(r#"{"return_code":"0"}"#, ""),
            answer(r#"{"stdout":7}"#, ""),
            answer(r#"{"content":[{"filename":"a"}]}"#, ""),
            format!("{} trailing", answer("{}", "")),
            answer("{}", "")[..40].to_owned(),
        ] {
            assert!(Summary::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(Summary::read(&[answer(r#"{"stdout":"x"}"#, "").into_bytes(), vec![0xff]].concat()).is_err());
    }
}
