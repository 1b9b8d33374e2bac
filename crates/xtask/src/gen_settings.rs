// SPDX-License-Identifier: BSD-3-Clause
//! Generates `crates/settings/src/generated.rs` from `tables/settings.toml`: a struct with one typed field
//! for each setting, an enum for each setting that is a choice, and the table that `outboard info` and error
//! messages use.

use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsTable {
    setting: Vec<SettingEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingEntry {
    name: Option<String>,
    #[serde(default)]
    names: Vec<String>,
    r#type: String,
    default: String,
    #[serde(default)]
    choices: Vec<String>,
    min: Option<String>,
    max: Option<String>,
    scope: String,
    #[serde(default)]
    internal: bool,
    doc: String,
    why: String,
}

/// Returns the path of `crates/settings/src/generated.rs`, and its text, not yet formatted.
pub fn generate(root: &Path) -> Result<(PathBuf, String), String> {
    let table = root.join("tables/settings.toml");
    let toml = std::fs::read_to_string(&table).map_err(|error| format!("{}: {error}", table.display()))?;
    Ok((root.join("crates/settings/src/generated.rs"), source(&toml)?))
}

fn source(toml: &str) -> Result<String, String> {
    let table: SettingsTable =
        toml::from_str(toml).map_err(|error| format!("tables/settings.toml: {error}"))?;
    let mut fields = String::new();
    let mut values = String::new();
    let mut alike = String::new();
    let mut rows = String::new();
    let mut enums = String::new();
    for entry in &table.setting {
        for name in entry.name.iter().chain(&entry.names) {
            let optional = entry.default.is_empty();
            let kind = rust_type(name, &entry.r#type)?;
            let kind = if optional { format!("Option<{kind}>") } else { kind };
            let reader = if optional { "optional" } else { "required" };
            let doc = entry.doc.replace("{Name}", &capitalised(name));
            let index = rows.matches("Setting {").count();
            push!(fields, "/// {doc}\npub {name}: {kind},\n");
            push!(values, "{name}: values.{reader}({index})?,\n");
            push!(alike, "{index} => self.{name} == other.{name},\n");
            rows.push_str(&row(entry, name, &doc)?);
        }
        if entry.r#type == "choice" {
            let name = entry.name.as_deref().ok_or("a choice needs a single `name`")?;
            enums.push_str(&choice(name, entry));
        }
    }
    Ok(format!(
        "// Generated from tables/settings.toml by `cargo run -p outboard-xtask -- gen`; do not edit.\n\n\
         use std::path::PathBuf;\n\nuse crate::value::{{FromText, Scope, Setting, SettingKind, Values}};\n\n\
         /// All settings of this process. See [`TABLE`] for their defaults and reasons.\n\
         #[derive(Clone, Debug, PartialEq)]\npub struct Settings {{\n{fields}}}\n\n\
         impl Settings {{\npub(crate) fn read(values: &Values) -> error::Result<Settings> {{\n\
         Ok(Settings {{\n{values}}})\n}}\n\n\
         /// Whether `self` and `other` have the same value of the setting that is row `index` of the table.\n\
         pub(crate) fn agrees(&self, other: &Settings, index: usize) -> bool {{\nmatch index {{\n{alike}_ => true,\n}}\n}}\n}}\n\n\
         /// Every setting, in the order of the table.\npub const TABLE: &[Setting] = &[\n{rows}];\n{enums}"
    ))
}

fn rust_type(name: &str, kind: &str) -> Result<String, String> {
    Ok(match kind {
        "bytes" | "count" | "milliseconds" | "microseconds" => "u64".into(),
        "flag" => "bool".into(),
        "choice" => type_name(name),
        "list" => "Vec<u64>".into(),
        "path" => "PathBuf".into(),
        "text" => "String".into(),
        other => return Err(format!("setting {name}: no such type: {other}")),
    })
}

fn row(entry: &SettingEntry, name: &str, doc: &str) -> Result<String, String> {
    let kind = match entry.r#type.as_str() {
        kind @ ("bytes" | "count" | "milliseconds" | "microseconds") => {
            let second = if kind == "milliseconds" { 1_000 } else { 1_000_000 };
            let bound = |text: &Option<String>, none: &str| {
                text.as_deref()
                    .map_or(Ok(none.to_string()), |text| number(text, second).map(|n| n.to_string()))
            };
            let (min, max) = (bound(&entry.min, "0")?, bound(&entry.max, "u64::MAX")?);
            format!("SettingKind::{} {{ min: {min}, max: {max} }}", type_name(kind))
        }
        "choice" => format!("SettingKind::Choice(&{:?})", entry.choices),
        kind => format!("SettingKind::{}", type_name(kind)),
    };
    let scope = type_name(&entry.scope);
    Ok(format!(
        "Setting {{ name: {name:?}, variable: \"OUTBOARD_{}\", kind: {kind}, default: {:?}, scope: Scope::{scope}, \
         internal: {}, doc: {doc:?}, why: {:?} }},\n",
        name.to_uppercase(),
        entry.default,
        entry.internal,
        entry.why
    ))
}

fn choice(name: &str, entry: &SettingEntry) -> String {
    let variable = format!("OUTBOARD_{}", name.to_uppercase());
    let name = type_name(name);
    let variants: String = entry
        .choices
        .iter()
        .map(|choice| format!("/// The value `{choice}` of {variable}.\n{},\n", type_name(choice)))
        .collect();
    let arms: String = entry
        .choices
        .iter()
        .map(|choice| format!("{choice:?} => Ok({name}::{}),\n", type_name(choice)))
        .collect();
    format!(
        "\n/// {}\n#[derive(Clone, Copy, Debug, PartialEq, Eq)]\npub enum {name} {{\n{variants}}}\n\n\
         impl FromText for {name} {{\nfn from_text(_: &SettingKind, text: &str) -> Result<{name}, String> {{\n\
         match text {{\n{arms}_ => Err(format!(\"no such choice: {{text}}\")),\n}}\n}}\n}}\n",
        entry.doc
    )
}

/// Parses a setting's least or greatest value, such as `16KiB` or `5s`, and returns it as a number of the
/// setting's unit. `second` is the number of those units in a second.
fn number(text: &str, second: u64) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let value: u64 = text[..digits].parse().map_err(|_| format!("bound {text:?} is no number"))?;
    let factor = match &text[digits..] {
        "" | "us" | "ms" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "s" => second,
        unit => return Err(format!("bound {text:?}: no such unit: {unit}")),
    };
    Ok(value * factor)
}

/// Returns the name of the Rust enum for a setting's choices: `LargeProtocol` for the setting
/// `large_protocol`.
fn type_name(name: &str) -> String {
    name.split('_').map(capitalised).collect()
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}
