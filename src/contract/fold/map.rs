//! The way from a folded text back to the bytes it was made of.

/// Steps between two places at which a walk may begin.
const STRIDE: usize = 16;

/// Stretches that were kept and pieces that were replaced, run-length: two bytes a piece where it is short.
#[derive(Debug, Default)]
pub struct Map {
    /// For each piece: the bytes kept before it, then its bytes in the source and in the folded text.
    steps: Vec<u8>,
    /// Where every [`STRIDE`]th piece's step begins.
    starts: Vec<Start>,
    pieces: usize,
    /// Bytes kept since the last piece.
    kept: usize,
    folded: usize,
    source: usize,
}

/// A place at which a walk may begin.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    folded: u32,
    source: u32,
    step: u32,
}

/// How far a walk has come.
struct Walk {
    folded: usize,
    source: usize,
    step: usize,
}

/// One step as it is read: bytes kept, then a piece.
struct Step {
    kept: usize,
    source: usize,
    folded: usize,
}

impl Map {
    /// Bytes that this map takes.
    pub fn bytes(&self) -> usize {
        self.steps.len() + self.starts.len() * size_of::<Start>()
    }

    /// Notes bytes that were kept.
    pub(super) fn keep(&mut self, bytes: usize) {
        self.kept += bytes;
    }

    /// Notes a piece that became another.
    pub(super) fn replace(&mut self, source: usize, folded: usize) {
        if self.pieces.is_multiple_of(STRIDE) {
            let [folded, source, step] =
                [self.folded, self.source, self.steps.len()].map(|at| u32::try_from(at).unwrap_or(u32::MAX));
            self.starts.push(Start { folded, source, step });
        }
        self.pieces += 1;
        self.number(self.kept);
        match (u8::try_from(source), u8::try_from(folded)) {
            (Ok(a @ 0..=14), Ok(b @ 0..=14)) => self.steps.push(a << 4 | b),
            _ => {
                self.steps.push(u8::MAX);
                self.number(source);
                self.number(folded);
            }
        }
        self.folded += self.kept + folded;
        self.source += self.kept + source;
        self.kept = 0;
    }

    /// Bytes of the source that it leads back to.
    pub(super) fn source_bytes(&self) -> usize {
        self.source + self.kept
    }

    /// Where in the source a folded stretch begins, behind whatever was taken out before it, and where it ends, before whatever
    /// was taken out there; none within a piece.
    pub(super) fn range(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        // Strictly before: a piece that was taken out at `start` itself still has its say.
        let next = self.starts.partition_point(|known| (known.folded as usize) < start);
        let from = next.checked_sub(1).and_then(|last| self.starts.get(last)).copied().unwrap_or_default();
        let mut walk = Walk { folded: from.folded as usize, source: from.source as usize, step: from.step as usize };
        let begins = self.lead(&mut walk, start, |at, piece| match piece.kept {
            kept if at < kept => Some(Some(at)),
            kept if at == kept && piece.folded > 0 => Some(Some(kept)),
            kept if at < kept + piece.folded => Some(None),
            _ => None,
        })?;
        let ends = self.lead(&mut walk, end, |at, piece| match piece.kept {
            kept if at <= kept => Some(Some(at)),
            kept if at < kept + piece.folded => Some(None),
            kept if at == kept + piece.folded => Some(Some(kept + piece.source)),
            _ => None,
        })?;
        Some((begins, ends))
    }

    /// Where the byte `at` of the source is written, or the piece begins that it became a part of.
    pub(super) fn folded_before(&self, at: usize) -> usize {
        let next = self.starts.partition_point(|start| (start.source as usize) <= at);
        let start = next.checked_sub(1).and_then(|last| self.starts.get(last)).copied().unwrap_or_default();
        let (mut folded, mut source, mut step) = (start.folded as usize, start.source as usize, start.step as usize);
        while let Some(piece) = self.read(&mut step) {
            if at < source + piece.kept {
                break;
            }
            if at < source + piece.kept + piece.source {
                return folded + piece.kept;
            }
            folded += piece.kept + piece.folded;
            source += piece.kept + piece.source;
        }
        folded + (at - source)
    }

    /// Walks to the step at which `found` knows how far into the source `at` is, counted from the step, and stays before it.
    fn lead(&self, walk: &mut Walk, at: usize, found: impl Fn(usize, &Step) -> Option<Option<usize>>) -> Option<usize> {
        let mut next = walk.step;
        while let Some(piece) = self.read(&mut next) {
            if let Some(into) = found(at - walk.folded, &piece) {
                return into.map(|into| walk.source + into);
            }
            walk.folded += piece.kept + piece.folded;
            walk.source += piece.kept + piece.source;
            walk.step = next;
        }
        Some(walk.source + (at - walk.folded))
    }

    fn read(&self, at: &mut usize) -> Option<Step> {
        let kept = self.read_number(at)?;
        let pair = *self.steps.get(*at)?;
        *at += 1;
        if pair == u8::MAX {
            return Some(Step { kept, source: self.read_number(at)?, folded: self.read_number(at)? });
        }
        Some(Step { kept, source: usize::from(pair >> 4), folded: usize::from(pair & 15) })
    }

    /// Writes a number, seven bits a byte, the low ones first.
    fn number(&mut self, mut value: usize) {
        while value > 127 {
            self.steps.push((value & 127) as u8 | 128);
            value >>= 7;
        }
        self.steps.push((value & 127) as u8);
    }

    fn read_number(&self, at: &mut usize) -> Option<usize> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = *self.steps.get(*at)?;
            *at += 1;
            value |= usize::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
            shift += 7;
        }
    }
}
