//! Secrets of files, which no message and no debug output contains.

use mcp_composite::{
    alias::{ArgumentAlias, ToolAlias},
    config::Config,
};
use proptest::prelude::*;
use serde_json::json;

#[test]
fn token_in_a_url_path_is_redacted() {
    let text = "[[backends]]\nname = 'a'\nurl = 'https://host/api/s/t0kenOfMine/mcp?a=b1#top-most'";
    let config = Config::from_toml_str(text).unwrap();
    let said = config.backends()[0].secrets().redact(
        "https://host/api/s/t0kenOfMine/mcp: /s/t0kenOfMine, /api/s/t0kenOfMine/mcp?a=b1, api, #top-most",
    );
    assert_eq!(said, "https://host/api/s/***/mcp: /s/***, /api/s/***/mcp?***, api, #***");
}

/// Invalid files that contain `s3cret` in place of a secret.
const SECRETS: [&str; 65] = [
    "env = { A = \"s3cret\", B = 1 }",
    "env = { A = \"s3cret\" }\nwrong = 1",
    "env.A = \"s3cret\"\nenv.B = 1",
    "env = { A = \"s3cret\", A = \"s3cret\" }",
    "env = { A = s3cret }",
    "env = { A = \"s3cret }",
    "env = [\"A=s3cret\"]",
    "env = \"A=s3cret\"",
    "env = { \"A=s3cret\" = \"\" }",
    "env = { A = \"\"\"\ns3cret\"\"\", B = 1 }",
    "env.A = '''\na\ns3cret\n''' wrong",
    "env.A = '''\ns3cret=\ns3cret=='''\nenv.B = '",
    "[backends.env]\nA = \"s3cret\"\nA = \"s3cret\"",
    "[backends.env]\nA = \"s3cret\" \"wrong\"",
    "[backends.env]\nA = \"${UNSET} s3cret\"",
    "[backends.env]\nA = \"${s3cret\"",
    "[backends.envs]\nA = \"s3cret\"",
    "args = [\"${UNSET}\", \"${VARIABLE}\", \"s3cret\"]",
    "headers = { Accept = \"s3cret\", A = \"${VARIABLE}\\n\" }\nurl = \"${VARIABLE}\"",
    "url = \"ftp://s3cret@host\"",
    "transport = \"http\"\nheaders.\"Authorization: s3cret\" = \"\"\nurl = \"x:${VARIABLE}\"",
    "password = \"s3cret\"",
    "[[backend]]\nenv.A = \"s3cret\"\n[[composite_tools]]\nenv.A = \"s3cret\"",
    "env = { A = \"s3cret\" }\n[[composite_tools]]\nheaders = { A = s3cret }",
    "\"Authorization: Bearer s3cret\" = \"x\"",
    "\"Authorization: Bearer s3cret\" = 1\n\"Authorization: Bearer s3cret\" = 2",
    "\"Authorization: Bearer s3cret\".A = 1\n\"A: s3cret\".\"B: s3cret\" = 1",
    "env.\"TOKEN=s3cret\" = 1",
    "env.\"TOKEN s3cret\" = \"\\u0000\"",
    "headers.\"Authorization: s3cret\" = 1",
    "transport = { \"TOKEN=s3cret\" = 1 }",
    "[\"Authorization: s3cret\"]",
    "[[\"Authorization: s3cret\"]]\n\"TOKEN=s3cret\" = 1",
    "aliases = [{ tool = \"a\", arguments = { k = { default = \"s3cret\", hid = true } } }]",
    "aliases = [{ tool = \"a\", arguments = { k = \"s3cret\" } }]",
    "aliases = [{ tool = \"a\", arguments = \"s3cret\" }]",
    "aliases = [{ tool = \"a\", argument = { k = { default = \"s3cret\" } } }]",
    "aliases = [{ prompt = \"a\", arguments = { k = { default = \"s3cret\" } } }]",
    "[[backends.aliases]]\ntool = \"a\"\ndefault = \"s3cret\"",
    "[[backends.aliases]]\ntool = \"a\"\n[backends.aliases.arguments.k]\nrename = 1\ndefault = \"s3cret\"",
    "[[backends.aliases]]\ntool = \"a\"\nannotations.env = { A = \"s3cret\" }",
    "[backends.validate]\nenv = { A = \"s3cret\" }",
    "[backends.validate]\npassword = \"s3cret\"",
    "[[aliases]]\ntool = \"a\"\n[aliases.arguments.k]\ndefault = [\"s3cret\", 2026-01-01]",
    "[[aliases]]\ntool = \"a\"\n[aliases.arguments.k]\ndefault = \"s3cret",
    "[[aliases]]\ntool = \"a\"\n[aliases.arguments.\"k: s3cret\"]\nrename = \" \"",
    "[filter]\narguments.k.default = \"s3cret\"",
    "[[composite_tools]]\n\"TOKEN=s3cret\" = 1\n\"TOKEN=s3cret\" = 1",
    "[[composite_tools]]\ntargets = [{ \"TOKEN=s3cret\" = 1, 'A: s3cret'.'B: s3cret' = 2 }]",
    "[state]\nkeys = [{ id = \"a\", key = \"s3cret\" }]",
    "[state]\nkeys = [{ key = \"${VARIABLE}\" }]",
    "[state]\nkeys = [{ id = \"a\", key = \"${UNSET} s3cret\" }]",
    "[state]\nkeys = [\"s3cret\"]\nttl = \"0s\"",
    "[state]\nkeys = \"s3cret\"",
    "[state]\nkeys = { a = \"s3cret\" }",
    "[state]\nkey = \"s3cret\"",
    "[state]\nkeys = [{ id = \"a\", key = \"s3cret\" }",
    "[[state.keys]]\nid = \"a\"\nkey = [\"s3cret\", 1]\nky = \"s3cret\"",
    "[limits]\nkeys = [{ id = \"a\", key = \"s3cret\" }]",
    "[vars]\nkey = { value = \"s3cret\", secrt = true }",
    "[vars]\nkey = \"s3cret",
    "[vars]\nkey = { value = [\"s3cret\"], secret = true }",
    "[vars]\nkey = { value = \"s3cret ${UNSET}\", secret = true }",
    "[vars]\n\"A: s3cret\" = { secret = \"s3cret\", value = 1 }",
    "[[composite_tools]]\nid = \"a\"\nkey = \"s3cret\"",
];

