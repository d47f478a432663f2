//! A cursor over JSON text that reads only what is asked for: what is skipped is checked for grammar
//! and depth, and never built.
//!
//! Objects that are read member by member are *interpreted*, so a key that stands in one twice is a
//! fault: another reader might take the other value.

use std::borrow::Cow;
use std::ops::Range;

use super::check;
use super::fault::{JsonFault, JsonFaultKind as Kind};
use super::string::{self, Spot};

/// Members that an object may have which is read member by member: none that is interpreted has so many.
const MEMBERS_MAX: usize = 4_096;

/// A place in JSON text.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    text: &'a [u8],
    /// The same text, where it is known to be UTF-8; otherwise nothing.
    said: &'a str,
    at: usize,
}

/// A member of an object, by place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The key, its escapes read.
    pub key: Cow<'a, str>,
    /// Offset of the key's opening quote.
    pub key_at: usize,
}

/// What kind of value begins at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `"`
    String,
    /// `null`
    Null,
    /// A number, `true`, `false`, or nothing that is JSON.
    Other,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of `text`.
    pub fn new(text: &'a [u8]) -> Self {
        Self::at(text, 0)
    }

    /// A cursor at byte `at` of `text`.
    pub fn at(text: &'a [u8], at: usize) -> Self {
        Self { text, said: "", at: check::white(text, at) }
    }

    /// A cursor at the start of text that is known to be UTF-8: no key need be looked at again for that.
    pub fn of(said: &'a str) -> Self {
        Self { said, ..Self::new(said.as_bytes()) }
    }

    /// What the next value is.
    pub fn begins(&self) -> Begins {
        match self.text.get(self.at) {
            Some(b'{') => Begins::Object,
            Some(b'[') => Begins::Array,
            Some(b'"') => Begins::String,
            Some(b'n') => Begins::Null,
            _ => Begins::Other,
        }
    }

    /// The whole text.
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Where the next value begins.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Passes over one value; returns where it stands.
    pub fn skip(&mut self) -> Result<Range<usize>, JsonFault> {
        let start = self.at;
        let end = check::skip(self.text, start)?;
        self.at = check::white(self.text, end);
        Ok(start..end)
    }

    /// Reads one string; returns where it stands.
    pub fn string(&mut self) -> Result<Spot, JsonFault> {
        if self.text.get(self.at) != Some(&b'"') {
            return Err(JsonFault::new(Kind::WrongType("a string"), self.at));
        }
        let spot = string::spot(self.text, self.at)?;
        self.at = check::white(self.text, spot.after());
        Ok(spot)
    }

    /// Reads one string for what it says, in one pass; returns where it stands, too.
    pub fn said(&mut self) -> Result<(Spot, Cow<'a, str>), JsonFault> {
        if self.text.get(self.at) != Some(&b'"') {
            return Err(JsonFault::new(Kind::WrongType("a string"), self.at));
        }
        let (spot, said) = string::read(self.text, self.at)?;
        self.at = check::white(self.text, spot.after());
        Ok((spot, said))
    }

    /// Reads a string, or `null` as none.
    pub fn string_or_null(&mut self) -> Result<Option<Spot>, JsonFault> {
        if self.begins() == Begins::Null { self.skip().map(|_| None) } else { self.string().map(Some) }
    }

    /// Reads `true` or `false`; `null` is none.
    pub fn bool_or_null(&mut self) -> Result<Option<bool>, JsonFault> {
        let at = self.at;
        let range = self.skip()?;
        match self.text.get(range) {
            Some(b"true") => Ok(Some(true)),
            Some(b"false") => Ok(Some(false)),
            Some(b"null") => Ok(None),
            _ => Err(JsonFault::new(Kind::WrongType("true or false"), at)),
        }
    }

    /// Reads a whole number of 0 or more; `null` is none.
    pub fn count_or_null(&mut self) -> Result<Option<u64>, JsonFault> {
        let at = self.at;
        let range = self.skip()?;
        let text = self.text.get(range).and_then(|raw| std::str::from_utf8(raw).ok()).unwrap_or_default();
        match text {
            "null" => Ok(None),
            digits => match digits.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(JsonFault::new(Kind::WrongType("a whole number"), at)),
            },
        }
    }

    /// Reads an object member by member; `each` must read exactly the member's value.
    ///
    /// Returns where the object stands. Fails on a key that stands twice.
    pub fn object<E: From<JsonFault>>(
        &mut self,
        mut each: impl FnMut(&mut Self, Member<'a>) -> Result<(), E>,
    ) -> Result<Range<usize>, E> {
        let start = self.at;
        if self.text.get(start) != Some(&b'{') {
            return Err(JsonFault::new(Kind::WrongType("an object"), start).into());
        }
        self.at = check::white(self.text, start + 1);
        let mut keys: Vec<Spot> = Vec::with_capacity(8);
        if self.text.get(self.at) != Some(&b'}') {
            loop {
                let key_at = self.at;
                let spot = self.key()?;
                if keys.len() >= MEMBERS_MAX {
                    return Err(JsonFault::new(Kind::Expected("at most 4096 members"), key_at).into());
                }
                keys.push(spot);
                let key = match self.said.get(spot.inside()) {
                    Some(key) if !spot.escaped => Cow::Borrowed(key),
                    _ => string::decode(self.text, spot)?,
                };
                each(self, Member { key, key_at })?;
                match self.text.get(self.at) {
                    Some(b',') => self.at = check::white(self.text, self.at + 1),
                    Some(b'}') => break,
                    Some(_) => return Err(JsonFault::new(Kind::Expected("`,` or `}`"), self.at).into()),
                    None => return Err(JsonFault::new(Kind::Ends("`,` or `}`"), self.at).into()),
                }
            }
        }
        if let Some((key, at)) = check::duplicate(self.text, &keys) {
            return Err(JsonFault::new(Kind::DuplicateKey(key), at).into());
        }
        let end = self.at + 1;
        self.at = check::white(self.text, end);
        Ok(start..end)
    }

    fn key(&mut self) -> Result<Spot, JsonFault> {
        match self.text.get(self.at) {
            Some(b'"') => {}
            Some(_) => return Err(JsonFault::new(Kind::Expected("a key in double quotes"), self.at)),
            None => return Err(JsonFault::new(Kind::Ends("a key"), self.at)),
        }
        let spot = string::spot(self.text, self.at)?;
        let colon = check::white(self.text, spot.after());
        match self.text.get(colon) {
            Some(b':') => {}
            Some(_) => return Err(JsonFault::new(Kind::Expected("`:`"), colon)),
            None => return Err(JsonFault::new(Kind::Ends("`:`"), colon)),
        }
        self.at = check::white(self.text, colon + 1);
        Ok(spot)
    }

    /// Reads an array element by element; `each` must read exactly one value.
    ///
    /// Returns where the array stands.
    pub fn array<E: From<JsonFault>>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Range<usize>, E> {
        let start = self.at;
        if self.text.get(start) != Some(&b'[') {
            return Err(JsonFault::new(Kind::WrongType("an array"), start).into());
        }
        self.at = check::white(self.text, start + 1);
        if self.text.get(self.at) != Some(&b']') {
            loop {
                each(self)?;
                match self.text.get(self.at) {
                    Some(b',') => self.at = check::white(self.text, self.at + 1),
                    Some(b']') => break,
                    Some(_) => return Err(JsonFault::new(Kind::Expected("`,` or `]`"), self.at).into()),
                    None => return Err(JsonFault::new(Kind::Ends("`,` or `]`"), self.at).into()),
                }
            }
        }
        let end = self.at + 1;
        self.at = check::white(self.text, end);
        Ok(start..end)
    }

    /// Checks that nothing follows.
    pub fn end(&self) -> Result<(), JsonFault> {
        if self.at == self.text.len() { Ok(()) } else { Err(JsonFault::new(Kind::TrailingText, self.at)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Result<Vec<String>, JsonFault> {
        let mut seen = Vec::new();
        let mut cursor = Cursor::new(text.as_bytes());
        cursor.object(|cursor, member| {
            seen.push(member.key.into_owned());
            cursor.skip().map(|_| ())
        })?;
        cursor.end()?;
        Ok(seen)
    }

    #[test]
    fn members_come_in_order_with_their_escapes_read() {
        assert_eq!(keys(r#" { "a" : [1, {"x":2}] , "\u0062":"}" } "#).unwrap(), ["a", "b"]);
        assert_eq!(keys("{}").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_key_twice_is_a_fault_even_when_spelt_differently() {
        let fault = keys(r#"{"a":1,"\u0061":2}"#).unwrap_err();
        assert_eq!((fault.kind, fault.at), (Kind::DuplicateKey("a".into()), 7));
    }

    #[test]
    fn broken_text_is_a_fault() {
        for text in ["", "[", "{", r#"{"a"}"#, r#"{"a":1,}"#, r#"{"a":1}x"#, r#"{"a":01}"#, r#"{"a":"\q"}"#] {
            assert!(keys(text).is_err(), "{text}");
        }
    }

    /// What each reader makes of a text, and how many bytes it read with the blanks behind them.
    #[test]
    fn each_reader_takes_its_kind_of_value_alone() {
        let flag = |text: &str| {
            let mut cursor = Cursor::new(text.as_bytes());
            cursor.bool_or_null().map(|flag| (flag, cursor.offset()))
        };
        assert_eq!(flag("true "), Ok((Some(true), 5)));
        assert_eq!(flag("false"), Ok((Some(false), 5)));
        assert_eq!(flag(" null"), Ok((None, 5)));
        for text in ["1", "\"true\"", "[]", "{}"] {
            assert_eq!(flag(text), Err(JsonFault::new(Kind::WrongType("true or false"), 0)), "{text}");
        }
        let count = |text: &str| {
            let mut cursor = Cursor::new(text.as_bytes());
            cursor.count_or_null().map(|count| (count, cursor.offset()))
        };
        assert_eq!(count("7 ,"), Ok((Some(7), 2)));
        assert_eq!(count("18446744073709551615"), Ok((Some(u64::MAX), 20)));
        assert_eq!(count("null"), Ok((None, 4)));
        for text in ["1.5", "-1", "1e2", "18446744073709551616", "true", "\"7\""] {
            assert_eq!(count(text), Err(JsonFault::new(Kind::WrongType("a whole number"), 0)), "{text}");
        }
        let text = |text: &'static str| {
            let mut cursor = Cursor::new(text.as_bytes());
            cursor.string_or_null().map(|spot| (spot.map(|spot| spot.raw(cursor.text())), cursor.offset()))
        };
        assert_eq!(text("\"ab\" ]"), Ok((Some(&b"ab"[..]), 5)));
        assert_eq!(text("null]"), Ok((None, 4)));
        assert_eq!(text("7"), Err(JsonFault::new(Kind::WrongType("a string"), 0)));
        let said = |text: &'static str| {
            let mut cursor = Cursor::new(text.as_bytes());
            cursor.said().map(|(spot, said)| (spot.after(), said.into_owned(), cursor.offset()))
        };
        assert_eq!(said("\"a\\u0062\" "), Ok((9, "ab".to_owned(), 10)));
        assert_eq!(said("null"), Err(JsonFault::new(Kind::WrongType("a string"), 0)));
        let kinds = ["{", " [", "\"", "null", "7", "", "\ttrue"].map(|text| Cursor::new(text.as_bytes()).begins());
        let other = Begins::Other;
        assert_eq!(kinds, [Begins::Object, Begins::Array, Begins::String, Begins::Null, other, other, other]);
    }

    #[test]
    fn containers_tell_where_they_stand_and_leave_the_cursor_behind_them() {
        for (text, stands, behind) in [(" [ ] 1", 1..4, 5), ("[1 , [2]]x", 0..9, 9), ("[]", 0..2, 2)] {
            let mut cursor = Cursor::new(text.as_bytes());
            let range = cursor.array(|cursor| cursor.skip().map(|_| ()));
            assert_eq!((range, cursor.offset()), (Ok(stands), behind), "{text}");
        }
        for (text, stands, behind) in [(" { } 1", 1..4, 5), ("{\"a\" : 1 , \"b\":{} }x", 0..19, 19), ("{}", 0..2, 2)] {
            let mut cursor = Cursor::new(text.as_bytes());
            let range = cursor.object(|cursor, _| cursor.skip().map(|_| ()));
            assert_eq!((range, cursor.offset()), (Ok(stands), behind), "{text}");
        }
        let array = |text: &str| Cursor::new(text.as_bytes()).array(|cursor| cursor.skip().map(|_| ()));
        assert_eq!(array("{}"), Err(JsonFault::new(Kind::WrongType("an array"), 0)));
        assert_eq!(array("[1 2]"), Err(JsonFault::new(Kind::Expected("`,` or `]`"), 3)));
        assert_eq!(array("[1 "), Err(JsonFault::new(Kind::Ends("`,` or `]`"), 3)));
        let object = |text: &str| Cursor::new(text.as_bytes()).object(|cursor, _| cursor.skip().map(|_| ()));
        for (text, fault) in [
            ("[]", JsonFault::new(Kind::WrongType("an object"), 0)),
            ("{1", JsonFault::new(Kind::Expected("a key in double quotes"), 1)),
            ("{ ", JsonFault::new(Kind::Ends("a key"), 2)),
            ("{\"a\" 1", JsonFault::new(Kind::Expected("`:`"), 5)),
            ("{\"a\" ", JsonFault::new(Kind::Ends("`:`"), 5)),
            ("{\"a\":1 2", JsonFault::new(Kind::Expected("`,` or `}`"), 7)),
            ("{\"a\":1 ", JsonFault::new(Kind::Ends("`,` or `}`"), 7)),
        ] {
            assert_eq!(object(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn an_interpreted_object_has_a_bounded_number_of_members() {
        let with = |members: usize| {
            let members: Vec<String> = (0..members).map(|index| format!("\"k{index}\":0")).collect();
            Cursor::new(format!("{{{}}}", members.join(",")).as_bytes()).object(|cursor, _| cursor.skip().map(|_| ()))
        };
        assert!(with(MEMBERS_MAX).is_ok());
        assert_eq!(with(MEMBERS_MAX + 1).unwrap_err().kind, Kind::Expected("at most 4096 members"));
    }

    #[test]
    fn nothing_may_follow_the_end() {
        let mut cursor = Cursor::of("{} ");
        assert!(cursor.end().is_err());
        cursor.skip().unwrap();
        assert_eq!(cursor.end(), Ok(()));
    }
}
