//! Tests of limits: values at a limit are accepted, and values just beyond it are rejected.

use super::{
    budget::{MAX_ELEMENTS, MAX_MADE_BYTES},
    *,
};

const TOO_MUCH_TEXT: &str = "has more than 1048576 bytes";
const TOO_MUCH_MEMORY: &str = "intermediate values take more than 16777216 bytes";
const TOO_MANY_STEPS: &str = "the evaluation takes more than 2000000 steps";
const TOO_MANY_ELEMENTS: &str = "a list has more than 100000 elements";

fn repeated(text: &str, count: usize) -> Value {
    text.repeat(count).into()
}

/// Returns a list expression that contains `expression` `count` times.
fn list_of(expression: &str, count: usize) -> String {
    format!("[{}]", vec![expression; count].join(", "))
}

/// Returns data whose values are exactly at the limits.
fn data() -> Value {
    json!({ "input": {
        "full": repeated("x", MAX_RENDERED_BYTES),
        "fours": repeated("abcd", MAX_RENDERED_BYTES / 4),
        "commas": repeated(",", MAX_ELEMENTS - 1),
        "letters": repeated("x", MAX_ELEMENTS - 2),
        "lines": repeated("\n", 1 << 16),
        "most": vec![0; MAX_ELEMENTS],
        "more": vec![0; MAX_ELEMENTS + 1],
        "lists": [vec![0; MAX_ELEMENTS]],
        "members": (0..MAX_ELEMENTS).map(|n| (n.to_string(), json!(0))).collect::<serde_json::Map<_, _>>(),
        "object": { "k".repeat(1_000): "x".repeat(1 << 19) },
    } })
}

/// Evaluates each case with the same data, and compares its result.
fn assert_all<'c>(data: Value, cases: impl IntoIterator<Item = (String, Result<Value, &'c str>)>) {
    let data = Everything(data);
    for (written, expected) in cases {
        let template = Template::parse(&written, &NAMES).unwrap();
        let excerpt: String = written.chars().take(60).collect();
        match (template.evaluate(&data).map_err(|error| error.to_string()), expected) {
            (Ok(found), Ok(expected)) => assert!(found == expected, "{excerpt}"),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{excerpt}: {found}"),
            (found, expected) => panic!("{excerpt}: {:?} and not {expected:?}", found.map(drop)),
        }
    }
}

#[test]
fn text_is_accepted_up_to_the_length_limit() {
    let full = repeated("x", MAX_RENDERED_BYTES);
    let length = || Ok(json!(MAX_RENDERED_BYTES));
    let cases = [
        ("{{ input.full }}{{ '' }}", Ok(full)),
        ("x{{ input.full }}", Err(TOO_MUCH_TEXT)),
        ("{{ input.full|length }}", length()),
        ("{{ input.full|upper|length }}", length()),
        ("{{ input.full|replace('x', 'y')|length }}", length()),
        ("{{ input.fours|replace('abcd', 'efgh')|length }}", length()),
        ("{{ input.full|replace('x', 'yy')|length }}", Err(TOO_MUCH_TEXT)),
        // The string has two lines of four bytes, and the second line is indented.
        ("{{ 'ab\nb'|indent(524286)|length }}", Ok(json!(524_290))),
        ("{{ 'ab\nb'|indent(524287)|length }}", Err(TOO_MUCH_TEXT)),
    ];
    assert_all(data(), cases.map(|(written, expected)| (written.to_owned(), expected)));
}

#[test]
fn list_is_accepted_up_to_the_element_limit() {
    let length = || Ok(json!(MAX_ELEMENTS));
    let cases = [
        ("input.most|reverse|length", length()),
        ("input.more|reverse|length", Err(TOO_MANY_ELEMENTS)),
        // These filters read few of the elements, or return all of them unchanged.
        ("input.more|length", Ok(json!(MAX_ELEMENTS + 1))),
        ("input.more|count", Ok(json!(MAX_ELEMENTS + 1))),
        ("input.more|default([])|length", Ok(json!(MAX_ELEMENTS + 1))),
        ("input.more|first", Ok(json!(0))),
        ("input.members|keys|length", length()),
        ("input.commas|split(',')|length", length()),
        ("input.letters|split('')|length", length()),
        ("[1]|batch(100000)|length", Ok(json!(1))),
        ("[1]|batch(100001)|length", Err("`batch` needs a size up to 100000")),
    ];
    let cases = cases.map(|(written, expected)| (format!("{{{{ {written} }}}}"), expected));
    assert_all(data(), cases);
}