#[test]
fn secrets_never_appear_in_errors() {
    let environment = |name: &str| (name == "VARIABLE").then(|| "s3cret".to_owned());
    let read = |text: &str| match Config::from_toml_str_with_env(text, environment) {
        Ok(config) => (true, format!("{config:?} {config:#?}")),
        Err(error) => (false, format!("{error} {error:?} {error:#?} {:?}", error.mistakes())),
    };
    for text in SECRETS {
        let file = format!("[[backends]]\nname = \"a\"\ncommand = \"b\"\n{text}\n");
        let (valid, output) = read(&file);
        assert!(!valid && !output.contains("s3cret"), "{file}{output}");
    }
    for text in [
        "command = \"${VARIABLE}\"\nargs = [\"${VARIABLE}\", \"s3cret\"]\ncwd = \"${VARIABLE}\"",
        "command = \"a\"\nenv = { A = \"s3cret\", B = \"x${VARIABLE}\" }",
        "url = \"https://s3cret:s3cret@host/s3cret?s3cret=s3cret#s3cret\"",
        "command = \"a\"\naliases = [{ tool = \"a\", arguments.k = { hide = true, default = \"s3cret\" } }]",
        "command = \"a\"\n[[aliases]]\ntool = \"a\"\narguments.k.default = { a = \"s3cret\" }",
        "url = \"http://${VARIABLE}\"\nheaders = { A = \"s3cret\", B = \"x ${VARIABLE}\" }",
        "command = \"a\"\n[[state.keys]]\nid = \"a\"\nkey = \"32 bytes at least of which ${VARIABLE} is one\"",
        "command = \"a\"\n[vars]\nkey = { value = \"s3cret and ${VARIABLE}\", secret = true }",
    ] {
        let file = format!("[[backends]]\nname = \"a\"\n{text}\n");
        let (valid, output) = read(&file);
        assert!(valid && !output.contains("s3cret"), "{file}{output}");
    }
}

