//! Which of several images in an index is meant.

use super::digest_like;
use crate::document::Descriptor;
use crate::error::shown;
use crate::limits::IMAGE_NAME_BYTES_MAX;
use crate::{OciError, Reference};

/// What belongs together: one image, maybe for several platforms, with its names.
pub(super) type Group = (Vec<String>, Vec<Descriptor>);

/// Sorts what an index lists by name. Without names, what is for a platform belongs together.
pub(super) fn groups(listed: &[Descriptor]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for descriptor in listed {
        let name = ["io.containerd.image.name", "org.opencontainers.image.ref.name"]
            .into_iter()
            .find_map(|key| descriptor.annotation(key))
            .filter(|name| is_plain(name));
        let is_same = |(_, members): &&mut Group| members.iter().all(|member| member.digest == descriptor.digest);
        let belongs = |(names, members): &&mut Group| match name {
            Some(name) => names.iter().any(|known| known == name),
            None => {
                names.is_empty()
                    && descriptor.platform.is_some()
                    && members.iter().all(|member| member.platform.is_some())
            }
        };
        if let Some((names, _)) = groups.iter_mut().find(is_same) {
            names.extend(name.map(str::to_owned).filter(|name| !names.contains(name)));
        } else if let Some((_, members)) = groups.iter_mut().find(belongs) {
            members.push(descriptor.clone());
        } else {
            groups.push((name.map(str::to_owned).into_iter().collect(), vec![descriptor.clone()]));
        }
    }
    groups
}

/// The group that is wanted, or the only one.
pub(super) fn choose(mut groups: Vec<Group>, name: Option<&str>) -> Result<Group, OciError> {
    let position = match name {
        None if groups.len() == 1 => Some(0),
        None if groups.is_empty() => return Err(OciError::malformed("index.json", "it names no image")),
        None => return Err(OciError::SeveralImages { names: shown_names(&groups) }),
        Some(wanted) => groups.iter().position(|(names, members)| {
            let named = names.iter().any(|name| same(name, wanted));
            named || members.iter().any(|member| digest_like(wanted) == Some(member.digest))
        }),
    };
    match position {
        Some(position) => Ok(groups.swap_remove(position)),
        None => Err(OciError::NoSuchImage {
            wanted: shown(name.unwrap_or_default().as_bytes()),
            names: shown_names(&groups),
        }),
    }
}

fn shown_names(groups: &[Group]) -> Vec<String> {
    let name = |(names, members): &Group| match (names.first(), members.first()) {
        (Some(name), _) => shown(name.as_bytes()),
        (None, Some(member)) => member.digest.to_string(),
        (None, None) => String::new(),
    };
    groups.iter().map(name).collect()
}

/// Whether a name can be told, kept and typed: visible letters of ASCII alone, and not too many.
pub(super) fn is_plain(name: &str) -> bool {
    (1..=IMAGE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether two names mean the same: as written, or with Docker's defaults filled in.
pub(super) fn same(name: &str, wanted: &str) -> bool {
    let whole = |text: &str| text.parse::<Reference>().ok();
    name == wanted || whole(name).is_some_and(|name| Some(name) == whole(wanted))
}
