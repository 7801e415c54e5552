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
};
use crate::{
    composite::Segment,
    store::{MAX_KEY_ID, MIN_KEY, SealedStore, SignedStore, Store},
    tasks::TaskRegistry,
};

const SECTION: &str = "state";

/// Configures where the state of a run is stored while the run waits for user input.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct StateTable {
    /// The store of waiting runs. By default, each state is encrypted and sent to the client, which
    /// returns it with the user's input.
    store: Option<StoreName>,
    /// Keys for encrypted or signed states. The first key is used for new states, and all keys for
    /// returned states. Defaults to a random key, which is lost when the process ends. With keys,
    /// the `task` of composites defaults to `never`, because each replica has its own tasks.
    keys: Option<Secret<Vec<KeyTable>>>,
    /// How long a run may wait for user input. Defaults to 1 hour.
    ttl: Option<Duration>,
    /// Maximum size in bytes of the state of one run. Defaults to 65536 in the `sealed` and
    /// `signed` stores, and to 4194304 in other stores.
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
    /// Clients store the states. Each state is encrypted, so that clients can neither read nor
    /// change it.
    #[default]
    Sealed,
    /// Clients store the states. Each state is signed, so that clients can read it but not change
    /// it.
    Signed,
    /// The memory of this process.
    Memory,
    /// The Redis server of the `[redis]` section. It also stores tasks.
    Redis,
}

/// A key that protects the states of waiting runs.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["id", "key"])))]
#[serde(default, deny_unknown_fields)]
struct KeyTable {
    /// The ID of the key. Each state contains the ID of its key.
    id: Option<String>,
    /// The secret, of at least 32 bytes. Each `${VAR}` is replaced by the value of an environment
    /// variable.
    key: Option<Secret<String>>,
}

/// The store for suspended runs that the `[state]` section defines, and its settings.
#[derive(Clone, Debug)]
pub(super) struct StateConfig {
    settings: Settings,
    store: Arc<dyn Store>,
}

/// The settings of the store for suspended runs. If a reload does not change these settings, the
/// existing store stays in use, and the suspended runs are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    store: StoreName,
    redis: Option<RedisSettings>,
    keys: Vec<(String, Secret<String>)>,
    limits: StoreLimits,
}

/// Creates the store for suspended runs from the `[state]` section, and reports errors in the
/// section to `reader`.
pub(super) fn build(
    table: StateTable,
    redis: &RedisConfig,
    caller: &CallerConfig,
    reader: &mut Reader<'_, '_>,
) -> StateConfig {
    let at = |key: &str| vec![SECTION.into(), Segment::from(key)];
    let store = table.store.unwrap_or_default();
    let at_clients = store.is_kept_by_clients();
    let misplaced = [
        ("keys", table.keys.is_some() && !at_clients, "`store = \"sealed\"` or `\"signed\"`"),
        (
            "max_total_bytes",
            table.max_total_bytes.is_some() && store != StoreName::Memory,
            "`store = \"memory\"`",
        ),
        (
            "max_caller_bytes",
            table.max_caller_bytes.is_some() && at_clients,
            "`store = \"memory\"` or `\"redis\"`",
        ),
    ];
    for (key, _, stores) in misplaced.into_iter().filter(|(_, is_misplaced, _)| *is_misplaced) {
        reader.report(&at(key), format!("`{key}` belongs to {stores}"));
    }
    let redis_settings = (store == StoreName::Redis).then(|| redis.required(&at("store"), reader));
    let sizes = [table.max_state_bytes, table.max_total_bytes, table.max_caller_bytes];
    let settings = Settings {
        store,
        redis: redis_settings.cloned(),
        keys: keys(table.keys.map(Secret::into_exposed), reader),
        limits: StoreLimits::build(StoreOf::Runs, table.ttl, sizes, caller, reader),
    };
    StateConfig { store: settings.build(redis), settings }
}

