//! The table of settings: one row for each thing that can be set, whatever way it is set.
//!
//! A setting `name` is the flag `--name`, the variable `RINGFENCE_NAME` (upper case, `_` for `-`) and the key `name`
//! (or with `_`) of the configuration file. The first of flag, variable, file, default counts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::limits::CONFIG_FILE_BYTES_MAX;

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The name, in words joined by `-`.
    pub(crate) name: &'static str,
    /// What stands for a value in the help; `BOOL` may be given without a value.
    pub(crate) value: &'static str,
    /// The default as one would write it; empty where it is worked out at the start.
    pub(crate) default: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
}

const fn row(name: &'static str, value: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, value, default, help }
}

/// A value that may be given without one: `--echo-last-expression` is `--echo-last-expression=true`.
pub(crate) const BOOL: &str = "true|false";

/// Every setting of `ringfence serve`.
#[rustfmt::skip]
pub(crate) const SETTINGS: &[Setting] = &[
    row("listen", "ADDRESS:PORT", "127.0.0.1:8080", "Where to listen; port 0 takes a free one"),
    row("state-dir", "FOLDER", "", "Where images are kept, and without namespaces the sessions' folders [default: /var/lib/ringfence as root, else ~/.local/state/ringfence]"),
    row("image", "IMAGE", "scientific", "What sessions find that ask for no other image: scientific, bare, node, a name or digest of the store, or a declaration's file"),
    row("images", "LIST", "*", "What else sessions can ask for: names or digests, NAME=IMAGE for a further name, * for the whole store; joined by commas"),
    row("pull", "LIST", "", "Images that are pulled when a lease names one that is not there, which the default serves meanwhile: HOST/REPOSITORY, with :TAG or @DIGEST that one alone, HOST/PATH/* all beneath; joined by commas [default: none]"),
    row("tier", "auto|gvisor|cell|confined|none", "auto", "How sessions are held: the best that this host offers, or that one"),
    row("tier-min", "gvisor|cell|confined", "", "Start only with this tier or a stronger one [default: cell, or what --tier names]"),
    row("dangerously-without-isolation", BOOL, "false", "Allow `--tier none`: what sessions run can do whatever the server's user can"),
    row("python", "PATH", "", "The Python that images stand on (3.8 or later; 3.10 to 3.14 for scientific) [default: python3 of PATH]"),
    row("wheelhouse", "FOLDER", "", "A folder of wheels that sessions see read-only, where their pip finds what it is asked for"),
    row("auth-token-file", "FILE", "", "Ask every caller for the bearer token in this file (mode 0600)"),
    row("tls-cert", "FILE", "", "Speak TLS: the certificate chain, in PEM; needs tls-key"),
    row("tls-key", "FILE", "", "Its private key, in PEM (mode 0600)"),
    row("tls-client-ca", "FILE", "", "Let in only callers with a certificate of these authorities, in PEM"),
    row("require-tenancy", BOOL, "false", "Share the server between workspaces: a front door that proves itself by the token or a certificate must say who each request is for"),
    row("tenant-max-sessions", "COUNT", "", "With tenancy: sessions of one workspace, whatever its grant says [default: no ceiling of its own]"),
    row("tenant-reserve", "COUNT", "", "With tenancy: sessions kept free for workspaces below their fair share [default: a tenth of max-sessions, at least 1]"),
    row("tenant-rate", "NUMBER", "", "With tenancy: requests of one workspace a second; more are refused with 503 [default: as many as come]"),
    row("tenant-burst", "COUNT", "50", "With tenancy: requests of one workspace that may come at once after a rest"),
    row("tenant-zygotes", "COUNT", "0", "With tenancy: give workspaces zygotes that fork for none but one of them, so many at the same time; where all are in use, another workspace is refused with 503; 0: workspaces share zygotes"),
    row("max-sessions", "COUNT", "100", "Sessions at the same time; more are refused with 503"),
    row("pool-size", "COUNT", "4", "Cells kept ready ahead of time"),
    row("pool-max", "COUNT", "16", "Cells kept ready at most, where leases have lately found none; no fewer than `pool-size`"),
    row("zygote-forks-max", "COUNT", "10000", "Sessions forked from one zygote, which share its address layout, before another takes its place; 0 for any number"),
    row("zygote-age-max", "SECONDS", "3600", "How long a zygote of which a session was leased serves before another takes its place; 0 for ever"),
    row("memory-reserve", "BYTES", "256MiB", "Memory of the host, or of the server's own cgroup, that stays free: with less, leases are refused with 503; 0 for none"),
    row("timeout-default", "SECONDS", "30", "The timeout of a call that names none"),
    row("timeout-max", "SECONDS", "600", "Larger timeouts are clamped to this"),
    row("idle-timeout-default", "SECONDS", "900", "A session is released after so long without a call, where its lease names no other time"),
    row("idle-timeout-max", "SECONDS", "3600", "Larger idle timeouts are clamped to this"),
    row("lifetime-default", "SECONDS", "3600", "A session is released so long after its lease, where it names no other time"),
    row("lifetime-max", "SECONDS", "86400", "Longer lifetimes are clamped to this"),
    row("memory", "BYTES", "2GiB", "Memory of a session, files in it included"),
    row("processes", "COUNT", "256", "Processes and threads of a session"),
    row("cpus", "NUMBER", "1", "CPUs of a session, such as 0.5 or 2"),
    row("workspace-bytes", "BYTES", "1GiB", "Size of a session's /workspace"),
    row("workspace-files", "COUNT", "100000", "Files and folders in a session's /workspace"),
    row("tmp-bytes", "BYTES", "256MiB", "Size of a session's /tmp"),
    row("shm-bytes", "BYTES", "256MiB", "Size of a session's /dev/shm"),
    row("open-files", "COUNT", "1024", "Open files of each process"),
    row("upload-bytes-max", "BYTES", "100MiB", "The largest upload"),
    row("output-bytes-max", "BYTES", "1MiB", "What is kept of each output stream of a call: its head and its tail"),
    row("echo-last-expression", BOOL, "false", "Print the value of a call's last expression, as a notebook does"),
    row("cgroups", BOOL, "true", "Limit sessions by cgroup where the host has one that can be written; false: by rlimits"),
    row("id-base", "ID", "1000000000", "As root: the first of the 65536 user ids of the host that cells run under"),
    row("shutdown-grace", "SECONDS", "10", "How long running calls may go on after SIGTERM"),
    row("log-level", "LEVEL", "info", "error, warn, info, debug or trace; to standard error"),
    row("log-format", "text|json", "text", "How log lines are written"),
];

