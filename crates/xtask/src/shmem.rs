// SPDX-License-Identifier: BSD-3-Clause
//! Makes the C functions of `liboshmem.so` and the header `shmem.h` from `tables/shmem.json`.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The contents of `tables/shmem.json`: the types, constants and functions of OpenSHMEM.
#[derive(Deserialize)]
pub struct Api {
    /// The types for which typed functions exist. The key is the type's name in function names; the value is
    /// the type in C and in Rust.
    types: BTreeMap<String, (String, String)>,
    /// The sets of types, by name. A set is a text with the names of its types, separated by spaces.
    sets: BTreeMap<String, String>,
    constants: Vec<(String, String)>,
    older_constants: String,
    pub functions: Vec<Family>,
}

/// A row of the table `functions`: one OpenSHMEM function, or one function for each type of a set.
#[derive(Deserialize)]
pub struct Family {
    pub name: String,
    pub args: String,
    #[serde(default)]
    types: String,
    #[serde(default)]
    pub ctx: bool,
    #[serde(default)]
    pub c11: String,
    #[serde(default)]
    by: usize,
    #[serde(default = "void")]
    pub returns: String,
    body: String,
    #[serde(default)]
    noreturn: bool,
}

fn void() -> String {
    "void".to_owned()
}

/// An OpenSHMEM function of the library. A row of `tables/shmem.json` gives one function, or one for each
/// type of the row's set.
pub struct ShmemFunction<'a> {
    pub family: &'a Family,
    pub name: String,
    /// The name of the function's type, which is a key of `Api::types`. It is empty if the function has no
    /// type.
    pub kind: &'a str,
    /// The function's type in C and in Rust. None if it has no type.
    ty: Option<&'a (String, String)>,
    /// Whether this form has a context as its first argument (`shmem_ctx_...`).
    pub has_ctx: bool,
}

impl Api {
    pub fn read(root: &Path) -> Result<Api, String> {
        let path = root.join("tables/shmem.json");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    pub fn of<'a>(&'a self, family: &'a Family) -> Result<Vec<ShmemFunction<'a>>, String> {
        let mut found = Vec::new();
        let names: Vec<&str> = match family.types.as_str() {
            "" => vec![""],
            set => self
                .sets
                .get(set)
                .ok_or_else(|| format!("tables/shmem.json: no set {set}"))?
                .split(' ')
                .collect(),
        };
        for has_ctx in [false, true] {
            for kind in &names {
                let ty = self.types.get(*kind);
                if ty.is_none() && !kind.is_empty() {
                    return Err(format!("tables/shmem.json: no type {kind}"));
                }
                let whole = family.name.replace('@', kind);
                let name = if has_ctx { whole.replacen("shmem_", "shmem_ctx_", 1) } else { whole };
                if !has_ctx || family.ctx {
                    found.push(ShmemFunction { family, name, kind, ty, has_ctx });
                }
            }
        }
        Ok(found)
    }

    pub fn all(&self) -> Result<Vec<ShmemFunction<'_>>, String> {
        let each: Result<Vec<_>, _> = self.functions.iter().map(|family| self.of(family)).collect();
        Ok(each?.into_iter().flatten().collect())
    }
}

impl Family {
    /// Returns the type and the name of each argument, as the row of the table has them.
    pub fn arguments(&self) -> impl Iterator<Item = (&str, &str)> {
        self.args.split(", ").filter(|arg| !arg.is_empty()).map(|arg| {
            let at = arg.rfind([' ', '*']).map_or(0, |at| at + 1);
            (arg[..at].trim(), &arg[at..])
        })
    }

    /// Whether the row's functions differ by the size of an element (`shmem_put32`), not by its type.
    pub fn is_by_size(&self) -> bool {
        ["bits", "bytes", "old"].contains(&self.types.as_str())
    }
}

