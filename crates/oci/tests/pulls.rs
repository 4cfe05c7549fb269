//! Images from a registry: what is asked for, what is believed, and what happens when it fails.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod fixtures;
mod registry;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fixtures::{Home, Image, architectures, chain, descriptor, image, tape};
use registry::{Content, Request, Response, Server, part};
use ringfence_oci::{Credentials, Digest, Found, OciError, Owners, PullOptions, UnpackLimits, pull, unpack};
use serde_json::json;

/// An image whose one layer is some hundreds of kilobytes that do not compress.
fn thing() -> Image {
    let noise: Vec<u8> =
        (0..50_000_u64).flat_map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes()).collect();
    let plain = tape().folder("etc").file("etc/text", "pulled").file("noise", noise).end();
    image(&architectures().0, &[(plain.clone(), plain)])
}

fn layer(image: &Image) -> String {
    Digest::of(&image.layers[0]).to_string()
}

fn options() -> PullOptions {
    let mut options = PullOptions::default();
    options.retry_wait = Duration::from_millis(1);
    options
}

fn get(home: &Home, server: &Server, credentials: &Credentials, options: &PullOptions) -> Result<Found, OciError> {
    let reference = format!("{}/some/thing:1", server.host()).parse().unwrap();
    pull(&reference, credentials, &home.blobs, options, &mut ())
}

fn anonymously(home: &Home, server: &Server) -> Result<Found, OciError> {
    get(home, server, &Credentials::anonymous(), &options())
}

fn assert_whole(home: &Home, found: &Found) {
    unpack(found, &home.blobs, &home.root(), Owners::Drop, &UnpackLimits::default(), &mut ()).unwrap();
    assert_eq!(std::fs::read_to_string(home.root().join("etc/text")).unwrap(), "pulled");
    std::fs::remove_dir_all(home.root()).unwrap();
    assert_eq!(std::fs::read_dir(home.path("blobs/partial")).unwrap().count(), 0, "something is on its way still");
}

/// How many of the requests were for blobs.
fn blobs_asked(server: &Server) -> usize {
    server.asked().iter().filter(|path| path.contains("/blobs/")).count()
}

#[test]
fn an_index_is_pulled_for_this_machine_and_blobs_once() {
    let (arch, other) = architectures();
    let image = thing();
    let mut entry = descriptor("", &image.manifest);
    entry["platform"] = json!({"os": "linux", "architecture": arch});
    let mut foreign = descriptor("", b"foreign");
    foreign["platform"] = json!({"os": "linux", "architecture": other});
    let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": [foreign, entry]})).unwrap();
    let content = Content::default().image("x", &image).manifest("1", &index);
    let server = Server::start(move |request| content.answer(request));
    let home = Home::new();
    let found = anonymously(&home, &server).unwrap();
    assert_whole(&home, &found);
    assert_eq!((found.manifest_digest, found.config_digest), (Digest::of(&image.manifest), Digest::of(&image.config)));
    let host = server.host();
    let pinned = format!("{host}/some/thing@{}", Digest::of(&index));
    assert_eq!(found.names, [format!("{host}/some/thing:1"), pinned.clone()]);
    let mut kept: Vec<Digest> = home.blobs.list().unwrap().into_iter().map(|(digest, _)| digest).collect();
    let mut needed = found.blobs();
    kept.sort();
    needed.sort();
    assert_eq!(kept, needed);

    server.forget();
    let again = pull(&pinned.parse().unwrap(), &Credentials::anonymous(), &home.blobs, &options(), &mut ()).unwrap();
    assert_eq!(Found { names: vec![], ..again }, Found { names: vec![], ..found });
    assert_eq!(blobs_asked(&server), 0, "{:?}", server.asked());
}