fn keys(
    tables: Option<Vec<KeyTable>>,
    reader: &mut Reader<'_, '_>,
) -> Vec<(String, Secret<String>)> {
    let array = [SECTION.into(), Segment::from("keys")];
    if tables.as_ref().is_some_and(Vec::is_empty) && !reader.has_fault_in(&array) {
        reader.report(&array, "no keys: expected at least one, or leave `keys` out");
    }
    let mut ids = HashMap::new();
    let mut keys = Vec::new();
    for (place, KeyTable { id, key }) in tables.into_iter().flatten().enumerate() {
        let at = |key: &str| [&array[..], &[place.into(), key.into()]].concat();
        let mut report = |key: &str, message: String| reader.report(&at(key), message);
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
        if key.is_none() {
            report("key", "missing key `key`".to_owned());
        }
        let key = key.and_then(|key| reader.expand(&at("key"), key.into_exposed()));
        match (id, key.map(|key| key.value)) {
            (_, Some(key)) if key.len() < MIN_KEY => {
                let message = format!(
                    "the key has {} bytes: expected at least {MIN_KEY}, as `openssl rand -base64 32` makes them",
                    key.len()
                );
                reader.report(&at("key"), message);
            }
            (Some(id), Some(key)) => keys.push((id, Secret::new(key))),
            _ => (),
        }
    }
    keys
}

// === impl StateConfig ===

impl StateConfig {
    /// Reuses the store of `before` if both have the same settings, so that suspended runs are
    /// kept. `before` belongs to the previous configuration or to another view.
    pub(super) fn take_over(&mut self, before: &Self) {
        if self.settings == before.settings {
            self.store = before.store.clone();
        }
    }

    /// Creates the registry of tasks. If suspended runs are in Redis, so are tasks.
    pub(super) fn tasks(&self, redis: &RedisConfig) -> TaskRegistry {
        match self.settings.store {
            StoreName::Redis => redis.tasks(),
            _ => TaskRegistry::new(),
        }
    }

    /// Returns `true` if both configurations have their tasks in the same store.
    pub(super) fn has_tasks_of(&self, before: &Self) -> bool {
        self.settings.redis == before.settings.redis
    }

    /// Returns `true` if the file has `keys` for states. With keys, each replica can continue the
    /// suspended runs of the others, but has its own tasks.
    pub(super) fn has_tasks_per_replica(&self) -> bool {
        !self.settings.keys.is_empty()
    }

    /// Returns the store for suspended runs, and for tasks of backends that wait for user input.
    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}

// === impl Settings ===

