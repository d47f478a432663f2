//! Fields that code sets and the model must not: made after the model's part was accepted, and put at the end of the
//! top-level object.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use unicode_normalization::UnicodeNormalization as _;

use crate::digest::Digest;
use crate::json::query::Query;
use crate::json::string;
use crate::json::tape::Place;
use crate::json::tape::What;

/// Characters of a slug.
const SLUG_MAX: usize = 100;

/// The fields of one policy.
#[derive(Debug)]
pub struct Assign {
    /// The policy's name.
    pub policy: Arc<str>,
    /// The fields, in their order.
    pub fields: Vec<Assigned>,
}

/// A field that code sets.
#[derive(Clone, Debug)]
pub struct Assigned {
    /// The member of the top-level object.
    pub name: Arc<str>,
    /// Where its value comes from.
    pub value: AssignedValue,
}

/// Where the value of an assigned field comes from.
#[derive(Clone, Debug)]
pub enum AssignedValue {
    /// A new UUID of version 4: random.
    UuidV4,
    /// A new UUID of version 7: sorted by time.
    UuidV7,
    /// The time of the verdict, as RFC 3339 has it.
    NowRfc3339,
    /// This value.
    Const(Value),
    /// A slug of the text at this path: small letters and digits of ASCII, joined by hyphens.
    Slugify(Query),
    /// What a table holds for the text at a path.
    Lookup {
        /// The value by key, taken from the table's column when the policy was loaded.
        column: Arc<std::collections::BTreeMap<String, Value>>,
        /// The table and column, for messages: `menu.priority`.
        name: Arc<str>,
        /// The path of the key.
        by: Query,
    },
}

/// Clock and randomness of one exchange, passed in so that a verdict depends on nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Minter {
    /// The time of the verdict.
    pub now: Timestamp,
    /// Randomness that no other exchange shares.
    pub seed: [u8; 16],
}

impl Minter {
    /// A minter that always gives the same, for recorded answers.
    pub fn still() -> Self {
        Self { now: Timestamp::UNIX_EPOCH, seed: [0; 16] }
    }

    /// Sixteen bytes of randomness for one field of one choice.
    fn bytes(&self, choice: u64, field: &str) -> [u8; 16] {
        let mut text = self.seed.to_vec();
        text.extend_from_slice(&choice.to_be_bytes());
        text.extend_from_slice(field.as_bytes());
        let digest = Digest::of(&text);
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(digest.as_bytes()).for_each(|(byte, of)| *byte = *of);
        bytes
    }
}

/// Why a field cannot be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unassigned {
    /// The field.
    pub name: Arc<str>,
    /// What was expected and what was found.
    pub message: String,
}

impl Assign {
    /// The fields that a model wrote although code sets them.
    pub fn present(&self, answer: Place<'_>) -> Vec<Arc<str>> {
        let is_there = |field: &&Assigned| answer.what() == What::Object && answer.get(&field.name).is_some();
        self.fields.iter().filter(is_there).map(|field| Arc::clone(&field.name)).collect()
    }

    /// The fields as JSON members, each `"name":value`, joined by commas.
    pub fn members(&self, answer: Place<'_>, choice: u64, minter: &Minter) -> Result<String, Vec<Unassigned>> {
        let (mut text, mut missing) = (Vec::new(), Vec::new());
        for field in &self.fields {
            match field.value.json(answer, choice, &field.name, minter) {
                Ok(value) => {
                    if !text.is_empty() {
                        text.push(b',');
                    }
                    text.extend_from_slice(&string::quoted(&field.name));
                    text.push(b':');
                    text.extend_from_slice(value.to_string().as_bytes());
                }
                Err(message) => missing.push(Unassigned { name: Arc::clone(&field.name), message }),
            }
        }
        if missing.is_empty() { Ok(String::from_utf8(text).unwrap_or_default()) } else { Err(missing) }
    }
}

