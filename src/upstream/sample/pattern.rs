//! A string that matches a simple pattern: literals, classes, groups, repetitions. What it does
//! not know (look-around, back-references) it gives up on.

use std::iter::Peekable;
use std::str::Chars;

/// Characters of a match at most.
const LENGTH_MAX: usize = 4_096;

/// Groups inside of each other at most.
const GROUPS_MAX: usize = 32;

/// A match of `pattern`.
pub(super) fn matching(pattern: &str, pick: u64) -> Option<String> {
    matching_within(pattern, pick, 0, usize::MAX)
}

/// A match of `pattern` of so many characters, as far as repetitions allow.
pub(super) fn matching_within(pattern: &str, pick: u64, least: usize, most: usize) -> Option<String> {
    // Open repetitions are stretched until the whole is long enough.
    for stretch in [2, 0, 1, 3, 5, 8, least, most.min(LENGTH_MAX)] {
        let mut reader = Reader { chars: pattern.chars().peekable(), pick, stretch, groups: 0 };
        let text = reader.alternatives()?;
        if reader.chars.peek().is_none() && (least..=most).contains(&text.chars().count()) && confirmed(pattern, &text)
        {
            return Some(text);
        }
    }
    None
}

fn confirmed(pattern: &str, text: &str) -> bool {
    regex::Regex::new(pattern).map_or(true, |pattern| pattern.is_match(text))
}

struct Reader<'p> {
    chars: Peekable<Chars<'p>>,
    pick: u64,
    stretch: usize,
    groups: usize,
}

impl Reader<'_> {
    /// One of the alternatives up to the end of the group.
    fn alternatives(&mut self) -> Option<String> {
        let mut all = vec![self.sequence()?];
        while self.chars.next_if_eq(&'|').is_some() {
            all.push(self.sequence()?);
        }
        let at = usize::try_from(self.pick.checked_rem(all.len() as u64)?).ok()?;
        all.into_iter().nth(at)
    }

    fn sequence(&mut self) -> Option<String> {
        let mut text = String::new();
        while let Some(next) = self.chars.peek().copied() {
            if next == '|' || next == ')' {
                break;
            }
            self.chars.next();
            let set = match next {
                '^' | '$' => continue,
                '(' => Part::Text(self.group()?),
                '[' => Part::OneOf(self.class()?),
                '.' => Part::OneOf(letters()),
                '\\' => self.escape()?,
                '*' | '+' | '?' => return None,
                other => Part::Text(other.to_string()),
            };
            let times = self.times()?;
            for _ in 0..times {
                match &set {
                    Part::Text(part) => text.push_str(part),
                    Part::OneOf(set) => text.push(self.one(set)?),
                    Part::Nothing => {}
                }
                if text.len() > LENGTH_MAX {
                    return None;
                }
            }
        }
        Some(text)
    }

    fn group(&mut self) -> Option<String> {
        self.groups += 1;
        if self.groups > GROUPS_MAX {
            return None;
        }
        if self.chars.next_if_eq(&'?').is_some() {
            match self.chars.next()? {
                ':' => {}
                // A named group; `(?<=` and `(?<!` look behind.
                '<' | 'P' => {
                    while let Some(letter) = self.chars.next_if(|letter| *letter != '>') {
                        if letter == '=' || letter == '!' {
                            return None;
                        }
                    }
                    self.chars.next()?;
                }
                _ => return None,
            }
        }
        let text = self.alternatives()?;
        self.groups -= 1;
        self.chars.next_if_eq(&')').map(|_| text)
    }

    fn escape(&mut self) -> Option<Part> {
        Some(match self.chars.next()? {
            'd' => Part::OneOf(('0'..='9').collect()),
            'w' => Part::OneOf(letters()),
            's' => Part::Text(" ".to_owned()),
            'D' | 'S' => Part::OneOf(letters()),
            'W' => Part::Text("-".to_owned()),
            'b' | 'B' | 'A' | 'z' => Part::Nothing,
            'n' => Part::Text("\n".to_owned()),
            't' => Part::Text("\t".to_owned()),
            'p' | 'P' | 'u' | 'x' | '1'..='9' => return None,
            other => Part::Text(other.to_string()),
        })
    }

    fn class(&mut self) -> Option<Vec<char>> {
        let negated = self.chars.next_if_eq(&'^').is_some();
        let mut set = Vec::new();
        loop {
            let from = match self.chars.next()? {
                ']' => break,
                '\\' => match self.escape()? {
                    Part::OneOf(more) => {
                        set.extend(more);
                        continue;
                    }
                    Part::Text(text) => text.chars().next()?,
                    Part::Nothing => return None,
                },
                other => other,
            };
            let range = self.chars.peek() == Some(&'-')
                && self.chars.clone().nth(1).is_some_and(|end| end != ']' && end != '\\');
            if range {
                self.chars.next();
                let to = self.chars.next()?;
                set.extend((from..=to).take(128));
            } else {
                set.push(from);
            }
        }
        if negated {
            let outside: Vec<char> = (' '..='~').filter(|letter| !set.contains(letter)).collect();
            let readable: Vec<char> = outside.iter().copied().filter(char::is_ascii_alphanumeric).collect();
            return Some(if readable.is_empty() { outside } else { readable });
        }
        Some(set)
    }

    /// How often the part before is written.
    fn times(&mut self) -> Option<usize> {
        let times = match self.chars.peek() {
            Some('?') => usize::from(self.stretch > 0),
            Some('*') => self.stretch,
            Some('+') => self.stretch.max(1),
            Some('{') => {
                let bounds: String = self.chars.by_ref().skip(1).take_while(|letter| *letter != '}').collect();
                let (least, most) = bounds.split_once(',').unwrap_or((&bounds, &bounds));
                let least: usize = least.trim().parse().ok()?;
                let most = most.trim().parse().unwrap_or(usize::MAX);
                self.chars.next_if_eq(&'?');
                return Some(self.stretch.clamp(least, most.max(least)));
            }
            _ => return Some(1),
        };
        self.chars.next();
        // Lazy or possessive: the same strings match.
        self.chars.next_if(|letter| matches!(letter, '?' | '+'));
        Some(times)
    }

    fn one(&mut self, set: &[char]) -> Option<char> {
        self.pick = self.pick.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = usize::try_from((self.pick >> 33).checked_rem(set.len() as u64)?).ok()?;
        set.get(at).copied()
    }
}

enum Part {
    Text(String),
    OneOf(Vec<char>),
    Nothing,
}

fn letters() -> Vec<char> {
    ('a'..='z').collect()
}
