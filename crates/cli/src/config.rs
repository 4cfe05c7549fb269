//! The checked configuration of `ringfence serve`, made of the settings' texts.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use ringfence_host::Choice;
use ringfence_interp::Renewal;
use ringfence_op::{CallLimits, CellLimits, Tier, parse_bytes};
use ringfence_tls::ServerTls;

use crate::limits::{IMAGE_NAME_BYTES_MAX, POOL_MAX, SECONDS_MAX, SESSIONS_MAX};
use crate::pull::allowed::Allowed;
use crate::served::{Offer, parse_offers};
use crate::settings::Values;
use crate::tenancy::Shared;
use crate::token::Token;

/// What `serve` runs with. Every value is in its bounds.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) state_dir: PathBuf,
    pub(crate) image: String,
    pub(crate) images: Vec<Offer>,
    pub(crate) pull: Allowed,
    pub(crate) pull_text: String,
    pub(crate) tier: Choice,
    pub(crate) tier_min: Tier,
    pub(crate) python: Option<PathBuf>,
    pub(crate) wheelhouse: Option<PathBuf>,
    pub(crate) token: Option<Token>,
    pub(crate) tls: Option<ServerTls>,
    pub(crate) shared: Shared,
    pub(crate) max_sessions: usize,
    pub(crate) pool_size: usize,
    pub(crate) pool_max: usize,
    pub(crate) memory_reserve: u64,
    pub(crate) renewal: Renewal,
    pub(crate) idle: Clamp,
    pub(crate) lifetime: Clamp,
    pub(crate) cell: CellLimits,
    pub(crate) call: CallLimits,
    pub(crate) upload_bytes_max: u64,
    pub(crate) echo_last: bool,
    pub(crate) cgroups: bool,
    pub(crate) id_base: u32,
    pub(crate) shutdown_grace: Duration,
    pub(crate) log_level: tracing::Level,
    pub(crate) log_json: bool,
}

/// A time that callers may ask for: what they get without asking, and the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clamp {
    pub(crate) default: Duration,
    pub(crate) max: Duration,
}

/// How many ids the fleet takes from `id-base` on.
pub(crate) const ID_COUNT: u32 = 65_536;

impl Config {
    /// Checks the values.
    ///
    /// # Errors
    /// The first value that cannot be, with where it came from.
    pub(crate) fn check(values: &Values) -> anyhow::Result<Self> {
        let (tier, tier_min) = tier(values)?;
        let shared = Shared::check(values)?;
        let token = values.text("auth-token-file").map(|path| Token::read(path.as_ref())).transpose()?;
        let tls = tls(values)?;
        let proven = token.is_some() || tls.as_ref().is_some_and(ServerTls::proves_peers);
        if shared.tenancy.is_some() && !proven {
            bail!(
                "`require-tenancy` needs `auth-token-file` or `tls-client-ca`: who names a workspace must prove itself"
            );
        }
        Ok(Config {
            token,
            tls,
            shared,
            tier,
            tier_min,
            listen: values.parse("listen", |text| text.parse().ok())?,
            state_dir: state_dir(values)?,
            image: values.parse("image", image_name)?,
            images: values.parse("images", parse_offers)?,
            pull: values.parse("pull", Allowed::parse)?,
            pull_text: values.text("pull").unwrap_or_default().to_owned(),
            python: values.text("python").map(PathBuf::from),
            wheelhouse: wheelhouse(values)?,
            max_sessions: size(count(values, "max-sessions", 1, SESSIONS_MAX)?),
            pool_size: size(count(values, "pool-size", 0, POOL_MAX)?),
            pool_max: size(count(values, "pool-max", 0, POOL_MAX)?),
            memory_reserve: values.parse("memory-reserve", bytes)?,
            renewal: renewal(values)?,
            idle: clamp(values, "idle-timeout")?,
            lifetime: clamp(values, "lifetime")?,
            cell: cell_limits(values)?,
            call: call_limits(values)?,
            upload_bytes_max: values.parse("upload-bytes-max", bytes)?,
            echo_last: values.parse("echo-last-expression", |text| text.parse().ok())?,
            cgroups: values.parse("cgroups", |text| text.parse().ok())?,
            id_base: values.parse("id-base", id_base)?,
            shutdown_grace: seconds(values, "shutdown-grace", 0)?,
            log_level: values.parse("log-level", |text| text.parse().ok())?,
            log_json: values.parse("log-format", |text| ["text", "json"].iter().position(|known| *known == text))? == 1,
        })
    }
}

