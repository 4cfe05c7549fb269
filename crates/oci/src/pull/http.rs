//! Requests to registries: redirects by hand, bounded tries, bounded times.

use std::io::Read;
use std::time::Duration;

use serde::Deserialize;
use ureq::http::{Response, StatusCode};
use ureq::tls::TlsConfig;
use ureq::{Agent, Body};

use super::auth::Access;
use super::origin::{Origin, Plain};
use super::{Clock, PullOptions, roots};
use crate::error::shown;
use crate::limits::{
    ANSWER_HEAD_BYTES_MAX, CONNECT_MAX, POLL, REDIRECTS_MAX, REFUSAL_BYTES_MAX, REFUSAL_CHARS_MAX, RETRIES_MAX,
    RETRY_WAIT_MAX,
};
use crate::{OciError, Progress};

/// What is asked for.
pub(super) struct Asked<'a> {
    pub(super) url: String,
    /// For errors.
    pub(super) what: &'a str,
    pub(super) accept: Option<&'a str>,
    /// The first byte that is wanted, where it is not 0.
    pub(super) from: u64,
}

/// An answer, its body still to be read.
pub(super) struct Answer {
    response: Response<Body>,
    origin: Origin,
}

impl Answer {
    pub(super) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    pub(super) fn challenges(&self) -> Vec<String> {
        let all = self.response.headers().get_all("www-authenticate").iter();
        all.filter_map(|value| value.to_str().ok().map(str::to_owned)).collect()
    }

    pub(super) fn body(&mut self) -> impl Read + '_ {
        self.response.body_mut().as_reader()
    }

    pub(super) fn host(&self) -> String {
        self.origin.authority().to_owned()
    }

    /// The registry's own words about a refusal, after a colon; one short line, without what is secret.
    fn said(&mut self, access: &Access<'_>) -> String {
        #[derive(Deserialize)]
        struct Refusal {
            errors: Vec<One>,
        }
        #[derive(Deserialize)]
        struct One {
            #[serde(default)]
            code: String,
            #[serde(default)]
            message: String,
        }
        let mut content = Vec::new();
        // What cannot be read of a refusal is no news.
        let _ = self.body().take(REFUSAL_BYTES_MAX).read_to_end(&mut content);
        let refusal = serde_json::from_slice::<Refusal>(&content).ok();
        let Some(first) = refusal.and_then(|refusal| refusal.errors.into_iter().next()) else { return String::new() };
        let text = access.without_secrets(&format!("{} {}", first.code, first.message));
        let line: String = shown(text.trim().as_bytes()).chars().take(REFUSAL_CHARS_MAX).collect();
        if line.is_empty() { line } else { format!(": {line}") }
    }
}

/// A client of registries, for one pull.
pub(super) struct Http {
    agent: Agent,
    /// For this machine's own registries.
    direct: Agent,
    plain: Plain,
    clock: Clock,
    retry_wait: Duration,
}

