//! A serde deserializer for the values of a parsed TOML file.

use serde::{
    Deserialize,
    de::{
        self, DeserializeSeed, Deserializer, EnumAccess, Expected, MapAccess, SeqAccess,
        Unexpected, VariantAccess, Visitor, value::BorrowedStrDeserializer,
    },
};
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use super::{
    failure::{Failure, one_of, unknown},
    hints,
    node::Node,
    read::Reader,
    source::sanitized,
};
use crate::composite::Segment;

/// A TOML value from which serde deserializes. Its location is the current path of `reader`, which
/// also collects errors.
pub(super) struct Value<'r, 'a, 't> {
    pub(super) reader: &'r mut Reader<'a, 't>,
    pub(super) node: &'a Node<'t>,
}

struct Elements<'r, 'a, 't> {
    reader: &'r mut Reader<'a, 't>,
    array: &'a DeArray<'t>,
    next: usize,
}

struct Entries<'r, 'a, 't> {
    reader: &'r mut Reader<'a, 't>,
    entries: Vec<(&'a str, &'a Node<'t>)>,
    next: usize,
}

/// A deserializer for an enum value. In TOML, such a value is a string such as `"all"`, or a table
/// with a single key such as `{ quorum = 2 }`.
struct Variant<'r, 'a, 't> {
    reader: &'r mut Reader<'a, 't>,
    name: &'a str,
    value: Option<&'a Node<'t>>,
}

// === impl Reader ===

impl<'a, 't> Reader<'a, 't> {
    /// Deserializes the whole file, and reports all errors. Returns `T::default()` if 100 errors
    /// were found, or if the file cannot be read at all.
    pub(super) fn read<T: Deserialize<'a> + Default>(&mut self) -> T {
        self.retry(|reader, node| T::deserialize(Value { reader, node }))
    }

    /// Calls `read` to read a value that is nested in the current one. `segment` is the key or
    /// index of the nested value, and is part of the reader's path during the call.
    fn step<'r, T>(
        &'r mut self,
        segment: Segment,
        node: &'a Node<'t>,
        read: impl FnOnce(Value<'_, 'a, 't>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.path.push(segment);
        let result = read(Value { reader: self, node });
        let result = result.map_err(|failure| failure.of(&self.path, node));
        self.path.pop();
        result
    }
}

// === impl Value ===

