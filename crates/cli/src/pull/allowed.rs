//! Which images may be pulled while the server runs: the setting `pull`.

use ringfence_oci::Reference;

/// Patterns, as they are written: always with the registry's host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Allowed {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// `HOST/PATH/*`: every repository beneath.
    Beneath { host: String, path: String },
    /// `HOST/REPOSITORY`, whatever the tag or digest.
    Repository(Reference),
    /// `HOST/REPOSITORY:TAG` or `HOST/REPOSITORY@DIGEST`: that one alone.
    One(Reference),
}

impl Allowed {
    /// Reads the setting: patterns joined by commas; nothing is fine as well.
    pub(crate) fn parse(text: &str) -> Option<Allowed> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        Some(Allowed { patterns: parts.map(Pattern::parse).collect::<Option<_>>()? })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The reference that a lease's name is, if it may be pulled.
    pub(crate) fn reference(&self, name: &str) -> Option<Reference> {
        let reference: Reference = name.parse().ok()?;
        self.patterns.iter().any(|pattern| pattern.takes(&reference)).then_some(reference)
    }
}

impl Pattern {
    fn parse(text: &str) -> Option<Pattern> {
        let (host, rest) = text.split_once('/')?;
        if let Some(path) = rest.strip_suffix('*') {
            // Only whole parts: `team*` would be everybody whose name begins so.
            let whole = path.is_empty() || path.ends_with('/');
            let probe: Reference = format!("{host}/{path}x/x").parse().ok()?;
            let plain = probe.host() == host && probe.repository() == format!("{path}x/x");
            return (whole && plain).then(|| Pattern::Beneath { host: host.to_owned(), path: path.to_owned() });
        }
        let reference: Reference = text.parse().ok()?;
        if reference.host() != host {
            return None;
        }
        let is_one = rest.contains([':', '@']);
        Some(if is_one { Pattern::One(reference) } else { Pattern::Repository(reference) })
    }

    fn takes(&self, reference: &Reference) -> bool {
        match self {
            Pattern::Beneath { host, path } => reference.host() == host && reference.repository().starts_with(path),
            Pattern::Repository(one) => reference.host() == one.host() && reference.repository() == one.repository(),
            // Whole: of a tag with a digest the digest alone counts, which may be any.
            Pattern::One(one) => reference == one,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_takes_what_it_names_and_nothing_beside_it() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let other = format!("sha256:{}", "b".repeat(64));
        let pinned = format!("r.example/pinned@{digest}");
        let text = format!("r.example/team/*, docker.io/library/python,r.example:5000/x/y:1,{pinned}");
        let allowed = Allowed::parse(&text).unwrap();
        for name in [
            "r.example/team/a".to_owned(),
            "r.example/team/a/b:2".to_owned(),
            format!("r.example/team/a@{other}"),
            "python".to_owned(),
            "python:3.12-slim".to_owned(),
            format!("docker.io/library/python@{other}"),
            "r.example:5000/x/y:1".to_owned(),
            pinned.clone(),
        ] {
            assert!(allowed.reference(&name).is_some(), "{name}");
        }
        for name in [
            "r.example/teams/a".to_owned(),
            "r.example/team".to_owned(),
            "r.example/other/team/a".to_owned(),
            "r.example:5000/team/a".to_owned(),
            "r.example.evil/team/a".to_owned(),
            "r.example@evil/team/a".to_owned(),
            "team/a".to_owned(),
            "debian".to_owned(),
            "someone/python".to_owned(),
            "r.example:5000/x/y:2".to_owned(),
            "r.example:5000/x/y".to_owned(),
            format!("r.example:5000/x/y:1@{other}"),
            format!("r.example/pinned@{other}"),
            "r.example/pinned".to_owned(),
            "r.example/team/../secret/a".to_owned(),
            "http://r.example/team/a".to_owned(),
            String::new(),
        ] {
            assert!(allowed.reference(&name).is_none(), "{name}");
        }
        let all = Allowed::parse("docker.io/*").unwrap();
        assert!(all.reference("debian").is_some() && all.reference("quay.io/x/y").is_none());
        assert!(Allowed::parse("").unwrap().is_empty() && Allowed::default().reference("debian").is_none());
    }

    #[test]
    fn what_names_no_registry_is_no_pattern() {
        for text in ["*", "*/x", "debian", "team/*", "library/python", "r.example/", "r.example/te*", "r.example/*/x"] {
            assert_eq!(Allowed::parse(text), None, "{text}");
        }
        for text in ["https://r.example/*", "r.example/*,*", "index.docker.io/library/python", "r.example/A/*"] {
            assert_eq!(Allowed::parse(text), None, "{text}");
        }
    }
}
