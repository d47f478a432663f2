//! JSON text as a tree, for what needs one: the schema validator and comparisons.

use serde_json::{Map, Number, Value};

use super::check;
use super::fault::{JsonFault, JsonFaultKind as Kind};
use super::string;

/// The tree of `text`, which must be exactly one JSON value as [`check::strict`] wants it.
///
/// Numbers keep their text, objects their order. Recursion ends at 127 open containers.
pub fn parse(text: &str) -> Result<Value, JsonFault> {
    check::strict(text)?;
    built(text)
}

/// The tree of `text` that [`check::strict`] has already accepted; other text is a fault, never a panic.
pub fn built(text: &str) -> Result<Value, JsonFault> {
    let mut builder = Builder { text, at: check::white(text.as_bytes(), 0) };
    builder.value(0)
}

struct Builder<'a> {
    text: &'a str,
    at: usize,
}

impl Builder<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn step(&mut self, over: usize) {
        self.at = check::white(self.text.as_bytes(), self.at + over);
    }

    fn value(&mut self, depth: usize) -> Result<Value, JsonFault> {
        if depth > super::DEPTH_MAX {
            return Err(JsonFault::new(Kind::TooDeep, self.at));
        }
        let value = match self.peek() {
            Some(b'"') => Value::String(self.string()?),
            Some(b'{') => return self.object(depth),
            Some(b'[') => return self.array(depth),
            Some(b't') => self.word(4, Value::Bool(true)),
            Some(b'f') => self.word(5, Value::Bool(false)),
            Some(b'n') => self.word(4, Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(_) => return Err(JsonFault::new(Kind::Expected("a value"), self.at)),
            None => return Err(JsonFault::new(Kind::Ends("a value"), self.at)),
        };
        Ok(value)
    }

    fn word(&mut self, length: usize, value: Value) -> Value {
        self.step(length);
        value
    }

    fn string(&mut self) -> Result<String, JsonFault> {
        let spot = string::spot(self.text.as_bytes(), self.at)?;
        let said = if spot.escaped {
            string::decode(self.text.as_bytes(), spot)?.into_owned()
        } else {
            self.text.get(spot.inside()).unwrap_or_default().to_owned()
        };
        self.at = check::white(self.text.as_bytes(), spot.after());
        Ok(said)
    }

    fn number(&mut self) -> Result<Value, JsonFault> {
        let start = self.at;
        while let Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        let number: Number = text.parse().map_err(|_| JsonFault::new(Kind::BadNumber, start))?;
        self.step(0);
        Ok(Value::Number(number))
    }

    fn object(&mut self, depth: usize) -> Result<Value, JsonFault> {
        let mut members = Map::new();
        self.step(1);
        while self.peek() != Some(b'}') {
            let key = match self.peek() {
                Some(b'"') => self.string()?,
                _ => return Err(JsonFault::new(Kind::Expected("a key in double quotes"), self.at)),
            };
            if self.peek() != Some(b':') {
                return Err(JsonFault::new(Kind::Expected("`:`"), self.at));
            }
            self.step(1);
            let value = self.value(depth + 1)?;
            members.insert(key, value);
            self.comma(b'}')?;
        }
        self.step(1);
        Ok(Value::Object(members))
    }

    fn array(&mut self, depth: usize) -> Result<Value, JsonFault> {
        let mut items = Vec::new();
        self.step(1);
        while self.peek() != Some(b']') {
            items.push(self.value(depth + 1)?);
            self.comma(b']')?;
        }
        self.step(1);
        Ok(Value::Array(items))
    }

    fn comma(&mut self, closer: u8) -> Result<(), JsonFault> {
        match self.peek() {
            Some(b',') => self.step(1),
            Some(byte) if byte == closer => {}
            _ => return Err(JsonFault::new(Kind::Expected("`,` or the end of the container"), self.at)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::DEPTH_MAX;
    use proptest::prelude::*;

    #[test]
    fn the_tree_is_what_the_text_says() {
        let text = r#" {"b":[1.0,"x\n",null,true,false,{}],"a":12345678901234567890.5,"é":[]} "#;
        let tree = parse(text).unwrap();
        assert_eq!(tree.to_string(), r#"{"b":[1.0,"x\n",null,true,false,{}],"a":12345678901234567890.5,"é":[]}"#);
    }

    #[test]
    fn the_tree_is_as_deep_as_the_check_allows_and_no_deeper() {
        let nested = |levels: usize, leaf: &str| "[".repeat(levels) + leaf + &"]".repeat(levels);
        assert!(parse(&nested(DEPTH_MAX, "1")).is_ok());
        assert_eq!(parse(&nested(DEPTH_MAX + 1, "")).unwrap_err().kind, Kind::TooDeep);
        for levels in [DEPTH_MAX + 1, 500_000] {
            let fault = built(&nested(levels, "1")).unwrap_err();
            assert_eq!(fault, JsonFault::new(Kind::TooDeep, DEPTH_MAX + 1), "{levels}");
        }
    }

    #[test]
    fn what_the_check_would_refuse_is_a_fault_at_its_place() {
        let missing = Kind::Expected("`,` or the end of the container");
        for (text, fault) in [
            ("", JsonFault::new(Kind::Ends("a value"), 0)),
            ("x", JsonFault::new(Kind::Expected("a value"), 0)),
            ("[1 2]", JsonFault::new(missing.clone(), 3)),
            ("[1", JsonFault::new(missing, 2)),
            ("{1:2}", JsonFault::new(Kind::Expected("a key in double quotes"), 1)),
            ("{\"a\" 1}", JsonFault::new(Kind::Expected("`:`"), 5)),
            (" 1-2", JsonFault::new(Kind::BadNumber, 1)),
        ] {
            assert_eq!(built(text), Err(fault), "{text}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json(text in r#"[\[\]{}",:0-9a-e.\\ tn-]{0,24}"#) {
            if let Ok(ours) = parse(&text) {
                let theirs: Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(ours, theirs);
            }
        }

        #[test]
        fn unchecked_text_never_panics(text in "\\PC{0,40}") {
            let _ = built(&text);
        }
    }
}