impl<'a, 't> Value<'_, 'a, 't> {
    fn visit<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        let Self { reader, node } = self;
        match node.get_ref() {
            DeValue::String(text) => visitor.visit_borrowed_str(text),
            DeValue::Integer(integer) => visit_integer(integer, visitor),
            DeValue::Float(float) => match float.as_str().parse() {
                Ok(float) => visitor.visit_f64(float),
                Err(_) => {
                    Err(Failure::new(format!("`{}` is not a number", sanitized(float.as_str()))))
                }
            },
            DeValue::Boolean(boolean) => visitor.visit_bool(*boolean),
            DeValue::Datetime(_) => {
                Err(de::Error::invalid_type(Unexpected::Other("a date"), &visitor))
            }
            DeValue::Array(array) => visitor.visit_seq(Elements { reader, array, next: 0 }),
            DeValue::Table(table) => {
                let entries = table.iter().map(|(key, node)| (key.get_ref().as_ref(), node));
                let entries = entries.filter(|(_, node)| !reader.hides(node)).collect();
                visitor.visit_map(Entries { reader, entries, next: 0 })
            }
        }
    }

    /// Returns the value as an array. Returns an error if it has another type.
    pub(super) fn array(self) -> Result<&'a DeArray<'t>, Failure> {
        self.reject_header()?;
        match self.node.get_ref() {
            DeValue::Array(array) => Ok(array),
            other => Err(Failure::new(format!("expected an array, found {}", found(other)))),
        }
    }

    /// Returns the value as a table. Returns an error if it has another type.
    pub(super) fn table(self) -> Result<&'a DeTable<'t>, Failure> {
        match self.node.get_ref() {
            DeValue::Table(table) => Ok(table),
            DeValue::Array(_) => Err(Failure::new(self.instead_of_a_table())),
            other => Err(Failure::new(format!("expected a table, found {}", found(other)))),
        }
    }

    /// Returns the index in `words` of this string value. Returns an error if the value is not one
    /// of these strings.
    pub(super) fn one_of(self, words: &[&str]) -> Result<usize, Failure> {
        match self.node.get_ref() {
            DeValue::String(text) => {
                let place = words.iter().position(|word| *word == text);
                place.ok_or_else(|| Failure::new(unknown("value", text, words)))
            }
            other => {
                Err(Failure::new(format!("expected {}, found {}", one_of(words), found(other))))
            }
        }
    }

    /// Returns an error if the value is a table with a header such as `[name]`. The caller expects
    /// an array of tables, whose header is `[[name]]`.
    fn reject_header(&self) -> Result<(), Failure> {
        if self.node.get_ref().is_table()
            && let header = self.reader.source.sanitized(&self.node.span())
            && header.starts_with('[')
        {
            let message = format!("expected an array, found a table: write `[{header}]`");
            return Err(Failure::new(message));
        }
        Ok(())
    }

    /// Returns the error message for an array of tables that was found where a single table is
    /// expected.
    fn instead_of_a_table(&self) -> String {
        let array = self.node.get_ref().as_array();
        let has_tables = array.is_some_and(|array| {
            !array.is_empty() && array.iter().all(|element| element.get_ref().is_table())
        });
        let hint = Some(&self.reader.path).filter(|_| has_tables);
        let hint = hint.and_then(|path| hints::of_array(path)).map(|hint| format!(": {hint}"));
        format!("expected a table, found an array{}", hint.unwrap_or_default())
    }
}

/// Returns the name of a value's type, with an article, as in `a string`. Used in error messages.
fn found(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

fn visit_integer<'a, V: Visitor<'a>>(
    integer: &DeInteger<'_>,
    visitor: V,
) -> Result<V::Value, Failure> {
    let (digits, radix) = (integer.as_str(), integer.radix());
    if let Ok(integer) = i64::from_str_radix(digits, radix) {
        visitor.visit_i64(integer)
    } else if let Ok(integer) = u64::from_str_radix(digits, radix) {
        visitor.visit_u64(integer)
    } else {
        Err(Failure::new("integer out of range: expected at most 64 bits"))
    }
}

/// Implements the given `deserialize_*` methods by calling `visit`, which does not depend on the
/// requested type, and so ignores arguments such as a name. If the value has another type, the
/// visitor returns an error.
macro_rules! typed {
    ($($method:ident($($Argument:ty),*))*) => {
        $(fn $method<V: Visitor<'a>>(
            self,
            $(_: $Argument,)*
            visitor: V,
        ) -> Result<V::Value, Failure> {
            self.visit(visitor)
        })*
    };
}

