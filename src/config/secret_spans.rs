//! Finds the spans of a file that error messages must not display, because they may be secret.
//!
//! An error message quotes a line of the file, in which the values of secret keys are hidden. The
//! [schema](super::json_schema) marks secret keys as `writeOnly`. A section of the file is called
//! *open* if it has no secret keys.
//!
//! - If the file is valid TOML, a value is displayed if the schema defines its key, and allows a
//!   value of its type. Other values are hidden if they may be secret.
//! - If the file is not valid TOML, the structure of the file is unknown. In this case, open
//!   sections are displayed in full. In other sections, only the headers and keys are displayed.

use std::{borrow::Cow, collections::HashSet, ops::Range, ptr, sync::LazyLock};

use serde_json::Value;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    json_schema::{SCHEMA, free_members, resolved, schemas_of_key},
    node::Node,
    source::apart,
    word::{is_word, is_word_character},
};
use crate::composite::Segment;

/// The schema keyword that marks secret keys.
const SECRET: &str = "writeOnly";

/// The key of a backend that contains the program to run. Its value is hidden if it consists of
/// several words, because users may write arguments with secrets after the program.
const COMMAND: &str = "command";

static KEYS: LazyLock<Keys> = LazyLock::new(Keys::new);

/// The names of the keys in the JSON Schema of configuration files, classified by whether their
/// values may be secret.
struct Keys {
    /// The keys that are secret in at least one section. Their values are hidden in all sections,
    /// because the header before a key may be missing from an invalid file.
    secret: HashSet<&'static str>,
    /// The names of the sections that have no secret keys, at any depth. They are called open
    /// sections.
    open_sections: HashSet<&'static str>,
    /// All keys of open sections, at any depth, except for keys that are secret in another section.
    known: HashSet<&'static str>,
}

/// Spans of a file that error messages must mask.
type Masks = Vec<Range<usize>>;

/// Returns the spans of `text` that error messages must mask. The spans are sorted, and do not
/// overlap.
///
/// `root` is the parsed text. `errors` is `true` if the text is not valid TOML. Because `root` is
/// then unreliable, lines of sections with secrets are masked as well.
pub(super) fn masks(text: &str, root: &DeTable<'_>, errors: bool) -> Vec<Range<usize>> {
    let mut masks = Vec::new();
    sections(root, &mut masks);
    if errors {
        lines(text, &mut masks);
    }
    apart(masks)
}

/// Replaces the keys of a path that may be secrets by `…`. Keys of only letters, digits, `_` and
/// `-` are never replaced. In sections with secret keys, all other keys are replaced. In sections
/// without secret keys, only the last key is replaced, if `unknown` is `true`.
pub(super) fn masked_path(path: &[Segment], unknown: bool) -> Vec<Segment> {
    let is_open = matches!(path.first(), Some(Segment::Key(section)) if KEYS.is_open(section))
        && !is_masked(path);
    let masked = path.iter().enumerate().map(|(place, segment)| match segment {
        Segment::Key(key) if !is_word(key) && (!is_open || unknown && place + 1 == path.len()) => {
            Segment::Key("…".to_owned())
        }
        segment => segment.clone(),
    });
    masked.collect()
}

/// Returns `true` if the value at `path` may be secret, because a key on the path is secret.
pub(super) fn is_masked(path: &[Segment]) -> bool {
    path.iter().any(|part| matches!(part, Segment::Key(key) if KEYS.is_secret(key)))
}

// === impl Keys ===

