//! What forks of one zygote share and what they do not. Held to recorded numbers: how much of the zygote's memory an
//! interpreter has copied by the time that it has run what most programs begin with, and how many mappings a fork copies.

use std::collections::HashSet;

use ringfence_testkit::ServerOptions;
use serde_json::json;

/// Memory that the first interpreter of a server has for itself after a groupby, KiB; docs/performance.md says what it
/// consists of.
const PRIVATE_KIB_MAX: u64 = 6700;
/// Mappings of an interpreter.
const MAPPINGS_MAX: u64 = 520;

const GROUPBY: &str = "import pandas as pd, numpy as np\n\
    d = pd.DataFrame({'k': np.arange(10_000) % 7, 'v': np.arange(10_000.0)})\n\
    print(len(d.groupby('k').v.mean()))";
const PRIVATE: &str = "print(next(line.split()[1] for line in open('/proc/self/smaps_rollup') \
    if line.startswith('Private_Dirty:')))";
const MAPPINGS: &str = "print(sum(1 for _ in open('/proc/self/maps')))";

#[test]
fn an_interpreter_that_ran_a_groupby_shares_most_of_its_memory() {
    // Others that share with it: a page that nobody else has any more counts as its own.
    let server = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).scientific().args(["--pool-size", "3"]).start();
    let mut client = server.client();
    let mut session = client.lease(&json!({}));
    assert_eq!(session.python(GROUPBY), "7\n");
    for (what, code, most) in [("KiB of its own", PRIVATE, PRIVATE_KIB_MAX), ("mappings", MAPPINGS, MAPPINGS_MAX)] {
        let count: u64 = session.python(code).trim().parse().expect("a number");
        assert!(count <= most, "{count} {what}; at most {most} are to be");
    }
}

#[test]
fn sessions_of_one_zygote_draw_different_numbers() {
    let server = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).scientific().args(["--pool-size", "2"]).start();
    let mut drawn = HashSet::new();
    for _ in 0..2 {
        let mut client = server.client();
        let mut session = client.lease(&json!({}));
        let numbers = session.python("import random, numpy\nprint(random.random(), numpy.random.rand())");
        assert_eq!(numbers.split_whitespace().count(), 2, "{numbers}");
        drawn.extend(numbers.split_whitespace().map(str::to_owned));
    }
    assert_eq!(drawn.len(), 4, "{drawn:?}");
}

#[test]
fn so_do_the_generators_of_modules_that_an_image_preloads() {
    let folder = tempfile::tempdir().expect("a folder");
    let module = "import random, numpy\nplain = random.Random()\nsystem = random.SystemRandom()\n\
        new = numpy.random.default_rng()\nold = numpy.random.RandomState(numpy.random.PCG64())\n\
        class Own(random.Random):\n    def seed(self, number=7, version=2): super().seed(7)\n\
        own = Own()\n\
        class Stubborn(random.Random):\n    def seed(self, number): self.number = number\n    def random(self): return 0.5\n\
        stubborn = Stubborn(7)\n";
    std::fs::write(folder.path().join("mine.py"), module).expect("a module");
    let declaration = folder.path().join("mine.toml");
    let text = "base = 'scientific'\npreloads = ['mine']\n[environment]\nPYTHONPATH = '/opt/mine'\n\
        [files]\n'/opt/mine/mine.py' = 'mine.py'\n";
    std::fs::write(&declaration, text).expect("a declaration");
    let server = ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).beside_scientific(declaration);
    let mut server = server.args(["--pool-size", "2"]).start();
    let mut drawn = HashSet::new();
    for _ in 0..2 {
        let mut client = server.client();
        let mut session = client.lease(&json!({}));
        let numbers = session.python(
            "import sys\nmine = sys.modules['mine']\n\
             print(mine.plain.random(), mine.system.random(), mine.new.random(), mine.old.random_sample(),\n\
             mine.own.random())",
        );
        assert_eq!(numbers.split_whitespace().count(), 5, "{numbers}");
        drawn.extend(numbers.split_whitespace().map(str::to_owned));
    }
    assert_eq!(drawn.len(), 10, "{drawn:?}");
    assert!(server.stop().success());
    let log = server.log();
    assert_eq!(log.matches("a Stubborn of a preloaded module keeps its state").count(), 1, "{log}");
}
