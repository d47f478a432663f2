//! The `text` gate: what a text must and must not be.

use std::collections::HashSet;

use jsonschema::Validator;
use regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Deserializer;
use serde_json::Value;
use serde_json::json;

use crate::contract::declared::Declared;
use crate::contract::declared::Met;
use crate::contract::gate::At;
use crate::contract::gate::Build;
use crate::contract::gate::BuildError;
use crate::contract::gate::Findings;
use crate::contract::gate::Gate;
use crate::contract::gate::Kind;
use crate::contract::gate::Presence;
use crate::contract::gate::written;
use crate::contract::gate::written::quoted;
use crate::contract::scene::Scene;
use crate::contract::scene::kind_of;
use crate::json::path::Path;
use crate::json::query::Query;
use crate::json::tape::Place;
use crate::json::tape::What;

mod country;

/// The kind.
pub const KIND: Kind = Kind { name: "text", schema: |generator| Settings::json_schema(generator), build };

/// What stands where a model had nothing to say, where a policy says nothing else.
const PLACEHOLDERS: [&str; 17] = [
    "",
    "-",
    "--",
    "n/a",
    "na",
    "none",
    "null",
    "nil",
    "tbd",
    "todo",
    "unknown",
    "not available",
    "not specified",
    "placeholder",
    "example",
    "string",
    "???",
];
/// How apologies begin, where a policy says nothing else.
const OPENINGS: [&str; 5] = [
    r"(?:i(?:'m| am)|we(?:'re| are)) (?:(?:very|so|really|truly|terribly) )?(?:sorry|afraid|unable)\b",
    r"sorry\b",
    r"(?:my |our )?apolog(?:ies|y)\b|i apologi[sz]e\b|we apologi[sz]e\b",
    r"as an? (?:ai|artificial intelligence|(?:large )?language model)\b",
    r"(?:unfortunately,? )?(?:i|we) (?:can(?:no|')t|could(?: not|n't)) (?:read|find|determine|identify|extract|access|provide|help|assist|answer)\b",
];

/// What every text at a path must and must not be; at least one demand.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The path of the texts.
    path: String,
    /// A pattern that each of them matches somewhere; a linear-time regular expression.
    require: Option<String>,
    /// A pattern that none of them matches anywhere.
    forbid: Option<String>,
    /// `iso_date`: a calendar date (`2025-04-03`). `iso_datetime`: date and time, with or without an offset
    /// (`2025-04-03T09:30:00Z`). `iso_4217`: a currency (`EUR`). `iso_3166`: a country, two letters (`DE`). `email`,
    /// `uri`, `uuid`: as JSON Schema has them.
    format: Option<Format>,
    /// How many characters each of them has at the most.
    max_chars: Option<usize>,
    /// None of them is a placeholder, trimmed and whatever the case of letters, or opens with an apology. `true`, or the
    /// placeholders and openings that are meant.
    #[serde(default, deserialize_with = "flag_or_lists")]
    #[schemars(with = "Option<FlagOrLists>")]
    no_placeholder: Option<Placeholders>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "the schema of what `flag_or_lists` reads")]
enum FlagOrLists {
    Flag(bool),
    Lists(Placeholders),
}

/// What counts as a placeholder.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Placeholders {
    /// Whole texts. Default: empty, `-`, `--`, `n/a`, `na`, `none`, `null`, `nil`, `tbd`, `todo`, `unknown` (unless the
    /// schema's enum has it), `not available`, `not specified`, `placeholder`, `example`, `string`, `???`.
    words: Option<Vec<String>>,
    /// Patterns of how apologies begin; whatever the case of letters. Default: `sorry`, `as an AI` and the like.
    openings: Option<Vec<String>>,
}

