use super::*;
use crate::json::tree;

fn names() -> Names {
    let names = Names::new(["value", "path", "this", "output", "questions", "gates"]);
    names.with_members("facts", ["allergens"]).with_members("data", ["menu"])
}

fn context() -> TemplateContext {
    let read = |text: &str| TemplateValue::from_json(&tree::parse(text).unwrap());
    TemplateContext::new()
        .with("value", read("12.50"))
        .with("path", TemplateValue::from_text("$.items[0]"))
        .with("this", read(r#"{"size":"M","sku":"<PIZ>","n":3}"#))
        .with("output", read(r#"{"z":{"b":1,"a":[1.10,1e+400,12345678901234567890123]},"list":[1,2.0,null,true,"x"]}"#))
        .with("facts", read(r#"{"allergens":["nuts","dairy"]}"#))
        .with("data", read(r#"{"menu":{"PIZ":{"name":"Pizza"}}}"#))
        .with("questions", read(r#"["A?","B?"]"#))
        .with("gates", read(r#"["on-menu"]"#))
}

fn rendered(source: &str) -> Result<String, TemplateFault> {
    Template::compile(source, &names()).unwrap().render(&context())
}

fn answered(object: &str) -> Result<String, TemplateFault> {
    let object = ResponseObject::compile(&tree::parse(object).unwrap(), &names()).unwrap();
    object.render(&context()).map(|value| value.to_string())
}

#[test]
fn templates_say_what_they_should() {
    for (source, text) in [
        ("We have no {{ this.size }} {{ this.sku }}.", "We have no M <PIZ>."),
        ("{{ facts.allergens | join(', ') }}?", "nuts, dairy?"),
        (
            "{{ value }} {{ output.z.a[0] }} {{ output.z.a[2] }} {{ path }}",
            "12.50 1.10 12345678901234567890123 $.items[0]",
        ),
        ("{% for a in facts.allergens %}[{{ loop.index }} {{ a }}]{% endfor %}", "[1 nuts][2 dairy]"),
        ("{% for a in data.menu['PIZ'].name | list %}{{ a }}{% endfor %}", "Pizza"),
        ("{% if this.n > 2 %}many{% else %}few{% endif %} {{ this.n * 2 }}", "many 6"),
        ("{{ data.menu['PIZ'].name }} {{ output.nothing is defined }}", "Pizza False"),
        ("{% for i in range(3) %}{{ i }}{% endfor %}{{ [1, 2.0, true, 'x', value] | join }}", "01212.0Truex12.50"),
        ("{{ output.z | length }} {{ 'b' in output.z }} {{ this | items | length }}", "2 True 3"),
        ("{{ this.size | lower }} {{ 'ÄÖ' }}", "m ÄÖ"),
    ] {
        assert_eq!(rendered(source), Ok(text.to_owned()), "{source}");
    }
}

#[test]
fn errors_are_found_at_load_where_they_can_be() {
    for (source, told) in [
        (
            "{{ outputs.x }}",
            "unknown variable `outputs`; did you mean `output`?; known: `data`, `facts`, `gates`, `output`, `path`, `questions`, `this`, `value`",
        ),
        ("{{ facts.alergens }}", "unknown member of `facts` `alergens`; did you mean `allergens`?; known: `allergens`"),
        ("a\n{{ value", "line 2: unexpected end of input, expected end of variable block"),
        ("{% for x in %}", "line 1: "),
        ("{% include 'x' %}", "`include` is no statement of templates; known: `for`"),
        ("{% macro x() %}{% endmacro %}", "`macro x()` is no statement of templates"),
        ("{%- set x = 1 %}", "`- set x = 1` is no statement of templates"),
        ("{% for a in value recursive %}{% endfor %}", "`for a in value recursive` is no statement of templates"),
        ("{% for a in [value, value] %}{% endfor %}", "a loop goes through a list that is there"),
        ("{{ '~ ok' }}{{ value ~ value }}", "`~`, which templates do not have"),
        ("{{ '\\'' ~ value }}", "`~`, which templates do not have"),
    ] {
        let found = Template::compile(source, &names()).unwrap_err().to_string();
        assert!(found.starts_with(told), "{source}: {found}");
    }
    assert!(Template::compile(&"x".repeat(SOURCE_MAX + 1), &names()).is_err());
    for (object, told) in [
        (r#"{"a":[{"b":"{{ x }}"}]}"#, "at `a.0.b`: unknown variable `x`"),
        (r#"{"a":{"$value":"x.y"}}"#, "at `a`: unknown variable `x`"),
        (r#"{"a":{"$value":"facts.x"}}"#, "at `a`: unknown member of `facts` `x`"),
        (r#"{"a":{"$value":"1 +"}}"#, "at `a`: line 1: "),
        (r#"{"a":{"$value":1}}"#, "at `a`: `$value` holds an expression and stands alone in its object"),
        (r#"{"a":{"$value":"1","b":2}}"#, "at `a`: `$value` holds an expression and stands alone in its object"),
    ] {
        let found = ResponseObject::compile(&tree::parse(object).unwrap(), &names()).unwrap_err().to_string();
        assert!(found.starts_with(told), "{object}: {found}");
    }
}

#[test]
fn what_has_no_value_is_a_fault() {
    for source in [
        "{{ output.nothing }}",
        "{{ output.nothing.more }}",
        "{{ facts.allergens[7] }}",
        "{{ value | nofilter }}",
        "{{ value * 2 }}",
        "{{ value + 1 }}",
        "{{ output }}",
        "{{ facts.allergens }}",
        "{{ [[1]] | join }}",
        "{{ value | tojson }}",
        "{% for x in value %}{% endfor %}",
        "{{ nofunction() if this.n > 5 else output.no }}",
    ] {
        let found = Template::compile(source, &names()).map_err(|error| TemplateFault::Error(error.to_string()));
        let found = found.and_then(|template| template.render(&context()));
        assert!(matches!(found, Err(TemplateFault::Error(_))), "{source}: {found:?}");
    }
}

#[test]
fn response_objects_keep_numbers_and_order() {
    let object = r#"{"status":"no {{ this.size }}","z":[],"a":{"$value":"output.z"},"l":{"$value":"output.list"},"q":null,
        "n":1.50,"g":[{"$value":"gates"},true],"t":{"$value":"output.z.a[0]"},"c":{"$value":"facts.allergens | length + 1"}}"#;
    let answer = concat!(
        r#"{"status":"no M","z":[],"a":{"b":1,"a":[1.10,1e+400,12345678901234567890123]},"l":[1,2.0,null,true,"x"],"q":null,"#,
        r#""n":1.50,"g":[["on-menu"],true],"t":1.10,"c":3}"#,
    );
    assert_eq!(answered(object).unwrap(), answer);
    assert!(answered(r#"{"$value":"output.nothing"}"#).is_err());
    assert!(answered(r#"{"$value":"1 / 0"}"#).is_err());
}

#[test]
fn no_template_works_without_end() {
    let nest = |count: usize| format!("{}{}", "{% for a in range(100) %}".repeat(count), "{% endfor %}".repeat(count));
    let wide = format!("[{}x]", "x,".repeat(400));
    let within = |then: &str, last: &str, times: usize| {
        let (open, close) = (format!("{{% for x in {then} %}}"), "{% endfor %}".repeat(times));
        format!("{{% for x in output.list %}}{}{last}{close}", open.repeat(times - 1))
    };
    for source in [
        nest(4),
        nest(300),
        "{% for a in range(10**9) %}x{% endfor %}".to_owned(),
        "{{ range(10**9) | list | length }}".to_owned(),
        "{{ range(99999) | join('xxxxxxxxxxxxxxx') }}".to_owned(),
        "{{ 'x' * 10**9 }}".to_owned(),
        "{{ ('x' * 99999999) | length }}".to_owned(),
        "{{ ['x'] * 99999999 }}".to_owned(),
        "{{ 'x' * 20000 }}".to_owned(),
        within("x + x", "{{ x | length }}", 24),
        within("x + x + x + x + x + x", "{{ x | list | length }}", 4),
        within("x + x + x + x + x + x", "{{ x | join | length }}", 4),
        within("x + x + x + x + x + x", "{{ x | sort | first }}", 4),
        within("x + x + x + x + x + x", "{{ x | unique | list | length }}", 4),
        within("x + x + x + x + x + x", "{% for y in x %}{% endfor %}", 3),
        within("x + x + x + x + x + x", "{{ 2 in x }}", 4),
        within(&wide, "{{ x }}", 4),
        within(&wide, "{{ x == x }}", 4),
        within(&wide, "{{ x | first == x | last }}", 4),
        within(&wide, "{{ [x, x] | unique | list | length }}", 4),
        within(&wide, "{{ [x, x] | sort | length }}", 4),
        within("(x, x)", "{{ x in 'abc' }}", 4),
        within("{'a': x} | items", "{{ x in 'abc' }}", 4),
        within("dict(a=dict(a=x, b=x)) | items", "{{ x in 'abc' }}", 4),
        within("range(100)", "{{ output.z in 'abc' }}", 4),
        format!("{{{{ {} in 'abc' }}}}", wide.replace('x', "data")),
        within(&wide, "{{ [x, x] | join | length }}", 4),
        within(&wide, "{{ x | replace('1', '2') }}", 4),
        within(&wide, "{{ x | upper }}", 4),
        within(&wide, "{{ x in [x, [x]] }}", 4),
        within(&wide, "{{ x in 'abc' }}", 4),
        within(&wide, "{{ 'abc' | replace(x, 'a') }}", 4),
        within(&wide, "{{ {'a': x}[x] }}", 4),
        within(&wide, "{{ x | map('upper') | list | length }}", 4),
        within(&wide, "{{ x | default('a') | length }}", 4),
        within(&wide, "{{ (x | attr(x)) is defined }}", 4),
        within(&wide, "{{ 'abc' | join(x) }}", 4),
        within(&wide, "{{ x < [x] }}", 4),
        within(&wide, "{{ range(x) }}", 4),
        within(&wide, "{{ {x: 1} | length }}", 4),
        within(&wide, "{{ [x, x] | max | length }}", 4),
        within(&wide, "{{ [{'a': x}] | map(attribute='a') | first | length }}", 4),
        "{% for a in [[[[1]]]] recursive %}{{ loop([a, a]) }}{% endfor %}".to_owned(),
        format!("{{{{ {}1{} }}}}", "(".repeat(3000), ")".repeat(3000)),
        format!("{{{{ {}1 }}}}", "1+".repeat(5000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(4000)),
        format!("{{{{ 'x'{} }}}}", "|replace('x','xxxxxxxxxx')".repeat(40)),
    ] {
        let shown: String = source.chars().take(100).collect();
        let found = Template::compile(&source, &names()).map(|template| template.render(&context()));
        let ended = match &found {
            Ok(Ok(text)) => text.len() <= 16,
            Ok(Err(_)) | Err(_) => true,
        };
        assert!(ended, "{shown}: {found:?}");
    }
    for expression in ["range(10**9)", "'x' * 300000", "['x' * 10000] * 1000", "range(99999)"] {
        let object = tree::parse(&format!(r#"{{"a":{{"$value":"{expression}"}}}}"#)).unwrap();
        let found = ResponseObject::compile(&object, &names()).unwrap().render(&context());
        assert!(found.is_err(), "{expression}: {found:?}");
    }
}
