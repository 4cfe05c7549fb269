//! The contract's schemas, field by field.

use serde_json::Value;

/// What a field must be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    TextNotEmpty,
    TextOrNull,
    Integer,
    IntegerOrNull,
    /// An integer that is not negative.
    Count,
    CountOrNull,
    Number,
    ListOrNull,
}

impl Kind {
    fn holds(self, value: &Value) -> bool {
        match self {
            Kind::Text => value.is_string(),
            Kind::TextNotEmpty => value.as_str().is_some_and(|text| !text.is_empty()),
            Kind::TextOrNull => value.is_string() || value.is_null(),
            Kind::Integer => is_integer(value),
            Kind::IntegerOrNull => is_integer(value) || value.is_null(),
            Kind::Count => is_count(value),
            Kind::CountOrNull => is_count(value) || value.is_null(),
            Kind::Number => value.is_number(),
            Kind::ListOrNull => value.is_array() || value.is_null(),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Kind::Text => "a string",
            Kind::TextNotEmpty => "a string that is not empty",
            Kind::TextOrNull => "a string or null",
            Kind::Integer => "an integer",
            Kind::IntegerOrNull => "an integer or null",
            Kind::Count => "an integer of at least 0",
            Kind::CountOrNull => "an integer of at least 0, or null",
            Kind::Number => "a number",
            Kind::ListOrNull => "a list or null",
        }
    }
}

/// An integer as JSON Schema has it: 300.0 is one, 300.5 and true are none.
pub(crate) fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn is_count(value: &Value) -> bool {
    is_integer(value) && value.as_f64().is_some_and(|number| number >= 0.0)
}

/// Collects what is wrong with an object's fields.
pub(crate) struct Shape<'a> {
    object: &'a Value,
    faults: Vec<String>,
}

impl<'a> Shape<'a> {
    pub(crate) fn of(object: &'a Value) -> Self {
        Shape { object, faults: Vec::new() }
    }

    pub(crate) fn required(mut self, name: &str, kind: Kind) -> Self {
        match self.object.get(name) {
            Some(value) if kind.holds(value) => {}
            _ => self.faults.push(format!("{name} as {}", kind.as_str())),
        }
        self
    }

    pub(crate) fn optional(mut self, name: &str, kind: Kind) -> Self {
        match self.object.get(name) {
            Some(value) if !kind.holds(value) => {
                self.faults.push(format!("{name}, where present, as {}", kind.as_str()))
            }
            _ => {}
        }
        self
    }

    /// A field that may be absent, and has one value otherwise.
    pub(crate) fn constant(mut self, name: &str, wanted: &str) -> Self {
        match self.object.get(name) {
            Some(value) if value != wanted => self.faults.push(format!("{name}, where present, as {wanted:?}")),
            _ => {}
        }
        self
    }

    /// What was wanted and is not so; `None` where all is well.
    pub(crate) fn faults(self) -> Option<String> {
        (!self.faults.is_empty()).then(|| self.faults.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_those_of_json_schema() {
        for (kind, right, wrong) in [
            (
                Kind::Integer,
                vec![json!(3), json!(-3), json!(300.0)],
                vec![json!(1.5), json!("1"), json!(true), json!(null)],
            ),
            (Kind::Count, vec![json!(0), json!(7.0)], vec![json!(-1), json!(null)]),
            (Kind::CountOrNull, vec![json!(null), json!(1)], vec![json!(0.5)]),
            (Kind::TextNotEmpty, vec![json!("x")], vec![json!(""), json!(1)]),
            (Kind::Number, vec![json!(1.5), json!(2)], vec![json!("2"), json!(null)]),
            (Kind::ListOrNull, vec![json!([]), json!(null)], vec![json!({})]),
        ] {
            assert!(right.iter().all(|value| kind.holds(value)), "{kind:?}");
            assert!(!wrong.iter().any(|value| kind.holds(value)), "{kind:?}");
        }
    }

    #[test]
    fn faults_name_field_and_kind() {
        let object = json!({"a": 1, "b": null, "type": "x"});
        let shape = Shape::of(&object).required("a", Kind::Text).optional("b", Kind::Integer).optional("c", Kind::Text);
        let said = shape.required("d", Kind::Count).constant("type", "y").faults().unwrap();
        assert_eq!(
            said,
            "a as a string; b, where present, as an integer; d as an integer of at least 0; type, where present, as \"y\""
        );
        assert_eq!(Shape::of(&object).required("a", Kind::Count).constant("e", "y").faults(), None);
    }
}
