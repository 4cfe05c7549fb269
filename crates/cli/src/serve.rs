//! `ringfence serve`, from the first line of configuration to the last cell.

use std::io::Write;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow};
use ringfence_frame::keeper::Limiter;
use ringfence_host::{Choice, Look};
use ringfence_interp::{Interp, InterpConfig, Memory, Renewal};
use ringfence_jail::{KeeperConfig, Launched};
use ringfence_op::{RootSpec, Tier};
use ringfence_server::backend::{About, OverSessions};
use ringfence_server::{Access, BearerToken, DoorLimits, Drained, Listener, Server, ServerError};
use ringfence_session::{Absent, SessionConfig, Sessions};
use ringfence_tls::ServerTls;
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, getrlimit, setrlimit, waitpid};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::args::{ServeArguments, unknown_variables};
use crate::config::{Config, ID_COUNT};
use crate::failure::{Failure, Kind};
use crate::limits::{KEEPER_END_MAX, KEEPER_END_POLL, RUNTIME_END_MAX};
use crate::pull::{self, KeeperEnd, Started};
use crate::ready::Ready;
use crate::served::{self, Served};

/// Runs the server until it is told to end.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    let values = arguments.values().map_err(Failure::of(Kind::Configuration))?;
    if arguments.print_config() {
        return print(&values.print());
    }
    let config = Config::check(&values).map_err(Failure::of(Kind::Configuration))?;
    observe(&config);
    for name in unknown_variables() {
        tracing::warn!("the variable {name} is no setting; `ringfence serve --help` lists them");
    }
    let left_out = ringfence_weaken::left_out();
    if !left_out.is_empty() {
        tracing::warn!("this program was built for proofs, and leaves out: {}", left_out.join(", "));
    }
    raise_descriptors();

    // As whoever started us.
    let (tier, runsc) = choose_tier(&config)?;
    let images = served::gather(&config, tier)?;
    let listener = bind(&config)?;

    let (puller, link) = pull::start(&config, tier, &images)?.unzip();

    // Into the fleet, with one thread.
    let launched = launch(keeper_config(&config, tier, runsc, &images.roots), link)?;
    ringfence_jail::enter_fleet(&launched).map_err(Failure::of(Kind::Isolation))?;

    // What looks at files of the host comes before they are out of reach; every thread inherits what holds this one.
    let facts = ready_lines(&config, tier, &images, &launched, &listener)?;
    let memory = Arc::new(Memory::new(config.memory_reserve));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let confined = ringfence_jail::confine(&launched).map_err(Failure::of(Kind::Isolation))?;
    if confined.landlock.is_none() {
        tracing::warn!("this kernel has no Landlock (5.19 or later): the server can read what everybody can read");
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads).enable_all().thread_name("serve").build();
    let runtime = runtime.context("cannot start the runtime").map_err(Failure::of(Kind::Serving))?;
    // The fleet is entered: nothing needs its descriptor any more.
    let Launched { socket, limiter, pid: keeper, .. } = launched;
    // What stops a program in a sandbox are the limits of its own kernel; the group around the sandbox ends the session.
    let limiter = if tier == Tier::Gvisor { Limiter::Rlimits } else { limiter };
    let pulls = puller.as_ref().map(Started::pid);
    let ended = runtime.block_on(serve(
        &config,
        tier,
        &images,
        Host { keeper: socket, limiter, memory, puller },
        listener,
        &facts,
        arguments.until_stdin_ends(),
    ));
    // The keeper's socket goes with the runtime's tasks; the keeper takes what is left of the cells along.
    runtime.shutdown_timeout(RUNTIME_END_MAX);
    std::iter::once(keeper).chain(pulls).for_each(wait_for);
    ended
}

/// What the runtime needs of the host, taken before that was out of reach.
struct Host {
    keeper: OwnedFd,
    limiter: Limiter,
    memory: Arc<Memory>,
    puller: Option<Started>,
}

