//! Writes the approved definitions of tools, and compares them with the current ones.

use std::{
    error::Error,
    fs,
    io::{self, Write},
    path::Path,
};

use mcp_composite::{
    config::{Config, LockConfig},
    lock::{Difference, Lock},
};

use crate::session::{Session, Setup};

/// Writes the lock of a file with the tools that all backends list now, or only compares it with
/// these tools if `checks` is `true`.
///
/// # Errors
///
/// Returns an error if the file has no `[lock]`, if a backend does not list its tools, and the
/// errors of [`write`] and [`check`].
pub(crate) fn lock(
    file: &Path,
    checks: bool,
    setup: Setup,
    mut out: impl Write,
) -> Result<(), Box<dyn Error>> {
    let mut config = Config::load(file)?;
    // Without the section, the backends list all tools.
    let settings = config
        .take_lock()
        .ok_or("the file has no `[lock]`: add the section with `file = \"tools.lock\"`")?;
    // Read before any backend starts.
    let before = match settings.read() {
        Err(error) if error.is_missing_file() && !checks => Lock::new(),
        Err(error) if !checks => {
            return Err(format!("{error}; to replace the file, delete it first").into());
        }
        read => read?,
    };
    Session::run(config, setup, async |session| {
        let compared = async {
            let listed = session.gateway.backends().lock_tools().await;
            let now = listed.map_err(|error| session.redacted.text(&error.to_string()))?;
            let differences = before.differences(&now);
            let text = differences.iter().map(Difference::to_string).collect::<String>();
            session.print(&text, &mut out)?;
            let summary = match checks {
                true => check(&settings, &now, differences.len())?,
                false => write(session, &settings, &now)?,
            };
            Ok(session.print(&summary, &mut out)?)
        };
        session.until_stopped(compared).await
    })
}

/// Writes the lock.
///
/// # Errors
///
/// Returns an error if the lock contains a secret or cannot be written. The file is then unchanged.
fn write(session: &Session, settings: &LockConfig, lock: &Lock) -> Result<String, Box<dyn Error>> {
    let (text, file) = (lock.to_toml_string(), settings.file());
    if session.redacted.has_secret(&text) {
        let message = "a tool definition contains a secret of the configuration, which would be \
                       written to the lock: nothing was written";
        return Err(message.into());
    }
    replace(file, &text)
        .map_err(|error| format!("cannot write the lock `{}`: {error}", file.display()))?;
    Ok(format!("wrote {}: {} approved tools\n", file.display(), lock.len()))
}

/// Returns an error if there are differences.
fn check(settings: &LockConfig, lock: &Lock, differences: usize) -> Result<String, String> {
    let file = settings.file().display();
    match differences {
        0 => Ok(format!("{} tools are as in {file}\n", lock.len())),
        1 => Err(format!("1 tool differs from {file}: review it, then run `mcp-composite lock`")),
        _ => Err(format!(
            "{differences} tools differ from {file}: review them, then run `mcp-composite lock`"
        )),
    }
}

/// Replaces a file as a whole: if this fails, the previous file stays.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = file.with_file_name(name);
    let replaced = fs::write(&new, text).and_then(|()| fs::rename(&new, file));
    if replaced.is_err() {
        // It may not exist.
        let _ = fs::remove_file(&new);
    }
    replaced
}
