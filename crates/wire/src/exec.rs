//! Execute: one tool call, parsed kind by kind.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::field::{self, Refusal, malformed};

/// One tool call, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest {
    /// The caller's correlation id; absent, null and empty ask for a generated one.
    pub tool_use_id: Option<String>,
    /// How long the call may run, at least 1.
    pub timeout_seconds: Option<u64>,
    /// The tool and its input.
    pub input: ExecInput,
}

/// The input of a call, shaped per tool kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecInput {
    /// `code_execution`.
    Code(CodeExecutionInput),
    /// `bash_code_execution`.
    Bash(BashExecutionInput),
    /// `text_editor_code_execution`.
    Edit(TextEditorEdit),
}

/// An editor call with the fields that its command needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextEditorEdit {
    /// The file, as the caller wrote it.
    pub path: String,
    /// What to do with it.
    pub action: EditAction,
}

/// The editor's commands, each with its own fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditAction {
    /// `view`.
    View {
        /// 1-based inclusive lines; -1 as last is the end.
        view_range: Option<(i64, i64)>,
    },
    /// `create`.
    Create {
        /// The whole content.
        file_text: String,
    },
    /// `str_replace`.
    StrReplace {
        /// The text to find, not empty.
        old_str: String,
        /// What takes its place.
        new_str: String,
    },
    /// `insert`.
    Insert {
        /// The line to insert after.
        insert_line: i64,
        /// The text.
        new_str: String,
    },
    /// `undo_edit`.
    UndoEdit,
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow, default, deserialize_with = "field::present")]
    tool: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "field::present")]
    input: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "field::present")]
    timeout_seconds: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_use_id: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawCode<'a> {
    #[serde(borrow, default, deserialize_with = "field::present")]
    code: Option<&'a RawValue>,
    #[serde(borrow, default)]
    echo_last_expression: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawBash<'a> {
    #[serde(borrow, default, deserialize_with = "field::present")]
    command: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawEdit<'a> {
    #[serde(borrow, default, deserialize_with = "field::present")]
    command: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "field::present")]
    path: Option<&'a RawValue>,
    #[serde(borrow, default)]
    file_text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_str: Option<&'a RawValue>,
    #[serde(borrow, default)]
    new_str: Option<&'a RawValue>,
    #[serde(borrow, default)]
    insert_line: Option<&'a RawValue>,
    #[serde(borrow, default)]
    view_range: Option<&'a RawValue>,
}

impl ExecRequest {
    /// Parses a body.
    ///
    /// # Errors
    /// [`Refusal::UnknownTool`] for a tool kind that is not the contract's; [`Refusal::Malformed`] for all else.
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let raw: Raw<'_> = field::object(field::utf8(body)?, "the body")?;
        let tool = field::text(field::required(raw.tool, "tool", "a string, the tool kind")?, "tool")?;
        let parse_input = match tool.as_str() {
            "code_execution" => parse_code,
            "bash_code_execution" => parse_bash,
            "text_editor_code_execution" => parse_edit,
            unknown => {
                return Err(Refusal::UnknownTool(format!(
                    "unknown tool kind {:?}; known are code_execution, bash_code_execution and \
                     text_editor_code_execution",
                    field::quoted(unknown)
                )));
            }
        };
        let input = field::required(raw.input, "input", "an object, shaped per tool kind")?;
        Ok(ExecRequest {
            input: parse_input(input.get())?,
            timeout_seconds: raw.timeout_seconds.map(|raw| field::seconds(raw, "timeout_seconds")).transpose()?,
            tool_use_id: raw
                .tool_use_id
                .map(|raw| field::string(raw, "tool_use_id"))
                .transpose()?
                .filter(|id| !id.is_empty()),
        })
    }
}

fn parse_code(input: &str) -> Result<ExecInput, Refusal> {
    let raw: RawCode<'_> = field::object(input, "`input`")?;
    let code = field::text(field::required(raw.code, "input.code", "a string, the source to run")?, "input.code")?;
    let echo = raw.echo_last_expression.map(|raw| field::boolean(raw, "input.echo_last_expression")).transpose()?;
    Ok(ExecInput::Code(CodeExecutionInput { code, echo_last_expression: echo }))
}

fn parse_bash(input: &str) -> Result<ExecInput, Refusal> {
    let raw: RawBash<'_> = field::object(input, "`input`")?;
    let command = field::required(raw.command, "input.command", "a string, the shell command to run")?;
    let command = field::text(command, "input.command")?;
    if command.contains('\0') {
        return Err(malformed("`input.command` holds a NUL character, which no command line can carry"));
    }
    Ok(ExecInput::Bash(BashExecutionInput { command }))
}

