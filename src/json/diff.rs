//! Where two JSON values differ.

use serde_json::Value;

use super::compare;
use super::path::Path;

/// Paths that are listed.
const LISTED_MAX: usize = 100;

/// The paths at which `new` differs from `old`, at most a hundred: of values that changed or are gone in the order of `old`,
/// then of those that are new. A list whose length changed differs as a whole.
pub fn changed(old: &Value, new: &Value) -> Vec<Path> {
    let mut paths = Vec::new();
    walk(old, new, &Path::root(), &mut paths);
    paths
}

/// As deep as the parser lets values be.
fn walk(old: &Value, new: &Value, at: &Path, paths: &mut Vec<Path>) {
    if paths.len() >= LISTED_MAX {
        return;
    }
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in old {
                let at = at.clone().key(key);
                match new.get(key) {
                    Some(other) => walk(value, other, &at, paths),
                    None => paths.push(at),
                }
            }
            paths.extend(new.keys().filter(|key| !old.contains_key(*key)).map(|key| at.clone().key(key)));
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                walk(old, new, &at.clone().index(index), paths);
            }
        }
        (old, new) if compare::equal(old, new) => {}
        _ => paths.push(at.clone()),
    }
    paths.truncate(LISTED_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_changed_is_named_where_it_changed() {
        let old = json!({"a": [1, {"x": 1.0}], "b": "s", "gone": 1, "list": [1]});
        let new: Value = serde_json::from_str(r#"{"a":[1,{"x":2}],"b":"s","new":1,"list":[1,2]}"#).unwrap();
        let told: Vec<String> = changed(&old, &new).iter().map(Path::to_string).collect();
        assert_eq!(told, ["$['a'][1]['x']", "$['gone']", "$['list']", "$['new']"]);
        assert!(changed(&json!({"a": 1}), &serde_json::from_str(r#"{"a":1.0}"#).unwrap()).is_empty());
    }
}