impl Keys {
    fn new() -> Self {
        let mut keys =
            Self { secret: HashSet::new(), open_sections: HashSet::new(), known: HashSet::new() };
        for section in properties(&SCHEMA) {
            let (mut nested, mut secret) = (vec![section], Vec::new());
            let mut seen = HashSet::new();
            let mut waiting = schemas_of_key(&[&SCHEMA], section);
            if waiting.iter().any(|schema| is_secret(schema)) {
                secret.push(section);
            }
            while let Some(schema) = waiting.pop() {
                // Skips schemas that were already visited, because a schema may contain itself.
                if !seen.insert(ptr::from_ref(schema)) {
                    continue;
                }
                for key in properties(schema) {
                    let schemas = schemas_of_key(&[schema], key);
                    if schemas.iter().any(|schema| is_secret(schema)) {
                        secret.push(key);
                    }
                    nested.push(key);
                    waiting.extend(schemas);
                }
                waiting.extend(free_members(schema).flat_map(resolved));
            }
            if secret.is_empty() {
                keys.open_sections.insert(section);
                keys.known.extend(nested);
            }
            keys.secret.extend(secret);
        }
        keys.known.retain(|key| !keys.secret.contains(key));
        keys
    }

    fn is_secret(&self, key: &str) -> bool {
        self.secret.contains(key)
    }

    fn is_open(&self, section: &str) -> bool {
        self.open_sections.contains(section)
    }

    fn is_known(&self, key: &str) -> bool {
        self.known.contains(key)
    }
}

/// Returns the names of the properties that a schema defines.
fn properties(schema: &'static Value) -> impl Iterator<Item = &'static str> {
    schema["properties"].as_object().into_iter().flat_map(|members| members.keys()).map(|k| &**k)
}

/// Returns `true` if a schema marks its values as secret with `writeOnly`.
fn is_secret(schema: &Value) -> bool {
    schema[SECRET] == true
}

// === Parsed files ===

fn sections(root: &DeTable<'_>, masks: &mut Masks) {
    for entry in root {
        let is_open = KEYS.is_open(entry.0.get_ref());
        member(entry, &[&SCHEMA], is_open, masks);
    }
}

/// Adds the spans of a key and its value to `masks` if they may be secret. `schemas` are the
/// schemas of the table that contains the key. `is_open` is `true` if the section has no secret
/// keys.
fn member(
    (key, node): (&Spanned<Cow<'_, str>>, &Node<'_>),
    schemas: &[&'static Value],
    is_open: bool,
    masks: &mut Masks,
) {
    let name = key.get_ref().as_ref();
    let schemas = schemas_of_key(schemas, name);
    let is_hidden =
        schemas.is_empty() || KEYS.is_secret(name) || name == COMMAND && has_several_words(node);
    if !is_word(name) && (is_hidden || !is_open) {
        masks.push(key.span());
    }
    if is_hidden {
        values(node, masks);
    } else {
        value(node, &schemas, is_open, masks);
    }
}

/// Adds the spans of those parts of a value that may be secret to `masks`. `schemas` are the
/// schemas of the value. `is_open` is `true` if the section has no secret keys.
///
/// If the schemas do not allow the type of the value, the user may have written a secret under the
/// wrong key. In this case, the whole value is masked. Strings and other scalars in sections
/// without secret keys are never masked.
fn value(node: &Node<'_>, schemas: &[&'static Value], is_open: bool, masks: &mut Masks) {
    let allows = |kind| schemas.iter().any(|schema| allows(schema, kind));
    match node.get_ref() {
        DeValue::Table(table) if allows(Kind::Table) => {
            table.iter().for_each(|entry| member(entry, schemas, is_open, masks));
        }
        DeValue::Array(array) if allows(Kind::Array) => {
            array.iter().for_each(|node| value(node, schemas, is_open, masks));
        }
        DeValue::Table(_) | DeValue::Array(_) => values(node, masks),
        _ if is_open || allows(Kind::Scalar) => (),
        _ => masks.push(node.span()),
    }
}

/// The kind of a TOML value. A value of the wrong kind may be a secret that was written under the
/// wrong key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Table,
    Array,
    Scalar,
}

/// Returns `true` if a schema allows values of this kind.
fn allows(schema: &Value, kind: Kind) -> bool {
    let of = |name: &str| match name {
        "object" => Kind::Table,
        "array" => Kind::Array,
        _ => Kind::Scalar,
    };
    match &schema["type"] {
        Value::String(name) => of(name) == kind,
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(|name| of(name) == kind),
        _ if schema.get("properties").is_some() => kind == Kind::Table,
        _ if schema.get("enum").is_some() || schema.get("const").is_some() => kind == Kind::Scalar,
        _ => true,
    }
}