#[test]
fn secret_variables_are_redacted() {
    let text = "[vars]\nkey = { value = '${KEY}', secret = true }\nteam = { value = '${KEY}' }";
    let config = |key: &str| Config::from_toml_str_with_env(text, |_| Some(key.to_owned()));
    let read = config("hunter2").unwrap();
    assert_eq!(read.secret_variables().redact("key hunter2"), "key ***");
    let error = config("abc").unwrap_err();
    let expected = "a secret variable must be a text with at least 4 characters";
    assert_eq!(error.mistakes()[0].message(), expected);
    assert!(!error.to_string().contains("abc"), "{error}");
}

#[cfg(feature = "http")]
#[test]
fn url_of_a_key_set_is_expanded_once() {
    use mcp_composite::config::{AuthMethod, JwksSource};

    let text = "[auth]\nresource = 'https://a.example/mcp'\n\
                [auth.jwt]\nissuer = 'https://b.example'\njwks = 'https://c.example/${KEYS}'\n";
    let environment = |name: &str| (name == "KEYS").then(|| "keys?v=${OTHER}".to_owned());
    let config = Config::from_toml_str_with_env(text, environment).unwrap();
    let AuthMethod::Jwt(jwt) = config.auth().unwrap().method() else { panic!("{config:?}") };
    assert_eq!(jwt.jwks(), &JwksSource::Url("https://c.example/keys?v=${OTHER}".to_owned()));
}

#[test]
fn unusual_key_does_not_appear_in_errors() {
    let errors_of = |text: &str| {
        let error = Config::from_toml_str(&format!("[[backends]]\n{text}")).unwrap_err();
        let mistakes = error.mistakes().iter();
        let mut mistakes = mistakes.map(|mistake| {
            let message = mistake.message().split(':').next().unwrap_or_default();
            (mistake.path().to_owned(), message.to_owned())
        });
        (mistakes.next_back().unwrap(), error.to_string())
    };
    let word = "a".repeat(64);
    let (mistake, printed) = errors_of(&format!("{word} = 1"));
    assert_eq!(mistake, (format!("backends[0].{word}"), format!("unknown key `{word}`")));
    assert!(printed.contains(&format!("2 | {word}")), "{printed}");

    for key in ["\"Authorization: Bearer hunter2\"", "'a b'", "\"\"", &"a".repeat(65)] {
        let (mistake, printed) = errors_of(&format!("{key} = 1"));
        assert_eq!(mistake, ("backends[0].\"…\"".to_owned(), "unknown key".to_owned()));
        assert!(printed.contains("\n2 | *** = ***\n  | ^^^"), "{printed}");
    }
}

#[test]
fn key_used_as_an_id_does_not_appear_in_errors() {
    // The end of the id, `, key = ` and the beginning of the key are missing.
    let file = "[[backends]]\nname = 'a'\nurl = 'http://a'\n[state]\nkeys = [{ id = 'as3cret' }]";
    let error = Config::from_toml_str(file).unwrap_err();
    assert!(!format!("{error}{error:?}").contains("s3cret"), "{error}");
    assert!(error.to_string().contains("missing key `key`"), "{error}");
}

