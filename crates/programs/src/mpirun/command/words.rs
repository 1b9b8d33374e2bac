// SPDX-License-Identifier: BSD-3-Clause
//! Brings the words of a command line that stand before a program into clap's form.
//!
//! Read next: `arguments.rs`, `others.rs`.

use std::ffi::OsString;

use clap::Arg;
use clap::builder::ValueRange;
use clap::error::ErrorKind;

use super::others::{INTERFACE, MCA, REFUSED, WITHOUT_EFFECT};

/// An option that stands before the program on the command line.
pub(super) enum Leading {
    /// An option of Outboard, or an unknown one: its name in clap's form, its values, and the range of words
    /// that it and its values took.
    Ours { name: String, values: Vec<OsString>, at: std::ops::Range<usize> },
    /// An option of another launcher that has no effect here, as a sentence that says why.
    Idle(String),
}

/// Returns the options that stand before the program, and the index in `words` of the program's name.
pub(super) fn leading(
    words: &[OsString],
    command: &clap::Command,
) -> Result<(Vec<Leading>, usize), clap::Error> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let text = word.to_str().unwrap_or("");
        if !text.starts_with('-') || text.len() < 2 {
            break;
        }
        let start = at;
        at += 1;
        if text == "--" {
            break;
        }
        let bare = text.trim_start_matches('-');
        let (name, glued) = bare.split_once('=').map_or((bare, None), |(name, value)| (name, Some(value)));
        if let Some((_, instead)) = REFUSED.iter().find(|(names, _)| names.contains(&name)) {
            let sentence = format!("{text} is not an option of Outboard: {instead}\n");
            return Err(command.clone().error(ErrorKind::UnknownArgument, sentence));
        }
        if let Some((_, values, why)) = WITHOUT_EFFECT.iter().find(|(names, ..)| names.contains(&name)) {
            at = (at + values - usize::from(glued.is_some() && *values > 0)).min(words.len());
            let (parameter, option) = INTERFACE;
            if MCA.contains(&name)
                && words[start..at].iter().any(|word| word.to_string_lossy().ends_with(parameter))
                && find(command, option, false).is_some()
            {
                let values = vec![words[at - 1].clone()];
                all.push(Leading::Ours { name: format!("--{option}"), values, at: start..at });
                continue;
            }
            let ignored: Vec<_> = words[start..at].iter().map(|word| word.to_string_lossy()).collect();
            all.push(Leading::Idle(format!("{} has no effect: {why}", ignored.join(" "))));
            continue;
        }
        let Some((name, arg)) = find(command, name, !text.starts_with("--")) else {
            let name = if is_short(text, command) { text.into() } else { format!("--{bare}") };
            all.push(Leading::Ours { name, values: Vec::new(), at: start..at });
            continue;
        };
        let mut wanted = arg.get_num_args().unwrap_or(ValueRange::EMPTY).min_values();
        let mut values: Vec<OsString> = glued.map(OsString::from).into_iter().collect();
        wanted = wanted.saturating_sub(values.len());
        while wanted > 0 {
            let Some(value) = words.get(at) else { break };
            (at, wanted) = (at + 1, wanted - 1);
            match value.to_str().and_then(|text| text.split_once('=')) {
                // `-env NAME=VALUE` for `-env NAME VALUE`.
                Some((name, value)) if wanted == 1 => {
                    values.extend([name.into(), value.into()]);
                    break;
                }
                _ => values.push(value.clone()),
            }
        }
        all.push(Leading::Ours { name, values, at: start..at });
    }
    Ok((all, at))
}

/// Whether a word is one dash and short options: `-n4`, `-xNAME=VALUE`, `-lv`. False for an unknown long name
/// with one dash such as `-help-me`, which clap would read as `-h`.
fn is_short(text: &str, command: &clap::Command) -> bool {
    let Some((letter, rest)) = text.strip_prefix('-').and_then(|text| text.split_at_checked(1)) else {
        return false;
    };
    match letter {
        "n" | "c" | "N" => rest.parse::<i64>().is_ok(),
        "x" => rest.contains('='),
        "C" | "f" => rest.contains('/'),
        "-" => false,
        _ => {
            let flag = |letter: char| {
                let arg = command.get_arguments().find(|arg| arg.get_short() == Some(letter));
                arg.is_some_and(|arg| matches!(arg.get_action(), clap::ArgAction::SetTrue))
            };
            text[1..].chars().all(flag)
        }
    }
}

/// Finds the option called `name`. Returns its name in clap's form and its description, or None if there is
/// no such option. If `short` is set, `name` may be one letter.
fn find<'a>(command: &'a clap::Command, name: &str, short: bool) -> Option<(String, &'a Arg)> {
    let letter = name.chars().next().filter(|_| short && name.chars().count() == 1);
    command.get_arguments().find_map(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        let shorts = arg.get_all_short_aliases().unwrap_or_default();
        if arg.get_long() == Some(name) || aliases.contains(&name) {
            Some((format!("--{name}"), arg))
        } else if letter.is_some()
            && (arg.get_short() == letter || shorts.iter().any(|&short| Some(short) == letter))
        {
            Some((format!("-{name}"), arg))
        } else {
            None
        }
    })
}
