//! The filters for strings.

use std::{collections::HashSet, fmt::Write as _};

use crate::expr::template::{
    arguments::Call,
    budget::{Budget, Evaluated, Failure, MAX_RENDERED_BYTES},
    text_builder::TextBuilder,
    value::Value,
};

/// Converts a character to a string value. `None` is undefined.
pub(super) fn character<'v>(budget: &Budget, character: Option<char>) -> Evaluated<Value<'v>> {
    character.map_or(Ok(Value::Undefined), |character| budget.text(character.to_string()))
}

/// A filter without arguments that converts a string with `change`.
pub(super) fn change<'v>(
    Call { budget, value, arguments }: Call<'_, 'v>,
    change: impl FnOnce(&str) -> String,
) -> Evaluated<Value<'v>> {
    arguments.end()?;
    budget.text(change(value.as_str().unwrap_or_default()))
}

pub(super) fn capitalize<'v>(call: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    change(call, |text| {
        let mut chars = text.chars();
        let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
        first + &chars.as_str().to_lowercase()
    })
}

/// The filter `title`. Converts the first letter of each word to upper case and all others to lower
/// case.
pub(super) fn title<'v>(call: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    change(call, |text| {
        let mut titled = String::with_capacity(text.len());
        let mut is_first = true;
        for c in text.chars() {
            let begins_word = matches!(c, '-' | '(' | '{' | '[' | '<') || c.is_whitespace();
            if begins_word {
                titled.push(c);
            } else if is_first {
                titled.extend(c.to_uppercase());
            } else {
                titled.extend(c.to_lowercase());
            }
            is_first = begins_word;
        }
        titled
    })
}

pub(super) fn quote<'v>(Call { budget, value, arguments }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    arguments.end()?;
    let mut quoted = TextBuilder::default();
    quoted.push_json(value.as_str().unwrap_or_default())?;
    budget.text(quoted.into_string())
}

/// The filter `urlencode`. Percent-encodes all bytes except ASCII letters, digits and `/.-_`.
pub(super) fn url_encode<'v>(
    Call { budget, value, arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    arguments.end()?;
    let mut text = TextBuilder::default();
    text.push_value(budget, &value)?;
    let mut encoded = String::new();
    for byte in text.into_string().bytes() {
        if byte.is_ascii_alphanumeric() || b"/.-_".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    budget.text(encoded)
}

pub(super) fn trim<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let characters = arguments.text("chars")?;
    change(Call { budget, value, arguments }, |text| match characters {
        Some(characters) => {
            let characters: HashSet<_> = characters.chars().collect();
            text.trim_matches(|c| characters.contains(&c)).to_owned()
        }
        None => text.trim().to_owned(),
    })
}

pub(super) fn replace<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let (from, to) = (arguments.take("old"), arguments.take("new"));
    arguments.end()?;
    let (Some(Value::Text(from)), Some(Value::Text(to))) = (from, to) else {
        return Err(Failure::other("`replace` needs two strings"));
    };
    let text = value.as_str().unwrap_or_default();
    let count = text.matches(&*from).count();
    let len = text.len() - count * from.len() + count.saturating_mul(to.len());
    if len > MAX_RENDERED_BYTES {
        return Err(Failure::TooLarge);
    }
    budget.text(text.replace(&*from, &to))
}

/// The filter `indent`. Indents the lines of a string by `width` spaces. Includes the first line
/// only if `first` is true, and blank lines only if `blank` is true.
pub(super) fn indent<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let width = arguments.integer("width")?.unwrap_or(4);
    let width = usize::try_from(width).map_err(|_| Failure::Incalculable)?;
    let first = arguments.flag("first")?.unwrap_or(false);
    let blank = arguments.flag("blank")?.unwrap_or(false);
    arguments.end()?;
    let text = value.as_str().unwrap_or_default();
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    let lines = text.split('\n').count();
    if lines.saturating_mul(width).saturating_add(text.len()) > MAX_RENDERED_BYTES {
        return Err(Failure::TooLarge);
    }
    let spaces = " ".repeat(width);
    let mut indented = String::new();
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            indented.push('\n');
        }
        let is_blank = line.is_empty() || line == "\r";
        if (index > 0 || first) && (!is_blank || blank) {
            indented.push_str(&spaces);
        }
        indented.push_str(line);
    }
    budget.text(indented)
}

pub(super) fn lines<'v>(Call { budget, value, arguments }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    arguments.end()?;
    let text = value.as_str().unwrap_or_default();
    pieces(budget, text, text.lines())
}

/// The filter `split`. Splits a string at a separator, or at white space if there is none. The
/// argument `maxsplits` limits the number of splits.
pub(super) fn split<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let separator = arguments.text("separator")?;
    let most = arguments.integer("maxsplits")?;
    arguments.end()?;
    let text = value.as_str().unwrap_or_default();
    let most = most.and_then(|most| usize::try_from(most).ok()).map(|most| most.saturating_add(1));
    match (separator, most) {
        (None, None) => pieces(budget, text, text.split_whitespace()),
        (None, Some(most)) => pieces(budget, text, words(text, most)),
        (Some(separator), None) => pieces(budget, text, text.split(&*separator)),
        (Some(separator), Some(most)) => pieces(budget, text, text.splitn(most, &*separator)),
    }
}

/// Splits a string at white space into at most `most` pieces. The last piece contains the rest.
fn words(text: &str, most: usize) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_start();
    let mut left = most;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        left -= 1;
        let end = if left == 0 { None } else { rest.find(char::is_whitespace) };
        let (word, others) = rest.split_at(end.unwrap_or(rest.len()));
        rest = others.trim_start();
        Some(word)
    })
}

fn pieces<'t, 'v>(
    budget: &Budget,
    text: &str,
    pieces: impl Iterator<Item = &'t str>,
) -> Evaluated<Value<'v>> {
    budget.spend(text.len())?;
    budget.list(pieces.map(|piece| budget.text(piece.to_owned())))
}
