//! Expands environment variables, written as `${VAR}`, in strings of a configuration file.

use std::{collections::HashSet, fmt};

/// A function that returns the value of the environment variable with the given name. Returns
/// `None` if the variable is not set. Tests pass a closure with fixed variables.
pub(super) type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

/// A string from a configuration file whose `${VAR}` variables have been expanded.
///
/// `Debug` prints the string as it is written in the file, because the values of variables may be
/// secret.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) value: String,
    pub(super) written: String,
    /// The values that replaced the `${VAR}` variables in the string, in the order of their
    /// occurrence.
    pub(super) replaced: Vec<String>,
}

// === impl Text ===

impl Text {
    /// Replaces each `${VAR}` in `written` with the value of the environment variable `VAR`.
    /// Directly before a `{`, `$$` stands for one literal `$`: `$${VAR}` becomes `${VAR}`. Any
    /// other `$` is literal.
    ///
    /// If a value contains `${…}` itself, it is not expanded again. Returns an error if a variable
    /// is not set or its name is invalid. The error never quotes a value, because the value may be
    /// secret.
    pub(super) fn expand(written: String, environment: Environment<'_>) -> Result<Self, String> {
        let mut value = String::with_capacity(written.len());
        let mut replaced = Vec::new();
        let mut missing = Vec::new();
        let mut known_missing = HashSet::new();
        let mut rest = written.as_str();
        while let Some(at) = rest.find('$') {
            let (before, dollars) = rest.split_at(at);
            value.push_str(before);
            let after = dollars.trim_start_matches('$');
            let count = dollars.len() - after.len();
            rest = after;
            if !after.starts_with('{') {
                value.push_str(&dollars[..count]);
                continue;
            }
            value.push_str(&dollars[..count / 2]);
            if count % 2 == 1 {
                let Some((name, after)) = after[1..].split_once('}') else {
                    return Err("`${` without its `}`: write `$${` for a literal `${`".to_owned());
                };
                if !is_variable_name(name) {
                    return Err("illegal name of a variable in `${…}`: expected letters, digits \
                                and `_`, or write `$${` for a literal `${`"
                        .to_owned());
                }
                match environment(name) {
                    Some(variable) => {
                        value.push_str(&variable);
                        replaced.push(variable);
                    }
                    None if known_missing.insert(name) => missing.push(format!("`{name}`")),
                    None => (),
                }
                rest = after;
            }
        }
        value.push_str(rest);
        match missing.as_slice() {
            [] => Ok(Self { value, written, replaced }),
            [name] => Err(format!("environment variable {name} is not set")),
            _ => Err(format!("environment variables {} are not set", missing.join(", "))),
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

/// Returns `true` if `name` is a valid name of an environment variable: 1 to 128 ASCII letters,
/// digits and `_`, and the first character is not a digit.
fn is_variable_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(written: &str) -> Result<String, String> {
        let environment = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "_b2" => Some("${A}$${A}$".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        Text::expand(written.to_owned(), &environment).map(|text| text.value)
    }

    #[test]
    fn variables_are_replaced_once() {
        for (written, value) in [
            ("", ""),
            ("a", "a"),
            ("${A}", "1"),
            ("a${A}b${A}c", "a1b1c"),
            ("[${EMPTY}]", "[]"),
            ("${_b2}", "${A}$${A}$"),
            ("é${A}é", "é1é"),
        ] {
            assert_eq!(expand(written).as_deref(), Ok(value), "{written}");
        }
    }

    #[test]
    fn dollars_outside_variables_are_kept_or_unescaped() {
        for (written, value) in [
            ("$", "$"),
            ("$A $$ $5 a$", "$A $$ $5 a$"),
            ("$${A}", "${A}"),
            ("$$$${A}", "$${A}"),
            ("$${A}${A}", "${A}1"),
            ("$${", "${"),
            ("$$$$", "$$$$"),
            ("$$ {A}", "$$ {A}"),
            ("{$$}", "{$$}"),
            ("} {A}", "} {A}"),
        ] {
            assert_eq!(expand(written).as_deref(), Ok(value), "{written}");
        }
    }

    #[test]
    fn dollars_before_a_variable_are_written_twice() {
        for (written, value) in
            [("$$${A}", "$1"), ("$$$$${A}", "$$1"), ("US$$${A}$", "US$1$"), ("${A}$${A}", "1${A}")]
        {
            assert_eq!(expand(written).as_deref(), Ok(value), "{written}");
        }
    }

    #[test]
    fn errors_contain_no_values() {
        for (written, message) in [
            ("${NO}", "environment variable `NO` is not set"),
            ("${NO}${A}${NO_2}", "environment variables `NO`, `NO_2` are not set"),
            ("${NO}${A}${NO}", "environment variable `NO` is not set"),
            ("${NO_2}${NO}${NO_2}", "environment variables `NO_2`, `NO` are not set"),
            ("${A} ${A", "`${` without its `}`"),
            ("${}", "illegal name"),
            ("${2}", "illegal name"),
            ("${A-B}", "illegal name"),
            ("${A:-b}", "illegal name"),
            ("${ A }", "illegal name"),
            ("${${A}}", "illegal name"),
            ("${é}", "illegal name"),
        ] {
            let error = expand(written).unwrap_err();
            assert!(error.starts_with(message), "{written}: {error}");
        }
    }
}