fn flag_or_lists<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Placeholders>, D::Error> {
    use serde::de::Error as _;
    match Value::deserialize(deserializer)? {
        Value::Null | Value::Bool(false) => Ok(None),
        Value::Bool(true) => Ok(Some(Placeholders::default())),
        lists => Placeholders::deserialize(lists)
            .map(Some)
            .map_err(|error| D::Error::custom(format!("`no_placeholder`: {error}"))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Format {
    IsoDate,
    IsoDatetime,
    #[serde(rename = "iso_4217")]
    Iso4217,
    #[serde(rename = "iso_3166")]
    Iso3166,
    Email,
    Uri,
    Uuid,
}

#[derive(Debug)]
struct TextGate {
    path: Query,
    require: Option<Regex>,
    forbid: Option<Regex>,
    format: Option<(Format, Option<Validator>)>,
    max_chars: Option<usize>,
    placeholders: Option<HashSet<String>>,
    apology: Option<Regex>,
    presence: Presence,
}

fn build(settings: &Value, build: &Build<'_>) -> Result<Box<dyn Gate>, Vec<BuildError>> {
    let file: Settings = written::settings(settings)?;
    let mut errors = Vec::new();
    let mut kept = |error: BuildError| errors.push(error);
    let path = written::path(&Value::String(file.path), "path").map_err(&mut kept).ok();
    let mut pattern = |member: &str, text: Option<String>| {
        text.and_then(|text| written::pattern(&text, member).map_err(&mut kept).ok())
    };
    let (require, forbid) = (pattern("require", file.require), pattern("forbid", file.forbid));
    let apology = file.no_placeholder.as_ref().and_then(|lists| {
        let own = lists.openings.clone();
        let openings = own.unwrap_or_else(|| OPENINGS.iter().map(|&opening| opening.to_owned()).collect());
        let all = openings.iter().map(|opening| format!("(?:{opening})")).collect::<Vec<_>>().join("|");
        pattern("no_placeholder", (!openings.is_empty()).then(|| format!(r"(?i)\A(?:{all})")))
    });
    let placeholders = file.no_placeholder.map(|lists| {
        let own = lists.words.unwrap_or_else(|| PLACEHOLDERS.iter().map(|&word| word.to_owned()).collect());
        own.iter().map(|word| word.trim().to_lowercase()).collect::<HashSet<String>>()
    });
    let format = file.format.map(|format| (format, validator(format)));
    let demands = require.is_some() || forbid.is_some() || format.is_some() || file.max_chars.is_some();
    if errors.is_empty() && !demands && placeholders.is_none() {
        let message = "expected a demand: `require`, `forbid`, `format`, `max_chars` or `no_placeholder`";
        errors.push(BuildError { at: Vec::new(), message: message.to_owned() });
    }
    match path {
        Some(path) if errors.is_empty() => Ok(Box::new(TextGate {
            path,
            require,
            forbid,
            format,
            max_chars: file.max_chars,
            placeholders,
            apology,
            presence: build.presence,
        })),
        _ => Err(errors),
    }
}

/// The schema gate's own check of a format, where it has one.
fn validator(format: Format) -> Option<Validator> {
    let name = match format {
        Format::Email => "email",
        Format::Uri => "uri",
        Format::Uuid => "uuid",
        _ => return None,
    };
    jsonschema::options().should_validate_formats(true).build(&json!({"format": name})).ok()
}

impl Gate for TextGate {
    fn check(&self, scene: &Scene<'_>, found: &mut Findings<'_>) {
        for node in found.nodes(&self.path, self.presence) {
            let place = node.place;
            if node.value.what() != What::String {
                found.say(At::Place(place), || format!("expected a text, found {}", kind_of(node.value)));
                continue;
            }
            let text = node.value.text();
            if let Some(pattern) = self.require.as_ref().filter(|pattern| !pattern.is_match(&text)) {
                found.say(At::Place(place), || {
                    format!("expected a match of {}, found {}", quoted(pattern.as_str()), quoted(&text))
                });
            }
            if let Some(part) = self.forbid.as_ref().and_then(|pattern| pattern.find(&text)) {
                let pattern = self.forbid.as_ref().map_or("", Regex::as_str);
                found.say(At::Place(place), || {
                    format!("expected no match of {}, found {}", quoted(pattern), quoted(part.as_str()))
                });
            }
            if let Some((format, validator)) = &self.format
                && !format.accepts(&text, validator.as_ref())
            {
                found.say(At::Place(place), || format!("expected {}, found {}", format.said(), quoted(&text)));
            }
            // A byte is at least a quarter of a character, so most texts need no counting.
            if let Some(max) = self.max_chars.filter(|max| text.len() > *max && text.chars().count() > *max) {
                found.say(At::Place(place), || {
                    format!("expected at most {max} characters, found {}", text.chars().count())
                });
            }
            self.placeholder(scene, place, node.value, &text, found);
        }
    }

    fn paths(&self) -> Vec<&Query> {
        vec![&self.path]
    }
}

impl TextGate {
    fn placeholder(&self, scene: &Scene<'_>, place: Place<'_>, value: Place<'_>, text: &str, found: &mut Findings<'_>) {
        let Some(placeholders) = &self.placeholders else { return };
        let bare = text.trim();
        let longest = placeholders.iter().map(String::len).max().unwrap_or_default();
        // Lower case may take more bytes or fewer, never more than three times as many.
        if bare.len() <= longest.saturating_mul(3)
            && placeholders.contains(&bare.to_lowercase())
            && !has_enum(scene, value, text)
        {
            return found.say(At::Place(place), || format!("expected a value, found the placeholder {}", quoted(text)));
        }
        if let Some(apology) =
            self.apology.as_ref().and_then(|pattern| pattern.find(&plain(bare)).map(|part| part.range()))
        {
            let part =
                bare.get(..bare.floor_char_boundary(apology.end.max(40).min(bare.len()))).unwrap_or(bare).to_owned();
            found.say(At::Place(place), || format!("expected a value, found an apology: {}", quoted(&part)));
        }
    }
}

/// The beginning of a text with straight apostrophes: as far as an apology is looked for.
fn plain(text: &str) -> String {
    text.chars().take(200).map(|c| if c == '\u{2019}' { '\'' } else { c }).collect()
}

/// Whether an `enum` or `const` of the schema names this text at this place.
fn has_enum(scene: &Scene<'_>, value: Place<'_>, text: &str) -> bool {
    let path: Path = value.path();
    scene.schemas.iter().any(|schema| {
        let mut declared = Declared::default();
        let met: Met<'_> = declared.top([schema.value()]).and_then(|top| declared.at(&top, &path)).unwrap_or_default();
        met.iter().any(|at| {
            let listed = at.schema.get("enum").and_then(Value::as_array);
            listed.is_some_and(|list| list.iter().any(|one| one == text))
                || at.schema.get("const").is_some_and(|one| one == text)
        })
    })
}

impl Format {
    fn said(self) -> &'static str {
        match self {
            Self::IsoDate => "a date such as `2025-04-03`",
            Self::IsoDatetime => "a date and time such as `2025-04-03T09:30:00Z`",
            Self::Iso4217 => "a currency code of ISO 4217",
            Self::Iso3166 => "a country code of ISO 3166, two letters",
            Self::Email => "an e-mail address",
            Self::Uri => "a URI",
            Self::Uuid => "a UUID",
        }
    }

    fn accepts(self, text: &str, validator: Option<&Validator>) -> bool {
        match self {
            Self::IsoDate => has_shape(text, "0000-00-00") && text.parse::<jiff::civil::Date>().is_ok(),
            Self::IsoDatetime => is_datetime(text),
            Self::Iso4217 => {
                text.bytes().all(|byte| byte.is_ascii_uppercase()) && iso_currency::Currency::from_code(text).is_some()
            }
            Self::Iso3166 => country::ALPHA_2.binary_search(&text).is_ok(),
            // No address or identifier is longer; a longer text costs nothing.
            Self::Email | Self::Uri | Self::Uuid => {
                text.len() <= 1 << 16
                    && validator.is_some_and(|validator| validator.is_valid(&Value::String(text.to_owned())))
            }
        }
    }
}

/// Whether the text has digits where the shape has `0`, and else the same characters.
fn has_shape(text: &str, shape: &str) -> bool {
    text.len() == shape.len()
        && text
            .bytes()
            .zip(shape.bytes())
            .all(|(byte, want)| if want == b'0' { byte.is_ascii_digit() } else { byte == want })
}

/// A date, `T`, a time to the minute or finer, and at most one offset; the calendar is asked whether there is such a day.
fn is_datetime(text: &str) -> bool {
    let Some((date, rest)) = text.split_once('T') else { return false };
    if !has_shape(date, "0000-00-00") || date.parse::<jiff::civil::Date>().is_err() {
        return false;
    }
    let (time, offset) = match rest.find(['Z', '+', '-']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let two = |text: &str, max: u8| has_shape(text, "00") && text.parse::<u8>().is_ok_and(|number| number <= max);
    let offset_is_one = match offset.get(1..) {
        None => true,
        Some("") => offset == "Z",
        Some(rest) => {
            rest.split_once(':').is_some_and(|(hours, minutes)| two(hours, 23) && two(minutes, 59)) && offset != "Z"
        }
    };
    let (clock, fraction) = time.split_once('.').map_or((time, None), |(clock, fraction)| (clock, Some(fraction)));
    let mut parts = clock.split(':');
    let (hours, minutes, seconds) = (parts.next(), parts.next(), parts.next());
    let clock_is_one = hours.is_some_and(|hours| two(hours, 23))
        && minutes.is_some_and(|minutes| two(minutes, 59))
        && seconds.is_none_or(|seconds| two(seconds, 59))
        && parts.next().is_none();
    let fraction_is_one = fraction.is_none_or(|digits| {
        seconds.is_some() && (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
    });
    offset_is_one && clock_is_one && fraction_is_one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::gate::trial::Trial;
    use crate::contract::gate::trial::table;

    #[test]
    fn patterns_lengths_and_types() {
        table(
            Trial::default,
            &KIND,
            &[
                (r#"{"path": "$.v", "require": "^[A-Z]{2}$"}"#, r#"{"v":"AB"}"#, ""),
                (
                    r#"{"path": "$.v", "require": "^[A-Z]{2}$"}"#,
                    r#"{"v":"ABC"}"#,
                    "$['v']: expected a match of `^[A-Z]{2}$`, found `ABC`",
                ),
                (r#"{"path": "$.v", "require": "b"}"#, r#"{"v":"a\u0062c"}"#, ""),
                (r#"{"path": "$.v", "max_chars": 3}"#, r#"{"v":"äöü"}"#, ""),
                (r#"{"path": "$.v", "max_chars": 3}"#, r#"{"v":"äöüß"}"#, "expected at most 3 characters, found 4"),
                (r#"{"path": "$.v", "max_chars": 0}"#, r#"{"v":""}"#, ""),
                (r#"{"path": "$.v", "max_chars": 9}"#, r#"{"v":1}"#, "expected a text, found number"),
                (r#"{"path": "$.v", "max_chars": 9}"#, r#"{"v":["a"]}"#, "expected a text, found array"),
                (r#"{"path": "$.v", "max_chars": 9}"#, r#"{"v":null}"#, "found null"),
                (r#"{"path": "$.v", "max_chars": 9}"#, r#"{}"#, "missing"),
                (r#"{"path": "$.i[*].v", "max_chars": 1}"#, r#"{"i":[{"v":"a"},{"v":"ab"}]}"#, "$['i'][1]['v']"),
                (r#"{"path": "$.i[*]", "max_chars": 1}"#, r#"{"i":[]}"#, ""),
            ],
        );
        let forbid = r#"{"path": "$.v", "forbid": "(?i)\\bsorry\\b"}"#;
        assert!(Trial::default().judged(&KIND, forbid, r#"{"v":"So SORRY"}"#)[0].ends_with("found `SORRY`"));
        assert!(Trial::default().judged(&KIND, forbid, r#"{"v":"sorrysorry"}"#).is_empty());
        assert!(Trial::default().optional().judged(&KIND, forbid, r#"{"v":null}"#).is_empty());
        assert!(Trial::default().with_evidence().judged(&KIND, forbid, r#"{"v":{"value":"x"}}"#).is_empty());
    }

    #[test]
    fn formats() {
        for (format, good, bad) in [
            (
                "iso_date",
                vec!["2025-04-03", "2024-02-29", "0001-01-01"],
                vec![
                    "2025-02-29",
                    "2025-4-3",
                    "20250403",
                    "2025-13-01",
                    "2025-04-03 ",
                    "+2025-04-03",
                    "2025-04-03T00:00",
                    "03.04.2025",
                    "",
                    "２０２５-04-03",
                ],
            ),
            (
                "iso_datetime",
                vec![
                    "2025-04-03T09:30",
                    "2025-04-03T09:30:00Z",
                    "2025-04-03T23:59:59.123456789+05:30",
                    "2025-04-03T09:30:00-08:00",
                ],
                vec![
                    "2025-04-03",
                    "2025-04-03 09:30",
                    "2025-04-03T24:00",
                    "2025-04-03T09:60",
                    "2025-02-30T09:30",
                    "2025-04-03T09:30:60Z",
                    "2025-04-03T09:30:00+0530",
                    "2025-04-03T09:30:00Zx",
                    "2025-04-03T09:30:00Z[UTC]",
                    "2025-04-03T9:30",
                    "2025-04-03T09:30.5",
                    "2025-04-03T09:30:00.",
                    "2025-04-03t09:30z",
                    "2025-04-03T09:30:00+24:00",
                    "2025-04-03T",
                    "T",
                    "2025-04-03T09:30:00:00",
                    "2025-04-03T09:30:00--8",
                ],
            ),
            ("iso_4217", vec!["EUR", "USD", "JPY"], vec!["eur", "EURO", "XYZ", "€", "", "ÉUR"]),
            ("iso_3166", vec!["DE", "US", "ZW", "AD", "GB"], vec!["de", "UK", "DEU", "XX", "", "ÄX"]),
            ("email", vec!["a@example.com"], vec!["nobody", "a@", "@b", "a b@example.com", ""]),
            ("uri", vec!["https://example.com/a?b#c", "urn:isbn:1"], vec!["example", "//x", "http://a b", ""]),
            ("uuid", vec!["123e4567-e89b-12d3-a456-426614174000"], vec!["123e4567e89b12d3a456426614174000", "x", ""]),
        ] {
            let settings = format!(r#"{{"path": "$", "format": "{format}"}}"#);
            for text in good {
                assert!(
                    Trial::default().judged(&KIND, &settings, &Value::from(text).to_string()).is_empty(),
                    "{format} {text}"
                );
            }
            for text in bad {
                let told = Trial::default().judged(&KIND, &settings, &Value::from(text).to_string());
                assert!(told.len() == 1 && told[0].contains("expected a"), "{format} {text:?}: {told:?}");
            }
        }
    }

    #[test]
    fn placeholders_and_apologies() {
        let own = r#"{"path": "$.v", "no_placeholder": true}"#;
        let judged = |settings: &str, text: &str| {
            Trial::default().judged(&KIND, settings, &json!({"v": text}).to_string()).join("; ")
        };
        for bad in PLACEHOLDERS.iter().chain(&[" N/A ", "Unknown", "TBD\n", "Not Specified"]) {
            assert!(judged(own, bad).contains("found the placeholder"), "{bad}");
        }
        for bad in [
            "Sorry, I could not read this line",
            "I'm sorry",
            "I\u{2019}m afraid not",
            "As an AI model, I",
            "My apologies",
            "I cannot determine it",
            "  we apologise",
        ] {
            assert!(judged(own, bad).contains("found an apology"), "{bad}");
        }
        for good in [
            "0",
            "nano",
            "Sorrydale Road 4",
            "Widgets, sorry sold out",
            "We can supply it",
            "string quartet",
            "As an aid",
            "unknown soldier",
        ] {
            assert_eq!(judged(own, good), "", "{good}");
        }
        let set = r#"{"path": "$.v", "no_placeholder": {"words": ["K.A."], "openings": ["leider"]}}"#;
        assert!(judged(set, "k.a.").contains("placeholder") && judged(set, "Leider nein").contains("apology"));
        assert!(judged(set, "n/a").is_empty() && judged(set, "sorry").is_empty());
        assert!(judged(r#"{"path": "$.v", "max_chars": 9, "no_placeholder": false}"#, "n/a").is_empty());
        let listed = r##"{"properties":{"v":{"$ref":"#/$defs/u"}},"$defs":{"u":{"enum":["billing","unknown"]}}}"##;
        let mut trial = Trial::default().with_schema(listed);
        assert!(trial.judged(&KIND, own, r#"{"v":"unknown"}"#).is_empty());
        assert_eq!(trial.judged(&KIND, own, r#"{"v":"Unknown"}"#).len(), 1);
        assert_eq!(trial.judged(&KIND, own, r#"{"v":"none"}"#).len(), 1);
    }

    #[test]
    fn settings_are_checked() {
        for (settings, expected) in [
            (r#"{"path": "$.v"}"#, "expected a demand"),
            (r#"{"path": "v", "max_chars": 1}"#, "path: "),
            (r#"{"path": "$.v", "forbid": "("}"#, "forbid: "),
            (r#"{"path": "$.v", "require": "(?=a)"}"#, "require: "),
            (r#"{"path": "$.v", "format": "iso"}"#, "unknown variant `iso`"),
            (r#"{"path": "$.v", "no_placeholder": {"word": []}}"#, "`no_placeholder`: unknown field `word`"),
            (r#"{"path": "$.v", "no_placeholder": {"openings": ["("]}}"#, "no_placeholder: "),
            (r#"{"path": "$.v", "max_chars": -1}"#, "invalid number"),
        ] {
            let told = Trial::default().refused(&KIND, settings);
            assert!(told.iter().any(|one| one.contains(expected)), "{settings}: {told:?}");
        }
        let mut sorted = country::ALPHA_2.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((sorted.as_slice(), sorted.len()), (country::ALPHA_2, 249));
    }
}