impl ShmemFunction<'_> {
    /// Returns the type and the name of each argument in C. A context is the first of them.
    fn args(&self) -> Vec<(String, &str)> {
        let own = self.family.arguments().map(|(ty, name)| (self.in_c(ty), name));
        let ctx = self.has_ctx.then(|| ("shmem_ctx_t".to_owned(), "ctx"));
        ctx.into_iter().chain(own).collect()
    }

    /// Whether the function passes a long double by value. It is then written by hand in `long_double.rs`,
    /// because Rust lacks the type.
    fn passes_long_double(&self) -> bool {
        let passes = self.family.returns == "T" || self.family.arguments().any(|(ty, _)| ty == "T");
        passes && self.ty.is_some_and(|(_, rust)| rust == "LongDouble")
    }

    fn in_c(&self, ty: &str) -> String {
        let own = self.ty.map_or("", |(c, _)| c);
        let words: Vec<&str> = ty.split(' ').map(|word| if word == "T" { own } else { word }).collect();
        words.join(" ")
    }

    fn in_rust(&self, c: &str) -> &str {
        match c {
            _ if c.ends_with('*') => "usize",
            "int" => "c_int",
            "long" => "c_long",
            "size_t" | "shmem_ctx_t" | "shmem_team_t" => "usize",
            "ptrdiff_t" => "isize",
            "uint64_t" => "u64",
            "void" => "()",
            _ => self.ty.map_or("()", |(_, rust)| rust),
        }
    }

    /// Returns the Rust type for a type in the table. There `T` stands for the function's own type.
    fn rust_of(&self, ty: &str) -> &str {
        if ty == "T" { self.ty.map_or("()", |(_, rust)| rust) } else { self.in_rust(ty) }
    }

    fn declaration(&self) -> String {
        let args: Vec<String> = self
            .args()
            .iter()
            .map(|(ty, name)| match ty.as_str() {
                "" => "...".to_owned(),
                _ if ty.ends_with('*') => format!("{ty}{name}"),
                _ => format!("{ty} {name}"),
            })
            .collect();
        let returns = self.in_c(&self.family.returns);
        let gap = if returns.ends_with('*') { "" } else { " " };
        let args = if args.is_empty() { "void".to_owned() } else { args.join(", ") };
        let attribute = if self.family.noreturn { "OUTBOARD_NORETURN " } else { "" };
        format!("{attribute}{returns}{gap}{}({args});\n", self.name)
    }
}

/// Returns the second name of a function, for profiling tools: `pshmem_put` for `shmem_put`.
fn twin(name: &str) -> String {
    format!("p{name}")
}

/// Makes the text of `crates/oshmem/src/faces.rs`, which has the C functions of OpenSHMEM.
pub fn faces(api: &Api) -> Result<String, String> {
    let mut out = "\
//! The C functions of OpenSHMEM. Generated by `cargo run -p outboard-xtask -- gen` from `tables/shmem.json`.
#![allow(non_snake_case, clippy::too_many_arguments)]

use crate::element::*;
use crate::*;
use std::ffi::{c_int, c_long};

/// Exports a function under both of its names.
macro_rules! faces {
    ($($name:ident $twin:ident($($argument:ident: $kind:ty),*) -> $returns:ty = $body:expr;)*) => { $(
        #[unsafe(no_mangle)]
        pub extern \"C\" fn $name($($argument: $kind),*) -> $returns { $body }
        #[unsafe(no_mangle)]
        pub extern \"C\" fn $twin($($argument: $kind),*) -> $returns { $body }
    )* };
}

faces! {
"
    .to_owned();
    for function in api.all()?.iter().filter(|function| !function.passes_long_double()) {
        let own = function.family.arguments().filter(|(_, name)| *name != "...");
        let mut args: Vec<(String, &str)> =
            own.map(|(ty, name)| (function.rust_of(ty).to_owned(), name)).collect();
        let mut passed: Vec<&str> = args.iter().map(|(_, name)| *name).collect();
        if function.family.ctx {
            passed.insert(0, if function.has_ctx { "ctx" } else { "context::DEFAULT" });
        }
        if function.has_ctx {
            args.insert(0, ("usize".to_owned(), "ctx"));
        }
        let declared: Vec<String> = args.iter().map(|(ty, name)| format!("{name}: {ty}")).collect();
        let returns = function.rust_of(&function.family.returns);
        let generic = function.ty.map_or(String::new(), |(_, rust)| format!("::<{rust}>"));
        push!(
            out,
            "{} {}({}) -> {returns} = {}{generic}({});\n",
            function.name,
            twin(&function.name),
            declared.join(", "),
            function.family.body,
            passed.join(", ")
        );
    }
    out.push_str("}\n");
    Ok(out)
}

const TOP: &str = "\
/* OpenSHMEM 1.6 of Outboard. Generated by `cargo run -p outboard-xtask -- gen` from tables/shmem.json. */
#ifndef OUTBOARD_SHMEM_H
#define OUTBOARD_SHMEM_H

#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
#include <complex>
#define OUTBOARD_COMPLEX(type) std::complex<type>
#define OUTBOARD_NORETURN [[noreturn]]
extern \"C\" {
#else
#include <complex.h>
#define OUTBOARD_COMPLEX(type) type _Complex
#if defined __STDC_VERSION__ && __STDC_VERSION__ >= 201112L
#define OUTBOARD_NORETURN _Noreturn
#else
#define OUTBOARD_NORETURN
#endif
#endif

typedef struct outboard_shmem_ctx *shmem_ctx_t;
typedef struct outboard_shmem_team *shmem_team_t;
typedef struct { int num_contexts; } shmem_team_config_t;
typedef struct { size_t total_ops; } shmem_ctx_session_config_t;

";

const GENERIC: &str = "
#ifdef __cplusplus
}
#endif