/// The row of that name.
pub(crate) fn setting(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

impl Setting {
    /// Its environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("RINGFENCE_{}", self.name.to_uppercase().replace('-', "_"))
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The command line.
    Flag,
    /// The environment variable of that name.
    Variable(String),
    /// The configuration file of that name.
    File(PathBuf),
    /// The table above, or what the machine gives.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag => f.write_str("command line"),
            Source::Variable(name) => f.write_str(name),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Default => f.write_str("default"),
        }
    }
}

/// One value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Given {
    /// As it was written; empty where nothing is set and there is no default.
    pub(crate) text: String,
    /// Who wrote it.
    pub(crate) source: Source,
}

/// The value of every setting.
#[derive(Debug)]
pub(crate) struct Values(BTreeMap<&'static str, Given>);

impl Values {
    /// Takes each setting from the first that has it: flags, environment, file, default.
    pub(crate) fn gather(
        flag: impl Fn(&str) -> Option<String>,
        variable: impl Fn(&str) -> Option<String>,
        file: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let mut from_file = match file {
            Some(path) => read_file(path)?,
            None => BTreeMap::new(),
        };
        let mut values = BTreeMap::new();
        for setting in SETTINGS {
            let of_file = from_file.remove(setting.name);
            let given = if let Some(text) = flag(setting.name) {
                Given { text, source: Source::Flag }
            } else if let Some(text) = variable(&setting.variable()) {
                Given { text, source: Source::Variable(setting.variable()) }
            } else if let (Some(text), Some(path)) = (of_file, file) {
                Given { text, source: Source::File(path.to_owned()) }
            } else {
                Given { text: setting.default.to_owned(), source: Source::Default }
            };
            values.insert(setting.name, given);
        }
        Ok(Values(values))
    }

    /// The value of a setting; `None` where it is not set and has no default.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|given| given.text.as_str()).filter(|text| !text.is_empty())
    }

    /// Where the value of a setting came from.
    pub(crate) fn source(&self, name: &str) -> Option<&Source> {
        self.0.get(name).map(|given| &given.source)
    }

    /// The value, parsed.
    ///
    /// # Errors
    /// A text that says which value is wrong, where it came from and what would be right.
    pub(crate) fn parse<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> anyhow::Result<T> {
        let given = self.0.get(name).with_context(|| format!("there is no setting `{name}`"))?;
        let wanted = setting(name).map_or("", |setting| setting.value);
        parse(&given.text).with_context(|| {
            format!("`{name}` cannot be `{}` (from: {}); {wanted} is wanted", given.text, given.source)
        })
    }

    /// The file of settings that would give the same, each with where its value came from.
    pub(crate) fn print(&self) -> String {
        let mut out = String::new();
        for setting in SETTINGS {
            let Some(given) = self.0.get(setting.name) else { continue };
            let off = if given.text.is_empty() { "# " } else { "" };
            let text = toml::Value::String(given.text.clone());
            out.push_str(&format!("{off}{} = {text}  # {}\n", setting.name, given.source));
        }
        out
    }
}

