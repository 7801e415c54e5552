//! Spans of a file that are never displayed.
//!
//! The line of a mistake is displayed, but the values of `env` and `headers` are secret, and so are
//! the defaults of arguments, the keys of states and the URL of `[redis]`. If the file parses,
//! their spans are known. Otherwise everything that may be secret is hidden. An unknown key may be
//! a misplaced secret, unless it is a plain word. In the sections that hold no secrets, the value
//! of a key that the [schema](super::json_schema) does not define there is hidden, since it may be
//! a line of another section, and so is every `default`.

use std::{collections::HashSet, ops::Range, sync::LazyLock};

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::{
    json_schema::{SCHEMA, free_members, schemas_of_key},
    node::Node,
    source::apart,
    word::{is_word, is_word_character},
};
use crate::composite::Segment;

/// The sections that hold no secrets.
const OPEN_SECTIONS: [&str; 13] = [
    "advertise",
    "bound",
    "budget",
    "caller",
    "composite_tools",
    "filter",
    "include",
    "limits",
    "progress",
    "redactions",
    "results",
    "router",
    "validate",
];

/// The keys of a backend that hold no secrets if they have a single value.
const OPEN_KEYS: [&str; 8] =
    ["name", "transport", "timeout", "connect_timeout", "elicitation", "prefix", "command", "cwd"];

/// The keys of a backend that hold no secrets, with one or several values.
const OPEN_LISTS: [&str; 10] = [
    "expose_tools",
    "hide_tools",
    "expose_prompts",
    "hide_prompts",
    "expose_resources",
    "hide_resources",
    "expose_resource_templates",
    "hide_resource_templates",
    "read_only_only",
    "hide_destructive",
];

/// The tables that may hold secrets, and their nested tables.
const VALIDATE: &str = "validate";
const ALIASES: &str = "aliases";
const STATE: &str = "state";
const KEYS: &str = "keys";
const REDIS: &str = "redis";
const ANNOTATIONS: &str = "annotations";
const ARGUMENTS: &str = "arguments";

/// The keys of these tables that hold no secrets if they have a single value. Keys after such a
/// table may have been meant for the backend, so any other key may hold a secret.
const VALIDATE_KEYS: [&str; 3] = ["max_argument_bytes", "max_depth", "schema"];
const ALIAS_KEYS: [&str; 9] =
    ["tool", "from", "prompt", "resource", "name", "to", "uri", "title", "description"];
const ANNOTATION_KEYS: [&str; 5] =
    ["title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];
const ARGUMENT_KEYS: [&str; 3] = ["hide", "rename", "description"];

const STATE_KEYS: [&str; 5] =
    ["store", "ttl", "max_state_bytes", "max_total_bytes", "max_caller_bytes"];
const REDIS_KEYS: [&str; 2] = ["prefix", "timeout"];

/// The key of an argument's default.
const DEFAULT: &str = "default";

/// The keys that hold secrets in any section, since the header of their table may be lost.
const SECRET_KEYS: [&str; 6] = ["args", "env", "headers", "key", KEYS, "url"];

/// Spans of a file that are not displayed.
type Masks = Vec<Range<usize>>;

/// Returns the spans that are not displayed, sorted and disjoint.
///
/// If the parser reported `errors`, the structure of the file is unknown.
pub(super) fn masks(text: &str, root: &DeTable<'_>, errors: bool) -> Vec<Range<usize>> {
    let mut masks = Vec::new();
    sections(root, &mut masks);
    if errors {
        lines(text, &mut masks);
    }
    apart(masks)
}

/// Masks keys that may be secret: the `unknown` last key, and keys of a backend that are not plain
/// words.
pub(super) fn masked_path(path: &[Segment], unknown: bool) -> Vec<Segment> {
    let is_secret = |key: &str| SECRET_KEYS.contains(&key);
    let is_open = match path.first() {
        Some(Segment::Key(section)) => OPEN_SECTIONS.contains(&section.as_str()),
        _ => false,
    } && !path.iter().any(|part| matches!(part, Segment::Key(key) if is_secret(key)));
    let masked = path.iter().enumerate().map(|(place, segment)| match segment {
        Segment::Key(key) if !is_word(key) && (!is_open || unknown && place + 1 == path.len()) => {
            Segment::Key("…".to_owned())
        }
        segment => segment.clone(),
    });
    masked.collect()
}

// === Parsed files ===

fn sections(root: &DeTable<'_>, masks: &mut Vec<Range<usize>>) {
    for (key, node) in root {
        match key.get_ref().as_ref() {
            "backends" => tables(node, masks, &mut |key, node, masks| match key {
                ALIASES => aliases(node, masks),
                VALIDATE => others(&VALIDATE_KEYS, node, masks),
                key if OPEN_LISTS.contains(&key) => (),
                // Arguments in the same text as the command may be secret.
                "command" if has_several_words(node) => values(node, masks),
                // This includes a command in an array with its arguments.
                key => other(&OPEN_KEYS, key, node, masks),
            }),
            ALIASES => aliases(node, masks),
            STATE => tables(node, masks, &mut |key, node, masks| match key {
                // Includes the `id`: a missing quote can make a key part of it.
                KEYS => values(node, masks),
                key => other(&STATE_KEYS, key, node, masks),
            }),
            REDIS => others(&REDIS_KEYS, node, masks),
            section if OPEN_SECTIONS.contains(&section) => {
                unknown_values(node, &schemas_of_key(&[&SCHEMA], section), masks);
            }
            _ => values(node, masks),
        }
    }
}

/// Hides the values of keys that are in none of the `schemas`, and of keys that hold secrets in
/// another section, at any depth.
fn unknown_values(node: &Node<'_>, schemas: &[&'static Value], masks: &mut Masks) {
    match node.get_ref() {
        DeValue::Table(table) => {
            for (key, node) in table {
                let name = key.get_ref().as_ref();
                let schemas = schemas_of_key(schemas, name);
                if schemas.is_empty() || is_secret(name) {
                    if !is_word(name) {
                        masks.push(key.span());
                    }
                    values(node, masks);
                } else {
                    unknown_values(node, &schemas, masks);
                }
            }
        }
        DeValue::Array(array) => {
            array.iter().for_each(|node| unknown_values(node, schemas, masks));
        }
        _ => (),
    }
}

