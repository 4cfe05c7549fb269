//! From the lists to BPF: a balanced search over ranges of call numbers, then the conditions of the call.
//!
//! A filter that looks at one number after the other is thousands of instructions long, and the kernel runs it once
//! for every call number when it is loaded, to learn which calls it always allows: a millisecond for each process of
//! each cell. The search is a tenth of that. docs/decisions has the figures.

use std::collections::BTreeMap;

/// One instruction: `sock_filter` of linux/filter.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) code: u16,
    pub(super) if_true: u8,
    pub(super) if_false: u8,
    pub(super) k: u32,
}

/// What is answered to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Allow,
    Errno(i32),
    /// EPERM where every check of one of the rules holds; allowed otherwise.
    RefuseIf(Vec<Vec<Check>>),
}

/// A check of the low half of an argument: `(argument & mask) == value`, or its opposite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) argument: u8,
    pub(super) mask: u32,
    pub(super) value: u32,
    pub(super) equal: bool,
}

// linux/bpf_common.h: class, size, mode and source are or-ed together.
const LOAD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
// linux/seccomp.h: `struct seccomp_data` and the answers.
const NUMBER_OFFSET: u32 = 0;
const ARCH_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;
const ANSWER_KILL_PROCESS: u32 = 0x8000_0000;
const ANSWER_ERRNO: u32 = 0x0005_0000;
const ANSWER_ALLOW: u32 = 0x7fff_0000;

/// The filter for calls of `arch` (an AUDIT_ARCH number). A call that is not in `answers` gets `otherwise`, a call of
/// another processor's kind ends the process.
pub(super) fn compile(arch: u32, answers: &BTreeMap<u32, Answer>, otherwise: &Answer) -> Vec<Instruction> {
    let mut program = vec![
        plain(LOAD_WORD, ARCH_OFFSET),
        Instruction { code: JUMP_EQUAL, if_true: 1, if_false: 0, k: arch },
        plain(RETURN, ANSWER_KILL_PROCESS),
        plain(LOAD_WORD, NUMBER_OFFSET),
    ];
    program.extend(search(&ranges(answers, otherwise)));
    program
}

/// Ranges of neighbouring numbers with the same answer, by their first number; together they cover every number.
fn ranges<'a>(answers: &'a BTreeMap<u32, Answer>, otherwise: &'a Answer) -> Vec<(u32, &'a Answer)> {
    let mut ranges: Vec<(u32, &Answer)> = vec![(0, answers.get(&0).unwrap_or(otherwise))];
    let mut add = |number, answer| {
        if ranges.last().is_none_or(|(_, last)| *last != answer) {
            ranges.push((number, answer));
        }
    };
    for (number, answer) in answers {
        add(*number, answer);
        if let Some(next) = number.checked_add(1)
            && !answers.contains_key(&next)
        {
            add(next, otherwise);
        }
    }
    ranges
}

/// Instructions that find the range of the number in the accumulator, and end with its answer.
fn search(ranges: &[(u32, &Answer)]) -> Vec<Instruction> {
    let middle = ranges.len() / 2;
    let (left, right) = ranges.split_at(middle);
    match (left, right) {
        ([], [(_, answer), ..]) => leaf(answer),
        (_, [(pivot, _), ..]) => {
            let (below, above) = (search(left), search(right));
            let mut program = match u8::try_from(below.len()) {
                Ok(length) => vec![Instruction { code: JUMP_AT_LEAST, if_true: length, if_false: 0, k: *pivot }],
                // Too far for a conditional jump: over a plain one.
                Err(_) => vec![
                    Instruction { code: JUMP_AT_LEAST, if_true: 0, if_false: 1, k: *pivot },
                    plain(JUMP, below.len() as u32),
                ],
            };
            program.extend(below);
            program.extend(above);
            program
        }
        (_, []) => Vec::new(),
    }
}

fn leaf(answer: &Answer) -> Vec<Instruction> {
    match answer {
        Answer::Allow => vec![plain(RETURN, ANSWER_ALLOW)],
        Answer::Errno(number) => vec![plain(RETURN, ANSWER_ERRNO | number.cast_unsigned())],
        Answer::RefuseIf(rules) => {
            let mut program: Vec<Instruction> = rules.iter().flat_map(|rule| refusal(rule)).collect();
            program.push(plain(RETURN, ANSWER_ALLOW));
            program
        }
    }
}

/// EPERM where every check holds; otherwise it runs on behind its end.
fn refusal(checks: &[Check]) -> Vec<Instruction> {
    let mut program = vec![plain(RETURN, ANSWER_ERRNO | libc::EPERM.cast_unsigned())];
    for check in checks.iter().rev() {
        // A rule has a handful of checks of at most three instructions each.
        let past_the_end = program.len() as u8;
        let (if_true, if_false) = if check.equal { (0, past_the_end) } else { (past_the_end, 0) };
        let mut one = vec![plain(LOAD_WORD, ARGUMENTS_OFFSET + 8 * u32::from(check.argument))];
        if check.mask != u32::MAX {
            one.push(plain(AND, check.mask));
        }
        one.push(Instruction { code: JUMP_EQUAL, if_true, if_false, k: check.value });
        one.extend(program);
        program = one;
    }
    program
}

fn plain(code: u16, k: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, k }
}
