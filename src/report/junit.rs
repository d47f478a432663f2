//! JUnit XML: one test case a record, as build servers read it.

use std::fmt::Write as _;

use crate::report::golden::Record;
use crate::report::outcome::Judged;
use crate::report::visible;

/// A test suite that grows record by record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suite {
    cases: String,
    tests: u64,
    failures: u64,
}

impl Suite {
    /// Adds a record; `as_expected` is whether it came to what it should, `judged` what it came to.
    pub fn add(&mut self, class: &str, record: &Record<'_>, judged: Option<&Judged>) {
        self.tests += 1;
        let _ = write!(self.cases, "  <testcase classname=\"{}\" name=\"{}\"", Escaped(class), Escaped(record.name));
        let Some(judged) = judged else {
            self.cases.push_str("/>\n");
            return;
        };
        self.failures += 1;
        let message = format!("expected {}, found {}", record.expected, judged.told());
        let _ = write!(self.cases, ">\n    <failure type=\"{}\" message=\"{}\">", judged.class(), Escaped(&message));
        for violation in &judged.violations {
            let (gate, kind, path) = (&violation.gate, violation.kind, &violation.path);
            let line = format!("{path}: {} [{gate} ({kind})]\n", violation.message);
            let _ = write!(self.cases, "{}", Escaped(&line));
        }
        let unlisted = judged.violations_total.saturating_sub(judged.violations.len());
        if unlisted > 0 {
            let _ = writeln!(self.cases, "and {unlisted} more");
        }
        self.cases.push_str("</failure>\n  </testcase>\n");
    }

    /// Adds all cases of `later` after its own.
    pub fn extend(&mut self, later: &Self) {
        self.cases.push_str(&later.cases);
        self.tests += later.tests;
        self.failures += later.failures;
    }

    /// The file.
    pub fn xml(&self, name: &str) -> String {
        let (tests, failures, cases) = (self.tests, self.failures, &self.cases);
        let counts = format!("name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\"", Escaped(name));
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n <testsuite {counts} skipped=\"0\">\n{cases} \
             </testsuite>\n</testsuites>\n"
        )
    }
}

/// Text as XML 1.0 can hold it, in content and in attributes alike. Control characters stand as pictures of themselves:
/// the format knows no way to write most of them.
struct Escaped<'t>(&'t str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match visible(c) {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&apos;")?,
                '\n' => f.write_str("&#10;")?,
                '\t' => f.write_str("&#9;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::golden::Expected;
    use crate::report::golden::testing;

    #[test]
    fn every_record_is_a_case_and_nothing_breaks_the_file() {
        let hostile = "]]></failure><!--\"'&\u{0}\u{1b}\u{ffff}";
        let mut judged = testing::rejected(hostile);
        judged.violations_total = 7;
        let record = |name| Record { line: 1, name, expected: Expected::default(), cause: None };
        let mut suite = Suite::default();
        suite.add("tickets", &record("good\tone\n"), None);
        let mut later = Suite::default();
        later.add(hostile, &record(hostile), Some(&judged));
        suite.extend(&later);
        let xml = suite.xml("a & b");
        assert!(xml.chars().all(|c| c == '\n' || c == '\t' || !c.is_control() && c != '\u{ffff}'), "{xml:?}");
        insta::assert_snapshot!(xml);
    }
}
