//! Readable strings, picked by the name of the property they stand under.

use serde_json::Map;
use serde_json::Value;

use crate::upstream::sample::pattern;

/// Characters that a string is padded to at most.
const LENGTH_MAX: usize = 100_000;

/// Words by what a property's name contains; the first line that fits is taken.
const WORDS: &[(&[&str], &[&str])] = &[
    (&["email", "e_mail"], &["ada@example.com", "grace@example.com", "alan@example.com"]),
    (&["first_name", "firstname", "given"], &["Ada", "Grace", "Alan"]),
    (&["last_name", "lastname", "surname", "family"], &["Lovelace", "Hopper", "Turing"]),
    (&["user_name", "username", "login", "handle"], &["ada", "grace", "alan"]),
    (
        &["company", "organization", "organisation", "vendor", "supplier", "entity"],
        &["Analytical Engines Ltd", "Difference & Co", "Bletchley Works"],
    ),
    (&["product", "item_name", "dish"], &["Margherita", "Green tea", "Notebook"]),
    (&["name", "author", "person", "customer", "assignee", "owner"], &["Ada Lovelace", "Grace Hopper", "Alan Turing"]),
    (&["city", "town"], &["Lisbon", "Zurich", "Kyoto"]),
    (&["country"], &["Portugal", "Switzerland", "Japan"]),
    (&["street", "address"], &["12 Harbour Street", "7 Mill Lane", "3 Station Road"]),
    (&["zip", "postal", "postcode"], &["1100-148", "8001", "600-8216"]),
    (&["phone", "mobile", "tel"], &["+351 210 000 000", "+41 44 000 00 00", "+81 75 000 0000"]),
    (
        &["url", "link", "website", "homepage", "uri"],
        &["https://example.com/", "https://example.org/docs", "https://example.net/a"],
    ),
    (&["currency"], &["EUR", "CHF", "JPY"]),
    (&["language", "locale", "lang"], &["en", "pt", "ja"]),
    (&["colour", "color"], &["teal", "amber", "indigo"]),
    (
        &["datetime", "timestamp", "created_at", "updated_at"],
        &["2025-03-14T09:30:00Z", "2025-04-02T16:05:00Z", "2025-05-20T12:00:00Z"],
    ),
    (&["date", "day", "period_end"], &["2025-03-14", "2025-04-02", "2025-05-20"]),
    (&["time"], &["09:30:00Z", "16:05:00Z", "12:00:00Z"]),
    (&["title", "subject", "headline"], &["Quarterly report", "Meeting notes", "Travel plan"]),
    (
        &["summary", "description", "abstract"],
        &["A short summary of what was said.", "The main points in one sentence.", "What matters, briefly."],
    ),
    (&["question"], &["Which size would you like?", "When should it arrive?", "Is there anything to avoid?"]),
    (
        &["reason", "explanation", "rationale", "thought", "step"],
        &["The text says so.", "It follows from the first part.", "Nothing speaks against it."],
    ),
    (
        &["answer", "response", "reply", "message", "content", "text", "comment", "note"],
        &["This is a scripted answer.", "All is well.", "Here is what was asked for."],
    ),
    (&["status", "state"], &["open", "done", "waiting"]),
    (&["category", "type", "kind", "label", "tag", "topic"], &["general", "travel", "science"]),
    (&["size"], &["medium", "large", "small"]),
    (&["action"], &["Please send me a copy of the invoice.", "Please reset my password.", "Please call me back."]),
    (&["instruction"], &["no ice, please", "well done", "cut in half"]),
    (&["addition", "ingredient", "topping"], &["oat milk", "basil", "olives"]),
    (&["removal", "allergen"], &["onion", "sesame", "milk"]),
    (&["sku"], &["SKU-1001", "SKU-1002", "SKU-1003"]),
    (&["unit"], &["kg", "m", "s"]),
    (&["code", "id", "key", "reference", "number"], &["A-1001", "A-1002", "A-1003"]),
    (&["file", "path"], &["notes/report.txt", "src/main.rs", "data.csv"]),
];

/// Words for names that say nothing.
const PLAIN: &[&str] = &["harbour", "lantern", "meadow", "copper", "willow", "granite", "saffron", "ember"];

