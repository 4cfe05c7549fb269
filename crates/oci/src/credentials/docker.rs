//! Docker's `config.json`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{Login, helper};
use crate::blobs::read_bounded;
use crate::limits::CREDENTIALS_BYTES_MAX;
use crate::{OciError, Reference};

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Auth {
    auth: Option<Zeroizing<String>>,
    username: Option<String>,
    password: Option<Zeroizing<String>>,
    identitytoken: Option<Zeroizing<String>>,
}

/// The order is Docker's: a helper for this registry, the helper for all, then what is in the file itself.
pub(super) fn login(path: &Path, reference: &Reference) -> Result<Login, OciError> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Login::Anonymous),
        other => other.map_err(OciError::file("open the credentials", path))?,
    };
    let content = Zeroizing::new(read_bounded(&mut file, CREDENTIALS_BYTES_MAX, "the file of credentials")?);
    let wrong = |why| OciError::Credentials { path: path.to_owned(), why };
    // serde's message would quote the file.
    let config: Config = serde_json::from_slice(&content).map_err(|_| wrong("it is no JSON of Docker's"))?;
    let key = reference.credential_key();
    let named = config.cred_helpers.iter().find(|(host, _)| is_for(host, reference)).map(|(_, helper)| helper);
    if let Some(helper) = named.or(config.creds_store.as_ref())
        && let Some(login) = helper::get(helper, key)?
    {
        return Ok(login);
    }
    let auth = config
        .auths
        .get(key)
        .or_else(|| config.auths.iter().find(|(host, _)| is_for(host, reference)).map(|(_, auth)| auth));
    auth.map_or(Ok(Login::Anonymous), |auth| of(auth).map_err(wrong))
}

fn of(auth: &Auth) -> Result<Login, &'static str> {
    if let Some(token) = auth.identitytoken.as_ref().filter(|token| !token.is_empty()) {
        return Ok(Login::Identity(token.clone()));
    }
    if let Some(coded) = auth.auth.as_ref().filter(|coded| !coded.is_empty()) {
        let pair = Zeroizing::new(STANDARD.decode(coded.trim()).map_err(|_| "an `auth` is not base64")?);
        let text = std::str::from_utf8(&pair).map_err(|_| "an `auth` is no text")?.trim_end_matches('\0');
        let (user, secret) = text.split_once(':').ok_or("an `auth` has no colon")?;
        return Ok(Login::Password { user: user.to_owned(), secret: Zeroizing::new(secret.to_owned()) });
    }
    match (&auth.username, &auth.password) {
        (Some(user), Some(secret)) if !user.is_empty() => {
            Ok(Login::Password { user: user.clone(), secret: secret.clone() })
        }
        // `docker login` with a helper leaves empty entries.
        _ => Ok(Login::Anonymous),
    }
}

/// Whether a key of the file is this registry: keys may be URLs, as old clients wrote them.
fn is_for(key: &str, reference: &Reference) -> bool {
    let rest = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let host = rest.split('/').next().unwrap_or_default();
    let hub = ["docker.io", "index.docker.io", "registry-1.docker.io"];
    host.eq_ignore_ascii_case(reference.host()) || hub.contains(&host) && reference.host() == "docker.io"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login_of(json: &str, reference: &str) -> Result<Login, OciError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, json).unwrap();
        login(&path, &reference.parse().unwrap())
    }

    fn shown(login: &Login) -> String {
        match login {
            Login::Anonymous => "anonymous".to_owned(),
            Login::Password { user, secret } => format!("{user} {}", secret.as_str()),
            Login::Identity(token) => format!("identity {}", token.as_str()),
        }
    }

    #[test]
    fn auths_are_found_by_their_registry() {
        let file = r#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "aHViOnNlY3JldA=="},
            "r.example:5000": {"auth": "YTpiOmM="},
            "https://old.example/v1/": {"username": "u", "password": "p"},
            "id.example": {"auth": "eDo=", "identitytoken": "t"},
            "empty.example": {}
        }, "HttpHeaders": {"x": "y"}}"#;
        for (reference, expected) in [
            ("debian", "hub secret"),
            ("docker.io/a/b", "hub secret"),
            ("r.example:5000/a", "a b:c"),
            ("r.example/a", "anonymous"),
            ("old.example/a", "u p"),
            ("id.example/a", "identity t"),
            ("empty.example/a", "anonymous"),
            ("other.example/a", "anonymous"),
        ] {
            assert_eq!(shown(&login_of(file, reference).unwrap()), expected, "{reference}");
        }
        assert_eq!(shown(&login(Path::new("/nonexistent/x"), &"a".parse().unwrap()).unwrap()), "anonymous");
    }

    #[test]
    fn what_is_wrong_is_told_without_its_content() {
        for json in [
            r#"{"auths": {"a.example": {"auth": "geheim!"}}}"#,
            r#"{"auths": {"a.example": {"auth": "Z2VoZWlt"}}}"#,
            r#"{"auths": "geheim"}"#,
            r#"{"auths": {"a.example": {"auth": 7, "password": "geheim"#,
        ] {
            let Err(error) = login_of(json, "a.example/b") else { panic!("accepted: {json}") };
            let text = format!("{error} {error:?}");
            assert!(!text.contains("geheim") && !text.contains("Z2Vo"), "{text}");
        }
    }
}
