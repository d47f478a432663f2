//! The `member` gate: a value is one of those in the policy's data.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::contract::data::Index;
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
use crate::contract::scene::said;
use crate::json::query::Query;

/// The kind.
pub const KIND: Kind = Kind { name: "member", schema: |generator| Settings::json_schema(generator), build };

/// The value is in the policy's data: a text character for character, a number by its value.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The path of the values.
    path: String,
    /// `TABLE`: the keys of a keyed table, or the items of a list. `TABLE.COLUMN`: the values of a column.
    of: String,
}

#[derive(Debug)]
struct MemberGate {
    path: Query,
    of: String,
    index: Index,
    presence: Presence,
}

fn build(settings: &Value, build: &Build<'_>) -> Result<Box<dyn Gate>, Vec<BuildError>> {
    let Settings { path, of } = written::settings(settings)?;
    let path = written::path(&Value::String(path), "path");
    let index = build.contract.data.index(&of).map_err(|message| BuildError::at("of", message));
    match (path, index) {
        (Ok(path), Ok(index)) => Ok(Box::new(MemberGate { path, of, index, presence: build.presence })),
        (path, index) => Err(path.err().into_iter().chain(index.err()).collect()),
    }
}

impl Gate for MemberGate {
    fn check(&self, _: &Scene<'_>, found: &mut Findings<'_>) {
        for node in found.nodes(&self.path, self.presence) {
            if self.index.has(node.value) {
                continue;
            }
            found.say(At::Place(node.place), || {
                let told = said(node.value).map_or_else(|| format!("an {}", kind_of(node.value)), |text| quoted(&text));
                format!("expected one of the {} values of `{}`, found {told}", self.index.len(), self.of)
            });
        }
    }

    fn paths(&self) -> Vec<&Query> {
        vec![&self.path]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::gate::trial::Trial;
    use crate::contract::gate::trial::table;

    fn trial() -> Trial {
        Trial::default()
            .with_table("menu", r#"[{"sku":"A","sizes":["s","l"],"n":1.50},{"sku":"Ä","sizes":"m"}]"#, Some("sku"))
            .with_table("codes", r#"["x",7,true,""]"#, None)
    }

    #[test]
    fn a_value_is_in_the_data() {
        let (menu, sizes, codes) = (
            r#"{"path": "$.v", "of": "menu"}"#,
            r#"{"path": "$.v", "of": "menu.sizes"}"#,
            r#"{"path": "$.v", "of": "codes"}"#,
        );
        table(
            trial,
            &KIND,
            &[
                (menu, r#"{"v":"A"}"#, ""),
                (menu, r#"{"v":"Ä"}"#, ""),
                (menu, r#"{"v":"A\u0308"}"#, "found"),
                (menu, r#"{"v":"a"}"#, "$['v']: expected one of the 2 values of `menu`, found `a`"),
                (menu, r#"{"v":""}"#, "found ``"),
                (menu, r#"{"v":null}"#, "found null"),
                (menu, r#"{}"#, "missing"),
                (menu, r#"{"v":["A"]}"#, "found an array"),
                (menu, r#"{"v":{}}"#, "found an object"),
                (sizes, r#"{"v":"m"}"#, ""),
                (sizes, r#"{"v":"l"}"#, ""),
                (sizes, r#"{"v":"xl"}"#, "3 values of `menu.sizes`"),
                (codes, r#"{"v":7.0}"#, ""),
                (codes, r#"{"v":"7"}"#, ""),
                (codes, r#"{"v":true}"#, ""),
                (codes, r#"{"v":""}"#, ""),
                (codes, r#"{"v":7.1}"#, "found `7.1`"),
                (r#"{"path": "$.v", "of": "menu.n"}"#, r#"{"v":1.5}"#, ""),
                (
                    r#"{"path": "$.i[*].s[*]", "of": "menu.sizes"}"#,
                    r#"{"i":[{"s":["s","x"]},{"s":[]}]}"#,
                    "$['i'][0]['s'][1]",
                ),
                (r#"{"path": "$.i[*]", "of": "menu"}"#, r#"{"i":[]}"#, ""),
            ],
        );
        assert!(trial().optional().judged(&KIND, menu, r#"{"v":null}"#).is_empty());
        assert!(trial().with_evidence().judged(&KIND, menu, r#"{"v":{"value":"A"}}"#).is_empty());
    }

    #[test]
    fn settings_are_checked() {
        for (settings, expected) in [
            (r#"{"path": "$.v", "of": "food"}"#, "of: the policy has no data `food`; it has `codes`, `menu`"),
            (r#"{"path": "$.v", "of": "menu.size"}"#, "of: no row of `menu` has a column `size`"),
            (r#"{"path": "v", "of": "menu"}"#, "path: `v` is not"),
            (r#"{"path": "$.v"}"#, "missing field `of`"),
        ] {
            let told = trial().refused(&KIND, settings);
            assert!(told.iter().any(|one| one.contains(expected)), "{settings}: {told:?}");
        }
    }
}