impl Settings {
    fn build(&self, redis: &RedisConfig) -> Arc<dyn Store> {
        match self.store {
            // Both use a random key if no keys are configured, or if they are invalid, which was
            // reported.
            StoreName::Sealed => {
                let store =
                    SealedStore::ring(self.keys()).unwrap_or_else(|_| SealedStore::ephemeral());
                Arc::new(
                    store
                        .set_some(self.limits.ttl, SealedStore::ttl)
                        .set_some(self.limits.max_item_bytes, SealedStore::max_item_bytes),
                )
            }
            StoreName::Signed => {
                let store =
                    SignedStore::ring(self.keys()).unwrap_or_else(|_| SignedStore::ephemeral());
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

    fn keys(&self) -> impl Iterator<Item = (&str, &str)> {
        self.keys.iter().map(|(id, key)| (id.as_str(), key.expose().as_str()))
    }
}

// === impl StoreName ===

impl StoreName {
    /// Returns `true` if clients store the states of suspended runs, which the server encrypts or
    /// signs with its keys. Returns `false` if a server-side store contains the states.
    const fn is_kept_by_clients(self) -> bool {
        matches!(self, Self::Sealed | Self::Signed)
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use futures::FutureExt;

    use super::*;
    use crate::{composite::TaskMode, config::Config};

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

    /// Returns `true` if the store of `to` accepts a state that the store of `from` has created.
    fn goes_on(from: &StateConfig, to: &StateConfig) -> bool {
        let text = from.store().put(b"state".to_vec(), b"", None).now_or_never().unwrap().unwrap();
        to.store().take(&text, b"", None).now_or_never().unwrap().is_ok()
    }

    #[test]
    fn variables_in_keys_are_expanded_before_use() {
        for store in ["sealed", "signed"] {
            let state = |key| {
                state(&format!("store = \"{store}\"\nkeys = [{{ id = \"a\", key = \"{key}\" }}]"))
            };
            let [here, there] = ["${KEY}", "s3cret of at least thirty-two bytes"].map(state);
            assert!(goes_on(&here, &there));
            assert!(!goes_on(&here, &state("$${KEY} of at least thirty-two bytes")));
        }
    }

    #[test]
    fn first_key_is_used_for_new_states() {
        let (a, b) = ("{ id = \"a\", key = \"${KEY}\" }", "{ id = \"b\", key = \"b ${KEY}\" }");
        for store in ["sealed", "signed"] {
            let [both, reversed, first] = [format!("{a}, {b}"), format!("{b}, {a}"), a.to_owned()]
                .map(|keys| state(&format!("store = \"{store}\"\nkeys = [{keys}]")));
            assert!(goes_on(&both, &first) && goes_on(&both, &reversed));
            assert!(!goes_on(&reversed, &first));
        }
    }

    #[test]
    fn configs_without_keys_share_the_key_of_the_process() {
        for store in ["sealed", "signed"] {
            let store = format!("store = \"{store}\"");
            assert!(goes_on(&state(&store), &state(&format!("{store}\nttl = \"2h\""))));
        }
    }

    #[test]
    fn states_are_encrypted_unless_the_file_says_signed() {
        let keys = "keys = [{ id = \"a\", key = \"${KEY}\" }]";
        for (section, is_readable) in [
            (String::new(), false),
            (keys.to_owned(), false),
            (format!("store = \"sealed\"\n{keys}"), false),
            ("store = \"signed\"".to_owned(), true),
            (format!("store = \"signed\"\n{keys}"), true),
        ] {
            let store = state(&section).store();
            let text = store.put(b"state".to_vec(), b"", None).now_or_never().unwrap().unwrap();
            let body = text.split('.').nth(2).unwrap();
            let body = URL_SAFE_NO_PAD.decode(body).unwrap();
            assert_eq!(body.ends_with(b"state"), is_readable, "{section}");
        }
    }

    #[test]
    fn sealed_and_signed_stores_reject_the_states_of_each_other() {
        let keys = "keys = [{ id = \"a\", key = \"${KEY}\" }]";
        let [sealed, signed] =
            ["sealed", "signed"].map(|store| state(&format!("store = \"{store}\"\n{keys}")));
        assert!(!goes_on(&sealed, &signed) && !goes_on(&signed, &sealed));
    }

    #[test]
    fn composites_have_no_tasks_by_default_if_replicas_do_not_share_them() {
        let workflow = "[[composite_tools]]\nname = 'ask'\ndescription = 'Asks'\n\
            strategy = 'workflow'\nsteps = [{ id = 'sure', type = 'elicitation', \
            message = 'Sure?', schema = {} }]\n";
        let keys = "keys = [{ id = \"a\", key = \"${KEY}\" }]";
        let key = |_: &str| Some("s3cret of at least thirty-two bytes".into());
        for (section, task, expected) in [
            ("", "", TaskMode::Optional),
            ("store = 'memory'", "", TaskMode::Optional),
            (keys, "", TaskMode::Never),
            (keys, "task = 'always'\n", TaskMode::Always),
            #[cfg(feature = "redis")]
            ("store = 'redis'\n[redis]\nurl = 'redis://127.0.0.1:1'", "", TaskMode::Optional),
        ] {
            let workflow = workflow.replace("strategy", &format!("{task}strategy"));
            let text = format!("{workflow}[state]\n{section}");
            let layers = Config::from_toml_str_with_env(&text, key).unwrap().layers;
            let modes: Vec<_> =
                layers.composite_layer.task_modes().map(|(_, mode, _)| mode).collect();
            assert_eq!(modes, [expected], "{section}");
            let is_shared = format!("{:?}", layers.stores.tasks).contains("RedisTasks");
            assert_eq!(is_shared, section.contains("redis"), "{section}");
        }
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
