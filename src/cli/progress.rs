//! A progress bar on a terminal, for what takes longer than two seconds.

use std::io::IsTerminal as _;
use std::io::Write as _;
use std::time::Duration;
use std::time::Instant;

use crate::report::count;

/// How long nothing is shown.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two drawings.
const EVERY: Duration = Duration::from_millis(100);
/// Characters of the bar.
const WIDTH: usize = 30;

/// How far a command has come.
pub(super) struct Progress {
    is_terminal: bool,
    started: Instant,
    drawn: Option<Instant>,
    /// Bytes that there are to go through, where that is known.
    whole: Option<u64>,
}

impl Progress {
    /// Begins to measure. Nothing is ever shown where standard error is no terminal.
    pub(super) fn new(whole: Option<u64>) -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), started: Instant::now(), drawn: None, whole }
    }

    /// Tells how far the command has come, in bytes and in records.
    pub(super) fn at(&mut self, bytes: u64, records: u64) {
        let now = Instant::now();
        let is_due = self.drawn.map_or(now - self.started >= PATIENCE, |drawn| now - drawn >= EVERY);
        if self.is_terminal && is_due {
            self.drawn = Some(now);
            self.write(&format!("\r{}\u{1b}[K", line(bytes, self.whole, records)));
        }
    }

    /// Takes the bar away again.
    pub(super) fn done(&mut self) {
        if self.drawn.take().is_some() {
            self.write("\r\u{1b}[K");
        }
    }

    fn write(&self, text: &str) {
        let mut out = std::io::stderr().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush()); // a bar that nobody sees is no fault
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done();
    }
}

fn line(bytes: u64, whole: Option<u64>, records: u64) -> String {
    let records = format!("{} records", count(records));
    let Some(whole) = whole.filter(|whole| *whole > 0) else { return records };
    let share = |of: u128| u128::from(bytes.min(whole)) * of / u128::from(whole);
    let full = usize::try_from(share(WIDTH as u128)).unwrap_or(WIDTH);
    format!("[{}{}] {:>3} %  {records}", "#".repeat(full), ".".repeat(WIDTH - full), share(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        assert_eq!(line(0, Some(10), 0), "[..............................]   0 %  0 records");
        assert_eq!(line(5, Some(10), 1_234), "[###############...............]  50 %  1,234 records");
        assert_eq!(line(20, Some(10), 9), "[##############################] 100 %  9 records");
        assert_eq!(line(20, None, 9), "9 records");
    }
}
