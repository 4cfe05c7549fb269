//! Programs of a build: Python modules run as children, their output kept in a log of their own.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::ImageError;
use crate::limits::{TAIL_BYTES_MAX, TAIL_LINES_MAX};

/// Runs the module that the next argument names, such that what it makes can be read by everybody (cells have ids of
/// their own) and that neither it nor a process that it forks, such as those that compile, outlives us.
const BOOTSTRAP: &str = "\
import os, sys
os.umask(0o022)
try:
    import ctypes
    end_with_parent = lambda: ctypes.CDLL(None).prctl(1, 15)
    end_with_parent()
    os.register_at_fork(after_in_child=end_with_parent)
except Exception:
    pass
import runpy
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)
";

/// A module on its way.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

/// How a module is run.
pub(crate) struct Module<'a> {
    /// The interpreter.
    pub(crate) python: &'a Path,
    /// The module and its arguments.
    pub(crate) arguments: Vec<&'a std::ffi::OsStr>,
    /// Environment on top of the caller's.
    pub(crate) environment: Vec<(&'a str, &'a Path)>,
    /// Where its output goes.
    pub(crate) log: PathBuf,
    /// What it is for, in an error.
    pub(crate) step: &'static str,
}

impl Module<'_> {
    /// Starts it.
    pub(crate) fn start(self) -> Result<Running, ImageError> {
        let log = File::create(&self.log).map_err(ImageError::file("create", &self.log))?;
        let same = log.try_clone().map_err(ImageError::file("open", &self.log))?;
        let mut command = Command::new(self.python);
        command.args(["-I", "-c", BOOTSTRAP]).args(&self.arguments);
        command.envs(self.environment.iter().copied());
        command.stdin(Stdio::null()).stdout(log).stderr(same);
        let start = |source| ImageError::Start { step: self.step, program: self.python.to_owned(), source };
        Ok(Running { child: command.spawn().map_err(start)?, log: self.log })
    }

    /// Runs it to its end; a failure carries its last lines.
    pub(crate) fn run(self) -> Result<(), ImageError> {
        let step = self.step;
        let mut running = self.start()?;
        if running.wait()?.success() { Ok(()) } else { Err(ImageError::Step { step, tail: running.tail() }) }
    }
}

impl Running {
    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus, ImageError> {
        self.child.wait().map_err(ImageError::file("wait for the program that writes", &self.log))
    }

    /// The last lines that it wrote.
    pub(crate) fn tail(&self) -> String {
        tail_of(&self.log).unwrap_or_else(|error| format!("(its log {} cannot be read: {error})", self.log.display()))
    }
}

impl Drop for Running {
    /// Ends it, where it still runs: another one failed.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // A failure to kill means that it has ended just now.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn tail_of(log: &Path) -> std::io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let first = lines.len().saturating_sub(TAIL_LINES_MAX);
    Ok(lines.iter().skip(first).map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_module_is_told_by_its_last_lines() {
        let folder = tempfile::tempdir().unwrap();
        let module = Module {
            python: Path::new("python3"),
            arguments: vec!["no_such_module".as_ref()],
            environment: Vec::new(),
            log: folder.path().join("log"),
            step: "a test",
        };
        let error = module.run().unwrap_err();
        assert!(matches!(&error, ImageError::Step { tail, .. } if tail.contains("no_such_module")), "{error}");
    }

    #[test]
    fn what_a_module_forks_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("pid");
        let told_new = folder.path().join("new");
        // `timeit` runs what it is given.
        let forks = format!(
            "import os, time; os.fork() or (open({told_new:?}, 'w').write(str(os.getpid())), os.rename({told_new:?}, {told:?})); time.sleep(600)"
        );
        let module = Module {
            python: Path::new("python3"),
            arguments: vec!["timeit".as_ref(), "-n1".as_ref(), "-r1".as_ref(), forks.as_ref()],
            environment: Vec::new(),
            log: folder.path().join("log"),
            step: "a test",
        };
        let mut running = module.start().unwrap();
        while !told.exists() {
            assert!(matches!(running.child.try_wait(), Ok(None)), "{}", running.tail());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let status = format!("/proc/{}/status", std::fs::read_to_string(&told).unwrap());
        drop(running);
        // Gone, or dead and not yet buried by whoever inherited it.
        let lives = || std::fs::read_to_string(&status).is_ok_and(|status| !status.contains("State:\tZ"));
        let tries =
            (0..3000).take_while(|_| lives()).inspect(|_| std::thread::sleep(std::time::Duration::from_millis(10)));
        assert!(tries.count() < 3000, "what it forked goes on");
    }
}