/// The tier that is asked for, and the weakest that will do. Only tiers that this build has are names of one.
fn tier(values: &Values) -> anyhow::Result<(Choice, Tier)> {
    let built = |text: &str| Tier::parse(text).filter(|tier| ringfence_host::BUILT.contains(tier));
    let choice = values.parse("tier", |text| match text {
        "auto" => Some(Choice::Auto),
        "none" => Some(Choice::Named(Tier::None)),
        name => built(name).map(Choice::Named),
    })?;
    let dangerous: bool = values.parse("dangerously-without-isolation", |text| text.parse().ok())?;
    if choice == Choice::Named(Tier::None) && !dangerous {
        bail!(
            "`tier` is `none`, by which nothing holds what sessions run; if that is what you want, say \
             `--dangerously-without-isolation` as well"
        );
    }
    let least = match (values.text("tier-min"), choice) {
        (Some(_), _) => values.parse("tier-min", built)?,
        (None, Choice::Named(tier)) => tier,
        (None, Choice::Auto) => Tier::Cell,
    };
    match choice {
        Choice::Named(tier) if tier < least => {
            bail!("`tier` is `{tier}`, which is weaker than `tier-min`, `{least}`")
        }
        _ => Ok((choice, least)),
    }
}

/// When zygotes are replaced; 0 is never.
fn renewal(values: &Values) -> anyhow::Result<Renewal> {
    let forks = count(values, "zygote-forks-max", 0, u32::MAX.into())?;
    let age = seconds(values, "zygote-age-max", 0)?;
    Ok(Renewal {
        forks_max: u32::try_from(forks).ok().and_then(NonZeroU32::new),
        age_max: Some(age).filter(|age| !age.is_zero()),
    })
}

/// What connections are shown and asked for. Read now: once it serves, the process has no power over the host's files.
fn tls(values: &Values) -> anyhow::Result<Option<ServerTls>> {
    let path = |name| values.text(name).map(Path::new);
    match (path("tls-cert"), path("tls-key"), path("tls-client-ca")) {
        (Some(certificate), Some(key), client_ca) => Ok(Some(ServerTls::read(certificate, key, client_ca)?)),
        (None, None, None) => Ok(None),
        _ => bail!("`tls-cert` and `tls-key` go together, and `tls-client-ca` needs both"),
    }
}

fn cell_limits(values: &Values) -> anyhow::Result<CellLimits> {
    let limits = CellLimits {
        memory_bytes: values.parse("memory", at_least(64 << 20))?,
        processes: count(values, "processes", 8, 30_000)?,
        cpu_millis: values.parse("cpus", cpu_millis)?,
        workspace_bytes: values.parse("workspace-bytes", at_least(1 << 20))?,
        workspace_inodes: count(values, "workspace-files", 16, 100_000_000)?,
        tmp_bytes: values.parse("tmp-bytes", at_least(1 << 20))?,
        shm_bytes: values.parse("shm-bytes", at_least(64 << 10))?,
        open_files: count(values, "open-files", 64, 1_000_000)?,
    };
    Ok(limits)
}

fn call_limits(values: &Values) -> anyhow::Result<CallLimits> {
    let timeout = clamp(values, "timeout")?;
    Ok(CallLimits {
        timeout_default: timeout.default,
        timeout_max: timeout.max,
        output_bytes_max: size(values.parse("output-bytes-max", within(4 << 10, 256 << 20))?),
        ..CallLimits::default()
    })
}

