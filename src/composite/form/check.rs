//! Checks the schema of an elicitation form.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::{
    composite::{
        error::{DefinitionErrorKind as Kind, Segment},
        form_error::{FORMATS, FormError, wrong_kind},
    },
    message::Refusal,
    schema::InputSchema,
    suggest::nearest,
};

/// Maximum number of properties of a form.
const MAX_PROPERTIES: usize = 100;
const TYPES: [&str; 5] = ["string", "number", "integer", "boolean", "array"];

/// Collects the errors in the schema of an elicitation form. Each error is stored with its path in
/// the schema.
#[derive(Default)]
pub(super) struct Mistakes {
    path: Vec<Segment>,
    pub(super) found: Vec<(Vec<Segment>, Kind)>,
}

/// Describes the keywords that may be used in one kind of schema, for example in the schema of a
/// string property.
struct Shape {
    /// The name of this kind of schema, as used in error messages, for example `a string`.
    of: &'static str,
    keywords: &'static [(&'static str, Takes)],
    /// The pair of keywords that set the lower and the upper bound, for example `minimum` and
    /// `maximum`. `None` if this kind of schema supports no bounds.
    bounds: Option<(&'static str, &'static str)>,
}

/// The type of value that a keyword accepts. It determines how the keyword's value is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Text,
    /// The keyword's value is a string length, which is a non-negative integer.
    Length,
    /// The keyword's value is a number of array elements, which is a non-negative integer.
    Count,
    Integer,
    Number,
    Format,
    /// Used for keywords such as `type` and `default`, whose values are checked by other functions.
    Other,
}

const TYPE: (&str, Takes) = ("type", Takes::Other);
const TITLE: (&str, Takes) = ("title", Takes::Text);
const DESCRIPTION: (&str, Takes) = ("description", Takes::Text);
const DEFAULT: (&str, Takes) = ("default", Takes::Other);
const ENUM: (&str, Takes) = ("enum", Takes::Other);
const ENUM_NAMES: (&str, Takes) = ("enumNames", Takes::Other);
const ONE_OF: (&str, Takes) = ("oneOf", Takes::Other);
const ANY_OF: (&str, Takes) = ("anyOf", Takes::Other);

const FORM: Shape = Shape {
    of: "a form",
    keywords: &[
        ("$schema", Takes::Text),
        TYPE,
        TITLE,
        DESCRIPTION,
        ("properties", Takes::Other),
        ("required", Takes::Other),
    ],
    bounds: None,
};
const STRING: Shape = Shape {
    of: "a string",
    keywords: &[
        TYPE,
        TITLE,
        DESCRIPTION,
        ("minLength", Takes::Length),
        ("maxLength", Takes::Length),
        ("format", Takes::Format),
        DEFAULT,
        ENUM,
        ONE_OF,
    ],
    bounds: Some(("minLength", "maxLength")),
};
const CHOICE: Shape = Shape {
    of: "a choice",
    keywords: &[TYPE, TITLE, DESCRIPTION, ENUM, ENUM_NAMES, DEFAULT],
    bounds: None,
};
const TITLED_CHOICE: Shape =
    Shape { of: "a choice", keywords: &[TYPE, TITLE, DESCRIPTION, ONE_OF, DEFAULT], bounds: None };
const CHOICES: Shape = Shape {
    of: "an array",
    keywords: &[
        TYPE,
        TITLE,
        DESCRIPTION,
        ("minItems", Takes::Count),
        ("maxItems", Takes::Count),
        ("items", Takes::Other),
        DEFAULT,
    ],
    bounds: Some(("minItems", "maxItems")),
};
const INTEGER: Shape = Shape {
    of: "an integer",
    keywords: &[
        TYPE,
        TITLE,
        DESCRIPTION,
        ("minimum", Takes::Integer),
        ("maximum", Takes::Integer),
        ("default", Takes::Integer),
    ],
    bounds: Some(("minimum", "maximum")),
};
const NUMBER: Shape = Shape {
    of: "a number",
    keywords: &[
        TYPE,
        TITLE,
        DESCRIPTION,
        ("minimum", Takes::Number),
        ("maximum", Takes::Number),
        ("default", Takes::Number),
    ],
    bounds: Some(("minimum", "maximum")),
};
const BOOLEAN: Shape =
    Shape { of: "a boolean", keywords: &[TYPE, TITLE, DESCRIPTION, DEFAULT], bounds: None };
