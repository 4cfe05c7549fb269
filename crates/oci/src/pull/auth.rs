//! What a registry wants to see before it answers: a token of the service that it names, or name and password.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::http::{Answer, Asked, Http};
use super::origin::Origin;
use crate::blobs::read_bounded;
use crate::credentials::Login;
use crate::limits::{CHALLENGE_PARAMETERS_MAX, TOKEN_BYTES_MAX};
use crate::{Credentials, OciError, Progress, Reference};

/// The access to one repository.
pub(super) struct Access<'a> {
    reference: &'a Reference,
    credentials: &'a Credentials,
    /// Looked up when it is needed first.
    login: Option<Login>,
    /// The line that goes with each request.
    header: Option<Zeroizing<String>>,
}

impl fmt::Debug for Access<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Access").field("reference", self.reference).finish_non_exhaustive()
    }
}

impl<'a> Access<'a> {
    pub(super) fn new(reference: &'a Reference, credentials: &'a Credentials) -> Self {
        Access { reference, credentials, login: None, header: None }
    }

    pub(super) fn header(&self) -> Option<&str> {
        self.header.as_ref().map(|header| header.as_str())
    }

    pub(super) fn repository(&self) -> &str {
        self.reference.repository()
    }

    /// A text of the registry's without what only it and we may know.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        let own = self.header().and_then(|header| header.split_once(' ')).map(|(_, secret)| secret);
        let login = self.login.as_ref().and_then(Login::secret);
        let mut text = text.to_owned();
        for secret in [own, login].into_iter().flatten().filter(|secret| !secret.is_empty()) {
            text = text.replace(secret, "[...]");
        }
        text
    }

    /// Gets what the challenges ask for.
    pub(super) fn renew(
        &mut self,
        http: &Http,
        challenges: &[String],
        registry: &Origin,
        progress: &mut dyn Progress,
    ) -> Result<(), OciError> {
        let challenges: Vec<Challenge> = challenges.iter().flat_map(|line| parse(line)).collect();
        let login = match self.login.take() {
            Some(login) => login,
            None => self.credentials.login(self.reference)?,
        };
        let login = self.login.insert(login);
        let of = |scheme: &str| challenges.iter().find(|challenge| challenge.scheme.eq_ignore_ascii_case(scheme));
        let header = if let Some(bearer) = of("Bearer") {
            let scope = format!("repository:{}:pull", self.reference.repository());
            token(http, bearer, &scope, login, registry, progress)?
        } else if let (Some(_), Some(basic)) = (of("Basic"), login.basic()) {
            basic
        } else {
            return Err(OciError::Denied {
                host: registry.authority().to_owned(),
                repository: self.reference.repository().to_owned(),
                said: ": it wants a name and a password, and none is known for it".to_owned(),
            });
        };
        self.header = Some(header);
        Ok(())
    }
}

/// Asks the token service that the registry names. The scope is ours, not the challenge's: to read this repository.
fn token(
    http: &Http,
    challenge: &Challenge,
    scope: &str,
    login: &Login,
    registry: &Origin,
    progress: &mut dyn Progress,
) -> Result<Zeroizing<String>, OciError> {
    let wrong = |why: &str| OciError::Answer {
        host: registry.authority().to_owned(),
        what: "a token".to_owned(),
        why: why.to_owned(),
    };
    let realm = challenge.parameter("realm").ok_or_else(|| wrong("its challenge names no service"))?;
    // Resolved as a redirect is: over TLS, and not into this machine for a registry elsewhere.
    let realm = registry.redirect(realm, http.plain())?;
    let service = challenge.parameter("service").unwrap_or_default();
    let mut answer = match login {
        Login::Identity(token) => {
            let form = [
                ("grant_type", "refresh_token"),
                ("service", service),
                ("client_id", "ringfence"),
                ("scope", scope),
                ("refresh_token", token.as_str()),
            ];
            http.persist(progress, || http.post(&realm, "a token", &form))?
        }
        _ => {
            let join = if realm.contains('?') { '&' } else { '?' };
            let url = format!("{realm}{join}service={}&scope={}", escaped(service), escaped(scope));
            let asked = Asked { url, what: "a token", accept: None, from: 0 };
            let basic = login.basic();
            http.persist(progress, || http.follow(&asked, basic.as_ref().map(|basic| basic.as_str())))?
        }
    };
    read_token(&mut answer)
}

