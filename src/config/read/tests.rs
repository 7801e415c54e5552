use serde::Deserialize;

use super::*;
use crate::config::fault::Faults;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Outer {
    number: Option<u8>,
    inner: Option<Inner>,
    list: Vec<Inner>,
    choice: Option<Choice>,
    json: Option<serde_json::Value>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Inner {
    text: Option<String>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Choice {
    Bare,
    One(u8),
    Pair(u8, u8),
    Table { a: u8 },
}

/// Returns the parsed value, and the paths and messages of the errors.
fn read(text: &str) -> (Outer, Vec<String>) {
    let source = Source::new(text);
    let table = DeTable::parse(text).unwrap();
    let root = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
    let mut reader = Reader::new(&source, &root, &|_| None);
    let outer = reader.read();
    let (Faults { all: faults, is_complete: complete, .. }, _) = reader.finish();
    assert!(complete);
    let faults =
        faults.into_iter().map(|fault| format!("{}: {}", DisplayPath(&fault.path), fault.message));
    (outer, faults.collect())
}

fn inner(text: &str) -> Inner {
    Inner { text: Some(text.to_owned()) }
}

#[test]
fn valid_values_are_read_beside_invalid_ones() {
    let (outer, faults) = read(
        r#"
number = 300
inner = { text = "a", texts = "b" }
list = [{ text = "a" }, 1, { text = 2 }, { text = "d" }]
choice = "none"
json = { a = 1979-05-27, b = [1, nan, { c = true }] }
"#,
    );
    let expected = Outer {
        number: None,
        inner: Some(inner("a")),
        list: vec![inner("a"), Inner::default(), inner("d")],
        choice: None,
        json: Some(serde_json::json!({ "b": [1, { "c": true }] })),
    };
    assert_eq!(outer, expected);
    let paths: BTreeSet<_> = faults.iter().filter_map(|f| f.split_once(": ")).collect();
    let paths: Vec<_> = paths.into_iter().map(|(path, _)| path).collect();
    let expected =
        ["choice", "inner.texts", "json.a", "json.b[1]", "list[1]", "list[2].text", "number"];
    assert_eq!(paths, expected, "{faults:#?}");
}

#[test]
fn error_locations_refer_to_the_file() {
    let text = "list = [1, {}, 2, { text = \"a\" }]";
    let source = Source::new(text);
    let table = DeTable::parse(text).unwrap();
    let root = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
    let mut reader = Reader::new(&source, &root, &|_| None);
    assert_eq!(reader.read::<Outer>().list.len(), 2);

    let (path, span) = reader.locate(&["list".into(), 1.into(), "text".into()]);
    assert_eq!(DisplayPath(&path).to_string(), "list[3].text");
    assert_eq!(source.sanitized(&span), "\"a\"");

    // The span of a missing value is the span of its parent.
    let (path, span) = reader.locate(&["list".into(), 0.into(), "text".into(), 5.into()]);
    assert_eq!(DisplayPath(&path).to_string(), "list[1].text[5]");
    assert_eq!(source.sanitized(&span), "{}");
}

#[test]
fn choices_are_words_or_tables_of_one_key() {
    for (text, choice) in [
        ("'bare'", Choice::Bare),
        ("{ one = 1 }", Choice::One(1)),
        ("{ pair = [1, 2] }", Choice::Pair(1, 2)),
        ("{ table = { a = 3 } }", Choice::Table { a: 3 }),
    ] {
        let (outer, faults) = read(&format!("choice = {text}"));
        assert_eq!((outer.choice, faults), (Some(choice), vec![]));
    }
    for (text, fault) in [
        (
            "'baer'",
            "choice: unknown value `baer`: did you mean `bare`? expected one of `bare`, `one`, `pair`, `table`",
        ),
        ("'one'", "choice: `one` needs a value, as in `{ one = … }`"),
        ("{ bare = 1 }", "choice: `bare` has no value: write `\"bare\"`"),
        (
            "{ two = 1 }",
            "choice: unknown value `two`: expected one of `bare`, `one`, `pair`, `table`",
        ),
        ("{}", "choice: expected one of `bare`, `one`, `pair`, `table`, found a table with 0 keys"),
        (
            "{ one = 1, pair = 2 }",
            "choice: expected one of `bare`, `one`, `pair`, `table`, found a table with 2 keys",
        ),
        ("{ one = 'a' }", "choice.one: expected a whole number from zero, found a string"),
        ("{ table = { b = 1 } }", "choice.table.b: unknown key `b`: expected `a`"),
    ] {
        let (outer, faults) = read(&format!("choice = {text}"));
        assert_eq!((outer.choice, faults), (None, vec![fault.to_owned()]), "{text}");
    }
}