const ITEMS: Shape = Shape { of: "`items`", keywords: &[TYPE, ENUM], bounds: None };
const TITLED_ITEMS: Shape = Shape { of: "`items`", keywords: &[ANY_OF], bounds: None };
const ANY_ITEMS: Shape = Shape { of: "`items`", keywords: &[TYPE, ENUM, ANY_OF], bounds: None };
const NAMED: Shape =
    Shape { of: "a named choice", keywords: &[("const", Takes::Text), TITLE], bounds: None };

// === impl Mistakes ===

impl Mistakes {
    /// Adds an error at the current path. Ignores the error if this path or a parent path already
    /// has one, because the new error is probably a consequence of the earlier one.
    pub(super) fn push(&mut self, error: impl Into<Kind>) {
        if !self.found.iter().any(|(path, _)| self.path.starts_with(path)) {
            self.found.push((self.path.clone(), error.into()));
        }
    }

    /// Calls `look` with the current path extended by `path`. Restores the current path afterwards.
    pub(super) fn within<T, P: Into<Segment>>(
        &mut self,
        path: impl IntoIterator<Item = P>,
        look: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let length = self.path.len();
        self.path.extend(path.into_iter().map(Into::into));
        let looked = look(self);
        self.path.truncate(length);
        looked
    }

    pub(super) fn form(&mut self, schema: &JsonObject) {
        self.keywords(schema, &FORM);
        if let Some(other) = schema.get("type").filter(|name| *name != "object") {
            self.wrong("type", other, "\"object\"");
        }
        let nothing = JsonObject::new();
        let properties = match schema.get("properties") {
            None => &nothing,
            Some(Value::Object(properties)) => properties,
            Some(other) => {
                self.wrong("properties", other, "an object");
                &nothing
            }
        };
        let count = properties.len();
        if count > MAX_PROPERTIES {
            let error = FormError::TooManyProperties { count, max: MAX_PROPERTIES };
            return self.within(["properties"], |this| this.push(error));
        }
        for (name, property) in properties {
            self.within(["properties", name], |this| this.property(name, property));
        }
        if let Some(required) = schema.get("required") {
            self.within(["required"], |this| this.required(required, properties));
        }
    }

    fn required(&mut self, required: &Value, properties: &JsonObject) {
        let Value::Array(names) = required else {
            return self.push(wrong_kind("`required`", required, "an array of names"));
        };
        let known: Vec<_> = properties.keys().map(String::as_str).collect();
        for (index, name) in names.iter().enumerate() {
            let error: Kind = match name {
                Value::String(name) if known.contains(&name.as_str()) => continue,
                Value::String(name) => {
                    let near = nearest(name, &known).map(str::to_owned);
                    Kind::UnknownProperty { name: name.clone(), near }
                }
                other => wrong_kind("an element of `required`", other, "a name").into(),
            };
            self.within([index], |this| this.push(error));
        }
    }

    fn property(&mut self, name: &str, schema: &Value) {
        let Value::Object(schema) = schema else {
            return self.push(wrong_kind(&format!("`{name}`"), schema, "an object"));
        };
        let before = self.found.len();
        let shape = match schema.get("type") {
            None => {
                return self.push(FormError::MissingKeyword { keyword: "type", of: "a property" });
            }
            Some(Value::String(name)) => match name.as_str() {
                "string" if schema.contains_key("oneOf") => TITLED_CHOICE,
                "string" if schema.contains_key("enum") => CHOICE,
                "string" => STRING,
                "integer" => INTEGER,
                "number" => NUMBER,
                "boolean" => BOOLEAN,
                "array" => CHOICES,
                other => {
                    let near = nearest(other, &TYPES).map(str::to_owned);
                    let error = FormError::Type { found: other.to_owned(), near };
                    return self.within(["type"], |this| this.push(error));
                }
            },
            Some(other) => return self.wrong("type", other, "the name of a type"),
        };
        self.keywords(schema, &shape);
        self.choices(schema);
        if shape.of == CHOICES.of {
            self.items(schema);
        }
        if schema.contains_key("default") && self.found.len() == before {
            self.within(["default"], |this| this.fits(schema));
        }
    }

