//! The name that was probably meant.

/// Says `` ; did you mean `x`? `` where one of `names` is close to `found`, and nothing otherwise.
pub fn did_you_mean<'a>(found: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(found, names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// The name among `names` that `found` most probably stands for.
pub fn nearest<'a>(found: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if found.chars().count() > 64 {
        return None;
    }
    let plain = folded(found);
    let allowed = (plain.chars().count() / 3).max(1);
    let close = names.into_iter().map(|name| (distance(&plain, &folded(name)), name));
    close
        .filter(|(distance, name)| *distance <= allowed && *distance < name.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Letters and digits alone, in lower case: `apiKey`, `api-key` and `api_key` are one name misspelt.
pub fn folded(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Edits (insert, remove, replace, swap of neighbours) that turn `a` into `b`. O(a * b).
pub fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let cell = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
    let mut before = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let replaced = cell(&above, j) + usize::from(x != y);
            let mut best = replaced.min(cell(&above, j + 1) + 1).min(cell(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                best = best.min(cell(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    cell(&above, b.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        assert_eq!(nearest("locl", ["remote", "local"]), Some("local"));
        assert_eq!(nearest("adress", ["address", "admin"]), Some("address"));
        assert_eq!(nearest("apiKey", ["api_key"]), Some("api_key"));
        assert_eq!(nearest("base-url", ["base_url"]), Some("base_url"));
        assert_eq!(nearest("colour", ["cors", "limits"]), None);
        assert_eq!(nearest("x", ["y"]), None);
        assert_eq!(nearest("modle", ["model", "mode"]), Some("model"));
    }
}
