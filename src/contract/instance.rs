//! Answers as the schema validator sees them: a tape, read in place.

use std::borrow::Cow;
use std::sync::OnceLock;

use jsonschema::JsonType;
use jsonschema::json::Array;
use jsonschema::json::Json;
use jsonschema::json::JsonNumber;
use jsonschema::json::Node;
use jsonschema::json::NodeIdentity;
use jsonschema::json::Object;
use jsonschema_value::LazyInstance;
use serde_json::Number;
use serde_json::Value;

use crate::json::tape::Elements;
use crate::json::tape::Place;
use crate::json::tape::What;
use crate::json::tree;

/// The representation of answers under judgement.
pub struct OnTape;

/// A value under judgement.
#[derive(Clone, Copy, Debug)]
pub enum Judged<'a> {
    /// A value of the answer.
    Place(Place<'a>),
    /// A member's name, which `propertyNames` judges like a string.
    Name(&'a str),
}

impl Json for OnTape {
    type Node<'a> = Judged<'a>;
    type PreparedKey = Box<str>;
    type StringBuffer = String;

    // A lookup compares the keys of a small object in turn, so one pass over them costs no more than one.
    const KEYS_PER_LOOKUP: usize = 1;

    fn prepare_key(key: &str) -> Box<str> {
        key.into()
    }

    fn with_string_node<T>(buffer: &mut String, string: &str, f: impl FnOnce(Judged<'_>) -> T) -> T {
        buffer.clear();
        buffer.push_str(string);
        f(Judged::Name(buffer))
    }
}

impl<'a> Judged<'a> {
    fn of(self, what: What) -> Option<Place<'a>> {
        match self {
            Self::Place(place) if place.what() == what => Some(place),
            Self::Place(_) | Self::Name(_) => None,
        }
    }
}

impl<'a> Node<'a, OnTape> for Judged<'a> {
    type Object = Members<'a>;
    type Array = Items<'a>;
    type Number = Figures<'a>;

    fn as_object(&self) -> Option<Members<'a>> {
        self.of(What::Object).map(Members)
    }

    fn as_array(&self) -> Option<Items<'a>> {
        self.of(What::Array).map(Items)
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        match self {
            Self::Name(name) => Some(Cow::Borrowed(name)),
            Self::Place(_) => self.of(What::String).map(|place| place.text()),
        }
    }

    fn as_number(&self) -> Option<Figures<'a>> {
        self.of(What::Number).map(|place| Figures(place.raw()))
    }

    fn as_boolean(&self) -> Option<bool> {
        match self {
            Self::Place(place) if place.what() == What::True => Some(true),
            Self::Place(place) if place.what() == What::False => Some(false),
            Self::Place(_) | Self::Name(_) => None,
        }
    }

    fn is_null(&self) -> bool {
        self.of(What::Null).is_some()
    }

    fn json_type(&self) -> JsonType {
        match self {
            Self::Name(_) => JsonType::String,
            Self::Place(place) => match place.what() {
                What::Null => JsonType::Null,
                What::True | What::False => JsonType::Boolean,
                What::Number => JsonType::Number,
                What::String => JsonType::String,
                What::Array => JsonType::Array,
                What::Object => JsonType::Object,
            },
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        match self {
            Self::Place(place) => place.equals(expected),
            Self::Name(name) => expected.as_str() == Some(name),
        }
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Owned(match self {
            Self::Place(place) => place.tree(),
            Self::Name(name) => Value::String((*name).to_owned()),
        })
    }

    /// An error keeps a slice of the answer and builds its value when it is read: there may be thousands of
    /// errors, each on a large part of it.
    fn lazy_value(&self) -> LazyInstance<'a> {
        match self {
            Self::Name(_) => LazyInstance::Ready(self.to_value()),
            Self::Place(place) => LazyInstance::Deferred {
                bytes: place.raw().as_bytes(),
                tag: 0,
                make: |bytes, _| tree::built(std::str::from_utf8(bytes).unwrap_or_default()).unwrap_or_default(),
                cell: OnceLock::new(),
            },
        }
    }

    fn identity(&self) -> Option<NodeIdentity> {
        match self {
            Self::Place(place) => Some(NodeIdentity::new(place.address())),
            Self::Name(_) => None,
        }
    }
}

/// An object under judgement.
pub struct Members<'a>(Place<'a>);

impl<'a> Object<'a, OnTape> for Members<'a> {
    type Node = Judged<'a>;
    type MemberName = Cow<'a, str>;
    type MembersIter = Box<dyn Iterator<Item = (Cow<'a, str>, Judged<'a>)> + 'a>;

    fn len(&self) -> usize {
        self.0.count()
    }

    fn get(&self, key: &Box<str>) -> Option<Judged<'a>> {
        self.0.get(key).map(Judged::Place)
    }

    fn members(&self) -> Self::MembersIter {
        Box::new(self.0.members().map(|(key, value)| (key.text(), Judged::Place(value))))
    }
}

/// An array under judgement.
pub struct Items<'a>(Place<'a>);

/// Its elements.
pub struct ItemsIter<'a>(Elements<'a>);

impl<'a> Iterator for ItemsIter<'a> {
    type Item = Judged<'a>;

    fn next(&mut self) -> Option<Judged<'a>> {
        self.0.next().map(Judged::Place)
    }
}

impl<'a> Array<'a, OnTape> for Items<'a> {
    type Node = Judged<'a>;
    type ElementsIter = ItemsIter<'a>;

    fn len(&self) -> usize {
        self.0.count()
    }

    fn elements(&self) -> ItemsIter<'a> {
        ItemsIter(self.0.elements())
    }
}

