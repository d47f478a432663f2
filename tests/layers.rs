//! The floor plan of `src/lib.rs` is held: a room imports only from floors declared above its own in that file, a
//! stage names only stages declared above it, and below the exchange nothing waits, reads a file or asks the time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};

/// What no room below `exchange` may name.
const RIM: [&str; 7] = ["tokio", "hyper", "rustls", "std::fs", "std::env", "Instant::now", "SystemTime::now"];

#[test]
fn every_import_is_downward() {
    let (rooms, stages) = (plan("src/lib.rs"), plan("src/stage/mod.rs"));
    let mut wrong = Vec::new();
    for file in files(Path::new("src")).into_iter().filter(|file| !file.ends_with("tests.rs")) {
        let names: Vec<_> = file.iter().skip(1).map(|name| name.to_str().unwrap().trim_end_matches(".rs")).collect();
        let Some(own) = floor(&rooms, names[0]) else { continue }; // `lib.rs` and `main.rs`
        for line in code(&fs::read_to_string(&file).unwrap()) {
            let rim = own < floor(&rooms, "exchange").unwrap() && RIM.iter().any(|name| line.contains(name));
            let upward = line.split("crate::").skip(1).any(|path| {
                let named: Vec<_> = path.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
                match (named[0] == names[0], names.get(1).and_then(|stage| floor(&stages, stage))) {
                    (true, Some(own)) if names[0] == "stage" => {
                        names[1] != named[2] && floor(&stages, named[2]).is_none_or(|other| other >= own)
                    }
                    (inside, _) => !inside && floor(&rooms, named[0]).is_none_or(|other| other >= own),
                }
            });
            if rim || upward {
                wrong.push(format!("{}: {}", file.display(), line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "not downward:\n{}", wrong.join("\n"));
}

/// The modules that a file declares, floor by floor: an empty line stands between two floors.
fn plan(file: &str) -> Vec<Vec<String>> {
    let module = |line: &str| Some(line.strip_prefix("pub mod ")?.split_once(';')?.0.to_owned());
    let text = fs::read_to_string(file).unwrap();
    text.split("\n\n").map(|floor| floor.lines().filter_map(module).collect()).collect()
}

fn floor(floors: &[Vec<String>], name: &str) -> Option<usize> {
    floors.iter().position(|floor| floor.iter().any(|module| module == name))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .collect()
}

/// The lines of a file without comments and without what is compiled for tests alone. It trusts rustfmt: an item ends
/// with `;` on its line, or where a line is the item's own indentation and a brace.
fn code(text: &str) -> Vec<&str> {
    let mut lines = text.lines();
    let mut code = Vec::new();
    while let Some(line) = lines.next() {
        let bare = line.split("//").next().unwrap_or_default();
        if bare.trim() == "#[cfg(test)]" {
            let end = line.replace("#[cfg(test)]", "}");
            let item = lines.next().is_some_and(|item| !item.ends_with(';'));
            let _ = item && lines.any(|line| line == end);
        } else {
            code.push(bare);
        }
    }
    code
}
