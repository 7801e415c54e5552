//! The `[state]` section, which configures the store of runs that wait for user input.

use std::{collections::HashMap, sync::Arc};

use serde::Deserialize;

use super::{
    caller::CallerConfig,
    duration::Duration,
    read::Reader,
    redis::{RedisConfig, RedisSettings},
    secret::Secret,
    set_some::SetSome,
    source::sanitized,
    store_limits::{StoreLimits, StoreOf},
    variables::{Environment, Text},
};
use crate::{
    composite::{CompositeLayer, Segment},
    store::{MAX_KEY_ID, MIN_KEY, SignedStore, Store},
};

/// The key of the `[state]` section in a configuration file.
const SECTION: &str = "state";

/// Configures where the state of a run is stored while the run waits for user input.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct StateTable {
    /// The store of waiting runs. By default, each state is signed and sent to the client, which
    /// returns it with the user's input.
    store: Option<StoreName>,
    /// Keys for signed states. The first key signs new states, and all keys verify returned states.
    /// Defaults to a random key, which is lost when the process ends.
    keys: Option<Secret<Vec<KeyTable>>>,
    /// How long a run may wait for user input. Defaults to 1 hour.
    ttl: Option<Duration>,
    /// Maximum size in bytes of the state of one run. Defaults to 65536 in the `signed` store, and
    /// to 4194304 in other stores.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_state_bytes: Option<usize>,
    /// Maximum total size in bytes of all states in the `memory` store. Defaults to 67108864.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_total_bytes: Option<usize>,
    /// Maximum total size in bytes of the states of one caller in the `memory` or `redis` store.
    /// Needs `[caller]`. Defaults to a quarter of `max_total_bytes` in memory, and to 16777216 in
    /// Redis.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_caller_bytes: Option<usize>,
}

/// The store of runs that wait for user input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum StoreName {
    /// Clients store the states. Each state is signed, so that clients can read it but not change
    /// it.
    #[default]
    Signed,
    /// The memory of this process.
    Memory,
    /// The Redis server of the `[redis]` section.
    Redis,
}

/// A key that signs and verifies the states of waiting runs.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["id", "key"])))]
#[serde(default, deny_unknown_fields)]
struct KeyTable {
    /// The ID of the key. Each signed state contains the ID of the key that signed it.
    id: Option<String>,
    /// The secret, of at least 32 bytes. Each `${VAR}` is replaced by the value of an environment
    /// variable.
    key: Option<Secret<String>>,
}

/// The `[state]` settings of a file, with the store for runs that wait for user input.
#[derive(Clone, Debug)]
pub(super) struct StateConfig {
    settings: Settings,
    store: Arc<dyn Store>,
}

/// The settings of the store for waiting runs. If a reload does not change these settings, the
/// existing store stays in use, and the waiting runs are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    store: StoreName,
    redis: Option<RedisSettings>,
    keys: Vec<(String, Secret<String>)>,
    limits: StoreLimits,
}

/// Converts the `[state]` section to a store of waiting runs, and reports errors in the section to
/// `reader`.
///
/// If this function reports an error, the returned value may be incomplete, and must not be used.
pub(super) fn build(
    table: StateTable,
    redis: &RedisConfig,
    caller: &CallerConfig,
    environment: Environment<'_>,
    reader: &mut Reader<'_, '_>,
) -> StateConfig {
    let at = |key: &str| vec![SECTION.into(), Segment::from(key)];
    let store = table.store.unwrap_or_default();
    let refuse = |key, is_given, of, reader: &mut Reader<'_, '_>| {
        if is_given && store != of {
            let name = of.name();
            reader.report(&at(key), format!("`{key}` belongs to `store = \"{name}\"`"));
        }
    };
    refuse("keys", table.keys.is_some(), StoreName::Signed, reader);
    refuse("max_total_bytes", table.max_total_bytes.is_some(), StoreName::Memory, reader);
    if table.max_caller_bytes.is_some() && store == StoreName::Signed {
        let message = "`max_caller_bytes` belongs to `store = \"memory\"` or `\"redis\"`";
        reader.report(&at("max_caller_bytes"), message.to_owned());
    }
    if store == StoreName::Redis {
        redis.required(&at("store"), reader);
    }
    let sizes = [table.max_state_bytes, table.max_total_bytes, table.max_caller_bytes];
    let settings = Settings {
        store,
        redis: (store == StoreName::Redis).then(|| redis.settings().clone()),
        keys: keys(table.keys.map(Secret::into_exposed), environment, reader),
        limits: StoreLimits::build(StoreOf::Runs, table.ttl, sizes, caller, reader),
    };
    StateConfig { store: settings.build(redis), settings }
}