#[test]
fn values_created_by_filters_count_toward_the_memory_limit() {
    let of = |expression: &str, count: usize, fits: bool| {
        let expected = if fits { Ok(json!(count)) } else { Err(TOO_MUCH_MEMORY) };
        (format!("{{{{ {}|length }}}}", list_of(expression, count)), expected)
    };
    let cases = [
        // Strings from the data are not copied.
        of("input.full", 100, true),
        // A string that a filter creates takes memory.
        of("input.full|upper", 15, true),
        of("input.full|upper", 17, false),
        // A single string is created, and nothing else.
        of("input.full|default('x')", 15, true),
        // A list of substrings takes memory.
        of("input.commas|split(',')", 4, true),
        of("input.commas|split(',')", 6, false),
        of("input.full|split(',')", 5, true),
        // A list of keys takes memory, like a list of substrings.
        of("input.members|keys", 5, true),
        of("input.members|keys", 6, false),
        // A part of the data is not copied.
        of("input.lists|first", 9, true),
    ];
    assert_all(data(), cases);
    // A value is counted when it is created, and not each time it is used.
    let reversed = |count| format!("{{{{ {}|length }}}}", list_of("input.most|reverse", count));
    assert_all(data(), [(reversed(3), Ok(json!(3))), (reversed(8), Err(TOO_MUCH_MEMORY))]);
}

#[test]
fn values_copied_from_the_data_count_toward_the_memory_limit() {
    let object = data()["input"]["object"].clone();
    let of = |count: usize| format!("{{{{ {} }}}}", list_of("input.object", count));
    let cases = [
        (of(1), Ok(json!([object]))),
        (of(31), Ok(json!(vec![object; 31]))),
        (of(33), Err(TOO_MUCH_MEMORY)),
    ];
    assert_all(data(), cases);
}

#[test]
fn dropped_parts_of_the_data_do_not_count_as_memory() {
    let key = "k".repeat(300);
    let rows = vec![json!({ &*key: [0] }); 50_000];
    let data = json!({ "input": { "rows": rows } });
    let turn = "{% for row in input.rows %}{{ '' }}{% endfor %}";
    let parts = format!("{{{{ input.rows[:1000]|map(attribute='{key}')|list|length }}}}");
    let cases = [(turn.repeat(4), Ok(json!(""))), (parts, Ok(json!(1_000)))];
    assert_all(data, cases);
}

/// Returns a template that evaluates an expression `count` times.
fn each(count: usize, expression: &str) -> String {
    format!("{{% for n in range({count}) %}}{{{{ '' if {expression} }}}}{{% endfor %}}")
}

#[test]
fn evaluation_steps_count_by_the_size_of_the_expression() {
    // The list takes a little more than 200 steps.
    let list = list_of("1", 100);
    // The expression consists of forty signs and one number.
    let signs = format!("{}1", "-".repeat(40));
    let cases = [
        (each(7_000, &list), Ok(json!(""))),
        (each(10_000, &list), Err(TOO_MANY_STEPS)),
        (each(15_000, &signs), Ok(json!(""))),
        (each(28_000, &signs), Err(TOO_MANY_STEPS)),
    ];
    assert_all(json!({}), cases);
}

#[test]
fn comparison_steps_count_by_the_number_and_size_of_values() {
    let row = |n: usize| std::iter::once(n).chain(std::iter::repeat_n(0, 38)).collect::<Value>();
    let data = json!({ "input": {
        "plain": (0..40_000).collect::<Vec<_>>(),
        "wide": (0..8_192).map(row).collect::<Value>(),
        "texts": (0..6_000).map(|n| format!("{n:0>100}")).collect::<Value>(),
    } });
    let before = each(4_000, &list_of("1", 100));
    let cases = [
        ("{{ input.plain|sort|length }}".to_owned(), Ok(json!(40_000))),
        ("{{ input.texts|sort|length }}".to_owned(), Ok(json!(6_000))),
        ("{{ input.wide|sort|length }}".to_owned(), Ok(json!(8_192))),
        (format!("{before}{{{{ input.wide|length }}}}"), Ok(json!("8192"))),
        (format!("{before}{{{{ input.wide|sort|length }}}}"), Err(TOO_MANY_STEPS)),
    ];
    assert_all(data, cases);
}