/// Returns `true` if a key holds a secret in any section.
fn is_secret(key: &str) -> bool {
    SECRET_KEYS.contains(&key) || key == DEFAULT
}

/// Returns `true` if the value at `path` may be secret because of a key in the path.
pub(super) fn is_masked(path: &[Segment]) -> bool {
    path.iter().any(|part| matches!(part, Segment::Key(key) if is_secret(key)))
}

fn has_several_words(node: &Node<'_>) -> bool {
    node.get_ref().as_str().is_some_and(|text| text.trim().contains(char::is_whitespace))
}

fn aliases(node: &Node<'_>, masks: &mut Vec<Range<usize>>) {
    tables(node, masks, &mut |key, node, masks| match key {
        ANNOTATIONS => others(&ANNOTATION_KEYS, node, masks),
        ARGUMENTS => match node.get_ref() {
            DeValue::Table(arguments) => {
                for (name, node) in arguments {
                    if !is_word(name.get_ref()) {
                        masks.push(name.span());
                    }
                    others(&ARGUMENT_KEYS, node, masks);
                }
            }
            _ => values(node, masks),
        },
        key => other(&ALIAS_KEYS, key, node, masks),
    });
}

/// Hides the values of keys not in `open`, in a table or an array of tables.
fn others(open: &[&str], node: &Node<'_>, masks: &mut Vec<Range<usize>>) {
    tables(node, masks, &mut |key, node, masks| other(open, key, node, masks));
}

/// Hides the value of a key not in `open`.
fn other(open: &[&str], key: &str, node: &Node<'_>, masks: &mut Vec<Range<usize>>) {
    // An array or a table is not expected for a key with a single value.
    if !open.contains(&key) || matches!(node.get_ref(), DeValue::Array(_) | DeValue::Table(_)) {
        values(node, masks);
    }
}