/// Serves with sessions until the end; everything in here may use the runtime.
async fn serve(
    config: &Config,
    tier: Tier,
    images: &Served,
    host: Host,
    listener: TcpListener,
    facts: &str,
    until_stdin_ends: bool,
) -> Result<(), Failure> {
    let mut told = Told::listen(until_stdin_ends)?;
    let interp_config = InterpConfig {
        pool_size: config.pool_size,
        pool_max: config.pool_max,
        memory: host.memory,
        // No two sandboxes have anything in common: each has a zygote of its own.
        renewal: if tier == Tier::Gvisor { Renewal::default() } else { config.renewal },
        zygotes_apart: if tier == Tier::Gvisor { None } else { config.shared.zygotes },
        calls: config.call.clone(),
    };
    let interp = Interp::start(host.keeper, host.limiter, &images.roots, interp_config);
    let interp = interp.map_err(Failure::of(Kind::Isolation))?;
    tokio::select! {
        warmed = interp.warmed() => warmed.map_err(Failure::of(Kind::Isolation))?,
        () = told.end() => {
            tracing::info!("told to end before it was ready");
            return Ok(());
        }
    }
    let mut session_config = session_config(config, tier, images);
    let pulls = host.puller.map(|puller| puller.pulls(config.pull.clone()));
    session_config.absent = pulls.as_ref().map(|(pulls, _)| Arc::clone(pulls) as Arc<dyn Absent>);
    let sessions = Sessions::start(interp.clone(), session_config);
    if let Some((pulls, link)) = pulls {
        tokio::spawn(link.follow(pulls, interp.clone(), sessions.clone()));
    }

    let token = config.token.as_ref().map(|token| BearerToken::new(token.reveal().as_bytes())).transpose();
    let token = token.map_err(Failure::of(Kind::Configuration))?;
    let limits = DoorLimits { upload_bytes_max: config.upload_bytes_max, ..DoorLimits::default() };
    let access = Access { token, tls: config.tls.clone(), tenancy: config.shared.tenancy };
    let server = Server::new(OverSessions::new(sessions.clone(), about(config, tier, images)), limits, access);
    let server = server.map_err(Failure::of(Kind::Serving))?;
    print(facts)?;

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut door = pin!(server.serve(Listener::Tcp(listener), async { drop(stopped.await) }));
    tokio::select! {
        () = interp.closed() => return Err(keeper_died()),
        ended = &mut door => return conclude(ended),
        () = told.end() => {}
    }
    tracing::info!("shutting down: no more leases; running calls may go on for {:?}", config.shutdown_grace);
    let ending = async {
        // The door goes on answering meanwhile, and refuses leases.
        sessions.shutdown(config.shutdown_grace).await;
        drop(stop);
        std::future::pending().await
    };
    tokio::select! {
        ended = &mut door => conclude(ended),
        () = ending => Ok(()),
        () = told.end() => {
            tracing::warn!("ended at once by a second signal");
            Ok(())
        }
    }
}

fn conclude(ended: Result<Drained, ServerError>) -> Result<(), Failure> {
    if let Drained::CutOff(connections) = ended.map_err(Failure::of(Kind::Serving))? {
        tracing::warn!(connections, "connections were cut off at the end");
    }
    Ok(())
}

/// The signals that end the server.
struct Told {
    terminate: Signal,
    interrupt: Signal,
    /// Whoever started the server for itself is gone.
    left: Arc<Notify>,
}

impl Told {
    fn listen(until_stdin_ends: bool) -> Result<Self, Failure> {
        let on = |kind| signal(kind).context("cannot listen to signals").map_err(Failure::of(Kind::Serving));
        let left = Arc::new(Notify::new());
        if until_stdin_ends {
            let left = Arc::clone(&left);
            tokio::spawn(async move {
                // An error is an end as well.
                let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
                left.notify_one();
            });
        }
        Ok(Told { terminate: on(SignalKind::terminate())?, interrupt: on(SignalKind::interrupt())?, left })
    }

    async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = self.left.notified() => {}
        }
    }
}

/// The tier to run with, by what this host lets us do, and where gVisor's program is.
fn choose_tier(config: &Config) -> Result<(Tier, PathBuf), Failure> {
    let sandboxes = config.tier == Choice::Named(Tier::Gvisor) || config.tier_min == Tier::Gvisor;
    let mut look = Look {
        program: Path::new("/proc/self/exe"),
        id_base: config.id_base,
        ask_runsc: false,
        // What the others rest on is told without.
        try_cell: !sandboxes && !matches!(config.tier, Choice::Named(tier) if tier.is_flat()),
        try_gvisor: sandboxes,
    };
    let find = |look: &Look<'_>| {
        let facts = ringfence_host::Facts::find(look).context("cannot look at what this host offers");
        facts.map_err(Failure::of(Kind::Isolation))
    };
    let mut facts = find(&look)?;
    if config.tier == Choice::Auto && !sandboxes && ringfence_host::can(Tier::Cell, &facts).is_err() {
        look.try_gvisor = true;
        facts = find(&look)?;
    }
    let tier = ringfence_host::choose(config.tier, config.tier_min, &facts).map_err(|none| {
        let help = none.help();
        Failure::new(Kind::Isolation, none).help(Some(help))
    })?;
    Ok((tier, facts.runsc.map(|runsc| runsc.path).unwrap_or_default()))
}