fn has_several_words(node: &Node<'_>) -> bool {
    node.get_ref().as_str().is_some_and(|text| text.trim().contains(char::is_whitespace))
}

/// Masks a whole value: adds the spans of all scalars in it to `masks`, and the spans of all keys
/// that are not plain words.
pub(super) fn values(node: &Node<'_>, masks: &mut Vec<Range<usize>>) {
    match node.get_ref() {
        DeValue::Table(table) => {
            for (key, node) in table {
                // A key such as `"TOKEN=secret"` may contain a secret value.
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

/// Masks the text after the key in each line. Used for a file that is not valid TOML. Lines in
/// sections without secret keys are not masked.
fn lines(text: &str, masks: &mut Vec<Range<usize>>) {
    let mut open = false;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let visible_end = match header(line) {
            Some((section, end)) => {
                let mut keys = words(&line[..end]);
                open = KEYS.is_open(section) && keys.all(|key| KEYS.is_known(key));
                end
            }
            None if open && !is_suspicious(line) => line.len(),
            None => {
                open = false;
                key(line)
            }
        };
        let hidden = &line[visible_end..];
        let from = start + visible_end + (hidden.len() - hidden.trim_start().len());
        let to = start + line.trim_end().len();
        if from < to {
            masks.push(from..to);
        }
        start += line.len();
    }
}

/// Parses the header of a section, such as `[router]`. Returns the section's name, and the offset
/// at which the header ends. Returns `None` if the line contains no header.
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

/// Returns the offset of the value in a line such as `key = value`. Returns 0 if the line does not
/// seem to begin with a key, so that the whole line is masked.
fn key(line: &str) -> usize {
    let Some((key, value)) = line.split_once('=') else { return 0 };
    let end = key.len() + 1;
    let spaced = key.ends_with([' ', '\t']);
    let value = value.trim();
    // The padding of base64 looks like a key without a value.
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

/// Returns `true` if a line may belong to a section with secrets whose header is missing or
/// invalid. The caller then masks this line and the lines after it, up to the next header.
fn is_suspicious(line: &str) -> bool {
    let names_secret = words(line).any(|word| KEYS.is_secret(&word.to_ascii_lowercase()));
    names_secret
        || line.trim_start().starts_with('[')
        || line.contains("[[")
        || line.to_ascii_lowercase().contains("backend")
        || !keys_are_known(line)
}

/// Returns `true` if all keys in the line are keys of sections without secrets.
fn keys_are_known(line: &str) -> bool {
    let bare = without_texts(line);
    let mut parts: Vec<_> = bare.split('=').collect();
    // The part after the last `=` is a value.
    parts.pop();
    parts.iter().all(|part| {
        let key = part.rsplit([',', '{', '[']).next().unwrap_or_default();
        !key.trim().is_empty() && key.split('.').all(|key| KEYS.is_known(key.trim()))
    })
}

/// Removes the contents of quoted strings from a line, so that quoted text is not mistaken for
/// keys. A quoted key is reduced to its quotes, and so becomes an unknown key. If the line may
/// contain an unclosed quote, it is returned unchanged.
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

    /// Returns the text as error messages display it, with all masks applied.
    fn masked(text: &str) -> String {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut masked = String::new();
        let mut end = 0;
        for mask in masks(text, table.get_ref(), !errors.is_empty()) {
            masked.push_str(&text[end..mask.start]);
            masked.push_str("***");
            end = mask.end;
        }
        masked + &text[end..]
    }

    #[test]
    fn secret_values_are_masked_in_every_notation() {
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
            // These keys belong to a section whose header is missing, at any depth.
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
            // These keys belong to the table before the current table.
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
            assert_eq!(masked(text), seen);
        }
    }

    #[test]
    fn possible_secrets_are_masked_in_unparsable_files() {
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
            assert_eq!(masked(text), seen);
        }
    }
}