/// A registry that wants a token of its own service.
fn with_tokens(content: Content, check: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Server {
    Server::start(move |request| {
        if request.path.starts_with("/token") {
            return check(request);
        }
        if request.header("authorization") == Some("Bearer t0k3n") {
            return content.answer(request);
        }
        let realm = format!("http://{}/token", request.header("host").unwrap());
        let challenge = format!(r#"Bearer realm="{realm}",service="a service",scope="repository:other:push""#);
        Response::new(401, r#"{"errors": [{"code": "UNAUTHORIZED"}]}"#).with("www-authenticate", challenge)
    })
}

#[test]
fn a_token_is_got_for_this_repository_alone() {
    let content = Content::default().image("1", &thing());
    let server = with_tokens(content, |request| match request.path.as_str() {
        "/token?service=a%20service&scope=repository%3Asome%2Fthing%3Apull"
            if request.header("authorization").is_none() =>
        {
            Response::new(200, r#"{"token": "t0k3n", "expires_in": 300}"#)
        }
        _ => Response::new(400, ""),
    });
    let home = Home::new();
    assert_whole(&home, &anonymously(&home, &server).unwrap());
    let tokens = server.asked().iter().filter(|path| path.starts_with("/token")).count();
    assert_eq!(tokens, 1, "one token does for all requests");
}

#[test]
fn credentials_go_to_the_token_service_and_stay_out_of_sight() {
    let content = Content::default().image("1", &thing());
    let server = with_tokens(content, |request| match (request.method.as_str(), request.header("authorization")) {
        // me:s3cr3t
        ("GET", Some("Basic bWU6czNjcjN0")) => Response::new(200, r#"{"access_token": "t0k3n"}"#),
        ("POST", None)
            if request.body.contains("refresh_token=1d3nt1ty") && request.body.contains("grant_type=refresh_token") =>
        {
            Response::new(200, r#"{"access_token": "t0k3n"}"#)
        }
        _ => Response::new(401, r#"{"details": "s3cr3t wrong"}"#),
    });
    let config = |home: &Home, auth: serde_json::Value| {
        let file = json!({"auths": {server.host(): auth}});
        let path = home.write("blobs/config.json", &serde_json::to_vec(&file).unwrap());
        Credentials::docker_config(&path)
    };
    for auth in [json!({"auth": "bWU6czNjcjN0"}), json!({"identitytoken": "1d3nt1ty"})] {
        let home = Home::new();
        let found = get(&home, &server, &config(&home, auth), &options()).unwrap();
        assert_whole(&home, &found);
    }
    let home = Home::new();
    let given = Credentials::password("me", zeroize::Zeroizing::new("s3cr3t".to_owned()));
    get(&home, &server, &given, &options()).unwrap();
    let wrong = Credentials::password("me", zeroize::Zeroizing::new("s3cr3tt".to_owned()));
    for credentials in [wrong, Credentials::anonymous(), config(&home, json!({"identitytoken": "s3cr3t"}))] {
        let home = Home::new();
        let error = get(&home, &server, &credentials, &options()).unwrap_err();
        assert!(matches!(error, OciError::Denied { .. }), "{error:?}");
        let shown = format!("{} {error:?} {credentials:?}", chain(&error));
        assert!(!shown.contains("s3cr3t"), "{shown}");
    }
}

#[test]
fn a_registry_without_tokens_gets_name_and_password() {
    let content = Content::default().image("1", &thing());
    let server = Server::start(move |request| match request.header("authorization") {
        Some("Basic bWU6czNjcjN0") => content.answer(request),
        Some(other) => {
            Response::new(403, format!(r#"{{"errors": [{{"code": "DENIED", "message": "not {other}\n!"}}]}}"#))
        }
        None => Response::new(401, "").with("www-authenticate", r#"Basic realm="here""#),
    });
    let home = Home::new();
    let given = |secret: &str| Credentials::password("me", zeroize::Zeroizing::new(secret.to_owned()));
    assert_whole(&home, &get(&home, &server, &given("s3cr3t"), &options()).unwrap());
    let home = Home::new();
    let denied = chain(&get(&home, &server, &given("wr0ng"), &options()).unwrap_err());
    assert!(denied.contains("DENIED not Basic [...]\\n!"), "{denied}");
    let unknown = chain(&anonymously(&home, &server).unwrap_err());
    assert!(unknown.contains("wants a name and a password"), "{unknown}");
}

#[test]
fn where_it_redirects_to_sees_no_credentials() {
    let image = thing();
    let blob = image.layers[0].clone();
    let elsewhere = Server::start(move |request| match request.header("authorization") {
        None => part(request, &blob),
        Some(_) => Response::new(400, ""),
    });
    let (content, layer, target) = (Content::default().image("1", &image), layer(&image), elsewhere.host());
    let server = Server::start(move |request| {
        if request.header("authorization").is_none() {
            return Response::new(401, "").with("www-authenticate", "Basic");
        }
        match &request.path {
            path if path.ends_with(&layer) => {
                Response::new(307, "").with("location", format!("http://{target}/signed?x=y"))
            }
            // On the same server it is the same registry.
            path if path.contains("/blobs/") && !path.starts_with("/v2/some/thing/blobs/moved") => {
                Response::new(302, "").with("location", path.replace("/blobs/", "/blobs/moved/"))
            }
            path => content.answer(&Request { path: path.replace("/moved/", "/"), ..request.clone() }),
        }
    });
    let home = Home::new();
    let given = Credentials::password("me", zeroize::Zeroizing::new("s3cr3t".to_owned()));
    assert_whole(&home, &get(&home, &server, &given, &options()).unwrap());
    assert_eq!(elsewhere.asked(), ["/signed?x=y"]);
}

#[test]
fn redirects_have_a_bound_and_a_direction() {
    for (location, why) in [
        ("/v2/some/thing/manifests/1", "number of redirects"),
        ("http://registry.example/x", "plain HTTP"),
        ("ftp://127.0.0.1/x", "no address"),
        ("", "no address"),
    ] {
        let server = Server::start(move |_| Response::new(302, "").with("location", location));
        let error = chain(&anonymously(&Home::in_memory(), &server).unwrap_err());
        assert!(error.contains(why), "{location}: {error}");
        assert!(server.requests().len() <= 6);
    }
    let server =
        Server::start(|_| Response::new(401, "").with("www-authenticate", r#"Bearer realm="http://token.example/""#));
    let error = chain(&anonymously(&Home::in_memory(), &server).unwrap_err());
    assert!(error.contains("token.example would be asked over plain HTTP"), "{error}");
}

/// A registry whose layer comes in pieces: the first so many answers are cut.
fn cutting(image: &Image, cuts: usize, cut: impl Fn(Response) -> Response + Send + Sync + 'static) -> Server {
    let (content, layer, count) = (Content::default().image("1", image), layer(image), AtomicUsize::new(0));
    Server::start(move |request| {
        let whole = content.answer(request);
        if request.path.ends_with(&layer) && count.fetch_add(1, Ordering::SeqCst) < cuts { cut(whole) } else { whole }
    })
}

fn layer_asked(server: &Server, image: &Image) -> Vec<String> {
    let path = format!("/v2/some/thing/blobs/{}", layer(image));
    server.asked().iter().filter_map(|asked| Some(asked.strip_prefix(&path)?.trim().to_owned())).collect()
}

#[test]
fn a_broken_download_goes_on_where_it_was() {
    let image = thing();
    let server = cutting(&image, 10, |whole| Response { cut: Some(30_000), ..whole });
    let home = Home::new();
    assert_whole(&home, &anonymously(&home, &server).unwrap());
    let asked = layer_asked(&server, &image);
    let expected: Vec<String> =
        (0..11).map(|at| if at == 0 { String::new() } else { format!("bytes={}-", at * 30_000) }).collect();
    assert_eq!(asked, expected);
}

#[test]
fn the_next_pull_goes_on_where_the_last_one_ended() {
    let image = thing();
    let server = cutting(&image, 1 + 4 + 1, |whole| match whole.status {
        200 => Response { cut: Some(100_000), ..whole },
        _ => Response { cut: Some(0), ..whole },
    });
    let home = Home::new();
    let error = anonymously(&home, &server).unwrap_err();
    assert!(matches!(error, OciError::Transport { .. } | OciError::WrongSize { .. }), "{error:?}");
    assert_eq!(layer_asked(&server, &image).len(), 6, "one that brought something, and five that brought nothing");
    let partial = home.path("blobs/partial").join(Digest::of(&image.layers[0]).hex());
    assert_eq!(partial.metadata().unwrap().len(), 100_000);
    server.forget();
    assert_whole(&home, &anonymously(&home, &server).unwrap());
    assert_eq!(layer_asked(&server, &image), ["bytes=100000-"]);
}

#[test]
fn a_damaged_beginning_is_thrown_away() {
    let image = thing();
    let size = image.layers[0].len();
    for (beginning, asked) in [
        (vec![7; 1000], vec!["bytes=1000-".to_owned(), String::new()]),
        (vec![7; size], vec![String::new()]),
        (vec![7; size + 1], vec![String::new()]),
    ] {
        let server = cutting(&image, 0, |whole| whole);
        let home = Home::new();
        home.write(&format!("blobs/partial/{}", Digest::of(&image.layers[0]).hex()), &beginning);
        assert_whole(&home, &anonymously(&home, &server).unwrap());
        assert_eq!(layer_asked(&server, &image), asked);
    }
}

#[test]
fn a_registry_that_knows_no_parts_sends_all_again() {
    let image = thing();
    let blob = image.layers[0].clone();
    let server = cutting(&image, 3, move |whole| match whole.status {
        200 => Response { cut: Some(100_000), ..whole },
        _ => Response { cut: None, ..Response::new(200, blob.clone()) },
    });
    let home = Home::new();
    assert_whole(&home, &anonymously(&home, &server).unwrap());
    let server = cutting(&image, 2, |whole| match whole.status {
        200 => Response { cut: Some(100_000), ..whole },
        _ => Response::new(416, ""),
    });
    let home = Home::new();
    assert_whole(&home, &anonymously(&home, &server).unwrap());
    assert_eq!(layer_asked(&server, &image), ["", "bytes=100000-", ""]);
    let server = cutting(&image, 2, |whole| match whole.status {
        200 => Response { cut: Some(100_000), ..whole },
        _ => Response { headers: vec![("content-range".to_owned(), "bytes 0-9/10".to_owned())], ..whole },
    });
    let error = chain(&anonymously(&Home::in_memory(), &server).unwrap_err());
    assert!(error.contains("another part"), "{error}");
}

#[test]
fn what_is_not_what_was_announced_is_refused_and_not_kept() {
    let image = thing();
    let layer_digest = Digest::of(&image.layers[0]);
    let mut forged = image.layers[0].clone();
    forged[1000] ^= 1;
    for (blob, why) in [
        (forged, "has the digest"),
        ([image.layers[0].clone(), vec![0; 300_000]].concat(), "bytes, not"),
        (image.layers[0][..5000].to_vec(), "bytes, not"),
    ] {
        let mut content = Content::default().image("1", &image);
        content.blobs.insert(layer_digest.to_string(), blob);
        let server = Server::start(move |request| content.answer(request));
        let home = Home::new();
        let error = chain(&anonymously(&home, &server).unwrap_err());
        assert!(error.contains(why), "{why}: {error}");
        assert!(!home.blobs.has(&layer_digest));
    }
    let other = thing().manifest.len();
    let server = Server::start(move |_| Response::new(200, vec![b' '; other]));
    let reference = format!("{}/some/thing@{}", server.host(), Digest::of(&image.manifest)).parse().unwrap();
    let home = Home::new();
    let error = pull(&reference, &Credentials::anonymous(), &home.blobs, &options(), &mut ()).unwrap_err();
    assert!(matches!(error, OciError::WrongDigest { .. }), "{error:?}");
    let manifest = image.manifest;
    let server = Server::start(move |_| {
        Response::new(200, manifest.clone()).with("docker-content-digest", Digest::of(b"another").to_string())
    });
    let error = anonymously(&home, &server).unwrap_err();
    assert!(matches!(error, OciError::WrongDigest { .. }), "{error:?}");
    assert_eq!(home.blobs.list().unwrap(), []);
}

#[test]
fn what_is_too_large_is_not_fetched() {
    let server = Server::start(|_| Response::new(200, vec![b' '; (4 << 20) + 1]));
    let error = anonymously(&Home::in_memory(), &server).unwrap_err();
    assert!(matches!(error, OciError::TooLarge { .. }), "{error:?}");
    // Without an announced length too.
    let endless = format!("{:x}\r\n{}\r\n", 5 << 20, " ".repeat(5 << 20));
    let server = Server::start(move |_| Response::new(200, endless.clone()).with("transfer-encoding", "chunked"));
    let error = anonymously(&Home::in_memory(), &server).unwrap_err();
    assert!(matches!(error, OciError::TooLarge { .. }), "{error:?}");
    let content = Content::default().image("1", &thing());
    let server = Server::start(move |request| content.answer(request));
    let mut small = options();
    small.bytes_max = 100_000;
    let error = get(&Home::in_memory(), &server, &Credentials::anonymous(), &small).unwrap_err();
    assert!(matches!(error, OciError::TooLarge { .. }), "{error:?}");
    assert_eq!(blobs_asked(&server), 0);
    let server = with_tokens(Content::default(), |_| Response::new(200, vec![b' '; 300 << 10]));
    let error = anonymously(&Home::in_memory(), &server).unwrap_err();
    assert!(matches!(error, OciError::TooLarge { .. }), "{error:?}");
    for answer in ["{}", r#"{"token": ""}"#, r#"{"token": "a\r\nb"}"#, "t0k3n"] {
        let server = with_tokens(Content::default(), move |_| Response::new(200, answer));
        let error = chain(&anonymously(&Home::in_memory(), &server).unwrap_err());
        assert!(error.contains("there is no token in its answer"), "{error}");
    }
}

#[test]
fn what_may_pass_is_tried_again_a_bounded_number_of_times() {
    for status in [429, 500, 503] {
        let (content, count) = (Content::default().image("1", &thing()), AtomicUsize::new(0));
        let server = Server::start(move |request| match count.fetch_add(1, Ordering::SeqCst) {
            0..3 => Response::new(status, "").with("retry-after", "0"),
            _ => content.answer(request),
        });
        let home = Home::new();
        assert_whole(&home, &anonymously(&home, &server).unwrap());
        let server = Server::start(move |_| {
            Response::new(status, r#"{"errors": [{"code": "TOOMANYREQUESTS", "message": "later"}]}"#)
        });
        let error = anonymously(&Home::in_memory(), &server).unwrap_err();
        assert!(
            matches!(&error, OciError::Status { status: found, said, .. } if *found == status && said == ": TOOMANYREQUESTS later"),
            "{error:?}"
        );
        assert_eq!(server.requests().len(), 5);
    }
    for status in [400, 404, 405, 418] {
        let server = Server::start(move |_| Response::new(status, "not even JSON"));
        assert!(anonymously(&Home::in_memory(), &server).is_err());
        assert_eq!(server.requests().len(), 1, "{status} is not tried again");
    }
    let gone = Server::start(|_| Response::new(200, "")).host();
    let reference = format!("{gone}/some/thing").parse().unwrap();
    let home = Home::in_memory();
    let error = pull(&reference, &Credentials::anonymous(), &home.blobs, &options(), &mut ()).unwrap_err();
    assert!(matches!(error, OciError::Transport { .. }), "{error:?}");
}

#[test]
fn a_registry_that_falls_silent_is_left() {
    let image = thing();
    let mut hasty = options();
    hasty.pause_max = Duration::from_millis(700);
    // In the middle of a blob: the rest is asked for, and comes.
    let server = cutting(&image, 2, |whole| Response { cut: Some(50_000), hold: true, ..whole });
    let home = Home::new();
    assert_whole(&home, &get(&home, &server, &Credentials::anonymous(), &hasty).unwrap());
    let mut asked = layer_asked(&server, &image);
    // On a machine with much else to do an answer may come too late, and is asked for again.
    asked.dedup();
    assert_eq!(asked, ["", "bytes=50000-", "bytes=100000-"]);
    // For good: a bounded number of tries.
    let server = cutting(&image, usize::MAX, |whole| Response { cut: Some(0), hold: true, ..whole });
    let error = get(&Home::in_memory(), &server, &Credentials::anonymous(), &hasty).unwrap_err();
    assert!(matches!(error, OciError::Transport { .. }), "{error:?}");
    assert!(layer_asked(&server, &image).len() >= 5);
    // All of it has a bound as well, whatever progress is made.
    let server = cutting(&image, usize::MAX, |whole| Response { cut: Some(1), ..whole });
    let mut short = options();
    short.total_max = Duration::from_millis(700);
    let error = get(&Home::in_memory(), &server, &Credentials::anonymous(), &short).unwrap_err();
    assert!(matches!(error, OciError::OutOfTime { .. } | OciError::Transport { .. }), "{error:?}");
}

#[test]
fn a_pull_can_be_given_up_and_two_pulls_share_a_download() {
    struct GivesUp(u64);
    impl ringfence_oci::Progress for GivesUp {
        fn bytes(&mut self, done: u64) {
            self.0 = done;
        }
        fn cancelled(&mut self) -> bool {
            self.0 > 100_000
        }
    }
    let image = thing();
    let server = cutting(&image, 0, |whole| whole);
    let home = Home::new();
    let reference = format!("{}/some/thing:1", server.host()).parse().unwrap();
    let given_up = pull(&reference, &Credentials::anonymous(), &home.blobs, &options(), &mut GivesUp(0));
    assert!(matches!(given_up, Err(OciError::Cancelled)), "{given_up:?}");
    server.forget();
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..4).map(|_| scope.spawn(|| anonymously(&home, &server).unwrap())).collect();
        let found: Vec<Found> = pulls.into_iter().map(|pull| pull.join().unwrap()).collect();
        assert!(found.iter().all(|one| *one == found[0]));
    });
    assert_eq!(layer_asked(&server, &image).len(), 1, "{:?}", server.asked());
    assert_whole(&home, &anonymously(&home, &server).unwrap());
}

/// OpenSSL's own server, which serves the files of a folder. Dropped, it is gone.
struct Tls(Child, String);

impl Tls {
    fn start(folder: &std::path::Path) -> Self {
        let make = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem \
             -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
        let install = "install openssl (apt-get install openssl)";
        let made = Command::new("openssl").args(make.split_whitespace()).current_dir(folder).output().expect(install);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let serve = "s_server -accept 127.0.0.1:0 -cert cert.pem -key key.pem -WWW";
        let mut child = Command::new("openssl")
            .args(serve.split_whitespace())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect(install);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find(|line| line.starts_with("ACCEPT")).expect("it says where it listens");
        let port = line.rsplit(':').next().unwrap().to_owned();
        // What it goes on to say is read, so that it does not wait for that.
        std::thread::spawn(move || lines.for_each(drop));
        Tls(child, port)
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_registry_must_prove_who_it_is() {
    let image = thing();
    let home = Home::new();
    // OpenSSL's server serves no name with a colon: the blobs are there already.
    home.write("blobs/served/v2/some/thing/manifests/1", &image.manifest);
    for blob in [&image.config, &image.layers[0]] {
        home.blobs.put(&mut blob.as_slice(), "it", None, u64::MAX, &mut ()).unwrap();
    }
    let served = home.path("blobs/served");
    let server = Tls::start(&served);
    let ask = |host: &str, options: &PullOptions| {
        let reference = format!("{host}:{}/some/thing:1", server.1).parse().unwrap();
        pull(&reference, &Credentials::anonymous(), &home.blobs, options, &mut ())
    };
    let mut strict = options();
    strict.plain_loopback = false;
    let unknown = chain(&ask("127.0.0.1", &strict).unwrap_err());
    assert!(unknown.contains("certificate"), "{unknown}");
    strict.roots = Some(served.join("cert.pem"));
    for host in ["127.0.0.1", "localhost"] {
        assert_whole(&home, &ask(host, &strict).unwrap());
    }
    let another = chain(&ask("127.0.0.2", &strict).unwrap_err());
    assert!(another.contains("certificate") || another.contains("fetch"), "{another}");
    strict.roots = Some(served.join("key.pem"));
    let none = chain(&ask("127.0.0.1", &strict).unwrap_err());
    assert!(none.contains("there is no certificate in it"), "{none}");
}
