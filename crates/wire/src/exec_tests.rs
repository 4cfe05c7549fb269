use super::*;

fn parse(body: &str) -> Result<ExecRequest, Refusal> {
    ExecRequest::parse(body.as_bytes())
}

#[test]
fn each_tool_kind_is_parsed() {
    assert_eq!(
        parse(r#"{"tool": "code_execution", "input": {"code": "print('\u00e9')", "x": 1}, "also": {"a": []}}"#),
        Ok(ExecRequest {
            tool_use_id: None,
            timeout_seconds: None,
            input: ExecInput::Code(CodeExecutionInput { code: "print('é')".to_owned(), echo_last_expression: None }),
        })
    );
    assert_eq!(
        parse(
            r#"{"input": {"command": "ls"}, "timeout_seconds": 7, "tool_use_id": "t", "tool": "bash_code_execution"}"#
        ),
        Ok(ExecRequest {
            tool_use_id: Some("t".to_owned()),
            timeout_seconds: Some(7),
            input: ExecInput::Bash(BashExecutionInput { command: "ls".to_owned() }),
        })
    );
    let echo = parse(r#"{"tool": "code_execution", "input": {"code": "1", "echo_last_expression": true}}"#).unwrap();
    assert!(matches!(echo.input, ExecInput::Code(CodeExecutionInput { echo_last_expression: Some(true), .. })));
}

#[test]
fn each_editor_command_is_parsed() {
    let cases = [
        (r#""view", "view_range": null"#, EditAction::View { view_range: None }),
        (r#""view", "view_range": [2, -1]"#, EditAction::View { view_range: Some((2, -1)) }),
        (r#""create", "file_text": """#, EditAction::Create { file_text: String::new() }),
        (
            r#""str_replace", "old_str": "a", "new_str": """#,
            EditAction::StrReplace { old_str: "a".to_owned(), new_str: String::new() },
        ),
        (
            r#""insert", "insert_line": 0, "new_str": "x""#,
            EditAction::Insert { insert_line: 0, new_str: "x".to_owned() },
        ),
        (r#""undo_edit", "view_range": "unused""#, EditAction::UndoEdit),
    ];
    for (fields, action) in cases {
        let body = format!(r#"{{"tool":"text_editor_code_execution","input":{{"path":"p","command":{fields}}}}}"#);
        let wanted = ExecInput::Edit(TextEditorEdit { path: "p".to_owned(), action });
        assert_eq!(parse(&body).unwrap().input, wanted, "{body}");
    }
}

#[test]
fn an_unknown_tool_is_told_apart() {
    for tool in ["no_such_tool", "CODE_EXECUTION", "code_execution "] {
        let refusal = parse(&format!(r#"{{"tool": "{tool}", "input": {{}}}}"#)).unwrap_err();
        assert!(matches!(refusal, Refusal::UnknownTool(_)), "{refusal}");
    }
    let refusal = parse(&format!(r#"{{"tool": "{}"}}"#, "x".repeat(100_000))).unwrap_err();
    assert!(refusal.detail().len() < 400, "a refusal does not repeat a long value");
}

/// Each body and a word that its refusal must hold, so that the caller knows what to change.
#[test]
fn what_is_malformed_is_refused_by_name() {
    let cases = [
        ("", "empty"),
        ("{", "JSON"),
        ("[]", "object"),
        ("null", "object"),
        ("{}", "`tool`"),
        (r#"{"tool": 5}"#, "`tool`"),
        (r#"{"tool": null}"#, "`tool`"),
        (r#"{"tool": "code_execution"}"#, "`input`"),
        (r#"{"tool": "code_execution", "input": null}"#, "`input`"),
        (r#"{"tool": "code_execution", "input": []}"#, "`input`"),
        (r#"{"tool": "code_execution", "input": "print(1)"}"#, "`input`"),
        (r#"{"tool": "code_execution", "input": {}}"#, "`input.code`"),
        (r#"{"tool": "code_execution", "input": {"code": ""}}"#, "`input.code`"),
        (r#"{"tool": "code_execution", "input": {"code": 5}}"#, "`input.code`"),
        (r#"{"tool": "code_execution", "input": {"code": null}}"#, "`input.code`"),
        (r#"{"tool": "code_execution", "input": {"code": "\ud800"}}"#, "`input.code`"),
        (r#"{"tool": "code_execution", "input": {"code": "1", "code": "2"}}"#, "duplicate"),
        (r#"{"tool": "code_execution", "input": {"code": "1", "echo_last_expression": 1}}"#, "echo_last_expression"),
        (r#"{"tool": "code_execution", "input": {"code": "1"}, "timeout_seconds": null}"#, "`timeout_seconds`"),
        (r#"{"tool": "code_execution", "input": {"code": "1"}, "tool_use_id": 5}"#, "`tool_use_id`"),
        (r#"{"tool": "code_execution", "input": {"code": "1"}} x"#, "JSON"),
        (r#"{"tool": "bash_code_execution", "input": {"code": "echo"}}"#, "`input.command`"),
        (r#"{"tool": "bash_code_execution", "input": {"command": "a\u0000b"}}"#, "NUL"),
        (r#"{"tool": "text_editor_code_execution", "input": {"command": "view"}}"#, "`input.path`"),
        (r#"{"tool": "text_editor_code_execution", "input": {"path": "x"}}"#, "`input.command`"),
        (r#"{"tool": "text_editor_code_execution", "input": {"command": "rename", "path": "x"}}"#, "undo_edit"),
        (r#"{"tool": "text_editor_code_execution", "input": {"command": "create", "path": "x"}}"#, "file_text"),
        (r#"{"tool": "text_editor_code_execution", "input": {"command": "insert", "path": "x"}}"#, "insert_line"),
    ];
    for (body, word) in cases {
        match parse(body) {
            Err(Refusal::Malformed(detail)) => assert!(detail.contains(word), "{body}: {detail}"),
            other => panic!("{body}: {other:?}"),
        }
    }
    for value in ["[1]", "[1,2,3]", "[1,2.5]", "[true,2]", "5", "{}", "[1,null]"] {
        let body = format!(
            r#"{{"tool":"text_editor_code_execution","input":{{"command":"view","path":"x","view_range":{value}}}}}"#
        );
        assert!(parse(&body).unwrap_err().detail().contains("view_range"), "{body}");
    }
    for value in ["0", "-1", "1.5", "1.0", "1e2", "\"soon\"", "[]", "true", "null"] {
        let body = format!(r#"{{"tool":"code_execution","input":{{"code":"1"}},"timeout_seconds":{value}}}"#);
        assert!(parse(&body).unwrap_err().detail().contains("timeout_seconds"), "{body}");
    }
}

#[test]
fn nesting_ends_in_a_refusal() {
    let deep = format!(r#"{{"tool":"code_execution","input":{{"code":"1"}},"x":{}"#, "[".repeat(1_000_000));
    assert!(matches!(parse(&deep), Err(Refusal::Malformed(_))));
}

#[test]
fn a_huge_timeout_is_whole_and_huge() {
    let body = format!(r#"{{"tool":"code_execution","input":{{"code":"1"}},"timeout_seconds":{}}}"#, "9".repeat(40));
    assert_eq!(parse(&body).unwrap().timeout_seconds, Some(u64::MAX));
}