fn nth<'a>(list: &[&'a str], pick: u64) -> &'a str {
    let at = pick.checked_rem(list.len() as u64).and_then(|at| usize::try_from(at).ok()).unwrap_or_default();
    list.get(at).copied().unwrap_or("text")
}

/// A string that `format`, `pattern` and the lengths of `shape` allow, as far as can be told.
pub(super) fn string(shape: &Map<String, Value>, name: &str, pick: u64) -> String {
    let length = |name: &str| shape.get(name).and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
    let (least, most) = (length("minLength").unwrap_or(0), length("maxLength").unwrap_or(usize::MAX));
    if let Some(text) = shape.get("format").and_then(Value::as_str).and_then(|format| formatted(format, pick)) {
        return text;
    }
    let word = sized(word(name, pick), pick, least, most);
    match shape.get("pattern").and_then(Value::as_str) {
        Some(pattern) if !regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(&word)) => {
            pattern::matching_within(pattern, pick, least, most).unwrap_or(word)
        }
        _ => word,
    }
}

fn word(name: &str, pick: u64) -> &'static str {
    let mut spaced = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !spaced.is_empty() {
            spaced.push('_');
        }
        spaced.extend(letter.to_lowercase());
    }
    let fits = |part: &&str| {
        if part.len() <= 3 { spaced.split(['_', '-', ' ']).any(|word| word == *part) } else { spaced.contains(*part) }
    };
    let known = WORDS.iter().find(|(parts, _)| parts.iter().any(&fits));
    nth(known.map_or(PLAIN, |(_, words)| words), pick)
}

/// `text` with more words, or cut, to have so many characters.
fn sized(text: &str, pick: u64, least: usize, most: usize) -> String {
    let mut text = text.to_owned();
    let mut count = text.chars().count();
    let mut next = pick;
    while count < least.min(LENGTH_MAX) {
        next = next.wrapping_add(1);
        let word = nth(PLAIN, next);
        text.push(' ');
        text.push_str(word);
        count += 1 + word.len();
    }
    let wanted = if count > least && least > text.trim_end().chars().count() { least } else { most };
    text.chars().take(wanted).collect()
}

/// A key of a free-form object.
pub(super) fn key(pick: u64) -> String {
    let round = pick / PLAIN.len() as u64;
    if round == 0 { nth(PLAIN, pick).to_owned() } else { format!("{}_{round}", nth(PLAIN, pick)) }
}

/// The name of one element of a list.
pub(super) fn singular(name: &str) -> &str {
    name.strip_suffix('s').unwrap_or(name)
}

fn formatted(format: &str, pick: u64) -> Option<String> {
    let text = match format {
        "date" => nth(&["2025-03-14", "2025-04-02", "2025-05-20"], pick),
        "date-time" => nth(&["2025-03-14T09:30:00Z", "2025-04-02T16:05:00Z", "2025-05-20T12:00:00Z"], pick),
        "time" => nth(&["09:30:00Z", "16:05:00Z", "12:00:00Z"], pick),
        "duration" => nth(&["P1D", "PT30M", "P2W"], pick),
        "email" | "idn-email" => nth(&["ada@example.com", "grace@example.com", "alan@example.com"], pick),
        "uri" | "url" | "iri" => {
            nth(&["https://example.com/", "https://example.org/docs", "https://example.net/a"], pick)
        }
        "uri-reference" | "iri-reference" => nth(&["/docs", "/about", "/"], pick),
        "uri-template" => "/users/{id}",
        "hostname" | "idn-hostname" => nth(&["example.com", "example.org", "example.net"], pick),
        "ipv4" => nth(&["192.0.2.1", "192.0.2.7", "198.51.100.4"], pick),
        "ipv6" => nth(&["2001:db8::1", "2001:db8::7", "2001:db8::a"], pick),
        "json-pointer" => "/a/0",
        "relative-json-pointer" => "0/a",
        "regex" => "^[a-z]+$",
        "uuid" => return Some(format!("3f2504e0-4f89-41d3-9a0c-{:012x}", pick & 0xffff_ffff_ffff)),
        _ => return None,
    };
    Some(text.to_owned())
}