/// A name, an id, a digest, or a path of a declaration: nothing that could break a line.
fn image_name(text: &str) -> Option<String> {
    let fits = !text.is_empty() && text.len() <= IMAGE_NAME_BYTES_MAX && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

/// A folder that is there. Nothing but wheels should be in it: sessions read all of it.
fn wheelhouse(values: &Values) -> anyhow::Result<Option<PathBuf>> {
    let Some(text) = values.text("wheelhouse") else { return Ok(None) };
    let folder = std::fs::canonicalize(text).with_context(|| format!("`wheelhouse` cannot be `{text}`"))?;
    if !folder.is_dir() || folder.parent().is_none() {
        bail!("`wheelhouse` cannot be `{text}`; a folder of wheels is wanted");
    }
    Ok(Some(folder))
}

/// Where images are kept.
pub(crate) fn state_dir(values: &Values) -> anyhow::Result<PathBuf> {
    if let Some(path) = values.text("state-dir") {
        return std::path::absolute(path).with_context(|| format!("the state folder {path}"));
    }
    ringfence_image::default_state_dir()
        .context("neither XDG_STATE_HOME nor HOME is set: name a folder for images with `--state-dir`")
}

fn clamp(values: &Values, name: &str) -> anyhow::Result<Clamp> {
    let default = seconds(values, &format!("{name}-default"), 1)?;
    let max = seconds(values, &format!("{name}-max"), 1)?;
    if default > max {
        bail!("`{name}-default` ({} s) is above `{name}-max` ({} s)", default.as_secs_f64(), max.as_secs_f64());
    }
    Ok(Clamp { default, max })
}

fn seconds(values: &Values, name: &str, least: u64) -> anyhow::Result<Duration> {
    count(values, name, least, SECONDS_MAX).map(Duration::from_secs)
}

pub(crate) fn count(values: &Values, name: &str, least: u64, most: u64) -> anyhow::Result<u64> {
    let parse = |text: &str| text.parse().ok().filter(|number| (least..=most).contains(number));
    values.parse(name, parse).with_context(|| format!("`{name}` must be from {least} to {most}"))
}

/// A number of bytes: `1000`, `64KiB`, `2GiB`.
fn bytes(text: &str) -> Option<u64> {
    // i64::MAX is the largest length that the kernel takes.
    parse_bytes(text).filter(|all| i64::try_from(*all).is_ok())
}

fn within(least: u64, most: u64) -> impl Fn(&str) -> Option<u64> {
    move |text| bytes(text).filter(|all| (least..=most).contains(all))
}

fn at_least(least: u64) -> impl Fn(&str) -> Option<u64> {
    within(least, u64::MAX)
}

fn cpu_millis(text: &str) -> Option<u64> {
    let cpus: f64 = text.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    (0.01..=1024.0).contains(&cpus).then_some((cpus * 1000.0).round() as u64)
}

fn id_base(text: &str) -> Option<u32> {
    // Ids below 65536 belong to the host's users; the last id is no id.
    text.parse().ok().filter(|base| (65_536..=u32::MAX - ID_COUNT).contains(base))
}

#[expect(clippy::cast_possible_truncation, reason = "the bounds of all counts fit the smallest usize of Linux hosts")]
fn size(number: u64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> anyhow::Result<Config> {
        let flag = |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Config::check(&Values::gather(flag, |_| None, None).unwrap())
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let config = with(&[("state-dir", "/tmp/x")]).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.cell, CellLimits::default());
        assert_eq!(config.call, CallLimits::default());
        assert_eq!(config.upload_bytes_max, 100 << 20);
        assert_eq!((config.image.as_str(), config.images.as_slice()), ("scientific", [Offer::All].as_slice()));
        assert_eq!((config.tier, config.tier_min), (Choice::Auto, Tier::Cell));
        let hour = Duration::from_secs(3600);
        assert_eq!(config.renewal, Renewal { forks_max: NonZeroU32::new(10_000), age_max: Some(hour) });
        let never = with(&[("state-dir", "/tmp/x"), ("zygote-forks-max", "0"), ("zygote-age-max", "0")]).unwrap();
        assert_eq!(never.renewal, Renewal::default());
    }

    #[test]
    fn sizes_are_read() {
        for (text, number) in [("5", Some(5)), ("64KiB", Some(65_536)), ("2 GiB", Some(2 << 30)), ("1.5GiB", None)] {
            assert_eq!(bytes(text), number, "{text}");
        }
        for text in ["", "GiB", "-1", "9999999999999TiB", "5 parsecs"] {
            assert_eq!(bytes(text), None, "{text}");
        }
        assert_eq!(cpu_millis("0.5"), Some(500));
        assert_eq!(cpu_millis("NaN"), None);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (name, value) in [
            ("listen", "localhost"),
            ("image", "go\nld"),
            ("images", "a=,b"),
            ("pull", "*"),
            ("pull", "debian"),
            ("wheelhouse", "/nonexistent"),
            ("wheelhouse", "/"),
            ("wheelhouse", "/etc/passwd"),
            ("tier", "iron"),
            ("tier", "none"),
            ("tier-min", "auto"),
            ("max-sessions", "0"),
            ("max-sessions", "many"),
            ("zygote-forks-max", "4294967296"),
            ("zygote-age-max", "-1"),
            ("memory", "1KiB"),
            ("cpus", "0"),
            ("cpus", "inf"),
            ("id-base", "0"),
            ("log-level", "loud"),
            ("log-format", "xml"),
            ("echo-last-expression", "yes"),
            ("timeout-default", "601"),
            ("output-bytes-max", "1"),
            ("auth-token-file", "/nonexistent/token"),
            ("require-tenancy", "true"),
            ("tls-cert", "/nonexistent/cert"),
            ("tls-client-ca", "/nonexistent/ca"),
        ] {
            let error = format!("{:#}", with(&[("state-dir", "/tmp/x"), (name, value)]).unwrap_err());
            let word = if name == "auth-token-file" { value } else { name };
            assert!(error.contains(word), "{name}={value}: {error}");
        }
    }
}