impl AssignedValue {
    fn json(&self, answer: Place<'_>, choice: u64, name: &str, minter: &Minter) -> Result<Value, String> {
        let text = |path: &Query| match path.one(answer) {
            Some(place) if place.what() == What::String => Ok(place.text()),
            Some(place) => Err(format!("expected a string at `{path}`, found {}", super::scene::kind_of(place))),
            None => Err(format!("expected a string at `{path}`, found nothing")),
        };
        Ok(match self {
            Self::UuidV4 => {
                let id = uuid::Builder::from_random_bytes(minter.bytes(choice, name)).into_uuid();
                Value::String(id.to_string())
            }
            Self::UuidV7 => {
                let bytes = minter.bytes(choice, name);
                let mut random = [0; 10];
                random.iter_mut().zip(bytes).for_each(|(byte, of)| *byte = of);
                let millis = u64::try_from(minter.now.as_millisecond()).unwrap_or_default();
                Value::String(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid().to_string())
            }
            Self::NowRfc3339 => Value::String(minter.now.to_string()),
            Self::Const(value) => value.clone(),
            Self::Slugify(path) => {
                let said = text(path)?;
                let slug = slug(&said);
                if slug.is_empty() {
                    return Err(format!("the text at `{path}` has no letter or digit to make a slug of"));
                }
                Value::String(slug)
            }
            Self::Lookup { column, name, by } => {
                let key = text(by)?;
                let found = column.get(key.as_ref()).cloned();
                found.ok_or_else(|| format!("`{name}` has nothing for `{}`", crate::json::fault::shown(&key)))?
            }
        })
    }
}

/// Small letters and digits of ASCII, joined by single hyphens; accents are left off, other signs part words.
pub fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.nfkd().filter(|c| !unicode_normalization::char::is_combining_mark(*c)) {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() && slug.len() < SLUG_MAX => slug.push(c),
            _ if !slug.is_empty() && !slug.ends_with('-') && slug.len() < SLUG_MAX => slug.push('-'),
            _ => {}
        }
    }
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::tape::Tape;
    use serde_json::json;

    fn assigned(value: AssignedValue, answer: &str) -> Result<String, String> {
        let tape = Tape::of(answer).unwrap();
        let fields = vec![Assigned { name: "f".into(), value }];
        let assign = Assign { policy: "p".into(), fields };
        let minter = Minter { now: "2026-12-01T10:00:00Z".parse().unwrap(), seed: [7; 16] };
        assign.members(tape.root(), 0, &minter).map_err(|missing| missing[0].message.clone())
    }

    #[test]
    fn every_kind_of_value_is_set() {
        let query = |path: &str| Query::read(path).unwrap();
        let answer = r#"{"title":"  Crème brûlée & Co.! ","sku":"A","n":1}"#;
        assert_eq!(assigned(AssignedValue::Slugify(query("$.title")), answer).unwrap(), r#""f":"creme-brulee-co""#);
        assert_eq!(assigned(AssignedValue::NowRfc3339, answer).unwrap(), r#""f":"2026-12-01T10:00:00Z""#);
        assert_eq!(assigned(AssignedValue::Const(json!({"a": 1.50})), answer).unwrap(), r#""f":{"a":1.5}"#);
        let column = Arc::new([("A".to_owned(), json!(3))].into_iter().collect());
        let lookup =
            |by: &str| AssignedValue::Lookup { column: Arc::clone(&column), name: "menu.p".into(), by: query(by) };
        assert_eq!(assigned(lookup("$.sku"), answer).unwrap(), r#""f":3"#);
        assert_eq!(
            assigned(lookup("$.title"), answer).unwrap_err(),
            "`menu.p` has nothing for `  Crème brûlée & Co.! `"
        );
        assert_eq!(assigned(lookup("$.n"), answer).unwrap_err(), "expected a string at `$.n`, found number");
        assert_eq!(assigned(lookup("$.x"), answer).unwrap_err(), "expected a string at `$.x`, found nothing");
        assert!(assigned(AssignedValue::Slugify(query("$.title")), r#"{"title":"…!"}"#).is_err());
        let four = assigned(AssignedValue::UuidV4, answer).unwrap();
        let seven = assigned(AssignedValue::UuidV7, answer).unwrap();
        assert_eq!((&four[19..20], &seven[19..20]), ("4", "7"), "{four} {seven}");
    }

    #[test]
    fn two_choices_share_no_id_and_the_same_exchange_gives_the_same() {
        let tape = Tape::of("{}").unwrap();
        let field = Assigned { name: "id".into(), value: AssignedValue::UuidV4 };
        let assign = Assign { policy: "p".into(), fields: vec![field] };
        let of = |choice| assign.members(tape.root(), choice, &Minter::still()).unwrap();
        assert_eq!(of(0), of(0));
        assert_ne!(of(0), of(1));
    }
}