impl Http {
    pub(super) fn new(options: &PullOptions, plain: Plain, clock: Clock) -> Result<Self, OciError> {
        let tls = TlsConfig::builder().root_certs(roots::trusted(options.roots.as_deref())?).build();
        let config = || {
            Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(0)
                .max_redirects_will_error(false)
                .user_agent(concat!("ringfence/", env!("CARGO_PKG_VERSION")))
                .max_response_header_size(ANSWER_HEAD_BYTES_MAX)
                .timeout_connect(Some(CONNECT_MAX))
                .timeout_send_request(Some(options.pause_max))
                .timeout_recv_response(Some(options.pause_max))
                .timeout_per_read(Some(options.pause_max))
                .tls_config(tls.clone())
        };
        let agent = Agent::new_with_config(config().build());
        let direct = Agent::new_with_config(config().proxy(None).build());
        Ok(Http { agent, direct, plain, clock, retry_wait: options.retry_wait })
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn plain(&self) -> &Plain {
        &self.plain
    }

    /// Asks with the access that is had, and with new access where that is refused. The answer is 200, 206, or 416
    /// where a part was wanted.
    pub(super) fn get(
        &self,
        asked: &Asked<'_>,
        access: &mut Access<'_>,
        progress: &mut dyn Progress,
    ) -> Result<Answer, OciError> {
        let origin = Origin::of_url(&asked.url, &self.plain)?;
        let mut answer = self.persist(progress, || self.follow(asked, access.header()))?;
        if answer.status() == 401 && answer.origin == origin {
            access.renew(self, &answer.challenges(), &origin, progress)?;
            answer = self.persist(progress, || self.follow(asked, access.header()))?;
        }
        let (host, what) = (answer.host(), asked.what.to_owned());
        match answer.status() {
            200 => Ok(answer),
            206 | 416 if asked.from > 0 => Ok(answer),
            401 | 403 if answer.origin == origin => {
                Err(OciError::Denied { host, repository: access.repository().to_owned(), said: answer.said(access) })
            }
            404 => Err(OciError::Absent { host, what }),
            status => Err(OciError::Status { host, status, what, said: answer.said(access) }),
        }
    }

    /// Tries again what may go better, a bounded number of times.
    pub(super) fn persist(
        &self,
        progress: &mut dyn Progress,
        mut ask: impl FnMut() -> Result<Answer, OciError>,
    ) -> Result<Answer, OciError> {
        let mut tries = 0;
        loop {
            let outcome = ask();
            let asked_wait = match &outcome {
                Ok(answer) if matches!(answer.status(), 408 | 429 | 500 | 502 | 503 | 504) => {
                    answer.header("retry-after").and_then(|text| text.trim().parse().ok()).map(Duration::from_secs)
                }
                Err(OciError::Transport { source, .. }) if may_pass(source) => None,
                _ => return outcome,
            };
            if tries >= RETRIES_MAX {
                return outcome;
            }
            self.wait(tries, asked_wait, progress)?;
            tries += 1;
        }
    }

    /// Waits before another try: as long as was asked for, else longer each time.
    pub(super) fn wait(
        &self,
        tries: u32,
        asked: Option<Duration>,
        progress: &mut dyn Progress,
    ) -> Result<(), OciError> {
        let own = self.retry_wait.saturating_mul(1 << tries.min(16));
        let mut left = asked.unwrap_or(own).min(RETRY_WAIT_MAX);
        while !left.is_zero() {
            if progress.cancelled() {
                return Err(OciError::Cancelled);
            }
            let piece = left.min(POLL).min(self.clock.left()?);
            std::thread::sleep(piece);
            left = left.saturating_sub(piece);
        }
        Ok(())
    }

    /// Asks, and goes where the answer says. The authorization goes to the first server alone.
    pub(super) fn follow(&self, asked: &Asked<'_>, authorization: Option<&str>) -> Result<Answer, OciError> {
        let first = Origin::of_url(&asked.url, &self.plain)?;
        let (mut url, mut origin) = (asked.url.clone(), first.clone());
        for _ in 0..=REDIRECTS_MAX {
            let authorization = authorization.filter(|_| origin == first);
            let answer = self.send(&url, origin.clone(), asked, authorization)?;
            if !matches!(answer.status(), 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            let location = answer.header("location").unwrap_or_default();
            url = origin.redirect(location, &self.plain)?;
            origin = Origin::of_url(&url, &self.plain)?;
        }
        let what = "the number of redirects of one request".to_owned();
        Err(OciError::TooLarge { what, max: REDIRECTS_MAX.to_string() })
    }

    fn send(
        &self,
        url: &str,
        origin: Origin,
        asked: &Asked<'_>,
        authorization: Option<&str>,
    ) -> Result<Answer, OciError> {
        let agent = if origin.is_loopback() { &self.direct } else { &self.agent };
        let left = self.clock.left()?;
        let mut request = agent.get(url).config().timeout_global(Some(left)).build();
        if let Some(accept) = asked.accept {
            request = request.header("accept", accept);
        }
        if asked.from > 0 {
            request = request.header("range", format!("bytes={}-", asked.from));
        }
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let response = request.call().map_err(|error| failed(&origin, asked.what, error))?;
        Ok(Answer { response, origin })
    }

    /// Posts a form; redirects are not followed.
    pub(super) fn post(&self, url: &str, what: &str, form: &[(&str, &str)]) -> Result<Answer, OciError> {
        let origin = Origin::of_url(url, &self.plain)?;
        let agent = if origin.is_loopback() { &self.direct } else { &self.agent };
        let request = agent.post(url).config().timeout_global(Some(self.clock.left()?)).build();
        let response = request.send_form(form.iter().copied()).map_err(|error| failed(&origin, what, error))?;
        Ok(Answer { response, origin })
    }
}

fn failed(origin: &Origin, what: &str, error: ureq::Error) -> OciError {
    OciError::Transport { host: origin.authority().to_owned(), what: what.to_owned(), source: Box::new(error) }
}

/// Whether an error of the network may be gone by the next try.
fn may_pass(error: &ureq::Error) -> bool {
    use std::io::ErrorKind;
    match error {
        // rustls says a wrong certificate so.
        ureq::Error::Io(error) => error.kind() != ErrorKind::InvalidData,
        ureq::Error::Timeout(_) | ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => true,
        ureq::Error::StatusCode(status) => StatusCode::from_u16(*status).is_ok_and(|status| status.is_server_error()),
        _ => false,
    }
}