fn parse_edit(input: &str) -> Result<ExecInput, Refusal> {
    const COMMANDS: &str = "one of view, create, str_replace, insert, undo_edit";
    let raw: RawEdit<'_> = field::object(input, "`input`")?;
    let command = field::required(raw.command, "input.command", COMMANDS)?;
    let path = field::text(field::required(raw.path, "input.path", "a string, the file")?, "input.path")?;
    let action = match field::string(command, "input.command")?.as_str() {
        "view" => EditAction::View { view_range: raw.view_range.map(parse_range).transpose()? },
        "create" => EditAction::Create { file_text: needed(raw.file_text, "file_text", "create")? },
        "str_replace" => EditAction::StrReplace {
            old_str: needed(raw.old_str, "old_str", "str_replace").and_then(|old| match old.is_empty() {
                true => Err(malformed("`input.old_str` is empty; it must be the text to replace")),
                false => Ok(old),
            })?,
            new_str: needed(raw.new_str, "new_str", "str_replace")?,
        },
        "insert" => EditAction::Insert {
            insert_line: field::integer(
                raw.insert_line.ok_or_else(|| lacking("insert_line", "an integer", "insert"))?,
                "input.insert_line",
            )?,
            new_str: needed(raw.new_str, "new_str", "insert")?,
        },
        "undo_edit" => EditAction::UndoEdit,
        _ => return Err(field::wrong(command, "input.command", COMMANDS)),
    };
    Ok(ExecInput::Edit(TextEditorEdit { path, action }))
}

fn needed(raw: Option<&RawValue>, name: &str, command: &str) -> Result<String, Refusal> {
    let raw = field::nullable(raw).ok_or_else(|| lacking(name, "a string", command))?;
    field::string(raw, &format!("input.{name}"))
}

fn lacking(name: &str, shape: &str, command: &str) -> Refusal {
    malformed(format!("`input.{name}` is missing; the command {command} needs it, {shape}"))
}

fn parse_range(raw: &RawValue) -> Result<(i64, i64), Refusal> {
    const NAME: &str = "input.view_range";
    let wrong = || field::wrong(raw, NAME, "an array of two integers, the first and the last line");
    match serde_json::from_str::<Vec<&RawValue>>(raw.get()).map_err(|_| wrong())?.as_slice() {
        [first, last] => Ok((field::integer(first, NAME)?, field::integer(last, NAME)?)),
        _ => Err(wrong()),
    }
}

// ------------------------------------------------------------------ the same shapes as a client writes them

/// One tool call. `tool` selects both the operation and the shape of `input`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = ExecRequest, discriminator(property_name = "tool", mapping(
    ("code_execution" = "#/components/schemas/CodeExecutionRequest"),
    ("bash_code_execution" = "#/components/schemas/BashExecutionRequest"),
    ("text_editor_code_execution" = "#/components/schemas/TextEditorRequest"),
)))]
pub enum ExecRequestSchema {
    /// Python.
    Code(CodeExecutionRequest),
    /// Shell.
    Bash(BashExecutionRequest),
    /// Editor.
    Edit(TextEditorRequest),
}

macro_rules! request_shapes {
    ($($(#[$meta:meta])* $request:ident, $tool:ident::$kind:ident, $input:ident;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
        pub struct $request {
            /// The tool kind.
            pub tool: $tool,
            /// What to run.
            pub input: $input,
            /// How long the call may run. Absent, the server's default; above the server's ceiling, the ceiling.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(minimum = 1, nullable = false)]
            pub timeout_seconds: Option<u64>,
            /// Correlation id, echoed on the answer; generated if absent.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(max_length = 1024)]
            pub tool_use_id: Option<String>,
        }

        /// The name of the tool kind.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $tool {
            /// The one value.
            $kind,
        }
    )*};
}

request_shapes! {
    /// Run source in the session's persistent interpreter.
    CodeExecutionRequest, CodeExecutionTool::CodeExecution, CodeExecutionInput;
    /// Run a shell command in the session's workspace.
    BashExecutionRequest, BashExecutionTool::BashCodeExecution, BashExecutionInput;
    /// View or edit a file in the session's workspace.
    TextEditorRequest, TextEditorTool::TextEditorCodeExecution, TextEditorInput;
}

/// Source for the interpreter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CodeExecutionInput {
    /// Source to run in the session's interpreter.
    #[schema(min_length = 1)]
    pub code: String,
    /// Print the repr of a last expression, as a notebook does. Absent, the server's setting (off unless changed).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub echo_last_expression: Option<bool>,
}

/// A shell command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct BashExecutionInput {
    /// The shell command to run.
    #[schema(min_length = 1)]
    pub command: String,
}

/// An editor command. `create` needs `file_text`, `str_replace` needs `old_str` and `new_str`, `insert` needs
/// `insert_line` and `new_str`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct TextEditorInput {
    /// What to do.
    #[schema(inline)]
    pub command: EditorCommand,
    /// The file, relative to the session's workspace root.
    #[schema(min_length = 1)]
    pub path: String,
    /// The new file's content, for `create`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_text: Option<String>,
    /// The text to replace, for `str_replace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_str: Option<String>,
    /// The replacement or inserted text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_str: Option<String>,
    /// The line to insert after, for `insert`; 0 is before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insert_line: Option<i64>,
    /// An inclusive line range to view, for `view`; 1-based, -1 as last is the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 2, max_items = 2)]
    pub view_range: Option<Vec<i64>>,
}

/// The editor's commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EditorCommand {
    /// Show a file or a folder.
    View,
    /// Make a new file.
    Create,
    /// Replace the one occurrence of a text.
    StrReplace,
    /// Insert a text after a line.
    Insert,
    /// Take back the last edit of the file.
    UndoEdit,
}

#[cfg(test)]
#[path = "exec_tests.rs"]
mod tests;