/// Calls `hide` for each key of a table or an array of tables.
fn tables(
    node: &Node<'_>,
    masks: &mut Vec<Range<usize>>,
    hide: &mut impl FnMut(&str, &Node<'_>, &mut Masks),
) {
    match node.get_ref() {
        DeValue::Table(table) => {
            for (key, node) in table {
                hide(key.get_ref(), node, masks);
            }
        }
        DeValue::Array(array) => {
            for node in array.iter() {
                tables(node, masks, hide);
            }
        }
        _ => hide("", node, masks),
    }
}

/// Hides all values nested in a value.
pub(super) fn values(node: &Node<'_>, masks: &mut Vec<Range<usize>>) {
    match node.get_ref() {
        DeValue::Table(table) => {
            for (key, node) in table {
                // A key such as `"TOKEN=secret"` may contain a value.
                if !is_word(key.get_ref()) {
                    masks.push(key.span());
                }
                values(node, masks);
            }
        }
        DeValue::Array(array) => {
            for node in array.iter() {
                values(node, masks);
            }
        }
        _ => masks.push(node.span()),
    }
}

// === Unparsed files ===

/// The keys of the sections that hold no secrets, at any depth.
static KNOWN: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    let mut known = HashSet::from(OPEN_SECTIONS);
    let sections = OPEN_SECTIONS.iter().flat_map(|section| schemas_of_key(&[&SCHEMA], section));
    let mut waiting: Vec<&'static Value> = sections.collect();
    while let Some(schema) = waiting.pop() {
        for key in schema["properties"].as_object().into_iter().flat_map(|members| members.keys()) {
            // A table may contain itself.
            if known.insert(key) {
                waiting.extend(schemas_of_key(&[schema], key));
            }
        }
        waiting.extend(free_members(schema).filter(|schema| schema.is_object()));
    }
    known.retain(|key| !is_secret(key));
    known
});

/// Hides everything after each key, except in sections that hold no secrets.
fn lines(text: &str, masks: &mut Vec<Range<usize>>) {
    let mut open = false;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let shown = match header(line) {
            Some((section, end)) => {
                let mut keys = words(&line[..end]);
                open = OPEN_SECTIONS.contains(&section) && keys.all(|key| KNOWN.contains(key));
                end
            }
            None if open && !is_suspicious(line) => line.len(),
            None => {
                open = false;
                key(line)
            }
        };
        let hidden = &line[shown..];
        let from = start + shown + (hidden.len() - hidden.trim_start().len());
        let to = start + line.trim_end().len();
        if from < to {
            masks.push(from..to);
        }
        start += line.len();
    }
}

/// Returns the section that a line begins, and the end of the header.
fn header(line: &str) -> Option<(&str, usize)> {
    let trimmed = line.trim_start();
    let inner = trimmed.strip_prefix('[')?;
    let is_part = |c: char| is_word_character(c) || matches!(c, '.' | '[' | ']' | ' ' | '\t');
    let end = inner.find(|c| !is_part(c)).unwrap_or(inner.len());
    if !matches!(inner[end..].chars().next(), None | Some('#' | '\r' | '\n')) {
        return None;
    }
    let name = inner.trim_start_matches(['[', ' ', '\t']);
    let name = &name[..name.find(|c| !is_word_character(c)).unwrap_or(name.len())];
    Some((name, line.len() - inner.len() + end))
}

/// Returns the end of a line's key, after the `=`; zero if it seems to have none.
fn key(line: &str) -> usize {
    let Some((key, value)) = line.split_once('=') else { return 0 };
    let end = key.len() + 1;
    let spaced = key.ends_with([' ', '\t']);
    let value = value.trim();
    // Padded base64 looks like a key.
    let is_padding = value.is_empty()
        || value.starts_with(['=', ',', ')', ']', '}'])
        || value.starts_with("\"\"\"")
        || value.starts_with("'''");
    if key.trim().split('.').all(is_word) && !value.starts_with('=') && (spaced || !is_padding) {
        end
    } else {
        0
    }
}

/// Returns `true` if a line of an open section, and the lines after it, may belong to another
/// section.
fn is_suspicious(line: &str) -> bool {
    let names_secret = words(line).any(|word| is_secret(&word.to_ascii_lowercase()));
    names_secret
        || line.trim_start().starts_with('[')
        || line.contains("[[")
        || line.to_ascii_lowercase().contains("backend")
        || !keys_are_known(line)
}

/// Returns `true` if all keys that are assigned in a line belong to open sections.
fn keys_are_known(line: &str) -> bool {
    let bare = without_texts(line);
    let mut parts: Vec<_> = bare.split('=').collect();
    // The part after the last `=` is not a key.
    parts.pop();
    parts.iter().all(|part| {
        let key = part.rsplit([',', '{', '[']).next().unwrap_or_default();
        !key.trim().is_empty() && key.split('.').all(|key| KNOWN.contains(key.trim()))
    })
}

