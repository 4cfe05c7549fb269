//! The settings of a server that workspaces share.

use std::time::Duration;

use anyhow::{Context, bail};
use ringfence_server::{Rate, Tenancy};
use ringfence_session::Sharing;

use crate::config::count;
use crate::limits::{RATE_MAX, RATE_MIN, SESSIONS_MAX, TENANT_ZYGOTES_MAX};
use crate::settings::{Source, Values};

/// How workspaces share the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shared {
    /// What the door asks for; `None` where the server is not shared.
    pub(crate) tenancy: Option<Tenancy>,
    /// How many sessions each may have.
    pub(crate) sharing: Sharing,
    /// How many zygotes of single workspaces there may be; `None` where workspaces share them.
    pub(crate) zygotes: Option<usize>,
}

/// Settings that say nothing where the server is not shared.
const OF_TENANTS: [&str; 5] =
    ["tenant-max-sessions", "tenant-reserve", "tenant-rate", "tenant-burst", "tenant-zygotes"];

impl Shared {
    /// Checks the values.
    ///
    /// # Errors
    /// A value that cannot be; a limit of tenants where there are none.
    pub(crate) fn check(values: &Values) -> anyhow::Result<Self> {
        let required: bool = values.parse("require-tenancy", |text| text.parse().ok())?;
        if !required {
            if let Some(name) = OF_TENANTS.into_iter().find(|name| values.source(name) != Some(&Source::Default)) {
                bail!("`{name}` is about workspaces that share a server: it needs `require-tenancy`");
            }
            let sharing = Sharing { sessions_each_max: None, reserve: None };
            return Ok(Shared { tenancy: None, sharing, zygotes: None });
        }
        let optional = |name, least| {
            let number = values.text(name).map(|_| count(values, name, least, SESSIONS_MAX)).transpose()?;
            anyhow::Ok(number.map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
        };
        let sharing =
            Sharing { sessions_each_max: optional("tenant-max-sessions", 1)?, reserve: optional("tenant-reserve", 1)? };
        let rate = values.text("tenant-rate").map(|_| rate(values)).transpose()?;
        let zygotes = usize::try_from(count(values, "tenant-zygotes", 0, TENANT_ZYGOTES_MAX)?).ok();
        let zygotes = zygotes.filter(|zygotes| *zygotes > 0);
        Ok(Shared { tenancy: Some(Tenancy { rate }), sharing, zygotes })
    }
}

fn rate(values: &Values) -> anyhow::Result<Rate> {
    let parse = |text: &str| text.parse().ok().filter(|number| (RATE_MIN..=RATE_MAX).contains(number));
    let per_second: f64 = values
        .parse("tenant-rate", parse)
        .with_context(|| format!("`tenant-rate` must be from {RATE_MIN} to {RATE_MAX} a second"))?;
    let burst = count(values, "tenant-burst", 1, 1_000_000)?;
    Ok(Rate { interval: Duration::from_secs_f64(per_second.recip()), burst: u32::try_from(burst).unwrap_or(u32::MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(given: &[(&str, &str)]) -> anyhow::Result<Shared> {
        let flag = |name: &str| given.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Shared::check(&Values::gather(flag, |_| None, None).unwrap())
    }

    #[test]
    fn limits_of_tenants_are_taken_with_tenancy_alone() {
        assert_eq!(with(&[]).unwrap().tenancy, None);
        let given = [
            ("require-tenancy", "true"),
            ("tenant-max-sessions", "7"),
            ("tenant-reserve", "3"),
            ("tenant-rate", "0.5"),
            ("tenant-burst", "4"),
            ("tenant-zygotes", "8"),
        ];
        let shared = with(&given).unwrap();
        assert_eq!(shared.sharing, Sharing { sessions_each_max: Some(7), reserve: Some(3) });
        let rate = Rate { interval: Duration::from_secs(2), burst: 4 };
        assert_eq!((shared.tenancy, shared.zygotes), (Some(Tenancy { rate: Some(rate) }), Some(8)));
        let plain = with(&given[..1]).unwrap();
        assert_eq!((plain.tenancy, plain.zygotes), (Some(Tenancy { rate: None }), None));
        for (name, value) in &given[1..] {
            let error = format!("{:#}", with(&[(name, value)]).unwrap_err());
            assert!(error.contains(name) && error.contains("require-tenancy"), "{error}");
        }
        for (name, value) in [
            ("require-tenancy", "yes"),
            ("tenant-max-sessions", "0"),
            ("tenant-reserve", "0"),
            ("tenant-rate", "0"),
            ("tenant-rate", "NaN"),
            ("tenant-rate", "inf"),
            ("tenant-rate", "-1"),
            ("tenant-zygotes", "1001"),
            ("tenant-zygotes", "all"),
        ] {
            // The first that is given counts.
            let error = format!("{:#}", with(&[(name, value), ("require-tenancy", "true")]).unwrap_err());
            assert!(error.contains(name), "{name}={value}: {error}");
        }
    }
}