    /// Checks the options of a property whose value the user chooses from a list. The keywords
    /// `enum`, `oneOf` and `anyOf` contain the options.
    fn choices(&mut self, schema: &JsonObject) {
        if let Some(choices) = schema.get("enum") {
            let count = self.texts("enum", choices);
            if let Some(names) = schema.get("enumNames")
                && let (Some(choices), Some(names)) = (count, self.names(names))
                && choices != names
            {
                self.within(["enumNames"], |this| {
                    this.push(FormError::EnumNames { names, choices });
                });
            }
        }
        for key in ["oneOf", "anyOf"] {
            let Some(choices) = schema.get(key) else { continue };
            let Value::Array(choices) = choices else {
                self.wrong(key, choices, "an array of named choices");
                continue;
            };
            self.within([key], |this| this.named(choices));
        }
    }

    /// Checks a list of options without separate display names, such as the values of `enum`.
    /// Returns the number of options. If `choices` is not an array, adds an error and returns
    /// `None`.
    fn texts(&mut self, key: &'static str, choices: &Value) -> Option<usize> {
        let Value::Array(choices) = choices else {
            self.wrong(key, choices, "an array of strings");
            return None;
        };
        self.within([key], |this| {
            if choices.is_empty() {
                this.push(FormError::NoChoices);
            }
            for (index, choice) in choices.iter().enumerate() {
                let error = match choice {
                    Value::String(text) if choices[..index].contains(choice) => {
                        FormError::DuplicateChoice { choice: text.clone() }
                    }
                    Value::String(_) => continue,
                    other => wrong_kind("a choice", other, "a string"),
                };
                this.within([index], |this| this.push(error));
            }
        });
        Some(choices.len())
    }

    /// Checks the display names that a schema lists for the options of a choice. Returns the number
    /// of names. If `names` is not an array, adds an error and returns `None`.
    fn names(&mut self, names: &Value) -> Option<usize> {
        let Value::Array(names) = names else {
            self.wrong("enumNames", names, "an array of strings");
            return None;
        };
        for (index, name) in names.iter().enumerate().filter(|(_, name)| !name.is_string()) {
            let error = wrong_kind("a name", name, "a string");
            self.within::<_, Segment>(["enumNames".into(), index.into()], |this| this.push(error));
        }
        Some(names.len())
    }

    /// Checks options that have display names. Each option is a schema with the keywords `const`
    /// and `title`.
    fn named(&mut self, choices: &[Value]) {
        if choices.is_empty() {
            self.push(FormError::NoChoices);
        }
        let mut taken = Vec::new();
        for (index, choice) in choices.iter().enumerate() {
            self.within([index], |this| {
                let Value::Object(choice) = choice else {
                    return this.push(wrong_kind(
                        "a choice",
                        choice,
                        "an object with `const` and `title`",
                    ));
                };
                this.keywords(choice, &NAMED);
                for keyword in ["const", "title"] {
                    if !choice.contains_key(keyword) {
                        this.push(FormError::MissingKeyword { keyword, of: NAMED.of });
                    }
                }
                if let Some(Value::String(value)) = choice.get("const") {
                    if taken.contains(&value) {
                        let error = FormError::DuplicateChoice { choice: value.clone() };
                        this.within(["const"], |this| this.push(error));
                    }
                    taken.push(value);
                }
            });
        }
    }