#[test]
fn reading_text_counts_steps_by_its_length() {
    let often = |expression: &str| {
        let body = format!("{{{{ '' if {expression} }}}}");
        let turns = format!("{{% for n in range(9999) %}}{body}{{% endfor %}}");
        format!("{{% for x in [input.full] %}}{turns}{{% endfor %}}")
    };
    let reads = [
        "x is empty",
        "x == x",
        "x < x",
        "'y' in x",
        "x in 'y'",
        "x|length",
        "'y'|replace(old=x, new='')",
        "[x]|map('length')",
        "[x] == [x]",
    ];
    let cases = reads.map(|read| (often(read), Err(TOO_MANY_STEPS)));
    assert_all(data(), cases);
    assert_all(data(), [(often("n"), Ok(json!("")))]);
}

#[test]
fn text_over_the_limit_is_not_allocated() {
    let data = Everything(data());
    for written in [
        format!("{{{{ input.full|replace('x', '{}') }}}}", "y".repeat(100)),
        "{{ input.lines|indent(1000) }}".to_owned(),
    ] {
        let template = Template::parse(&written, &NAMES).unwrap();
        let measured = allocation_counter::measure(|| drop(template.evaluate(&data)));
        assert!(measured.bytes_max < MAX_MADE_BYTES as u64, "{measured:?}: {written}");
    }
}

#[test]
fn template_is_accepted_up_to_the_length_and_depth_limits() {
    let long = |bytes: usize| format!("{{{{ 1 }}}}{}", " ".repeat(bytes - 7));
    let brackets = |count: usize| format!("{{{{ {}1{} }}}}", "(".repeat(count), ")".repeat(count));
    let chain = |count: usize| format!("{{{{ 1{} }}}}", " ~ 1".repeat(count));
    let ifs = |count: usize| {
        format!("{}{{{{ 1 }}}}{}", "{% if true %}".repeat(count), "{% endif %}".repeat(count))
    };
    let beside = |count: usize| "{% if true %}{{ 1 }}{% endif %}".repeat(count);
    for (text, expected) in [
        (long(MAX_TEMPLATE_BYTES), None),
        (long(MAX_TEMPLATE_BYTES + 1), Some("more than 65536 bytes")),
        (brackets(49), None),
        (brackets(50), Some("this is nested too deeply: at most 50 levels")),
        (chain(49), None),
        (chain(50), Some("this is nested too deeply: at most 50 levels")),
        (ifs(20), None),
        (ifs(21), Some("statements are nested too deeply")),
        (beside(1_000), None),
    ] {
        let error = Template::parse(&text, &NAMES).err().map(|error| error.to_string());
        let reason =
            error.as_deref().map(|error| error.rsplit(" of the template: ").next().unwrap());
        assert_eq!(reason, expected, "{} bytes", text.len());
    }
}

#[test]
fn values_are_nested_up_to_a_limit() {
    let deeper = |loops: usize| {
        let begin = |at: usize| {
            format!("{{% for a{} in [{}a{at}{}] %}}", at + 1, "[".repeat(40), "]".repeat(40))
        };
        let begin: String = (0..loops).map(begin).collect();
        let end = "{% endfor %}".repeat(loops);
        move |expression: &str| {
            format!("{{% for a0 in [1] %}}{begin}{{{{ {expression} }}}}{end}{{% endfor %}}")
        }
    };
    for expression in ["a4 == a4", "a4|tojson|length", "[a4, a4]|sort|length"] {
        let shallow = Template::parse(&deeper(4)(expression), &NAMES).unwrap();
        assert!(shallow.evaluate(&Everything(data())).is_ok(), "{expression}");
        let deep = expression.replace("a4", "a18");
        let deep = Template::parse(&deeper(18)(&deep), &NAMES).unwrap();
        let error = deep.evaluate(&Everything(data())).unwrap_err().to_string();
        assert!(error.contains("nested more than 200 levels deep"), "{expression}: {error}");
    }
    let maps = "'map', ".repeat(2_000);
    let maps = Template::parse(&format!("{{{{ [[[1]]]|map({maps}'length') }}}}"), &NAMES).unwrap();
    assert!(maps.evaluate(&Everything(data())).is_err());
}
