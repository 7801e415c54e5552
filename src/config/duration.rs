//! Human-readable durations in configuration files.

use std::{fmt, time};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Unexpected, Visitor},
};

/// A duration that is written in human-readable form, such as `30s` or `1h 30m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Duration(pub(super) time::Duration);

struct DurationVisitor;

// === impl Duration ===

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(DurationVisitor)
    }
}

// === impl DurationVisitor ===

impl<'de> Visitor<'de> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as `30s`, `5m` or `1h 30m`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        humantime::parse_duration(text)
            .map(Duration)
            .map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Duration, A::Error> {
        Err(A::Error::invalid_type(
            Unexpected::Other("a table: write a text, as in `timeout = \"30s\"`"),
            &self,
        ))
    }
}