/// Removes the contents of quotes from a line, if they are surely closed; a quoted text then
/// becomes an unknown key.
fn without_texts(line: &str) -> String {
    let mut bare = String::new();
    let mut quote = None;
    for character in line.chars() {
        match (quote, character) {
            (None, '"' | '\'') => {
                quote = Some(character);
                bare.push(character);
            }
            (Some(open), character) if open == character => quote = None,
            (Some('"'), '\\') => return line.to_owned(),
            (Some(_), _) => (),
            (None, character) => bare.push(character),
        }
    }
    if quote.is_none() { bare } else { line.to_owned() }
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !is_word_character(c)).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text as displayed.
    fn shown(text: &str) -> String {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut shown = String::new();
        let mut end = 0;
        for mask in masks(text, table.get_ref(), !errors.is_empty()) {
            shown.push_str(&text[end..mask.start]);
            shown.push_str("***");
            end = mask.end;
        }
        shown + &text[end..]
    }

    #[test]
    fn values_are_hidden_however_they_are_written() {
        for (text, seen) in [
            (
                "[[backends]]\nname = 'a'\ncommand = ['s']\nargs = ['b', 1]\nenv = { T = 's', \"U=s\" = 's' }",
                "[[backends]]\nname = 'a'\ncommand = [***]\nargs = [***, ***]\nenv = { T = ***, *** = *** }",
            ),
            (
                "[[backends]]\n[backends.env]\nT = 's' # t",
                "[[backends]]\n[backends.env]\nT = *** # t",
            ),
            (
                "[[backends]]\nenv.T = 's'\nheaders.U = 1",
                "[[backends]]\nenv.T = ***\nheaders.U = ***",
            ),
            ("[[backends]]\nenv.T = '''\ns\ns'''\nname = 1", "[[backends]]\nenv.T = ***\nname = 1"),
            ("backends = [{ url = 's', name = 'a' }]", "backends = [{ url = ***, name = 'a' }]"),
            ("[backends]\nenv = 's'\ntokn = ['s']", "[backends]\nenv = ***\ntokn = [***]"),
            ("[backend]\nname = 'a'\nenv = 's'", "[backend]\nname = ***\nenv = ***"),
            ("backends = 's'", "backends = ***"),
            (
                "[[composite_tools]]\nname = 'a'\nenv.T = 's'",
                "[[composite_tools]]\nname = 'a'\nenv.T = ***",
            ),
            ("[router]\nseparator = '/'", "[router]\nseparator = '/'"),
            // Keys meant for a section whose header was lost, at any depth.
            (
                "[router]\ntokn = 's'\nseparator = { tokn = 's' }",
                "[router]\ntokn = ***\nseparator = { tokn = *** }",
            ),
            (
                "[[composite_tools]]\n[[composite_tools.steps]]\nid = 'a'\ntokn = 's'\narguments = { k = { default = 's' }, a = 'b' }",
                "[[composite_tools]]\n[[composite_tools.steps]]\nid = 'a'\ntokn = ***\narguments = { k = { default = *** }, a = 'b' }",
            ),
            (
                "[[composite_tools]]\nparameters = { type = 'object', properties = { a = { type = 'string', default = 's' } } }",
                "[[composite_tools]]\nparameters = { type = 'object', properties = { a = { type = 'string', default = *** } } }",
            ),
            (
                "[[budget.limits]]\nname = 'a'\nrefill = { every = '1s', env = { T = 's' } }",
                "[[budget.limits]]\nname = 'a'\nrefill = { every = '1s', env = { T = *** } }",
            ),
            (
                "[[backends]]\nhide_tools = ['a']\n[[backends.aliases]]\ntool = 'a'\narguments.k.default = 's'",
                "[[backends]]\nhide_tools = ['a']\n[[backends.aliases]]\ntool = 'a'\narguments.k.default = ***",
            ),
            (
                "[[aliases]]\ntool = 'a'\narguments = { k = { default = 's' } }",
                "[[aliases]]\ntool = 'a'\narguments = { k = { default = *** } }",
            ),
            (
                "[[aliases]]\nfrom = 'a'\nargument.k.default = 's'\ndefault = 's'\nto = ['s']",
                "[[aliases]]\nfrom = 'a'\nargument.k.default = ***\ndefault = ***\nto = [***]",
            ),
            (
                "[aliases.arguments]\nj = 's'\n\"K=s\" = { hide = 1, rename = 2, default = { a = 's' }, description = ['s'] }",
                "[aliases.arguments]\nj = ***\n*** = { hide = 1, rename = 2, default = { a = *** }, description = [***] }",
            ),
            // Keys meant for the previous table.
            (
                "[[backends]]\n[backends.validate]\nschema = 'a'\ntoken = 's'\nenv = { T = 's' }",
                "[[backends]]\n[backends.validate]\nschema = 'a'\ntoken = ***\nenv = { T = *** }",
            ),
            (
                "[[aliases]]\n[aliases.annotations]\nreadOnlyHint = 1\nenv.T = 's'\narguments.k.default = 's'",
                "[[aliases]]\n[aliases.annotations]\nreadOnlyHint = 1\nenv.T = ***\narguments.k.default = ***",
            ),
            (
                "[filter]\nhide_tools = ['a']\narguments.k.default = 's'\ndefault = 's'",
                "[filter]\nhide_tools = ['a']\narguments.k.default = ***\ndefault = ***",
            ),
            ("[filter]\nhide_tools = ['a']", "[filter]\nhide_tools = ['a']"),
            (
                "[state]\nstore = 'signed'\nkeys = [{ id = 'a', key = 's', ky = 's' }]\nkey = 's'",
                "[state]\nstore = 'signed'\nkeys = [{ id = ***, key = ***, ky = *** }]\nkey = ***",
            ),
            (
                "[[state.keys]]\nid = ['s']\nkey.a = 's'\n[state]\nttl = ['s']",
                "[[state.keys]]\nid = [***]\nkey.a = ***\n[state]\nttl = [***]",
            ),
            ("[state]\nkeys = ['s', 1]", "[state]\nkeys = [***, ***]"),
            (
                "[redis]\nurl = 's'\nprefix = 'a'\npassword = 's'",
                "[redis]\nurl = ***\nprefix = 'a'\npassword = ***",
            ),
            (
                "[[budget.limits]]\nname = 'a'\n[[redactions]]\nremove = ['/a']\nurl = 's'",
                "[[budget.limits]]\nname = 'a'\n[[redactions]]\nremove = ['/a']\nurl = ***",
            ),
            (
                "[limits]\nmax_calls = 1\nkeys = [{ id = 'a', key = 's' }]",
                "[limits]\nmax_calls = 1\nkeys = [{ id = ***, key = *** }]",
            ),
            (
                "[[composite_tools]]\nid = 'a'\nkey = 's'",
                "[[composite_tools]]\nid = ***\nkey = ***",
            ),
        ] {
            assert_eq!(shown(text), seen);
        }
    }

    #[test]
    fn without_a_parser_all_is_hidden_that_may_be_secret() {
        for (text, seen) in [
            (
                "[[backends]] # s\nname = 'a'\nenv = { T = s }\n[backends.env]\nT='s\n  s\nsss==\nsss=",
                "[[backends]] ***\nname = ***\nenv = ***\n[backends.env]\nT=***\n  ***\n***\n***",
            ),
            (
                "backends = [{ env = { T = s } }]\n[[composite_tools]]\nname = a\n['s'\nname = b",
                "backends = ***\n[[composite_tools]]\nname = a\n***\nname = ***",
            ),
            (
                "[composite_tools.targets]\r\ntool = a\r\nenv.T = 's\r\n",
                "[composite_tools.targets]\r\ntool = a\r\nenv.T = ***\n",
            ),
            ("[[backends]]\nT = '''s\nss='''\ns = = s", "[[backends]]\nT = ***\n***"),
            ("[[backends]]\nenv = {}\nenv = { T = 's' }", "[[backends]]\nenv = ***\nenv = ***"),
            ("[[backends]\nT = 's'", "[[backends]\nT = ***"),
            ("[router]\n\"\"\"[[backends]]\na = = b\ns", "[router]\n***\n***\n***"),
            ("[router]\nargs = ['a', 's'\ns, s]", "[router]\nargs = ***\n***"),
            (
                "[state]\nttl = '1h\nkeys = [{ id = 'a', key = 's' }]\n[limits]\nkey = 's'",
                "[state]\nttl = ***\nkeys = ***\n[limits]\nkey = ***",
            ),
            ("[filter]\ndefault = 's'\ns = s", "[filter]\ndefault = ***\ns = ***"),
            (
                "[filter]\nhide_tools = ['a=b']\ndefalt = 's'\n's'\n[limits]\nmax_calls = = 1\n",
                "[filter]\nhide_tools = ['a=b']\ndefalt = ***\n***\n[limits]\n***\n",
            ),
            (
                "[[composite_tools]]\ntargets = [{ tokn = 's' }]\n[composite_tools.tokns]\nname = 's",
                "[[composite_tools]]\ntargets = ***\n[composite_tools.tokns]\nname = ***",
            ),
            (
                "[[aliases]]\ntool = 'a'\n[aliases.arguments.k]\ndefault = 's",
                "[[aliases]]\ntool = ***\n[aliases.arguments.k]\ndefault = ***",
            ),
        ] {
            assert_eq!(shown(text), seen);
        }
    }
}
