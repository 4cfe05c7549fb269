//! Limits that a declaration names: the settings of a server, by the same names and in the same words.

use ringfence_op::{ImageLimits, parse_bytes};
use serde::Deserialize;

use crate::limits::{
    CPUS_MAX, CPUS_MIN, MEMORY_BYTES_MIN, PROCESSES_MIN, TIMEOUT_SECONDS_MAX, WORKSPACE_BYTES_MIN, WORKSPACE_FILES_MIN,
};

/// The table `limits` as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct WrittenLimits {
    memory: Option<Bytes>,
    processes: Option<u64>,
    cpus: Option<f64>,
    workspace_bytes: Option<Bytes>,
    workspace_files: Option<u64>,
    tmp_bytes: Option<Bytes>,
    timeout_max: Option<u64>,
}

/// A number of bytes: `1000`, `"64KiB"`, `"2GiB"`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Bytes {
    Number(u64),
    Text(String),
}

impl Bytes {
    fn count(&self) -> Option<u64> {
        match self {
            Bytes::Number(number) => Some(*number),
            Bytes::Text(text) => parse_bytes(text),
        }
    }
}

impl WrittenLimits {
    /// The limits, or what cannot be.
    pub(crate) fn check(self) -> Result<ImageLimits, String> {
        let bytes = |name: &str, written: Option<Bytes>, least: u64| {
            let wrong = || format!("`limits.{name}` takes a number of bytes such as \"512MiB\", at least {least}");
            written.map(|written| written.count().filter(|count| *count >= least).ok_or_else(wrong)).transpose()
        };
        let count = |name: &str, written: Option<u64>, least: u64| match written {
            Some(count) if count < least => Err(format!("`limits.{name}` is at least {least}")),
            other => Ok(other),
        };
        let cpus = match self.cpus {
            Some(cpus) if !(CPUS_MIN..=CPUS_MAX).contains(&cpus) => {
                return Err(format!("`limits.cpus` is a number from {CPUS_MIN} to {CPUS_MAX}"));
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
            cpus => cpus.map(|cpus| (cpus * 1000.0).round() as u64),
        };
        if self.timeout_max.is_some_and(|seconds| !(1..=TIMEOUT_SECONDS_MAX).contains(&seconds)) {
            return Err(format!("`limits.timeout-max` is a number of seconds from 1 to {TIMEOUT_SECONDS_MAX}"));
        }
        Ok(ImageLimits {
            memory_bytes: bytes("memory", self.memory, MEMORY_BYTES_MIN)?,
            processes: count("processes", self.processes, PROCESSES_MIN)?,
            cpu_millis: cpus,
            workspace_bytes: bytes("workspace-bytes", self.workspace_bytes, WORKSPACE_BYTES_MIN)?,
            workspace_inodes: count("workspace-files", self.workspace_files, WORKSPACE_FILES_MIN)?,
            tmp_bytes: bytes("tmp-bytes", self.tmp_bytes, WORKSPACE_BYTES_MIN)?,
            timeout_seconds_max: self.timeout_max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ImageLimits, String> {
        toml::from_str::<WrittenLimits>(text).map_err(|error| error.to_string())?.check()
    }

    #[test]
    fn limits_are_read_as_a_servers_settings_are() {
        let text = "memory = '512MiB'\nprocesses = 64\ncpus = 0.5\nworkspace-bytes = 1048576\nworkspace-files = 100\n\
                    tmp-bytes = '16 MiB'\ntimeout-max = 60";
        let limits = ImageLimits {
            memory_bytes: Some(512 << 20),
            processes: Some(64),
            cpu_millis: Some(500),
            workspace_bytes: Some(1 << 20),
            workspace_inodes: Some(100),
            tmp_bytes: Some(16 << 20),
            timeout_seconds_max: Some(60),
        };
        assert_eq!(read(text), Ok(limits));
        assert_eq!(read(""), Ok(ImageLimits::default()));
        assert_eq!(read("cpus = 2"), Ok(ImageLimits { cpu_millis: Some(2000), ..ImageLimits::default() }));
    }

    #[test]
    fn what_no_session_could_live_with_is_refused() {
        for text in [
            "memory = '1MiB'",
            "memory = 'much'",
            "memory = -1",
            "memory = '99999999999TiB'",
            "processes = 1",
            "cpus = 0",
            "cpus = nan",
            "cpus = 'two'",
            "workspace-bytes = 0",
            "workspace-files = 1",
            "tmp-bytes = '1KiB'",
            "timeout-max = 0",
            "timeout-max = 99999999999",
            "colour = 1",
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(text.split(' ').next().unwrap()), "{text}: {why}");
        }
    }
}