/// Reads a configuration file: a flat TOML table whose keys are settings.
fn read_file(path: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let about = || format!("the configuration file {}", path.display());
    let length = std::fs::metadata(path).with_context(about)?.len();
    if length > CONFIG_FILE_BYTES_MAX {
        bail!("{} has {length} bytes; at most {CONFIG_FILE_BYTES_MAX} are read", about());
    }
    let text = std::fs::read_to_string(path).with_context(about)?;
    read_table(&text, about)
}

/// Reads the text of a configuration file, which `about` names.
fn read_table(text: &str, about: impl Fn() -> String + Copy) -> anyhow::Result<BTreeMap<String, String>> {
    let table: toml::Table = text.parse().with_context(about)?;
    let mut values = BTreeMap::new();
    for (key, value) in table {
        let name = key.replace('_', "-");
        if setting(&name).is_none() {
            bail!("{}: there is no setting `{key}`; `ringfence serve --help` lists them", about());
        }
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            _ => bail!("{}: `{key}` must be a text, a number or true or false", about()),
        };
        if values.insert(name, text).is_some() {
            bail!("{}: `{key}` is set twice", about());
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn the_first_that_has_a_value_gives_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ringfence.toml");
        std::fs::write(&path, "max_sessions = 7\npool-size = 8\ntimeout-max = 9\n").unwrap();
        let flag = |name: &str| (name == "max-sessions").then(|| "5".to_owned());
        let variable =
            |name: &str| ["RINGFENCE_MAX_SESSIONS", "RINGFENCE_POOL_SIZE"].contains(&name).then(|| "6".to_owned());
        let values = Values::gather(flag, variable, Some(&path)).unwrap();
        let texts = ["max-sessions", "pool-size", "timeout-max", "processes"].map(|name| values.text(name).unwrap());
        assert_eq!(texts, ["5", "6", "9", "256"]);
        let printed = values.print();
        for line in [
            "max-sessions = \"5\"  # command line".to_owned(),
            "pool-size = \"6\"  # RINGFENCE_POOL_SIZE".to_owned(),
            format!("timeout-max = \"9\"  # {}", path.display()),
            "processes = \"256\"  # default".to_owned(),
        ] {
            assert!(printed.contains(&line), "{line} in {printed}");
        }
    }

    /// A target of the fuzzers (`ringfence-fuzz`): what is read holds known settings, and is the same once written.
    fn configuration(data: &[u8]) {
        let Ok(text) = std::str::from_utf8(data) else { return };
        let about = || "the configuration file".to_owned();
        let Ok(values) = read_table(text, about) else { return };
        assert!(values.keys().all(|name| setting(name).is_some()));
        let texts = values.iter().map(|(name, text)| (name.clone(), toml::Value::String(text.clone())));
        let written = toml::Table::from_iter(texts).to_string();
        assert_eq!(read_table(&written, about).unwrap(), values, "{written}");
    }

    #[test]
    fn a_configuration_of_any_bytes_is_answered() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/configuration");
        let mutations = ringfence_fuzz::limits::MUTATIONS;
        assert!(ringfence_fuzz::exercise(&corpus, configuration, mutations).unwrap() > mutations);
    }

    #[test]
    fn what_is_printed_can_be_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ringfence.toml");
        let first = Values::gather(nothing, nothing, None).unwrap();
        std::fs::write(&path, first.print()).unwrap();
        let second = Values::gather(nothing, nothing, Some(&path)).unwrap();
        for setting in SETTINGS {
            assert_eq!(first.text(setting.name), second.text(setting.name), "{}", setting.name);
        }
    }

    #[test]
    fn a_file_with_an_unknown_or_misshapen_setting_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ringfence.toml");
        for (text, word) in [
            ("max-session = 3", "max-session"),
            ("[serve]\nlisten = 'x'", "serve"),
            ("memory = [1]", "memory"),
            ("max-sessions = 1\nmax_sessions = 2", "twice"),
            ("listen", "ringfence.toml"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = format!("{:#}", Values::gather(nothing, nothing, Some(&path)).unwrap_err());
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
