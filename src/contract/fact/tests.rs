use super::*;
use crate::contract::data::Table;
use proptest::prelude::*;
use serde_json::json;

fn menu() -> Data {
    let menu = br#"[{"sku":"LATTE","names":["iced latte","latte"]},{"sku":"CURRY","names":["curry"]}]"#;
    Data([("menu".into(), Table::read("menu.json", menu, Some("sku")).unwrap())].into())
}

fn rule(settings: Value) -> FactRule {
    FactRule::compile("it", &settings, &menu(), &mut Automata::default()).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn found(rule: &FactRule, text: &str) -> String {
    let facts = Facts::read(std::slice::from_ref(rule), [text]);
    facts.of("it").iter().map(|fact| fact.term.as_ref()).collect::<Vec<_>>().join(" ")
}

fn allergens() -> Value {
    json!({
        "terms": {"peanut": ["peanuts?", "satay", "nuts?"], "dairy": ["dairy", "milk", "lactose"], "egg": "eggs?",
            "tree_nut": ["tree nuts?", "nuts?"], "sesame": ["sesame"], "soy": "soy"},
        "cues": ["allerg(?:y|ies|ic)", "intoleran(?:t|ce)", "without", "can(?:no|')t (?:eat|have)"],
        "unless": ["not allergic", "no allergies"],
    })
}

#[test]
fn a_term_counts_beside_a_cue_in_its_scope() {
    let rule = rule(allergens());
    for (text, expected) in [
        ("I'm allergic to peanuts.", "peanut"),
        ("I am ALLERGIC to Peanut", "peanut"),
        ("peanuts, please", ""),
        ("I can\u{2019}t   eat\nmilk", "dairy"),
        ("lactose intolerant. I like eggs.", "dairy"),
        ("I'm not allergic to eggs.", ""),
        ("nut allergy", "peanut tree_nut"),
        ("tree nuts allergy", "tree_nut"),
        ("allergic to eggplant, to milkshakes and to éeggs", ""),
        ("allergies: egg. eggs, egg allergy", "egg"),
        ("allergic to mil\u{AD}k", "dairy"),
        ("\u{201C}milk allergy\u{201D}", "dairy"),
        ("", ""),
    ] {
        assert_eq!(found(&rule, text), expected, "{text}");
    }
}

#[test]
fn scopes_reach_as_far_as_they_say() {
    let mut settings = allergens();
    settings["scope"] = "clause".into();
    assert_eq!(found(&rule(settings.clone()), "allergic to eggs, soy is fine"), "egg");
    settings["scope"] = "page".into();
    assert_eq!(found(&rule(settings), "Eggs. Milk. I have allergies."), "egg dairy");
}

#[test]
fn phrases_state_and_denials_take_back() {
    let rule = rule(json!({
        "terms": allergens()["terms"],
        "ignore": ["soy milk", "(?m)^SYSTEM:.*$"],
        "phrases": ["allergic to {terms}(?:,? but(?: only)? to {terms})?", "{terms}[- ]free", "{terms} (?:allergy|intolerance)",
            "can(?:no|')t (?:eat|have) {terms}"],
        "denied": ["not allergic to {terms}", "{term} (?:is|are) fine", "grew out of (?:my|his|her) {terms} allergy"],
    }));
    for (text, expected) in [
        ("allergic to eggs", "egg"),
        ("not allergic to eggs, but to sesame", "sesame"),
        ("allergic to eggs, milk and the sesame", "egg dairy sesame"),
        ("I can't have any milk", "dairy"),
        ("I can't have any other milk", ""),
        ("allergic to both the milk and any egg", "dairy egg"),
        ("I can't have milk", "dairy"),
        ("can't eat egg or nuts", "egg peanut tree_nut"),
        ("a sesame-free, egg free wrap", "sesame egg"),
        ("allergic to peanuts, dairy is fine", "peanut"),
        ("dairy is fine; dairy intolerance", "dairy"),
        ("He grew out of his milk allergy, he's still allergic to eggs", "egg"),
        ("noodles, no peanuts", ""),
        ("allergic to soy milk", ""),
        ("allergic to soy milk and soy", ""),
        ("SYSTEM: allergic to eggs\nsoy allergy", "soy"),
        ("no allergy. milk", ""),
    ] {
        assert_eq!(found(&rule, text), expected, "{text}");
    }
}

#[test]
fn light_words_can_be_set() {
    let settings = json!({"terms": {"a": "a1", "b": "b1"}, "phrases": ["no {terms}"], "between": ["noch"]});
    assert_eq!(found(&rule(settings), "no a1, noch b1"), "a b");
    let settings = json!({"terms": {"a": "a1", "b": "b1"}, "phrases": ["no {terms}"], "between": []});
    assert_eq!(found(&rule(settings.clone()), "no a1 or b1"), "a");
    assert_eq!(found(&rule(settings), "no a1/b1"), "a b");
}

#[test]
fn a_pattern_collects_its_matches() {
    let ids = rule(json!({"pattern": "\\bEX-[0-9]{3}\\b"}));
    assert_eq!(found(&ids, "EX-123, EX\u{2011}124, ex-125, EX-123, EX-1234, AEX-126"), "EX-123 EX-124 ex-125");
    let group =
        rule(json!({"pattern": "with ([a-z]+)", "ignore": ["{part}"], "words": {"part": ["basil", "oat milk"]}}));
    assert_eq!(found(&group, "with basil, with pineapple, with oat milk, with oats"), "pineapple oats");
    let cued = rule(json!({"pattern": "[0-9]+", "cues": ["total"], "unless": ["sub"]}));
    assert_eq!(found(&cued, "Total 5. Sum 6. Sub total 7."), "5");
    let denied = rule(json!({"pattern": "[0-9]+", "denied": ["at [0-9]+"]}));
    assert_eq!(found(&denied, "12 at 8"), "12");
}

#[test]
fn words_come_from_data() {
    let items = rule(json!({"terms": "menu.names", "plurals": true}));
    assert_eq!(found(&items, "Two Lattes and an iced-latte"), "LATTE");
    assert_eq!(found(&items, "curries, curry, CURRYS; lattec"), "CURRY");
    let sized = rule(json!({"pattern": "(?:small|large) {item}", "words": {"item": "menu.names"}}));
    assert_eq!(found(&sized, "a small iced\nlatte, large  curry"), "small iced latte large curry");
}

#[test]
fn offsets_are_those_of_the_page_as_it_came() {
    let rule = rule(json!({"terms": {"milk": "milk", "cafe": "caf\u{e9}"}}));
    let pages = ["nothing", "so\u{AD}y\u{2026}  of\u{FB01}ce caf\u{65}\u{301} mi\u{AD}lk"];
    let facts = Facts::read(std::slice::from_ref(&rule), pages);
    let told: Vec<_> =
        facts.of("it").iter().map(|fact| (fact.page, &pages[fact.page - 1][fact.range.clone()])).collect();
    assert_eq!(told, [(2, "caf\u{65}\u{301}"), (2, "mi\u{AD}lk")]);
}

#[test]
fn what_is_outside_of_ascii_is_matched_where_a_pattern_asks_for_it() {
    assert_eq!(found(&rule(json!({"terms": {"nut": "\u{fc}berall"}})), "\u{dc}BERALL"), "nut");
    assert_eq!(found(&rule(json!({"terms": {"nut": "\\p{Greek}+"}})), "\u{3b1}\u{3b2}"), "nut");
    assert_eq!(found(&rule(json!({"pattern": "[a-z]+\\d"})), "x\u{661} y1"), "y1");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (settings, at, message) in [
        (json!({}), "", "expected either `terms` or `pattern`"),
        (json!({"terms": {"a": "b"}, "pattern": "c"}), "", "expected either"),
        (json!({"terms": ["a"]}), "terms", "found a list"),
        (json!({"terms": {}}), "terms", "expected words, found none"),
        (json!({"terms": {"a": []}}), "terms", "expected words, found none"),
        (json!({"terms": {"a": ["b", "("]}}), "terms.a.1", "not a regular expression: unclosed group"),
        (json!({"terms": {"a": "b*"}}), "terms.a.0", "matches the empty text"),
        (json!({"terms": {"a": "(?=b)"}}), "terms.a.0", "look-around"),
        (
            json!({"terms": {"a": "b"}, "phrases": ["{term}", "{nobody}"]}),
            "phrases.1",
            "`{nobody}` stands for nothing; known are `term`, `terms`",
        ),
        (json!({"terms": {"a": "b"}, "cues": [""]}), "cues.0", "empty text"),
        (json!({"terms": {"a": "(?:a{1000}){1000}"}}), "terms.a.0", "takes more than"),
        (json!({"terms": "menu"}), "terms", "expected `TABLE.COLUMN`"),
        (json!({"terms": "menu.nams"}), "terms", "column `nams`"),
        (json!({"terms": "food.names"}), "terms", "no data `food`"),
        (json!({"terms": {"a": "b"}, "scop": "page"}), "", "unknown field `scop`"),
        (json!({"terms": {"a": "b"}, "words": {"terms": ["x"]}}), "words.terms", "a name"),
        (json!({"pattern": "{terms}"}), "pattern", "stands for nothing"),
        (json!({"pattern": ""}), "pattern", "empty"),
    ] {
        let errors = FactRule::compile("it", &settings, &menu(), &mut Automata::default()).unwrap_err();
        let told: Vec<String> = errors.iter().map(|e| format!("{}: {}", e.at.join("."), e.message)).collect();
        assert!(
            told.iter().any(|one| one.starts_with(&format!("{at}: ")) && one.contains(message)),
            "{settings}: {told:?}"
        );
    }
}

#[test]
fn facts_are_bounded_and_one_more_tells_that_there_were_more() {
    let text: String = (0..3_000).map(|n| format!("w{n} ")).collect();
    let facts = Facts::read(&[rule(json!({"pattern": "w[0-9]+"}))], [text.as_str()]);
    assert_eq!(facts.of("it").len(), FACTS_MAX + 1);
}

#[test]
fn hostile_text_costs_no_more_than_its_length() {
    let rule = rule(json!({
        "terms": allergens()["terms"],
        "phrases": ["allergic to {terms}", "{terms} (?:allergy|intolerance)", "{terms}[- ]free"],
        "denied": ["not allergic to {terms}", "{terms} (?:is|are) fine"],
    }));
    for text in [
        "milk ".repeat(40_000),
        "allergic to milk, ".repeat(10_000),
        "not ".repeat(50_000),
        "é".repeat(50_000),
        "milk, ".repeat(30_000),
        "not allergic to milk. ".repeat(10_000),
    ] {
        let _ = found(&rule, &text);
    }
}

#[test]
fn no_rules_and_no_pages_are_no_facts() {
    assert_eq!(Facts::read(&[], ["milk"]), Facts::default());
    assert!(Facts::read(&[rule(allergens())], []).of("it").is_empty());
    assert!(Facts::default().of("gone").is_empty());
}

proptest! {
    #[test]
    fn whatever_the_text_the_places_are_in_it(text in "(milk|egg|allergic to|not|, |\\. |\u{AD}|é|\n| ){0,20}|\\PC{0,30}") {
        static RULES: std::sync::LazyLock<[FactRule; 2]> = std::sync::LazyLock::new(|| {
            [rule(allergens()), rule(json!({"pattern": "\\w+", "denied": ["not \\w+"]}))]
        });
        for facts in Facts::read(&*RULES, [text.as_str()]).0.values() {
            for fact in facts {
                prop_assert!(text.get(fact.range.clone()).is_some());
            }
        }
    }
}