fn read_token(answer: &mut Answer) -> Result<Zeroizing<String>, OciError> {
    #[derive(Deserialize)]
    struct Given {
        token: Option<Zeroizing<String>>,
        access_token: Option<Zeroizing<String>>,
    }
    let (host, what) = (answer.host(), "a token".to_owned());
    match answer.status() {
        200 => {}
        401 | 403 => {
            let said = ": its token service refuses the credentials".to_owned();
            return Err(OciError::Denied { host, repository: what, said });
        }
        status => return Err(OciError::Status { host, status, what, said: String::new() }),
    }
    let content = Zeroizing::new(read_bounded(&mut answer.body(), TOKEN_BYTES_MAX, "a token")?);
    // No word of what came is in the error: it may be a token.
    let given = serde_json::from_slice::<Given>(&content).ok();
    let token = given
        .and_then(|given| given.token.or(given.access_token))
        .filter(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
    match token {
        Some(token) => Ok(Zeroizing::new(format!("Bearer {}", token.as_str()))),
        None => Err(OciError::Answer { host, what, why: "there is no token in its answer".to_owned() }),
    }
}

/// The line for a name and a password.
pub(crate) fn basic(user: &str, secret: &str) -> Zeroizing<String> {
    let pair = Zeroizing::new(format!("{user}:{secret}"));
    let coded = Zeroizing::new(STANDARD.encode(pair.as_bytes()));
    Zeroizing::new(format!("Basic {}", coded.as_str()))
}

/// Everything but unreserved characters as `%XX` (RFC 3986).
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

/// One challenge of a `WWW-Authenticate` line (RFC 9110, 11.6.1).
#[derive(Debug, PartialEq, Eq)]
struct Challenge {
    scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// The challenges of a line; what is not understood ends it.
fn parse(line: &str) -> Vec<Challenge> {
    let mut challenges: Vec<Challenge> = Vec::new();
    let mut rest = line.trim_start_matches([' ', ',']);
    for _ in 0..CHALLENGE_PARAMETERS_MAX {
        let (word, after) = split_token(rest);
        if word.is_empty() {
            break;
        }
        if let Some(value) = after.strip_prefix('=') {
            let Some((value, after)) = value_of(value) else { break };
            match challenges.last_mut() {
                Some(challenge) => challenge.parameters.push((word.to_owned(), value)),
                None => break,
            }
            rest = after.trim_start_matches([' ', ',']);
        } else {
            challenges.push(Challenge { scheme: word.to_owned(), parameters: Vec::new() });
            rest = after.trim_start_matches([' ', ',']);
        }
    }
    challenges
}

fn split_token(text: &str) -> (&str, &str) {
    let end = text.find([' ', ',', '=', '"']).unwrap_or(text.len());
    text.split_at(end)
}

/// A quoted string or a token, and what follows it.
fn value_of(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (token, rest) = split_token(text);
        return Some((token.to_owned(), rest));
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            '\\' => value.push(letters.next()?.1),
            letter => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn challenges_are_read() {
        let hub =
            r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#;
        let read = parse(hub);
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].parameter("Realm"), Some("https://auth.example/token"));
        assert_eq!(read[0].parameter("scope"), Some("repository:a/b:pull,push"));
        let both = parse(r#"Basic realm="a \"b\"", Bearer realm=c , service=d"#);
        assert_eq!(both[0].parameter("realm"), Some("a \"b\""));
        assert_eq!((both[1].scheme.as_str(), both[1].parameter("service")), ("Bearer", Some("d")));
        assert_eq!(parse("Basic"), [Challenge { scheme: "Basic".to_owned(), parameters: vec![] }]);
        for odd in ["", "=x", "\"", "Bearer realm=\"open", ", ,"] {
            assert!(parse(odd).iter().all(|challenge| challenge.parameter("realm").is_none()), "{odd}");
        }
    }

    #[test]
    fn queries_are_escaped() {
        assert_eq!(escaped("repository:a/b:pull x&y=é"), "repository%3Aa%2Fb%3Apull%20x%26y%3D%C3%A9");
        assert_eq!(basic("a", "b").as_str(), "Basic YTpi");
    }

    proptest! {
        #[test]
        fn no_line_of_a_registry_s_panics(line in "[A-Za-z =,\"\\\\é]{0,80}") {
            let _ = parse(&line);
        }
    }
}
