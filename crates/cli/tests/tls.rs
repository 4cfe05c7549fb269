//! The tools that look at a backend from outside, over TLS: they believe whom the authorities name, and nobody else.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use ringfence_testkit::{Authority, ServerOptions};

fn tool(arguments: &[&str], url: &str, authorities: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.args(arguments).args(["--base-url", url]).env_remove("RINGFENCE_TOKEN").env_remove("RINGFENCE_TOKEN_FILE");
    command.env_remove("RINGFENCE_CA_FILE");
    if let Some(authorities) = authorities {
        command.arg("--ca-file").arg(authorities);
    }
    command.output().unwrap()
}

#[test]
fn tools_speak_tls_to_whom_the_authorities_name() {
    let (ours, others) = (Authority::new(), Authority::new());
    let (certificate, key) = ours.identity("127.0.0.1");
    let options =
        ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).args(["--tls-cert"]).args([certificate.as_path()]);
    let mut server = options.args(["--tls-key"]).args([key.as_path()]).start();
    let url = format!("https://{}", server.address());
    let peer = url.as_str();
    let tools: [&[&str]; 3] = [
        &["check", "--only", "lease,exec"],
        &["bench", "--only", "health,print", "--rounds", "1", "--samples", "20", "--peer-url", peer],
        // Bytes by hand: at once, one after the other, and slowly.
        &["attack", "--only", "two_lengths,pipelined_requests,a_head_that_drips,paths_with_dots"],
    ];
    for arguments in tools {
        let said = |output: &Output| {
            let texts = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
            format!("{arguments:?}: {:?} {}", output.status, String::from_utf8_lossy(&texts))
        };
        let done = tool(arguments, &url, Some(&ours.ca()));
        assert!(done.status.success(), "{}", said(&done));
        for (url, authorities, code, part) in [
            (url.as_str(), None, None, "certificate"),
            (url.as_str(), Some(others.ca()), None, "certificate"),
            (url.as_str(), Some(certificate.with_extension("key")), Some(2), "certificate"),
            (url.as_str(), Some(ours.path("nowhere")), Some(2), "nowhere"),
            ("ftp://127.0.0.1:1", None, Some(2), "https://"),
        ] {
            let refused = tool(arguments, url, authorities.as_deref());
            assert!(!refused.status.success() && code.is_none_or(|code| refused.status.code() == Some(code)));
            assert!(said(&refused).contains(part), "{} {url} {authorities:?}", said(&refused));
        }
    }
    assert!(server.stop().success());
}

#[test]
fn a_tool_that_is_not_let_in_says_so_once() {
    let ours = Authority::new();
    let (certificate, key) = ours.identity("127.0.0.1");
    let options = || ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).args(["--pool-size", "1", "--pool-max", "1"]);
    let with_tls =
        || options().args(["--tls-cert"]).args([certificate.as_path()]).args(["--tls-key"]).args([key.as_path()]);
    let (plain, secure) = (options().start(), with_tls().start());
    let closed = with_tls().args(["--tls-client-ca"]).args([ours.ca().as_path()]).start();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (url, part) in [
        (format!("https://{}", closed.address()), "certificate"),
        (format!("http://{}", secure.address()), "may begin with https://"),
        (format!("https://{}", plain.address()), "may begin with http://"),
        (format!("http://{nobody}"), "refused"),
    ] {
        for arguments in [["check", "--only", "lease,exec"], ["attack", "--only", "escape"]] {
            let output = tool(&arguments, &url, Some(&ours.ca()));
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments:?} {url}: {output:?}");
            assert!(output.stdout.is_empty() && said.lines().count() == 1, "{arguments:?} {url}: {output:?}");
            assert!(said.contains(part), "{arguments:?} {url}: {said}");
        }
    }
}