fn keys(
    tables: Option<Vec<KeyTable>>,
    environment: Environment<'_>,
    reader: &mut Reader<'_, '_>,
) -> Vec<(String, Secret<String>)> {
    let array = [SECTION.into(), Segment::from("keys")];
    if tables.as_ref().is_some_and(Vec::is_empty) && !reader.has_fault_in(&array) {
        let message = "no keys: expected at least one, or leave `keys` out";
        reader.report(&array, message.to_owned());
    }
    let mut ids = HashMap::new();
    let mut keys = Vec::new();
    for (place, KeyTable { id, key }) in tables.into_iter().flatten().enumerate() {
        let mut report = |key: &str, message: String| {
            reader.report(&[&array[..], &[place.into(), key.into()]].concat(), message);
        };
        match &id {
            None => report("id", "missing key `id`".to_owned()),
            Some(id) if id.trim().is_empty() || id.len() > MAX_KEY_ID => {
                report("id", format!("illegal id: expected 1 to {MAX_KEY_ID} bytes"));
            }
            Some(id) if ids.insert(id.clone(), place).is_some() => {
                report("id", format!("duplicate id {:?}", sanitized(id)));
            }
            Some(_) => (),
        }
        let key = match key.map(|key| Text::expand(key.into_exposed(), environment)) {
            None => Err("missing key `key`".to_owned()),
            Some(Ok(Text { value, .. })) if value.len() < MIN_KEY => Err(format!(
                "the key has {} bytes: expected at least {MIN_KEY}, as `openssl rand -base64 32` makes them",
                value.len()
            )),
            Some(text) => text.map(|text| text.value),
        };
        match (id, key) {
            (Some(id), Ok(key)) => keys.push((id, Secret::new(key))),
            (_, Ok(_)) => (),
            (_, Err(message)) => report("key", message),
        }
    }
    keys
}

// === impl StateConfig ===

impl StateConfig {
    /// Reuses the store of `before`, if both have the same settings, so that waiting runs are kept.
    /// `before` is the previous configuration, or another view.
    pub(super) fn take_over(&mut self, before: &Self) {
        if self.settings == before.settings {
            self.store = before.store.clone();
        }
    }

    #[cfg(test)]
    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Makes a composite layer store waiting runs in the configured store.
    pub(super) fn apply(&self, layer: CompositeLayer) -> CompositeLayer {
        layer.state(self.store.clone())
    }
}

// === impl Settings ===

impl Settings {
    fn build(&self, redis: &RedisConfig) -> Arc<dyn Store> {
        match self.store {
            StoreName::Signed => {
                let keys = self.keys.iter().map(|(id, key)| (id.as_str(), key.expose().as_str()));
                // Uses a random key if no keys are configured, or if they are invalid, which was
                // reported.
                let store = SignedStore::ring(keys).unwrap_or_else(|_| SignedStore::ephemeral());
                Arc::new(
                    store
                        .set_some(self.limits.ttl, SignedStore::ttl)
                        .set_some(self.limits.max_item_bytes, SignedStore::max_item_bytes),
                )
            }
            StoreName::Memory => self.limits.in_memory(StoreOf::Runs),
            StoreName::Redis => redis.store(StoreOf::Runs, &self.limits),
        }
    }
}

// === impl StoreName ===

impl StoreName {
    const fn name(self) -> &'static str {
        match self {
            Self::Signed => "signed",
            Self::Memory => "memory",
            Self::Redis => "redis",
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::config::Config;

    fn state(section: &str) -> StateConfig {
        let text = format!("[state]\n{section}");
        let key =
            |name: &str| (name == "KEY").then(|| "s3cret of at least thirty-two bytes".into());
        Config::from_toml_str_with_env(&text, key)
            .unwrap_or_else(|error| panic!("{error}"))
            .layers
            .stores
            .state
    }

    /// Returns `true` if the store of `to` accepts a state that the store of `from` created.
    fn goes_on(from: &StateConfig, to: &StateConfig) -> bool {
        let text = from.store().put(b"state".to_vec(), b"", None).now_or_never().unwrap().unwrap();
        to.store().take(&text, b"", None).now_or_never().unwrap().is_ok()
    }

    #[test]
    fn variables_in_keys_are_expanded_before_signing() {
        let key = "key = \"s3cret of at least thirty-two bytes\"";
        let [here, there] = ["key = \"${KEY}\"", key]
            .map(|key| state(&format!("keys = [{{ id = \"a\", {key} }}]")));
        assert!(goes_on(&here, &there));
        let other =
            state("keys = [{ id = \"a\", key = \"$${KEY} of at least thirty-two bytes\" }]");
        assert!(!goes_on(&here, &other));
    }

    #[test]
    fn states_are_signed_with_the_first_key() {
        let (a, b) = ("{ id = \"a\", key = \"${KEY}\" }", "{ id = \"b\", key = \"b ${KEY}\" }");
        let [both, reversed, first] = [format!("{a}, {b}"), format!("{b}, {a}"), a.to_owned()]
            .map(|keys| state(&format!("keys = [{keys}]")));
        assert!(goes_on(&both, &first) && goes_on(&both, &reversed));
        assert!(!goes_on(&reversed, &first));
    }

    #[test]
    fn configs_without_keys_share_the_key_of_the_process() {
        assert!(goes_on(&state(""), &state("ttl = \"2h\"")));
    }

    #[test]
    fn states_in_memory_are_kept_while_their_settings_stay() {
        let memory = "store = \"memory\"";
        #[cfg(feature = "http")]
        let caller = "[caller]\nheader = \"x-user\"";
        for (after, is_kept) in [
            (memory.to_owned(), true),
            (format!("{memory}\nttl = \"2h\""), false),
            (format!("{memory}\nmax_state_bytes = 10"), false),
            (format!("{memory}\nmax_total_bytes = 1000"), false),
            #[cfg(feature = "http")]
            (format!("{memory}\n{caller}"), true),
            #[cfg(feature = "http")]
            (format!("{memory}\nmax_caller_bytes = 1000\n{caller}"), false),
            (String::new(), false),
        ] {
            let before = state(memory);
            let mut after_it = state(&after);
            after_it.take_over(&before);
            assert_eq!(goes_on(&before, &after_it), is_kept, "{after}");
        }
    }
}
