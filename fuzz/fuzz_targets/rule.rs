//! Any rule and any template: each is refused, or ends within its bound, whatever the answer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis::contract::rule::{Bindings, Known, Rule, RuleValue, Variable};
use portcullis::contract::template::{Names, Template, TemplateContext, TemplateValue};
use portcullis::json::tape::Tape;

const OUTPUT: &str = r#"{"a":1,"b":"text","c":[1,2.50,{"d":null}],"e":{"f":true,"g":12345678901234567890.5}}"#;

fuzz_target!(|text: &str| {
    let tape = Tape::of(OUTPUT).expect("the answer is JSON");
    let known = Known::new(Vec::<String>::new(), Vec::<String>::new());
    if let Ok(rule) = Rule::compile(text, &known) {
        let bindings = || Bindings::new().with(Variable::Output, RuleValue::from_place(tape.root()));
        let (one, two) = (bindings(), bindings());
        assert_eq!(format!("{:?}", rule.eval(&one)), format!("{:?}", rule.eval(&two)), "the same twice");
    }
    if let Ok(template) = Template::compile(text, &Names::new(["output"])) {
        let output = TemplateValue::from_json(&serde_json::from_str(OUTPUT).expect("the answer is JSON"));
        if let Ok(said) = template.render(&TemplateContext::new().with("output", output)) {
            assert!(said.len() <= 1 << 16, "what a template says is bounded");
        }
    }
});