fn bind(config: &Config) -> Result<TcpListener, Failure> {
    let proven = config.token.is_some() || config.tls.as_ref().is_some_and(ServerTls::proves_peers);
    if !config.listen.ip().is_loopback() && !proven {
        tracing::warn!(
            "{} can be reached from other machines and no token is asked for: whoever reaches it can run code; \
             give it `--auth-token-file`",
            config.listen
        );
    }
    TcpListener::bind(config.listen).with_context(|| format!("cannot listen on {}", config.listen)).map_err(|error| {
        let help = "choose another address with `--listen`, such as 127.0.0.1:0 for any free port";
        Failure::new(Kind::Serving, error).help(Some(help.to_owned()))
    })
}

fn launch(mut config: KeeperConfig, puller: Option<KeeperEnd>) -> Result<Launched, Failure> {
    let launched = match puller {
        None => ringfence_jail::launch(&config),
        Some(KeeperEnd { link, pulled }) => {
            config.pulled = Some(pulled);
            ringfence_jail::launch_with_puller(&config, link)
        }
    };
    launched.map_err(Failure::of(Kind::Isolation))
}

fn keeper_config(config: &Config, tier: Tier, runsc: PathBuf, roots: &[RootSpec]) -> KeeperConfig {
    let guard_source = match tier {
        Tier::Gvisor => ringfence_interp::SANDBOX_SOURCE,
        _ => ringfence_interp::GUARD_SOURCE,
    };
    KeeperConfig {
        limits: config.cell.clone(),
        images: roots.to_vec(),
        zygote_source: ringfence_interp::ZYGOTE_SOURCE.to_owned(),
        worker_source: ringfence_interp::WORKER_SOURCE.to_owned(),
        id_base: config.id_base,
        id_count: ID_COUNT,
        cgroups: config.cgroups,
        state_dir: config.state_dir.clone(),
        tier,
        guard_source: guard_source.to_owned(),
        pulled: None,
        runsc,
    }
}

fn session_config(config: &Config, tier: Tier, images: &Served) -> SessionConfig {
    SessionConfig {
        sessions_max: config.max_sessions,
        idle_default: config.idle.default,
        idle_max: config.idle.max,
        lifetime_default: config.lifetime.default,
        lifetime_max: config.lifetime.max,
        calls: config.call.clone(),
        cell: config.cell.clone(),
        tier,
        sharing: config.shared.sharing,
        images: images.names.clone(),
        absent: None,
    }
}

fn about(config: &Config, tier: Tier, images: &Served) -> About {
    About {
        image: images.roots.first().map(|root| root.image.clone()).unwrap_or_default(),
        tier,
        call: config.call.clone(),
        echo_last: config.echo_last,
    }
}

fn ready_lines(
    config: &Config,
    tier: Tier,
    images: &Served,
    launched: &Launched,
    bound: &TcpListener,
) -> Result<String, Failure> {
    let address = bound.local_addr().context("the address is not known").map_err(Failure::of(Kind::Serving))?;
    let limiter = match launched.limiter {
        Limiter::CgroupV2 => "cgroup v2",
        Limiter::CgroupV1 => "cgroup v1",
        Limiter::Rlimits => {
            "rlimits of each process; no cgroup can be written, so CPU is not limited and memory only per process"
        }
    };
    if tier == Tier::None {
        tracing::warn!("nothing holds what sessions run: it can do whatever this server's user can");
    }
    let ids = match launched.id_per_cell {
        true if tier == Tier::Gvisor => "a sandbox for each session",
        true => "one host id for each session",
        false => "one host id for all sessions",
    };
    let image = images.default.clone();
    let token_file = config.token.as_ref().map(crate::token::Token::path);
    let tls = config.tls.as_ref();
    Ok(Ready { address, tls: tls.map(ServerTls::proves_peers), tier: tier.as_str(), limiter, ids, image, token_file }
        .text())
}

fn keeper_died() -> Failure {
    let error = anyhow!("the keeper died, and every session with it");
    Failure::new(Kind::KeeperDied, error).help(Some("start again; what it said last stands above".to_owned()))
}

/// Logs go to standard error, for whoever supervises us.
fn observe(config: &Config) {
    let builder = tracing_subscriber::fmt().with_max_level(config.log_level).with_writer(std::io::stderr);
    let builder = builder.with_ansi(crate::progress::decorated());
    match config.log_json {
        true => builder.json().init(),
        false => builder.with_target(false).init(),
    }
}

/// Each session takes some descriptors: all that we may have.
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open descriptors stays as it is");
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.context("cannot write to standard output").map_err(Failure::of(Kind::Serving))
}

/// Waits, bounded, until a process of ours is gone. One that takes longer ends by itself.
fn wait_for(process: u32) {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return };
    let begun = Instant::now();
    while matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)) && begun.elapsed() < KEEPER_END_MAX {
        std::thread::sleep(KEEPER_END_POLL);
    }
}
