// SPDX-License-Identifier: BSD-3-Clause
//! Translates the command line of MVAPICH's `mpirun_rsh` into that of `mpirun`. The form that it reads is
//! `mpirun_rsh [-ssh|-rsh] -np N (-hostfile FILE | HOST...) [-dpufile FILE] [NAME=VALUE...] PROGRAM
//! [ARGUMENT...]` (MVAPICH2 user guide, section 5.2; `-dpufile` is MVAPICH2-DPU's).

use std::ffi::OsString;

/// Returns the command line of `mpirun` that means the same as the command line `words` of `mpirun_rsh`.
/// Unknown options stay as they are: `mpirun` then refuses them.
pub fn translated(words: &[OsString]) -> Vec<OsString> {
    let text = |at: usize| words.get(at).and_then(|word| word.to_str()).unwrap_or_default();
    let mut all: Vec<OsString> = Vec::new();
    let mut at = 0;
    let (mut ranks, mut has_hosts) = (1, false);
    while text(at).starts_with('-') {
        let option = text(at).trim_start_matches('-');
        at += 1;
        match option {
            "ssh" | "rsh" => all.extend(["--launcher".into(), option.into()]),
            // All variables are always passed on.
            "export" | "export-all" => {}
            "np" | "n" => {
                ranks = text(at).parse().unwrap_or(1);
                all.extend(["-n".into(), text(at).into()]);
                at += 1;
            }
            "hostfile" | "config" => {
                has_hosts |= option == "hostfile";
                let ours = if option == "hostfile" { "--hostfile" } else { "--configfile" };
                all.extend([ours.into(), text(at).into()]);
                at += 1;
            }
            "dpufile" => {
                all.extend(["--dpu-hostfile".into(), text(at).into()]);
                at += 1;
            }
            _ => all.push(words[at - 1].clone()),
        }
    }
    // On one machine hosts are not named: then variables or the program follow at once.
    let has_names = !(at..at + ranks).any(|at| text(at).contains(['=', '/']));
    if !has_hosts && has_names && at + ranks < words.len() {
        let hosts: Vec<&str> = (at..at + ranks).map(text).collect();
        all.extend(["--hosts".into(), hosts.join(",").into()]);
        at += ranks;
    }
    while let Some((name, value)) = text(at).split_once('=')
        && !name.contains('/')
    {
        all.extend(["-genv".into(), name.into(), value.into()]);
        at += 1;
    }
    all.extend_from_slice(words.get(at..).unwrap_or_default());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_user_guide() {
        for (line, ours) in [
            ("-np 4 n0 n0 n1 n1 ./cpi", "-n 4 --hosts n0,n0,n1,n1 ./cpi"),
            ("-ssh -np 4 -hostfile hosts ./cpi -x", "--launcher ssh -n 4 --hostfile hosts ./cpi -x"),
            (
                "-rsh -export -np 2 -hostfile hosts A=1 B=x=y prog C=3",
                "--launcher rsh -n 2 --hostfile hosts -genv A 1 -genv B x=y prog C=3",
            ),
            ("-np 2 A=1 B=2 ./cpi", "-n 2 -genv A 1 -genv B 2 ./cpi"),
            ("-np 2 -hostfile h ./a=b", "-n 2 --hostfile h ./a=b"),
            ("--help", "--help"),
            ("-v -np 1", "-v -n 1"),
        ] {
            let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
            assert_eq!(translated(&words(line)), words(ours), "{line}");
        }
    }
}