    /// Checks the keyword `items` of a multiple-choice property, which contains the property's
    /// options.
    fn items(&mut self, schema: &JsonObject) {
        let items = match schema.get("items") {
            None => {
                return self.push(FormError::MissingKeyword { keyword: "items", of: CHOICES.of });
            }
            Some(Value::Object(items)) => items,
            Some(other) => return self.wrong("items", other, "an object"),
        };
        self.within(["items"], |this| {
            let (has_values, has_names) = (items.contains_key("enum"), items.contains_key("anyOf"));
            let shape = match (has_values, has_names) {
                (true, _) => ITEMS,
                (false, true) => TITLED_ITEMS,
                (false, false) => ANY_ITEMS,
            };
            this.keywords(items, &shape);
            if has_values {
                match items.get("type") {
                    None => this.push(FormError::MissingKeyword { keyword: "type", of: ITEMS.of }),
                    Some(name) if name == "string" => (),
                    Some(other) => this.wrong("type", other, "\"string\""),
                }
            } else if !has_names {
                this.push(FormError::MissingKeyword { keyword: "enum", of: ITEMS.of });
            }
            this.choices(items);
        });
    }

    /// Checks all keywords in the schema of a property. Adds errors for unknown keywords, for
    /// invalid values, and for a lower bound that exceeds the upper bound.
    fn keywords(&mut self, schema: &JsonObject, shape: &Shape) {
        for (keyword, value) in schema {
            let known = shape.keywords.iter().find(|(name, _)| name == keyword);
            self.within([keyword.as_str()], |this| match known {
                Some((keyword, takes)) => this.value(keyword, *takes, value),
                None => {
                    let expected: Vec<_> = shape.keywords.iter().map(|(name, _)| *name).collect();
                    let near = nearest(keyword, &expected).map(str::to_owned);
                    let keyword = keyword.clone();
                    this.push(FormError::UnknownKeyword { keyword, of: shape.of, near, expected });
                }
            });
        }
        let number = |keyword| schema.get(keyword).and_then(Value::as_f64);
        if let Some((low, high)) = shape.bounds
            && let (Some(lower), Some(upper)) = (number(low), number(high))
            && lower > upper
        {
            self.within([low], |this| this.push(FormError::Bounds { low, high }));
        }
    }

    fn value(&mut self, keyword: &str, takes: Takes, value: &Value) {
        let (fits, expected) = match takes {
            Takes::Text => (value.is_string(), "a string"),
            Takes::Length => {
                let length = value.as_u64().and_then(|length| u32::try_from(length).ok());
                (length.is_some(), "an integer from 0 to 4294967295")
            }
            Takes::Count => (value.is_u64(), "an integer from 0"),
            Takes::Integer => (value.is_i64(), "an integer of 64 bits"),
            Takes::Number => (value.is_number(), "a number"),
            Takes::Format => match value {
                Value::String(format) => {
                    if !FORMATS.contains(&format.as_str()) {
                        let near = nearest(format, &FORMATS).map(str::to_owned);
                        self.push(FormError::Format { found: format.clone(), near });
                    }
                    return;
                }
                _ => (false, "a string"),
            },
            Takes::Other => return,
        };
        if !fits {
            self.push(wrong_kind(&format!("`{keyword}`"), value, expected));
        }
    }

    /// Checks that the default value of a property matches the property's schema. Called only if no
    /// other errors were found in the schema.
    fn fits(&mut self, schema: &JsonObject) {
        let Some(default) = schema.get("default") else { return };
        let schema = InputSchema::new(Arc::new(schema.clone()));
        if let Err(Refusal::InvalidArguments { violations, .. }) = schema.check("", default, drop) {
            let reason = violations.into_iter().next().map(|violation| violation.message);
            self.push(FormError::Default { reason: reason.unwrap_or_default() });
        }
    }

    /// Adds an error for a keyword whose value has the wrong type.
    fn wrong(&mut self, keyword: &'static str, found: &Value, expected: &'static str) {
        let error = wrong_kind(&format!("`{keyword}`"), found, expected);
        self.within([keyword], |this| this.push(error));
    }
}