proptest! {
    #[test]
    fn changed_files_reveal_no_secrets(
        at in 0..SECRET.len(),
        length in 0..30_usize,
        replacement in prop::sample::select(vec![
            "", "1", "\"", "'''", "\"\"\"", "[", "]", "{", "}", "=", "\n", ",", "1979-05-27", "nan",
            "[[backends]]", "[a]", "name", "\t", "# ", "${", "${A}", "env = ", "url.",
            "[[aliases]]", "[filter]", "default = ", "[limits]",
        ]),
    ) {
        let end = (at + length).min(SECRET.len());
        let text = format!("{}{replacement}{}", &SECRET[..at], &SECRET[end..]);
        let output = match Config::from_toml_str_with_env(&text, |_| None) {
            Ok(config) => format!("{config:?}"),
            Err(error) => format!("{error}{error:?}"),
        };
        prop_assert!(!output.contains("s3cret"), "{}\n{}", text, output);
    }

    #[test]
    fn values_of_unknown_keys_and_defaults_do_not_appear(
        header in prop::sample::select(HEADERS.to_vec()),
        below in prop::sample::select(vec!["", "timeout.", "arguments.", "name.", "no.", "input.x."]),
        key in prop::sample::select(vec!["default", "defualt", "token", "env", "key", "\"a b\""]),
        value in prop::sample::select(vec![
            "\"s3cret\"",
            "[\"s3cret\"]",
            "[\n  \"s3cret\",\n]",
            "{ a = \"s3cret\" }",
            "{ name = [{ tool = \"s3cret\" }] }",
            "\"\"\"\ns3cret\n\"\"\"",
        ]),
        before in prop::sample::select(vec!["", "name = 7\n", "tool = 7\n", "tool = [{ a = 1 }]\n"]),
        broken in prop::sample::select(vec!["", "x = = 1\n", "name = \"\n", "[", "name = 1\nname = 2\n"]),
    ) {
        // Below the arguments of a call, any key is the name of an argument.
        let is_free = below == "arguments." && key != "default" && key != "env" && key != "key";
        prop_assume!(!is_free);
        let text = format!("{header}\n{before}{below}{key} = {value}\n{broken}");
        let output = match Config::from_toml_str_with_env(&text, |_| None) {
            Ok(config) => format!("{config:?}"),
            Err(error) => format!("{error}{error:?}"),
        };
        prop_assert!(!output.contains("s3cret"), "{}\n{}", text, output);
    }
}

/// Sections and tables that an alias or a backend may follow.
const HEADERS: [&str; 16] = [
    "",
    "[router]",
    "[filter]",
    "[limits]",
    "[truncate]",
    "[advertise]",
    "[validate]",
    "[progress]",
    "[caller]",
    "[[redactions]]",
    "[[budget.limits]]",
    "[[budget.costs]]",
    "[[composite_tools]]",
    "[[composite_tools]]\n[[composite_tools.steps]]",
    "[[composite_tools]]\n[[composite_tools.steps]]\ntype = \"switch\"",
    "[[composite_tools]]\n[[composite_tools.targets]]",
];

/// A file full of secrets; the comments prevent changes from making one of them the value of
/// another key.
const SECRET: &str = r#"
[router]
separator = "/"
# ............................................................
[[backends]]
name = "a"
command = "b"
# ............................................................
args = ["s3cret", '--a=s3cret', """
s3cret
"""]
env = { A = "s3cret", B = 's3cret', "C" = "s3cret" }
# ............................................................
[[backends]]
name = "c"
# ............................................................
[backends.headers]
A = "s3cret"
B = '''
s3cret'''
# ............................................................
[[backends]]
name = "d"
# ............................................................
headers.A = "s3cret"
url = "https://s3cret@host?s3cret"
# ............................................................
[[backends.aliases]]
tool = "f"
# ............................................................
arguments = { k = { default = "s3cret" }, l = { hide = true, default = ["s3cret"] } }
# ............................................................
[[aliases]]
tool = "f"
# ............................................................
[aliases.arguments.k]
hide = true
default = "s3cret"
# ............................................................
[limits]
max_calls = 7
# ............................................................
[state]
# ............................................................
keys = [{ id = "h", key = "s3cret" }, { id = "i", key = 's3cret' }]
# ............................................................
[[composite_tools]]
name = "e"
description = "f"
tools = ["g"]
"#;

#[test]
fn debug_output_hides_argument_defaults() {
    let argument = ArgumentAlias::new().hide().default(json!({ "key": "s3cret" }));
    let output = format!("{argument:?} {:?}", ToolAlias::new("a").argument("k", argument.clone()));
    assert!(output.contains("default: Some(…)") && !output.contains("s3cret"), "{output}");
}
