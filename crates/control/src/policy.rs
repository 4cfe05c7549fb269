//! What a workspace may do.

use ringfence_grant::limits::{CEILING_MAX, IMAGE_BYTES_MAX};
use ringfence_grant::{Ceilings, Tools};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use crate::limits::{ITERATIONS_MAX, PURPOSE_HINT_BYTES_MAX};

/// A workspace's policy. What is absent sets no bound; the backend's own still hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Whether code may be run at all.
    pub enabled: bool,
    /// The tool kinds: 1 to 16 names of 1 to 64 characters `a-z 0-9 _`, each once.
    #[schema(min_items = 1, max_items = 16, example = json!(["code_execution", "bash_code_execution"]))]
    pub tools: Vec<String>,
    /// The one image that sessions run: 1 to 256 visible ASCII characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Live sessions at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub sessions_max: Option<u32>,
    /// The longest timeout of a call, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub timeout_seconds_max: Option<u32>,
    /// The longest idle time of a session, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub idle_timeout_seconds_max: Option<u32>,
    /// The longest life of a session, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub max_lifetime_seconds_max: Option<u32>,
    /// What the tools are for, told to the model where the request says nothing; at most 2000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose_hint: Option<String>,
    /// The most rounds of the gateway's tool loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub iterations_max: Option<u32>,
}

/// A member of a policy that is out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{member}` must be {must}")]
pub struct PolicyFault {
    /// The member.
    pub member: &'static str,
    /// What it must be.
    pub must: &'static str,
}

impl Policy {
    /// The policy of a workspace that was given none: nothing is allowed.
    #[must_use]
    pub fn closed() -> Self {
        Policy {
            enabled: false,
            tools: vec!["code_execution".to_owned()],
            image: None,
            sessions_max: None,
            timeout_seconds_max: None,
            idle_timeout_seconds_max: None,
            max_lifetime_seconds_max: None,
            purpose_hint: None,
            iterations_max: None,
        }
    }

    /// Holds every member against its bounds: those that a grant has, so that one can always be made.
    ///
    /// # Errors
    /// Names the member.
    pub fn check(&self) -> Result<(), PolicyFault> {
        let fail = |member, must| Err(PolicyFault { member, must });
        if self.tools().is_none() {
            return fail("tools", "1 to 16 names of 1 to 64 characters a-z, 0-9 and _, each once");
        }
        let is_image = |image: &String| {
            (1..=IMAGE_BYTES_MAX).contains(&image.len()) && image.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !self.image.as_ref().is_none_or(is_image) {
            return fail("image", "1 to 256 visible ASCII characters");
        }
        for (member, value) in [
            ("sessions_max", self.sessions_max),
            ("timeout_seconds_max", self.timeout_seconds_max),
            ("idle_timeout_seconds_max", self.idle_timeout_seconds_max),
            ("max_lifetime_seconds_max", self.max_lifetime_seconds_max),
        ] {
            if !value.is_none_or(|value| (1..=CEILING_MAX).contains(&value)) {
                return fail(member, "a whole number from 1 to 31536000");
            }
        }
        let is_hint = |hint: &String| {
            (1..=PURPOSE_HINT_BYTES_MAX).contains(&hint.len())
                && hint.chars().all(|sign| !sign.is_control() || matches!(sign, '\n' | '\t'))
        };
        if !self.purpose_hint.as_ref().is_none_or(is_hint) {
            return fail("purpose_hint", "1 to 2000 bytes of text without control characters");
        }
        if !self.iterations_max.is_none_or(|value| (1..=ITERATIONS_MAX).contains(&value)) {
            return fail("iterations_max", "a whole number from 1 to 1000");
        }
        Ok(())
    }

    /// The tools as a grant has them.
    pub(crate) fn tools(&self) -> Option<Tools> {
        Tools::new(self.tools.iter().map(String::as_str))
    }

    /// The ceilings as a grant has them.
    pub(crate) fn ceilings(&self) -> Ceilings {
        Ceilings {
            sessions_max: self.sessions_max,
            timeout_seconds_max: self.timeout_seconds_max,
            idle_timeout_seconds_max: self.idle_timeout_seconds_max,
            max_lifetime_seconds_max: self.max_lifetime_seconds_max,
        }
    }

    /// The names of the members in which two policies differ, for the audit.
    pub(crate) fn differences(&self, other: &Policy) -> Vec<&'static str> {
        let pairs = [
            ("enabled", self.enabled == other.enabled),
            ("tools", self.tools == other.tools),
            ("image", self.image == other.image),
            ("sessions_max", self.sessions_max == other.sessions_max),
            ("timeout_seconds_max", self.timeout_seconds_max == other.timeout_seconds_max),
            ("idle_timeout_seconds_max", self.idle_timeout_seconds_max == other.idle_timeout_seconds_max),
            ("max_lifetime_seconds_max", self.max_lifetime_seconds_max == other.max_lifetime_seconds_max),
            ("purpose_hint", self.purpose_hint == other.purpose_hint),
            ("iterations_max", self.iterations_max == other.iterations_max),
        ];
        pairs.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_held_to_their_bounds() {
        let good = Policy { enabled: true, timeout_seconds_max: Some(60), ..Policy::closed() };
        good.check().unwrap();
        type Spoil = fn(&mut Policy);
        let wrong: [(&str, Spoil); 9] = [
            ("tools", |policy| policy.tools.clear()),
            ("tools", |policy| policy.tools = vec!["a".to_owned(), "a".to_owned()]),
            ("tools", |policy| policy.tools = vec!["Bash".to_owned()]),
            ("image", |policy| policy.image = Some("a b".to_owned())),
            ("sessions_max", |policy| policy.sessions_max = Some(0)),
            ("timeout_seconds_max", |policy| policy.timeout_seconds_max = Some(CEILING_MAX + 1)),
            ("purpose_hint", |policy| policy.purpose_hint = Some("x".repeat(2001))),
            ("purpose_hint", |policy| policy.purpose_hint = Some("\u{7}".to_owned())),
            ("iterations_max", |policy| policy.iterations_max = Some(0)),
        ];
        for (member, spoil) in wrong {
            let mut policy = good.clone();
            spoil(&mut policy);
            assert_eq!(policy.check().unwrap_err().member, member);
            assert_eq!(good.differences(&policy), [member]);
        }
    }
}