#if defined __STDC_VERSION__ && __STDC_VERSION__ >= 201112L && !defined __cplusplus
void outboard_shmem_has_no_function_for_this_type(void);
#define OUTBOARD_SHMEM_0_(first, ...) first
#define OUTBOARD_SHMEM_0(...) OUTBOARD_SHMEM_0_(__VA_ARGS__, 0)
#define OUTBOARD_SHMEM_1_(first, ...) OUTBOARD_SHMEM_0_(__VA_ARGS__)
#define OUTBOARD_SHMEM_1(...) OUTBOARD_SHMEM_1_(__VA_ARGS__, 0)
#define shmem_sync(...) _Generic((OUTBOARD_SHMEM_0(__VA_ARGS__)), shmem_team_t: shmem_team_sync, default: shmem_sync)(__VA_ARGS__)
#define shmem_signal_add(...) _Generic((OUTBOARD_SHMEM_0(__VA_ARGS__)), shmem_ctx_t: shmem_ctx_signal_add, default: shmem_signal_add)(__VA_ARGS__)
#define shmem_signal_set(...) _Generic((OUTBOARD_SHMEM_0(__VA_ARGS__)), shmem_ctx_t: shmem_ctx_signal_set, default: shmem_signal_set)(__VA_ARGS__)
";

/// Makes the text of `include/shmem.h`, the C header of OpenSHMEM.
pub fn header(api: &Api) -> Result<String, String> {
    let mut out = TOP.to_owned();
    for (name, value) in &api.constants {
        push!(out, "#define {name} {value}\n");
    }
    for name in api.older_constants.split(' ') {
        push!(out, "#define _SHMEM_{name} SHMEM_{name}\n");
    }
    out.push('\n');
    for mut function in api.all()? {
        out.push_str(&function.declaration());
        function.name = twin(&function.name);
        out.push_str(&function.declaration());
    }
    out.push_str(GENERIC);
    for family in api.functions.iter().filter(|family| !family.c11.is_empty()) {
        let functions = api.of(family)?;
        let rows = |has_ctx| rows(&functions, has_ctx, family.by);
        let otherwise = "default: outboard_shmem_has_no_function_for_this_type";
        let by = family.by;
        push!(out, "#define {}(...) _Generic((OUTBOARD_SHMEM_{by}(__VA_ARGS__)), ", family.c11);
        if family.ctx {
            push!(out, "shmem_ctx_t: _Generic((OUTBOARD_SHMEM_1(__VA_ARGS__)), {}{otherwise}), ", rows(true));
        }
        push!(out, "{}{otherwise})(__VA_ARGS__)\n", rows(false));
    }
    out.push_str("#endif\n\n#endif\n");
    Ok(out)
}

/// Makes the list in a C11 _Generic: pairs of a pointer type and the function that is chosen for it. Each C
/// type is listed only once: int64_t, for example, is left out if its type is in the list under another name.
fn rows(functions: &[ShmemFunction], has_ctx: bool, by: usize) -> String {
    let (mut out, mut seen) = (String::new(), Vec::new());
    for function in functions.iter().filter(|function| function.has_ctx == has_ctx) {
        let (args, name) = (function.args(), &function.name);
        let (pointer, _) = &args[by + usize::from(has_ctx)];
        let ty = canonical(function.ty.map_or("", |(c, _)| c));
        if seen.contains(&ty) {
            continue;
        }
        seen.push(ty);
        if pointer.starts_with("const ") {
            push!(out, "const {ty} *: {name}, ");
        }
        push!(out, "{ty} *: {name}, ");
    }
    out
}

fn canonical(ty: &str) -> &str {
    match ty {
        "int8_t" => "signed char",
        "int16_t" => "short",
        "int32_t" => "int",
        "int64_t" | "ptrdiff_t" => "long",
        "uint8_t" => "unsigned char",
        "uint16_t" => "unsigned short",
        "uint32_t" => "unsigned int",
        "uint64_t" | "size_t" => "unsigned long",
        other => other,
    }
}
