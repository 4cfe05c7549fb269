//! Signs of a container. Nothing rests on them: they only make an advice fit.

use std::path::Path;

use crate::files;

/// The first sign that is found, in words.
pub(crate) fn sign(proc_covered: &[String]) -> Option<String> {
    for (file, engine) in [("/.dockerenv", "Docker"), ("/run/.containerenv", "Podman")] {
        if Path::new(file).exists() {
            return Some(format!("{engine} ({file})"));
        }
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Some("Kubernetes (KUBERNETES_SERVICE_HOST)".to_owned());
    }
    if let Some(name) = std::env::var_os("container").filter(|name| !name.is_empty()) {
        return Some(format!("{} (the variable `container`)", name.display()));
    }
    if let Some(kind) = files::text("/run/systemd/container").filter(|kind| !kind.is_empty()) {
        return Some(format!("{kind} (/run/systemd/container)"));
    }
    let masked = proc_covered.iter().any(|place| ["/proc/kcore", "/proc/keys", "/proc/timer_list"].contains(&&**place));
    masked.then(|| "probably (parts of /proc are masked)".to_owned())
}
