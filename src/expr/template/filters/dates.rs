//! The filter `date`.

use jiff::{SignedDuration, Span, Timestamp, Unit, Zoned, fmt::strtime, tz::TimeZone};

use crate::expr::template::{
    arguments::Call,
    budget::{Evaluated, Failure},
    numeric::Numeric,
    value::Value,
};

/// The maximum length of a date format, in bytes. Short formats such as `%99Y` can produce long
/// results.
const MAX_FORMAT_BYTES: usize = 1024;

/// The filter `date`, which formats a date. Its input is a string in RFC 3339 format or the number
/// of seconds since 1970.
///
/// The argument `format` is a `strftime` format, by default RFC 3339. The argument `add` is a
/// duration to add, such as `7 days` or `-1h 30m`. The result is in UTC.
pub(super) fn date<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let format = arguments.text("format")?;
    let duration = arguments.text("add")?;
    arguments.end()?;
    if format.as_ref().is_some_and(|format| format.len() > MAX_FORMAT_BYTES) {
        let reason = format!("a format of a date has more than {MAX_FORMAT_BYTES} bytes");
        return Err(Failure::other(reason));
    }
    let mut date = date_of(&value)?.to_zoned(TimeZone::UTC);
    if let Some(duration) = duration {
        date = later(&date, &duration)?;
    }
    budget.text(match format {
        None => date.timestamp().to_string(),
        Some(format) => {
            let invalid = |error| Failure::other(format!("invalid format of a date: {error}"));
            strtime::format(format.as_bytes(), &date).map_err(invalid)?
        }
    })
}

fn date_of(value: &Value<'_>) -> Evaluated<Timestamp> {
    let date = match (value.as_str(), value.numeric()) {
        (Some(text), _) => text.trim().parse().ok(),
        (None, Some(Numeric::Integer(seconds))) => {
            i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok())
        }
        (None, Some(Numeric::Float(seconds))) => {
            // Rounded to microseconds, because floats do not have more digits for current dates.
            let duration = SignedDuration::try_from_secs_f64(seconds).ok();
            duration
                .and_then(|duration| Timestamp::from_duration(duration).ok())
                .and_then(|date| date.round(Unit::Microsecond).ok())
        }
        (None, None) => None,
    };
    let reason = "`date` needs a date such as `2026-01-31T12:00:00Z`, or seconds since 1970";
    date.ok_or_else(|| Failure::other(reason))
}

fn later(date: &Zoned, duration: &str) -> Evaluated<Zoned> {
    let span: Span = duration.parse().map_err(|_| {
        Failure::other(format!("`{duration}` is not a duration such as `7 days` or `-1h 30m`"))
    })?;
    date.checked_add(span).map_err(|_| Failure::other("the date is out of range"))
}