/// A number under judgement: its text.
pub struct Figures<'a>(&'a str);

impl Figures<'_> {
    fn has_exponent(&self) -> bool {
        self.0.contains(['e', 'E'])
    }

    fn number(&self) -> Number {
        self.0.parse().unwrap_or_else(|_| Number::from(0))
    }
}

impl JsonNumber for Figures<'_> {
    fn as_u64(&self) -> Option<u64> {
        self.0.parse().ok()
    }

    fn as_i64(&self) -> Option<i64> {
        self.0.parse().ok()
    }

    fn as_f64(&self) -> Option<f64> {
        self.0.parse().ok().filter(|number: &f64| number.is_finite())
    }

    fn as_str(&self) -> Cow<'_, str> {
        // The validator knows exponents in the one form that its own numbers have.
        if self.has_exponent() { Cow::Owned(self.number().as_str().to_owned()) } else { Cow::Borrowed(self.0) }
    }

    fn to_number(&self) -> Cow<'_, Number> {
        Cow::Owned(self.number())
    }

    fn is_integer(&self) -> bool {
        if !self.0.contains(['.', 'e', 'E']) {
            return true;
        }
        let number = self.number();
        JsonNumber::is_integer(&&number)
    }

    fn is_written_as_integer(&self) -> bool {
        !self.0.contains(['.', 'e', 'E'])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::json::tape::Tape;

    fn schemas() -> Vec<Value> {
        vec![
            json!({"type": "integer", "minimum": -3, "exclusiveMaximum": 1e3}),
            json!({"type": "number", "multipleOf": 0.01}),
            json!({"type": ["string", "null"], "maxLength": 2, "pattern": "^[a-c]*$"}),
            json!({"enum": [1, "a", null, [1], {"a": 1.0}]}),
            json!({"const": {"a": [true, "b"]}}),
            json!({"anyOf": [{"const": false}, {"enum": [true, 0]}, {"type": "array", "items": {"const": true}}]}),
            json!({"type": "array", "uniqueItems": true, "items": {"type": ["integer", "string"]}, "maxItems": 3}),
            json!({"type": "array", "prefixItems": [{"type": "integer"}], "items": false, "contains": {"const": 1}}),
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}, "b": {"$ref": "#"}}, "additionalProperties": false}),
            json!({"propertyNames": {"maxLength": 1}, "minProperties": 1, "patternProperties": {"^a": {"type": "integer"}}}),
            json!({"allOf": [{"properties": {"a": true}}], "unevaluatedProperties": false, "unevaluatedItems": false}),
            json!({"dependentRequired": {"a": ["b"]}, "not": {"required": ["c"]}}),
            json!({"oneOf": [{"type": "integer"}, {"minimum": 2}], "if": {"type": "integer"}, "then": {"maximum": 5}}),
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}),
        ]
    }

    #[test]
    fn flags_and_figures_are_what_the_text_says() {
        let flag = |text: &str| Judged::Place(Tape::of(text).unwrap().root()).as_boolean();
        assert_eq!(["true", "false", "null", "0", "\"true\""].map(flag), [Some(true), Some(false), None, None, None]);
        assert_eq!(Judged::Name("true").as_boolean(), None);
        assert_eq!(["12", "-0.50"].map(|text| Figures(text).as_str().into_owned()), ["12", "-0.50"]);
        // With an exponent the text is that of a number of the validator's own.
        let own: Value = serde_json::from_str("1E2").unwrap();
        assert_eq!(Figures("1E2").as_str(), own.as_number().unwrap().as_str());
    }

    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            Just("false".to_owned()),
            "-?(0|[1-9][0-9]{0,4})(\\.[0-9]{1,2})?([eE][+-]?[0-3])?",
            r#""[a-d]{0,3}""#,
            r#""\\u006[1-4]""#,
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::btree_map("[a-d]", inner, 0..4).prop_map(|members| {
                    let members: Vec<_> =
                        members.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                    format!("{{{}}}", members.join(","))
                }),
            ]
        })
    }

    type Both = (Value, jsonschema::Validator, jsonschema::Validator<OnTape>);

    static VALIDATORS: std::sync::LazyLock<Vec<Both>> = std::sync::LazyLock::new(|| {
        let both = |schema: Value| {
            let on_tree = jsonschema::options().offline().build(&schema).unwrap();
            let on_tape = jsonschema::options_for::<OnTape>().offline().build(&schema).unwrap();
            (schema, on_tree, on_tape)
        };
        schemas().into_iter().map(both).collect()
    });

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        /// The validator must say the same of a tape as of the tree it was written for.
        #[test]
        fn a_tape_is_judged_like_the_tree(text in json()) {
            let tree = tree::parse(&text).unwrap();
            let tape = Tape::of(&text).unwrap();
            for (schema, on_tree, on_tape) in VALIDATORS.iter() {
                let node = Judged::Place(tape.root());
                prop_assert_eq!(on_tape.is_valid(node), on_tree.is_valid(&tree), "{} {}", schema, text);
                let told = |errors: Vec<String>| errors.join("\n");
                let by_tree = told(on_tree.iter_errors(&tree).map(|error| format!("{} {}", error.instance_path(), error)).collect());
                let by_tape = told(on_tape.iter_errors(node).map(|error| format!("{} {}", error.instance_path(), error)).collect());
                prop_assert_eq!(by_tape, by_tree, "{} {}", schema, text);
            }
        }
    }
}
