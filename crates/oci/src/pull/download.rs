//! One blob, from wherever its registry has it, in as many pieces as it takes.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

use super::Remote;
use super::http::{Answer, Asked};
use crate::blobs::Partial;
use crate::document::Descriptor;
use crate::limits::{COPY_BYTES, RETRIES_MAX};
use crate::{Digest, OciError, Progress};

impl Remote<'_> {
    /// Sees to it that the blob is there, whole and verified.
    pub(super) fn download(
        &mut self,
        descriptor: &Descriptor,
        what: &'static str,
        progress: &mut dyn Progress,
    ) -> Result<(), OciError> {
        let what = format!("{what} {}", descriptor.digest);
        let Some(mut partial) = self.blobs.partial(&descriptor.digest, self.http.clock().deadline)? else {
            return self.same_size(descriptor, what);
        };
        progress.step(&what, Some(descriptor.size));
        let (mut hasher, mut done) = partial.resume(descriptor.size)?;
        loop {
            let resumed = done > 0;
            let mut fetch =
                Fetch { remote: self, descriptor, what: &what, partial: &mut partial, hasher, done, progress };
            let outcome = fetch.rest();
            let found = Digest::from_hasher(std::mem::take(&mut fetch.hasher));
            match outcome {
                Ok(()) if found == descriptor.digest => return partial.finish(&found),
                // The beginning of an earlier try may have been damaged: once more, from nothing.
                Ok(()) if resumed => {
                    hasher = partial.restart()?;
                    done = 0;
                }
                Ok(()) => {
                    partial.discard()?;
                    return Err(OciError::WrongDigest { what, expected: descriptor.digest, found });
                }
                Err(error @ OciError::WrongSize { .. }) => {
                    partial.discard()?;
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A blob that is there already, for another image, must be what this one says.
    fn same_size(&self, descriptor: &Descriptor, what: String) -> Result<(), OciError> {
        let found = self.blobs.size(&descriptor.digest)?;
        if found == descriptor.size {
            return Ok(());
        }
        Err(OciError::WrongSize { what, expected: descriptor.size, found })
    }
}

/// A blob on its way.
struct Fetch<'a, 'b> {
    remote: &'a mut Remote<'b>,
    descriptor: &'a Descriptor,
    what: &'a str,
    partial: &'a mut Partial,
    hasher: Sha256,
    done: u64,
    progress: &'a mut dyn Progress,
}

impl Fetch<'_, '_> {
    /// Fetches what is missing. Interrupted, it goes on where it was; tries that bring nothing new are counted.
    fn rest(&mut self) -> Result<(), OciError> {
        let mut tries = 0;
        // An empty blob is asked for too: a registry that has it not is no source for it.
        while self.done < self.descriptor.size || self.descriptor.size == 0 {
            let before = self.done;
            let mut answer = self.ask()?;
            match self.take(&mut answer) {
                Ok(()) if self.descriptor.size == 0 => return Ok(()),
                Ok(()) if self.done == self.descriptor.size => return Ok(()),
                Err(error) if !matches!(error, OciError::Transport { .. }) => return Err(error),
                outcome => {
                    tries = if self.done > before { 0 } else { tries + 1 };
                    if tries > RETRIES_MAX {
                        let (expected, found) = (self.descriptor.size, self.done);
                        let what = self.what.to_owned();
                        return Err(outcome.err().unwrap_or(OciError::WrongSize { what, expected, found }));
                    }
                    self.remote.http.wait(tries, None, self.progress)?;
                }
            }
        }
        Ok(())
    }

    /// Asks for what is missing, and stands where the answer begins.
    fn ask(&mut self) -> Result<Answer, OciError> {
        let path = format!("/v2/{}/blobs/{}", self.remote.reference.repository(), self.descriptor.digest);
        let url = self.remote.registry.url(&path);
        let asked = Asked { url: url.clone(), what: self.what, accept: None, from: self.done };
        let answer = self.remote.http.get(&asked, &mut self.remote.access, self.progress)?;
        match answer.status() {
            206 if starts_at(&answer) == Some(self.done) => Ok(answer),
            206 => Err(OciError::Answer {
                host: answer.host(),
                what: self.what.to_owned(),
                why: "it sent another part than was asked for".to_owned(),
            }),
            // All of it: either as asked, or since it knows no parts.
            200 => {
                if self.done > 0 {
                    self.hasher = self.partial.restart()?;
                    self.done = 0;
                }
                Ok(answer)
            }
            // It has less than we do: ours is no beginning of it.
            _ => {
                self.hasher = self.partial.restart()?;
                self.done = 0;
                let asked = Asked { url, what: self.what, accept: None, from: 0 };
                self.remote.http.get(&asked, &mut self.remote.access, self.progress)
            }
        }
    }

    /// Takes what comes until it ends.
    fn take(&mut self, answer: &mut Answer) -> Result<(), OciError> {
        let host = answer.host();
        let mut body = answer.body();
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            self.remote.http.clock().left()?;
            if self.progress.cancelled() {
                return Err(OciError::Cancelled);
            }
            let count = match body.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let (what, source) = (self.what.to_owned(), Box::new(ureq::Error::Io(error)));
                    return Err(OciError::Transport { host, what, source });
                }
            };
            if count as u64 > self.descriptor.size - self.done {
                let (expected, found) = (self.descriptor.size, self.done + count as u64);
                return Err(OciError::WrongSize { what: self.what.to_owned(), expected, found });
            }
            let piece = buffer.get(..count).unwrap_or_default();
            self.partial.append(piece)?;
            self.hasher.update(piece);
            self.done += count as u64;
            self.progress.bytes(self.done);
        }
    }
}

/// Where the part begins that came: `Content-Range: bytes FIRST-LAST/ALL`.
fn starts_at(answer: &Answer) -> Option<u64> {
    let range = answer.header("content-range")?.strip_prefix("bytes ")?;
    range.split_once('-')?.0.trim().parse().ok()
}
