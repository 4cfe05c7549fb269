//! The few Python statements that the fake knows.

use std::collections::BTreeMap;

use crate::workspace::{Disk, is_inside, relative};

/// What a program came to.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) return_code: i64,
    pub(crate) produced: Vec<String>,
}

/// How a program ends early.
pub(crate) enum End {
    /// An exception: its last line.
    Raised(String),
    /// An exit status.
    Exit(i64),
    /// Out of time.
    Timeout,
}

/// The variables of a session.
pub(crate) type Variables = BTreeMap<String, Value>;

#[derive(Clone)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
    Truth(bool),
}

/// Runs statements that are divided by newlines or semicolons.
pub(crate) fn run(code: &str, timeout: u64, variables: &mut Variables, disk: &mut Disk) -> Run {
    let mut run = Run::default();
    for statement in statements(code) {
        let ended = Step { run: &mut run, variables, disk, timeout }.take(statement.trim());
        if let Err(end) = ended {
            finish(&mut run, end);
            break;
        }
    }
    run
}

pub(crate) fn finish(run: &mut Run, end: End) {
    match end {
        End::Raised(line) => {
            run.return_code = 1;
            run.stderr.push_str(&format!("Traceback (most recent call last):\n  File \"<cell>\", line 1\n{line}\n"));
        }
        End::Exit(code) => run.return_code = code,
        End::Timeout => {
            run.return_code = 124;
            run.stderr.push_str("ended: its time was up\n");
        }
    }
}

struct Step<'a> {
    run: &'a mut Run,
    variables: &'a mut Variables,
    disk: &'a mut Disk,
    timeout: u64,
}

impl Step<'_> {
    fn take(&mut self, statement: &str) -> Result<(), End> {
        if statement.is_empty() || statement == "pass" || statement.starts_with("import ") {
            return Ok(());
        }
        if let Some(inner) = call(statement, "print") {
            let (inner, end) = inner.strip_suffix(", end=''").map_or((inner, "\n"), |inner| (inner, ""));
            let text = self.text(inner)?;
            self.run.stdout.push_str(&text);
            self.run.stdout.push_str(end);
            return Ok(());
        }
        if let Some(inner) = call(statement, "sys.stderr.write") {
            let text = self.text(inner)?;
            self.run.stderr.push_str(&text);
            return Ok(());
        }
        if let Some(inner) = call(statement, "raise ValueError") {
            return Err(End::Raised(format!("ValueError: {}", self.text(inner)?)));
        }
        if let Some(inner) = call(statement, "sys.exit") {
            return Err(End::Exit(number(&self.value(inner)?)));
        }
        if let Some(inner) = call(statement, "time.sleep") {
            let seconds = inner.parse().unwrap_or(0_u64);
            return if seconds > self.timeout { Err(End::Timeout) } else { Ok(()) };
        }
        if let Some(inner) = call(statement, "os.mkdir") {
            let absolute = self.disk.resolve(&self.text(inner)?).unwrap_or_default();
            self.disk.make_folder(&absolute);
            return Ok(());
        }
        if let Some((target, path)) = call(statement, "os.symlink").and_then(|inner| inner.split_once(", ")) {
            let (target, path) = (self.text(target)?, self.text(path)?);
            self.disk.link(&target, &path);
            return Ok(());
        }
        if let Some((path, content)) = statement.strip_prefix("open(").and_then(|rest| rest.split_once(", 'w').write("))
        {
            let (path, content) = (self.text(path)?, self.text(content.strip_suffix(')').unwrap_or(content))?);
            return self.write(&path, content);
        }
        if let Some((name, value)) = statement.split_once(" = ") {
            let value = self.value(value)?;
            self.variables.insert(name.to_owned(), value);
            return Ok(());
        }
        Err(End::Raised(format!("SyntaxError: the fake does not know {statement:?}")))
    }

    fn write(&mut self, path: &str, content: String) -> Result<(), End> {
        let absolute = self.disk.resolve(path).ok_or_else(|| End::Raised("OSError: a loop of links".to_owned()))?;
        if is_inside(&absolute) {
            self.run.produced.push(relative(&absolute).to_owned());
        }
        self.disk.write(&absolute, content.into_bytes());
        Ok(())
    }

    fn text(&self, expression: &str) -> Result<String, End> {
        Ok(match self.value(expression)? {
            Value::Text(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Truth(true) => "True".to_owned(),
            Value::Truth(false) => "False".to_owned(),
        })
    }

    fn value(&self, expression: &str) -> Result<Value, End> {
        let expression = expression.trim();
        if let Some(path) = call(expression, "os.path.exists") {
            let absolute = self.disk.resolve(&self.text(path)?);
            return Ok(Value::Truth(absolute.is_some_and(|absolute| self.disk.exists(&absolute))));
        }
        if let Some(path) = expression.strip_prefix("open(").and_then(|rest| rest.strip_suffix(").read()")) {
            return self.content(&self.text(path)?).map(Value::Text);
        }
        if let Some(name) = expression.strip_suffix(" in globals()") {
            return Ok(Value::Truth(self.variables.contains_key(&self.text(name)?)));
        }
        if let Some(text) = literal(expression) {
            return Ok(Value::Text(text));
        }
        for (mark, apply) in [(" + ", i64::wrapping_add as fn(i64, i64) -> i64), (" * ", i64::wrapping_mul)] {
            if let Some((left, right)) = expression.split_once(mark) {
                return Ok(Value::Number(apply(number(&self.value(left)?), number(&self.value(right)?))));
            }
        }
        if let Ok(number) = expression.parse() {
            return Ok(Value::Number(number));
        }
        let missing = || End::Raised(format!("NameError: name '{expression}' is not defined"));
        self.variables.get(expression).cloned().ok_or_else(missing)
    }

    fn content(&self, path: &str) -> Result<String, End> {
        let missing = || End::Raised(format!("FileNotFoundError: No such file or directory: '{path}'"));
        let file = self.disk.resolve(path).and_then(|absolute| self.disk.file(&absolute)).ok_or_else(missing)?;
        Ok(String::from_utf8_lossy(&file.content).into_owned())
    }
}

/// What is in the brackets of a call that is all of the text.
fn call<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')
}

/// A quoted text that is all of the expression.
fn literal(expression: &str) -> Option<String> {
    let inner = expression.strip_prefix('\'')?.strip_suffix('\'')?;
    let mut text = String::new();
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => return None,
            '\\' => text.push(match letters.next()? {
                'n' => '\n',
                other => other,
            }),
            other => text.push(other),
        }
    }
    Some(text)
}

fn number(value: &Value) -> i64 {
    match value {
        Value::Text(text) => text.parse().unwrap_or(0),
        Value::Number(number) => *number,
        Value::Truth(truth) => i64::from(*truth),
    }
}

/// Splits at newlines and semicolons outside of quotes.
pub(crate) fn statements(code: &str) -> Vec<&str> {
    let mut quoted = false;
    let mut escaped = false;
    code.split(|letter: char| {
        if quoted {
            quoted = escaped || letter != '\'';
            escaped = !escaped && letter == '\\';
            return false;
        }
        quoted = letter == '\'';
        letter == '\n' || letter == ';'
    })
    .collect()
}
