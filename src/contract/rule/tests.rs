use super::*;
use crate::json::tape::Tape;
use crate::json::tree;

fn known() -> Known {
    Known::new(["allergens"], ["menu", "parts"]).with_this()
}

fn evaluated(rule: &str, output: &str) -> Result<Value, RuleFault> {
    let tape = Tape::of(output).unwrap();
    let data = r#"{"menu":{"PIZ":{"sizes":["S","M"],"price":9.5},"COLA":{"sizes":["S"],"price":2}},"parts":[]}"#;
    let bindings = Bindings::new()
        .with(Variable::Output, RuleValue::from_place(tape.root()))
        .with(Variable::This, RuleValue::from_place(tape.root()))
        .with(Variable::Source, RuleValue::from_list(["page one", "page two"].map(RuleValue::from_text)))
        .with(Variable::Facts, parsed(r#"{"allergens":["nuts"]}"#))
        .with(Variable::Data, parsed(data));
    Rule::compile(rule, &known()).map_err(|error| RuleFault::Error(error.to_string()))?.eval(&bindings)
}

fn parsed(text: &str) -> RuleValue<'static> {
    RuleValue::from_json(&tree::parse(text).unwrap())
}

fn text(rule: &str, output: &str) -> String {
    match evaluated(rule, output) {
        Ok(value) => value.to_string(),
        Err(fault) => fault.to_string(),
    }
}

fn refused(rule: &str) -> RuleError {
    Rule::compile(rule, &Known::new(["allergens"], ["menu"])).unwrap_err()
}

fn holds(rule: &str, output: &str) {
    assert_eq!(text(rule, output), "true", "{rule} on {output}");
}

#[test]
fn numbers_are_exact() {
    for (rule, output) in [
        ("output.a + output.b == output.c", r#"{"a":0.1,"b":0.2,"c":0.3}"#),
        ("0.1 + 0.2 == 0.3", "{}"),
        ("this.total == this.net + this.tax", r#"{"total":119.00,"net":100,"tax":19.0}"#),
        ("output.a + 1 == output.b", r#"{"a":99999999999999999999,"b":100000000000000000000}"#),
        ("output.a != output.b", r#"{"a":9007199254740993,"b":9007199254740992.0}"#),
        ("9223372036854775807 + 1 == decimal('9223372036854775808')", "{}"),
        ("-9223372036854775807 - 2 < -9223372036854775807", "{}"),
        ("9223372036854775807 * 9223372036854775807 > 0", "{}"),
        ("1 == 1.0 && 1.0 == 1 && 1u == 1 && !(1 == 1.000000000000000000001)", "{}"),
        ("0.10000000000000000000000001 != 0.1", "{}"),
        ("7 / 2 == 3.5 && 8 / 2 == 4 && 1 / 8 == 0.125 && -7 % 2 == -1 && 5.5 % 2 == 1.5", "{}"),
        ("[1, 2.50] == [1.0, 2.5] && {'a': 1} == {'a': 1.0} && 2 in [2.0] && !('2' in [2])", "{}"),
        ("output.l[1.0] == 2 && output.l[output.n] == 1", r#"{"l":[1,2],"n":0}"#),
        ("output == {'a': [1.0, {'b': null}]}", r#"{"a":[1,{"b":null}]}"#),
        ("-output.a == -1.50 && -(-9223372036854775807 - 1) > 0", r#"{"a":1.5}"#),
        ("output.a == 1E2 && output.a == 100", r#"{"a":1e+2}"#),
        ("decimal('1.10') == 1.1 && decimal(output.s) * 3 == 3.3 && decimal(2) == 2", r#"{"s":"1.10"}"#),
        ("int(3.99) == 3 && int(-3.99) == -3 && int('42') == 42 && string(1.50) == '1.50' && string(7) == '7'", "{}"),
        ("abs(-2.5) == 2.5 && abs(output.a - 3) <= 0.01", r#"{"a":2.99}"#),
        (
            "output.l.sum() == 0.3 && output.l.min() == 0.1 && output.l.max() == 0.2 && [].sum() == 0",
            r#"{"l":[0.2,0.1]}"#,
        ),
        (".5 + 1e-1 == 0.6", "{}"),
    ] {
        holds(rule, output);
    }
    assert_eq!(text("output.a * 1", r#"{"a":12.340}"#), "12.340");
    assert_eq!(text("1 / 3", "{}"), "a quotient that has no exact decimal");
    assert_eq!(text("1 / 0", "{}"), "a division by zero");
    assert_eq!(text("1 % 0", "{}"), "a division by zero");
    let long = format!("{{\"a\":{}}}", "1".repeat(1001));
    for rule in ["output.a == 1", "output.a in [1]", "output.a > 1", "[1].exists(x, x == output.a)", "-output.a"] {
        assert!(text(rule, &long).contains("more digits than are calculated with"), "{rule}");
    }
    assert!(refused("1 == decimal('1_0')").message.contains("not a number"));
}

#[test]
fn the_rules_of_policies_run() {
    let order =
        r#"{"status":"accepted","items":[{"sku":"PIZ","size":"M","a":["x"]},{"sku":"COLA","size":"S","a":[]}]}"#;
    for rule in [
        "(output.status == 'accepted') == (size(output.items) > 0)",
        "output.items.all(i, i.sku in data.menu && i.size in data.menu[i.sku].sizes)",
        "output.items.exists_one(i, i.sku == 'PIZ') && !output.items.exists(i, i.size == 'L')",
        "output.items.map(i, data.menu[i.sku].price).sum() == 11.5",
        "output.items.filter(i, size(i.a) > 0).map(i, i.sku) == ['PIZ']",
        "output.items.map(i, i.size == 'M', i.sku) == ['PIZ']",
        "has(output.status) && !has(output.note) && has(output.items[0].sku)",
        "output.status == 'accepted' ? size(output.items) == 2 : false",
        "('nuts' in facts.allergens) && facts['allergens'][0] == 'nuts'",
        "source.exists(p, p.contains('two')) && size(source) == 2",
        "output.items.all(output, output.sku in data.menu)",
        // The deepest of the pages on policies; no part of this order is looked up.
        "output.items.all(this, (this.a.filter(p, !(p in ['x'])) + []).all(p, !data.parts[p].allergens.exists(a, a in facts.allergens || a in output.constraints.allergens)))",
        "data.menu.all(sku, size(sku) > 2) && data.menu.map(k, k) == ['PIZ', 'COLA']",
    ] {
        holds(rule, order);
    }
}

#[test]
fn text_and_lists_have_their_functions() {
    for rule in [
        "'Straße ÄÖ'.lower() == 'straße äö' && '  a '.trim() == 'a' && size('äö🚀') == 3 && 'äö'.size() == 2",
        "'a,b,,c'.split(',') == ['a', 'b', '', 'c']",
        "\"It's 5 o'clock, JOE!\".words() == [\"it's\", '5', \"o'clock\", 'joe']",
        "'abc'.contains('b') && 'abc'.startsWith('a') && 'abc'.endsWith('c') && !'abc'.contains('x')",
        "'EX-123'.matches('^EX-[0-9]{3}$') && matches('x', 'x') && 'é'.matches('^\\\\w$')",
        "'a1b22'.find('[0-9]+') == ['1', '22'] && 'k=v, l=w'.find('([a-z])=') == ['k', 'l']",
        "'a1b2'.replace('([0-9])', '<$1>') == 'a<1>b<2>'",
        "[1, 1.0, 2, 'a', 'a', [1], [1.0], null, null].distinct() == [1, 2, 'a', [1], null]",
        "[3, 1, 2.5].sorted() == [1, 2.5, 3] && ['b', 'a'].sorted() == ['a', 'b'] && [].sorted() == []",
        "['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'",
        "[1, 2.0].indexOf(2) == 1 && ['a'].indexOf('b') == -1",
        "'a' + 'b' == 'ab' && [1] + ['a'] == [1, 'a'] && 'a' < 'b' && false < true",
        "'a'.matches('^' + 'a' + '$')",
        "true || output.missing && !(false && output.missing)",
        "!output.l.all(x, x.a > 0) && output.l.exists(x, x.a < 0)",
        "output.t == 'x\"y' && 'x\"y' in [output.t] && output.t.trim() == output.t",
    ] {
        holds(rule, r#"{"l":[{},{"a":-1}],"t":"x\"y"}"#);
    }
}

#[test]
fn what_goes_wrong_is_said() {
    for (rule, told) in [
        ("output.x == 1", "no member `x`"),
        ("output['x']", "no member `x`"),
        ("output.l[3] == 1", "no element 3: the array has 1"),
        ("output.l['a']", "an array is indexed by a whole number, found a string"),
        ("output.l.a", "an array is indexed by a whole number, found a string"),
        ("output[0]", "members are named by strings, found a number"),
        ("output.n.a", "no members or elements in int and string"),
        ("output.n.all(x, true)", "expected an array or an object to go through, found a number"),
        ("'a' + 1", "`+` cannot join a string and a number"),
        ("-'a'", "`-` cannot stand before a string"),
        ("'a' < 1", "a string and a number have no order"),
        ("null < null", "null and null have no order"),
        ("1 in 'abc'", "`in` looks into an array or an object, found a string"),
        ("1 in output", "members are named by strings, found a number"),
        ("size(1)", "`size` is for strings, arrays and objects, found a number"),
        ("output.n.lower()", "`lower` is for strings, found a number"),
        ("[].min()", "`min` of an empty array"),
        ("[1, 'a'].sorted()", "a number and a string have no order"),
        ("[1, 'a'].sum()", "`sum` is for arrays of numbers, found a string in one"),
        ("[1].join()", "`join` is for arrays of strings, found a number in one"),
        ("int('1.5')", "`1.5` is no whole number"),
        ("decimal(output.t)", "`x` is not a number as JSON writes it"),
        ("'a'.split('')", "`split` at an empty separator"),
        ("'a'.matches('[' + 'a')", "the pattern cannot be read: unclosed character class"),
        ("output.n && true", "`&&` cannot be applied to int and bool"),
        ("output.n ? 1 : 2", "expected bool, found int"),
        ("!output.n", "`!` cannot be applied to int"),
        ("{'a': 1, 'a': 2}", "a member that stands twice"),
        ("{1: 2}", "members are named by strings, found a number"),
        ("usage.input_tokens > 1", "`usage` has no value here"),
        ("output.l.all(x, x.y)", "no members or elements in int and string"),
    ] {
        assert_eq!(text(rule, r#"{"l":[1],"n":1,"t":"x"}"#), told, "{rule}");
    }
    let rule = Rule::compile("size(output)", &known()).unwrap();
    let bindings = Bindings::new().with(Variable::Output, parsed("[]"));
    assert_eq!(rule.holds(&bindings).unwrap_err().to_string(), "expected true or false, found a number");
}

#[test]
fn names_are_checked_at_load() {
    for (rule, told) in [
        (
            "outputs.a",
            "unknown variable `outputs`; did you mean `output`?; known: `output`, `source`, `facts`, `data`, `request`, `usage`\n  | outputs.a\n  | ^",
        ),
        (
            "this.a",
            "unknown variable `this`; known: `output`, `source`, `facts`, `data`, `request`, `usage`\n  | this.a\n  | ^",
        ),
        ("1 in facts.alergens", "unknown member of `facts` `alergens`; did you mean `allergens`?; known: `allergens`"),
        ("has(facts.x)", "unknown member of `facts` `x`; known: `allergens`"),
        ("data['menus']", "unknown member of `data` `menus`; did you mean `menu`?; known: `menu`"),
        (
            "request.teem",
            "unknown member of `request` `teem`; did you mean `team`?; known: `model`, `team`, `user`, `time`",
        ),
        ("usage.tokens", "unknown member of `usage` `tokens`"),
        ("output.a.lowercase()", "unknown function `lowercase`"),
        ("lenght(output)", "unknown function `lenght`"),
        ("timestamp('x')", "unknown function `timestamp`"),
        ("lower(output.a)", "`lower` is called as `.lower()`, found `lower()`"),
        ("output.a.replace('a')", "`replace` takes 2 arguments, found 1"),
        ("size()", "`size` takes 1 arguments, found 0"),
        (
            "output.l.map(i, j.x)",
            "unknown variable `j`; known: `output`, `source`, `facts`, `data`, `request`, `usage`, `i`",
        ),
        ("output.a.matches('[')", "the pattern cannot be read: unclosed character class"),
        ("output.a.matches('(?=a)')", "the pattern cannot be read: look-around"),
        ("output.a.find('\\\\w{1,1000}{1,1000}')", "the pattern is too large"),
        ("output.a ==", "mismatched input"),
        ("output.a = 1", "token recognition error"),
        ("b'x' == output", "bytes, which rules do not know"),
        ("Foo{a: 1}", "`Foo{}` makes a message"),
        ("output.?a", "unsupported syntax"),
        ("", "mismatched input"),
        ("1 == 1e500", "invalid double literal"),
        ("1 == 1e-420", "a number that is too long"),
        ("99999999999999999999 == 1", "invalid int literal"),
    ] {
        let found = refused(rule).to_string();
        assert!(found.starts_with(told), "{rule}:\n{found}");
    }
    let error = refused("output.a == 'é🚀' &&\n  output.b == outpud");
    assert_eq!((error.line, error.column), (2, 15));
    assert!(error.to_string().ends_with("\n  |   output.b == outpud\n  |               ^"), "{error}");
    assert_eq!(refused("'é🚀' == x").column, 9);
    assert_eq!(refused("'é🚀' = x").column, 6);
    assert_eq!(refused("true &&\n 'é🚀' == 1.5.5").line, 2);
    assert_eq!(refused("1 == 1e500").column, 6);
    assert_eq!(refused(&format!("true || {}", "true||".repeat(700))).message, "a rule of 4208 bytes; at most 4096");
}

#[test]
fn deep_rows_are_refused_and_never_overflow() {
    for (unit, open, close) in [
        ("1+", "", "1 == 1"),
        ("!", "", "true"),
        ("-", "", "1 == 1"),
        (".a", "output", ""),
        ("[0]", "output", ""),
        ("true && ", "", "true"),
        ("true ? true : ", "", "true"),
        (".trim()", "'a'", ""),
        ("(", "", "1"),
        ("[", "", "1"),
        ("- ", "", "1"),
        ("{'a':", "", "1"),
        (".map(x, x)", "[1]", ""),
        ("size(", "", "1"),
        ("output.all(x,", "", "true"),
    ] {
        let count = (4000 - open.len() - close.len()) / unit.len();
        let rule = format!("{open}{}{close}", unit.repeat(count));
        let _ = Rule::compile(&rule, &known()).map(|rule| rule.holds(&Bindings::new()));
    }
    // What may nest must also run, on the stack of a worker.
    for (open, middle, close, count) in [
        ("(1 + ", "1", ")", 31),
        ("[", "1", "]", 10),
        ("[0].map(x, ", "1", ")", 6),
        ("1 + ", "1", "", 31),
        ("(true && ", "true", ")", 31),
        ("size([", "1", "])", 7),
        ("[1].all(x, ", "true", ")", 14),
    ] {
        let rule = format!("{}{middle}{}", open.repeat(count), close.repeat(count));
        assert!(evaluated(&rule, "{}").is_ok(), "{rule}: {:?}", evaluated(&rule, "{}"));
        let deeper = format!("{}{middle}{}", open.repeat(count + 8), close.repeat(count + 8));
        assert_eq!(Rule::compile(&deeper, &known()).unwrap_err().message, "it nests deeper than 32 levels", "{deeper}");
    }
}

#[test]
fn no_rule_works_without_end() {
    let hundred = format!("[{}]", vec!["\"aa\""; 100].join(","));
    let nested = "output.all(a, output.all(b, output.all(c, output.all(d, a + b + c + d != ''))))";
    let absorbed = format!("true || {nested} || output.exists(x, {nested} || true)");
    let first = format!("({nested}) || true");
    let doubled = |link: &str, links: usize| format!("['x']{}", link.repeat(links));
    for (rule, limited) in [
        (nested.to_owned(), true),
        (absorbed, false), // `true ||` is true without a look at the rest
        (first, true),
        (format!("!({nested}) || true"), true),
        (format!("output.exists(x, ({nested}) || true)"), true),
        (format!("({nested}) ? true : true"), true),
        (doubled(".map(x, x + x + x + x + x + x + x + x)", 7), true),
        (format!("size({}) == 1", doubled(".map(x, [x, x, x, x, x, x, x, x])", 7)), false), // shared, never copied
        (format!("{0} == {0}", doubled(".map(x, [x, x, x, x, x, x, x, x])", 7)), true),
        (doubled(".map(x, [x, x, x, x, x, x, x, x])", 7), true),
        (doubled(".map(x, {'a': x, 'b': x, 'c': x, 'd': x, 'e': x, 'f': x, 'g': x, 'h': x})", 7), true),
        (format!("size({}) == 1", doubled(".map(x, [0, 0, 0, 0, 0, 0, 0, 0].map(y, x))", 7)), false),
        (format!("[output]{}", ".map(x, x + x + x + x + x + x + x + x)".repeat(5)), true),
        (doubled(".map(x, x.replace('x', 'xxxxxxxxxxxxxxxxxxxxxxxx'))", 7), true),
        (doubled(".map(x, [x, x, x, x, x, x, x, x, x, x, x, x].join('x'))", 7), true),
        ("output.all(a, output.all(b, a.matches('^(' + b + ')$')))".to_owned(), true),
    ] {
        let found = evaluated(&rule, &hundred);
        assert_eq!(found == Err(RuleFault::WorkLimit), limited, "{rule}: {:?}", found.map(|_| ()));
    }
}

#[test]
fn long_texts_are_searched_in_bounded_steps() {
    let long = format!("\"{}\"", "ab".repeat(512 << 10));
    assert_eq!(text("output.matches('^(a|b)*c$')", &long), "false");
    assert_eq!(text("size(output) == 1048576", &long), "true");
    for rule in [
        "output.find('a')",
        "size(output.find('.*c|[ab]')) > 0",
        "output.replace('a', 'b') == ''",
        "output.lower() + output.lower() + output.lower() + output.lower() + output.lower() + output.lower() == ''",
        "size(output.split('a')) > 0",
        "[0,1,2,3,4,5,6,7,8,9].all(x, [0,1,2,3,4,5,6,7,8,9].all(y, output.matches('c') || size(output) > 0))",
    ] {
        assert_eq!(text(rule, &long), RuleFault::WorkLimit.to_string(), "{rule}");
    }
}

#[test]
fn work_is_counted_over_all_rules_of_one_binding() {
    let bindings = Bindings::new().with(Variable::Output, parsed("[1,2,3]"));
    let rule = Rule::compile("output.all(x, x > 0)", &known()).unwrap();
    assert_eq!(rule.holds(&bindings), Ok(true));
    let once = STEPS_MAX - bindings.steps();
    assert!((10..100).contains(&once), "{once}");
    assert_eq!(rule.holds(&bindings), Ok(true));
    assert_eq!(STEPS_MAX - bindings.steps(), 2 * once);
}

proptest::proptest! {
    /// Rules come from files: whatever stands in them, reading and running them ends in words.
    #[test]
    fn no_rule_panics(rule in r#"([a-z. ()\[\]{}'",:?!&|<>=+*/%-]|output|\.all\(x, |0\.5|in|é){0,24}"#) {
        let _ = evaluated(&rule, r#"{"a":[1,"b"]}"#);
    }

    /// Sums and differences of amounts go by their digits.
    #[test]
    fn sums_of_cents_are_exact(a in -100_000_i64..100_000, b in -100_000_i64..100_000) {
        let cents = |amount: i64| format!("{}{}.{:02}", if amount < 0 { "-" } else { "" }, amount.abs() / 100, amount.abs() % 100);
        let output = format!("{{\"a\":{},\"b\":{},\"c\":{}}}", cents(a), cents(b), cents(a + b));
        holds("output.a + output.b == output.c && output.c - output.a == output.b", &output);
    }
}

/// Going through text costs more steps the longer the pattern is: it may hold the more states.
#[test]
fn a_long_pattern_weighs_more() {
    let weight = |length: usize| functions::pattern(&"a".repeat(length)).unwrap().weight;
    assert_eq!([0, 63, 64, 130, 6_400].map(weight), [1, 1, 2, 3, 101]);
}