impl<'a> Deserializer<'a> for Value<'_, 'a, '_> {
    type Error = Failure;

    /// Deserializes a value of any type, for a target type that accepts any value, such as
    /// `serde_json::Value`.
    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.node.get_ref() {
            DeValue::Datetime(date) => {
                Err(Failure::new(format!("dates are not JSON: quote it, as in `\"{date}\"`")))
            }
            DeValue::Float(float) if !float.as_str().parse().is_ok_and(f64::is_finite) => {
                let float = sanitized(float.as_str());
                Err(Failure::new(format!("`{float}` is not JSON: expected a finite number")))
            }
            _ => self.visit(visitor),
        }
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.reject_header()?;
        self.visit(visitor)
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        match self.node.get_ref() {
            // serde would stop at the first unknown key, so that only one of them would be
            // reported.
            DeValue::Table(table) => self.reader.check_keys(table, fields, |_| None),
            DeValue::Array(_) => return Err(Failure::new(self.instead_of_a_table())),
            _ => (),
        }
        self.visit(visitor)
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let Self { reader, node } = self;
        let found = match node.get_ref() {
            DeValue::String(name) => {
                return visitor.visit_enum(Variant { reader, name, value: None });
            }
            DeValue::Table(table) => {
                let mut entries = table.iter().filter(|(_, node)| !reader.hides(node));
                if let (Some((name, value)), None) = (entries.next(), entries.next()) {
                    let name = name.get_ref();
                    return visitor.visit_enum(Variant { reader, name, value: Some(value) });
                }
                format!("a table with {} keys", table.len())
            }
            other => found(other).to_owned(),
        };
        let expected = match (&visitor as &dyn Expected).to_string() {
            unnamed if unnamed.starts_with("enum ") => one_of(variants),
            expected => expected,
        };
        Err(Failure::new(format!("expected {expected}, found {found}")))
    }

    /// The visitor ignores the value, so it is not read.
    fn deserialize_ignored_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    typed! {
        deserialize_bool() deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64()
        deserialize_f32() deserialize_f64() deserialize_char() deserialize_str()
        deserialize_string() deserialize_bytes() deserialize_byte_buf() deserialize_unit()
        deserialize_map() deserialize_identifier() deserialize_unit_struct(&'static str)
        deserialize_tuple(usize) deserialize_tuple_struct(&'static str, usize)
    }
}

// === impl Elements ===

impl<'a> SeqAccess<'a> for Elements<'_, 'a, '_> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'a>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Failure> {
        while let Some(node) = self.array.get(self.next) {
            let index = self.next;
            self.next += 1;
            if !self.reader.hides(node) {
                let read = |value: Value<'_, 'a, '_>| seed.deserialize(value);
                return self.reader.step(Segment::Index(index), node, read).map(Some);
            }
        }
        Ok(None)
    }
}

// === impl Entries ===

impl<'a> MapAccess<'a> for Entries<'_, 'a, '_> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'a>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Failure> {
        self.entries
            .get(self.next)
            .map(|(key, _)| seed.deserialize(BorrowedStrDeserializer::new(key)))
            .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Failure> {
        let Some((key, node)) = self.entries.get(self.next).copied() else {
            return Err(Failure::new("a value without its key, this is a bug"));
        };
        self.next += 1;
        let read = |value: Value<'_, 'a, '_>| seed.deserialize(value);
        self.reader.step(Segment::Key(key.to_owned()), node, read)
    }
}

// === impl Variant ===

impl<'r, 'a, 't> EnumAccess<'a> for Variant<'r, 'a, 't> {
    type Error = Failure;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'a>>(self, seed: V) -> Result<(V::Value, Self), Failure> {
        Ok((seed.deserialize(BorrowedStrDeserializer::<Failure>::new(self.name))?, self))
    }
}

impl<'a> Variant<'_, 'a, '_> {
    fn step<T>(
        self,
        read: impl FnOnce(Value<'_, 'a, '_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Self { reader, name, value } = self;
        match value {
            Some(value) => reader.step(Segment::Key(name.to_owned()), value, read),
            None => Err(Failure::new(format!("`{name}` needs a value, as in `{{ {name} = … }}`"))),
        }
    }
}

impl<'a> VariantAccess<'a> for Variant<'_, 'a, '_> {
    type Error = Failure;

    fn unit_variant(self) -> Result<(), Failure> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(Failure::new(format!("`{0}` has no value: write `\"{0}\"`", self.name))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Result<T::Value, Failure> {
        self.step(|value| seed.deserialize(value))
    }

    fn tuple_variant<V: Visitor<'a>>(self, len: usize, visitor: V) -> Result<V::Value, Failure> {
        self.step(|value| value.deserialize_tuple(len, visitor))
    }

    fn struct_variant<V: Visitor<'a>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.step(|value| value.deserialize_struct("", fields, visitor))
    }
}
